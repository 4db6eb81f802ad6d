//! What a directive is: the shape of one row of the table, and the constructors the table is written with.
//!
//! Everything here is `const`, so that the table is data in the binary and ids can be looked up by name while compiling.

use super::value::Value;

/// One configuration directive. The only declaration of it: parser, CONFIG, sample file and reference all read this.
pub struct Directive {
    /// The name it is printed and rewritten under.
    pub name: &'static str,
    /// Other names it is read and set by.
    pub aliases: &'static [&'static str],
    /// Type, default and bounds.
    pub kind: Kind,
    /// One sentence for the sample file and the reference.
    pub doc: &'static str,
    /// When it may change.
    pub change: Change,
    /// Who knows it.
    pub origin: Origin,
    /// Whether this server acts on it.
    pub effect: Effect,
    /// Left out of glob matches of CONFIG GET and of the sample; for tests and debugging.
    pub hidden: bool,
    /// Its value is a secret: command logs must not show it.
    pub sensitive: bool,
    /// CONFIG SET refuses it while a data set is being loaded.
    pub fixed_while_loading: bool,
    /// Checks a parsed value further and may replace it; the error is the reason shown.
    pub check: Option<Check>,
}

/// A further check of one value: the value to store, or why not.
pub type Check = fn(Value) -> Result<Value, String>;

/// The type of a directive's value, with its default and bounds (bounds are inclusive).
#[derive(Clone, Copy)]
pub enum Kind {
    /// `yes` or `no`.
    Flag(bool),
    /// A signed decimal integer.
    Number {
        /// Value when not set.
        default: i64,
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// Permission bits, written in octal.
    Octal {
        /// Largest value.
        max: u64,
    },
    /// An amount of memory in bytes, with an optional unit (`1k` = 1000, `1kb` = 1024, `m`, `mb`, `g`, `gb`).
    Bytes {
        /// Value when not set.
        default: u64,
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
    /// An amount of memory, or a percentage (`5%`) of another one.
    BytesOrPercent {
        /// Largest amount of bytes.
        max: u64,
    },
    /// One word of a list.
    Choice {
        /// Code of the default word.
        default: u8,
        /// Words and their codes; the first word of a code is the one printed.
        words: &'static [(&'static str, u8)],
    },
    /// Any number of words of a list, as bits; the word with code 0 stands for none.
    Choices {
        /// Words and their bits.
        words: &'static [(&'static str, u8)],
    },
    /// Any text.
    Text {
        /// Value when not set.
        default: &'static str,
        /// The empty text means "not set": CONFIG REWRITE then leaves no line.
        optional: bool,
    },
    /// A list with a form of its own; the default is given in words.
    List {
        /// Which form.
        form: Form,
        /// The default, as it would be written.
        default: &'static str,
    },
}

/// Values that are lists with rules of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// `bind`: up to 16 addresses.
    Addresses,
    /// `save`: pairs of seconds and changes.
    SavePoints,
    /// `client-output-buffer-limit`: class, hard, soft, seconds.
    OutputLimits,
    /// `oom-score-adj-values`: three integers.
    OomScores,
    /// `latency-tracking-info-percentiles`.
    Percentiles,
    /// `replicaof`: host and port, or `no one`.
    ReplicaOf,
    /// `notify-keyspace-events`: a set of letters.
    Events,
    /// `dir`: an existing directory, stored absolute.
    Directory,
}

impl Form {
    /// Whether it takes exactly one argument (Redis does not split the argument of these into words).
    pub const fn takes_one(self) -> bool {
        matches!(self, Form::Events | Form::Directory)
    }
}

/// When a directive may change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// With CONFIG SET, at any time.
    Live,
    /// With CONFIG SET where `enable-protected-configs` allows it.
    Protected,
    /// Only at start.
    AtStart,
}

/// Which server introduced a directive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Redis up to 7.2.
    Redis,
    /// Valkey, accepted so that its configuration files start this server.
    Valkey,
    /// This server.
    Gimmal,
}

/// Whether this server acts on a directive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It does.
    Works,
    /// It will: the value is accepted, kept and shown, and the start log names it.
    NotYet,
    /// It never will, for this reason: the value is accepted, kept and shown.
    Ignored(&'static str),
}

impl Directive {
    const fn new(name: &'static str, kind: Kind, doc: &'static str) -> Directive {
        Directive {
            name,
            aliases: &[],
            kind,
            doc,
            change: Change::Live,
            origin: Origin::Redis,
            effect: Effect::Works,
            hidden: false,
            sensitive: false,
            fixed_while_loading: false,
            check: None,
        }
    }

