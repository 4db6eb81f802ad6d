//! Sizes up to which values keep their compact encoding.

use super::super::directive::{Directive, bound, bytes, number};

/// The section's rows.
#[rustfmt::skip] // one row, one line
pub const DIRECTIVES: &[Directive] = &[
    number("hash-max-listpack-entries", 512, bound::LONG, "Fields of a hash kept compact.").alias(&["hash-max-ziplist-entries"]),
    bytes("hash-max-listpack-value", 64, bound::SIZE, "Longest field or value of a compact hash.").alias(&["hash-max-ziplist-value"]),
    number("list-max-listpack-size", -2, bound::ANY_INT, "Elements of a list node; -1 to -5 for nodes of 4, 8, 16, 32 or 64 KiB.").alias(&["list-max-ziplist-size"]),
    number("list-compress-depth", 0, bound::INT, "List nodes at each end that stay uncompressed; 0 compresses none.").ignored("list nodes are not compressed"),
    number("set-max-intset-entries", 512, bound::LONG, "Members of a set of integers kept compact."),
    number("set-max-listpack-entries", 128, bound::LONG, "Members of any other set kept compact."),
    bytes("set-max-listpack-value", 64, bound::SIZE, "Longest member of a compact set."),
    number("zset-max-listpack-entries", 128, bound::LONG, "Members of a sorted set kept compact.").alias(&["zset-max-ziplist-entries"]),
    bytes("zset-max-listpack-value", 64, bound::SIZE, "Longest member of a compact sorted set.").alias(&["zset-max-ziplist-value"]),
    bytes("hll-sparse-max-bytes", 3000, bound::SIZE, "Size up to which a HyperLogLog stays sparse."),
    bytes("stream-node-max-bytes", 4096, bound::SIZE, "Size of a stream node; 0 for no limit.").ignored("stream nodes are counted by their entries"),
    number("stream-node-max-entries", 100, bound::LONG, "Entries of a stream node, which are what trimming with ~ removes at once; 0 for 100."),
];
