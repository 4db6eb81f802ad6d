//! Cuts: which of the changes that were not synced a disk may hold when the power goes, and the tree that is left.
//!
//! The model is time. Each block of a file was last written back at some moment, so it shows the changes before that
//! moment and none after; the metadata of a file (size, truncations) has a moment of its own; so has each name. A policy
//! is a way to choose the moments. It follows that two changes of one block never appear in the wrong order, as they
//! cannot on a disk, while blocks of one write may appear apart (a torn write) or later blocks without earlier ones.
//! Dropped alternative: a random subset of the writes; it shows sectors that no page cache could have written.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::content::{Content, index, length};
use crate::file::{Change, File};
use crate::operation::{Ino, Name, ROOT};
use crate::random::{Random, mix};
use crate::state::{Body, NameChange, Personality, State};

/// What reaches the disk of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Nothing.
    DropAll,
    /// Everything: what a killed process leaves.
    KeepAll,
    /// The first so many changes, over all files and directories; a random number if none is given.
    Prefix(Option<u64>),
    /// Each block of this size, each size of a file and each name by chance: torn and reordered writes.
    Random(u64),
    /// Sizes are kept; bytes up to a moment, and zeros behind.
    ZeroTail,
    /// Sizes are kept; bytes up to a moment; behind the old end, garbage or older bytes of the same file.
    GarbageTail,
    /// Bytes and sizes are kept, some or all changes of names are lost.
    EntriesLost,
    /// Everything is kept but one half of each rename.
    RenameHalf,
}

impl Policy {
    /// One of each kind.
    pub const ALL: [Policy; 9] = [
        Policy::DropAll,
        Policy::KeepAll,
        Policy::Prefix(None),
        Policy::Random(512),
        Policy::Random(4096),
        Policy::ZeroTail,
        Policy::GarbageTail,
        Policy::EntriesLost,
        Policy::RenameHalf,
    ];
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DropAll => f.write_str("drop-all"),
            Self::KeepAll => f.write_str("keep-all"),
            Self::Prefix(None) => f.write_str("prefix"),
            Self::Prefix(Some(count)) => write!(f, "prefix:{count}"),
            Self::Random(grain) => write!(f, "random:{grain}"),
            Self::ZeroTail => f.write_str("zero-tail"),
            Self::GarbageTail => f.write_str("garbage-tail"),
            Self::EntriesLost => f.write_str("entries-lost"),
            Self::RenameHalf => f.write_str("rename-half"),
        }
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |digits: &str| digits.parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
        match text.split_once(':') {
            Some(("prefix", count)) => Ok(Self::Prefix(Some(number(count)?))),
            Some(("random", grain)) if number(grain)? > 0 => Ok(Self::Random(number(grain)?)),
            None if text == "random" => Ok(Self::Random(512)),
            _ => {
                let known = Self::ALL.into_iter().find(|policy| policy.to_string() == text);
                known.ok_or_else(|| format!("there is no policy {text:?}"))
            }
        }
    }
}

/// What is on the disk after a cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// By path from the root, which itself is not listed; directories before what is in them.
    pub entries: BTreeMap<PathBuf, Entry>,
}

/// One path of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A directory and its permission bits.
    Directory(u32),
    /// A file: its inode, bytes, permission bits. The same inode twice is a hard link.
    File(Ino, Content, u32),
    /// A symbolic link.
    Symlink(PathBuf),
}

impl Image {
    /// What is left of `state`.
    pub fn cut(state: &State, seed: u64, policy: Policy) -> Self {
        let cut = Cut::new(state, seed, policy);
        let names = cut.names();
        let mut image = Self { entries: BTreeMap::new() };
        let mut files = HashMap::new();
        let mut visited = HashSet::from([ROOT]);
        let mut left = vec![(ROOT, PathBuf::new())];
        while let Some((dir, path)) = left.pop() {
            for (name, ino) in names.get(&dir).into_iter().flatten() {
                let Some(inode) = state.inode(*ino) else { continue };
                let path = path.join(name);
                let entry = match &inode.body {
                    Body::File(file) => {
                        let content = files.entry(*ino).or_insert_with(|| cut.content(*ino, file)).clone();
                        Entry::File(*ino, content, inode.mode)
                    }
                    Body::Symlink(target) => Entry::Symlink(target.clone()),
                    // Half a rename can leave a directory in two places; a real one is only ever in one.
                    Body::Directory(_) if visited.insert(*ino) => {
                        left.push((*ino, path.clone()));
                        Entry::Directory(inode.mode)
                    }
                    Body::Directory(_) => continue,
                };
                image.entries.insert(path, entry);
            }
        }
        image
    }

