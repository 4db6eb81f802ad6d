//! Snapshots against a model: random changes of every kind while a walker takes its steps, and what it took compared with a clone
//! of the model at the beginning; then the same with threads, by an invariant.
#![cfg(not(loom))]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gimmal_store::types::{Aggregate, End, Field, Fields, Kind, Limits, List, NodeLimit};
use gimmal_store::{
    Batch, Entry, Expired, Keyspace, NewValue, Options, OwnedEntry, Rope, Shard, SnapshotStep, StringRef, Taken,
    ValueRef,
};

/// A value as plain data.
#[derive(Clone, Debug, PartialEq)]
enum Plain {
    String(Vec<u8>),
    List(Vec<Vec<u8>>),
    Hash(BTreeMap<Vec<u8>, (Vec<u8>, Option<i64>)>),
}

/// Value and time of expiry by database and key.
type Contents = BTreeMap<(usize, Vec<u8>), (Plain, Option<i64>)>;

fn plain(entry: &Entry<'_>) -> (Plain, Option<i64>) {
    let value = match entry.value() {
        ValueRef::String(StringRef::Int(int)) => Plain::String(int.to_string().into_bytes()),
        ValueRef::String(StringRef::Bytes(bytes)) => Plain::String(bytes.to_vec()),
        ValueRef::String(StringRef::Rope(rope)) => Plain::String(rope.to_vec()),
        ValueRef::List(list) => Plain::List(list.iter().map(<[u8]>::to_vec).collect()),
        ValueRef::Hash(fields) => {
            let fields = fields.iter_from(0).map(|f| (f.name.to_vec(), (f.value.to_vec(), f.expire_at_ms)));
            Plain::Hash(fields.collect())
        }
        other => unreachable!("{other:?}"),
    };
    (value, entry.expire_at_ms())
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn small(&mut self, limit: u64) -> usize {
        usize::try_from(self.below(limit)).expect("small")
    }
}

fn lock<'k>(keyspace: &'k Keyspace, batch: &'k Batch<'_>, shard: u32) -> Shard<'k> {
    loop {
        match keyspace.try_lock(batch, shard) {
            Some(shard) => return shard,
            None => std::thread::yield_now(),
        }
    }
}

/// A keyspace with its model, and the snapshot that runs.
struct World {
    keyspace: Keyspace,
    model: Contents,
    dice: Dice,
    now_ms: i64,
    /// What the snapshot must be, and what has come of it so far; none: none runs.
    snapshot: Option<(Contents, Contents)>,
    keeps: bool,
    taken: Taken,
    /// Databases that were taken out while they were walked, and snapshots that ended.
    left: usize,
    complete: usize,
}

const DATABASES: usize = 3;
const WORKER: usize = 0;
const WALKER: usize = 1;

impl World {
    fn new(seed: u64) -> World {
        let keyspace = Keyspace::new(Options { shards: 4, databases: DATABASES, participants: 2, seed: (seed, 1) });
        let (model, dice, taken) = (Contents::new(), Dice(seed), Taken::default());
        World { keyspace, model, dice, now_ms: 1000, snapshot: None, keeps: true, taken, left: 0, complete: 0 }
    }

    fn key(&mut self) -> (usize, Vec<u8>) {
        // Few keys in some databases, many in others, so that tables grow, split and merge.
        let db = self.dice.small(DATABASES as u64);
        let keys = [40, 400, 2000][db];
        (db, format!("key:{}", self.dice.below(keys)).into_bytes())
    }

    fn at<R>(&self, db: usize, key: &[u8], act: impl FnOnce(&mut gimmal_store::Table, gimmal_store::Hash) -> R) -> R {
        let batch = self.keyspace.gate().enter(WORKER);
        let hash = self.keyspace.hash(key);
        let mut shard = lock(&self.keyspace, &batch, self.keyspace.shard_of(hash));
        act(shard.table(db), hash)
    }

    fn deadline(&mut self) -> Option<i64> {
        let ahead = i64::try_from(self.dice.below(2000)).expect("small");
        (self.dice.below(3) == 0).then_some(self.now_ms + ahead)
    }

