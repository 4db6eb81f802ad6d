//! CONFIG SET: all of the values given, or none.

use super::directive::Change;
use super::value::Reading;
use super::{Config, Id};
use std::fmt;

/// Who asks for a change.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caller {
    /// The client is on this host.
    pub local: bool,
    /// A data set is being loaded.
    pub loading: bool,
}

/// Why CONFIG SET changed nothing. Displayed as the error reply, code included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetError {
    /// No directive has this name.
    Unknown(String),
    /// This argument, for this reason.
    Refused {
        /// The directive as it was named.
        argument: String,
        /// Why.
        reason: String,
    },
    /// Not while a data set is being loaded.
    Loading,
}

impl SetError {
    /// A refusal by whoever applies the new value, such as a port that cannot be opened.
    pub fn refused(id: Id, reason: impl Into<String>) -> SetError {
        SetError::Refused { argument: id.directive().name.into(), reason: reason.into() }
    }
}

impl fmt::Display for SetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetError::Unknown(name) => write!(f, "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"),
            SetError::Refused { argument, reason } => {
                write!(f, "ERR CONFIG SET failed (possibly related to argument '{argument}') - {reason}")
            }
            SetError::Loading => write!(f, "LOADING Redis is loading the dataset in memory"),
        }
    }
}

impl std::error::Error for SetError {}

impl Config {
    /// CONFIG SET by a client on another host while nothing is being loaded; see [`Config::set_by`].
    ///
    /// # Errors
    /// The first pair that is refused.
    pub fn set(&self, pairs: &[(&[u8], &[u8])]) -> Result<Config, SetError> {
        self.set_by(Caller::default(), pairs)
    }

    /// The configuration with all of the new values, for the server to apply and put in place.
    ///
    /// Names and permissions are checked for all pairs before any value is.
    ///
    /// # Errors
    /// The first pair that is refused.
    pub fn set_by(&self, caller: Caller, pairs: &[(&[u8], &[u8])]) -> Result<Config, SetError> {
        let mut ids: Vec<Id> = Vec::with_capacity(pairs.len());
        for (name, value) in pairs {
            let shown = one_line(name);
            let id = Id::find(&shown).ok_or_else(|| SetError::Unknown(shown.clone()))?;
            let refused = |reason: &str| SetError::Refused { argument: shown.clone(), reason: reason.into() };
            let directive = id.directive();
            match directive.change {
                // Tools that set every directive to what CONFIG GET said know which are fixed in their server, not these.
                Change::AtStart if directive.is_foreign() && self.holds(id, value) => {}
                Change::AtStart => return Err(refused("can't set immutable config")),
                Change::Protected if !self.enable_protected_configs().allows(caller.local) => {
                    return Err(refused("can't set protected config"));
                }
                Change::Live | Change::Protected => {}
            }
            if caller.loading && directive.fixed_while_loading {
                return Err(SetError::Loading);
            }
            if ids.contains(&id) {
                return Err(refused("duplicate parameter"));
            }
            ids.push(id);
        }
        let mut changed = self.clone();
        for (id, (name, value)) in ids.into_iter().zip(pairs) {
            match changed.read(id, value) {
                Ok(value) => changed.values[id.0] = value,
                Err(reason) => return Err(SetError::Refused { argument: one_line(name).to_ascii_lowercase(), reason }),
            }
        }
        Ok(changed)
    }

    /// Whether the directive has this value already.
    fn holds(&self, id: Id, value: &[u8]) -> bool {
        self.read(id, value).is_ok_and(|value| value == *self.value(id))
    }

    fn read(&self, id: Id, value: &[u8]) -> Result<super::Value, String> {
        let value = str::from_utf8(value).map_err(|_| "argument is not valid UTF-8")?;
        let words: Vec<String> = match value {
            "" if id.directive().takes_many() => Vec::new(),
            _ if id.directive().takes_many() => value.split(' ').map(str::to_owned).collect(),
            _ => vec![value.to_owned()],
        };
        let reading = Reading { previous: self.value(id), adds_up: false, base: self.dir() };
        id.directive().read(&words, &reading)
    }

    /// Whether the value of the directive of this name is a secret, which command logs must not show.
    pub fn is_sensitive(name: &[u8]) -> bool {
        str::from_utf8(name).ok().and_then(Id::find).is_some_and(|id| id.directive().sensitive)
    }
}

/// A client's text, fit for an error reply.
fn one_line(text: &[u8]) -> String {
    String::from_utf8_lossy(text).replace(['\r', '\n'], " ")
}
