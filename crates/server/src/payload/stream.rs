//! Streams in both of their shapes.
//!
//! The store keeps a group's pending entries with the numbers of their consumers, a payload with the consumers' places among
//! their group's. A consumer's time of its last success does not survive a payload for Redis 7.0.

use gimmal_rdb::{self as rdb, Consumer, Pairs, StreamMeta};
use gimmal_store::types::Stream;
use gimmal_store::types::stream::{Group, StreamEntry, StreamId};
use std::collections::HashMap;

/// An id, written.
pub fn id(id: StreamId) -> rdb::StreamId {
    rdb::StreamId { ms: id.ms, seq: id.seq }
}

/// An id, read.
pub fn read_id(id: rdb::StreamId) -> StreamId {
    StreamId { ms: id.ms, seq: id.seq }
}

/// Fields and values of an entry.
pub fn pairs(entry: &StreamEntry<'_>) -> Pairs {
    entry.fields().map(|(field, value)| (field.to_vec(), value.to_vec())).collect()
}

/// What a stream knows beside entries and groups.
pub fn meta(stream: &Stream) -> StreamMeta {
    StreamMeta {
        length: stream.len() as u64,
        last_id: id(stream.last_id()),
        first_id: id(stream.first_id()),
        max_deleted_id: id(stream.max_deleted_id()),
        entries_added: stream.entries_added(),
    }
}

/// A group, written.
pub fn group(name: &[u8], group: &Group) -> rdb::Group {
    let names: HashMap<&[u8], usize> = group.consumers().map(|consumer| consumer.name()).zip(0..).collect();
    let consumer = |consumer: &gimmal_store::types::stream::Consumer| Consumer {
        name: consumer.name().to_vec(),
        seen_time_ms: consumer.seen_ms,
        active_time_ms: consumer.active_ms,
    };
    let pending = group.pending_from(StreamId::MIN).map(|pending| rdb::Pending {
        id: id(pending.id),
        delivery_time_ms: pending.delivered_ms,
        delivery_count: pending.deliveries,
        consumer: names[group.owner(&pending).name()],
    });
    rdb::Group {
        name: name.to_vec(),
        last_id: id(group.last_id),
        entries_read: group.entries_read,
        consumers: group.consumers().map(consumer).collect(),
        pending: pending.collect(),
    }
}

/// A group, read.
pub fn read_group(read: &rdb::Group) -> Group {
    let mut group = Group::new(read_id(read.last_id), read.entries_read);
    for consumer in &read.consumers {
        group.create_consumer(&consumer.name, consumer.seen_time_ms);
        group.set_times(&consumer.name, consumer.seen_time_ms, consumer.active_time_ms);
    }
    for pending in &read.pending {
        let consumer = &read.consumers[pending.consumer].name;
        group.put(read_id(pending.id), consumer, pending.delivery_time_ms, pending.delivery_count);
    }
    group
}
