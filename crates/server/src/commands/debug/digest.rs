//! DEBUG DIGEST: a number of 160 bits that depends on every key, value and deadline, and not on their order.
//!
//! It is the same in every process of this version, so that data sets of two servers can be compared; it is not the
//! digest of a Redis with the same data.

use crate::args::Args;
use crate::exec::{Exec, Outcome};
use gimmal_store::types::{Stream, StreamId};
use gimmal_store::{Entry, StringRef, ValueRef};
use std::hash::{DefaultHasher, Hasher};

/// Words of a digest; of the last one the lower half is shown.
type Sum = [u64; 3];

pub fn digest(exec: &mut Exec<'_>) -> Outcome {
    let closed = exec.exclusive()?;
    let mut all = Sum::default();
    let keyspace = &exec.shared.keyspace;
    for db in (0..keyspace.databases()).filter(|db| keyspace.len(exec.batch(), *db) > 0) {
        for shard in 0..u32::try_from(keyspace.shards()).expect("at most 16384 shards") {
            let mut shard = keyspace.try_lock(exec.batch(), shard).expect("the gate is closed");
            shard.table(db).scan(0, usize::MAX, &mut |entry| mix(&mut all, of_entry(db, &entry)));
        }
    }
    drop(closed);
    exec.reply.put().simple(text(all));
    Ok(())
}

pub fn digest_value(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut keys = exec.lock_all(args.rest(2))?;
    exec.reply.put().array(keys.len());
    for i in 0..keys.len() {
        let sum = exec.peek(keys.key(i)).map_or(Sum::default(), |entry| sum(&[], entry.value()));
        exec.reply.put().simple(text(sum));
    }
    Ok(())
}

/// What DEBUG OBJECT calls the serialized length: of a string, the bytes that it takes in an RDB file, uncompressed; of an aggregate,
/// those that it takes in memory.
pub fn serialized_length(entry: &Entry<'_>) -> usize {
    entry.value().as_string().map_or_else(|| entry.memory_bytes(), string_length)
}

fn string_length(value: StringRef<'_>) -> usize {
    let of_text = |len: usize| match len {
        0..64 => len + 1,
        64..16_384 => len + 2,
        _ => len + 5,
    };
    match value {
        StringRef::Int(n) if i8::try_from(n).is_ok() => 2,
        StringRef::Int(n) if i16::try_from(n).is_ok() => 3,
        StringRef::Int(n) if i32::try_from(n).is_ok() => 5,
        StringRef::Int(n) => of_text(itoa::Buffer::new().format(n).len()),
        StringRef::Bytes(bytes) => of_text(bytes.len()),
        StringRef::Rope(rope) => of_text(rope.len()),
    }
}

fn of_entry(db: usize, entry: &Entry<'_>) -> Sum {
    let deadline = entry.expire_at_ms().unwrap_or(-1).to_le_bytes();
    let key = entry.key();
    let head: [&[u8]; 4] = [&(db as u64).to_le_bytes(), &deadline, &(key.len() as u64).to_le_bytes(), key];
    sum(&head, entry.value())
}

/// Three hashes, told apart by their first byte. An integer counts as its decimal text.
fn sum(head: &[&[u8]], value: ValueRef<'_>) -> Sum {
    let mut hashers: [DefaultHasher; 3] = Default::default();
    for (hasher, first) in hashers.iter_mut().zip(1..) {
        hasher.write(&[first]);
        head.iter().for_each(|part| hasher.write(part));
        hasher.write(&[value.kind() as u8]);
        match value {
            ValueRef::String(StringRef::Int(n)) => hasher.write(itoa::Buffer::new().format(n).as_bytes()),
            ValueRef::String(StringRef::Bytes(bytes)) => hasher.write(bytes),
            ValueRef::String(StringRef::Rope(rope)) => rope.extents().for_each(|extent| hasher.write(extent)),
            ValueRef::Hash(fields) => hasher.write_u64(unordered(fields.iter_from(0).map(|field| {
                let deadline = field.expire_at_ms.unwrap_or(-1).to_le_bytes();
                parts(first, &[field.name, field.value, &deadline])
            }))),
            ValueRef::List(list) => list.iter().for_each(|element| hasher.write_u64(parts(first, &[element]))),
            ValueRef::SortedSet(set) => hasher.write_u64(unordered(
                set.iter().map(|found| parts(first, &[found.member, &found.score.to_bits().to_le_bytes()])),
            )),
            ValueRef::Set(set) => hasher.write_u64(unordered(set.iter().map(|member| parts(first, &[member])))),
            ValueRef::Stream(stream) => of_stream(hasher, stream),
        }
    }
    hashers.map(|hasher| hasher.finish())
}

/// Entries and groups in order, but for when consumers were last seen.
fn of_stream(hasher: &mut DefaultHasher, stream: &Stream) {
    let write_id = |hasher: &mut DefaultHasher, id: StreamId| {
        hasher.write_u64(id.ms);
        hasher.write_u64(id.seq);
    };
    for entry in stream.entries().iter_from(0) {
        write_id(hasher, entry.id);
        entry.fields().for_each(|(name, value)| hasher.write_u64(parts(0, &[name, value])));
    }
    write_id(hasher, stream.last_id());
    write_id(hasher, stream.max_deleted_id());
    hasher.write_u64(stream.entries_added());
    for (name, group) in stream.groups() {
        hasher.write_u64(parts(1, &[name]));
        write_id(hasher, group.last_id);
        hasher.write_u64(group.entries_read.unwrap_or(u64::MAX));
        group.consumers().for_each(|consumer| hasher.write_u64(parts(2, &[consumer.name()])));
        for one in group.pending_from(StreamId::MIN) {
            write_id(hasher, one.id);
            hasher.write_u64(parts(3, &[group.owner(&one).name()]));
            hasher.write_i64(one.delivered_ms);
            hasher.write_u64(one.deliveries);
        }
    }
}

/// A hash of several strings, each told from the next by its length.
fn parts(first: u8, parts: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(&[first]);
    for part in parts {
        hasher.write(&(part.len() as u64).to_le_bytes());
        hasher.write(part);
    }
    hasher.finish()
}

/// A sum that does not depend on the order.
fn unordered(hashes: impl Iterator<Item = u64>) -> u64 {
    hashes.fold(0, u64::wrapping_add)
}

fn mix(all: &mut Sum, one: Sum) {
    for (word, part) in all.iter_mut().zip(one) {
        *word ^= part;
    }
}

/// 40 hexadecimal digits.
fn text(sum: Sum) -> String {
    format!("{:016x}{:016x}{:08x}", sum[0], sum[1], sum[2] & u64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_string(value: StringRef<'_>) -> Sum {
        sum(&[b"k"], ValueRef::String(value))
    }

    #[test]
    fn an_integer_is_its_text() {
        assert_eq!(of_string(StringRef::Int(-12)), of_string(StringRef::Bytes(b"-12")));
        assert_ne!(of_string(StringRef::Int(12)), of_string(StringRef::Int(13)));
        assert_eq!(string_length(StringRef::Int(127)), 2);
        assert_eq!(string_length(StringRef::Int(i64::MIN)), 21);
        assert_eq!(string_length(StringRef::Bytes(b"v")), 2);
        assert_eq!(text(Sum::default()), "0".repeat(40));
        assert_eq!(text([u64::MAX; 3]), "f".repeat(40));
    }
}
