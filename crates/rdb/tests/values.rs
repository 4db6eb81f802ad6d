//! Values, written and read back: nothing changes, whatever the thresholds; nothing damaged is taken for another value
//! without its checksum telling.

mod common;

use common::Random;
use gimmal_rdb::{Collect, ErrorKind, Object, Options, Version, crc64, dump, verify};
use std::collections::{BTreeMap, BTreeSet};

fn read(payload: &[u8]) -> gimmal_rdb::Result<Object> {
    let mut collect = Collect::default();
    verify(payload)?.decode(&mut collect)?;
    Ok(collect.finish().expect("a value"))
}

fn write(object: &Object, options: &Options) -> Vec<u8> {
    dump(options, |encoder| object.encode(encoder)).expect("a payload")
}

fn all_options() -> Vec<Options> {
    let usual = Options::default();
    let packed = Options {
        version: Version::V11,
        compress: false,
        list_max_listpack_size: -5,
        hash_max_listpack_entries: 1 << 20,
        hash_max_listpack_value: 1 << 20,
        set_max_intset_entries: 1 << 20,
        set_max_listpack_entries: 1 << 20,
        set_max_listpack_value: 1 << 20,
        zset_max_listpack_entries: 1 << 20,
        zset_max_listpack_value: 1 << 20,
        stream_node_max_bytes: 0,
        stream_node_max_entries: 0,
    };
    let plain = Options {
        version: Version::V80,
        compress: true,
        list_max_listpack_size: 1,
        hash_max_listpack_entries: 0,
        hash_max_listpack_value: 0,
        set_max_intset_entries: 0,
        set_max_listpack_entries: 0,
        set_max_listpack_value: 0,
        zset_max_listpack_entries: 0,
        zset_max_listpack_value: 0,
        stream_node_max_bytes: 1,
        stream_node_max_entries: 1,
    };
    vec![usual, packed, plain]
}

#[test]
fn random_values_come_back() {
    let mut random = Random(0x5eed);
    for number in 0..600 {
        let object = random.object();
        for options in all_options() {
            let payload = write(&object, &options);
            let back = read(&payload).unwrap_or_else(|error| panic!("value {number}: {error}"));
            assert!(back == object, "value {number} with {options:?}");
        }
    }
}

/// Edges of the lengths, and of what fits 32 bits.
#[test]
fn strings_come_back() {
    let lengths = [0, 1, 20, 21, 63, 64, 16_383, 16_384, 65_536, 262_144, 262_145, 1_000_000];
    let texts = lengths.into_iter().flat_map(|len| [vec![b'z'; len], (0..len).map(|n| (n * n % 251) as u8).collect()]);
    let edges = [0, 127, 128, 32_767, 32_768, 2_147_483_647, 2_147_483_648, 99_999_999_999_i64];
    let integers = edges.iter().flat_map(|n| [n.to_string(), format!("-{n}"), (-n - 1).to_string()]);
    for text in texts.chain(integers.map(String::into_bytes)) {
        let object = Object::String(text);
        for options in all_options() {
            assert!(read(&write(&object, &options)).expect("a string") == object);
        }
    }
}

#[test]
fn long_strings_are_written_in_parts() {
    let parts = [vec![b'a'; 300_000], vec![b'b'; 5]];
    let payload = dump(&Options::default(), |encoder| encoder.string_parts(300_005, &parts)).expect("a payload");
    assert!(read(&payload).expect("a string") == Object::String(parts.concat()));
    assert!(dump(&Options::default(), |encoder| encoder.string_parts(300_004, &parts)).is_err(), "a wrong length");
}

#[test]
fn nothing_empty_is_written() {
    let empty = [Object::List(vec![]), Object::Set(BTreeSet::new()), Object::Hash(BTreeMap::new())];
    for object in empty {
        assert!(dump(&Options::default(), |encoder| object.encode(encoder)).is_err());
    }
    let stream = Object::Stream(gimmal_rdb::Stream::default());
    assert!(read(&write(&stream, &Options::default())).expect("a stream") == stream);
}

#[test]
fn small_values_are_packed_and_large_ones_are_not() {
    let tag = |object: &Object, version: Version| write(object, &Options { version, ..Options::default() })[0];
    let texts = |count: usize, len: usize| (0..count).map(move |n| format!("{n:0>len$}x").into_bytes());
    let set = |count, len| Object::Set(texts(count, len).collect::<BTreeSet<_>>());
    assert_eq!(tag(&Object::Set((0..512).map(|n| n.to_string().into_bytes()).collect()), Version::V10), 11);
    assert_eq!(tag(&Object::Set((0..513).map(|n| n.to_string().into_bytes()).collect()), Version::V11), 2);
    assert_eq!([tag(&set(128, 8), Version::V10), tag(&set(128, 8), Version::V11)], [2, 20]);
    assert_eq!([tag(&set(129, 8), Version::V11), tag(&set(1, 64), Version::V11)], [2, 2]);
    let hash = |count, len| Object::Hash(texts(count, len).map(|text| (text, (vec![], None))).collect());
    assert_eq!([(128, 63), (129, 1), (1, 64)].map(|(n, len)| tag(&hash(n, len), Version::V10)), [16, 4, 4]);
    let zset = |count, len| Object::SortedSet(texts(count, len).map(|text| (text, 1.5)).collect::<BTreeMap<_, _>>());
    assert_eq!([(128, 63), (129, 1), (1, 64)].map(|(n, len)| tag(&zset(n, len), Version::V10)), [17, 5, 5]);
    assert_eq!(tag(&Object::List(vec![vec![]]), Version::V10), 18);
    let stream = Object::Stream(Random(3).stream());
    assert_eq!([Version::V10, Version::V11].map(|version| tag(&stream, version)), [19, 21]);
}