    fn put(&mut self) {
        let ((db, key), deadline) = (self.key(), self.deadline());
        let lengths = if self.dice.below(100) == 0 { 7 } else { 4 };
        let len = [0, 5, 30, 300, 4000, 5000, 400_000][self.dice.small(lengths)];
        let (int, byte) = (self.dice.next().cast_signed() >> 40, self.dice.next().to_le_bytes()[0]);
        let bytes = vec![byte; len];
        let value = if len == 0 { NewValue::Int(int) } else { NewValue::Bytes(&bytes) };
        drop(self.at(db, &key, |table, hash| table.put(hash, &key, value, deadline, 0)));
        let text = if len == 0 { int.to_string().into_bytes() } else { bytes };
        self.model.insert((db, key), (Plain::String(text), deadline));
    }

    /// APPEND, SETRANGE, a counter.
    fn change_string(&mut self) {
        let ((db, key), kind, add) = (self.key(), self.dice.below(4), self.dice.below(90).to_string().into_bytes());
        let Some((Plain::String(text), _)) = self.model.get_mut(&(db, key.clone())) else { return };
        match kind {
            0 | 1 => text.extend_from_slice(&add),
            2 if text.len() >= add.len() => text[..add.len()].copy_from_slice(&add),
            2 => return,
            _ => *text = b"77".to_vec(),
        }
        self.at(db, &key, |table, hash| {
            let mut entry = table.find_mut(hash, &key).expect("as in the model");
            match kind {
                0 | 1 => drop(entry.append(&add)),
                2 => drop(entry.set_range(0, &add)),
                _ => entry.set_int(77),
            }
        });
    }

    fn change_list(&mut self) {
        let ((db, key), byte) = (self.key(), self.dice.next().to_le_bytes()[0]);
        let (count, pops) = (self.dice.small(60), self.dice.below(3) == 0);
        let item = vec![byte; 20];
        let change = |list: &mut List| {
            (0..count).for_each(|_| list.push(End::Tail, &item));
            if pops {
                list.remove_range(0..1, NodeLimit::Bytes(8192));
            }
        };
        let model = self.model.get_mut(&(db, key.clone()));
        match model {
            Some((Plain::List(items), _)) => {
                items.extend((0..count).map(|_| item.clone()));
                if pops && !items.is_empty() {
                    items.remove(0);
                }
                let is_empty = items.is_empty();
                self.at(db, &key, |table, hash| {
                    let mut entry = table.find_mut(hash, &key).expect("as in the model");
                    entry.edit(&mut Vec::new(), change).expect("a list");
                    if is_empty {
                        drop(table.remove(hash, &key));
                    }
                });
                if is_empty {
                    self.model.remove(&(db, key));
                }
            }
            _ => {
                let mut list = List::new_in(Vec::new());
                (0..=count).for_each(|_| list.push(End::Tail, &item));
                drop(self.at(db, &key, |table, hash| table.put_aggregate(hash, &key, Aggregate::List(list), None, 0)));
                self.model.insert((db, key), (Plain::List(vec![item; count + 1]), None));
            }
        }
    }

    fn change_hash(&mut self) {
        let (db, key) = self.key();
        let (count, base, deadline) = (self.dice.below(60), self.dice.below(400), self.deadline());
        let names: Vec<Vec<u8>> = (0..=count).map(|i| format!("field:{}", base + i).into_bytes()).collect();
        let change = |fields: &mut Fields| {
            for name in &names {
                let limits = Limits { entries: 128, value: 64 };
                fields.put(Field { name, value: name, expire_at_ms: deadline }, limits);
            }
        };
        let fields = names.iter().map(|name| (name.clone(), (name.clone(), deadline)));
        match self.model.get_mut(&(db, key.clone())) {
            Some((Plain::Hash(model), _)) => {
                model.extend(fields);
                self.at(db, &key, |table, hash| {
                    let mut entry = table.find_mut(hash, &key).expect("as in the model");
                    entry.edit(&mut Vec::new(), change).expect("a hash");
                });
            }
            _ => {
                let model = Plain::Hash(fields.collect());
                let mut value = Fields::new_in(Vec::new());
                change(&mut value);
                drop(self.at(db, &key, |table, hash| table.put_aggregate(hash, &key, Aggregate::Hash(value), None, 0)));
                self.model.insert((db, key), (model, None));
            }
        }
    }

