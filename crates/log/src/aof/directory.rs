//! The append-only directory: which files there are, and every change of that, in an order in which a crash between any
//! two steps leaves a directory that recovers to the same state.
//!
//! A file is synced, then its directory entry, before a manifest names it; a manifest is written beside the old one, synced,
//! renamed over it, and the directory synced; a file is removed after a synced manifest calls it history.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::{Disk, DiskFile, Open, told, write_bytes};
use super::header::encode_head;
use super::manifest::{Entry, LONGEST, Manifest, ManifestError};
use super::recover::Recovered;
use super::window::read_exactly;
use crate::mutant::{self, Mutant};

/// The directory, and what its manifest says.
#[derive(Debug)]
pub struct Directory {
    disk: Arc<dyn Disk>,
    /// Where the directory and older append-only files are.
    parent: PathBuf,
    path: PathBuf,
    file_name: String,
    manifest: Manifest,
}

/// What there is to load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A directory with a manifest.
    Directory,
    /// An append-only file of a Redis before 7, which [`Directory::adopt`] takes over.
    Single,
}

/// How a base file begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseKind {
    /// With an RDB; commands may follow it.
    Rdb,
    /// With commands.
    Resp,
}

/// A file that groups can be written to.
#[derive(Debug)]
pub struct Increment {
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) nonce: u64,
    /// Its name in the directory.
    pub name: String,
    /// Its number.
    pub seq: u64,
}

impl Increment {
    /// Its length in bytes.
    ///
    /// # Errors
    /// The file system's.
    pub fn length(&self) -> io::Result<u64> {
        self.file.length()
    }
}

impl Directory {
    /// Looks at the directory `directory` of `parent`, for files whose names begin with `file_name`
    /// (`appenddirname` in `dir`, and `appendfilename`).
    ///
    /// # Errors
    /// The file system's, or a manifest that is none.
    pub fn open(disk: Arc<dyn Disk>, parent: &Path, directory: &str, file_name: &str) -> io::Result<Directory> {
        let (parent, path) = (parent.to_owned(), parent.join(directory));
        let mut directory =
            Directory { disk, parent, path, file_name: file_name.to_owned(), manifest: Manifest::default() };
        let manifest = directory.path.join(directory.manifest_name());
        if directory.disk.exists(&manifest)? {
            directory.manifest = read_manifest(&*directory.disk, &manifest)?;
        }
        Ok(directory)
    }

    /// What there is to load.
    ///
    /// # Errors
    /// The file system's.
    pub fn found(&self) -> io::Result<Found> {
        let single = self.parent.join(&self.file_name);
        let Manifest { base, increments, .. } = &self.manifest;
        // The taking over of a file writes the manifest first, so that a crash between leaves this.
        let half_adopted = increments.is_empty()
            && base.as_ref().is_some_and(|base| base.name == self.file_name)
            && !self.disk.exists(&self.path.join(&self.file_name))?;
        Ok(if (self.manifest.is_empty() || half_adopted) && self.disk.exists(&single)? {
            Found::Single
        } else if self.manifest.is_empty() {
            Found::Nothing
        } else {
            Found::Directory
        })
    }

    /// Takes over an append-only file of a Redis before 7 as the base.
    ///
    /// # Errors
    /// The file system's. Can be repeated.
    pub fn adopt(&mut self) -> io::Result<()> {
        self.create()?;
        let base = Some(Entry { name: self.file_name.clone(), seq: 1 });
        self.publish(Manifest { base, ..Manifest::default() })?;
        let (from, to) = (self.parent.join(&self.file_name), self.path.join(&self.file_name));
        self.disk.rename(&from, &to).map_err(told("moving", &from))?;
        self.sync_names(&self.path)?;
        self.sync_names(&self.parent)
    }

