//! The table of all directives, by section, and ids into it that are checked while compiling.
//!
//! A directive's id is its position in the table. Ids are never stored: they are found by name in a `const`, so a misspelt
//! name or a wrong type does not compile. Dropped: a macro that makes the table and an enum of ids together; the table would
//! no longer be ordinary data that an editor can find its way in.

mod clients;
mod cluster;
mod diagnostics;
mod encodings;
mod general;
mod memory;
mod network;
mod persistence;
mod replication;
mod threads;
mod tls;

use super::directive::{Directive, Kind};

/// Directives that belong together.
pub struct Section {
    /// Heading in the sample file and the reference.
    pub title: &'static str,
    /// Its directives.
    pub directives: &'static [Directive],
}

/// The table, in the order of the sample file.
pub const SECTIONS: &[Section] = &[
    Section { title: "Network", directives: network::DIRECTIVES },
    Section { title: "Process and log", directives: general::DIRECTIVES },
    Section { title: "Workers and I/O", directives: threads::DIRECTIVES },
    Section { title: "Clients and security", directives: clients::DIRECTIVES },
    Section { title: "Memory", directives: memory::DIRECTIVES },
    Section { title: "Snapshots and the append-only file", directives: persistence::DIRECTIVES },
    Section { title: "Replication", directives: replication::DIRECTIVES },
    Section { title: "Encodings of small values", directives: encodings::DIRECTIVES },
    Section { title: "Slow log, latency and events", directives: diagnostics::DIRECTIVES },
    Section { title: "Cluster", directives: cluster::DIRECTIVES },
    Section { title: "TLS", directives: tls::DIRECTIVES },
];

/// How many directives there are.
pub const COUNT: usize = {
    let (mut count, mut section) = (0, 0);
    while section < SECTIONS.len() {
        count += SECTIONS[section].directives.len();
        section += 1;
    }
    count
};

/// All directives; the index is the id.
pub static DIRECTIVES: [&Directive; COUNT] = {
    let mut all = [&SECTIONS[0].directives[0]; COUNT];
    let (mut next, mut section) = (0, 0);
    while section < SECTIONS.len() {
        let mut row = 0;
        while row < SECTIONS[section].directives.len() {
            all[next] = &SECTIONS[section].directives[row];
            next += 1;
            row += 1;
        }
        section += 1;
    }
    all
};

/// A directive's position in the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Id(pub(super) usize);

impl Id {
    /// The directive of this primary name. In a `const`, an unknown name does not compile.
    pub const fn of(name: &str) -> Id {
        let (mut id, mut section) = (0, 0);
        while section < SECTIONS.len() {
            let mut row = 0;
            while row < SECTIONS[section].directives.len() {
                if same(SECTIONS[section].directives[row].name, name) {
                    return Id(id);
                }
                id += 1;
                row += 1;
            }
            section += 1;
        }
        panic!("no directive has this name")
    }

    /// The directive that answers to `name`, an alias or any case included.
    pub fn find(name: &str) -> Option<Id> {
        DIRECTIVES.iter().position(|directive| directive.answers_to(name)).map(Id)
    }

    /// Its row.
    pub fn directive(self) -> &'static Directive {
        DIRECTIVES[self.0]
    }

    /// All ids in the table's order.
    pub fn all() -> impl Iterator<Item = Id> {
        (0..COUNT).map(Id)
    }

    const fn kind(self) -> Kind {
        let (mut before, mut section) = (0, 0);
        while self.0 >= before + SECTIONS[section].directives.len() {
            before += SECTIONS[section].directives.len();
            section += 1;
        }
        SECTIONS[section].directives[self.0 - before].kind
    }
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// The id of a `yes`/`no` directive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flag(pub(super) Id);

/// The id of an integer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Number(pub(super) Id);

/// The id of an amount of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bytes(pub(super) Id);

/// The id of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Text(pub(super) Id);

/// The id of one word of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice(pub(super) Id);

impl Flag {
    /// As [`Id::of`]; a directive of another type does not compile either.
    pub const fn of(name: &str) -> Flag {
        let id = Id::of(name);
        assert!(matches!(id.kind(), Kind::Flag(_)), "not a yes/no directive");
        Flag(id)
    }
}

impl Number {
    /// As [`Id::of`]; a directive of another type does not compile either.
    pub const fn of(name: &str) -> Number {
        let id = Id::of(name);
        assert!(matches!(id.kind(), Kind::Number { .. }), "not an integer");
        Number(id)
    }

    /// As [`Number::of`]; a directive whose bounds are wider than these does not compile either.
    pub const fn within(name: &str, lowest: i64, highest: i64) -> Number {
        let id = Id::of(name);
        match id.kind() {
            Kind::Number { min, max, .. } => assert!(lowest <= min && max <= highest, "wider bounds"),
            _ => panic!("not an integer"),
        }
        Number(id)
    }
}

impl Bytes {
    /// As [`Id::of`]; a directive of another type does not compile either.
    pub const fn of(name: &str) -> Bytes {
        let id = Id::of(name);
        assert!(matches!(id.kind(), Kind::Bytes { .. } | Kind::Octal { .. }), "not an amount of memory");
        Bytes(id)
    }
}

impl Text {
    /// As [`Id::of`]; a directive of another type does not compile either.
    pub const fn of(name: &str) -> Text {
        let id = Id::of(name);
        assert!(matches!(id.kind(), Kind::Text { .. }), "not a text");
        Text(id)
    }
}

impl Choice {
    /// As [`Id::of`]; a directive of another type does not compile either.
    pub const fn of(name: &str) -> Choice {
        let id = Id::of(name);
        assert!(matches!(id.kind(), Kind::Choice { .. } | Kind::Choices { .. }), "not one of a list of words");
        Choice(id)
    }
}

#[cfg(test)]
mod tests {
    use super::{DIRECTIVES, Flag, Id, SECTIONS};
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_written_as_names() {
        let mut seen = HashSet::new();
        for directive in DIRECTIVES {
            for name in directive.names() {
                assert!(seen.insert(name), "{name} is declared twice");
                assert!(
                    name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_'),
                    "{name}"
                );
            }
        }
        assert!(seen.len() > 200, "{}", seen.len());
    }

    #[test]
    fn every_directive_is_described_in_a_sentence() {
        for directive in DIRECTIVES {
            assert!(
                directive.doc.ends_with('.') && directive.doc.len() > 10,
                "{}: {:?}",
                directive.name,
                directive.doc
            );
            assert!(
                directive.doc.chars().next().is_some_and(char::is_uppercase),
                "{}: {:?}",
                directive.name,
                directive.doc
            );
        }
        assert!(SECTIONS.iter().all(|section| !section.directives.is_empty()));
    }

    #[test]
    fn ids_lead_to_their_directive() {
        for (index, directive) in DIRECTIVES.iter().enumerate() {
            assert_eq!(Id::of(directive.name), Id(index));
            assert_eq!(Id::find(&directive.name.to_uppercase()), Some(Id(index)));
            assert_eq!(std::mem::discriminant(&Id(index).kind()), std::mem::discriminant(&directive.kind));
        }
        const APPENDONLY: Flag = Flag::of("appendonly");
        assert_eq!(APPENDONLY.0.directive().name, "appendonly");
        assert_eq!(Id::find("slave-priority"), Some(Id::of("replica-priority")));
        assert_eq!(Id::find("no-such-directive"), None);
    }
}