#[test]
fn a_hash_whose_fields_expire_is_valkeys() {
    let object = Object::Hash(BTreeMap::from([(b"f".to_vec(), (b"v".to_vec(), Some(1_700_000_000_000)))]));
    let payload = write(&object, &Options::default());
    assert_eq!(payload[..2], [22, 1]);
    assert_eq!(payload[payload.len() - 10..payload.len() - 8], [80, 0]);
    assert!(read(&payload).expect("a hash") == object);
}

fn sealed(body: &[u8], version: u16) -> Vec<u8> {
    let mut payload = body.to_vec();
    payload.extend(version.to_le_bytes());
    let sum = crc64(0, &payload);
    payload.extend(sum.to_le_bytes());
    payload
}

/// The forms of Redis 7.4, by hand: they are documented by the server's source only.
#[test]
fn hashes_of_redis_7_4() {
    let expected = |first: Option<u64>, second: Option<u64>| {
        Object::Hash(BTreeMap::from([
            (b"a".to_vec(), (b"1".to_vec(), first)),
            (b"b".to_vec(), (b"2".to_vec(), second)),
        ]))
    };
    let mut metadata = vec![24];
    metadata.extend(1000_u64.to_le_bytes());
    metadata.extend([2, 1, 1, b'a', 1, b'1', 0, 1, b'b', 1, b'2']);
    assert!(read(&sealed(&metadata, 12)).expect("a hash") == expected(Some(1000), None));
    let pre_ga = [22, 2, 5, 1, b'a', 1, b'1', 0, 1, b'b', 1, b'2'];
    assert!(read(&sealed(&pre_ga, 12)).expect("a hash") == expected(Some(5), None));
    let listpack = [21, 0, 0, 0, 6, 0, 0x81, b'a', 2, 1, 1, 0, 1, 0x81, b'b', 2, 2, 1, 0x7f, 1, 0xff];
    let mut packed = vec![25];
    packed.extend(127_u64.to_le_bytes());
    packed.push(21);
    packed.extend(listpack);
    assert!(read(&sealed(&packed, 12)).expect("a hash") == expected(None, Some(127)));
    let mut packed = vec![23, 21];
    packed.extend(listpack);
    assert!(read(&sealed(&packed, 12)).expect("a hash") == expected(None, Some(127)));
}

#[test]
fn contradictions_are_named() {
    let why = |body: &[u8]| read(&sealed(body, 10)).expect_err("an error").kind;
    assert!(matches!(why(&[2, 2, 1, b'a', 1, b'a']), ErrorKind::Duplicate));
    assert!(matches!(why(&[4, 2, 1, b'a', 0, 1, b'a', 0]), ErrorKind::Duplicate));
    assert!(matches!(why(&[2, 0]), ErrorKind::Empty));
    assert!(matches!(why(&[18, 0]), ErrorKind::Empty));
    assert!(matches!(why(&[0, 1, b'a', 0]), ErrorKind::Trailing));
    assert!(matches!(why(&[0, 5, b'a']), ErrorKind::Truncated));
    assert!(matches!(why(&[0, 0x81, 255, 255, 255, 255, 255, 255, 255, 255]), ErrorKind::Truncated));
    assert!(matches!(why(&[7, 0]), ErrorKind::Unsupported(_)));
    assert!(matches!(why(&[99, 0]), ErrorKind::UnknownType(99)));
    assert!(
        matches!(why(&[5, 1, 1, b'a', 0, 0, 0, 0, 0, 0, 0xf8, 0x7f]), ErrorKind::Corrupt(_)),
        "a score that is NaN"
    );
    assert!(matches!(verify(&sealed(&[0, 0], 81)).expect_err("an error").kind, ErrorKind::Version(81)));
    let mut damaged = sealed(&[0, 1, b'a'], 10);
    damaged[2] ^= 1;
    assert!(matches!(verify(&damaged).expect_err("an error").kind, ErrorKind::Checksum { .. }));
    assert!(verify(&[]).is_err() && verify(&[0; 9]).is_err());
}

/// Damage behind a right checksum: another value, or an error, and never more than the bytes can make.
#[test]
fn damaged_values_end() {
    let mut random = Random(7);
    for _ in 0..300 {
        let object = random.object();
        for options in all_options() {
            let payload = write(&object, &options);
            let body = &payload[..payload.len() - 10];
            for _ in 0..20 {
                let mut damaged = body.to_vec();
                for _ in 0..1 + random.below(3) {
                    let at = random.size(damaged.len() as u64);
                    damaged[at] = random.next().to_le_bytes()[0];
                }
                let cut = if random.below(4) == 0 { random.size(damaged.len() as u64) } else { damaged.len() };
                if let Ok(other) = read(&sealed(&damaged[..cut], 10)) {
                    let again = write(&other, &options);
                    assert!(read(&again).expect("what was written") == other);
                }
            }
        }
    }
}
