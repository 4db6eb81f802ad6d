//! [`LockQueue`]: one lock around a linked list. The list's nodes are made and freed outside of the lock, which is held
//! for the time of a few stores.

use std::collections::LinkedList;

use super::sync::Mutex;

/// First in, first out, behind a lock.
#[derive(Debug)]
pub(super) struct LockQueue(Mutex<LinkedList<u32>>);

impl LockQueue {
    pub(super) fn new() -> LockQueue {
        LockQueue(Mutex::new(LinkedList::new()))
    }

    pub(super) fn enqueue(&self, value: u32) {
        let mut node = LinkedList::from([value]);
        self.0.lock().expect("nothing panics under this lock").append(&mut node);
    }

    pub(super) fn dequeue(&self) -> Option<u32> {
        let mut list = self.0.lock().expect("nothing panics under this lock");
        if list.is_empty() {
            return None;
        }
        let rest = list.split_off(1);
        let mut first = std::mem::replace(&mut *list, rest);
        drop(list);
        first.pop_front()
    }
}
