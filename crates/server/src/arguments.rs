//! Short constructors for the argument trees of COMMAND DOCS: `integer("count").after("COUNT").optional()`.
//!
//! All are `const`, so that a tree is data in the binary.

use crate::command::Argument;

const fn named(name: &'static str, kind: &'static str) -> Argument {
    Argument { name, kind, ..Argument::DEFAULT }
}

/// A string.
pub const fn string(name: &'static str) -> Argument {
    named(name, "string")
}

/// An integer.
pub const fn integer(name: &'static str) -> Argument {
    named(name, "integer")
}

/// A number with a fraction.
pub const fn double(name: &'static str) -> Argument {
    named(name, "double")
}

/// A glob.
pub const fn pattern(name: &'static str) -> Argument {
    named(name, "pattern")
}

/// A point in time.
pub const fn unix_time(name: &'static str) -> Argument {
    named(name, "unix-time")
}

/// A key of the command's key spec number `spec`.
pub const fn key(name: &'static str, spec: usize) -> Argument {
    Argument { key_spec: Some(spec), ..named(name, "key") }
}

/// A literal word.
pub const fn word(name: &'static str, token: &'static str) -> Argument {
    Argument { token, ..named(name, "pure-token") }
}

/// One of several.
pub const fn one_of(name: &'static str, parts: &'static [Argument]) -> Argument {
    Argument { parts, ..named(name, "oneof") }
}

/// Several that belong together.
pub const fn block(name: &'static str, parts: &'static [Argument]) -> Argument {
    Argument { parts, ..named(name, "block") }
}

impl Argument {
    /// The literal word before it.
    pub const fn after(self, token: &'static str) -> Argument {
        Argument { token, ..self }
    }

    /// It may be left out.
    pub const fn optional(self) -> Argument {
        Argument { flags: self.flags | Argument::OPTIONAL, ..self }
    }

    /// It may be repeated.
    pub const fn many(self) -> Argument {
        Argument { flags: self.flags | Argument::MULTIPLE, ..self }
    }

    /// Its token is repeated with it.
    pub const fn many_tokens(self) -> Argument {
        Argument { flags: self.flags | Argument::MULTIPLE_TOKEN, ..self }
    }

    /// Version that introduced it.
    pub const fn since(self, since: &'static str) -> Argument {
        Argument { since, ..self }
    }

    /// Version that deprecated it.
    pub const fn deprecated(self, deprecated: &'static str) -> Argument {
        Argument { deprecated, ..self }
    }

    /// How it is shown in a syntax line, where that is not its name.
    pub const fn shown(self, shown: &'static str) -> Argument {
        Argument { shown, ..self }
    }
}
