//! The table against a model: a `HashMap` that is driven by the same seeded operations.

use std::collections::{HashMap, HashSet};

use super::*;
use crate::Rope;
use crate::rope::EXTENT;
use crate::types::{Field, Fields, Limits};
use crate::value::{StringRef, ValueRef};

/// SplitMix64: a seeded sequence for tests.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.word() >> 1).expect("64 bits") % limit
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Model {
    value: Vec<u8>,
    int: bool,
    expire_at_ms: Option<i64>,
    clock: u32,
}

fn bytes_of(value: ValueRef<'_>) -> Vec<u8> {
    match value.as_string().expect("a string") {
        StringRef::Int(int) => int.to_string().into_bytes(),
        StringRef::Bytes(bytes) => bytes.to_vec(),
        StringRef::Rope(rope) => rope.to_vec(),
    }
}

fn model_of(entry: Entry<'_>) -> Model {
    let int = matches!(entry.value().as_string(), Some(StringRef::Int(_)));
    Model { value: bytes_of(entry.value()), int, expire_at_ms: entry.expire_at_ms(), clock: entry.clock() }
}

/// Counters, deadlines and places agree with what the table holds.
fn check_invariants(table: &StandaloneTable) {
    let Some(directory) = table.directory() else {
        assert_eq!((table.len(), table.bytes()), (0, 0));
        return;
    };
    let (mut index, mut len, mut volatile, mut bytes, mut deepest) = (0, 0, 0, directory.size(), 0);
    while index < directory.len() {
        let (segment, buckets) = directory.tagged_segment(index);
        let span = directory.span(index, segment.depth());
        assert_eq!((span.start, buckets), (index, segment.buckets()));
        assert!(span.clone().all(|at| directory.segment(at) == segment));
        let bound_ms = directory.deadline_ms(directory.group(index).0);
        let (mut own_len, mut own_volatile) = (0, 0);
        for (fingerprint, entry) in segment.entries() {
            let hash = table.hash(entry.key());
            assert_eq!(fingerprint, hash.fingerprint());
            assert!(span.contains(&directory.index(table.bits(hash))));
            if let Some(at_ms) = entry.expire_at_ms() {
                assert!(segment.deadline_ms() <= at_ms && bound_ms <= at_ms && table.deadline_ms() <= at_ms);
                own_volatile += 1;
            }
            bytes += entry.memory_bytes();
            own_len += 1;
        }
        assert_eq!((segment.len(), segment.volatile()), (own_len, own_volatile));
        deepest += u32::from(segment.depth() == directory.depth());
        (len, volatile, bytes) = (len + own_len, volatile + own_volatile, bytes + segment.size());
        index = span.end;
    }
    assert_eq!((table.len(), table.volatile_len(), table.bytes()), (len, volatile, bytes));
    assert_eq!(table.deepest, deepest);
    assert!(directory.depth() == 0 || deepest > 0, "the directory is deeper than any segment");
}

fn key_of(number: usize) -> Vec<u8> {
    // Some keys are long enough for a length of four bytes.
    if number % 50 == 7 { format!("{number:0>300}").into_bytes() } else { format!("key:{number}").into_bytes() }
}

fn value_of(random: &mut Random) -> (Vec<u8>, Option<i64>) {
    match random.below(20) {
        0..6 => {
            let int = random.word().cast_signed() >> random.below(64);
            (int.to_string().into_bytes(), Some(int))
        }
        6 => (vec![b'r'; 4000 + random.below(9000)], None),
        _ => (vec![b'v'; random.below(80)], None),
    }
}

struct Driver {
    table: StandaloneTable,
    model: HashMap<Vec<u8>, Model>,
    random: Random,
}

impl Driver {
    fn step(&mut self, keys: usize, removals: usize) {
        let key = key_of(self.random.below(keys));
        let hash = self.table.hash(&key);
        let expire_at_ms = (self.random.below(3) == 0).then(|| self.random.word().cast_signed() >> 20);
        let clock = u32::try_from(self.random.below(1 << 24)).expect("24 bits");
        let operation = self.random.below(100);
        if operation < removals {
            let removed = self.table.remove(hash, &key).map(|owned| model_of(owned.entry()));
            assert_eq!(removed, self.model.remove(&key));
            return;
        }
        match operation % 8 {
            0..3 => self.put(hash, key, expire_at_ms, clock),
            3 => {
                let there = self.table.set_expire(hash, &key, expire_at_ms);
                assert_eq!(there, self.model.contains_key(&key));
                self.model.entry(key).and_modify(|model| model.expire_at_ms = expire_at_ms);
            }
            4 => self.rename(hash, &key, keys),
            5 => self.edit(hash, &key, clock),
            _ => assert_eq!(self.table.find(hash, &key).map(model_of).as_ref(), self.model.get(&key)),
        }
    }

