//! The keyspace as its users see it: several threads, prefetching without locks, the gate, databases exchanged and taken out.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use gimmal_store::{Batch, Bucket, DetachedDatabase, Keyspace, NewValue, Options, Shard, StringRef};

fn keyspace(shards: usize, databases: usize, participants: usize) -> Keyspace {
    let keyspace = Keyspace::new(Options { shards, databases, participants, seed: (7, 8) });
    // Each enters once: the first time of a second one waits for the first to be outside, and here they share a thread.
    (0..participants).for_each(|participant| drop(keyspace.gate().enter(participant)));
    keyspace
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let word = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

fn lock<'k>(keyspace: &'k Keyspace, batch: &'k Batch<'_>, shard: u32) -> Shard<'k> {
    loop {
        match keyspace.try_lock(batch, shard) {
            Some(shard) => return shard,
            None => std::thread::yield_now(),
        }
    }
}

fn put(keyspace: &Keyspace, batch: &Batch<'_>, db: usize, key: &[u8], int: i64) -> bool {
    let hash = keyspace.hash(key);
    let mut shard = lock(keyspace, batch, keyspace.shard_of(hash));
    shard.table(db).put(hash, key, NewValue::Int(int), None, 0).replaced
}

fn find(keyspace: &Keyspace, batch: &Batch<'_>, db: usize, key: &[u8]) -> Option<i64> {
    let hash = keyspace.hash(key);
    let mut shard = lock(keyspace, batch, keyspace.shard_of(hash));
    shard.table(db).find(hash, key).map(|entry| match entry.value().as_string().expect("a string") {
        StringRef::Int(int) => int,
        other => unreachable!("{other:?}"),
    })
}

#[test]
fn a_shard_is_locked_once() {
    let keyspace = keyspace(4, 1, 2);
    let (one, two) = (keyspace.gate().enter(0), keyspace.gate().enter(1));
    let held = keyspace.try_lock(&one, 3).expect("free");
    assert_eq!(held.id(), 3);
    assert!(keyspace.try_lock(&one, 3).is_none() && keyspace.try_lock(&two, 3).is_none());
    assert!(keyspace.try_lock(&two, 2).is_some());
    drop(held);
    assert!(keyspace.try_lock(&two, 3).is_some());
}

#[test]
fn a_lent_shard_is_its_participants_once_at_a_time() {
    for participants in [1, 2] {
        let keyspace = keyspace(4, 1, participants);
        let one = keyspace.gate().enter(0);
        let lent = keyspace.try_lock(&one, 3).expect("free").lend();
        assert!(keyspace.is_lent(&one, 3) && !keyspace.is_lent(&one, 2));
        let borrowed = keyspace.try_lock(&one, 3).expect("lent to its own participant");
        assert!(keyspace.try_lock(&one, 3).is_none(), "borrowed twice at a time");
        assert!(!keyspace.is_lent(&one, 3));
        // Who borrowed may lend in turn.
        let again = borrowed.lend();
        drop(keyspace.try_lock(&one, 3).expect("lent again"));
        drop(again);
        assert!(keyspace.is_lent(&one, 3));
        if participants == 2 {
            let two = keyspace.gate().enter(1);
            assert!(keyspace.try_lock(&two, 3).is_none(), "another participant took what is lent");
            assert!(!keyspace.is_lent(&two, 3));
        }
        drop(lent);
        assert!(!keyspace.is_lent(&one, 3));
        drop(keyspace.try_lock(&one, 3).expect("free again"));
    }
}

#[test]
fn a_lent_shard_is_not_given_back_under_its_borrower() {
    let keyspace = keyspace(4, 1, 1);
    let one = keyspace.gate().enter(0);
    let lent = keyspace.try_lock(&one, 0).expect("free").lend();
    let borrowed = keyspace.try_lock(&one, 0).expect("lent");
    let given_back = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(lent)));
    assert!(given_back.is_err());
    drop(borrowed);
}

#[test]
fn a_batch_of_another_gate_is_refused() {
    let (mine, other) = (keyspace(1, 1, 1), keyspace(1, 1, 1));
    let batch = other.gate().enter(0);
    let locked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| mine.try_lock(&batch, 0).is_some()));
    assert!(locked.is_err());
}