    fn remove(&mut self) {
        let (db, key) = self.key();
        let removed = self.at(db, &key, |table, hash| table.remove(hash, &key));
        assert_eq!(removed.is_some(), self.model.remove(&(db, key)).is_some());
    }

    fn set_expire(&mut self) {
        let ((db, key), deadline) = (self.key(), self.deadline());
        let set = self.at(db, &key, |table, hash| table.set_expire(hash, &key, deadline));
        if let Some((_, at_ms)) = self.model.get_mut(&(db, key)) {
            *at_ms = deadline;
            assert!(set);
        }
    }

    /// RENAME, MOVE, COPY.
    fn take_along(&mut self) {
        let ((from_db, from), (to_db, to), copies) = (self.key(), self.key(), self.dice.below(2) == 0);
        let owned: Option<OwnedEntry> = self.at(from_db, &from, |table, hash| match copies {
            true => table.find(hash, &from).map(|entry| entry.copied(3)),
            false => table.take(hash, &from),
        });
        let model = match copies {
            true => self.model.get(&(from_db, from)).cloned(),
            false => self.model.remove(&(from_db, from)),
        };
        assert_eq!(owned.is_some(), model.is_some());
        if let (Some(owned), Some(model)) = (owned, model) {
            drop(self.at(to_db, &to, |table, hash| table.put_owned(hash, &to, owned)));
            self.model.insert((to_db, to), model);
        }
    }

    /// Time goes on: what is due expires, in a walk or at a look.
    fn expire(&mut self) {
        self.now_ms += i64::try_from(self.dice.below(300)).expect("small");
        let (now_ms, db) = (self.now_ms, self.dice.small(DATABASES as u64));
        let mut gone = Vec::new();
        let batch = self.keyspace.gate().enter(WORKER);
        for shard in 0..4 {
            let mut shard = lock(&self.keyspace, &batch, shard);
            let mut resume = 0;
            let mut each = |expired: Expired, _| match expired {
                Expired::Key(entry) => gone.push((entry.entry().key().to_vec(), None)),
                Expired::Fields { key, names, .. } => gone.push((key, Some(names))),
            };
            shard.table(db).expired_slice(now_ms, 1000, &mut resume, &mut each);
        }
        drop(batch);
        for (key, names) in gone {
            let place = (db, key);
            let Some(names) = names else {
                let (_, at_ms) = self.model.remove(&place).expect("it was there");
                assert!(at_ms.is_some_and(|at_ms| at_ms < now_ms));
                continue;
            };
            let Some((Plain::Hash(fields), _)) = self.model.get_mut(&place) else { panic!("fields of no hash") };
            names.iter().for_each(|name| drop(fields.remove(name)));
            if fields.is_empty() {
                self.model.remove(&place);
            }
        }
    }

    fn flush(&mut self) {
        let db = self.dice.small(DATABASES as u64);
        let batch = self.keyspace.gate().enter(WORKER);
        let exclusive = batch.try_close().expect("nobody else");
        let mut detached = self.keyspace.detach_database(&batch, db);
        drop(exclusive);
        drop(batch);
        while !detached.free_slice(100) {}
        self.model.retain(|(of, _), _| *of != db);
    }

    fn swap(&mut self) {
        let (a, b) = (self.dice.small(DATABASES as u64), self.dice.small(DATABASES as u64));
        let batch = self.keyspace.gate().enter(WORKER);
        let exclusive = batch.try_close().expect("nobody else");
        self.keyspace.swap_databases(&batch, a, b);
        drop(exclusive);
        let swapped = |db| {
            if db == a {
                b
            } else if db == b {
                a
            } else {
                db
            }
        };
        self.model =
            std::mem::take(&mut self.model).into_iter().map(|((db, key), v)| ((swapped(db), key), v)).collect();
    }