    /// Further names.
    pub const fn alias(mut self, aliases: &'static [&'static str]) -> Directive {
        self.aliases = aliases;
        self
    }

    /// May only be given at start.
    pub const fn at_start(mut self) -> Directive {
        self.change = Change::AtStart;
        self
    }

    /// CONFIG SET needs `enable-protected-configs`.
    pub const fn protected(mut self) -> Directive {
        self.change = Change::Protected;
        self
    }

    /// Known from Valkey.
    pub const fn valkey(mut self) -> Directive {
        self.origin = Origin::Valkey;
        self
    }

    /// This server's own.
    pub const fn gimmal(mut self) -> Directive {
        self.origin = Origin::Gimmal;
        self
    }

    /// Accepted, without effect in this version.
    pub const fn not_yet(mut self) -> Directive {
        self.effect = Effect::NotYet;
        self
    }

    /// Accepted, and without effect by design.
    pub const fn ignored(mut self, why: &'static str) -> Directive {
        self.effect = Effect::Ignored(why);
        self
    }

    /// Only found by its exact name.
    pub const fn hidden(mut self) -> Directive {
        self.hidden = true;
        self
    }

    /// The value is a secret.
    pub const fn sensitive(mut self) -> Directive {
        self.sensitive = true;
        self
    }

    /// Not to be changed while loading.
    pub const fn fixed_while_loading(mut self) -> Directive {
        self.fixed_while_loading = true;
        self
    }

    /// Adds a check.
    pub const fn check(mut self, check: Check) -> Directive {
        self.check = Some(check);
        self
    }

    /// Whether `name` is its name or an alias, without regard to case.
    pub fn answers_to(&self, name: &str) -> bool {
        self.names().any(|own| own.eq_ignore_ascii_case(name))
    }

    /// Whether no server that clients know has it in effect: it is this server's own, or does nothing here by design.
    pub fn is_foreign(&self) -> bool {
        self.origin == Origin::Gimmal || matches!(self.effect, Effect::Ignored(_))
    }

    /// Its name, then its aliases.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// Whether it takes any number of arguments.
    pub const fn takes_many(&self) -> bool {
        match self.kind {
            Kind::Choices { .. } => true,
            Kind::List { form, .. } => !form.takes_one(),
            _ => false,
        }
    }
}

/// A `yes`/`no` directive.
pub const fn flag(name: &'static str, default: bool, doc: &'static str) -> Directive {
    Directive::new(name, Kind::Flag(default), doc)
}

/// An integer between `min` and `max`, both included.
pub const fn number(name: &'static str, default: i64, (min, max): (i64, i64), doc: &'static str) -> Directive {
    Directive::new(name, Kind::Number { default, min, max }, doc)
}

/// An amount of memory between `min` and `max` bytes, both included.
pub const fn bytes(name: &'static str, default: u64, (min, max): (u64, u64), doc: &'static str) -> Directive {
    Directive::new(name, Kind::Bytes { default, min, max }, doc)
}

/// One of `words`; `default` is the code of one of them.
pub const fn choice(
    name: &'static str,
    default: u8,
    words: &'static [(&'static str, u8)],
    doc: &'static str,
) -> Directive {
    Directive::new(name, Kind::Choice { default, words }, doc)
}

/// A text that may be empty.
pub const fn text(name: &'static str, default: &'static str, doc: &'static str) -> Directive {
    Directive::new(name, Kind::Text { default, optional: false }, doc)
}

/// A text that is not set when empty.
pub const fn optional(name: &'static str, doc: &'static str) -> Directive {
    Directive::new(name, Kind::Text { default: "", optional: true }, doc)
}

/// A list with a form of its own.
pub const fn list(name: &'static str, default: &'static str, form: Form, doc: &'static str) -> Directive {
    Directive::new(name, Kind::List { form, default }, doc)
}

/// Any other kind.
pub const fn of_kind(name: &'static str, kind: Kind, doc: &'static str) -> Directive {
    Directive::new(name, kind, doc)
}

/// Bounds of Redis's C types.
pub mod bound {
    /// 0 to the largest `int`.
    pub const INT: (i64, i64) = (0, i32::MAX as i64);
    /// 1 to the largest `int`.
    pub const POSITIVE_INT: (i64, i64) = (1, i32::MAX as i64);
    /// Any `int`.
    pub const ANY_INT: (i64, i64) = (i32::MIN as i64, i32::MAX as i64);
    /// 0 to the largest `long`.
    pub const LONG: (i64, i64) = (0, i64::MAX);
    /// A TCP port, 0 for none.
    pub const PORT: (i64, i64) = (0, u16::MAX as i64);
    /// 0 to the largest signed size.
    pub const SIZE: (u64, u64) = (0, i64::MAX as u64);
    /// 0 to the largest unsigned size.
    pub const BIG_SIZE: (u64, u64) = (0, u64::MAX);
}