    fn put(&mut self, hash: Hash, key: Vec<u8>, expire_at_ms: Option<i64>, clock: u32) {
        let (value, int) = value_of(&mut self.random);
        let new = match int {
            Some(int) => NewValue::Int(int),
            None if self.random.below(4) == 0 => NewValue::Rope(Rope::from_slice(&value)),
            None => NewValue::Bytes(&value),
        };
        let old = self.table.find(hash, &key).and_then(|entry| match entry.value().as_string().expect("a string") {
            StringRef::Rope(rope) => Some(rope.clone()),
            _ => None,
        });
        let put = self.table.put(hash, &key, new, expire_at_ms, clock);
        assert!(match (put.old, old) {
            (Some(Large::Rope(had)), Some(expected)) => had == expected,
            (had, expected) => had.is_none() && expected.is_none(),
        });
        let before = self.model.insert(key, Model { value, int: int.is_some(), expire_at_ms, clock });
        assert_eq!(put.replaced, before.is_some());
    }

    fn rename(&mut self, hash: Hash, key: &[u8], keys: usize) {
        let Some(owned) = self.table.take(hash, key) else {
            return;
        };
        let model = self.model.remove(key).expect("the table had it");
        let to = key_of(self.random.below(keys));
        let to_hash = self.table.hash(&to);
        let put = self.table.put_owned(to_hash, &to, owned);
        assert_eq!(put.replaced, self.model.insert(to, model).is_some());
    }

    fn edit(&mut self, hash: Hash, key: &[u8], clock: u32) {
        let (table, random) = (&mut self.table, &mut self.random);
        let Some(mut entry) = table.find_mut(hash, key) else {
            assert!(!self.model.contains_key(key));
            return;
        };
        let model = self.model.get_mut(key).expect("the table has it");
        let (piece, int) = value_of(random);
        match random.below(8) {
            0 => {
                assert_eq!(entry.append(&piece), model.value.len() + piece.len());
                model.value.extend_from_slice(&piece);
                model.int = false;
            }
            1 => {
                let offset = random.below(5000);
                let len = entry.set_range(offset, &piece);
                if !piece.is_empty() {
                    model.value.resize(model.value.len().max(offset + piece.len()), 0);
                    model.value[offset..offset + piece.len()].copy_from_slice(&piece);
                    model.int = false;
                }
                assert_eq!(len, model.value.len());
            }
            2 => {
                entry.set_int(-5);
                (model.value, model.int) = (b"-5".to_vec(), true);
            }
            3 => {
                entry.set_clock(clock);
                model.clock = clock;
            }
            4 => {
                let new = int.map_or(NewValue::Bytes(&piece), NewValue::Int);
                drop(entry.replace(new));
                (model.value, model.int) = (piece, int.is_some());
            }
            5 => {
                entry.set_bytes(&piece);
                (model.value, model.int) = (piece, false);
            }
            6 => {
                let in_one_piece = entry.edit_bytes(|bytes| bytes.iter_mut().for_each(|byte| *byte ^= 0x55));
                assert_eq!(in_one_piece.is_some(), !model.int && model.value.len() <= EXTENT);
                if in_one_piece.is_some() {
                    model.value.iter_mut().for_each(|byte| *byte ^= 0x55);
                }
            }
            _ => {
                entry.set_expire(Some(77));
                model.expire_at_ms = Some(77);
            }
        }
        assert_eq!(&model_of(entry.entry()), model);
    }

