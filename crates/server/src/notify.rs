//! Keyspace events: what happened to a key, published to `__keyspace@db__:key` and `__keyevent@db__:event`.
//!
//! A handler calls [`Exec::notify`] *under the key's lock*: then all workers' events of one key are published in the order of
//! its changes (`pubsub`). They are settled with the command's LSN when it has ended. With no class configured this is one
//! predictable branch. The alternative, a queue that is published when the command has
//! ended, was dropped: the lock is released by then, and another worker's event of the same key could overtake.

use crate::config::Events;
use crate::exec::Exec;
use crate::pubsub::{Kind, Payload};
use crate::shared::Shared;
use crate::worker::Local;

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
    /// Tells of a change of a key of the session's database; called under the key's lock.
    #[inline]
    pub fn notify(&mut self, class: Events, event: &'static str, key: &[u8]) {
        if self.local.events.intersects(class) {
            self.notify_in(self.session.db, class, event, key);
        }
    }

    /// As [`Exec::notify`], for a key of database `db`.
    #[inline]
    pub fn notify_in(&mut self, db: usize, class: Events, event: &'static str, key: &[u8]) {
        if self.local.events.intersects(class) {
            self.local.notify(self.shared, db, event, key);
        }
    }
}

impl Local {
    /// Tells that a key was removed because its time had come.
    #[inline]
    pub fn expired(&mut self, shared: &Shared, db: usize, key: &[u8]) {
        if self.events.intersects(EXPIRED) {
            self.notify(shared, db, "expired", key);
        }
    }

    /// Tells that fields of a hash were removed because their time had come, and the key too if it was `emptied`.
    pub fn fields_expired(&mut self, shared: &Shared, db: usize, key: &[u8], emptied: bool) {
        if self.events.intersects(HASH) {
            self.notify(shared, db, "hexpired", key);
        }
        if emptied && self.events.intersects(GENERIC) {
            self.notify(shared, db, "del", key);
        }
    }

    /// Publishes an event: to those who listen to the key, then to those who listen to the event.
    #[cold]
    pub fn notify(&mut self, shared: &Shared, db: usize, event: &str, key: &[u8]) {
        if !shared.pubsub.has_listeners(Kind::Channel) {
            return;
        }
        let mut channel = Vec::with_capacity(32 + key.len());
        if self.events.intersects(Events::KEYSPACE) {
            channel.extend_from_slice(format!("__keyspace@{db}__:").as_bytes());
            channel.extend_from_slice(key);
            self.publish(shared, Kind::Channel, &channel, Payload::Bytes(event.as_bytes()));
        }
        if self.events.intersects(Events::KEYEVENT) {
            channel.clear();
            channel.extend_from_slice(format!("__keyevent@{db}__:{event}").as_bytes());
            self.publish(shared, Kind::Channel, &channel, Payload::Bytes(key));
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
