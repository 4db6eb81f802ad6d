//! Whole files, written and read back, by every way of reading values.

mod common;

use common::Random;
use gimmal_rdb::file::{Cut, Entry, Item, Keys as CutKeys, Meta, Reader, Text, Writer};
use gimmal_rdb::{Collect, Decoder, ErrorKind, Object, Options, Slice, Version};
use std::io::Read;

/// Keys with what stands beside them.
type Keys = Vec<(u64, Vec<u8>, Meta, Object)>;

fn sample(random: &mut Random, count: usize) -> Keys {
    let mut keys = Vec::new();
    for number in 0..count {
        let meta = Meta {
            expire_at_ms: (random.below(3) == 0).then(|| 1_700_000_000_000 + number as i64),
            idle_s: (random.below(3) == 0).then(|| random.below(100_000)),
            frequency: (random.below(3) == 0).then(|| random.next().to_le_bytes()[0]),
        };
        let mut key = random.text();
        key.extend_from_slice(number.to_string().as_bytes());
        keys.push((number as u64 * 4 / count as u64, key, meta, random.object()));
    }
    keys
}

fn write(keys: &Keys, options: Options, has_checksum: bool) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), options, has_checksum).expect("a file");
    writer.aux("redis-ver", b"7.0.0").expect("a remark");
    writer.function(b"#!lua name=x\n").expect("a function");
    for db in 0..4 {
        let of_db = || keys.iter().filter(|(of, ..)| *of == db);
        let expiring = of_db().filter(|(_, _, meta, _)| meta.expire_at_ms.is_some()).count();
        writer.database(db, of_db().count() as u64, expiring as u64).expect("a database");
        for (_, key, meta, object) in of_db() {
            object.encode(writer.entry(key, meta).expect("a key")).expect("a value");
        }
    }
    let position = writer.position();
    let bytes = writer.finish().expect("the end");
    assert_eq!(position + 9, bytes.len() as u64);
    bytes
}

/// How the values are read.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Streamed,
    Encoded,
    Skipped,
}

fn read(bytes: impl Read, way: Way) -> gimmal_rdb::Result<Keys> {
    let mut reader = Reader::new(bytes)?;
    let mut keys = Vec::new();
    loop {
        match reader.next()? {
            Item::Entry(Entry { db, tag, expire_at_ms, idle_s, frequency }) => {
                let key = reader.key().to_vec();
                let mut collect = Collect::default();
                match way {
                    Way::Streamed => reader.value(&mut collect)?,
                    Way::Skipped => continue,
                    Way::Encoded => {
                        let version = reader.version();
                        match reader.encoded_value(100)? {
                            Some(bytes) => {
                                let mut slice = Slice::new(bytes);
                                Decoder::default().decode(tag, version, &mut slice, &mut collect)?;
                                assert!(slice.rest().is_empty(), "the value's end was found");
                            }
                            None => reader.value(&mut collect)?,
                        }
                    }
                }
                let object = collect.finish().expect("a value");
                keys.push((db, key, Meta { expire_at_ms, idle_s, frequency }, object));
            }
            Item::End => return Ok(keys),
            Item::Function(source) => assert_eq!(source, b"#!lua name=x\n"),
            Item::Aux { name, value } => assert_eq!((name, value), (&b"redis-ver"[..], &b"7.0.0"[..])),
            Item::Database(_) | Item::Sizes { .. } | Item::ModuleAux => {}
        }
    }
}

/// Gives few bytes at a time.
struct Trickle<'a>(&'a [u8], usize);

impl Read for Trickle<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let len = buf.len().min(self.1);
        self.0.read(&mut buf[..len])
    }
}

#[test]
fn files_come_back() {
    let mut random = Random(11);
    for (version, has_checksum) in [(Version::V10, true), (Version::V11, false), (Version::V80, true)] {
        let keys = sample(&mut random, 300);
        let bytes = write(&keys, Options { version, ..Options::default() }, has_checksum);
        assert_eq!(bytes.ends_with(&[0; 8]), !has_checksum);
        for way in [Way::Streamed, Way::Encoded] {
            assert!(read(&bytes[..], way).expect("a file") == keys);
            assert!(read(Trickle(&bytes, 7), way).expect("a file") == keys);
        }
        assert_eq!(read(&bytes[..], Way::Skipped).expect("a file"), []);
    }
}