    fn check_all(&self) {
        check_invariants(&self.table);
        assert_eq!(self.table.len(), self.model.len());
        for (key, model) in &self.model {
            assert_eq!(self.table.find(self.table.hash(key), key).map(model_of).as_ref(), Some(model));
        }
        let mut scanned = HashSet::new();
        let mut cursor = 0;
        loop {
            cursor = self.table.scan(cursor, 10, &mut |entry| assert!(scanned.insert(entry.key().to_vec())));
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(scanned.len(), self.model.len());
    }
}

#[test]
fn agrees_with_a_hash_map() {
    for (seed, keys) in (0..24).zip([1, 5, 30, 200, 2000, 8000].into_iter().cycle()) {
        let table = StandaloneTable::new((seed, 9), u32::try_from(seed % 15).expect("small"));
        let mut driver = Driver { table, model: HashMap::new(), random: Random(seed) };
        for round in 0..12 {
            // Rounds of growth, of balance, and of decay down to nothing.
            let removals = [5, 5, 10, 30, 60, 95][round % 6];
            for _ in 0..keys.max(100) {
                driver.step(keys, removals);
            }
            driver.check_all();
        }
    }
}

fn filled(keys: usize) -> StandaloneTable {
    let mut table = StandaloneTable::new((1, 2), 10);
    for number in 0..keys {
        let key = key_of(number);
        assert!(insert(&mut table, &key, None));
    }
    table
}

/// True if the key was new.
fn insert(table: &mut StandaloneTable, key: &[u8], expire_at_ms: Option<i64>) -> bool {
    let hash = table.hash(key);
    !table.put(hash, key, NewValue::Int(1), expire_at_ms, 0).replaced
}

/// True if the key was there.
fn delete(table: &mut StandaloneTable, key: &[u8]) -> bool {
    let hash = table.hash(key);
    table.remove(hash, key).is_some()
}

#[test]
fn segments_are_three_quarters_full_on_average() {
    for keys in [20_000, 30_000, 50_000, 100_000] {
        let table = filled(keys);
        let directory = table.directory().expect("keys");
        let (mut index, mut slots) = (0, 0);
        while index < directory.len() {
            slots += directory.segment(index).slots();
            index = directory.span(index, directory.segment(index).depth()).end;
        }
        assert!(keys * 100 >= slots * 75, "{keys} keys in {slots} slots");
    }
}

#[test]
fn reserved_room_is_filled_exceeded_and_given_back() {
    for (reserved, keys) in
        [(0, 500), (90, 500), (1000, 0), (1000, 40), (5000, 5000), (5000, 20_000), (1 << 17, 100_000)]
    {
        let mut table = StandaloneTable::new((1, 2), 4);
        table.reserve(reserved);
        check_invariants(&table);
        (0..keys).for_each(|n| assert!(insert(&mut table, &key_of(n), Some(1_000_000 + n as i64))));
        check_invariants(&table);
        let grown = table.directory().map(Directory::depth);
        // There are keys: they stay as they are.
        table.reserve(1 << 20);
        assert!(keys == 0 || table.directory().map(Directory::depth) == grown);
        (0..keys).for_each(|n| assert!(table.find(table.hash(&key_of(n)), &key_of(n)).is_some(), "{n} of {keys}"));
        (0..keys).for_each(|n| assert!(delete(&mut table, &key_of(n))));
        check_invariants(&table);
        table.release();
        assert_eq!((table.len(), table.bytes()), (0, 0));
    }
}

#[test]
fn reserved_room_takes_about_the_memory_that_growing_does() {
    for keys in [200, 1000, 5000, 20_000, 70_000] {
        let grown = filled(keys);
        let mut table = StandaloneTable::new((1, 2), 4);
        table.reserve(keys);
        (0..keys).for_each(|n| assert!(insert(&mut table, &key_of(n), None)));
        check_invariants(&table);
        assert!(table.bytes() * 10 < grown.bytes() * 12, "{keys} keys: {} and {} bytes", table.bytes(), grown.bytes());
    }
}

#[test]
fn removing_everything_gives_memory_back() {
    let mut table = filled(50_000);
    let full = table.bytes();
    for number in 0..50_000 {
        let key = key_of(number);
        assert!(delete(&mut table, &key));
    }
    check_invariants(&table);
    assert!(table.bytes() < 1000, "{} bytes of {full} left", table.bytes());
    assert_eq!(table.directory().expect("one small segment stays").depth(), 0);
}

#[test]
fn an_empty_table_can_be_released_and_used_again() {
    let mut table = StandaloneTable::new((1, 1), 4);
    table.release();
    for keys in [1, 3000] {
        for number in 0..keys {
            assert!(insert(&mut table, &key_of(number), Some(10)));
        }
        table.release();
        assert_eq!(table.len(), keys, "nothing is released while there are keys");
        (0..keys).for_each(|number| assert!(delete(&mut table, &key_of(number))));
        table.release();
        assert_eq!((table.len(), table.bytes(), table.deadline_ms()), (0, 0, i64::MAX));
        assert!(!table.expire_some(1000, 100, &mut |_, _| unreachable!()) || table.is_empty());
        assert!(table.find(table.hash(b"k"), b"k").is_none());
        check_invariants(&table);
    }
}

#[test]
fn a_scan_visits_all_old_keys_while_the_table_grows_and_shrinks() {
    for (before, after) in [(300, 30_000), (30_000, 300), (3, 5000)] {
        let mut table = filled(before.max(300));
        let stays: HashSet<Vec<u8>> = (0..before.min(300)).map(key_of).collect();
        let (mut seen, mut cursor, mut next, mut gone) = (HashSet::new(), 0, before.max(300), 300);
        loop {
            cursor = table.scan(cursor, 20, &mut |entry| {
                let first = seen.insert(entry.key().to_vec());
                assert!(first, "visited twice: {:?}", entry.key());
            });
            if cursor == 0 {
                break;
            }
            for _ in 0..500 {
                if after > before && next < after {
                    let key = key_of(next);
                    assert!(insert(&mut table, &key, None));
                    next += 1;
                } else if after < before && gone < before {
                    let key = key_of(gone);
                    assert!(delete(&mut table, &key));
                    gone += 1;
                }
            }
        }
        assert!(
            stays.is_subset(&seen),
            "{before} to {after}: {} of {}",
            stays.intersection(&seen).count(),
            stays.len()
        );
    }
}

#[test]
fn a_scan_of_any_cursor_ends() {
    let table = filled(2000);
    for cursor in [1, 12_345, scan::END - 1, scan::END, u64::MAX] {
        let (mut cursor, mut calls) = (cursor, 0);
        while calls < 10_000 && (cursor != 0 || calls == 0) {
            cursor = table.scan(cursor, 0, &mut |_| {});
            calls += 1;
        }
        assert_eq!(cursor, 0);
    }
}

#[test]
fn equal_hashes_and_fingerprints_are_told_apart_by_key() {
    fn number(key: &[u8]) -> u64 {
        u64::from_le_bytes(key.try_into().expect("keys of 8 bytes"))
    }
    // All equal; equal in the fingerprint; equal in all of the directory's bits.
    let forced: [fn(&[u8]) -> u64; 3] =
        [|_| 0x1234_5678_9ABC_DEF0, |key| number(key) << 40 | 0x77, |key| number(key) & 0xFFFF];
    for (case, force) in forced.into_iter().enumerate() {
        let mut hasher = Hasher::new((3, 4));
        hasher.forced = Some(force);
        let mut table = StandaloneTable::with_hasher(hasher, 0);
        let keys: Vec<[u8; 8]> = (0..1000_u64).map(u64::to_le_bytes).collect();
        for key in &keys {
            assert!(insert(&mut table, key, None));
            assert!(table.directory().expect("keys").depth() < 20, "collisions must not double the directory for ever");
        }
        check_invariants(&table);
        for key in &keys {
            let found = table.find(table.hash(key), key).map(|entry| entry.key());
            assert_eq!(found, Some(&key[..]), "case {case}");
        }
        for key in &keys {
            assert!(delete(&mut table, key), "case {case}");
        }
        check_invariants(&table);
        assert!(table.is_empty() && table.bytes() < 1000);
    }
}

#[test]
fn encodings_follow_the_edits() {
    use crate::value::Encoding::{Embstr, Int, Raw};
    let mut table = StandaloneTable::new((5, 6), 0);
    let hash = table.hash(b"k");
    let encoding = |table: &StandaloneTable| table.find(hash, b"k").map(|entry| entry.encoding());
    assert!(!table.put(hash, b"k", NewValue::Bytes(b"short"), None, 0).replaced);
    assert_eq!(encoding(&table), Some(Embstr));
    table.find_mut(hash, b"k").expect("there").append(b"!");
    assert_eq!(encoding(&table), Some(Raw));
    table.find_mut(hash, b"k").expect("there").set_expire(Some(1));
    assert_eq!(encoding(&table), Some(Raw));
    let owned = table.take(hash, b"k").expect("there");
    assert!(!table.put_owned(hash, b"k", owned).replaced);
    assert_eq!(encoding(&table), Some(Raw), "the mark survives a rename");
    table.find_mut(hash, b"k").expect("there").set_int(10);
    assert_eq!(encoding(&table), Some(Int));
    assert_eq!(table.find_mut(hash, b"k").expect("there").append(b"0"), 3);
    assert_eq!(table.find(hash, b"k").map(|entry| bytes_of(entry.value())), Some(b"100".to_vec()));
    assert!(table.put(hash, b"k", NewValue::Bytes(b"fresh"), None, 0).replaced);
    assert_eq!(encoding(&table), Some(Embstr));
    table.find_mut(hash, b"k").expect("there").set_range(0, b"F");
    assert_eq!(encoding(&table), Some(Raw));
}

#[test]
fn a_rope_held_by_a_reader_keeps_its_content() {
    let mut table = StandaloneTable::new((5, 6), 0);
    let hash = table.hash(b"k");
    let large = vec![b'a'; 3 * crate::rope::EXTENT];
    assert!(!table.put(hash, b"k", NewValue::Bytes(&large), None, 0).replaced);
    let held = match table.find(hash, b"k").expect("there").value().as_string().expect("a string") {
        StringRef::Rope(rope) => rope.clone(),
        other => unreachable!("{other:?}"),
    };
    table.find_mut(hash, b"k").expect("there").set_range(5, b"b");
    assert_eq!(held.to_vec(), large);
    let put = table.put(hash, b"k", NewValue::Int(1), None, 0);
    assert!(matches!(put.old, Some(Large::Rope(old)) if old.to_vec()[5] == b'b'));
    check_invariants(&table);
}

#[test]
fn expiry_removes_what_is_due_and_opens_only_due_segments() {
    let mut table = StandaloneTable::new((1, 1), 4);
    for number in 0..20_000_i64 {
        let key = number.to_le_bytes();
        // A tenth expires, at ms 1000 to 1199; segments are opened for it, the rest expires never or late.
        let at_ms = [Some(1000 + number % 200), None, Some(1_000_000)]
            [if number % 10 == 0 { 0 } else { 1 + number as usize % 2 }];
        assert!(insert(&mut table, &key, at_ms));
    }
    let mut resume = 0;
    assert_eq!(
        table.expired_slice(1000, 10_000, &mut resume, &mut |_, _| unreachable!()),
        0,
        "still there at its very ms"
    );
    let (mut removed, mut calls, mut keys) = (0, 0, HashSet::new());
    loop {
        let hasher = table.context().hasher;
        removed += table.expired_slice(1100, 500, &mut resume, &mut |removed, hash| {
            let key = removed.key();
            assert_eq!(hash, hasher.hash(key));
            assert!(keys.insert(key.to_vec()));
        });
        calls += 1;
        if resume == 0 {
            break;
        }
    }
    assert_eq!((removed, keys.len()), (1000, 1000));
    assert!(calls > 10, "the work was cut into slices");
    check_invariants(&table);
    // The bound is exact after a pass: nothing is opened until the next key is due, and then only its segment.
    assert_eq!(table.deadline_ms(), 1100);
    let key = 1_000_001_i64.to_le_bytes();
    assert!(insert(&mut table, &key, Some(50)));
    let directory = table.directory().expect("keys");
    let mut removed = 0;
    let visited_at_most = directory.len() + 120;
    removed += table.expired_slice(60, visited_at_most, &mut resume, &mut |found, _| assert_eq!(found.key(), key));
    assert_eq!((removed, resume, table.deadline_ms()), (1, 0, 1100));
    while table.expired_slice(2_000_000, 100, &mut resume, &mut |_, _| {}) > 0 || resume != 0 {}
    assert_eq!((table.volatile_len(), table.deadline_ms()), (0, i64::MAX));
    check_invariants(&table);
}

#[test]
fn slices_of_expiry_agree_with_a_model_while_the_table_changes() {
    for (seed, keys) in (0..12).zip([20, 300, 3000, 20_000].into_iter().cycle()) {
        let mut table = StandaloneTable::new((seed, 1), 5);
        let mut model: HashMap<Vec<u8>, Option<i64>> = HashMap::new();
        let (mut random, mut resume) = (Random(seed), 0);
        for now_ms in 1..=60_i64 {
            let removals = if now_ms % 30 < 15 { 10 } else { 90 };
            for _ in 0..keys / 2 {
                let key = key_of(random.below(keys));
                if random.below(100) < removals {
                    assert_eq!(delete(&mut table, &key), model.remove(&key).is_some());
                } else {
                    let at_ms = (random.below(4) > 0).then(|| i64::try_from(random.below(100)).expect("small"));
                    assert_eq!(insert(&mut table, &key, at_ms), model.insert(key, at_ms).is_none());
                }
            }
            // Some slices, and now and then the pass to its end and one more.
            let passes = if now_ms % 5 == 0 { 2 } else { 0 };
            let (mut slices, mut ended) = (0, 0);
            while slices < 3 || ended < passes {
                let mut gone = Vec::new();
                let count = table.expired_slice(now_ms, 1 + random.below(300), &mut resume, &mut |key, _| {
                    gone.push(key.key().to_vec())
                });
                assert_eq!(count, gone.len());
                for key in gone {
                    assert!(model.remove(&key).flatten().is_some_and(|at_ms| at_ms < now_ms), "{key:?} was not due");
                }
                slices += 1;
                ended += usize::from(resume == 0);
            }
            if passes > 0 {
                let due = model.values().flatten().filter(|at_ms| **at_ms < now_ms).count();
                assert_eq!((due, table.len()), (0, model.len()), "seed {seed}, ms {now_ms}");
                assert!(table.deadline_ms() >= now_ms);
                check_invariants(&table);
            }
        }
    }
}

#[test]
fn a_foreign_resume_position_does_not_hide_due_keys() {
    let mut table = StandaloneTable::new((1, 1), 0);
    for number in 0..5000_i64 {
        let key = number.to_le_bytes();
        assert!(insert(&mut table, &key, Some(10)));
    }
    let mut half = scan::END / 2;
    while half != 0 {
        table.expired_slice(20, 300, &mut half, &mut |_, _| {});
    }
    assert!(table.len() > 1000 && table.deadline_ms() <= 10, "the skipped half is still known to be due");
    let mut resume = 0;
    while table.expired_slice(20, 1000, &mut resume, &mut |_, _| {}) > 0 || resume != 0 {}
    assert_eq!(table.len(), 0);
}

/// One position for all tables once stood for the passes of a thousand of them: whoever took over another's position skipped
/// what lies before it, and never learnt its table's next deadline.
#[test]
fn tables_that_are_expired_in_turn_each_keep_their_place() {
    let mut tables = [1, 2, 3].map(|seed| StandaloneTable::new((seed, 1), 0));
    for table in &mut tables {
        for number in 0..3000_i64 {
            assert!(insert(table, &number.to_le_bytes(), Some(if number % 2 == 0 { 10 } else { 5000 })));
        }
    }
    let mut open = [true; 3];
    for _ in 0..200 {
        for (table, open) in tables.iter_mut().zip(&mut open) {
            *open &= !table.expire_some(20, 64, &mut |_, _| {});
        }
    }
    assert_eq!(open, [false; 3], "a pass does not end");
    for table in &tables {
        assert_eq!((table.len(), table.deadline_ms()), (1500, 5000));
        check_invariants(table);
    }
}

#[test]
fn random_entries_are_spread_over_the_table() {
    assert!(filled(0).random(1).is_none());
    let table = filled(1000);
    let mut seen = HashMap::new();
    for seed in 0..50_000 {
        *seen.entry(table.random(seed).expect("keys").key().to_vec()).or_insert(0) += 1;
    }
    assert_eq!(seen.len(), 1000, "every key is reached");
    assert!(seen.values().all(|count| *count < 250), "none five times as often as the mean");
    let mut lonely = filled(3000);
    for number in 1..3000 {
        let key = key_of(number);
        assert!(delete(&mut lonely, &key));
    }
    assert!(lonely.random(7).is_some_and(|entry| entry.key() == key_of(0)));
}

#[test]
fn tables_cannot_be_exchanged() {
    let (mut a, mut b) = (filled(10), filled(20));
    let swapped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        std::mem::swap::<Table>(&mut a, &mut b);
        a.len()
    }));
    assert!(swapped.is_err());
    std::mem::swap::<Table>(&mut a, &mut b);
    assert_eq!((a.len(), b.len()), (10, 20));
}