#[test]
fn databases_are_exchanged_and_taken_out_whole() {
    let keyspace = keyspace(16, 4, 1);
    let batch = keyspace.gate().enter(0);
    for n in 0..5000_i64 {
        assert!(!put(&keyspace, &batch, 0, &n.to_le_bytes(), n));
    }
    assert!(!put(&keyspace, &batch, 1, b"one", 1));
    let exclusive = batch.try_close().expect("nobody else");
    keyspace.swap_databases(&batch, 0, 1);
    keyspace.swap_databases(&batch, 2, 2);
    drop(exclusive);
    assert_eq!((keyspace.len(&batch, 0), keyspace.len(&batch, 1), keyspace.len(&batch, 2)), (1, 5000, 0));
    assert_eq!(find(&keyspace, &batch, 1, &77_i64.to_le_bytes()), Some(77));
    let before = keyspace.memory_bytes(&batch);

    let exclusive = batch.try_close().expect("nobody else");
    let mut detached = keyspace.detach_database(&batch, 1);
    let mut empty = keyspace.detach_database(&batch, 3);
    drop(exclusive);
    assert!(empty.is_empty() && empty.free_slice(10));
    assert_eq!((detached.len(), keyspace.len(&batch, 1)), (5000, 0));
    assert!(keyspace.memory_bytes(&batch) < before / 50);
    assert_eq!(find(&keyspace, &batch, 1, &77_i64.to_le_bytes()), None);
    assert!(!put(&keyspace, &batch, 1, b"new", 2), "the database is usable at once");
    let mut slices = 0;
    while !detached.free_slice(300) {
        slices += 1;
        assert!(detached.len() >= 5000_usize.saturating_sub(slices * 450), "a slice freed far more than it should");
    }
    assert!(detached.is_empty() && slices >= 10, "{slices} slices");
}

#[test]
fn a_database_is_put_back_as_it_was() {
    let keyspace = keyspace(16, 2, 1);
    let batch = keyspace.gate().enter(0);
    for n in 0..5000_i64 {
        assert!(!put(&keyspace, &batch, 1, &n.to_le_bytes(), n));
    }
    let sums = || (keyspace.len(&batch, 1), keyspace.memory_bytes(&batch), keyspace.bytes().estimate(0));
    let before = sums();
    let exclusive = batch.try_close().expect("nobody else");
    let detached = keyspace.detach_database(&batch, 1);
    let nothing = keyspace.detach_database(&batch, 0);
    drop(exclusive);
    assert!(!put(&keyspace, &batch, 1, b"meanwhile", 1));
    let exclusive = batch.try_close().expect("nobody else");
    let meanwhile = keyspace.attach_database(&batch, 1, detached);
    let none = keyspace.attach_database(&batch, 0, nothing);
    drop(exclusive);
    assert_eq!((meanwhile.len(), none.len()), (1, 0));
    assert_eq!(sums(), before);
    assert_eq!((find(&keyspace, &batch, 1, b"meanwhile"), keyspace.len(&batch, 0)), (None, 0));
    assert!((0..5000_i64).all(|n| find(&keyspace, &batch, 1, &n.to_le_bytes()) == Some(n)));
    assert!(put(&keyspace, &batch, 1, &7_i64.to_le_bytes(), 8), "it is changed as any other");
    assert!(!put(&keyspace, &batch, 0, b"new", 1));
}

#[test]
fn a_detached_database_outlives_its_keyspace() {
    let detached: DetachedDatabase = {
        let keyspace = keyspace(4, 1, 1);
        let batch = keyspace.gate().enter(0);
        for n in 0..1000_i64 {
            assert!(!put(&keyspace, &batch, 0, &n.to_le_bytes(), n));
        }
        let _exclusive = batch.try_close().expect("nobody else");
        keyspace.detach_database(&batch, 0)
    };
    assert_eq!(detached.len(), 1000);
    assert!(std::thread::spawn(move || drop(detached)).join().is_ok(), "and may be freed by any thread");
}

#[test]
fn a_database_is_taken_behind_a_closed_gate_with_no_lock_held() {
    let keyspace = keyspace(4, 2, 1);
    let batch = keyspace.gate().enter(0);
    let take = || drop(keyspace.detach_database(&batch, 0));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(take)).is_err(), "the gate is open");
    let exclusive = batch.try_close().expect("nobody else");
    let shard = keyspace.try_lock(&batch, 1).expect("free");
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(take)).is_err(), "a shard is locked");
    drop(shard);
    drop(keyspace.detach_database(&batch, 0));
    drop(exclusive);
}

