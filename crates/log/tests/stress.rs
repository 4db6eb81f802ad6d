//! Many appenders and a reader at full speed: the stream has every record once, whole, in each worker's order, and the
//! positions that append returned are where the records ended.

#![cfg(not(loom))]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gimmal_log::{LARGE_RECORD, Log, Lsn, Part};

const WORKERS: usize = 8;
const RECORDS: u32 = 60_000;
const HEAD: usize = 16;
/// A wake that takes longer than this does not come.
const LOST: Duration = Duration::from_secs(60);

/// A record: its length, worker and number, then bytes that follow from these.
fn record(worker: u32, number: u32, out: &mut Vec<u8>) {
    out.clear();
    let mixed = worker.wrapping_mul(0x9e37_79b9) ^ number.wrapping_mul(0x85eb_ca6b);
    let body = match mixed % 1000 {
        0 => LARGE_RECORD + usize::try_from(mixed >> 17).expect("small"),
        1..50 => usize::try_from(mixed >> 20).expect("small"),
        _ => usize::try_from(mixed >> 26).expect("small"),
    };
    for word in [u32::try_from(HEAD + body).expect("small"), worker, number, mixed] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.resize(HEAD + body, mixed.to_le_bytes()[2]);
}

#[test]
fn eight_appenders_one_reader() {
    let log = Log::new(WORKERS, 8 * 1024 * 1024);
    let mut reader = log.activate(0);
    let wakes = Arc::new(AtomicUsize::new(0));
    let running = Arc::new(AtomicBool::new(true));
    let reader_thread = std::thread::current();
    let counted = Arc::clone(&wakes);
    log.set_reader_waker(Box::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        reader_thread.unpark();
    }));
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let mut appender = log.appender(worker);
            std::thread::spawn(move || {
                let worker = u32::try_from(worker).expect("small");
                let (mut bytes, mut ends) = (Vec::new(), Vec::new());
                for number in 0..RECORDS {
                    while !appender.log().has_room() {
                        appender.log().ring();
                        std::thread::yield_now();
                    }
                    record(worker, number, &mut bytes);
                    let end = if number % 3 == 0 {
                        let (head, body) = bytes.split_at(HEAD);
                        let shared = Arc::new([b"x", body].concat());
                        appender.append_parts(&[Part::Bytes(head), Part::Shared(Arc::clone(&shared), 1..shared.len())])
                    } else {
                        appender.append(&bytes)
                    };
                    ends.push(end);
                    if number % 64 == 63 {
                        appender.log().ring();
                    }
                }
                appender.log().ring();
                ends
            })
        })
        .collect();
    let watcher = {
        let (log, running) = (Arc::clone(&log), Arc::clone(&running));
        std::thread::spawn(move || {
            // The overshoot is what was in flight: one record per worker.
            let mut highest = 0;
            while running.load(Ordering::Relaxed) {
                highest = highest.max(log.pending());
                std::thread::yield_now();
            }
            highest
        })
    };
    let mut seen: HashMap<(u32, u32), Lsn> = HashMap::new();
    let mut next = [0; WORKERS];
    let mut expected = Vec::new();
    while seen.len() < WORKERS * usize::try_from(RECORDS).expect("small") {
        let readable = reader.readable();
        if readable == reader.position() {
            if reader.may_sleep(readable) {
                // It may come for nothing: a worker rang while the reader changed its mind. It must come.
                let asleep = Instant::now();
                std::thread::park_timeout(LOST);
                assert!(asleep.elapsed() < LOST, "a wake was lost");
            }
            continue;
        }
        let mut at = reader.position();
        let bytes: Vec<u8> = reader.chunks(at..readable).flat_map(|chunk| chunk.bytes().to_vec()).collect();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let word = |n: usize| u32::from_le_bytes(rest[4 * n..][..4].try_into().expect("four bytes"));
            let (len, worker, number) = (usize::try_from(word(0)).expect("small"), word(1), word(2));
            record(worker, number, &mut expected);
            assert!(rest[..len] == expected, "record {number} of worker {worker} at {at}");
            let turn = &mut next[usize::try_from(worker).expect("small")];
            assert_eq!(number, *turn, "order of worker {worker}");
            *turn += 1;
            at += Lsn::from(word(0));
            seen.insert((worker, number), at);
            rest = &rest[len..];
        }
        assert_eq!(at, readable);
        reader.consumed(readable);
    }
    running.store(false, Ordering::Relaxed);
    for (worker, thread) in workers.into_iter().enumerate() {
        for (number, end) in thread.join().expect("no panic").into_iter().enumerate() {
            let key = (u32::try_from(worker).expect("small"), u32::try_from(number).expect("small"));
            assert_eq!(seen[&key], end);
        }
    }
    assert_eq!(reader.readable(), log.end());
    let overshoot = watcher.join().expect("no panic");
    assert!(overshoot < 8 * 1024 * 1024 + 9 * 64 * 1024, "{overshoot}");
}

/// Workers sleep on the watermark as hard as they can; a lost wake leaves one asleep.
#[test]
fn eight_sleepers_one_releaser() {
    const STEPS: u64 = 20_000;
    let log = Log::new(WORKERS, 1000);
    let _reader = log.activate(0);
    let slept = Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let (log, slept) = (Arc::clone(&log), Arc::clone(&slept));
            let (tell, told) = std::sync::mpsc::channel();
            log.set_waker(worker, Box::new(move || tell.send(()).expect("the worker waits")));
            let mut appender = log.appender(worker);
            std::thread::spawn(move || {
                let mut wanted = 1;
                while wanted <= STEPS {
                    if appender.await_release(wanted) {
                        slept.fetch_add(1, Ordering::Relaxed);
                        told.recv_timeout(std::time::Duration::from_secs(20)).expect("a wake was lost");
                        appender.awake();
                    }
                    let released = log.released();
                    // A wake of an earlier announcement may come late; then the worker just waits again.
                    wanted = if released >= wanted {
                        released + 1 + u64::try_from(worker).expect("small") % 3
                    } else {
                        wanted
                    };
                }
            })
        })
        .collect();
    for step in 1..=STEPS + 4 {
        log.release(step);
        // Now and then the workers get the time to fall asleep.
        if step % 50 == 0 {
            let before = slept.load(Ordering::Relaxed);
            let begun = Instant::now();
            while slept.load(Ordering::Relaxed) == before && begun.elapsed() < Duration::from_millis(1) {
                std::thread::yield_now();
            }
        }
    }
    for worker in workers {
        worker.join().expect("no wake was lost");
    }
    assert!(slept.load(Ordering::Relaxed) > 0);
}
