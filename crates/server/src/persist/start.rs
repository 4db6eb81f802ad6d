//! Starting from what is on disk: which of snapshot and log is loaded, and how the log goes on.
//!
//! Runs on a thread of its own while the workers answer `-LOADING`. No command writes before [`restore`] is done.

use crate::config::Config;
use crate::notice;
use crate::shared::Shared;
use gimmal_log::aof::{Directory, Found, RealDisk};
use std::io;
use std::sync::Arc;

/// Loads what is on disk, and starts the log if there is to be one.
///
/// # Errors
/// What was found cannot be loaded, or the log cannot be written. The server must not serve then.
pub fn restore(shared: &Arc<Shared>) -> io::Result<()> {
    let config = shared.settings.current();
    if config.appendonly() { restore_log(shared, &config) } else { Ok(()) }
}

fn open_directory(config: &Config) -> io::Result<Directory> {
    Directory::open(Arc::new(RealDisk), config.dir(), config.appenddirname(), config.appendfilename())
}

fn restore_log(shared: &Arc<Shared>, config: &Config) -> io::Result<()> {
    let mut directory = open_directory(config)?;
    let recovered = match directory.found()? {
        Found::Nothing => Default::default(),
        Found::Directory | Found::Single => {
            let what = directory.path().display();
            return Err(io::Error::other(format!("{what} holds a log, which this version cannot load yet")));
        }
    };
    let increment = directory.start(&recovered)?;
    let lsn = recovered.lsn.unwrap_or(0);
    notice!("Log: {} from LSN {lsn} on", directory.path().join(&increment.name).display());
    shared.persist.aof.start(shared, directory, increment, lsn)
}