    fn begin(&mut self) {
        let batch = self.keyspace.gate().enter(WORKER);
        let exclusive = batch.try_close().expect("nobody else");
        let sizes = self.keyspace.begin_snapshot(&batch);
        drop(exclusive);
        for db in 0..DATABASES {
            let keys: Vec<_> = self.model.iter().filter(|((of, _), _)| *of == db).collect();
            let size = sizes.iter().find(|size| size.db == db);
            assert_eq!(size.map_or(0, |size| size.keys), keys.len());
            let volatile = keys.iter().filter(|(_, (_, at_ms))| at_ms.is_some()).count();
            assert_eq!(size.map_or(0, |size| size.volatile), volatile);
        }
        self.keeps = self.dice.below(8) > 0;
        self.snapshot = Some((self.model.clone(), Contents::new()));
    }

    /// A step of the walker, or a look at what was handed over.
    fn walk(&mut self) {
        let budget = [1, 10, 200][self.dice.small(3)];
        let hands = self.dice.below(2) == 0;
        let Some((_, found)) = &mut self.snapshot else { return };
        let mut handed = Vec::new();
        let batch = self.keyspace.gate().enter(WALKER);
        let step = match hands {
            true => None,
            false => Some(self.keyspace.snapshot_step(&batch, budget, self.keeps, &mut self.taken)),
        };
        let done = matches!(step, Some(SnapshotStep::Done));
        self.keyspace.take_handed(&batch, if done { usize::MAX } else { budget }, &mut handed);
        let mut note = |db: usize, entry: &Entry<'_>| {
            let before = found.insert((db, entry.key().to_vec()), plain(entry));
            assert!(before.is_none(), "{:?} came twice", String::from_utf8_lossy(entry.key()));
        };
        handed.iter().for_each(|(db, entry)| note(*db, &entry.entry()));
        match step {
            Some(SnapshotStep::Taken { db }) => {
                assert_eq!(self.taken.entries().count(), self.taken.len());
                self.taken.entries().for_each(|entry| note(db, &entry));
            }
            Some(SnapshotStep::Left(mut database)) => {
                self.left += 1;
                while !database.free_slice(50) {}
            }
            Some(SnapshotStep::Busy) => unreachable!("there is one thread"),
            Some(SnapshotStep::Done) => {
                self.keyspace.end_snapshot(&batch);
                assert_eq!(self.keyspace.handed_bytes(), 0);
                let (asked, found) = self.snapshot.take().expect("it was there");
                if self.keeps {
                    self.complete += 1;
                    assert_eq!(found.len(), asked.len());
                    assert!(found == asked, "a value is not what it was");
                }
            }
            None => {}
        }
        self.taken.clear();
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            match self.dice.below(100) {
                0..25 => self.put(),
                25..35 => self.change_string(),
                35..42 => self.change_list(),
                42..48 => self.change_hash(),
                48..56 => self.remove(),
                56..60 => self.set_expire(),
                60..66 => self.take_along(),
                66..68 => self.expire(),
                68 if self.dice.below(60) == 0 => self.flush(),
                69 if self.dice.below(20) == 0 => self.swap(),
                70 if self.snapshot.is_none() => self.begin(),
                71..80 => self.walk(),
                _ => self.put(),
            }
        }
    }

    fn compare(&self) {
        let batch = self.keyspace.gate().enter(WORKER);
        let mut found = Contents::new();
        for (db, id) in (0..DATABASES).flat_map(|db| (0..4).map(move |id| (db, id))) {
            let mut shard = lock(&self.keyspace, &batch, id);
            let mut cursor = 0;
            while {
                let mut note = |entry: Entry<'_>| drop(found.insert((db, entry.key().to_vec()), plain(&entry)));
                cursor = shard.table(db).scan(cursor, 1000, &mut note);
                cursor > 0
            } {}
        }
        assert!(found == self.model, "the keyspace itself is not as its model");
    }
}

