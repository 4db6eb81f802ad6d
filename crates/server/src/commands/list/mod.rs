//! Lists. What a list is: `gimmal_store::types::list`; what the wire says about it: here.
//!
//! A handler that removes elements writes its reply from what it sees within the edit, and then removes: no element is copied but
//! into the reply. Long replies take the list by its root and are written after the lock is released.

mod blocking;
mod change;
mod held;
mod pop;
mod push;
mod read;
mod transfer;

pub use pop::{Popped, pop};

use crate::args::Args;
use crate::arguments::{double, integer, key, one_of, string, word};
use crate::command::{Argument, Begin, Command, Find, KeySpec, acl, flag::*, key_at, key_range, key1, keyflag::*};
use crate::dispatch::SYNTAX;
use crate::exec::{Exec, ReplyError, WRONG_TYPE, error};
use gimmal_store::types::{End, ListRef, NodeLimit};
use gimmal_store::{Entry, ValueRef};

const KEY: Argument = key("key", 0);
const ELEMENT: Argument = string("element");
const ELEMENTS: Argument = ELEMENT.many();
const LEFT_OR_RIGHT: &[Argument] = &[word("left", "LEFT"), word("right", "RIGHT")];
const SEVERAL_HISTORY: &[(&str, &str)] = &[("2.4.0", "Takes several elements.")];
const SEVERAL_X_HISTORY: &[(&str, &str)] = &[("4.0.0", "Takes several elements.")];
const COUNT_HISTORY: &[(&str, &str)] = &[("6.2.0", "`count`.")];

/// What all commands of the family have in common.
const LIST: Command = Command { acl: acl::LIST, group: "list", complexity: "O(1)", ..Command::DEFAULT };

/// What LPUSH and its kin have in common.
const PUSH: Command = Command {
    arity: -3,
    flags: WRITE | DENYOOM | FAST,
    keys: &[key1(RW | INSERT)],
    complexity: "O(N) where N is the number of elements added",
    arguments: &[KEY, ELEMENTS],
    ..LIST
};

/// What LPOP and RPOP have in common.
const POP: Command = Command {
    arity: -2,
    flags: WRITE | FAST,
    keys: &[key1(RW | ACCESS | DELETE)],
    complexity: "O(N) where N is the number of elements answered",
    arguments: &[KEY, integer("count").optional().since("6.2.0")],
    history: COUNT_HISTORY,
    ..LIST
};

/// What LMOVE and RPOPLPUSH have in common.
const TRANSFER: Command =
    Command { flags: WRITE | DENYOOM, keys: &[key_at(1, RW | ACCESS | DELETE), key_at(2, RW | INSERT)], ..LIST };