    /// Flips one bit before the tail of one file, and says where: damage behind it cannot be told from a write that was torn.
    /// Where no tail is given it is the last quarter.
    pub fn flip_bit(&mut self, seed: u64, tails: &HashMap<Ino, u64>) -> Option<String> {
        let mut random = Random::new(seed);
        let files = self.entries.iter_mut().filter_map(|(path, entry)| match entry {
            Entry::File(ino, content, _) => {
                let tail = tails.get(ino).copied().unwrap_or(content.size() / 4 * 3).min(content.size());
                (tail > 0).then_some((path, content, tail))
            }
            _ => None,
        });
        let mut files: Vec<(&PathBuf, &mut Content, u64)> = files.collect();
        // Half of the time every file is as likely as any other, else every byte.
        let mut nth = index(random.below(length_of(files.len())));
        if random.one_in(2) {
            let total: u64 = files.iter().map(|(_, _, tail)| tail).sum();
            let mut left = random.below(total);
            nth = files.iter().position(|(_, _, tail)| {
                let is_here = left < *tail;
                left = left.saturating_sub(*tail);
                is_here
            })?;
        }
        let (path, content, tail) = files.get_mut(nth)?;
        let offset = random.below(*tail);
        let byte = content.read(offset, 1)[0] ^ (1 << random.below(8));
        content.write(offset, &[byte]);
        Some(format!("{} at {offset}", path.display()))
    }

    /// The bytes of a file, if there is one under this path.
    pub fn file(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        match self.entries.get(path.as_ref())? {
            Entry::File(_, content, _) => Some(content.bytes()),
            _ => None,
        }
    }

    /// Writes it into `dir`, which is made, and must be empty if it exists.
    ///
    /// # Errors
    /// Those of the file system that `dir` is on, and a directory that is not empty.
    pub fn write_to(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)?;
        if fs::read_dir(dir)?.next().is_some() {
            return Err(io::Error::new(io::ErrorKind::DirectoryNotEmpty, format!("{} is not empty", dir.display())));
        }
        let mut written: HashMap<Ino, PathBuf> = HashMap::new();
        for (path, entry) in &self.entries {
            let path = dir.join(path);
            match entry {
                Entry::Directory(_) => fs::create_dir(&path)?,
                Entry::Symlink(target) => std::os::unix::fs::symlink(target, &path)?,
                Entry::File(ino, content, mode) => match written.get(ino) {
                    Some(first) => fs::hard_link(first, &path)?,
                    None => {
                        fs::write(&path, content.bytes())?;
                        fs::set_permissions(&path, fs::Permissions::from_mode(*mode))?;
                        written.insert(*ino, path);
                    }
                },
            }
        }
        Ok(())
    }
}

/// The choices of one cut.
struct Cut<'a> {
    state: &'a State,
    seed: u64,
    policy: Policy,
    /// Changes at this position and later are lost, if the policy is a prefix.
    threshold: u64,
    is_ordered: bool,
}

/// The moments of one file, as numbers of its pending changes.
struct Moments {
    /// Size and truncations.
    metadata: usize,
    /// The size that the file ends with.
    size: u64,
    /// All blocks, unless each has its own.
    blocks: Option<usize>,
    grain: u64,
}

impl<'a> Cut<'a> {
    fn new(state: &'a State, seed: u64, policy: Policy) -> Self {
        let is_ordered = state.personality() == Personality::Ext4Like;
        let mut cut = Self { state, seed, policy, threshold: u64::MAX, is_ordered };
        if let Policy::Prefix(count) = policy {
            cut.threshold = cut.nth_pending(count);
        }
        cut
    }

    /// The position of the pending change after the first `count`.
    fn nth_pending(&self, count: Option<u64>) -> u64 {
        let of_files = self.state.inodes().filter_map(|(_, inode)| match &inode.body {
            Body::File(file) => Some(file.pending().iter().map(|pending| pending.at)),
            _ => None,
        });
        let mut positions: Vec<u64> = of_files.flatten().collect();
        positions.extend(self.state.pending_names().iter().map(|change| change.at));
        positions.sort_unstable();
        positions.dedup();
        let total = u64::try_from(positions.len()).expect("a count");
        let count = count.unwrap_or_else(|| self.random(0).below(total + 1));
        if count < total { positions[index(count)] } else { u64::MAX }
    }