#[test]
fn a_snapshot_is_the_model_at_its_beginning_whatever_follows() {
    let (mut left, mut complete) = (0, 0);
    for seed in 0..6 {
        let mut world = World::new(seed);
        drop(world.keyspace.gate().enter(WORKER));
        drop(world.keyspace.gate().enter(WALKER));
        world.run(20_000);
        world.compare();
        left += world.left;
        complete += world.complete;
    }
    assert!(left > 3, "{left} databases were flushed while they were walked");
    assert!(complete > 15, "{complete} snapshots were completed");
}

/// A large value that changes while it is walked: what was handed over is the old one, and shares what did not change.
#[test]
fn large_values_are_shared_not_copied() {
    let keyspace = Keyspace::new(Options { shards: 1, databases: 1, participants: 1, seed: (1, 2) });
    let (hash, mut handed) = (keyspace.hash(b"k"), Vec::new());
    let batch = keyspace.gate().enter(0);
    let rope = Rope::from_slice(&vec![b'a'; 3 << 20]);
    drop(lock(&keyspace, &batch, 0).table(0).put(hash, b"k", NewValue::Rope(rope), None, 0));
    let exclusive = batch.try_close().expect("nobody else");
    assert_eq!(keyspace.begin_snapshot(&batch).len(), 1);
    drop(exclusive);
    let set = |at| lock(&keyspace, &batch, 0).table(0).find_mut(hash, b"k").expect("there").set_range(at, b"b");
    set(1 << 20);
    set(2 << 20);
    keyspace.take_handed(&batch, 10, &mut handed);
    let [(0, old)] = &handed[..] else { panic!("handed over {} times", handed.len()) };
    let mut shard = lock(&keyspace, &batch, 0);
    let new = shard.table(0).find(hash, b"k").expect("there");
    let (Some(StringRef::Rope(old)), Some(StringRef::Rope(new))) = (old.value().as_string(), new.value().as_string())
    else {
        panic!("both are ropes")
    };
    let shared = old.extents().zip(new.extents()).filter(|(a, b)| std::sync::Arc::ptr_eq(a, b)).count();
    assert_eq!((shared, old.extents().len()), (10, 12));
    assert!(old.pieces(0, old.len()).flatten().all(|byte| *byte == b'a'));
}

/// Money is moved between accounts of different shards by several threads, while snapshots follow each other: in each of them the
/// sum is what there was in the beginning, and each account is there once.
#[test]
fn with_threads_every_snapshot_has_all_the_money() {
    for workers in [1, 2, 8] {
        money(workers);
    }
}

fn money(workers: usize) {
    const ACCOUNTS: u64 = 3000;
    const EACH: i64 = 1000;
    let keyspace = Keyspace::new(Options { shards: 64, databases: 1, participants: workers + 1, seed: (3, 4) });
    let name = |number: u64| format!("account:{number}").into_bytes();
    {
        let batch = keyspace.gate().enter(0);
        for number in 0..ACCOUNTS {
            let (key, hash) = (name(number), keyspace.hash(&name(number)));
            let mut shard = lock(&keyspace, &batch, keyspace.shard_of(hash));
            drop(shard.table(0).put(hash, &key, NewValue::Int(EACH), None, 0));
        }
    }
    let (stop, moves, alone) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let stop_at_end = Flag(&stop);
    std::thread::scope(|scope| {
        let stop_at_end = stop_at_end;
        for worker in 0..workers {
            let (keyspace, stop, moves, alone) = (&keyspace, &stop, &moves, &alone);
            scope.spawn(move || {
                let mut dice = Dice(worker as u64);
                while !stop.load(Ordering::Relaxed) {
                    let batch = keyspace.gate().enter(worker);
                    alone.fetch_add(u64::from(batch.is_alone()), Ordering::Relaxed);
                    for _ in 0..20 {
                        moves.fetch_add(u64::from(transfer(keyspace, &batch, &mut dice)), Ordering::Relaxed);
                    }
                    drop(batch);
                    keyspace.collect(worker);
                }
            });
        }
        for round in 0..30 {
            let visit = keyspace.gate().visit(workers);
            let (sum, accounts) = snapshot_sum(&keyspace, &visit, round % 3 == 0);
            assert_eq!((sum, accounts), (ACCOUNTS.cast_signed() * EACH, ACCOUNTS), "{workers} workers, round {round}");
            drop(visit);
            // Until the money has moved on.
            let before = moves.load(Ordering::Relaxed);
            while moves.load(Ordering::Relaxed) < before + 100 {
                std::thread::yield_now();
            }
        }
        let before = alone.load(Ordering::Relaxed);
        while workers == 1 && alone.load(Ordering::Relaxed) == before {
            std::thread::yield_now();
        }
        drop(stop_at_end);
    });
}