/// Values longer than the reader's buffer.
#[test]
fn large_values_come_back() {
    let list: Vec<Vec<u8>> = (0..200_000).map(|n: u32| n.to_string().into_bytes()).collect();
    let mut random = Random(5);
    let blob: Vec<u8> = (0..3_000_000).map(|_| random.next().to_le_bytes()[0]).collect();
    let keys = vec![
        (0, b"list".to_vec(), Meta::default(), Object::List(list)),
        (1, b"blob".to_vec(), Meta::default(), Object::String(blob)),
        (2, b"small".to_vec(), Meta::default(), Object::String(b"x".to_vec())),
    ];
    let bytes = write(&keys, Options { compress: false, ..Options::default() }, true);
    for way in [Way::Streamed, Way::Encoded] {
        assert!(read(Trickle(&bytes, 65_536), way).expect("a file") == keys);
    }
}

#[test]
fn every_cut_and_every_flipped_byte_is_noticed() {
    let keys = sample(&mut Random(3), 12);
    let bytes = write(&keys, Options::default(), true);
    for cut in (0..bytes.len()).step_by(61).chain(bytes.len() - 10..bytes.len()) {
        for way in [Way::Streamed, Way::Encoded, Way::Skipped] {
            assert!(read(&bytes[..cut], way).is_err(), "cut at {cut}");
        }
    }
    for at in (9..bytes.len()).step_by(101) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        // The remarks are compared by the reading itself; beyond them it is the checksum that must tell.
        let told = std::panic::catch_unwind(|| read(&damaged[..], Way::Skipped).is_err()).unwrap_or(true);
        assert!(told, "byte {at}");
    }
}

#[test]
fn headers_are_checked() {
    let why = |bytes: &[u8]| Reader::new(bytes).expect_err("an error").kind;
    assert!(matches!(why(b"REDIS"), ErrorKind::Truncated));
    assert!(matches!(why(b"RUBIS0011"), ErrorKind::Magic(_)));
    assert!(matches!(why(b"REDIS00x1"), ErrorKind::Magic(_)));
    assert!(matches!(why(b"REDIS0081"), ErrorKind::Version(81)));
    assert!(matches!(why(b"REDIS0000"), ErrorKind::Version(0)));
    assert_eq!(Reader::new(&b"VALKEY080"[..]).expect("a header").version(), 80);
}