    fn random(&self, salt: u64) -> Random {
        Random::new(mix(self.seed, salt))
    }

    fn content(&self, ino: Ino, file: &File) -> Content {
        let moments = self.moments(ino, file);
        let mut content = file.durable().clone();
        let old_end = content.size();
        // The sector that held the old end is on the disk as it was.
        let garbage_start = old_end.next_multiple_of(512);
        let mut is_behind_truncation = false;
        for (nth, pending) in file.pending().iter().enumerate() {
            match &pending.change {
                Change::Write(..) if self.is_ordered && is_behind_truncation => {}
                Change::Write(offset, slice) => {
                    let data = slice.bytes();
                    for (from, to) in blocks(*offset, offset + length(data), moments.grain) {
                        // Ordered data: a size that is on the disk covers only bytes that are there.
                        let is_forced = self.is_ordered && from >= old_end && to <= moments.size;
                        if nth < self.moment(&moments, file, ino, from) || (is_forced && nth <= moments.metadata) {
                            content.write(from, &data[index(from - offset)..index(to - offset)]);
                        } else if self.policy == Policy::GarbageTail && from >= garbage_start {
                            content.write(from, &self.garbage(ino, file, from, to - from));
                        }
                    }
                }
                Change::Resize(size) if nth < moments.metadata => content.resize(*size),
                Change::Resize(size) => is_behind_truncation |= *size < content.size(),
                Change::Zero(range, size) if nth < moments.metadata => {
                    content.zero(range.start, range.end.saturating_sub(range.start));
                    content.set_size((*size).max(content.size()));
                }
                Change::Zero(..) => {}
            }
        }
        content.resize(moments.size);
        content
    }

    fn moments(&self, ino: Ino, file: &File) -> Moments {
        let all = file.pending().len();
        let mut random = self.random(mix(1, ino));
        let any = |random: &mut Random| index(random.below(length_of(all) + 1));
        let (metadata, blocks, grain) = match self.policy {
            Policy::DropAll => (0, Some(0), u64::MAX),
            Policy::KeepAll | Policy::EntriesLost | Policy::RenameHalf => (all, Some(all), u64::MAX),
            Policy::Prefix(_) => {
                let kept = file.pending().partition_point(|pending| pending.at < self.threshold);
                (kept, Some(kept), u64::MAX)
            }
            Policy::Random(grain) => {
                let metadata = if random.one_in(3) { all } else { any(&mut random) };
                (metadata, None, grain)
            }
            Policy::ZeroTail | Policy::GarbageTail => {
                let kept = if random.one_in(2) { 0 } else { any(&mut random) };
                (all, Some(kept), 512)
            }
        };
        let size = self.size(file, metadata, &mut random);
        Moments { metadata, size, blocks, grain }
    }

    /// The size after so many changes; by chance that of a write that was half done.
    fn size(&self, file: &File, metadata: usize, random: &mut Random) -> u64 {
        let mut size = file.durable().size();
        for pending in &file.pending()[..metadata] {
            size = match &pending.change {
                Change::Write(offset, slice) => size.max(offset + length(slice.bytes())),
                Change::Resize(size) => *size,
                Change::Zero(_, least) => size.max(*least),
            };
        }
        if let Policy::Random(grain) = self.policy
            && let Some(Change::Write(offset, slice)) = file.pending().get(metadata).map(|pending| &pending.change)
            && random.one_in(2)
        {
            let end = offset + length(slice.bytes());
            let torn = (size + random.below(end.saturating_sub(size))) / grain * grain;
            size = size.max(torn);
        }
        size
    }

    /// The moment of the block that holds `offset`.
    fn moment(&self, moments: &Moments, file: &File, ino: Ino, offset: u64) -> usize {
        if let Some(moment) = moments.blocks {
            return moment;
        }
        let all = file.pending().len();
        let mut random = self.random(mix(mix(2, ino), offset / moments.grain));
        // How much of this file is old, new or in between differs from cut to cut.
        let share = mix(self.seed, mix(3, ino)) % 4;
        match random.below(4) {
            0 => 0,
            1 => index(random.below(length_of(all) + 1)),
            draw if draw <= share => all,
            _ => 0,
        }
    }