#[test]
fn remains_are_freed_in_slices() {
    let mut table = filled(10_000);
    let mut remains = table.empty_out();
    assert_eq!((table.len(), table.bytes(), remains.len()), (0, 0, 10_000));
    let mut slices = 0;
    while !remains.free_slice(500) {
        slices += 1;
    }
    assert!((10..=20).contains(&slices), "{slices}");
    assert_eq!(remains.len(), 0);
    let key = key_of(1);
    assert!(insert(&mut table, &key, None), "the table is usable");
    check_invariants(&table);
}

#[test]
fn samples_are_of_the_kind_that_was_asked_for_and_reach_every_key() {
    for keys in [1, 7, 100, 5000] {
        let mut table = StandaloneTable::new((3, 4), 2);
        assert_eq!(table.sample(7, 5, false, &mut |_| unreachable!()), 0);
        for number in 0..keys {
            // One in 50 expires, and one at least.
            assert!(insert(&mut table, &key_of(number), (number % 50 == 0).then_some(1000)));
        }
        let mut random = Random(1);
        for volatile in [false, true] {
            let mut seen = HashSet::new();
            let fitting = if volatile { table.volatile_len() } else { keys };
            for _ in 0..40 * fitting {
                let mut sample = HashSet::new();
                let count = table.sample(random.word(), 5, volatile, &mut |entry| {
                    assert!(!volatile || entry.expire_at_ms().is_some());
                    assert!(sample.insert(entry.key().to_vec()), "one key twice in a sample");
                });
                assert_eq!(count, sample.len());
                assert_eq!(count, fitting.min(5), "{keys} keys, of which {fitting} fit");
                seen.extend(sample);
            }
            assert_eq!(seen.len(), fitting, "of {keys} keys some are never sampled (volatile: {volatile})");
        }
    }
}

