//! What an append costs, in nanoseconds: `cargo run --release -p gimmal-log --example log_bench`.
//! A reader keeps up, as the log's writer would, but throws the bytes away.

#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use gimmal_log::{Log, Reader};

fn main() {
    for len in [60, 200, 1000, 4000] {
        println!("append of {len:4} bytes, one thread, consumed in between: {:7.1} ns", alone(len));
    }
    for workers in [1, 2, 4] {
        println!(
            "append of   60 bytes, {workers} threads and a reader: {:7.1} ns per append and thread",
            together(workers)
        );
    }
}

const APPENDS: usize = 2_000_000;

fn alone(len: usize) -> f64 {
    let log = Log::new(1, 1 << 30);
    let mut reader = log.activate(0);
    let mut appender = log.appender(0);
    let record = vec![b'r'; len];
    let mut best = f64::INFINITY;
    for _ in 0..20 {
        let started = Instant::now();
        for _ in 0..APPENDS / 20 {
            if appender.append(&record) - reader.position() > 64 * 1024 {
                drain(&mut reader);
            }
        }
        best = best.min(started.elapsed().as_nanos() as f64 / (APPENDS / 20) as f64);
    }
    best
}

fn together(workers: usize) -> f64 {
    let log = Log::new(workers, 16 << 20);
    let mut reader = log.activate(0);
    let done = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&done);
    let draining = std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            drain(&mut reader);
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    });
    let started = Instant::now();
    let threads: Vec<_> = (0..workers)
        .map(|worker| {
            let mut appender = log.appender(worker);
            std::thread::spawn(move || {
                for _ in 0..APPENDS {
                    while !appender.log().has_room() {
                        std::thread::yield_now();
                    }
                    appender.append(&[b'r'; 60]);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("an appender does not panic");
    }
    let elapsed = started.elapsed();
    done.store(true, Ordering::Relaxed);
    draining.join().expect("the reader does not panic");
    elapsed.as_nanos() as f64 / APPENDS as f64
}

fn drain(reader: &mut Reader) {
    let readable = reader.readable();
    let bytes: usize = reader.chunks(reader.position()..readable).map(|chunk| chunk.bytes().len()).sum();
    std::hint::black_box(bytes);
    reader.consumed(readable);
}
