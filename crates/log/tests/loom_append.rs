//! Models of reservation, publication and recycling: in every interleaving, and every outcome that the memory model
//! allows, the reader sees whole records only, each byte after it was written, and no block is reused too early. Blocks
//! are 8 bytes and the ring has 2 slots here, so that two records cross a block and four wrap the ring; loom checks an
//! access to each byte. `RUSTFLAGS="--cfg loom" cargo test -p gimmal-log --release --test loom_append`

#![cfg(loom)]

use std::sync::Arc;

use gimmal_log::{Log, Reader};

/// Bounds the interleavings to those with at most so many preemptions; most bugs need two.
fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// A record of worker `w`, number `n`, of `len` bytes: its length, then the same byte.
fn record(w: u8, n: u8, len: u8) -> Vec<u8> {
    let mut bytes = vec![w << 4 | n; usize::from(len)];
    bytes[0] = len;
    bytes
}

/// Reads what is readable, checks that it is whole records, and notes them.
fn read(reader: &mut Reader, seen: &mut Vec<(u8, u8, u8)>) {
    let readable = reader.readable();
    let bytes: Vec<u8> = reader.chunks(reader.position()..readable).flat_map(|chunk| chunk.bytes().to_vec()).collect();
    let mut rest = &bytes[..];
    while let [len, tag, ..] = *rest {
        assert_eq!(rest[..usize::from(len)], record(tag >> 4, tag & 15, len), "a whole record");
        seen.push((tag >> 4, tag & 15, len));
        rest = &rest[usize::from(len)..];
    }
    assert!(rest.is_empty());
    reader.consumed(readable);
}

fn appends(log: &Arc<Log>, worker: u8, lens: &'static [u8]) -> loom::thread::JoinHandle<()> {
    let mut appender = log.appender(usize::from(worker));
    loom::thread::spawn(move || {
        for (n, len) in (0..).zip(lens) {
            appender.append(&record(worker, n, *len));
        }
    })
}

fn two_workers(first: &'static [u8], second: &'static [u8], reads: usize, preemptions: usize) {
    check(preemptions, move || {
        let log = Log::new(2, 100);
        let mut reader = log.activate(0);
        let mut seen = Vec::new();
        let workers = [appends(&log, 0, first), appends(&log, 1, second)];
        for _ in 0..reads {
            read(&mut reader, &mut seen);
        }
        for worker in workers {
            worker.join().unwrap();
        }
        read(&mut reader, &mut seen);
        assert_eq!(reader.position(), log.end());
        for (worker, lens) in [(0, first), (1, second)] {
            let of_worker: Vec<_> = seen.iter().filter(|record| record.0 == worker).copied().collect();
            let expected: Vec<_> = (0..).zip(lens).map(|(n, len)| (worker, n, *len)).collect();
            assert_eq!(of_worker, expected, "in the worker's order");
        }
    });
}

#[test]
fn a_reader_sees_filled_bytes_only() {
    two_workers(&[3, 2], &[4], 1, 3);
}

#[test]
fn records_that_cross_a_block() {
    two_workers(&[6, 5], &[5], 1, 2);
}

/// Three records of six bytes wrap a ring of sixteen while the reader gives blocks back, and one finds it too short.
#[test]
fn blocks_are_reused_after_they_are_consumed() {
    two_workers(&[6, 6], &[6], 2, 2);
}

#[test]
fn large_records_go_beside_the_blocks() {
    two_workers(&[9, 2], &[12], 1, 3);
}
