//! Starting from what is on disk: which of snapshot and log is loaded, and how the log goes on.
//!
//! Runs on a thread of its own while the workers answer `-LOADING`, or before there are workers if there is nothing to load. No
//! command writes before [`restore`] is done.

use super::load;
use super::save::file;
use crate::config::Config;
use crate::shared::Shared;
use crate::{notice, warning};
use gimmal_log::Lsn;
use gimmal_log::aof::{BaseKind, Directory, Found, RealDisk, Recovered, Recovery};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Whether there is something to load.
///
/// # Errors
/// The file system's, or a manifest that is none.
pub fn is_there_data(config: &Config) -> io::Result<bool> {
    let has_log = || Ok::<bool, io::Error>(open_directory(config)?.found()? != Found::Nothing);
    Ok(snapshot_path(config)?.is_some() || config.appendonly() && has_log()?)
}

/// Loads what is on disk, and starts the log if there is to be one.
///
/// # Errors
/// What was found cannot be loaded, or the log cannot be written. The server must not serve then.
pub fn restore(shared: &Arc<Shared>) -> io::Result<()> {
    let config = shared.settings.current();
    if config.appendonly() {
        return restore_log(shared, &config);
    }
    if let Some(snapshot) = snapshot_path(&config)? {
        load_snapshot(shared, &snapshot)?;
    }
    load::end(shared);
    Ok(())
}

/// The snapshot in `dir`, if there is one.
fn snapshot_path(config: &Config) -> io::Result<Option<PathBuf>> {
    let path = config.dir().join(config.dbfilename());
    Ok(fs::exists(&path)?.then_some(path))
}

fn load_snapshot(shared: &Shared, path: &Path) -> io::Result<load::Snapshot> {
    load::begin(shared, fs::metadata(path)?.len());
    Ok(load::snapshot(shared, path, false)?)
}

/// Where the log goes on behind a snapshot, if it says.
fn lsn_of(snapshot: &load::Snapshot) -> Option<Lsn> {
    str::from_utf8(snapshot.remarks.get(file::LSN)?).ok()?.parse().ok()
}

/// The directory of the append-only files, as the configuration names it.
pub(super) fn open_directory(config: &Config) -> io::Result<Directory> {
    Directory::open(Arc::new(RealDisk), config.dir(), config.appenddirname(), config.appendfilename())
}

fn restore_log(shared: &Arc<Shared>, config: &Config) -> io::Result<()> {
    let mut directory = open_directory(config)?;
    let found = directory.found()?;
    if found == Found::Single {
        notice!("Moving the append-only file of an older Redis into {}", directory.path().display());
        directory.adopt()?;
    }
    let recovered = match found {
        Found::Nothing => match snapshot_path(config)? {
            Some(snapshot) => return begin_with_snapshot(shared, &snapshot, directory),
            None => Recovered::default(),
        },
        Found::Single | Found::Directory => {
            let (_, total) = directory.sizes()?;
            load::begin(shared, total);
            load_log(shared, config, &directory)?
        }
    };
    go_on(shared, directory, &recovered)
}

/// Loads base and increments.
fn load_log(shared: &Arc<Shared>, config: &Config, directory: &Directory) -> io::Result<Recovered> {
    let mut recovery = Recovery::new(directory, config.aof_load_truncated());
    let mut base_lsn = None;
    match directory.base()? {
        None => {}
        Some((path, BaseKind::Resp)) => recovery.begin_with_base(path, 0)?,
        Some((path, BaseKind::Rdb)) => {
            let base = load::snapshot(shared, &path, true)?;
            base_lsn = lsn_of(&base);
            if base.end < fs::metadata(&path)?.len() {
                recovery.begin_with_base(path, base.end)?;
            }
        }
    }
    let mut replay = load::Replay::new(shared);
    while let Some(piece) = recovery.next_piece()? {
        replay.feed(piece.bytes, piece.lsn, piece.begins_file)?;
    }
    replay.finish()?;
    let recovered = recovery.finish();
    match (base_lsn, recovered.first_lsn) {
        (Some(base), Some(first)) if base != first && !recovered.foreign => {
            let path = directory.path().display();
            Err(io::Error::other(format!(
                "{path}: the base ends at LSN {base} and the first increment begins at {first}: files of different logs. Nothing is \
                 served; restore the directory from a copy."
            )))
        }
        // No group was written since the rewrite: the log goes on where its base says.
        _ => Ok(Recovered { lsn: recovered.lsn.or(base_lsn), ..recovered }),
    }
}

/// Loads what is in the files of the log once more, while commands are held and all that was appended is in them.
///
/// # Errors
/// There is no log, or it cannot be loaded: a part of it may be.
pub(super) fn reload_log(shared: &Arc<Shared>) -> io::Result<Recovered> {
    let config = shared.settings.current();
    let directory = open_directory(&config)?;
    if directory.found()? != Found::Directory {
        return Err(io::Error::other(format!("there is no append-only file in {}", directory.path().display())));
    }
    let (_, total) = directory.sizes()?;
    shared.persist.load.progress.set_total(total);
    load_log(shared, &config, &directory)
}

/// Writes the log from where it was recovered to.
fn go_on(shared: &Arc<Shared>, mut directory: Directory, recovered: &Recovered) -> io::Result<()> {
    if let Some(cut) = &recovered.cut {
        let lsn = cut.lsn.map_or_else(String::new, |lsn| format!(", behind LSN {lsn}"));
        warning!(
            "{}: the last {} bytes, from offset {} on{lsn}, are the torn tail of a crash ({}). They are cut off: nothing of them was \
             acknowledged as durable.",
            cut.path.display(),
            cut.bytes,
            cut.offset,
            cut.reason
        );
    }
    let lsn = recovered.lsn.unwrap_or(0);
    let increment = directory.start(recovered)?;
    if !shared.settings.current().aof_disable_auto_gc() {
        directory.remove_history()?;
    }
    notice!("Log: {} from LSN {lsn} on", directory.path().join(&increment.name).display());
    shared.persist.aof.start(shared, directory, increment, lsn)?;
    load::end(shared);
    Ok(())
}

/// There is a snapshot and no log: a Redis would start empty, and the next snapshot would replace all that there was.
fn begin_with_snapshot(shared: &Arc<Shared>, snapshot: &Path, mut directory: Directory) -> io::Result<()> {
    notice!(
        "appendonly is on and there is no log: it begins with {}, where a Redis begins with nothing.",
        snapshot.display()
    );
    // It may be a copy of a log's base.
    let lsn = lsn_of(&load_snapshot(shared, snapshot)?).unwrap_or(0);
    directory.create()?;
    fs::copy(snapshot, directory.temporary_base())?;
    let increment = directory.create_increment()?;
    directory.replace_base(BaseKind::Rdb, Some(increment.seq))?;
    shared.persist.aof.start(shared, directory, increment, lsn)?;
    load::end(shared);
    Ok(())
}