    /// Makes the directory itself.
    ///
    /// # Errors
    /// The file system's.
    pub fn create(&self) -> io::Result<()> {
        self.disk.create_directory(&self.path).map_err(told("creating", &self.path))?;
        self.sync_names(&self.parent)
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file system.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// What the manifest says.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The lengths of the base and of all files together, in bytes, prepared space included.
    ///
    /// # Errors
    /// The file system's.
    pub fn sizes(&self) -> io::Result<(u64, u64)> {
        self.lengths(&self.manifest.increments)
    }

    /// As [`Directory::sizes`], without the increment `seq`: the one that is being written.
    ///
    /// # Errors
    /// The file system's.
    pub fn closed_sizes(&self, seq: u64) -> io::Result<(u64, u64)> {
        let closed: Vec<Entry> = self.manifest.increments.iter().filter(|entry| entry.seq != seq).cloned().collect();
        self.lengths(&closed)
    }

    fn lengths(&self, increments: &[Entry]) -> io::Result<(u64, u64)> {
        let length = |entry: &Entry| {
            let path = self.path.join(&entry.name);
            self.disk.open(&path, Open::Read).and_then(|file| file.length()).map_err(told("measuring", &path))
        };
        let base = self.manifest.base.as_ref().map_or(Ok(0), length)?;
        increments.iter().try_fold((base, base), |(base, all), entry| Ok((base, all + length(entry)?)))
    }

    /// The base's path and how it begins, if there is a base.
    ///
    /// # Errors
    /// The file system's.
    pub fn base(&self) -> io::Result<Option<(PathBuf, BaseKind)>> {
        let Some(base) = &self.manifest.base else {
            return Ok(None);
        };
        let path = self.path.join(&base.name);
        let file = self.disk.open(&path, Open::Read).map_err(told("opening", &path))?;
        let mut magic = [0; 5];
        let is_long = file.length()? >= magic.len() as u64;
        if is_long {
            read_exactly(&*file, &mut magic, 0).map_err(told("reading", &path))?;
        }
        Ok(Some((path, if magic == *b"REDIS" { BaseKind::Rdb } else { BaseKind::Resp })))
    }

    /// Goes on after a recovery: cuts the torn tail off, syncs what was read (a killed process leaves bytes that only the
    /// kernel has, and what follows must not be durable before them), and adds the increment to write to. Files that were
    /// recovered and hold nothing become history.
    ///
    /// # Errors
    /// The file system's. The recovery can be repeated.
    pub fn start(&mut self, recovered: &Recovered) -> io::Result<Increment> {
        self.create()?;
        if let Some(cut) = &recovered.cut {
            let file = self.disk.open(&cut.path, Open::Write).map_err(told("opening", &cut.path))?;
            file.set_len(cut.offset).map_err(told("cutting", &cut.path))?;
        }
        for entry in self.manifest.base.iter().chain(&self.manifest.increments) {
            let path = self.path.join(&entry.name);
            let file = self.disk.open(&path, Open::Write).map_err(told("opening", &path))?;
            file.sync_data().map_err(told("syncing", &path))?;
        }
        // A rewrite that was not finished.
        match self.disk.remove(&self.temporary_base()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let (unused, used) = std::mem::take(&mut self.manifest.increments)
            .into_iter()
            .partition(|entry| recovered.unused.contains(&entry.name));
        self.manifest.increments = used;
        self.manifest.history.extend::<Vec<Entry>>(unused);
        self.add_increment()
    }

    /// The first step of a rewrite, and of a start: a new file, synced, and a synced manifest that names it last. The
    /// writer goes on in it at the LSN that is given to [`Orders::rotate_at`](super::writer::Orders::rotate_at).
    ///
    /// # Errors
    /// The file system's. Nothing has changed for a recovery then.
    pub fn add_increment(&mut self) -> io::Result<Increment> {
        let increment = self.create_increment()?;
        let mut manifest = self.manifest.clone();
        manifest.increments.push(Entry { name: increment.name.clone(), seq: increment.seq });
        self.publish(manifest)?;
        Ok(increment)
    }

    /// The first step where the log is switched on while the server runs: a new file, synced, that no manifest names before
    /// [`Directory::replace_base`]. What the directory holds from earlier does not go on at the new file's LSN.
    ///
    /// # Errors
    /// The file system's.
    pub fn create_increment(&self) -> io::Result<Increment> {
        let seq = self.manifest.next_increment();
        let name = self.increment_name(seq);
        let path = self.path.join(&name);
        let nonce = getrandom::u64().map_err(|error| io::Error::other(format!("no random number: {error}")))?;
        let file = self.disk.open(&path, Open::Create).map_err(told("creating", &path))?;
        write_bytes(&*file, &encode_head(nonce), 0).map_err(told("writing", &path))?;
        file.sync_data().map_err(told("syncing", &path))?;
        self.sync_names(&self.path)?;
        Ok(Increment { file, nonce, name, seq })
    }

    /// Removes a file of [`Directory::create_increment`], unless the manifest names it.
    ///
    /// # Errors
    /// The file system's.
    pub fn remove_unnamed(&self, name: &str) -> io::Result<()> {
        if self.manifest.increments.iter().any(|entry| entry.name == name) {
            return Ok(());
        }
        let path = self.path.join(name);
        self.disk.remove(&path).map_err(told("removing", &path))
    }

    fn increment_name(&self, seq: u64) -> String {
        format!("{}.{seq}.incr.aof", self.file_name)
    }

    /// The name that a rewrite's new base gets from [`Directory::replace_base`].
    pub fn next_base_name(&self, kind: BaseKind) -> String {
        let suffix = match kind {
            BaseKind::Rdb => "rdb",
            BaseKind::Resp => "aof",
        };
        format!("{}.{}.base.{suffix}", self.file_name, self.manifest.next_base())
    }

    /// The path under which to write a new base.
    pub fn temporary_base(&self) -> PathBuf {
        self.path.join(format!("temp-{}.base", self.file_name))
    }

    /// The second step of a rewrite: the file at [`Directory::temporary_base`] becomes the base; what it replaces, the old
    /// base and the increments before `first` (the number of the increment that begins at the base's LSN), becomes history.
    /// The manifest names `first` from now on, if it did not. Without `first` the log is the base alone.
    ///
    /// # Errors
    /// The file system's. The old files are still what a recovery uses then.
    pub fn replace_base(&mut self, kind: BaseKind, first: Option<u64>) -> io::Result<()> {
        let (seq, name) = (self.manifest.next_base(), self.next_base_name(kind));
        let (from, to) = (self.temporary_base(), self.path.join(&name));
        let file = self.disk.open(&from, Open::Write).map_err(told("opening", &from))?;
        file.sync_data().map_err(told("syncing", &from))?;
        self.disk.rename(&from, &to).map_err(told("renaming", &from))?;
        self.sync_names(&self.path)?;
        let mut manifest = self.manifest.clone();
        let is_old = |entry: &Entry| first.is_none_or(|first| entry.seq < first);
        let (old, kept): (Vec<Entry>, _) = manifest.increments.into_iter().partition(is_old);
        manifest.increments = kept;
        if let Some(seq) = first
            && manifest.increments.first().is_none_or(|entry| entry.seq != seq)
        {
            manifest.increments.insert(0, Entry { name: self.increment_name(seq), seq });
        }
        manifest.history.extend(manifest.base.replace(Entry { name, seq }));
        manifest.history.extend(old);
        if mutant::is(Mutant::HistoryEarly) {
            self.remove_files(&manifest.history)?;
        }
        self.publish(manifest)
    }

    /// The last step of a rewrite: removes what the manifest calls history. Removing gigabytes takes long; not on a worker.
    ///
    /// # Errors
    /// The file system's. Can be repeated.
    pub fn remove_history(&mut self) -> io::Result<()> {
        if self.manifest.history.is_empty() {
            return Ok(());
        }
        self.remove_files(&self.manifest.history)?;
        self.publish(Manifest { history: Vec::new(), ..self.manifest.clone() })
    }

    /// Removes those that are still there.
    fn remove_files(&self, entries: &[Entry]) -> io::Result<()> {
        for entry in entries {
            let path = self.path.join(&entry.name);
            match self.disk.remove(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(told("removing", &path)(error)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes the manifest, and takes it as the current one.
    pub(super) fn publish(&mut self, manifest: Manifest) -> io::Result<()> {
        let name = self.manifest_name();
        let (from, to) = (self.path.join(format!("temp-{name}")), self.path.join(name));
        let file = self.disk.open(&from, Open::Create).map_err(told("creating", &from))?;
        write_bytes(&*file, manifest.to_text().as_bytes(), 0).map_err(told("writing", &from))?;
        file.sync_data().map_err(told("syncing", &from))?;
        self.disk.rename(&from, &to).map_err(told("renaming", &from))?;
        // It is what a recovery finds, even if the directory cannot be synced.
        self.manifest = manifest;
        self.sync_names(&self.path)
    }

    fn manifest_name(&self) -> String {
        format!("{}.manifest", self.file_name)
    }

    fn sync_names(&self, directory: &Path) -> io::Result<()> {
        self.disk.sync_directory(directory).map_err(told("syncing", directory))
    }
}

fn read_manifest(disk: &dyn Disk, path: &Path) -> io::Result<Manifest> {
    let wrong = |error: ManifestError| io::Error::new(io::ErrorKind::InvalidData, error);
    let read = || {
        let file = disk.open(path, Open::Read)?;
        let length = file.length()?;
        if length > LONGEST {
            return Err(wrong(ManifestError { line: 1, reason: "the manifest is too long" }));
        }
        // At most what is allowed.
        let mut text = vec![0; length as usize];
        read_exactly(&*file, &mut text, 0)?;
        Manifest::parse(&text).map_err(wrong)
    };
    read().map_err(told("reading the manifest", path))
}
