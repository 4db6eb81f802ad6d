//! One message on its way to its receivers: encoded once, for RESP2 and RESP3 alike. Invalidations travel likewise.
//!
//! The two protocols differ in the first bytes of a message only. So what is shared is channel and message as bulk strings
//! (the *body*); the few bytes before it are written for each receiver. A large body is attached by reference.

use super::Kind;
use crate::tracking::Tracker;
use gimmal_io::{ConnId, Output};
use gimmal_log::Lsn;
use gimmal_resp::{Writer, encode_bulk};
use gimmal_store::Rope;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// A body of this many bytes is attached to an output by reference.
const SHARE_FROM: usize = 16 * 1024;
/// Where clients that speak RESP2 get invalidations for others.
const CHANNEL: &str = "__redis__:invalidate";
/// The LSN of a publication whose command has not ended.
const UNSETTLED: Lsn = Lsn::MAX;

/// A message to publish.
#[derive(Debug, Clone, Copy)]
pub enum Payload<'a> {
    /// Bytes.
    Bytes(&'a [u8]),
    /// A large argument.
    Large(&'a Rope),
}

/// Channel and message, encoded; or an array of keys.
#[derive(Debug, Clone, Default)]
pub struct Body {
    bytes: Arc<Vec<u8>>,
    channel: Range<usize>,
}

/// What trackers are told.
#[derive(Debug, Clone)]
pub enum News {
    /// These keys have changed, or are remembered no longer.
    Keys(Body),
    /// All keys are gone.
    All,
    /// The client that is told for them, which had this id, is gone.
    Broken(u64),
}

/// A connection that gets an invalidation.
#[derive(Debug)]
pub struct Target {
    /// The connection.
    pub conn: ConnId,
    /// Who keeps copies.
    pub tracker: Arc<Tracker>,
    /// That is another client.
    pub redirected: bool,
}

impl Target {
    /// Whether there is a form for the connection, and its tracker still tracks. In RESP2 that is a message, and only for others.
    pub fn is_for(&self, resp3: bool, listens: bool) -> bool {
        self.tracker.is_on() && (resp3 || self.redirected && listens)
    }
}

/// A message, an invalidation, or a line for monitors.
#[derive(Debug)]
pub struct Publication {
    /// `None`: it is no message.
    kind: Option<Kind>,
    body: Body,
    /// Its number among those of its registry shard.
    number: u64,
    /// The version of the list of patterns, and those that match.
    patterns: (u64, Box<[Arc<[u8]>]>),
    /// An invalidation, if there are any.
    targets: Vec<Target>,
    news: News,
    lsn: AtomicU64,
}

impl Body {
    /// Encodes a message.
    pub fn message(channel: &[u8], message: Payload<'_>) -> Body {
        let len = match message {
            Payload::Bytes(bytes) => bytes.len(),
            Payload::Large(rope) => rope.len(),
        };
        const HEADERS: usize = 48;
        let mut bytes = Vec::with_capacity(channel.len().saturating_add(len).saturating_add(HEADERS));
        encode_bulk(&mut bytes, channel);
        let end = bytes.len() - 2;
        match message {
            Payload::Bytes(message) => encode_bulk(&mut bytes, message),
            Payload::Large(rope) => {
                gimmal_resp::encode_bulk_header(&mut bytes, rope.len());
                rope.extents().for_each(|extent| bytes.extend_from_slice(extent));
                bytes.extend_from_slice(b"\r\n");
            }
        }
        Body { bytes: Arc::new(bytes), channel: end - channel.len()..end }
    }

    /// Encodes an array of keys.
    pub fn keys<'k>(keys: impl Iterator<Item = &'k [u8]> + Clone) -> Body {
        let mut bytes = Vec::new();
        Writer::new(&mut bytes, true).array(keys.clone().count());
        keys.for_each(|key| encode_bulk(&mut bytes, key));
        Body { bytes: Arc::new(bytes), channel: 0..0 }
    }
}

impl Publication {
    /// A message; unless `settled`, it waits for [`Publication::settle`].
    pub fn new(kind: Kind, body: Body, number: u64, patterns: (u64, Box<[Arc<[u8]>]>), settled: bool) -> Publication {
        let lsn = AtomicU64::new(if settled { 0 } else { UNSETTLED });
        Publication { kind: Some(kind), body, number, patterns, targets: Vec::new(), news: News::All, lsn }
    }

    /// An invalidation; it waits for [`Publication::settle`].
    pub fn invalidation(targets: Vec<Target>, news: News) -> Publication {
        let body = match &news {
            News::Keys(keys) => keys.clone(),
            News::All | News::Broken(_) => Body::default(),
        };
        let lsn = AtomicU64::new(UNSETTLED);
        Publication { kind: None, body, number: 0, patterns: (0, Box::default()), targets, news, lsn }
    }

    /// A line for monitors.
    pub fn monitored(line: Vec<u8>) -> Publication {
        let body = Body { bytes: Arc::new(line), channel: 0..0 };
        let (patterns, targets) = ((0, Box::default()), Vec::new());
        Publication { kind: None, body, number: 0, patterns, targets, news: News::All, lsn: AtomicU64::new(0) }
    }

    /// Whom an invalidation is for; nobody if it is none.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// `None`: it is no message.
    pub fn kind(&self) -> Option<Kind> {
        self.kind
    }

