//! The log as its users see it: positions, bytes, memory, room.

#![cfg(not(loom))]

use std::sync::Arc;

use gimmal_log::{Appender, Chunk, LARGE_RECORD, Log, Lsn, Part, Reader, Record};

const MIB: usize = 1024 * 1024;

fn all(reader: &mut Reader) -> Vec<u8> {
    let end = reader.readable();
    let bytes = reader.chunks(reader.position()..end).flat_map(|chunk| chunk.bytes().to_vec()).collect();
    reader.consumed(end);
    bytes
}

fn active() -> (Arc<Log>, Reader, Appender) {
    let log = Log::new(2, 64 * MIB);
    let reader = log.activate(0);
    let appender = log.appender(0);
    (log, reader, appender)
}

#[test]
fn a_position_is_the_number_of_bytes_before_it() {
    let (log, mut reader, mut appender) = active();
    assert_eq!(appender.append(b"abc"), 3);
    assert_eq!(appender.append(b""), 3);
    assert_eq!(
        appender.append_parts(&[Part::Bytes(b"de"), Part::Bytes(b""), Part::Shared(Arc::new(b"xfgx".to_vec()), 1..3)]),
        7
    );
    let mut record = Record::new();
    record.command(0, &["PING"]).finish();
    assert_eq!(appender.append_record(&record), 21);
    assert_eq!(log.end(), 21);
    assert_eq!(log.pending(), 21);
    assert_eq!(all(&mut reader), b"abcdefg*1\r\n$4\r\nPING\r\n");
    assert_eq!(log.pending(), 0);
}

#[test]
fn an_inactive_log_takes_nothing() {
    let log = Log::new(1, 1000);
    let mut appender = log.appender(0);
    assert!(!log.is_active());
    assert_eq!(appender.append(b"abc"), 0);
    let mut reader = log.activate(100);
    assert!(log.is_active());
    assert_eq!((reader.position(), log.end(), log.released()), (100, 100, 100));
    assert_eq!(appender.append(b"abc"), 103);
    assert_eq!(all(&mut reader), b"abc");
    assert_eq!(appender.append(b"lost"), 107);
    log.deactivate(reader);
    assert_eq!(appender.append(b"abc"), 107);
    let mut reader = log.activate(0);
    assert_eq!(reader.position(), 107);
    assert_eq!(appender.append(b"def"), 110);
    assert_eq!(all(&mut reader), b"def");
    log.deactivate(reader);
    let far = 10_000 * MIB as Lsn + 5;
    let mut reader = log.activate(far);
    assert_eq!(appender.append(b"ghi"), far + 3);
    assert_eq!(all(&mut reader), b"ghi");
}

#[test]
#[should_panic(expected = "one reader")]
fn a_second_reader_is_refused() {
    let log = Log::new(1, 1000);
    let _first = log.activate(0);
    let _second = log.activate(0);
}

#[test]
#[should_panic(expected = "one appender per worker")]
fn a_second_appender_of_a_worker_is_refused() {
    let log = Log::new(1, 1000);
    drop(log.appender(0));
    let _first = log.appender(0);
    let _second = log.appender(0);
}

#[test]
#[should_panic(expected = "only what is readable")]
fn what_is_not_readable_cannot_be_consumed() {
    let (_log, mut reader, mut appender) = active();
    appender.append(b"abc");
    reader.consumed(3);
}

#[test]
fn records_cross_blocks_and_blocks_are_reused() {
    let (_log, mut reader, mut appender) = active();
    let mut expected = Vec::new();
    for n in 0..5000u32 {
        let record = n.to_le_bytes().repeat(1 + usize::try_from(n).expect("small") % 2000);
        appender.append(&record);
        expected.extend_from_slice(&record);
        if n % 700 == 0 {
            assert!(all(&mut reader) == expected);
            expected.clear();
        }
    }
    assert!(all(&mut reader) == expected);
}

#[test]
fn a_large_record_is_referenced() {
    let (log, mut reader, mut appender) = active();
    let value = Arc::new((0..3 * MIB).map(|n| n.to_le_bytes()[0]).collect::<Vec<u8>>());
    appender.append(b"before");
    let mut record = Record::new();
    record.begin_command(0, 3).arg(b"SET").arg(b"k").shared_arg(&value, 10..value.len()).finish();
    let end = appender.append_record(&record);
    appender.append(b"after");
    assert!(Arc::strong_count(&value) >= 2);
    drop(record);
    assert_eq!(Arc::strong_count(&value), 2, "the log holds the value itself");
    let readable = reader.readable();
    assert_eq!(readable, end + 5);
    let chunks: Vec<Chunk<'_>> = reader.chunks(0..readable).collect();
    assert!(
        chunks.iter().any(
            |chunk| matches!(chunk, Chunk::Shared(bytes, range) if Arc::ptr_eq(bytes, &value) && range.start == 10)
        )
    );
    let bytes: Vec<u8> = chunks.iter().flat_map(|chunk| chunk.bytes().to_vec()).collect();
    let head = format!("before*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", value.len() - 10);
    assert!(bytes == [head.as_bytes(), &value[10..], b"\r\nafter"].concat());
    // Partly read: the cut may be anywhere, and the value is kept until its last byte is consumed.
    for at in [3, 6, 40, 100_000, end - 3, end - 2] {
        let rest: Vec<u8> = reader.chunks(at..readable).flat_map(|chunk| chunk.bytes().to_vec()).collect();
        assert!(rest == bytes[usize::try_from(at).expect("small")..]);
        drop(rest);
        reader.consumed(at);
        assert_eq!(log.pending(), readable - at);
        assert_eq!(Arc::strong_count(&value), if at < end - 2 { 2 } else { 1 });
    }
}

