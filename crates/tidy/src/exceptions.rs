//! `exceptions.txt`: what may break a rule, how far, and why. It may only shrink.
//!
//! A line is `RULE SUBJECT SIZE REASON…`; the subject is a path, or a path and a name (`a.rs::f`). SIZE is what the
//! subject measures (1 for a rule that measures nothing): a subject that has grown breaks the rule again, one that has
//! shrunk must have its entry lowered, one that obeys must lose it.

use std::collections::BTreeMap;

/// A subject that breaks a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What breaks it.
    pub subject: String,
    /// How much it measures; 1 for a rule that measures nothing.
    pub size: usize,
    /// For the reader: where, and what is wrong.
    pub message: String,
}

/// The entries of the list, by rule and subject.
pub struct Exceptions {
    sizes: BTreeMap<(String, String), usize>,
}

impl Exceptions {
    /// Reads the list; empty lines and lines that start with `#` do not count.
    ///
    /// # Panics
    /// On a line that is not an entry, has no reason, or comes twice.
    pub fn parse(text: &str) -> Self {
        let mut sizes = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let mut words = line.split_whitespace();
            let (Some(rule), Some(subject), Some(size), Some(_reason)) =
                (words.next(), words.next(), words.next(), words.next())
            else {
                panic!("not RULE SUBJECT SIZE REASON: {line}");
            };
            let size = size.parse().unwrap_or_else(|error| panic!("{line}: {error}"));
            let before = sizes.insert((rule.to_owned(), subject.to_owned()), size);
            assert!(before.is_none(), "listed twice: {line}");
        }
        Self { sizes }
    }

    /// The rules that the list names.
    pub fn rules(&self) -> impl Iterator<Item = &str> {
        self.sizes.keys().map(|(rule, _)| rule.as_str())
    }

    /// What is wrong with the tree and with the list as far as `rule` is concerned; empty when all is well.
    pub fn judge(&self, rule: &str, findings: &[Finding]) -> Vec<String> {
        let mut wrong = Vec::new();
        for finding in findings {
            match self.sizes.get(&(rule.to_owned(), finding.subject.clone())) {
                Some(allowed) if *allowed == finding.size => {}
                Some(allowed) if *allowed > finding.size => {
                    wrong.push(format!("{}: lower its exception from {allowed} to {}", finding.subject, finding.size));
                }
                _ => wrong.push(finding.message.clone()),
            }
        }
        for (listed_rule, subject) in self.sizes.keys() {
            if listed_rule == rule && findings.iter().all(|finding| finding.subject != *subject) {
                wrong.push(format!("{subject}: its exception from {rule} is no longer needed"));
            }
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(subject: &str, size: usize) -> Finding {
        Finding { subject: subject.into(), size, message: format!("{subject} is too long") }
    }

    #[test]
    fn the_list_may_only_shrink() {
        let list = Exceptions::parse("# why\n\nlong a.rs::f 80 a flat match\nother a.rs 1 because\n");
        assert_eq!(list.judge("long", &[finding("a.rs::f", 80)]), Vec::<String>::new());
        assert_eq!(list.judge("long", &[finding("a.rs::f", 81)]), ["a.rs::f is too long"]);
        assert_eq!(list.judge("long", &[finding("a.rs::f", 79)]), ["a.rs::f: lower its exception from 80 to 79"]);
        assert_eq!(list.judge("long", &[]), ["a.rs::f: its exception from long is no longer needed"]);
        assert_eq!(list.judge("long", &[finding("a.rs::f", 80), finding("b.rs::g", 1)]), ["b.rs::g is too long"]);
        assert_eq!(list.rules().collect::<Vec<_>>(), ["long", "other"]);
    }

    #[test]
    #[should_panic(expected = "not RULE SUBJECT SIZE REASON")]
    fn an_entry_needs_a_reason() {
        Exceptions::parse("long a.rs::f 80");
    }
}