    /// The channel.
    pub fn channel(&self) -> &[u8] {
        &self.body.bytes[self.body.channel.clone()]
    }

    /// Its number among those of its channel.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The version of the list of patterns that was matched, and the patterns that do.
    pub fn patterns(&self) -> (u64, &[Arc<[u8]>]) {
        (self.patterns.0, &self.patterns.1)
    }

    /// The LSN that it depends on, once that is known.
    pub fn lsn(&self) -> Option<Lsn> {
        Some(self.lsn.load(SeqCst)).filter(|lsn| *lsn != UNSETTLED)
    }

    /// The command that published it has ended, and depends on this.
    pub fn settle(&self, lsn: Lsn) {
        self.lsn.store(lsn, SeqCst);
    }

    /// Bytes that each receiver is sent, about.
    pub fn len(&self) -> usize {
        self.body.bytes.len()
    }

    /// There is always something to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the message as a subscriber of the channel gets it, or of `pattern`.
    pub fn write(&self, output: &mut Output, resp3: bool, pattern: Option<&[u8]>) {
        let bytes = output.bytes_mut();
        match (self.kind, pattern) {
            (None, _) => {}
            (Some(_), Some(pattern)) => {
                bytes.extend_from_slice(if resp3 { b">4\r\n$8\r\npmessage\r\n" } else { b"*4\r\n$8\r\npmessage\r\n" });
                encode_bulk(bytes, pattern);
            }
            (Some(Kind::Shard), None) => {
                bytes.extend_from_slice(if resp3 { b">3\r\n$8\r\nsmessage\r\n" } else { b"*3\r\n$8\r\nsmessage\r\n" });
            }
            (Some(_), None) => {
                bytes.extend_from_slice(if resp3 { b">3\r\n$7\r\nmessage\r\n" } else { b"*3\r\n$7\r\nmessage\r\n" });
            }
        }
        self.write_body(output);
    }

    fn write_body(&self, output: &mut Output) {
        if self.len() >= SHARE_FROM {
            output.push_shared(Arc::clone(&self.body.bytes), 0..self.len());
        } else {
            output.bytes_mut().extend_from_slice(&self.body.bytes);
        }
    }

    /// Appends an invalidation as this target gets it: a push, or a message of [`CHANNEL`].
    pub fn invalidate(&self, output: &mut Output, resp3: bool, target: &Target) {
        let mut writer = Writer::new(output.bytes_mut(), resp3);
        if let News::Broken(id) = self.news {
            writer.push(2);
            writer.bulk_str("tracking-redir-broken");
            return writer.integer(id.cast_signed());
        }
        debug_assert!(resp3 || target.redirected);
        writer.push(if resp3 { 2 } else { 3 });
        if resp3 {
            writer.bulk_str("invalidate");
        } else {
            writer.bulk_str("message");
            writer.bulk_str(CHANNEL);
        }
        match self.news {
            News::Keys(_) => self.write_body(output),
            _ => writer.null(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(publication: &Publication, resp3: bool, pattern: Option<&[u8]>) -> Vec<u8> {
        let mut output = Output::default();
        publication.write(&mut output, resp3, pattern);
        output.slices().flatten().copied().collect()
    }

    #[test]
    fn a_message_has_the_form_of_its_receiver() {
        let of = |kind, text: &[u8]| {
            Publication::new(kind, Body::message(b"ch", Payload::Bytes(text)), 0, (0, Box::default()), true)
        };
        let message = of(Kind::Channel, b"hi");
        assert_eq!(message.channel(), b"ch");
        assert_eq!(written(&message, false, None), b"*3\r\n$7\r\nmessage\r\n$2\r\nch\r\n$2\r\nhi\r\n");
        assert_eq!(written(&message, true, None), b">3\r\n$7\r\nmessage\r\n$2\r\nch\r\n$2\r\nhi\r\n");
        let expected = b">4\r\n$8\r\npmessage\r\n$2\r\nc*\r\n$2\r\nch\r\n$2\r\nhi\r\n";
        assert_eq!(written(&message, true, Some(b"c*")), expected);
        let sharded = of(Kind::Shard, b"");
        assert_eq!(written(&sharded, false, None), b"*3\r\n$8\r\nsmessage\r\n$2\r\nch\r\n$0\r\n\r\n");
    }

    #[test]
    fn a_large_message_is_shared_by_its_receivers() {
        let text = vec![b'x'; SHARE_FROM];
        let rope = Rope::from_slice(&text);
        let body = Body::message(b"ch", Payload::Large(&rope));
        let large = Publication::new(Kind::Channel, body, 0, (0, Box::default()), true);
        let small = Body::message(b"ch", Payload::Bytes(&text));
        assert_eq!(large.body.bytes, small.bytes);
        let mut outputs = [Output::default(), Output::default()];
        outputs.iter_mut().for_each(|output| large.write(output, false, None));
        assert_eq!(Arc::strong_count(&large.body.bytes), 3);
        assert!(written(&large, false, None).ends_with(b"xx\r\n"));
    }

    #[test]
    fn what_is_unsettled_has_no_lsn() {
        let body = Body::message(b"", Payload::Bytes(b""));
        let publication = Publication::new(Kind::Channel, body, 0, (0, Box::default()), false);
        assert_eq!(publication.lsn(), None);
        publication.settle(7);
        assert_eq!(publication.lsn(), Some(7));
    }
}
