//! Where large trees go that nobody holds any more.
//!
//! A tree is shared by whoever holds its root: a reply that is being written, a copy, a result that was not wanted. The last
//! of them to let go has all of its pages to free, and nobody knows beforehand who that will be. So it is the tree that hands its
//! pages over when it is dropped, to what the thread has registered here: a worker has a background thread free them. A thread that
//! has registered nothing frees them itself. Large buffers of other kinds go the same way.
//!
//! Dropped: handing over at each place that holds a root (one that is forgotten is a worker that stands still).

use std::any::Any;
use std::cell::RefCell;

/// What is to be dropped where that does no harm.
pub type Garbage = Box<dyn Any + Send>;

/// Bytes of pages that are freed on the spot: some µs.
pub const FREED_AT_ONCE: usize = 64 * 4096;

type Taker = Box<dyn Fn(Garbage)>;

thread_local! {
    static TAKER: RefCell<Option<Taker>> = const { RefCell::new(None) };
}

/// From now on `take` gets the pages of large trees that this thread drops. It must not drop such trees itself while it is called.
pub fn give_to(take: impl Fn(Garbage) + 'static) {
    TAKER.set(Some(Box::new(take)));
}

/// Drops `garbage`, or hands it over.
#[cold]
pub fn dispose(garbage: impl Any + Send) {
    // At the end of a thread there may be no taker any more: then it is freed here.
    let given = TAKER.try_with(|taker| match &*taker.borrow() {
        Some(take) => {
            take(Box::new(garbage));
            None
        }
        None => Some(garbage),
    });
    drop(given);
}

#[cfg(test)]
mod tests {
    use super::super::list::List;
    use super::super::{End, NodeLimit};
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    fn list(elements: usize) -> List {
        let mut list = List::empty_in(Vec::new());
        (0..elements).for_each(|_| list.push(End::Tail, b"a dozen bytes"));
        list
    }

    /// A copy of a large list that was the last to hold its pages made a worker free all of them.
    #[test]
    fn who_lets_go_last_hands_the_pages_over() {
        let taken = Rc::new(Cell::new(0));
        let counter = taken.clone();
        give_to(move |garbage| {
            drop(garbage);
            counter.set(counter.get() + 1);
        });
        let large = list(100_000);
        let copy = large.clone();
        drop(large);
        assert_eq!(taken.get(), 0, "the copy has them");
        drop(copy);
        assert_eq!(taken.get(), 1);
        drop(list(1000));
        assert_eq!(taken.get(), 1, "a few pages are freed at once");
        let mut cut = list(100_000);
        cut.remove_range(10..90_000, NodeLimit::Bytes(8192));
        assert_eq!((taken.get(), cut.view().len()), (2, 10_010));
    }
}
