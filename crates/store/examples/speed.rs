//! CPU time of lookups and replacements, on one thread and on two.
//!
//! `speed [ROUNDS]`: for a keyspace that fits the cache and one that does not, ns of CPU time per operation (median of rounds), with
//! and without prefetching in batches of 16; then how much two threads gain over one, against a control that reads at random from
//! plain memory without locks in the same rounds. CPU time rather than elapsed time: what else runs on the machine does not count,
//! waiting for lines and locks does.
//!
//! # Safety
//! The one block asks the kernel to fill in a structure of ours.

#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::sync::Barrier;

use gimmal_store::{Bucket, Keyspace, NewValue, Options, StringRef};

#[global_allocator]
static ALLOCATOR: gimmal_store::Allocator = gimmal_store::Allocator;

const BATCH: usize = 16;
const OPERATIONS: usize = 400_000;
const VALUE: [u8; 64] = [b'v'; 64];

fn main() {
    let rounds = std::env::args().nth(1).map_or(9, |text| text.parse().expect("a number"));
    hashing(rounds);
    for keys in [1000, 1_000_000] {
        let keyspace = filled(keys);
        println!("{keys} keys of 12+64 bytes, 1024 shards:");
        let row =
            |name: &str, run: &(dyn Fn(usize) -> f64 + Sync)| println!("  {name:<46}{:7.1} ns", median(rounds, run));
        row("find, hash given, shard locked once", &|seed| find_only(&keyspace, keys, seed));
        row("GET: hash, lock, find, read", &|seed| operate(&keyspace, 0, keys, seed, false, get));
        row("GET with prefetching", &|seed| operate(&keyspace, 0, keys, seed, true, get));
        row("SET of equal size", &|seed| operate(&keyspace, 0, keys, seed, false, set));
        row("SET with prefetching", &|seed| operate(&keyspace, 0, keys, seed, true, set));
        scaling(&keyspace, keys, rounds);
    }
}

/// Two threads against one, for commands and for the control, round by round.
fn scaling(keyspace: &Keyspace, keys: usize, rounds: usize) {
    let memory = vec![1_u64; (keys * 128 / 8).next_power_of_two()];
    let control = |_: usize, seed: usize| read_plain(&memory, seed);
    let get = |participant: usize, seed: usize| operate(keyspace, participant, keys, seed, true, get);
    let set = |participant: usize, seed: usize| operate(keyspace, participant, keys, seed, true, set);
    let (mut gets, mut sets, mut controls) = (Vec::new(), Vec::new(), Vec::new());
    // Once for warming up: the first control would read memory that was never touched.
    black_box([gain(0, &control), gain(0, &get)]);
    for round in 0..rounds {
        controls.push(gain(round, &control));
        gets.push(gain(round, &get));
        sets.push(gain(round, &set));
    }
    let ratio = |gains: &[f64]| middle(gains.iter().zip(&controls).map(|(gain, control)| gain / control).collect());
    println!(
        "  two threads gain: control {:.3}, GET {:.3} ({:.3} of the control), SET {:.3} ({:.3})",
        middle(controls.clone()),
        middle(gets.clone()),
        ratio(&gets),
        middle(sets.clone()),
        ratio(&sets)
    );
}

/// How many times the operations per CPU second of one thread two threads do together.
fn gain(round: usize, run: &(dyn Fn(usize, usize) -> f64 + Sync)) -> f64 {
    let alone = run(0, round);
    let barrier = Barrier::new(2);
    let together: Vec<f64> = std::thread::scope(|scope| {
        let barrier = &barrier;
        let spawn = |participant: usize| {
            scope.spawn(move || {
                barrier.wait();
                run(participant, round * 2 + participant)
            })
        };
        let threads = [spawn(0), spawn(1)];
        threads.into_iter().map(|thread| thread.join().expect("it ends")).collect()
    });
    together.iter().map(|ns| alone / ns).sum()
}

fn hashing(rounds: usize) {
    let keyspace = filled(1);
    let ns = median(rounds, &|seed| {
        let keys: Vec<[u8; 12]> = (0..256).map(|n| key_of(n + seed)).collect();
        per_operation(|| {
            for n in 0..OPERATIONS {
                black_box(keyspace.hash(black_box(&keys[n % 256])));
            }
        })
    });
    println!("hash of a 12-byte key: {ns:.1} ns");
}

