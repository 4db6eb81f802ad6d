//! Who receives a decoded value: elements as they are read, so that a big value is built once, where it belongs.

use crate::stream::{Fields, Group, StreamId, StreamMeta};

/// Builds one value. The decoder calls [`begin`](Sink::begin), then what belongs to the type, in the order of the data.
///
/// The decoder checks form and bounds; *that members and fields are unique is checked by the sink*, which finds out anyway
/// when it inserts them. After any error what was built is to be dropped.
pub trait Sink {
    /// A value of this type follows. `len` is the number of elements (bytes of a string) that the data declares where it
    /// does: a hint from an untrusted source, not to be allocated without a bound.
    fn begin(&mut self, kind: Kind, len: Option<u64>) -> Taken;

    /// A part of a string; `rest` bytes will follow in further parts, none with the last. Strings of up to
    /// [`PART`](crate::PART) bytes come at once.
    fn string(&mut self, part: &[u8], rest: u64) -> Taken;

    /// The next item of a list.
    fn list_item(&mut self, item: &[u8]) -> Taken;

    /// A member of a set.
    fn set_member(&mut self, member: &[u8]) -> Taken;

    /// A member of a sorted set; they come in any order. The score is never NaN.
    fn sorted_set_member(&mut self, member: &[u8], score: f64) -> Taken;

    /// A field of a hash, and when it expires (Unix time in milliseconds), which may be past.
    fn hash_field(&mut self, field: &[u8], value: &[u8], expire_at_ms: Option<u64>) -> Taken;

    /// The next entry of a stream; their ids ascend.
    fn stream_entry(&mut self, id: StreamId, fields: &Fields) -> Taken;

    /// What a stream knows beside its entries; after these.
    fn stream_meta(&mut self, meta: &StreamMeta) -> Taken;

    /// A consumer group; after [`stream_meta`](Sink::stream_meta). Names of groups are unique, and so is everything in it.
    fn stream_group(&mut self, group: Group) -> Taken;
}

/// Whether a sink took an element.
pub type Taken = Result<(), Refusal>;

/// Why a sink did not take an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The value contains it already.
    Duplicate,
    /// Another reason, as the text of the error.
    Other(&'static str),
}

/// The types of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A string.
    String,
    /// A list.
    List,
    /// A set.
    Set,
    /// A sorted set.
    SortedSet,
    /// A hash.
    Hash,
    /// A stream.
    Stream,
}
