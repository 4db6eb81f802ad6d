//! A command that outlives the buffer in which it came: parked until it can lock, waiting for a key, or in the hands of a thread.
//!
//! Whoever needs it shares it: a command of very many arguments, which takes long to copy, is kept by taking over its buffer when it
//! begins ([`crate::serve`]), and whoever keeps it after that ([`Exec::keep`]) gets the same.

use crate::args::{Args, Detached};
use crate::exec::Exec;
use gimmal_resp::Span;
use gimmal_store::types::disposal;
use std::sync::Arc;

/// A command with all that its arguments are made of.
#[derive(Debug)]
pub struct Kept {
    /// What its spans point into, from `from` on.
    bytes: Vec<u8>,
    from: usize,
    spans: Vec<Span>,
    /// Its large and inline arguments.
    detached: Vec<Detached>,
    /// Bytes in which it was sent, if that is known.
    sent: Option<usize>,
}

impl Kept {
    /// Takes over the buffer of a command that begins at `from`.
    pub fn taken(bytes: Vec<u8>, from: usize, spans: Vec<Span>, detached: Vec<Detached>) -> Kept {
        let sent = detached.is_empty().then(|| bytes.len() - from);
        Kept { bytes, from, spans, detached, sent }
    }

    /// Copies a command; its large arguments are shared.
    pub fn copied(args: &Args<'_>) -> Kept {
        let mut bytes = Vec::new();
        let mut detached = Vec::new();
        let position = |len: usize| u32::try_from(len).expect("a command's bytes fit 32 bits, as its own spans do");
        let copy = |(i, span): (usize, &Span)| match args.detached(i) {
            Some(argument) => {
                detached.push(argument.clone());
                Span { start: Span::DETACHED, len: position(detached.len() - 1) }
            }
            None => {
                let start = position(bytes.len());
                bytes.extend_from_slice(args.at(i));
                Span { start, len: span.len }
            }
        };
        let spans = args.spans().iter().enumerate().map(copy).collect();
        Kept { bytes, from: 0, spans, detached, sent: None }
    }

    /// Its arguments.
    pub fn args(&self) -> Args<'_> {
        Args::new(&self.bytes[self.from..], &self.spans, &self.detached)
    }

    /// Bytes that it keeps, but for large arguments.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl Drop for Kept {
    /// The buffers of a large command are freed where that holds nobody up, whoever is the last to share it.
    fn drop(&mut self) {
        if self.bytes.capacity() + self.spans.capacity() * size_of::<Span>() > disposal::FREED_AT_ONCE {
            disposal::dispose((std::mem::take(&mut self.bytes), std::mem::take(&mut self.spans)));
        }
    }
}

impl Exec<'_> {
    /// Keeps the command that runs beyond its end: shares it if it is kept already, copies it if not.
    pub fn keep(&self, args: &Args<'_>) -> Arc<Kept> {
        self.kept(args).cloned().unwrap_or_else(|| Arc::new(Kept::copied(args)))
    }

    fn kept(&self, args: &Args<'_>) -> Option<&Arc<Kept>> {
        self.local.kept.as_ref().filter(|kept| std::ptr::eq(kept.spans.as_slice(), args.spans()))
    }

    /// Bytes of the command that runs, as its client sent it: of one with millions of arguments they are not counted.
    pub fn sent_bytes(&self, args: &Args<'_>) -> usize {
        self.kept(args).and_then(|kept| kept.sent).unwrap_or_else(|| args.encoded_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gimmal_store::Rope;

    #[test]
    fn a_copy_has_the_same_arguments() {
        let span = |start, len| Span { start, len };
        let large = [Detached::from(Rope::from_slice(b"large")), Detached::Bytes(b"word".to_vec())];
        let spans = [span(4, 3), span(Span::DETACHED, 1), span(13, 3), span(Span::DETACHED, 0)];
        let args = Args::new(b"$3\r\nSET\r\n$3\r\nkey\r\n", &spans, &large);
        let kept = Kept::copied(&args);
        let copied: Vec<&[u8]> = kept.args().rest(0).collect();
        assert_eq!(copied, [&b"SET"[..], b"word", b"key", b"large"]);
        assert!(kept.args().rope(3).is_some() && kept.args().rope(1).is_none());
        assert_eq!(kept.bytes(), 6, "nothing but the arguments");
    }

    #[test]
    fn a_buffer_is_taken_over_as_it_is() {
        let bytes = b"*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".to_vec();
        let spans = vec![Span { start: 8, len: 3 }, Span { start: 17, len: 1 }];
        let kept = Kept::taken(bytes, 14, spans, Vec::new());
        let words: Vec<&[u8]> = kept.args().rest(0).collect();
        assert_eq!(words, [&b"GET"[..], b"k"]);
        assert_eq!(kept.sent, Some(kept.args().encoded_bytes()));
    }
}