#[test]
fn replaced_segments_are_freed_once_nobody_reads_them() {
    let keyspace = keyspace(1, 1, 2);
    let reader = keyspace.gate().enter(1);
    let batch = keyspace.gate().enter(0);
    for n in 0..1000_i64 {
        assert!(!put(&keyspace, &batch, 0, &n.to_le_bytes(), n));
    }
    drop(batch);
    keyspace.collect(0);
    assert!(keyspace.retired() > 10, "the reader may still be looking at them");
    drop(reader);
    keyspace.collect(0);
    assert_eq!(keyspace.retired(), 0);
}

/// Keys, each with the version that its last writer noted under the shard's lock; 0: it should not be there.
struct Ledger(Vec<AtomicU64>);

fn worker(keyspace: &Keyspace, ledger: &Ledger, participant: usize, batches: usize) {
    let mut random = participant as u64;
    for round in 0..batches {
        let batch = keyspace.gate().enter(participant);
        // Phases of growth and of decay, so that segments split and merge under the prefetching of the others.
        let removals = if round / 200 % 2 == 0 { 20 } else { 80 };
        let picks: Vec<usize> = (0..24).map(|_| next(&mut random) as usize % ledger.0.len()).collect();
        let hashes: Vec<_> = picks.iter().map(|n| keyspace.hash(&n.to_le_bytes())).collect();
        if let Some(ahead) = keyspace.ahead(&batch, 0) {
            hashes.iter().for_each(|hash| ahead.shard(*hash));
            let buckets: Vec<_> = hashes.iter().map(|hash| ahead.bucket(*hash)).collect();
            buckets.iter().flatten().for_each(Bucket::prefetch_entry);
        }
        for (n, hash) in picks.iter().zip(hashes) {
            if keyspace.gate().is_closing() {
                break;
            }
            let Some(mut shard) = keyspace.try_lock(&batch, keyspace.shard_of(hash)) else {
                continue;
            };
            let (key, noted) = (n.to_le_bytes(), &ledger.0[*n]);
            let table = shard.table(0);
            let found = table.find(hash, &key).and_then(|entry| entry.value().as_string());
            match found {
                Some(StringRef::Int(version)) => {
                    assert_eq!(version.cast_unsigned(), noted.load(Relaxed))
                }
                Some(other) => unreachable!("{other:?}"),
                None => assert_eq!(noted.load(Relaxed), 0),
            }
            if next(&mut random) % 100 < removals {
                assert_eq!(table.remove(hash, &key).is_some(), noted.swap(0, Relaxed) != 0);
            } else {
                let version = next(&mut random) | 1;
                let put = table.put(hash, &key, NewValue::Int(version.cast_signed()), None, 0);
                assert_eq!(put.replaced, noted.swap(version, Relaxed) != 0);
            }
        }
        drop(batch);
        keyspace.collect(participant);
    }
}

/// Closes the gate now and then; alone inside, it takes databases apart and puts them together again.
fn closer(keyspace: &Keyspace, ledger: &Ledger, participant: usize, stop: &AtomicBool) -> usize {
    let mut closed = 0;
    while !stop.load(Relaxed) {
        let batch = keyspace.gate().enter(participant);
        if let Some(_exclusive) = batch.try_close() {
            keyspace.swap_databases(&batch, 0, 1);
            assert!(keyspace.is_empty(&batch, 0), "the workers only use database 0");
            keyspace.swap_databases(&batch, 1, 0);
            let present = ledger.0.iter().filter(|noted| noted.load(Relaxed) != 0).count();
            assert_eq!(keyspace.len(&batch, 0), present, "nobody is in the middle of a change");
            if closed % 8 == 7 {
                drop(keyspace.detach_database(&batch, 0));
                ledger.0.iter().for_each(|noted| noted.store(0, Relaxed));
            }
            closed += 1;
        }
        drop(batch);
        keyspace.collect(participant);
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    closed
}

fn stress(threads: usize, shards: usize, keys: usize, batches: usize) {
    let keyspace = keyspace(shards, 2, threads + 1);
    let ledger = Ledger((0..keys).map(|_| AtomicU64::new(0)).collect());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| closer(&keyspace, &ledger, threads, &stop));
        let (keyspace, ledger) = (&keyspace, &ledger);
        let workers: Vec<_> = (0..threads)
            .map(|participant| scope.spawn(move || worker(keyspace, ledger, participant, batches)))
            .collect();
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        stop.store(true, Relaxed);
        assert!(closing.join().expect("the closer ends") > 0);
        assert!(ended.iter().all(Result::is_ok));
    });
    (0..=threads).for_each(|participant| keyspace.collect(participant));
    assert_eq!(keyspace.retired(), 0, "all are outside: nothing may be left");
    let batch = keyspace.gate().enter(0);
    for (n, noted) in ledger.0.iter().enumerate() {
        let version = noted.load(Relaxed);
        let found = find(&keyspace, &batch, 0, &n.to_le_bytes());
        assert_eq!(found, (version != 0).then(|| version.cast_signed()));
    }
}

