//! The log's files written through a real ring, in all its ways. Says so where the kernel gives none.

#![cfg(not(loom))]

use std::sync::Arc;

use gimmal_log::aof::thread::Bell;
use gimmal_log::aof::{
    Completion, Directory, Fsync, Order, Progress, RealDisk, Recovery, RingSettings, Settings, Timing, Writer,
    WriterThread,
};
use gimmal_log::{Log, Record};

#[test]
fn what_a_ring_wrote_comes_back() {
    let path = std::env::temp_dir().join(format!("gimmal-ring-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a directory");
    for order in [Order::Flush, Order::Free] {
        for completion in [Completion::Event, Completion::Spin] {
            for sqpoll in [false, true] {
                for fsync in [Fsync::Always, Fsync::No] {
                    let ring = RingSettings { order, completion, sqpoll, depth: 8, workers: 1 };
                    let name = format!("{order:?}{completion:?}{sqpoll}{fsync:?}");
                    run(&path, &name, ring, Settings { fsync, ..Settings::default() });
                }
            }
        }
    }
    std::fs::remove_dir_all(path).expect("removed");
}

fn run(path: &std::path::Path, name: &str, ring: RingSettings, settings: Settings) {
    let open = || Directory::open(Arc::new(RealDisk), path, name, "appendonly.aof").expect("a directory");
    let mut directory = open();
    let increment = directory.start(&Recovery::new(&directory, true).finish()).expect("a file");
    let log = Log::new(1, 1 << 24);
    let reader = log.activate(0);
    let progress = Arc::new(Progress::new(Box::new(|| {})));
    let mut writer = Writer::new(&log, 0, increment, settings, Timing::default(), Arc::clone(&progress));
    if let Err(error) = writer.use_ring(ring) {
        eprintln!("not run: {name}: no ring: {error}");
        return;
    }
    let mut appender = log.appender(0);
    let thread = WriterThread::start(writer, reader, Bell::of(&log)).expect("a thread");
    let mut stream = Vec::new();
    for number in 0..300_usize {
        let mut record = Record::new();
        record.command(0, &["SET", "key", &"x".repeat(number * 131 % 9000)]).finish();
        stream.extend_from_slice(record.contiguous().expect("small"));
        let end = appender.append_record(&record);
        log.ring();
        while number % 10 == 0 && log.released() < end {
            std::thread::yield_now();
        }
        if number == 150 {
            let increment = directory.add_increment().expect("a file");
            thread.orders().rotate_at(log.end(), increment);
            thread.ring();
        }
    }
    drop(thread.stop());
    assert_eq!(progress.reason(), "", "{name}");
    assert_eq!((progress.written_lsn(), progress.durable_lsn()), (log.end(), log.end()), "{name}");
    let mut recovery = Recovery::new(&open(), true);
    let mut bytes = Vec::new();
    while let Some(piece) = recovery.next_piece().expect("whole") {
        bytes.extend_from_slice(piece.bytes);
    }
    assert!(bytes == stream, "{name}");
    let recovered = recovery.finish();
    assert!(recovered.clean && recovered.cut.is_none(), "{name}: {recovered:?}");
}