    fn garbage(&self, ino: Ino, file: &File, offset: u64, len: u64) -> Vec<u8> {
        let mut random = self.random(mix(mix(4, ino), offset));
        let durable = file.durable();
        // Old records of the same log, which look right, are worse than noise.
        if mix(self.seed, mix(5, ino)).is_multiple_of(2) && durable.size() > 0 {
            let blocks = durable.size().div_ceil(512);
            let mut stale = durable.read(random.below(blocks) * 512 + offset % 512, len);
            stale.resize(index(len), 0);
            return stale;
        }
        (0..len).map(|_| random.any().to_le_bytes()[0]).collect()
    }

    /// The names that are on the disk, by directory.
    fn names(&self) -> HashMap<Ino, BTreeMap<OsString, Ino>> {
        let directories = self.state.inodes().filter_map(|(ino, inode)| match &inode.body {
            Body::Directory(directory) => Some((ino, directory.durable.clone())),
            _ => None,
        });
        let mut names: HashMap<Ino, BTreeMap<OsString, Ino>> = directories.collect();
        let mut lost: HashSet<&Name> = HashSet::new();
        let changes = self.state.pending_names();
        let threshold = self.name_threshold();
        let mut at = 0;
        while at < changes.len() {
            // A rename is two changes of one operation, adjacent unless one of them was synced.
            let twins = 1 + changes[at + 1..].iter().take_while(|change| change.at == changes[at].at).count();
            let operation = &changes[at..at + twins];
            at += twins;
            let is_kept = operation[0].at < threshold
                && !operation.iter().any(|change| lost.contains(&change.name))
                && self.keeps_name(operation[0].at);
            for (half, change) in operation.iter().enumerate() {
                if is_kept && !self.is_lost_half(operation, half) {
                    let directory = names.entry(change.name.dir).or_default();
                    match change.to {
                        Some(ino) => directory.insert(change.name.name.clone(), ino),
                        None => directory.remove(&change.name.name),
                    };
                } else if !is_kept {
                    lost.insert(&change.name);
                }
            }
        }
        names
    }

    /// Changes of names from this position on are lost. A journal loses only its end.
    fn name_threshold(&self) -> u64 {
        let changes = self.state.pending_names();
        match self.policy {
            Policy::DropAll => 0,
            Policy::Prefix(_) => self.threshold,
            Policy::Random(_) | Policy::EntriesLost | Policy::RenameHalf if self.is_ordered => {
                let kept = index(self.random(6).below(length_of(changes.len()) + 1));
                changes.get(kept).map_or(u64::MAX, |change| change.at)
            }
            // Every second cut loses all names, which is what a missing sync of a directory looks like.
            Policy::EntriesLost if self.seed.is_multiple_of(2) => 0,
            _ => u64::MAX,
        }
    }

    fn keeps_name(&self, at: u64) -> bool {
        let is_by_chance = matches!(self.policy, Policy::Random(_) | Policy::EntriesLost);
        !is_by_chance || self.is_ordered || self.random(mix(7, at)).one_in(2)
    }

    fn is_lost_half(&self, operation: &[NameChange], half: usize) -> bool {
        let is_whole = operation.len() < 2 || !operation[half].is_rename;
        if is_whole || self.is_ordered {
            return false;
        }
        let lost = index(self.random(mix(8, operation[0].at)).below(2));
        match self.policy {
            Policy::RenameHalf => half == lost,
            // Directories are written apart; within one a rename is one block or one transaction.
            Policy::Random(_) => operation[0].name.dir != operation[1].name.dir && half == lost,
            _ => false,
        }
    }
}

/// `offset..end` cut at multiples of `grain`.
fn blocks(offset: u64, end: u64, grain: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut from = offset;
    std::iter::from_fn(move || {
        if from >= end {
            return None;
        }
        let to = (from / grain + 1).saturating_mul(grain).min(end);
        let block = (from, to);
        from = to;
        Some(block)
    })
}

