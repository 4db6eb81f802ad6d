//! Memory per key, and the longest single operation while a keyspace is filled.
//!
//! `memory [KEYS] [KEY_BYTES] [VALUE_BYTES] [SHARDS]`: prints resident bytes per key beyond key and value, what the
//! counters say, and the slowest inserts by CPU time of the thread. With `OTHERS=1` also the memory after
//! another thread has overwritten all values. With `REFILL=1` also what is left
//! after everything was removed, and the slowest inserts when the keys are put again: these need little
//! memory from the kernel.
//!
//! # Safety
//! The one block asks the kernel to fill in a structure of ours.

#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

use gimmal_store::{Keyspace, NewValue, Options};

#[global_allocator]
static ALLOCATOR: gimmal_store::Allocator = gimmal_store::Allocator;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: usize| arguments.next().map_or(default, |text| text.parse().expect("a number"));
    let (keys, key_bytes, value_bytes, shards) = (number(2_000_000), number(16), number(32), number(1024));
    let keyspace = Keyspace::new(Options { shards, databases: 16, participants: 2, seed: (1, 2) });
    gimmal_store::Allocator::set_purge_delay_ms(10);
    let before = resident_bytes();
    println!("{keys} keys of {key_bytes}+{value_bytes} bytes in {shards} shards");
    fill(&keyspace, keys, key_bytes, value_bytes);
    let batch = keyspace.gate().enter(0);
    assert_eq!(keyspace.len(&batch, 0), keys);
    let per_key = |bytes: usize| (bytes as f64 - (keys * (key_bytes + value_bytes)) as f64) / keys as f64;
    println!("beyond key and value: {:.2} bytes per key resident", per_key(resident_bytes() - before));
    println!("                      {:.2} by the counters", per_key(keyspace.memory_bytes(&batch)));
    drop(batch);
    if std::env::var_os("OTHERS").is_some() {
        let filled = resident_bytes();
        // Values of other sizes, so that every entry is allocated anew, by a thread that allocated none of the old ones.
        for (round, shorter) in [8, 16, 0].into_iter().enumerate() {
            std::thread::scope(|scope| {
                _ = scope.spawn(|| overwrite(&keyspace, keys, key_bytes, value_bytes - shorter))
            });
            let at_once = resident_bytes() as f64 / filled as f64;
            settle();
            let settled = resident_bytes() as f64 / filled as f64;
            println!(
                "overwritten by another thread, round {round}: {at_once:.3} of the memory, {settled:.3} after 2 s"
            );
        }
    }
    if std::env::var_os("REFILL").is_some() {
        (0..keys).for_each(|n| remove(&keyspace, n, key_bytes));
        settle();
        let batch = keyspace.gate().enter(0);
        let counted = keyspace.memory_bytes(&batch);
        drop(batch);
        println!(
            "after removing all: {} bytes resident, {counted} by the counters",
            resident_bytes().saturating_sub(before)
        );
        fill(&keyspace, keys, key_bytes, value_bytes);
    }
}

/// Inserts all keys and prints which inserts took longest.
fn fill(keyspace: &Keyspace, keys: usize, key_bytes: usize, value_bytes: usize) {
    let value = vec![b'v'; value_bytes];
    let (mut longest, mut over) = (Vec::new(), 0_usize);
    let started = Instant::now();
    for n in 0..keys {
        let took = insert(keyspace, n, key_bytes, &value);
        over += usize::from(took > Duration::from_micros(100));
        longest.push(took);
        if longest.len() == 4096 {
            keep_longest(&mut longest);
        }
    }
    keep_longest(&mut longest);
    println!("filled in {:.2?}; longest inserts: {longest:.1?}; {over} over 100 µs", started.elapsed());
}

fn key_of(n: usize, bytes: usize) -> Vec<u8> {
    let mut key = format!("k{n:0>width$}", width = bytes - 1).into_bytes();
    key.truncate(bytes);
    key
}

/// Inserts as one batch of its own; returns how long it took.
fn insert(keyspace: &Keyspace, n: usize, key_bytes: usize, value: &[u8]) -> Duration {
    let key = key_of(n, key_bytes);
    let started = cpu_time();
    let batch = keyspace.gate().enter(0);
    let hash = keyspace.hash(&key);
    let mut shard = keyspace.try_lock(&batch, keyspace.shard_of(hash)).expect("nobody else");
    assert!(!shard.table(0).put(hash, &key, NewValue::Bytes(value), None, 0).replaced);
    drop(shard);
    drop(batch);
    let took = cpu_time() - started;
    if n.is_multiple_of(16) {
        keyspace.collect(0);
    }
    took
}

/// Replaces all values, in an order that has nothing to do with that of their insertion.
fn overwrite(keyspace: &Keyspace, keys: usize, key_bytes: usize, value_bytes: usize) {
    let value = vec![b'w'; value_bytes];
    let mut n = 0;
    for turn in 0..keys {
        // The step shares no factor with any number of keys below it: a prime.
        n = (n + 982_451_653) % keys;
        let key = key_of(n, key_bytes);
        let batch = keyspace.gate().enter(1);
        let hash = keyspace.hash(&key);
        let mut shard = keyspace.try_lock(&batch, keyspace.shard_of(hash)).expect("nobody else");
        assert!(shard.table(0).put(hash, &key, NewValue::Bytes(&value), None, 0).replaced);
        drop(shard);
        drop(batch);
        if turn.is_multiple_of(16) {
            keyspace.collect(1);
        }
    }
}

fn remove(keyspace: &Keyspace, n: usize, key_bytes: usize) {
    let key = key_of(n, key_bytes);
    let batch = keyspace.gate().enter(0);
    let hash = keyspace.hash(&key);
    let mut shard = keyspace.try_lock(&batch, keyspace.shard_of(hash)).expect("nobody else");
    assert!(shard.table(0).remove(hash, &key).is_some());
    drop(shard);
    drop(batch);
    if n.is_multiple_of(16) {
        keyspace.collect(0);
    }
}

/// CPU time of this thread: what others do on this core does not count.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one `timespec` to this address, nothing else.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0, "this clock always exists");
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.expect("not negative"), nanos.expect("below 10^9"))
}

/// Lets the allocator give memory back: it does so some time later, in the course of other calls.
fn settle() {
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(500));
        (0..10_000).for_each(|n| drop(vec![0_u8; 64 + n % 4096]));
    }
}

fn keep_longest(durations: &mut Vec<Duration>) {
    durations.sort_unstable_by(|a, b| b.cmp(a));
    durations.truncate(8);
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("the kernel reports VmRSS");
    line.split_whitespace().nth(1).expect("a number").parse::<usize>().expect("a number") * 1024
}