/// Sets a flag when it is dropped, so that threads end when an assertion fails.
struct Flag<'a>(&'a AtomicBool);

impl Drop for Flag<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Moves money between two accounts, or replaces one by another with the same amount; false if a lock was taken.
fn transfer(keyspace: &Keyspace, batch: &Batch<'_>, dice: &mut Dice) -> bool {
    let accounts = [dice.below(3000), dice.below(3000)].map(|number| format!("account:{number}").into_bytes());
    let hashes = [keyspace.hash(&accounts[0]), keyspace.hash(&accounts[1])];
    let ids = hashes.map(|hash| keyspace.shard_of(hash));
    if ids[0] == ids[1] {
        return false;
    }
    let (Some(mut from), Some(mut to)) = (keyspace.try_lock(batch, ids[0]), keyspace.try_lock(batch, ids[1])) else {
        return false;
    };
    let amount = i64::try_from(dice.below(50)).expect("small");
    for (shard, at, by) in [(&mut from, 0, -amount), (&mut to, 1, amount)] {
        let (hash, key) = (hashes[at], &accounts[at]);
        let table = shard.table(0);
        match dice.below(3) {
            0 => {
                let mut entry = table.find_mut(hash, key).expect("no account is closed");
                let Some(StringRef::Int(before)) = entry.value().as_string() else { panic!("an amount") };
                entry.set_int(before + by);
            }
            1 => {
                let removed = table.remove(hash, key).expect("no account is closed");
                let Some(StringRef::Int(before)) = removed.value().as_string() else { panic!("an amount") };
                drop(table.put(hash, key, NewValue::Int(before + by), Some(5), 0));
            }
            _ => {
                let Some(StringRef::Int(before)) = table.find(hash, key).and_then(|e| e.value().as_string()) else {
                    panic!("an amount")
                };
                drop(table.put(hash, key, NewValue::Int(before + by), None, 0));
            }
        }
    }
    true
}

/// The sum of all accounts of one snapshot, and how many there are.
fn snapshot_sum(keyspace: &Keyspace, visit: &gimmal_store::Visit<'_>, slow: bool) -> (i64, u64) {
    loop {
        let batch = visit.enter();
        let Some(exclusive) = batch.try_close() else { continue };
        let sizes = keyspace.begin_snapshot(&batch);
        assert_eq!(sizes.iter().map(|size| size.keys).sum::<usize>(), 3000);
        drop(exclusive);
        break;
    }
    let (mut taken, mut handed, mut sum, mut accounts) = (Taken::default(), Vec::new(), 0, 0);
    let mut done = false;
    while !done {
        let batch = visit.enter();
        taken.clear();
        done = match keyspace.snapshot_step(&batch, 40, true, &mut taken) {
            SnapshotStep::Taken { db } => db != 0,
            SnapshotStep::Busy => false,
            SnapshotStep::Left(_) => unreachable!("nothing is flushed"),
            SnapshotStep::Done => true,
        };
        keyspace.take_handed(&batch, usize::MAX, &mut handed);
        if done {
            keyspace.end_snapshot(&batch);
        }
        drop(batch);
        let handed = std::mem::take(&mut handed);
        for entry in taken.entries().chain(handed.iter().map(|(_, entry)| entry.entry())) {
            let Some(StringRef::Int(amount)) = entry.value().as_string() else { panic!("an amount") };
            sum += amount;
            accounts += 1;
        }
        if slow {
            std::thread::yield_now();
        }
    }
    (sum, accounts)
}