#[test]
fn a_large_record_in_one_piece_or_many_is_the_same() {
    let (_log, mut reader, mut appender) = active();
    let bytes: Vec<u8> = (0..LARGE_RECORD + 100).map(|n| n.to_le_bytes()[1]).collect();
    appender.append(&bytes);
    assert!(all(&mut reader) == bytes);
    let parts: Vec<Part<'_>> = bytes.chunks(1000).map(Part::Bytes).collect();
    appender.append_parts(&parts);
    assert!(all(&mut reader) == bytes);
    let shared = Arc::new(bytes.clone());
    let parts: Vec<Part<'_>> = (0..bytes.len())
        .step_by(700)
        .map(|at| Part::Shared(Arc::clone(&shared), at..bytes.len().min(at + 700)))
        .collect();
    appender.append_parts(&parts);
    assert!(all(&mut reader) == bytes);
}

/// The ring of blocks is 4 GiB long. Referenced records are not: with a reader that stands still, positions may lie further
/// apart, and two blocks want the same slot.
#[test]
fn a_ring_that_is_too_short_costs_memory_not_correctness() {
    let (_log, mut reader, mut appender) = active();
    let value = Arc::new(vec![7u8; 512 * MIB]);
    let mut ends = vec![appender.append(b"first record")];
    for n in 0..9 {
        ends.push(appender.append_parts(&[Part::Shared(Arc::clone(&value), 0..value.len())]));
        ends.push(appender.append(format!("small record {n}").as_bytes()));
    }
    let readable = reader.readable();
    assert_eq!(Some(&readable), ends.last());
    for n in 0..9usize {
        let text: Vec<u8> =
            reader.chunks(ends[2 * n + 1]..ends[2 * n + 2]).flat_map(|chunk| chunk.bytes().to_vec()).collect();
        assert_eq!(text, format!("small record {n}").into_bytes());
    }
    reader.consumed(readable);
    assert_eq!(Arc::strong_count(&value), 1);
    appender.append(b"as usual");
    assert_eq!(all(&mut reader), b"as usual");
}

#[test]
fn room_is_what_was_not_consumed() {
    let log = Log::new(1, 100);
    let mut reader = log.activate(0);
    let mut appender = log.appender(0);
    assert!(log.has_room());
    appender.append(&[0; 99]);
    assert!(log.has_room());
    appender.append(&[0; 50]);
    assert!(!log.has_room(), "149 bytes are more than 100");
    assert_eq!(log.room_after(), 99);
    reader.readable();
    reader.consumed(99);
    assert!(log.has_room());
}

#[test]
fn a_reader_sleeps_only_when_all_is_read() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let (log, mut reader, mut appender) = active();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    log.set_reader_waker(Box::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    appender.append(b"abc");
    log.ring();
    assert_eq!(calls.load(Ordering::Relaxed), 0, "nobody slept");
    assert!(!reader.may_sleep(0));
    assert!(reader.may_sleep(3));
    appender.append(b"def");
    log.ring();
    log.ring();
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

#[test]
fn the_releaser_wakes_two_and_these_wake_the_rest() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let log = Log::new(9, 1000);
    let _reader = log.activate(0);
    let calls: Arc<Vec<AtomicUsize>> = Arc::new((0..9).map(|_| AtomicUsize::new(0)).collect());
    let woken = || calls.iter().map(|calls| calls.load(Ordering::Relaxed)).collect::<Vec<_>>();
    let mut workers: Vec<_> = (0..9).map(|worker| log.appender(worker)).collect();
    for (worker, appender) in workers.iter_mut().enumerate() {
        let calls = Arc::clone(&calls);
        log.set_waker(
            worker,
            Box::new(move || calls[worker].store(calls[worker].load(Ordering::Relaxed) + 1, Ordering::Relaxed)),
        );
        assert!(appender.await_release(if worker == 8 { 20 } else { 10 }));
    }
    log.release(9);
    assert_eq!(woken(), [0; 9]);
    log.release(10);
    assert_eq!(woken(), [1, 1, 0, 0, 0, 0, 0, 0, 0]);
    workers[1].awake();
    assert_eq!(woken(), [1, 1, 1, 1, 0, 0, 0, 0, 0]);
    workers[5].awake(); // for another reason: it was not claimed, and wakes nobody
    assert_eq!(woken(), [1, 1, 1, 1, 0, 0, 0, 0, 0]);
    workers[0].awake();
    workers[2].awake();
    assert_eq!(woken(), [1, 1, 1, 1, 1, 0, 1, 1, 0]);
    for worker in &mut workers[..8] {
        worker.awake();
    }
    assert_eq!(woken(), [1, 1, 1, 1, 1, 0, 1, 1, 0]);
    assert!(!workers[0].await_release(10), "released already");
    log.release(5);
    assert_eq!(log.released(), 10, "the watermark never goes back");
    log.release(20);
    assert_eq!(woken()[8], 1);
}
