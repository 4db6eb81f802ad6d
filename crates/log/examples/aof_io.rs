//! How long a record takes from its append to its release, and what it costs the machine, by who writes the log:
//! `cargo run --release -p gimmal-log --example aof_io [RECORDS]`, in a directory of the disk in question.

#![allow(clippy::print_stdout)]

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gimmal_log::aof::thread::Bell;
use gimmal_log::aof::{
    Completion, Directory, Fsync, Order, Progress, RealDisk, Recovery, RingSettings, Settings, Step, Timing, Writer,
    WriterThread,
};
use gimmal_log::{Appender, Log, Reader};

#[derive(Clone, Copy, Debug)]
enum Way {
    Inline,
    Thread,
    Ring(Order, Completion, bool),
}

fn main() -> io::Result<()> {
    let records: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(2000);
    println!("{records} records of 100 bytes, one after the other; microseconds: p50, p99; processor time per record");
    let ring = |order, completion, sqpoll| Way::Ring(order, completion, sqpoll);
    for way in [
        Way::Inline,
        Way::Thread,
        ring(Order::Flush, Completion::Event, false),
        ring(Order::Free, Completion::Event, false),
        ring(Order::Flush, Completion::Spin, false),
        ring(Order::Flush, Completion::Event, true),
    ] {
        for preallocate in [256 << 10, 0] {
            let settings = Settings { fsync: Fsync::Always, preallocate, timestamps: false };
            if preallocate == 0 || !matches!(way, Way::Ring(..)) {
                let (p50, p99, cpu) = measure(way, settings, records)?;
                println!("{:60} {p50:6} {p99:6} {cpu:6}", format!("{way:?}, {} KiB prepared", preallocate >> 10));
            }
        }
    }
    Ok(())
}

fn measure(way: Way, settings: Settings, records: usize) -> io::Result<(u128, u128, u128)> {
    let mut directory = Directory::open(Arc::new(RealDisk), Path::new("."), "aof_io.tmp", "aof")?;
    let increment = directory.start(&Recovery::new(&directory, true).finish())?;
    let log = Log::new(1, 1 << 24);
    let reader = log.activate(0);
    let progress = Arc::new(Progress::new(Box::new(|| {})));
    let mut writer = Writer::new(&log, 0, increment, settings, Timing::default(), progress);
    let appender = log.appender(0);
    let before = cpu_time();
    let mut times = match way {
        Way::Inline => inline(writer, reader, appender, records),
        Way::Thread => threaded(&log, writer, reader, appender, records)?,
        Way::Ring(order, completion, sqpoll) => {
            writer.use_ring(RingSettings { order, completion, sqpoll, ..RingSettings::default() })?;
            threaded(&log, writer, reader, appender, records)?
        }
    };
    let cpu = (cpu_time() - before).as_micros() / records as u128;
    std::fs::remove_dir_all(directory.path())?;
    times.sort();
    let at = |share: usize| times[(times.len() - 1) * share / 100].as_micros();
    Ok((at(50), at(99), cpu))
}

fn inline(mut writer: Writer, mut reader: Reader, mut appender: Appender, records: usize) -> Vec<Duration> {
    while writer.step(&mut reader) == Step::More {}
    let one = || {
        let started = Instant::now();
        let end = appender.append(&[b'r'; 100]);
        while writer.progress().durable_lsn() < end {
            writer.step(&mut reader);
        }
        started.elapsed()
    };
    std::iter::repeat_with(one).take(records).collect()
}

fn threaded(
    log: &Arc<Log>,
    writer: Writer,
    reader: Reader,
    mut appender: Appender,
    records: usize,
) -> io::Result<Vec<Duration>> {
    let worker = std::thread::current();
    log.set_waker(0, Box::new(move || worker.unpark()));
    let thread = WriterThread::start(writer, reader, Bell::of(log)).map_err(|(error, _)| error)?;
    let one = || {
        let started = Instant::now();
        let end = appender.append(&[b'r'; 100]);
        log.ring();
        while appender.await_release(end) {
            std::thread::park();
            appender.awake();
        }
        started.elapsed()
    };
    let times = std::iter::repeat_with(one).take(records).collect();
    drop(thread.stop());
    Ok(times)
}

/// Of all threads of this process, the kernel's workers for it included.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    // Fields 14 and 15 of proc(5), in ticks of 10 ms.
    let ticks: u64 = [11, 12].iter().filter_map(|at| fields.get(*at)?.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}
