//! A list whose elements are answered after its lock was released: it is held by its root, as it was.

use super::End;
use crate::exec::{Exec, Outcome};
use crate::reply::Reply;
use crate::streamed::{self, Elements};
use gimmal_store::types::{List, ListRef};
use std::ops::Range;

/// The list, and from which end its elements are counted.
pub(super) struct Held {
    list: List,
    from: End,
}

impl Held {
    /// Holds a list.
    pub(super) fn new(list: ListRef<'_>, from: End) -> Held {
        Held { list: list.to_owned(), from }
    }

    /// Answers elements in slices; the array's header was written.
    pub(super) fn answer(self, exec: &mut Exec<'_>, range: Range<usize>) -> Outcome {
        streamed::elements(exec, range, self)
    }
}

impl Elements for Held {
    fn write(&self, ranks: Range<usize>, reply: &mut Reply<'_>) {
        write(self.list.view(), self.from, ranks, reply);
    }
}

/// Writes elements, counted from an end.
pub(super) fn write(list: ListRef<'_>, from: End, ranks: Range<usize>, reply: &mut Reply<'_>) {
    let mut reply = reply.put();
    if ranks.is_empty() {
        return;
    }
    if ranks.len() == 1 {
        let index = if from == End::Head { ranks.start } else { list.len() - 1 - ranks.start };
        return reply.bulk(list.nth(index).expect("the caller counted"));
    }
    match from {
        End::Head => list.iter_from(ranks.start).take(ranks.len()).for_each(|element| reply.bulk(element)),
        End::Tail => {
            list.rev_from(list.len() - 1 - ranks.start).take(ranks.len()).for_each(|element| reply.bulk(element));
        }
    }
}