/// The family's table.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "lpush",
        run: push::lpush,
        summary: "Adds elements, one after the other, at the head of the list at a key.",
        history: SEVERAL_HISTORY,
        ..PUSH
    },
    Command {
        name: "rpush",
        run: push::rpush,
        summary: "Adds elements, one after the other, at the tail of the list at a key.",
        history: SEVERAL_HISTORY,
        ..PUSH
    },
    Command {
        name: "lpushx",
        run: push::lpushx,
        since: "2.2.0",
        summary: "Adds elements at the head of a list, if there is one.",
        history: SEVERAL_X_HISTORY,
        ..PUSH
    },
    Command {
        name: "rpushx",
        run: push::rpushx,
        since: "2.2.0",
        summary: "Adds elements at the tail of a list, if there is one.",
        history: SEVERAL_X_HISTORY,
        ..PUSH
    },
    Command { name: "lpop", run: pop::lpop, summary: "Removes and answers elements at the head of a list.", ..POP },
    Command { name: "rpop", run: pop::rpop, summary: "Removes and answers elements at the tail of a list.", ..POP },
    Command {
        name: "lmpop",
        run: pop::lmpop,
        arity: -4,
        flags: WRITE | MOVABLE_KEYS,
        keys: &[KeySpec {
            flags: RW | ACCESS | DELETE,
            begin: Begin::Index(1),
            find: Find::KeyNum { at: 0, first: 1, step: 1 },
            notes: "",
        }],
        since: "7.0.0",
        complexity: "O(N+M) where N is the number of keys and M that of elements answered",
        summary: "Removes and answers elements of the first of several lists that has any.",
        arguments: &[
            integer("numkeys"),
            KEY.many(),
            one_of("where", LEFT_OR_RIGHT),
            integer("count").after("COUNT").optional(),
        ],
        ..LIST
    },
    Command {
        name: "blpop",
        run: blocking::blpop,
        arity: -3,
        flags: WRITE | BLOCKING,
        keys: &[key_range(1, -2, 1, RW | ACCESS | DELETE)],
        since: "2.0.0",
        complexity: "O(N) where N is the number of keys",
        summary: "Removes and answers the first element of the first of several lists that has any, or waits for one.",
        arguments: &[KEY.many(), double("timeout")],
        history: &[("6.0.0", "The timeout may have a fraction.")],
        ..LIST
    },
    Command {
        name: "brpop",
        run: blocking::brpop,
        arity: -3,
        flags: WRITE | BLOCKING,
        keys: &[key_range(1, -2, 1, RW | ACCESS | DELETE)],
        since: "2.0.0",
        complexity: "O(N) where N is the number of keys",
        summary: "Removes and answers the last element of the first of several lists that has any, or waits for one.",
        arguments: &[KEY.many(), double("timeout")],
        history: &[("6.0.0", "The timeout may have a fraction.")],
        ..LIST
    },
    Command {
        name: "blmpop",
        run: blocking::blmpop,
        arity: -5,
        flags: WRITE | BLOCKING | MOVABLE_KEYS,
        keys: &[KeySpec {
            flags: RW | ACCESS | DELETE,
            begin: Begin::Index(2),
            find: Find::KeyNum { at: 0, first: 1, step: 1 },
            notes: "",
        }],
        since: "7.0.0",
        complexity: "O(N+M) where N is the number of keys and M that of elements answered",
        summary: "Removes and answers elements of the first of several lists that has any, or waits for one.",
        arguments: &[
            double("timeout"),
            integer("numkeys"),
            KEY.many(),
            one_of("where", LEFT_OR_RIGHT),
            integer("count").after("COUNT").optional(),
        ],
        ..LIST
    },
    Command {
        name: "blmove",
        run: blocking::blmove,
        arity: 6,
        flags: WRITE | DENYOOM | BLOCKING,
        keys: &[key_at(1, RW | ACCESS | DELETE), key_at(2, RW | INSERT)],
        since: "6.2.0",
        summary: "Moves an element from a list to another and answers it, or waits for one.",
        arguments: &[
            key("source", 0),
            key("destination", 1),
            one_of("wherefrom", LEFT_OR_RIGHT),
            one_of("whereto", LEFT_OR_RIGHT),
            double("timeout"),
        ],
        ..LIST
    },
    Command {
        name: "brpoplpush",
        run: blocking::brpoplpush,
        arity: 4,
        flags: WRITE | DENYOOM | BLOCKING,
        keys: &[key_at(1, RW | ACCESS | DELETE), key_at(2, RW | INSERT)],
        since: "2.2.0",
        summary: "Moves the last element of a list to the head of another and answers it, or waits for one.",
        arguments: &[key("source", 0), key("destination", 1), double("timeout")],
        history: &[("6.0.0", "The timeout may have a fraction.")],
        deprecated: Some(("6.2.0", "`BLMOVE` with the `RIGHT` and `LEFT` arguments")),
        ..LIST
    },
    Command {
        name: "llen",
        run: read::llen,
        arity: 2,
        flags: READONLY | FAST,
        keys: &[key1(RO)],
        summary: "Counts the elements of a list.",
        arguments: &[KEY],
        ..LIST
    },
    Command {
        name: "lindex",
        run: read::lindex,
        arity: 3,
        flags: READONLY,
        keys: &[key1(RO | ACCESS)],
        complexity: "O(log N) where N is the length of the list",
        summary: "Answers one element of a list.",
        arguments: &[KEY, integer("index")],
        ..LIST
    },
    Command {
        name: "lrange",
        run: read::lrange,
        arity: 4,
        flags: READONLY,
        keys: &[key1(RO | ACCESS)],
        complexity: "O(log N+M) where N is the length of the list and M that of the range",
        summary: "Answers the elements of a range of a list.",
        arguments: &[KEY, integer("start"), integer("stop")],
        ..LIST
    },
    Command {
        name: "lpos",
        run: read::lpos,
        arity: -3,
        flags: READONLY,
        keys: &[key1(RO | ACCESS)],
        since: "6.0.6",
        complexity: "O(N) where N is the number of elements compared",
        summary: "Finds out where in a list an element is.",
        arguments: &[
            KEY,
            ELEMENT,
            integer("rank").after("RANK").optional(),
            integer("num-matches").after("COUNT").optional(),
            integer("len").after("MAXLEN").optional(),
        ],
        ..LIST
    },
    Command {
        name: "lset",
        run: change::lset,
        arity: 4,
        flags: WRITE | DENYOOM,
        keys: &[key1(RW | UPDATE)],
        complexity: "O(log N) where N is the length of the list",
        summary: "Puts another element in the place of one.",
        arguments: &[KEY, integer("index"), ELEMENT],
        ..LIST
    },
    Command {
        name: "linsert",
        run: change::linsert,
        arity: 5,
        flags: WRITE | DENYOOM,
        keys: &[key1(RW | INSERT)],
        since: "2.2.0",
        complexity: "O(N) where N is the number of elements compared",
        summary: "Adds an element before or behind the first one that equals another.",
        arguments: &[
            KEY,
            one_of("where", &[word("before", "BEFORE"), word("after", "AFTER")]),
            string("pivot"),
            ELEMENT,
        ],
        ..LIST
    },
    Command {
        name: "lrem",
        run: change::lrem,
        arity: 4,
        flags: WRITE,
        keys: &[key1(RW | DELETE)],
        complexity: "O(N) where N is the length of the list",
        summary: "Removes elements that equal one from a list.",
        arguments: &[KEY, integer("count"), ELEMENT],
        ..LIST
    },
    Command {
        name: "ltrim",
        run: change::ltrim,
        arity: 4,
        flags: WRITE,
        keys: &[key1(RW | DELETE)],
        complexity: "O(log N) where N is the length of the list; what is removed is freed in the background",
        summary: "Removes all elements of a list but those of a range.",
        arguments: &[KEY, integer("start"), integer("stop")],
        ..LIST
    },
    Command {
        name: "lmove",
        run: transfer::lmove,
        arity: 5,
        since: "6.2.0",
        summary: "Takes an element from an end of one list and adds it at an end of another, or of the same.",
        arguments: &[
            key("source", 0),
            key("destination", 1),
            one_of("wherefrom", LEFT_OR_RIGHT),
            one_of("whereto", LEFT_OR_RIGHT),
        ],
        ..TRANSFER
    },
    Command {
        name: "rpoplpush",
        run: transfer::rpoplpush,
        arity: 3,
        since: "1.2.0",
        summary: "Takes the last element of one list and adds it at the head of another, or of the same.",
        arguments: &[key("source", 0), key("destination", 1)],
        deprecated: Some(("6.2.0", "`LMOVE` with `RIGHT` and `LEFT`")),
        ..TRANSFER
    },
];

