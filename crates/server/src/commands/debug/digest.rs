//! DEBUG DIGEST: a number of 160 bits that depends on every key, value and deadline, and not on their order.
//!
//! It is the same in every process of this version, so that data sets of two servers can be compared; it is not the
//! digest of a Redis with the same data.

use crate::args::Args;
use crate::exec::{Exec, Outcome};
use gimmal_store::{Entry, ValueRef};
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

/// Bytes that a value takes in an RDB file, uncompressed: what DEBUG OBJECT calls its serialized length.
pub fn serialized_length(value: ValueRef<'_>) -> usize {
    let of_text = |len: usize| match len {
        0..64 => len + 1,
        64..16_384 => len + 2,
        _ => len + 5,
    };
    match value {
        ValueRef::Int(n) if i8::try_from(n).is_ok() => 2,
        ValueRef::Int(n) if i16::try_from(n).is_ok() => 3,
        ValueRef::Int(n) if i32::try_from(n).is_ok() => 5,
        ValueRef::Int(n) => of_text(itoa::Buffer::new().format(n).len()),
        ValueRef::Bytes(bytes) => of_text(bytes.len()),
        ValueRef::Rope(rope) => of_text(rope.len()),
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
        match value {
            ValueRef::Int(n) => hasher.write(itoa::Buffer::new().format(n).as_bytes()),
            ValueRef::Bytes(bytes) => hasher.write(bytes),
            ValueRef::Rope(rope) => rope.extents().for_each(|extent| hasher.write(extent)),
        }
    }
    hashers.map(|hasher| hasher.finish())
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

    #[test]
    fn an_integer_is_its_text() {
        assert_eq!(sum(&[b"k"], ValueRef::Int(-12)), sum(&[b"k"], ValueRef::Bytes(b"-12")));
        assert_ne!(sum(&[b"k"], ValueRef::Int(12)), sum(&[b"k"], ValueRef::Int(13)));
        assert_eq!(serialized_length(ValueRef::Int(127)), 2);
        assert_eq!(serialized_length(ValueRef::Int(i64::MIN)), 21);
        assert_eq!(serialized_length(ValueRef::Bytes(b"v")), 2);
        assert_eq!(text(Sum::default()), "0".repeat(40));
        assert_eq!(text([u64::MAX; 3]), "f".repeat(40));
    }
}
