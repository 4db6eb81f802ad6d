//! Why a configuration was refused.

use std::fmt;
use std::path::PathBuf;

/// Where a line of configuration came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A file.
    File(PathBuf),
    /// Standard input.
    Stdin,
    /// Options of the command line, one line each.
    CommandLine,
}

/// A configuration that was refused: where, which line, and why. Displayed as Redis does, with the file added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Where the line is; none if the reason is no single line.
    pub place: Option<Place>,
    /// Why.
    pub reason: String,
}

/// One line of configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where it came from.
    pub origin: Origin,
    /// Its number, from 1.
    pub line: usize,
    /// The line, without white space around it.
    pub text: String,
}

impl ConfigError {
    /// A refusal that belongs to no line.
    pub fn general(reason: impl Into<String>) -> ConfigError {
        ConfigError { place: None, reason: reason.into() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "*** FATAL CONFIG FILE ERROR (Gimmal {}) ***", env!("CARGO_PKG_VERSION"))?;
        if let Some(place) = &self.place {
            write!(f, "Reading the configuration file, at line {}", place.line)?;
            match &place.origin {
                Origin::File(path) => writeln!(f, " of {}", path.display())?,
                Origin::Stdin => writeln!(f, " of standard input")?,
                Origin::CommandLine => writeln!(f, " of the command line's options")?,
            }
            writeln!(f, ">>> '{}'", place.text)?;
        }
        write!(f, "{}", self.reason)
    }
}

impl std::error::Error for ConfigError {}