/// Hashes whose fields expire, beside keys that do, while the table grows and shrinks: each pass removes exactly what is due.
#[test]
fn fields_of_hashes_expire_as_keys_do() {
    const LIMITS: Limits = Limits { entries: 512, value: 64 };
    let mut table = StandaloneTable::new((3, 1), 4);
    let mut model: HashMap<Vec<u8>, HashMap<Vec<u8>, Option<i64>>> = HashMap::new();
    let mut random = Random(5);
    for now_ms in 1..=80_i64 {
        for _ in 0..400 {
            // The first keys have enough fields for a tree.
            let key = key_of(random.below(300));
            let fields = if key == key_of(0) { 2000 } else { 6 };
            let name = key_of(random.below(fields));
            let expire_at_ms = (random.below(3) > 0).then(|| now_ms + i64::try_from(random.below(40)).expect("small"));
            let field = Field { name: &name, value: b"value", expire_at_ms };
            let hash = table.hash(&key);
            match table.find_mut(hash, &key) {
                Some(mut entry) => {
                    entry.edit(&mut Vec::new(), |fields: &mut Fields| fields.put(field, LIMITS)).expect("a hash");
                }
                None => {
                    let mut fields = Fields::empty_in(Vec::new());
                    fields.put(field, LIMITS);
                    assert!(!table.put_aggregate(hash, &key, Aggregate::Hash(fields), None, 0).replaced);
                }
            }
            model.entry(key).or_default().insert(name, expire_at_ms);
        }
        let mut resume = 0;
        while table.deadline_ms() < now_ms {
            table.expired_slice(now_ms, 50, &mut resume, &mut |expired, _| {
                let Expired::Fields { key, names, emptied } = expired else { panic!("no key has a deadline") };
                let fields = model.get_mut(&key).expect("a key of the model");
                for name in names {
                    assert!(fields.remove(&name).flatten().is_some_and(|at_ms| at_ms < now_ms));
                }
                assert_eq!(fields.is_empty(), emptied.is_some());
                if fields.is_empty() {
                    model.remove(&key);
                }
            });
        }
        assert!(model.values().flat_map(HashMap::values).flatten().all(|at_ms| *at_ms >= now_ms), "left at {now_ms}");
        assert_eq!(table.len(), model.len());
        let earliest_ms = model.values().flat_map(HashMap::values).flatten().min();
        assert!(earliest_ms.is_none_or(|at_ms| table.deadline_ms() <= *at_ms));
    }
    check_invariants(&table);
}
