//! Bitmaps: strings whose bits are commands' subject. Bit 0 is the most significant bit of byte 0.
//!
//! Small strings are worked on under their lock. Large ones are ropes: they are read where they are, extent by extent,
//! changed in place, and counted, searched or combined in slices outside of any lock.

mod field;
mod operation;
mod range;
mod scan;
mod single;
mod words;

use crate::args::{Args, parse_int};
use crate::arguments::{block, integer, key, one_of, string, word};
use crate::command::{Argument, Command, KeySpec, acl, flag::*, key_at, key_range, key1, keyflag::*};
use crate::exec::{Exec, ReplyError, error};
use gimmal_store::{Rope, StringRef};

const KEY: Argument = key("key", 0);

/// Whose bits a range is counted in.
const RANGE: Argument = block(
    "range",
    &[
        integer("start"),
        block(
            "end-unit-block",
            &[integer("end"), one_of("unit", &[word("byte", "BYTE"), word("bit", "BIT")]).optional().since("7.0.0")],
        )
        .optional(),
    ],
)
.optional();

const GET_FIELD: Argument = block("get-block", &[string("encoding"), integer("offset")]).after("GET");

const WRITE_FIELD: Argument = block(
    "write",
    &[
        one_of("overflow-block", &[word("wrap", "WRAP"), word("sat", "SAT"), word("fail", "FAIL")])
            .after("OVERFLOW")
            .optional(),
        one_of(
            "write-operation",
            &[
                block("set-block", &[string("encoding"), integer("offset"), integer("value")]).after("SET"),
                block("incrby-block", &[string("encoding"), integer("offset"), integer("increment")]).after("INCRBY"),
            ],
        ),
    ],
);

/// What all commands of the family have in common.
const BITMAP: Command =
    Command { acl: acl::BITMAP, group: "bitmap", complexity: "O(1)", keys: &[key1(RO | ACCESS)], ..Command::DEFAULT };

/// The family's table.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "getbit",
        run: single::getbit,
        arity: 3,
        flags: READONLY | FAST,
        since: "2.2.0",
        summary: "Answers one bit of the string at a key; behind its end all bits are 0.",
        arguments: &[KEY, integer("offset")],
        ..BITMAP
    },
    Command {
        name: "setbit",
        run: single::setbit,
        arity: 4,
        flags: WRITE | DENYOOM,
        keys: &[key1(RW | ACCESS | UPDATE)],
        since: "2.2.0",
        summary: "Sets or clears one bit of the string at a key, which grows as needed, and answers the bit before.",
        arguments: &[KEY, integer("offset"), integer("value")],
        ..BITMAP
    },
    Command {
        name: "bitcount",
        run: scan::bitcount,
        arity: -2,
        flags: READONLY,
        since: "2.6.0",
        complexity: "O(N) where N is the length of the range",
        summary: "Counts the set bits of the string at a key, or of a part of it.",
        arguments: &[KEY, RANGE],
        history: &[("7.0.0", "`BYTE` and `BIT`."), ("8.0.0", "The end may be left out.")],
        ..BITMAP
    },
    Command {
        name: "bitpos",
        run: scan::bitpos,
        arity: -3,
        flags: READONLY,
        since: "2.8.7",
        complexity: "O(N) where N is the length of the range",
        summary: "Finds the first set or clear bit of the string at a key, or of a part of it.",
        arguments: &[KEY, integer("bit"), RANGE],
        history: &[("7.0.0", "`BYTE` and `BIT`.")],
        ..BITMAP
    },
    Command {
        name: "bitop",
        run: operation::bitop,
        arity: -4,
        flags: WRITE | DENYOOM,
        keys: &[key_at(2, OW | UPDATE), key_range(3, -1, 1, RO | ACCESS)],
        since: "2.6.0",
        complexity: "O(N) where N is the total length of the strings",
        summary: "Combines the bits of several strings and stores the result at a key.",
        arguments: &[
            one_of(
                "operation",
                &[
                    word("and", "AND"),
                    word("or", "OR"),
                    word("xor", "XOR"),
                    word("not", "NOT"),
                    word("diff", "DIFF").since("8.2.0"),
                    word("diff1", "DIFF1").since("8.2.0"),
                    word("andor", "ANDOR").since("8.2.0"),
                    word("one", "ONE").since("8.2.0"),
                ],
            ),
            key("destkey", 0),
            key("key", 1).many(),
        ],
        history: &[("8.2.0", "`DIFF`, `DIFF1`, `ANDOR` and `ONE`.")],
        ..BITMAP
    },
    Command {
        name: "bitfield",
        run: field::bitfield,
        arity: -2,
        flags: WRITE | DENYOOM,
        keys: &[KeySpec {
            notes: "Reads and changes the key, as its operations say",
            ..key1(RW | UPDATE | ACCESS | VARIABLE_FLAGS)
        }],
        keys_fn: Some(field::keys),
        since: "3.2.0",
        complexity: "O(1) for each operation",
        summary: "Reads, sets and adds to integers of any width in the string at a key.",
        arguments: &[KEY, one_of("operation", &[GET_FIELD, WRITE_FIELD]).many().optional()],
        ..BITMAP
    },
    Command {
        name: "bitfield_ro",
        run: field::bitfield_ro,
        arity: -2,
        flags: READONLY | FAST,
        since: "6.0.0",
        complexity: "O(1) for each operation",
        summary: "Reads integers of any width in the string at a key.",
        arguments: &[KEY, GET_FIELD.optional().many().many_tokens()],
        ..BITMAP
    },
];

const BAD_OFFSET: ReplyError = error("ERR bit offset is not an integer or out of range");

/// Argument `i` as the offset of a bit, which must lie in a string of the largest configured length. With `width` the
/// form `#n` is known as well: the n-th field of so many bits.
fn offset(exec: &Exec<'_>, args: &Args<'_>, i: usize, width: Option<u32>) -> Result<u64, ReplyError> {
    let (text, unit) = match (args.at(i), width) {
        ([b'#', rest @ ..], Some(width)) => (rest, u64::from(width)),
        (text, _) => (text, 1),
    };
    let limit = u64::try_from(exec.local.config.proto_max_bulk_len()).unwrap_or(u64::MAX);
    parse_int(text)
        .and_then(|n| u64::try_from(n).ok()?.checked_mul(unit))
        .filter(|bit| bit / 8 < limit)
        .ok_or(BAD_OFFSET)
}

/// A string as bytes that can be looked at in place, whatever its form.
struct Bytes<'a> {
    small: &'a [u8],
    large: Option<&'a Rope>,
}

impl<'a> Bytes<'a> {
    /// The bytes of a string; an integer's digits are written into `digits`.
    fn new(value: StringRef<'a>, digits: &'a mut itoa::Buffer) -> Bytes<'a> {
        match value {
            StringRef::Int(n) => Bytes { small: digits.format(n).as_bytes(), large: None },
            StringRef::Bytes(bytes) => Bytes { small: bytes, large: None },
            StringRef::Rope(rope) => Bytes { small: &[], large: Some(rope) },
        }
    }

    fn len(&self) -> usize {
        self.large.map_or(self.small.len(), Rope::len)
    }

    /// Byte number `at`; 0 behind the end.
    fn byte(&self, at: u64) -> u8 {
        let Ok(at) = usize::try_from(at) else { return 0 };
        match self.large {
            Some(rope) => rope.byte(at),
            None => self.small.get(at).copied(),
        }
        .unwrap_or(0)
    }
}
