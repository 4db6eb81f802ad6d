//! The state machine: the tree that programs see, what of it was synced, and the changes in between, in order.
//!
//! It is pure: [`State::apply`] is the only way it changes, and it knows no FUSE, no clock and no chance. A state after
//! any operation of a recording is had by applying the operations up to there to a new one.
//!
//! Names and bytes become durable apart. Under [`Personality::StrictPosix`] a sync of a file makes no name durable and a
//! sync of a directory makes its own names durable only: what POSIX promises, and not more. Under
//! [`Personality::Ext4Like`] any sync commits the journal, which holds all changes of names before it.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::str::FromStr;

use crate::file::File;
use crate::operation::{Ino, Kind, Name, Operation, ROOT};

/// How much a sync makes durable beyond what was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Personality {
    /// Nothing.
    #[default]
    StrictPosix,
    /// All earlier changes of names; and a file's size never covers bytes that were not written.
    Ext4Like,
}

impl FromStr for Personality {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "strict-posix" => Ok(Self::StrictPosix),
            "ext4-like" => Ok(Self::Ext4Like),
            _ => Err(format!("a personality is strict-posix or ext4-like, not {text:?}")),
        }
    }
}

/// The whole file system at one moment. Cloning it shares the pages.
#[derive(Clone, Debug)]
pub struct State {
    personality: Personality,
    inodes: HashMap<Ino, Inode>,
    pending_names: Vec<NameChange>,
    orphans: Vec<Ino>,
    position: u64,
}

/// A file, directory or link.
#[derive(Clone, Debug)]
pub struct Inode {
    /// What it is.
    pub body: Body,
    /// Permission bits. They are durable at once: nothing here is about them.
    pub mode: u32,
    /// Names that programs see.
    pub links: u32,
    /// Names that are durable.
    pub durable_links: u32,
    /// The name it got last, by which the rules of faults find it.
    pub name: OsString,
}

/// What an inode holds.
#[derive(Clone, Debug)]
pub enum Body {
    /// A regular file.
    File(File),
    /// A directory.
    Directory(Directory),
    /// A symbolic link.
    Symlink(std::path::PathBuf),
}

/// A directory.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// What programs see.
    pub live: BTreeMap<OsString, Ino>,
    /// What no cut can take.
    pub durable: BTreeMap<OsString, Ino>,
}

/// A change of one name that was not synced. A rename is two of them with the same position.
#[derive(Clone, Debug)]
pub struct NameChange {
    /// Position of the operation in the recording.
    pub at: u64,
    /// Which name.
    pub name: Name,
    /// What it names afterwards.
    pub to: Option<Ino>,
    /// Whether this is half of a rename.
    pub is_rename: bool,
}

impl State {
    /// An empty file system.
    pub fn new(personality: Personality) -> Self {
        let body = Body::Directory(Directory::default());
        let root = Inode { body, mode: 0o755, links: 1, durable_links: 1, name: OsString::from("/") };
        Self {
            personality,
            inodes: HashMap::from([(ROOT, root)]),
            pending_names: Vec::new(),
            orphans: Vec::new(),
            position: 0,
        }
    }

    /// How many operations led here.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// What a sync makes durable.
    pub fn personality(&self) -> Personality {
        self.personality
    }

    /// An inode.
    pub fn inode(&self, ino: Ino) -> Option<&Inode> {
        self.inodes.get(&ino)
    }

