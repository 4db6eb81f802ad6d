//! The server's own log lines, in the format of Redis: pid, role, date, level mark, text.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

/// How important a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// For developers.
    Debug = 0,
    /// Chatty.
    Verbose = 1,
    /// What an operator wants to know.
    Notice = 2,
    /// What an operator must know.
    Warning = 3,
    /// Nothing is logged.
    Nothing = 4,
}

static LEVEL: AtomicU8 = AtomicU8::new(Level::Notice as u8);
static FILE: OnceLock<Mutex<Option<PathBuf>>> = OnceLock::new();

/// Logs from this level on, to this file or (empty) to standard output.
pub fn configure(level: Level, file: &str) {
    LEVEL.store(level as u8, Relaxed);
    let path = (!file.is_empty()).then(|| PathBuf::from(file));
    *FILE.get_or_init(|| Mutex::new(None)).lock().expect("logging does not panic") = path;
}

/// Changes the level.
pub fn set_level(level: Level) {
    LEVEL.store(level as u8, Relaxed);
}

/// Writes one line. The file is opened for each line, as Redis does, so that it can be rotated at any time.
pub fn log(level: Level, text: &str) {
    if (level as u8) < LEVEL.load(Relaxed) {
        return;
    }
    let mark = match level {
        Level::Debug => '.',
        Level::Verbose => '-',
        Level::Notice => '*',
        Level::Warning | Level::Nothing => '#',
    };
    let line = format!("{}:M {} {mark} {text}\n", std::process::id(), crate::os::local_time_text());
    let file = FILE.get().and_then(|file| file.lock().expect("logging does not panic").clone());
    // A line that cannot be written anywhere is the one error that has no one to be told to.
    let _lost = match file {
        None => std::io::stdout().write_all(line.as_bytes()),
        Some(path) => {
            OpenOptions::new().create(true).append(true).open(path).and_then(|mut file| file.write_all(line.as_bytes()))
        }
    };
}

/// Logs at notice level.
#[macro_export]
macro_rules! notice {
    ($($arg:tt)*) => { $crate::logging::log($crate::logging::Level::Notice, &format!($($arg)*)) };
}

/// Logs at warning level.
#[macro_export]
macro_rules! warning {
    ($($arg:tt)*) => { $crate::logging::log($crate::logging::Level::Warning, &format!($($arg)*)) };
}

/// Logs at verbose level.
#[macro_export]
macro_rules! verbose {
    ($($arg:tt)*) => { $crate::logging::log($crate::logging::Level::Verbose, &format!($($arg)*)) };
}
