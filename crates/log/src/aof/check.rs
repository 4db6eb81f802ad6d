//! Looking through an append-only directory without loading it, and giving up what cannot be read
//! (`--check-aof [--fix] DIR`). The base's inside is `--check-rdb`'s to look at.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directory::{BaseKind, Directory};
use super::disk::{Disk, Open, told, write_bytes};
use super::recover::{RecoverError, Recovered, Recovery};
use super::window::Window;

/// What was found, and what was done about it.
#[derive(Debug)]
pub struct CheckReport {
    /// The directory.
    pub directory: PathBuf,
    /// Bytes of the log, its groups, and how it ends; up to the damage, if there is one.
    pub recovered: Recovered,
    /// What a start would say of it. `None`: all is well.
    pub problem: Option<String>,
    /// Whether a start loads it, with `aof-load-truncated yes`.
    pub loads: bool,
    /// What was done, one sentence each.
    pub done: Vec<String>,
}

impl CheckReport {
    /// Whether the directory is now as it should be.
    pub fn is_sound(&self) -> bool {
        self.problem.is_none() || !self.done.is_empty()
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Recovered { lsn, groups, bytes, foreign, clean, .. } = &self.recovered;
        write!(out, "{}: {groups} groups, {bytes} bytes", self.directory.display())?;
        if let Some(lsn) = lsn {
            write!(out, ", up to LSN {lsn}")?;
        }
        if *foreign {
            out.write_str(", in part written by a Redis")?;
        }
        writeln!(out, "{}", if *clean { ", closed" } else { "" })?;
        match &self.problem {
            None => writeln!(out, "It is whole.")?,
            Some(problem) => writeln!(out, "{problem}")?,
        }
        self.done.iter().try_for_each(|sentence| writeln!(out, "{sentence}"))
    }
}

/// Looks through a directory. With `fix`, a torn tail is cut off; so is, if bytes that were synced are damaged, everything
/// from the damage on: the cut part is first copied beside the file, and later files stay where they are, unnamed.
///
/// # Errors
/// The file system's, or a manifest that is none.
pub fn check(directory: &mut Directory, fix: bool) -> Result<CheckReport, RecoverError> {
    let mut recovery = Recovery::new(directory, true);
    let problem = read_all(directory, &mut recovery).err();
    let mut report = CheckReport {
        directory: directory.path().to_owned(),
        recovered: Recovered::default(),
        problem: None,
        loads: problem.is_none(),
        done: Vec::new(),
    };
    let (path, offset) = match problem {
        None => {
            report.recovered = recovery.finish();
            let Some(cut) = report.recovered.cut.clone() else {
                return Ok(report);
            };
            let place = (cut.path.clone(), cut.offset);
            report.problem = Some(RecoverError::Torn { directory: report.directory.clone(), cut }.to_string());
            place
        }
        Some(RecoverError::Damage { directory, path, offset, lsn, reason }) => {
            let place = (path.clone(), offset);
            let damage = RecoverError::Damage { directory, path, offset, lsn, reason };
            report.recovered = recovery.so_far();
            report.problem = Some(damage.to_string());
            place
        }
        Some(error) => return Err(error),
    };
    if fix {
        give_up(directory, &path, offset, &mut report.done)?;
    }
    Ok(report)
}

fn read_all(directory: &Directory, recovery: &mut Recovery) -> Result<(), RecoverError> {
    if let Some((path, BaseKind::Resp)) = directory.base()? {
        recovery.begin_with_base(path, 0)?;
    }
    while recovery.next_piece()?.is_some() {}
    Ok(())
}

/// Cuts the file, and takes what follows it out of the manifest.
fn give_up(directory: &mut Directory, path: &Path, offset: u64, done: &mut Vec<String>) -> io::Result<()> {
    let disk = Arc::clone(directory.disk());
    let file = disk.open(path, Open::Write).map_err(told("opening", path))?;
    let length = file.length()?;
    if offset < length {
        let copy = PathBuf::from(format!("{}.cut-{offset}", path.display()));
        copy_tail(&*disk, path, offset, &copy).map_err(told("writing", &copy))?;
        disk.sync_directory(directory.path())?;
        file.set_len(offset).and_then(|()| file.sync_data()).map_err(told("cutting", path))?;
        done.push(format!("{} was cut at {offset}; what it held behind is in {}.", path.display(), copy.display()));
    }
    let mut manifest = directory.manifest().clone();
    let at = manifest.increments.iter().position(|entry| directory.path().join(&entry.name) == path);
    // From the base on, if it is the base that is damaged.
    let later = manifest.increments.split_off(at.map_or(0, |at| at + 1));
    if !later.is_empty() {
        for entry in &later {
            done.push(format!("{} is no longer named by the manifest.", directory.path().join(&entry.name).display()));
        }
        directory.publish(manifest)?;
    }
    Ok(())
}

fn copy_tail(disk: &dyn Disk, path: &Path, mut at: u64, copy: &Path) -> io::Result<()> {
    let mut tail = Window::new(disk.open(path, Open::Read)?)?;
    let copy = disk.open(copy, Open::Create)?;
    let from = at;
    while at < tail.length() {
        let bytes = tail.at(at, 1)?;
        write_bytes(&*copy, bytes, at - from)?;
        at += bytes.len() as u64;
    }
    copy.sync_data()
}