fn filled(keys: usize) -> Keyspace {
    let keyspace = Keyspace::new(Options { shards: 1024, databases: 1, participants: 2, seed: (3, 4) });
    let batch = keyspace.gate().enter(0);
    for n in 0..keys {
        let hash = keyspace.hash(&key_of(n));
        let mut shard = keyspace.try_lock(&batch, keyspace.shard_of(hash)).expect("one thread");
        assert!(!shard.table(0).put(hash, &key_of(n), NewValue::Bytes(&VALUE), None, 0).replaced);
    }
    drop(batch);
    keyspace.collect(0);
    keyspace
}

fn find_only(keyspace: &Keyspace, keys: usize, seed: usize) -> f64 {
    let batch = keyspace.gate().enter(0);
    let mut random = seed as u64;
    // Keys of one shard, so that it stays locked throughout.
    let first = keyspace.shard_of(keyspace.hash(&key_of(0)));
    let of_shard = |n: &usize| keyspace.shard_of(keyspace.hash(&key_of(*n))) == first;
    let picked: Vec<_> = (0..keys).filter(of_shard).map(|n| (keyspace.hash(&key_of(n)), key_of(n))).collect();
    let mut shard = keyspace.try_lock(&batch, first).expect("one thread");
    let table = shard.table(0);
    per_operation(|| {
        for _ in 0..OPERATIONS {
            let (hash, key) = &picked[below(&mut random, picked.len())];
            black_box(table.find(*hash, key).expect("it is there"));
        }
    })
}

fn get(table: &mut gimmal_store::Table, hash: gimmal_store::Hash, key: &[u8]) {
    match table.find(hash, key).expect("it is there").value().as_string().expect("a string") {
        // A reply copies the value.
        StringRef::Bytes(bytes) => _ = black_box(<[u8; 64]>::try_from(bytes).expect("64 bytes")),
        other => unreachable!("{other:?}"),
    }
}

fn set(table: &mut gimmal_store::Table, hash: gimmal_store::Hash, key: &[u8]) {
    assert!(table.put(hash, key, NewValue::Bytes(&VALUE), None, 0).replaced);
}

/// Batches of commands on random keys, as a worker runs them.
fn operate(
    keyspace: &Keyspace,
    participant: usize,
    keys: usize,
    seed: usize,
    prefetching: bool,
    command: fn(&mut gimmal_store::Table, gimmal_store::Hash, &[u8]),
) -> f64 {
    let mut random = seed as u64;
    let mut done = 0;
    let started = cpu_time_ns();
    while done < OPERATIONS {
        let picked: [[u8; 12]; BATCH] = std::array::from_fn(|_| key_of(below(&mut random, keys)));
        let batch = keyspace.gate().enter(participant);
        let hashes = picked.map(|key| keyspace.hash(&key));
        if prefetching {
            let ahead = keyspace.ahead(&batch, 0).expect("the database is filled");
            hashes.iter().for_each(|hash| ahead.shard(*hash));
            let buckets = hashes.map(|hash| ahead.bucket(hash));
            buckets.iter().flatten().for_each(Bucket::prefetch_entry);
        }
        for (key, hash) in picked.iter().zip(hashes) {
            // As a worker does: no waiting for a lock whose holder may not be running. What was skipped does not count.
            if let Some(mut shard) = keyspace.try_lock(&batch, keyspace.shard_of(hash)) {
                command(shard.table(0), hash, key);
                done += 1;
            }
        }
    }
    (cpu_time_ns() - started) / done as f64
}

/// The control: as many random reads without any lock, in batches that the processor can overlap.
fn read_plain(memory: &[u64], seed: usize) -> f64 {
    let mut random = seed as u64;
    per_operation(|| {
        let mut sum = 0_u64;
        for _ in 0..OPERATIONS {
            sum = sum.wrapping_add(memory[below(&mut random, memory.len())]);
        }
        black_box(sum);
    })
}

/// Twelve bytes, quickly: what is measured is not the formatting.
fn key_of(n: usize) -> [u8; 12] {
    let mut key = *b"key:\0\0\0\0\0\0\0\0";
    key[4..].copy_from_slice(&n.to_le_bytes());
    key
}

/// SplitMix64, scaled down.
fn below(state: &mut u64, limit: usize) -> usize {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let word = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((u128::from(word) * limit as u128) >> 64) as usize
}

/// CPU time of this thread in ns per operation.
fn per_operation(run: impl FnOnce()) -> f64 {
    let started = cpu_time_ns();
    run();
    (cpu_time_ns() - started) / OPERATIONS as f64
}

fn cpu_time_ns() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one `timespec` to this address, nothing else.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0, "this clock always exists");
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn median(rounds: usize, run: &dyn Fn(usize) -> f64) -> f64 {
    middle((0..rounds).map(run).collect())
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