    /// The permission bits are set.
    pub fn set_mode(&mut self, ino: Ino, mode: u32) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.mode = mode;
        }
    }

    /// A directory, if it is one.
    pub fn directory(&self, ino: Ino) -> Option<&Directory> {
        match &self.inodes.get(&ino)?.body {
            Body::Directory(directory) => Some(directory),
            _ => None,
        }
    }

    /// A regular file, if it is one.
    pub fn file(&self, ino: Ino) -> Option<&File> {
        match &self.inodes.get(&ino)?.body {
            Body::File(file) => Some(file),
            _ => None,
        }
    }

    /// What `name` names for programs.
    pub fn lookup(&self, name: &Name) -> Option<Ino> {
        self.directory(name.dir)?.live.get(&name.name).copied()
    }

    /// Changes of names that were not synced, in order.
    pub fn pending_names(&self) -> &[NameChange] {
        &self.pending_names
    }

    /// All inodes.
    pub fn inodes(&self) -> impl Iterator<Item = (Ino, &Inode)> {
        self.inodes.iter().map(|(ino, inode)| (*ino, inode))
    }

    /// Does one operation.
    ///
    /// # Panics
    /// If it is not possible: the recording is not of this file system.
    pub fn apply(&mut self, operation: &Operation) {
        let at = self.position;
        self.position += 1;
        match operation {
            Operation::Create { name, ino, kind, mode } => self.create(name, *ino, kind, *mode),
            Operation::Link { name, ino } => self.change_name(name, Some(*ino), false),
            Operation::Remove { name } => self.change_name(name, None, false),
            Operation::Rename { from, to, is_exchange } => self.rename(from, to, *is_exchange),
            Operation::Write { ino, offset, data } => self.file_mut(*ino).write(at, *offset, data),
            Operation::Resize { ino, size } => self.file_mut(*ino).resize(at, *size),
            Operation::Zero { ino, offset, len, size } => {
                self.file_mut(*ino).zero(at, *offset..offset + len, *size);
            }
            Operation::SyncRange { ino, offset, len } => {
                self.file_mut(*ino).sync_range(*offset, *len);
                self.commit_journal();
            }
            Operation::Sync { ino } => {
                self.file_mut(*ino).sync();
                self.commit_journal();
            }
            Operation::SyncFailed { ino } => self.file_mut(*ino).sync_failed(),
            Operation::SyncDirectory { ino } => match self.personality {
                Personality::StrictPosix => self.sync_names(|change| change.name.dir == *ino),
                Personality::Ext4Like => self.commit_journal(),
            },
        }
    }

    /// Forgets the bytes of files that have no name, neither seen nor durable nor pending, and are not open.
    pub fn collect(&mut self, is_open: impl Fn(Ino) -> bool) {
        for ino in std::mem::take(&mut self.orphans) {
            let Some(inode) = self.inodes.get(&ino) else { continue };
            if inode.links > 0 {
                continue;
            }
            let is_pending = self.pending_names.iter().any(|change| change.to == Some(ino));
            if inode.durable_links > 0 || is_pending || is_open(ino) {
                self.orphans.push(ino);
            } else {
                self.inodes.remove(&ino);
            }
        }
    }

    fn create(&mut self, name: &Name, ino: Ino, kind: &Kind, mode: u32) {
        let body = match kind {
            Kind::File => Body::File(File::default()),
            Kind::Directory => Body::Directory(Directory::default()),
            Kind::Symlink(path) => Body::Symlink(path.clone()),
        };
        let inode = Inode { body, mode, links: 0, durable_links: 0, name: name.name.clone() };
        assert!(self.inodes.insert(ino, inode).is_none(), "inode {ino} exists");
        self.change_name(name, Some(ino), false);
    }

    fn rename(&mut self, from: &Name, to: &Name, is_exchange: bool) {
        let (moved, replaced) = (self.lookup(from), self.lookup(to));
        assert!(moved.is_some(), "{from:?} does not exist");
        if moved == replaced {
            return;
        }
        self.change_name(to, moved, true);
        self.change_name(from, if is_exchange { replaced } else { None }, true);
    }

    /// The position was advanced before.
    fn change_name(&mut self, name: &Name, to: Option<Ino>, is_rename: bool) {
        let directory = self.directory_mut(name.dir);
        let before = match to {
            Some(ino) => directory.live.insert(name.name.clone(), ino),
            None => directory.live.remove(&name.name),
        };
        assert!(before.is_some() || to.is_some(), "{name:?} does not exist");
        if let Some(inode) = to.and_then(|ino| self.inodes.get_mut(&ino)) {
            inode.links += 1;
            inode.name.clone_from(&name.name);
        }
        if let Some(ino) = before
            && let Some(inode) = self.inodes.get_mut(&ino)
        {
            inode.links -= 1;
            self.orphans.push(ino);
        }
        self.pending_names.push(NameChange { at: self.position - 1, name: name.clone(), to, is_rename });
    }

    fn commit_journal(&mut self) {
        if self.personality == Personality::Ext4Like {
            self.sync_names(|_| true);
        }
    }

    fn sync_names(&mut self, is_synced: impl Fn(&NameChange) -> bool) {
        if self.pending_names.is_empty() {
            return;
        }
        let (synced, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.pending_names).into_iter().partition(is_synced);
        self.pending_names = kept;
        for change in synced {
            let directory = self.directory_mut(change.name.dir);
            let before = match change.to {
                Some(ino) => directory.durable.insert(change.name.name, ino),
                None => directory.durable.remove(&change.name.name),
            };
            if let Some(inode) = change.to.and_then(|ino| self.inodes.get_mut(&ino)) {
                inode.durable_links += 1;
            }
            if let Some(inode) = before.and_then(|ino| self.inodes.get_mut(&ino)) {
                inode.durable_links -= 1;
            }
        }
    }

    fn file_mut(&mut self, ino: Ino) -> &mut File {
        match self.inodes.get_mut(&ino).map(|inode| &mut inode.body) {
            Some(Body::File(file)) => file,
            other => panic!("inode {ino} is not a file but {other:?}"),
        }
    }

    fn directory_mut(&mut self, ino: Ino) -> &mut Directory {
        match self.inodes.get_mut(&ino).map(|inode| &mut inode.body) {
            Some(Body::Directory(directory)) => directory,
            other => panic!("inode {ino} is not a directory but {other:?}"),
        }
    }
}