#[test]
fn threads_share_one_shard() {
    stress(2, 1, 3000, 4000);
}

#[test]
fn threads_share_many_shards() {
    stress(4, 64, 20_000, 4000);
}

#[test]
fn more_threads_than_cores() {
    stress(8, 8, 5000, 1500);
}

#[test]
fn sums_of_bytes_and_volatile_keys_agree_with_the_tables() {
    const THREADS: usize = 3;
    let keyspace = keyspace(64, 3, THREADS);
    let check = |when: &str| {
        let batch = keyspace.gate().enter(0);
        let volatile: usize = (0..3).map(|db| keyspace.volatile_len(&batch, db)).sum();
        assert_eq!(keyspace.bytes().total(), keyspace.memory_bytes(&batch), "bytes {when}");
        assert_eq!(keyspace.volatile().total(), volatile, "keys that expire {when}");
    };
    std::thread::scope(|scope| {
        for participant in 0..THREADS {
            let keyspace = &keyspace;
            scope.spawn(move || {
                let mut state = participant as u64;
                for round in 0..20_000 {
                    let batch = keyspace.gate().enter(participant);
                    let word = next(&mut state);
                    let key = format!("key:{}", word % 3000);
                    let hash = keyspace.hash(key.as_bytes());
                    let mut shard = lock(keyspace, &batch, keyspace.shard_of(hash));
                    let table = shard.table((word >> 32) as usize % 3);
                    let expire_at_ms = (word >> 40).is_multiple_of(3).then_some(round);
                    match (word >> 50) % 4 {
                        0 => drop(table.remove(hash, key.as_bytes())),
                        1 => drop(table.set_expire(hash, key.as_bytes(), expire_at_ms)),
                        _ => {
                            let value = vec![b'x'; (word >> 52) as usize % 300 * 20];
                            drop(table.put(hash, key.as_bytes(), NewValue::Bytes(&value), expire_at_ms, 0));
                        }
                    }
                }
            });
        }
    });
    check("after changes by several threads");
    let batch = keyspace.gate().enter(1);
    let closed = batch.try_close().expect("nobody else closes it");
    drop(keyspace.detach_database(&batch, 1));
    drop(closed);
    drop(batch);
    check("after a database was taken out");
}

/// When the last key was freed in the middle of a slice while more tables were to come, what was left of the slice was computed
/// below zero: the thread that frees flushed databases ended, and the server with it.
#[test]
fn a_slice_that_frees_the_last_key_goes_on_to_empty_tables() {
    for keys in [1, 60, 70, 120] {
        let keyspace = keyspace(4, 1, 1);
        let batch = keyspace.gate().enter(0);
        let first = |number: &i64| keyspace.shard_of(keyspace.hash(&number.to_le_bytes())) == 0;
        let names: Vec<i64> = (0..).filter(first).take(keys).collect();
        names.iter().for_each(|number| _ = put(&keyspace, &batch, 0, &number.to_le_bytes(), *number));
        let exclusive = batch.try_close().expect("nobody else");
        let mut detached = keyspace.detach_database(&batch, 0);
        drop(exclusive);
        while !detached.free_slice(64) {}
        assert_eq!(detached.len(), 0, "{keys} keys");
    }
}
