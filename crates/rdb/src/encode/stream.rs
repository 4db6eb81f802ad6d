//! Streams: nodes of entries, then what is known of the stream, then groups with their pending entries and consumers.

use super::{Encoder, write_length};
use crate::listpack::size_bound;
use crate::options::{Options, Version};
use crate::stream::{Group, SAME_FIELDS, StreamId, StreamMeta};
use crate::tag;
use std::borrow::Borrow;
use std::io::{self, Write};

impl<W: Write> Encoder<'_, W> {
    /// A stream of `meta.length` entries, ids ascending, each with at least one field. Groups are as a decoder gives them:
    /// pending entries in order, each with a consumer of the group.
    pub fn stream<E, P, F, V, G>(
        mut self,
        meta: &StreamMeta,
        entries: E,
        groups: impl IntoIterator<Item = G, IntoIter: ExactSizeIterator>,
    ) -> io::Result<()>
    where
        E: IntoIterator<Item = (StreamId, P)> + Clone,
        P: IntoIterator<Item = (F, V)>,
        F: AsRef<[u8]>,
        V: AsRef<[u8]>,
        G: Borrow<Group>,
    {
        self.tag(tag_of(self.options))?;
        let mut nodes = Nodes::new(self.options);
        let mut count = 0;
        for (_, pairs) in entries.clone() {
            count += u64::from(nodes.begins_with(size(pairs)));
        }
        write_length(self.out, count)?;
        let mut nodes = Nodes::new(self.options);
        let mut node: Vec<(StreamId, Vec<(F, V)>)> = Vec::new();
        let mut written = 0;
        for (id, pairs) in entries {
            let pairs: Vec<(F, V)> = pairs.into_iter().collect();
            if nodes.begins_with(size(pairs.iter().map(|(field, value)| (field.as_ref(), value.as_ref())))) {
                self.stream_node(&node)?;
                node.clear();
            }
            node.push((id, pairs));
            written += 1;
        }
        self.stream_node(&node)?;
        super::same(meta.length, written)?;
        let groups = groups.into_iter();
        self.stream_meta(meta, groups.len() as u64)?;
        groups.into_iter().try_for_each(|group| self.group(group.borrow()))
    }

    /// What follows the nodes, up to the first group.
    pub(super) fn stream_meta(&mut self, meta: &StreamMeta, groups: u64) -> io::Result<()> {
        write_length(self.out, meta.length)?;
        for id in [meta.last_id, meta.first_id, meta.max_deleted_id] {
            self.id(id)?;
        }
        write_length(self.out, meta.entries_added)?;
        write_length(self.out, groups)
    }

    pub(super) fn stream_node<F: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        node: &[(StreamId, Vec<(F, V)>)],
    ) -> io::Result<()> {
        let Some((first_id, master)) = node.first() else { return Ok(()) };
        let listpack = &mut self.scratch.listpack;
        listpack.clear();
        listpack.push_int(node.len() as i64);
        listpack.push_int(0);
        listpack.push_int(master.len() as i64);
        for (field, _) in master {
            listpack.push(field.as_ref());
        }
        listpack.push_int(0);
        for (id, pairs) in node {
            let fields = pairs.iter().map(|(field, _)| field.as_ref());
            let has_same_fields = fields.eq(master.iter().map(|(field, _)| field.as_ref()));
            let before = listpack.count();
            listpack.push_int(if has_same_fields { SAME_FIELDS } else { 0 });
            listpack.push_int(id.ms.wrapping_sub(first_id.ms).cast_signed());
            listpack.push_int(id.seq.wrapping_sub(first_id.seq).cast_signed());
            if !has_same_fields {
                listpack.push_int(pairs.len() as i64);
            }
            for (field, value) in pairs {
                if !has_same_fields {
                    listpack.push(field.as_ref());
                }
                listpack.push(value.as_ref());
            }
            let elements = listpack.count() - before;
            listpack.push_int(elements.cast_signed());
        }
        write_length(self.out, 16)?;
        self.out.write_all(&first_id.to_be_bytes())?;
        self.node()
    }

    fn id(&mut self, id: StreamId) -> io::Result<()> {
        write_length(self.out, id.ms)?;
        write_length(self.out, id.seq)
    }

    pub(super) fn group(&mut self, group: &Group) -> io::Result<()> {
        let has_active_time = has_active_time(self.options);
        self.text(&group.name)?;
        self.id(group.last_id)?;
        write_length(self.out, group.entries_read.unwrap_or(u64::MAX))?;
        write_length(self.out, group.pending.len() as u64)?;
        let mut claims = vec![Vec::new(); group.consumers.len()];
        for pending in &group.pending {
            self.out.write_all(&pending.id.to_be_bytes())?;
            self.out.write_all(&pending.delivery_time_ms.to_le_bytes())?;
            write_length(self.out, pending.delivery_count)?;
            let Some(claims) = claims.get_mut(pending.consumer) else {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "a pending entry's consumer is not of the group",
                ));
            };
            claims.push(pending.id);
        }
        write_length(self.out, group.consumers.len() as u64)?;
        for (consumer, claims) in group.consumers.iter().zip(claims) {
            self.text(&consumer.name)?;
            self.out.write_all(&consumer.seen_time_ms.to_le_bytes())?;
            if has_active_time {
                self.out.write_all(&consumer.active_time_ms.to_le_bytes())?;
            }
            write_length(self.out, claims.len() as u64)?;
            claims.iter().try_for_each(|id| self.out.write_all(&id.to_be_bytes()))?;
        }
        Ok(())
    }
}

/// The type under which a stream is written.
pub(super) fn tag_of(options: &Options) -> u8 {
    if has_active_time(options) { tag::STREAM_LISTPACKS_3 } else { tag::STREAM_LISTPACKS_2 }
}

fn has_active_time(options: &Options) -> bool {
    options.version >= Version::V11
}

/// An upper bound of an entry's size in a node.
pub(super) fn size<F: AsRef<[u8]>, V: AsRef<[u8]>>(pairs: impl IntoIterator<Item = (F, V)>) -> usize {
    let sizes = pairs.into_iter().map(|(field, value)| [field.as_ref().len(), value.as_ref().len()].map(size_bound));
    // Flags, two differences and two numbers of elements; the fields twice, because the master entry has them too.
    sizes.fold(5 * 11, |sum, [field, value]| sum.saturating_add(field).saturating_add(field).saturating_add(value))
}

/// Cuts a stream into nodes; the same way each time.
#[derive(Debug)]
pub(super) struct Nodes {
    max_bytes: usize,
    max_entries: usize,
    bytes: usize,
    entries: usize,
}

impl Nodes {
    pub(super) fn new(options: &Options) -> Nodes {
        let (max_bytes, max_entries) = (options.stream_node_max_bytes, options.stream_node_max_entries);
        let bound = |max: usize, at_most: usize| if max == 0 { at_most } else { max.min(at_most) };
        // Without directives a node is bounded by what one listpack and its count are good for.
        Nodes { max_bytes: bound(max_bytes, 1 << 20), max_entries: bound(max_entries, 10_000), bytes: 0, entries: 0 }
    }

    /// Whether an entry of this size begins a node.
    pub(super) fn begins_with(&mut self, size: usize) -> bool {
        let begins =
            self.entries == 0 || self.entries >= self.max_entries || self.bytes.saturating_add(size) > self.max_bytes;
        if begins {
            (self.entries, self.bytes) = (0, 0);
        }
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(size);
        begins
    }
}