/// Everything that happened, from the empty file system on.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// What its syncs made durable.
    pub personality: Personality,
    /// The operations, in order.
    pub operations: Vec<Operation>,
}

impl Recording {
    /// Where the last writes before a position begin in their files. What they wrote may be the last that is durable, and nothing
    /// written later can say so: to who reads it, damage there is a write that was torn.
    pub fn tails(&self, position: u64) -> HashMap<Ino, u64> {
        /// Of one file; a large write comes in several.
        const OF_FILE: u64 = 4;
        /// Of all: a file that is not among them has no tail.
        const LAST: usize = 12;
        let end = self.operations.len().min(usize::try_from(position).unwrap_or(usize::MAX));
        let writes = self.operations[..end].iter().rev().filter_map(|operation| match operation {
            Operation::Write { ino, offset, .. } => Some((*ino, *offset)),
            _ => None,
        });
        let mut tails: HashMap<Ino, (u64, u64)> = HashMap::new();
        for (ino, offset) in writes.take(LAST) {
            let (count, tail) = tails.entry(ino).or_insert((0, u64::MAX));
            *count += 1;
            if *count <= OF_FILE {
                *tail = offset.min(*tail);
            }
        }
        tails.into_iter().map(|(ino, (_, tail))| (ino, tail)).collect()
    }

    /// Walks through it. Cuts are cheapest in order of their position.
    pub fn replay(&self) -> Replay<'_> {
        Replay { recording: self, state: State::new(self.personality) }
    }
}

/// A walk through a recording.
pub struct Replay<'a> {
    recording: &'a Recording,
    state: State,
}

