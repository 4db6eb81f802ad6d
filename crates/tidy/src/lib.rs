//! The project's own rules: what `tests/rules.rs` checks is found here.
//!
//! Everything is read from the tree itself, so a rule needs no list of files. What breaks a rule for a reason stands
//! in `exceptions.txt`, which may only shrink: an entry that is no longer needed fails the tests as well.
//! Dropped alternative: shell scripts with regular expressions; they cannot tell code from strings and comments.

#![forbid(unsafe_code)]

mod exceptions;
mod source;
mod tree;

pub use exceptions::{Exceptions, Finding};
pub use source::{Function, Ident, RustFile};
pub use tree::{root, rust_files, text_files};

/// The median; 0 of nothing.
pub fn median(mut values: Vec<usize>) -> usize {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn medians() {
        assert_eq!(super::median(vec![5, 1, 3]), 3);
        assert_eq!(super::median(vec![]), 0);
    }
}
