//! Encoded values, as RESTORE and files bring them. Checked: no panic; a value is the same, or the same error, from a slice
//! and through a file's window however small its pieces; its end is found without decoding it; what was read can be written
//! in every form, and read again unchanged.
//!
//! Input: a byte for version and form, then a type and its value; or, for one value of the first byte, a whole file.

use gimmal_rdb::file::{Item, Reader};
use gimmal_rdb::{
    Collect, Decoder, Fields, Group, Kind, Object, Options, Refusal, Sink, Slice, StreamId, StreamMeta, Taken, Version,
    dump, verify,
};
use std::io::Read;

/// Bytes that a value may become: a hostile one may repeat a long field with every entry of a stream.
const BUDGET: usize = 4 << 20;

/// Runs one input.
pub fn run(input: &[u8]) {
    let [how, rest @ ..] = input else { return };
    if *how == 255 {
        return read_file(rest);
    }
    let [tag, value @ ..] = rest else { return };
    let version = [80, 10, 11, 12][usize::from(how & 3)];
    let (decoded, used) = decode(*tag, version, value);
    through_file(*tag, version, value, &decoded, used, usize::from(how >> 2) + 1);
    let Ok(object) = decoded else { return };
    for options in forms() {
        let payload = dump(&options, |encoder| object.encode(encoder)).expect("a value of this size can be written");
        let payload = verify(&payload).expect("a payload of our own");
        let mut again = Bounded::default();
        let read = payload.decode(&mut again);
        assert!(read.is_ok(), "{read:?}");
        assert!(again.collect.finish().as_ref() == Some(&object), "what was written is not what is read");
    }
}

/// Decodes from a slice: the value, and how many bytes it took.
fn decode(tag: u8, version: u32, value: &[u8]) -> (Result<Object, String>, usize) {
    let mut source = Slice::new(value);
    let mut sink = Bounded::default();
    let decoded = Decoder::default().decode(tag, version, &mut source, &mut sink);
    let object = decoded.map(|()| sink.collect.finish().expect("a value")).map_err(|error| error.kind.to_string());
    (object, value.len() - source.rest().len())
}

fn through_file(tag: u8, version: u32, value: &[u8], decoded: &Result<Object, String>, used: usize, step: usize) {
    if tag >= 243 {
        return;
    }
    let magic = if version == 80 { "VALKEY080".to_owned() } else { format!("REDIS{version:04}") };
    let file = [magic.as_bytes(), &[tag, 1, b'k'], value].concat();
    let open = || {
        let mut reader = Reader::new(Pieces(&file, step)).expect("a header");
        assert!(matches!(reader.next(), Ok(Item::Entry(_))));
        reader
    };
    let mut sink = Bounded::default();
    let mut reader = open();
    let streamed = reader.value(&mut sink).map(|()| sink.collect.finish().expect("a value"));
    let streamed = streamed.map_err(|error| error.kind.to_string());
    assert!(streamed == *decoded, "{:?} from a file, {:?} from a slice", streamed.err(), decoded.as_ref().err());
    let mut reader = open();
    let encoded = reader.encoded_value(usize::MAX).map(|bytes| bytes.map(<[u8]>::to_vec));
    if decoded.is_ok() {
        let encoded = encoded.expect("the end of a good value").expect("no limit");
        assert!(encoded == value[..used], "the value ends elsewhere");
        assert!(matches!(open().encoded_value(0), Ok(_)));
    }
}

fn read_file(bytes: &[u8]) {
    let Ok(mut reader) = Reader::new(bytes) else { return };
    loop {
        match reader.next() {
            Ok(Item::Entry(entry)) => {
                let mut sink = Bounded::default();
                let skipped = entry.frequency.is_some_and(|frequency| frequency & 1 == 1);
                match if skipped { Ok(()) } else { reader.value(&mut sink) } {
                    Err(error) if !error.is_empty_value() => return,
                    _ => {}
                }
            }
            Ok(Item::End) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

fn forms() -> [Options; 2] {
    let packed = Options {
        version: Version::V11,
        compress: false,
        hash_max_listpack_entries: 100_000,
        hash_max_listpack_value: 100_000,
        set_max_listpack_entries: 100_000,
        set_max_listpack_value: 100_000,
        zset_max_listpack_entries: 100_000,
        zset_max_listpack_value: 100_000,
        stream_node_max_bytes: 0,
        stream_node_max_entries: 0,
        ..Options::default()
    };
    let plain = Options {
        version: Version::V11,
        list_max_listpack_size: 1,
        hash_max_listpack_entries: 0,
        set_max_intset_entries: 0,
        set_max_listpack_entries: 0,
        zset_max_listpack_entries: 0,
        stream_node_max_entries: 1,
        ..Options::default()
    };
    [packed, plain]
}

/// Gives so many bytes at a time.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let len = buf.len().min(self.1);
        self.0.read(&mut buf[..len])
    }
}

/// Collects a value of up to [`BUDGET`] bytes.
#[derive(Default)]
struct Bounded {
    collect: Collect,
    spent: usize,
}

impl Bounded {
    fn spend(&mut self, bytes: usize) -> Taken {
        // What an element costs beside its bytes.
        self.spent += bytes + 64;
        if self.spent > BUDGET { Err(Refusal::Other("more than the test wants to hold")) } else { Ok(()) }
    }
}

impl Sink for Bounded {
    fn begin(&mut self, kind: Kind, len: Option<u64>) -> Taken {
        self.collect.begin(kind, len)
    }

    fn string(&mut self, part: &[u8], rest: u64) -> Taken {
        self.spend(part.len())?;
        self.collect.string(part, rest)
    }

    fn list_item(&mut self, item: &[u8]) -> Taken {
        self.spend(item.len())?;
        self.collect.list_item(item)
    }

    fn set_member(&mut self, member: &[u8]) -> Taken {
        self.spend(member.len())?;
        self.collect.set_member(member)
    }

    fn sorted_set_member(&mut self, member: &[u8], score: f64) -> Taken {
        assert!(!score.is_nan());
        self.spend(member.len())?;
        self.collect.sorted_set_member(member, score)
    }

    fn hash_field(&mut self, field: &[u8], value: &[u8], expire_at_ms: Option<u64>) -> Taken {
        self.spend(field.len() + value.len())?;
        // The written form has signed times.
        self.collect.hash_field(field, value, expire_at_ms.map(|at| at.min(i64::MAX.cast_unsigned())))
    }

    fn stream_entry(&mut self, id: StreamId, fields: &Fields) -> Taken {
        for (field, value) in fields.iter() {
            self.spend(field.len() + value.len())?;
        }
        self.collect.stream_entry(id, fields)
    }

    fn stream_meta(&mut self, meta: &StreamMeta) -> Taken {
        self.collect.stream_meta(meta)
    }

    fn stream_group(&mut self, group: Group) -> Taken {
        assert!(group.pending.is_sorted_by(|one, next| one.id < next.id));
        assert!(group.pending.iter().all(|pending| pending.consumer < group.consumers.len()));
        self.collect.stream_group(group)
    }
}