impl Replay<'_> {
    /// The state after the first `position` operations, or after all if there are fewer.
    pub fn state_at(&mut self, position: u64) -> &State {
        if position < self.state.position {
            self.state = State::new(self.recording.personality);
        }
        let end = self.recording.operations.len().min(usize::try_from(position).unwrap_or(usize::MAX));
        let start = usize::try_from(self.state.position).expect("it is within the recording");
        for operation in &self.recording.operations[start..end] {
            self.state.apply(operation);
        }
        &self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cut::{Image, Policy};

    fn name(dir: Ino, name: &str) -> Name {
        Name { dir, name: name.into() }
    }

    fn create(at: Name, ino: Ino, kind: Kind) -> Operation {
        Operation::Create { name: at, ino, kind, mode: 0o644 }
    }

    fn write(ino: Ino, text: &str) -> Operation {
        Operation::Write { ino, offset: 0, data: text.as_bytes().into() }
    }

    fn rename(from: Name, to: Name) -> Operation {
        Operation::Rename { from, to, is_exchange: false }
    }

    fn state(personality: Personality, operations: &[Operation]) -> State {
        let mut state = State::new(personality);
        operations.iter().for_each(|operation| state.apply(operation));
        state
    }

    fn left(state: &State, path: &str) -> Option<Vec<u8>> {
        Image::cut(state, 0, Policy::DropAll).file(path)
    }

    #[test]
    fn a_synced_file_without_its_directory_is_lost_unless_the_journal_holds_it() {
        let operations = [create(name(ROOT, "a"), 2, Kind::File), write(2, "x"), Operation::Sync { ino: 2 }];
        assert_eq!(left(&state(Personality::StrictPosix, &operations), "a"), None);
        assert_eq!(left(&state(Personality::Ext4Like, &operations), "a"), Some(b"x".to_vec()));
        let mut strict = state(Personality::StrictPosix, &operations);
        strict.apply(&Operation::SyncDirectory { ino: ROOT });
        assert_eq!(left(&strict, "a"), Some(b"x".to_vec()));
    }

    #[test]
    fn a_synced_directory_names_an_empty_file_until_the_file_is_synced() {
        let operations =
            [create(name(ROOT, "a"), 2, Kind::File), write(2, "x"), Operation::SyncDirectory { ino: ROOT }];
        assert_eq!(left(&state(Personality::StrictPosix, &operations), "a"), Some(Vec::new()));
    }

    #[test]
    fn a_new_directory_is_lost_with_all_in_it_until_its_parent_is_synced() {
        let mut state = state(
            Personality::StrictPosix,
            &[
                create(name(ROOT, "d"), 2, Kind::Directory),
                create(name(2, "a"), 3, Kind::File),
                Operation::Sync { ino: 3 },
                Operation::SyncDirectory { ino: 2 },
            ],
        );
        assert!(Image::cut(&state, 0, Policy::DropAll).entries.is_empty());
        state.apply(&Operation::SyncDirectory { ino: ROOT });
        assert_eq!(left(&state, "d/a"), Some(Vec::new()));
    }

    /// Write aside, sync, rename: what every rewrite of a log or a snapshot does.
    #[test]
    fn a_rename_shows_the_old_file_until_the_directory_is_synced() {
        let mut state = state(
            Personality::StrictPosix,
            &[
                create(name(ROOT, "a"), 2, Kind::File),
                write(2, "old"),
                Operation::Sync { ino: 2 },
                Operation::SyncDirectory { ino: ROOT },
                create(name(ROOT, "tmp"), 3, Kind::File),
                write(3, "new"),
                Operation::Sync { ino: 3 },
                rename(name(ROOT, "tmp"), name(ROOT, "a")),
            ],
        );
        assert_eq!(left(&state, "a"), Some(b"old".to_vec()));
        assert_eq!(left(&state, "tmp"), None);
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..50 {
            let image = Image::cut(&state, seed, Policy::RenameHalf);
            seen.insert((image.file("a"), image.file("tmp")));
            let whole = Image::cut(&state, seed, Policy::Random(512));
            assert!(whole.file("a").is_some(), "a rename is atomic: one of the two is there");
        }
        let new = || Some(b"new".to_vec());
        assert_eq!(seen, [(new(), new()), (Some(b"old".to_vec()), None)].into());
        state.apply(&Operation::SyncDirectory { ino: ROOT });
        assert_eq!((left(&state, "a"), left(&state, "tmp")), (new(), None));
    }

    #[test]
    fn a_name_that_was_removed_comes_back_until_the_directory_is_synced() {
        let mut state = state(
            Personality::StrictPosix,
            &[
                create(name(ROOT, "a"), 2, Kind::File),
                write(2, "x"),
                Operation::Sync { ino: 2 },
                Operation::SyncDirectory { ino: ROOT },
                Operation::Remove { name: name(ROOT, "a") },
            ],
        );
        state.collect(|_| false);
        assert_eq!(left(&state, "a"), Some(b"x".to_vec()));
        state.apply(&Operation::SyncDirectory { ino: ROOT });
        state.collect(|_| true);
        assert!(state.inode(2).is_some(), "it is open");
        state.collect(|_| false);
        assert!(state.inode(2).is_none());
        assert_eq!(left(&state, "a"), None);
    }

    #[test]
    fn a_journal_loses_only_its_end() {
        let operations: Vec<_> =
            (0..20).map(|nth| create(name(ROOT, &format!("{nth:02}")), nth + 2, Kind::File)).collect();
        let state = state(Personality::Ext4Like, &operations);
        let mut counts = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let image = Image::cut(&state, seed, Policy::EntriesLost);
            let names: Vec<String> = image.entries.keys().map(|path| path.display().to_string()).collect();
            assert!(names.iter().enumerate().all(|(nth, name)| *name == format!("{nth:02}")), "{names:?}");
            counts.insert(names.len());
        }
        assert!(counts.len() > 10, "{counts:?}");
    }

    #[test]
    fn a_recording_gives_the_state_at_any_position() {
        let recording = Recording {
            personality: Personality::StrictPosix,
            operations: vec![
                create(name(ROOT, "a"), 2, Kind::File),
                Operation::SyncDirectory { ino: ROOT },
                write(2, "one"),
                Operation::Sync { ino: 2 },
                write(2, "two"),
            ],
        };
        let mut replay = recording.replay();
        let mut at = |position| left(replay.state_at(position), "a");
        assert_eq!([at(0), at(3), at(4)], [None, Some(Vec::new()), Some(b"one".to_vec())]);
        assert_eq!([at(99), at(1), at(2)], [Some(b"one".to_vec()), None, Some(Vec::new())]);
    }

    #[test]
    fn the_tail_of_a_file_is_what_was_written_last() {
        let at = |ino, offset| Operation::Write { ino, offset, data: b"x".as_slice().into() };
        let mut operations = vec![at(2, 0)];
        operations.extend((0..20).map(|nth| at(3, nth * 100)));
        operations.extend([at(4, 7), Operation::Sync { ino: 3 }]);
        let recording = Recording { personality: Personality::StrictPosix, operations };
        assert_eq!(recording.tails(99), HashMap::from([(3, 1600), (4, 7)]));
        assert_eq!(recording.tails(3), HashMap::from([(2, 0), (3, 0)]));
        assert_eq!(recording.tails(0), HashMap::new());
    }
}