/// What other servers put between the keys, and an old file without a checksum with commands behind it.
#[test]
fn what_is_not_ours_is_passed_over() {
    let mut bytes = b"VALKEY080".to_vec();
    bytes.extend([243, 3, b'j', b'o', b'b', 2, 1, 2, 3, 4]); // a slot import of two ranges
    bytes.extend([244, 1, 2, 3]); // slot sizes
    bytes.extend([247, 0x40, 99, 2, 1, 1, 5, 3, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 5, 1, b'x', 0]); // of a module
    bytes.extend([253, 1, 0, 0, 0, 0, 1, b'k', 1, b'v', 255, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut reader = Reader::new(&bytes[..]).expect("a header");
    assert_eq!(reader.next().expect("an item"), Item::ModuleAux);
    let entry = Entry { expire_at_ms: Some(1000), ..Entry::default() };
    assert_eq!(reader.next().expect("an item"), Item::Entry(entry));
    assert_eq!(reader.next().expect("an item"), Item::End);

    let mut reader = Reader::new(&b"REDIS0003\xff*1\r\n$4\r\nPING\r\n"[..]).expect("a header");
    assert_eq!(reader.next().expect("an item"), Item::End);
    let tail = reader.into_tail();
    assert_eq!((&tail.bytes[..], tail.position), (&b"*1\r\n$4\r\nPING\r\n"[..], 10));

    for (unsupported, version) in [(243_u8, 13), (246, 10)] {
        let bytes = [format!("REDIS{version:04}").into_bytes(), vec![unsupported, 1, 1]].concat();
        let mut reader = Reader::new(&bytes[..]).expect("a header");
        assert!(matches!(reader.next().expect_err("an error").kind, ErrorKind::Unsupported(_)));
    }
}

/// Bugs of old servers left keys without elements in files; Redis skips them, so that the rest is not lost.
#[test]
fn empty_values_do_not_end_a_file() {
    let bytes =
        b"REDIS0010\x02\x01a\x00\x12\x01b\x01\x02\x07\x07\x00\x00\x00\x00\x00\xff\x00\x01c\x01v\xff\0\0\0\0\0\0\0\0";
    let mut reader = Reader::new(&bytes[..]).expect("a header");
    for _ in 0..2 {
        assert!(matches!(reader.next(), Ok(Item::Entry(_))));
        assert!(reader.value(&mut Collect::default()).expect_err("an error").is_empty_value());
    }
    assert!(matches!(reader.next(), Ok(Item::Entry(_))));
    let mut collect = Collect::default();
    reader.value(&mut collect).expect("a value");
    assert_eq!(collect.finish(), Some(Object::String(b"v".to_vec())));
    assert_eq!(reader.next().expect("the end"), Item::End);
}

/// As `read`, with keys taken in cuts of about so many bytes.
fn read_cuts(bytes: impl Read, limit: usize) -> gimmal_rdb::Result<Keys> {
    let mut reader = Reader::new(bytes)?;
    let (version, mut keys) = (reader.version(), Keys::new());
    let (mut decoder, mut end) = (Decoder::default(), 0);
    let meta = |Entry { expire_at_ms, idle_s, frequency, .. }: Entry| Meta { expire_at_ms, idle_s, frequency };
    loop {
        while let Some(Cut { bytes, keys: count, db, offset }) = reader.keys(limit)? {
            assert!(bytes.len() <= limit.max(256 * 1024), "a cut of {} bytes", bytes.len());
            assert!(offset >= end, "cuts do not overlap");
            end = offset + bytes.len() as u64;
            let mut cut = CutKeys::new(bytes, 0, version, db);
            let before = keys.len() as u64;
            while let Some(key) = cut.next()? {
                let mut collect = Collect::default();
                key.decode(&mut decoder, &mut collect)?;
                let object = collect.finish().expect("a value");
                if let (Some(text), Object::String(value)) = (key.text()?, &object) {
                    assert_eq!(owned(text), *value);
                }
                assert!(cut.position() <= bytes.len());
                keys.push((key.entry.db, owned(key.name), meta(key.entry), object));
            }
            assert_eq!(keys.len() as u64 - before, count);
            assert_eq!(cut.position(), bytes.len());
        }
        match reader.next()? {
            Item::Entry(entry) => {
                let name = reader.key().to_vec();
                let mut collect = Collect::default();
                reader.value(&mut collect)?;
                keys.push((entry.db, name, meta(entry), collect.finish().expect("a value")));
            }
            Item::End => return Ok(keys),
            _ => {}
        }
    }
}

fn owned(text: Text<'_>) -> Vec<u8> {
    match text {
        Text::Bytes(bytes) => bytes.to_vec(),
        Text::Int(n) => n.to_string().into_bytes(),
        Text::Unpacked(bytes) => bytes,
    }
}

#[test]
fn cuts_hold_whole_keys_wherever_they_end() {
    for seed in 0..6 {
        let mut random = Random(seed);
        let keys = sample(&mut random, 400);
        let bytes = write(&keys, Options::default(), true);
        // From cuts of a key each, many of which are too long even so, to the whole file in one.
        for limit in [1, 60, 1000, 20_000, 1 << 20, 1 << 28] {
            let read = read_cuts(Trickle(&bytes, 1 + random.size(100_000)), limit).expect("a whole file");
            assert!(read == keys, "seed {seed}, limit {limit}");
        }
    }
}

#[test]
fn a_cut_of_a_torn_file_is_an_error_and_no_key_comes_twice() {
    let mut random = Random(9);
    let keys = sample(&mut random, 12);
    let bytes = write(&keys, Options::default(), true);
    for end in (0..bytes.len()).step_by(bytes.len() / 199) {
        let error = read_cuts(&bytes[..end], 4096).expect_err("it is torn");
        assert!(matches!(error.kind, ErrorKind::Truncated | ErrorKind::Magic(_)), "cut at {end}: {error}");
    }
}