fn length_of(count: usize) -> u64 {
    u64::try_from(count).expect("a count")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{Kind, Operation};
    use std::collections::BTreeSet;

    const FILE: Ino = 2;

    /// A file whose name is durable, with these operations on it.
    fn state(personality: Personality, operations: &[Operation]) -> State {
        let mut state = State::new(personality);
        let name = Name { dir: ROOT, name: "f".into() };
        state.apply(&Operation::Create { name, ino: FILE, kind: Kind::File, mode: 0o600 });
        state.apply(&Operation::SyncDirectory { ino: ROOT });
        operations.iter().for_each(|operation| state.apply(operation));
        state
    }

    fn write(offset: u64, byte: u8, len: usize) -> Operation {
        Operation::Write { ino: FILE, offset, data: vec![byte; len].into() }
    }

    fn cuts(state: &State, policy: Policy) -> Vec<Vec<u8>> {
        (0..300).map(|seed| Image::cut(state, seed, policy).file("f").expect("its name is durable")).collect()
    }

    #[test]
    fn policies_are_words() {
        for policy in Policy::ALL.into_iter().chain([Policy::Prefix(Some(7)), Policy::Random(1024)]) {
            assert_eq!(policy.to_string().parse::<Policy>().as_ref(), Ok(&policy));
        }
        for wrong in ["", "prefix:", "random:0", "drop", "zero-tail:3"] {
            assert!(wrong.parse::<Policy>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn whatever_the_cut_what_was_synced_is_there() {
        for personality in [Personality::StrictPosix, Personality::Ext4Like] {
            let synced = [write(0, b's', 10_000), Operation::Sync { ino: FILE }];
            let state =
                state(personality, &[&synced[..], &[write(10_000, b'p', 9000), write(12_000, b'q', 600)]].concat());
            for policy in Policy::ALL {
                for cut in cuts(&state, policy) {
                    assert!(cut.len() >= 10_000 && cut[..10_000].iter().all(|byte| *byte == b's'), "{policy}");
                }
            }
        }
    }

    #[test]
    fn all_and_nothing_and_every_prefix() {
        let state = state(Personality::StrictPosix, &[write(0, b'a', 3), write(3, b'b', 3), write(1, b'c', 1)]);
        assert!(cuts(&state, Policy::DropAll).iter().all(Vec::is_empty));
        assert!(cuts(&state, Policy::KeepAll).iter().all(|cut| cut == b"acabbb"));
        let prefix = |count| Image::cut(&state, 0, Policy::Prefix(Some(count))).file("f").expect("there");
        assert_eq!([prefix(0), prefix(1)], [Vec::new(), b"aaa".to_vec()]);
        assert_eq!([prefix(2), prefix(3), prefix(9)], [b"aaabbb", b"acabbb", b"acabbb"].map(|cut| cut.to_vec()));
        assert_eq!(cuts(&state, Policy::Prefix(None)).into_iter().collect::<BTreeSet<_>>().len(), 4);
    }

    #[test]
    fn a_random_cut_tears_and_reorders_by_block() {
        let before = [write(0, b'o', 4096), Operation::Sync { ino: FILE }, write(0, b'n', 4096)];
        let state = state(Personality::StrictPosix, &before);
        let mut patterns = BTreeSet::new();
        for cut in cuts(&state, Policy::Random(512)) {
            let blocks: Vec<u8> = cut.chunks(512).map(|block| block[0]).collect();
            assert!(cut.chunks(512).all(|block| block.iter().all(|byte| *byte == block[0])), "a sector is whole");
            patterns.insert(blocks);
        }
        assert!(patterns.contains(&vec![b'o'; 8]) || patterns.contains(&vec![b'n'; 8]));
        assert!(patterns.iter().any(|blocks| blocks[0] == b'o' && blocks[7] == b'n'), "the end without the start");
        assert!(patterns.iter().any(|blocks| blocks[0] == b'n' && blocks[7] == b'o'));
        assert!(patterns.len() > 30, "{}", patterns.len());
        assert!(cuts(&state, Policy::Random(4096)).iter().all(|cut| cut.iter().all(|byte| *byte == cut[0])));
    }

    #[test]
    fn two_writes_of_one_sector_never_appear_in_the_wrong_order() {
        let state = state(Personality::StrictPosix, &[write(0, b'a', 100), write(100, b'b', 100)]);
        for cut in cuts(&state, Policy::Random(512)) {
            let second = cut.len() > 100 && cut[100] == b'b';
            assert!(!second || cut[0] == b'a', "{cut:?}");
        }
    }

    #[test]
    fn a_tail_may_be_zero_or_garbage_and_ordered_data_has_neither() {
        let operations = [write(0, b'a', 1024), Operation::Sync { ino: FILE }, write(1024, b'b', 2048)];
        let strict = state(Personality::StrictPosix, &operations);
        let zero = cuts(&strict, Policy::ZeroTail);
        assert!(zero.iter().all(|cut| cut.len() == 3072 && cut[1024..].iter().all(|byte| [0, b'b'].contains(byte))));
        assert!(zero.iter().any(|cut| cut[1024..].iter().all(|byte| *byte == 0)));
        let garbage = cuts(&strict, Policy::GarbageTail);
        assert!(garbage.iter().any(|cut| cut[1024..].iter().all(|byte| *byte == b'a')), "stale");
        assert!(garbage.iter().any(|cut| !cut[1024..].iter().any(|byte| *byte == cut[1024]) || cut[1024] != cut[1025]));
        let ext4 = state(Personality::Ext4Like, &operations);
        for policy in [Policy::ZeroTail, Policy::GarbageTail, Policy::Random(512)] {
            for cut in cuts(&ext4, policy) {
                assert!(cut[1024..].iter().all(|byte| *byte == b'b'), "{policy}");
            }
        }
    }

    #[test]
    fn a_lost_truncation_leaves_the_old_bytes() {
        let operations = [
            write(0, b'a', 1024),
            Operation::Sync { ino: FILE },
            Operation::Resize { ino: FILE, size: 0 },
            write(0, b'b', 512),
        ];
        for (personality, is_mixed) in [(Personality::StrictPosix, true), (Personality::Ext4Like, false)] {
            let seen: BTreeSet<Vec<u8>> =
                cuts(&state(personality, &operations), Policy::Random(512)).into_iter().collect();
            assert!(seen.contains(&vec![b'a'; 1024]) && seen.contains(&vec![b'b'; 512]), "{personality:?}");
            let mixed = [vec![b'b'; 512], vec![b'a'; 512]].concat();
            assert_eq!(seen.contains(&mixed), is_mixed, "{personality:?}");
        }
    }

    #[test]
    fn one_bit_is_flipped() {
        let state = state(Personality::StrictPosix, &[write(0, 0, 8000)]);
        for (tails, end) in [(HashMap::new(), 6000), (HashMap::from([(FILE, 100)]), 100)] {
            let mut places = BTreeSet::new();
            for seed in 0..50 {
                let mut image = Image::cut(&state, 0, Policy::KeepAll);
                assert!(image.flip_bit(seed, &tails).expect("there is a file").starts_with("f at "));
                let bytes = image.file("f").expect("there");
                assert_eq!(bytes.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
                assert!(bytes[end..].iter().all(|byte| *byte == 0));
                places.insert(bytes);
            }
            assert!(places.len() > 20, "{} places", places.len());
        }
        let mut image = Image::cut(&state, 0, Policy::KeepAll);
        assert_eq!(image.flip_bit(1, &HashMap::from([(FILE, 0)])), None, "all of it is the tail");
        assert_eq!(Image { entries: BTreeMap::new() }.flip_bit(1, &HashMap::new()), None);
    }

    #[test]
    fn an_image_becomes_a_directory() {
        let mut state = state(Personality::StrictPosix, &[write(0, b'a', 5)]);
        let sub = Name { dir: ROOT, name: "d".into() };
        state.apply(&Operation::Create { name: sub, ino: 3, kind: Kind::Directory, mode: 0o755 });
        state.apply(&Operation::Link { name: Name { dir: 3, name: "g".into() }, ino: FILE });
        let link = Name { dir: ROOT, name: "l".into() };
        state.apply(&Operation::Create { name: link, ino: 4, kind: Kind::Symlink("d/g".into()), mode: 0o777 });
        let dir = std::env::temp_dir().join(format!("crashfs-image-{}", std::process::id()));
        let image = Image::cut(&state, 0, Policy::KeepAll);
        image.write_to(&dir).expect("it is written");
        assert_eq!(fs::read(dir.join("l")).expect("the link leads to it"), b"aaaaa");
        fs::write(dir.join("f"), "other").expect("writable");
        assert_eq!(fs::read(dir.join("d/g")).expect("a hard link"), b"other");
        assert!(image.write_to(&dir).is_err(), "it is not empty any more");
        fs::remove_dir_all(&dir).expect("removable");
    }
}