const RANGE: ReplyError =
    error("ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807");

/// The list that an entry holds.
#[inline]
fn list_of<'m>(entry: &Entry<'m>) -> Result<ListRef<'m>, ReplyError> {
    match entry.value() {
        ValueRef::List(list) => Ok(list),
        _ => Err(WRONG_TYPE),
    }
}

/// Up to which size lists are reported as compact.
#[inline]
fn node_limit(exec: &Exec<'_>) -> NodeLimit {
    NodeLimit::of(exec.local.config.list_max_listpack_size())
}

/// Elements that are compared in the time in which other commands handle one: a thread is due only for many.
const COMPARED_AT_ONCE: usize = 64;

/// Argument `i` as an end of a list: LEFT or RIGHT.
fn end(args: &Args<'_>, i: usize) -> Result<End, ReplyError> {
    if args.is(i, "left") {
        Ok(End::Head)
    } else if args.is(i, "right") {
        Ok(End::Tail)
    } else {
        Err(SYNTAX)
    }
}

/// Argument `i` as an integer whose sign can be changed.
fn symmetric(args: &Args<'_>, i: usize) -> Result<i64, ReplyError> {
    let n = args.int(i)?;
    if n == i64::MIN { Err(RANGE) } else { Ok(n) }
}

/// An index, negative ones counted from the end, of an element that a list of this length has.
fn index_of(index: i64, len: usize) -> Option<usize> {
    let index = match usize::try_from(index) {
        Ok(index) => index,
        Err(_) => len.checked_sub(usize::try_from(index.unsigned_abs()).ok()?)?,
    };
    (index < len).then_some(index)
}

/// The indices from `start` to `stop`, both included, negative ones counted from the end, that a list of this length has.
fn range_of(start: i64, stop: i64, len: usize) -> std::ops::Range<usize> {
    let absolute = |index: i64| match usize::try_from(index) {
        Ok(index) => Some(index),
        Err(_) => len.checked_sub(usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX)),
    };
    let start = absolute(start).unwrap_or(0);
    match absolute(stop) {
        Some(stop) if start <= stop && start < len => start..stop.saturating_add(1).min(len),
        _ => 0..0,
    }
}

/// What the wire calls a pop or a push at this end.
fn name_at(end: End, left: &'static str, right: &'static str) -> &'static str {
    match end {
        End::Head => left,
        End::Tail => right,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_count_from_both_ends() {
        assert_eq!(
            [0, 2, 3, -1, -3, -4].map(|index| index_of(index, 3)),
            [Some(0), Some(2), None, Some(2), Some(0), None]
        );
        assert_eq!((index_of(i64::MIN, 3), index_of(i64::MAX, 3), index_of(0, 0)), (None, None, None));
        for (start, stop, range) in [
            (0, -1, 0..3),
            (1, 1, 1..2),
            (-100, 100, 0..3),
            (-2, -1, 1..3),
            (2, 1, 0..0),
            (3, 5, 0..0),
            (0, -4, 0..0),
            (i64::MIN, i64::MAX, 0..3),
            (i64::MAX, i64::MAX, 0..0),
            (i64::MIN, i64::MIN, 0..0),
        ] {
            assert_eq!(range_of(start, stop, 3), range, "{start} {stop}");
        }
        assert_eq!(range_of(0, -1, 0), 0..0);
    }
}
