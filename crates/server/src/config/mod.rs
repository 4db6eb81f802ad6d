//! Configuration: files, command line, CONFIG GET, SET and REWRITE, the sample file and the reference.
//!
//! Every directive is declared once, in [`table`]; everything here is driven by that table. A [`Config`] is plain data: one
//! typed value per directive. It never changes: CONFIG SET makes a new one, which the server puts in place of the old one
//! after it has applied the difference ([`Config::changes_since`]). Nothing here opens sockets, changes the working
//! directory, or knows a client.
//!
//! Where Redis and this server differ on purpose: `bind` and the normal class of `client-output-buffer-limit` have safe
//! defaults, `dir` is stored absolute instead of changing the process's directory while a file is being read, includes that
//! include each other are refused, and values must be UTF-8.
//!
//! Dropped: a struct with one field per directive, which would need parser, printer and comparison written per field.

mod accessors;
mod change;
mod check;
pub mod choices;
mod command_line;
pub mod directive;
mod document;
mod error;
mod include;
pub mod lists;
mod load;
mod rewrite;
pub mod table;
pub mod title;
mod value;
pub mod words;

#[cfg(test)]
mod tests;

pub use change::{Caller, SetError};
pub use choices::{
    AofAck, AofIo, AofUringCompletion, AofUringOrder, Appendfsync, EpollFlush, EpollTrigger, Guarded, IoEngine,
    IoModel, LogLevel, MaxmemoryPolicy, OnError, OomScoreAdj, ReplyQueue, ShutdownWish, Supervised, UringOrder,
    UringRecv, UringSubmit, UringWrite,
};
pub use document::{reference, sample};
pub use error::{ConfigError, Origin};
pub use lists::{ClientClass, Events, OutputLimit, ReplicaOf, SavePoint};
pub use load::{Invocation, Loaded, load, read};
pub use table::{Bytes, Choice, Flag, Id, Number, Text};
pub use value::Value;

use crate::glob;
use std::path::{Path, PathBuf};

/// The server's configuration: one value per directive, and the lines that are no directives.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// By [`Id`].
    values: Vec<Value>,
    /// The file it was read from, absolute; CONFIG REWRITE writes there.
    file: Option<PathBuf>,
    /// `rename-command` lines, in order.
    renames: Vec<Rename>,
    /// The words of `user` lines after `user`, in order.
    users: Vec<Vec<String>>,
}

/// A `rename-command` line. Whether the command exists is for the command table to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rename {
    /// The command's name.
    pub command: String,
    /// Its new name; empty to remove it.
    pub new_name: String,
}

impl Config {
    /// All defaults, with `dir` at `base`.
    pub fn new(base: &Path) -> Config {
        let values = table::DIRECTIVES.iter().map(|directive| directive.default_value(base)).collect();
        Config { values, file: None, renames: Vec::new(), users: Vec::new() }
    }

    /// CONFIG GET: names and values of the directives that match any of the patterns, each once.
    ///
    /// A pattern without `*`, `?` or `[` is a name: it finds hidden directives too, and is printed as it was written. The
    /// order is that of the patterns, and of the table within a glob.
    pub fn matching(&self, patterns: &[&[u8]]) -> Vec<(String, String)> {
        let mut found: Vec<(String, String)> = Vec::new();
        let mut add = |name: &str, id: Id| {
            if !found.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
                found.push((name.to_owned(), self.print(id)));
            }
        };
        for pattern in patterns {
            if pattern.iter().any(|byte| matches!(byte, b'*' | b'?' | b'[')) {
                for id in Id::all().filter(|id| !id.directive().hidden) {
                    for name in id.directive().names().filter(|name| glob::matches_nocase(pattern, name.as_bytes())) {
                        add(name, id);
                    }
                }
            } else if let Ok(name) = str::from_utf8(pattern)
                && let Some(id) = Id::find(name)
            {
                add(name, id);
            }
        }
        found
    }

    /// The value of a directive, as CONFIG GET prints it.
    pub fn print(&self, id: Id) -> String {
        id.directive().print(&self.values[id.0])
    }

    /// The value of a directive.
    pub fn value(&self, id: Id) -> &Value {
        &self.values[id.0]
    }

    /// The directives whose values differ from those of `before`.
    pub fn changes_since(&self, before: &Config) -> Vec<Id> {
        Id::all().filter(|id| self.values[id.0] != before.values[id.0]).collect()
    }

    /// The file the configuration was read from, if any; absolute.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// `rename-command` lines, in order.
    pub fn renames(&self) -> &[Rename] {
        &self.renames
    }

    /// The words of each `user` line after `user`, in order.
    pub fn users(&self) -> &[Vec<String>] {
        &self.users
    }
}

impl Default for Config {
    /// All defaults, with `dir` at the process's working directory.
    fn default() -> Config {
        Config::new(&load::working_directory())
    }
}
