//! The request parser: finds the commands in the bytes that a connection received, without copying them.
//!
//! A command is an array of bulk strings, or an inline command (a line of text). The parser answers with [`Span`]s into
//! the caller's buffer and never looks at an argument's bytes.
//!
//! # What is kept between calls
//! An idle parser is one null pointer. When a command is cut off, the caller keeps its bytes and the parser keeps, in one
//! allocation, the spans found so far (relative to the command's first byte) and where to go on: each header is parsed
//! once, so a command of a million arguments that arrives in small pieces takes linear time. An unfinished line is
//! looked through again, which is bounded by [`MAX_LINE`]. Nothing is ever allocated from a declared length.
//!
//! # Large arguments
//! A bulk string of [`LARGE`] bytes or more that is not complete in the buffer is not accumulated behind the command's
//! other bytes, but goes into a buffer of the caller's, which can then become the stored value without another copy.
//! [`Next::Large`] moves the position to the first byte of the payload that is still to be taken. The bytes of the command
//! before it, its *prefix*, stay where they are and are kept; the payload's bytes are taken out. So at the next call the
//! buffer must hold the prefix, and directly behind it what followed the taken bytes in the stream.
//! The spans found before the large argument point into the prefix and stay valid.
//!
//! # How a connection uses it
//! ```
//! use gimmal_resp::{Limits, Next, Parser, encode_command};
//!
//! let value = vec![b'v'; 100_000];
//! let mut stream = Vec::new();
//! encode_command(&mut stream, &[b"SET", &b"key"[..], &value]);
//!
//! let (mut parser, limits) = (Parser::default(), Limits::default());
//! let (mut kept, mut taken) = (Vec::new(), Vec::new()); // an unfinished command; its large argument
//! let mut args = Vec::new();
//! for mut received in stream.chunks(16 * 1024) {
//!     if parser.large_missing() > 0 {
//!         let (payload, rest) = received.split_at(received.len().min(parser.large_missing()));
//!         taken.extend_from_slice(payload);
//!         parser.large_taken(payload.len());
//!         received = rest;
//!     }
//!     if parser.large_missing() > 0 {
//!         continue;
//!     }
//!     kept.extend_from_slice(received); // nothing to copy when nothing was kept: parse `received` itself
//!     let mut pos = 0;
//!     match parser.next(&kept, &mut pos, &limits, &mut args)? {
//!         Next::Large { .. } => {
//!             taken.extend_from_slice(&kept[pos..]);
//!             parser.large_taken(kept.len() - pos);
//!             kept.truncate(pos); // the prefix, which began at 0
//!         }
//!         Next::Command => {
//!             assert_eq!(args[1].bytes(&kept), b"key");
//!             assert!(args[2].is_detached() && args[2].len == 0 && taken == value);
//!         }
//!         Next::Inline(_) | Next::Incomplete => unreachable!("not in this stream"),
//!     }
//! }
//! assert_eq!(args.len(), 3);
//! # Ok::<(), gimmal_resp::ProtocolError>(())
//! ```
//!
//! # Departures from Redis
//! Redis searches lines as C strings, so a NUL byte in one makes it wait for its 64 KiB limit; here it is an ordinary byte,
//! that is an error in a length and text in an inline command. As in Redis, the byte after a CR and the two bytes after a
//! payload are skipped unseen.
//!
//! The alternative that was dropped is a push parser that copies every argument out: it costs one allocation and one copy
//! per argument, which is more than the rest of a pipelined GET.

use crate::error::ProtocolError;
use crate::inline::{plain_args, split_args};
use crate::number::{Short, parse_i64, short_header, short_length};

/// Where an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte in the buffer given to [`Parser::next`] when it answered [`Next::Command`], or
    /// [`Span::DETACHED`].
    pub start: u32,
    /// Length in bytes; of a detached argument, its index among the detached arguments of this command.
    pub len: u32,
}

impl Span {
    /// The `start` of an argument that is not in the buffer but was taken by the caller (see [`Next::Large`]).
    pub const DETACHED: u32 = u32::MAX;

    /// Whether the argument was taken by the caller; `len` is then its index.
    #[inline]
    pub fn is_detached(self) -> bool {
        self.start == Span::DETACHED
    }

    /// The argument's bytes. `buf` is the buffer given to [`Parser::next`] when it answered [`Next::Command`].
    ///
    /// # Panics
    /// When the span is detached or does not belong to `buf`.
    #[inline]
    pub fn bytes(self, buf: &[u8]) -> &[u8] {
        let start = self.start as usize;
        &buf[start..start + self.len as usize]
    }
}

/// What a client may send. Differs before and after authentication, so a caller that parses ahead of execution must not
/// do so before: the next command's limits may depend on this one.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most arguments of one command.
    pub max_args: usize,
    /// The longest argument, in bytes.
    pub max_bulk: usize,
    /// Whether the client has authenticated (or need not): decides the error texts, and bounds inline commands before.
    pub authenticated: bool,
}

impl Limits {
    /// The limits of a client that may run commands. `max_bulk` is the directive `proto-max-bulk-len`.
    pub const fn authenticated(max_bulk: usize) -> Limits {
        Limits { max_args: MAX_ARGS, max_bulk, authenticated: true }
    }

    /// The limits of a client that must authenticate first: as Redis, 10 arguments of at most 16 KiB.
    pub const fn unauthenticated() -> Limits {
        Limits { max_args: 10, max_bulk: 16 * 1024, authenticated: false }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::authenticated(DEFAULT_MAX_BULK)
    }
}

/// What [`Parser::next`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// A command; the spans of its arguments were appended, and the position moved behind it. There may be none (an empty
    /// line, `*0`, `*-1`): such a command is skipped without an answer.
    Command,
    /// A command that was sent as a line of text with quotes, with at least one argument. No spans were appended. Of a line
    /// without quotes the arguments are in the buffer: it is a [`Next::Command`].
    Inline(Vec<Vec<u8>>),
    /// The buffer ends inside a command, or at its end. The position is the first byte to keep: the caller calls again
    /// with these bytes (at any place of any buffer) and more behind them.
    Incomplete,
    /// The next argument is a bulk string of at least [`LARGE`] bytes of which only a part is in the buffer. The position
    /// is where that part begins; all of `buf[*pos..]` belongs to it, and that is less than `missing`.
    ///
    /// The caller moves the bytes from there into a buffer of its own, says so with [`Parser::large_taken`], keeps the
    /// bytes from the former position up to this one, and goes on receiving into its own buffer until nothing is missing.
    /// Then it calls again as described [above](self#large-arguments). (Should it call earlier, with nothing but the kept
    /// bytes, the answer is this again, for the same argument.)
    Large {
        /// How many bytes of the payload have not been taken yet, those in the buffer included.
        missing: usize,
    },
}

/// Finds commands in received bytes. One per connection; 8 bytes while no command is cut off.
///
/// After an error the parser must not be used again: the stream has no known boundary any more.
#[derive(Debug, Default)]
pub struct Parser {
    partial: Option<Box<Partial>>,
}

impl Parser {
    /// Looks for the next command in `buf[*pos..]`.
    ///
    /// The spans of a command are appended to `args`, relative to the start of `buf`; on any other outcome, an error
    /// included, `args` is as it was, so that one vector can collect the commands of a pipeline.
    ///
    /// # Errors
    /// [`ProtocolError`] when the bytes are no RESP request or exceed the limits. The commands before are unaffected.
    #[inline]
    pub fn next(
        &mut self,
        buf: &[u8],
        pos: &mut usize,
        limits: &Limits,
        args: &mut Vec<Span>,
    ) -> Result<Next, ProtocolError> {
        if self.partial.is_some() {
            return self.resume(buf, pos, limits, args);
        }
        let start = *pos;
        if let Some(end) = usual_command(buf, start, limits, args) {
            *pos = end;
            return Ok(Next::Command);
        }
        self.next_unusual(buf, pos, limits, args)
    }

    /// As [`Parser::next`], for a pipeline, in which commands repeat themselves: `last` is how the command before, found under the
    /// same limits, began, and becomes how this one does. `true` comes with a command of the same name and number of arguments.
    ///
    /// # Errors
    /// As [`Parser::next`].
    #[inline]
    pub fn next_after(
        &mut self,
        buf: &[u8],
        pos: &mut usize,
        limits: &Limits,
        args: &mut Vec<Span>,
        last: &mut Beginning,
    ) -> Result<(Next, bool), ProtocolError> {
        let start = *pos;
        if self.partial.is_none() && buf.len() < Span::DETACHED as usize {
            let first = args.len();
            let behind = last.behind(start);
            if last.is_at(buf, start) && behind <= buf.len() {
                args.push(last.name(start));
                if let Some(end) = usual_arguments(buf, behind, last.arguments, limits, first, args) {
                    *pos = end;
                    return Ok((Next::Command, true));
                }
            } else if let Some(end) = usual_command(buf, start, limits, args) {
                *last = Beginning::of(buf, start, &args[first..]);
                *pos = end;
                return Ok((Next::Command, false));
            }
        }
        let next = match self.partial {
            Some(_) => self.resume(buf, pos, limits, args)?,
            None => self.next_unusual(buf, pos, limits, args)?,
        };
        if matches!(next, Next::Command | Next::Inline(_)) {
            *last = Beginning::default();
        }
        Ok((next, false))
    }

    /// What is not all there, or not usual.
    fn next_unusual(
        &mut self,
        buf: &[u8],
        pos: &mut usize,
        limits: &Limits,
        args: &mut Vec<Span>,
    ) -> Result<Next, ProtocolError> {
        let start = *pos;
        match buf.get(start) {
            None => return Ok(Next::Incomplete),
            Some(b'*') => {}
            Some(_) => return inline(buf, pos, limits, args),
        }
        let (left, at) = match short_length(buf, start + 1) {
            Short::Value(count, at) => (count, at),
            Short::Unusual => match unusual_count(buf, start)? {
                None => return Ok(Next::Incomplete),
                Some(found) => found,
            },
        };
        if left as usize > limits.max_args {
            return Err(too_many_arguments(limits));
        }
        let first = args.len();
        let mut place = Place { at, left };
        match place.arguments(buf, 0, limits, args) {
            Ok(Stop::Complete) => {
                *pos = place.at;
                Ok(Next::Command)
            }
            stop => self.suspend(stop, place, first, pos, args),
        }
    }

    /// Says that `n` more bytes of the large argument were moved to the caller's own buffer.
    ///
    /// # Panics
    /// When no large argument is being taken, or fewer than `n` bytes of it are missing.
    pub fn large_taken(&mut self, n: usize) {
        let large = self.partial.as_mut().and_then(|partial| partial.large.as_mut());
        let missing = large.expect("a large argument is being taken");
        *missing = missing.checked_sub(n).expect("no more is taken than is missing");
    }

    /// How many bytes of a large argument the caller has still to take; 0 when there is none. While it is not 0, received
    /// bytes can go straight to the caller's buffer without a call of [`Parser::next`].
    pub fn large_missing(&self) -> usize {
        self.partial.as_ref().and_then(|partial| partial.large).unwrap_or(0)
    }

    /// Whether the stream may end here without cutting a command. An unfinished first line is not remembered, so the
    /// caller's kept bytes must be empty as well.
    pub fn is_idle(&self) -> bool {
        self.partial.is_none()
    }

    /// Remembers a command that the buffer's end cut off after its first line.
    #[cold]
    fn suspend(
        &mut self,
        stop: Result<Stop, ProtocolError>,
        place: Place,
        first: usize,
        pos: &mut usize,
        args: &mut Vec<Span>,
    ) -> Result<Next, ProtocolError> {
        let stop = stop.inspect_err(|_| args.truncate(first))?;
        let start = *pos;
        let base = offset_fits(start)?;
        let spans = args.drain(first..).map(|span| span.rebased(|at| at - base)).collect();
        let mut partial =
            Box::new(Partial { spans, place: Place { at: place.at - start, ..place }, detached: 0, large: None });
        let next = partial.stopped(stop, start, pos);
        self.partial = Some(partial);
        Ok(next)
    }

    #[cold]
    fn resume(
        &mut self,
        buf: &[u8],
        pos: &mut usize,
        limits: &Limits,
        args: &mut Vec<Span>,
    ) -> Result<Next, ProtocolError> {
        let start = *pos;
        let Some(mut partial) = self.partial.take() else {
            return Ok(Next::Incomplete);
        };
        let mut place = Place { at: start + partial.place.at, left: partial.place.left };
        let stop = match partial.large_argument(buf, &mut place) {
            Some(stop) => stop,
            None => place.arguments(buf, start, limits, &mut partial.spans)?,
        };
        partial.place = Place { at: place.at - start, left: place.left };
        if stop == Stop::Complete {
            *pos = place.at;
            // Every span ends before the command does, so none overflows when it is moved.
            offset_fits(place.at)?;
            let base = offset_fits(start)?;
            match base == 0 && args.is_empty() {
                // There may be millions of them.
                true => *args = partial.spans,
                false => args.extend(partial.spans.iter().map(|span| span.rebased(|at| at + base))),
            }
            return Ok(Next::Command);
        }
        let next = partial.stopped(stop, start, pos);
        self.partial = Some(partial);
        Ok(next)
    }
}

/// A command of which the beginning was seen. Offsets are relative to its first kept byte.
#[derive(Debug)]
struct Partial {
    spans: Vec<Span>,
    place: Place,
    /// How many arguments were given to the caller as large ones.
    detached: u32,
    /// The bytes of the current large argument that the caller has not taken. 0: only its line end is to come.
    large: Option<usize>,
}

impl Partial {
    /// Goes on inside a large argument. `None`: there is none, or it is complete now.
    fn large_argument(&mut self, buf: &[u8], place: &mut Place) -> Option<Stop> {
        let missing = self.large?;
        if missing > 0 {
            return Some(Stop::Large { payload: place.at, len: missing });
        }
        if buf.len() < place.at + LINE_END {
            return Some(Stop::Incomplete);
        }
        self.spans.push(Span { start: Span::DETACHED, len: self.detached });
        self.detached += 1;
        self.large = None;
        place.at += LINE_END;
        place.left -= 1;
        None
    }

    fn stopped(&mut self, stop: Stop, start: usize, pos: &mut usize) -> Next {
        match stop {
            Stop::Large { payload, len } => {
                self.place.at = payload - start;
                self.large = Some(len);
                *pos = payload;
                Next::Large { missing: len }
            }
            Stop::Incomplete | Stop::Complete => Next::Incomplete,
        }
    }
}

impl Span {
    fn rebased(self, move_start: impl Fn(u32) -> u32) -> Span {
        if self.is_detached() { self } else { Span { start: move_start(self.start), len: self.len } }
    }
}

/// How a command begins: its number of arguments and its name, as the bytes that are compared to know the next one that begins so.
/// The default is how none does.
#[derive(Clone, Copy, Debug)]
pub struct Beginning {
    bytes: u128,
    mask: u128,
    name_len: u32,
    /// Behind the name.
    arguments: usize,
}

impl Default for Beginning {
    fn default() -> Beginning {
        Beginning { bytes: 1, mask: 0, name_len: 0, arguments: 0 }
    }
}

impl Beginning {
    /// `*n\r\n$n\r\n`, with one digit each.
    const HEADERS: usize = 8;

    /// How the command at `start` begins. Only of a short one this is something: less than ten arguments, a name of up to eight bytes.
    #[inline]
    fn of(buf: &[u8], start: usize, spans: &[Span]) -> Beginning {
        let (Some(name), Some(bytes)) = (spans.first(), Beginning::bytes_at(buf, start)) else {
            return Beginning::default();
        };
        if name.start as usize != start + Beginning::HEADERS || !(1..=8).contains(&name.len) {
            return Beginning::default();
        }
        let mask = u128::MAX >> (8 * (8 - name.len));
        Beginning { bytes: bytes & mask, mask, name_len: name.len, arguments: spans.len() - 1 }
    }

    #[inline(always)]
    fn bytes_at(buf: &[u8], start: usize) -> Option<u128> {
        Some(u128::from_le_bytes(*buf.get(start..)?.first_chunk()?))
    }

    /// Whether the command at `start` begins so.
    #[inline(always)]
    fn is_at(&self, buf: &[u8], start: usize) -> bool {
        Beginning::bytes_at(buf, start).is_some_and(|bytes| bytes & self.mask == self.bytes)
    }

    /// The name of the command at `start`, which begins so.
    #[inline(always)]
    fn name(&self, start: usize) -> Span {
        // Positions in the buffer fit.
        Span { start: (start + Beginning::HEADERS) as u32, len: self.name_len }
    }

    /// The position behind the name of the command at `start`, and behind its line end, which may be cut off.
    #[inline(always)]
    fn behind(&self, start: usize) -> usize {
        start + Beginning::HEADERS + self.name_len as usize + LINE_END
    }
}

/// Where the parser is inside a command: at the first byte of an argument's `$` line, with `left` arguments to come.
#[derive(Debug)]
struct Place {
    at: usize,
    left: u32,
}

#[derive(PartialEq, Eq)]
enum Stop {
    Complete,
    Incomplete,
    Large { payload: usize, len: usize },
}

impl Place {
    /// Parses arguments until the command or the buffer ends. Spans are made relative to `base`.
    #[inline(always)]
    fn arguments(
        &mut self,
        buf: &[u8],
        base: usize,
        limits: &Limits,
        spans: &mut Vec<Span>,
    ) -> Result<Stop, ProtocolError> {
        while self.left > 0 {
            let usual = if buf.get(self.at) == Some(&b'$') { short_length(buf, self.at + 1) } else { Short::Unusual };
            let (len, payload) = match usual {
                Short::Value(len, payload) => (len as usize, payload),
                Short::Unusual => match unusual_bulk(buf, self.at)? {
                    None => return Ok(Stop::Incomplete),
                    Some(found) => found,
                },
            };
            if len > limits.max_bulk {
                return Err(too_long_argument(len, limits));
            }
            let available = buf.len() - payload;
            if available < len.saturating_add(LINE_END) {
                let large = len >= LARGE && available < len;
                return Ok(if large { Stop::Large { payload, len } } else { Stop::Incomplete });
            }
            spans.push(Span { start: offset_fits(payload - base)?, len: offset_fits(len)? });
            self.at = payload + len + LINE_END;
            self.left -= 1;
        }
        Ok(Stop::Complete)
    }
}

/// The command at `start` if it is whole and usual, each of its numbers below 1,000: its spans are appended, and the position
/// behind it is returned. Of anything else nothing is appended, and the careful path says what it is.
#[inline(always)]
fn usual_command(buf: &[u8], start: usize, limits: &Limits, spans: &mut Vec<Span>) -> Option<usize> {
    // So every position fits a span.
    if buf.len() >= Span::DETACHED as usize {
        return None;
    }
    let first = spans.len();
    let (count, at) = short_header(buf, start, b'*')?;
    if count > limits.max_args {
        return None;
    }
    usual_arguments(buf, at, count, limits, first, spans)
}

/// The `count` arguments at `at`, if they are whole and usual: appended to the spans, which otherwise are cut back to `first`.
#[inline(always)]
fn usual_arguments(
    buf: &[u8],
    mut at: usize,
    count: usize,
    limits: &Limits,
    first: usize,
    spans: &mut Vec<Span>,
) -> Option<usize> {
    for _ in 0..count {
        let argument = short_header(buf, at, b'$')
            .filter(|(len, payload)| *len <= limits.max_bulk && payload + len + LINE_END <= buf.len());
        let Some((len, payload)) = argument else {
            spans.truncate(first);
            return None;
        };
        // Both are below the buffer's length, which fits.
        spans.push(Span { start: payload as u32, len: len as u32 });
        at = payload + len + LINE_END;
    }
    Some(at)
}

/// The `*` line at `start`, when it is not a plain small number: its count and the position behind it.
#[cold]
fn unusual_count(buf: &[u8], start: usize) -> Result<Option<(u32, usize)>, ProtocolError> {
    let Some((digits, after)) = line(buf, start, ProtocolError::TooBigMultibulkCount)? else {
        return Ok(None);
    };
    let count = parse_i64(digits).filter(|count| *count <= i64::from(i32::MAX));
    let count = count.ok_or(ProtocolError::InvalidMultibulkLength)?;
    // Negative counts are commands without arguments.
    Ok(Some((u32::try_from(count).unwrap_or(0), after)))
}

/// The `$` line at `start`, when it is not a plain small number: its length and the position behind it.
#[cold]
fn unusual_bulk(buf: &[u8], start: usize) -> Result<Option<(usize, usize)>, ProtocolError> {
    let Some((digits, after)) = line(buf, start, ProtocolError::TooBigBulkCount)? else {
        return Ok(None);
    };
    if buf[start] != b'$' {
        return Err(ProtocolError::ExpectedDollar(buf[start]));
    }
    let len = parse_i64(digits).and_then(|len| usize::try_from(len).ok());
    Ok(Some((len.ok_or(ProtocolError::InvalidBulkLength)?, after)))
}

/// The text of the line at `start` without its first byte, and the position behind its CR and one byte more.
fn line(buf: &[u8], start: usize, too_long: ProtocolError) -> Result<Option<(&[u8], usize)>, ProtocolError> {
    let rest = &buf[start..];
    let window = &rest[..rest.len().min(MAX_LINE + 1)];
    match memchr::memchr(b'\r', window) {
        None if window.len() > MAX_LINE => Err(too_long),
        None => Ok(None),
        Some(cr) if rest.len() < cr + LINE_END => Ok(None),
        // The CR stands where the first byte of an argument should.
        Some(0) => Ok(Some((&[], start + LINE_END))),
        Some(cr) => Ok(Some((&rest[1..cr], start + cr + LINE_END))),
    }
}

#[inline(never)]
fn inline(buf: &[u8], pos: &mut usize, limits: &Limits, spans: &mut Vec<Span>) -> Result<Next, ProtocolError> {
    let max_line = if limits.authenticated { MAX_LINE } else { MAX_LINE.min(limits.max_bulk) };
    let rest = &buf[*pos..];
    let window = &rest[..rest.len().min(max_line + 1)];
    let Some(end) = memchr::memchr(b'\n', window) else {
        return if window.len() > max_line { Err(ProtocolError::TooBigInline) } else { Ok(Next::Incomplete) };
    };
    let text = &rest[..end];
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    if let (Some(plain), Ok(base), Ok(_)) = (plain_args(text), offset_fits(*pos), offset_fits(*pos + end)) {
        let first = spans.len();
        // Both are within the line, whose end fits.
        spans.extend(plain.map(|(start, len)| Span { start: base + start as u32, len: len as u32 }));
        if !limits.authenticated && spans.len() - first > limits.max_args {
            spans.truncate(first);
            return Err(ProtocolError::UnauthenticatedMultibulkLength);
        }
        *pos += end + 1;
        return Ok(Next::Command);
    }
    let args = split_args(text).ok_or(ProtocolError::UnbalancedQuotes)?;
    if !limits.authenticated && args.len() > limits.max_args {
        return Err(ProtocolError::UnauthenticatedMultibulkLength);
    }
    *pos += end + 1;
    Ok(if args.is_empty() { Next::Command } else { Next::Inline(args) })
}

#[cold]
fn too_many_arguments(limits: &Limits) -> ProtocolError {
    if limits.authenticated {
        ProtocolError::InvalidMultibulkLength
    } else {
        ProtocolError::UnauthenticatedMultibulkLength
    }
}

#[cold]
fn too_long_argument(len: usize, limits: &Limits) -> ProtocolError {
    if limits.authenticated || len > DEFAULT_MAX_BULK {
        ProtocolError::InvalidBulkLength
    } else {
        ProtocolError::UnauthenticatedBulkLength
    }
}

/// An offset as spans hold it. Only a buffer of 4 GiB can fail.
#[inline(always)]
fn offset_fits(at: usize) -> Result<u32, ProtocolError> {
    match u32::try_from(at) {
        Ok(at) if at != Span::DETACHED => Ok(at),
        _ => Err(ProtocolError::TooBigRequest),
    }
}

/// The longest line: of a length, and of an inline command. Redis's PROTO_INLINE_MAX_SIZE.
pub const MAX_LINE: usize = 64 * 1024;
/// From this length on, an argument that is not complete in the buffer is detached. Twice the size of a provided receive
/// buffer: a smaller one is complete after one more receive, and one copy of it costs less than an allocation of its own.
pub const LARGE: usize = 32 * 1024;
/// CR and LF.
const LINE_END: usize = 2;
/// Redis's limit of a command's arguments.
const MAX_ARGS: usize = 0x7fff_ffff;
/// Redis's default of `proto-max-bulk-len`, above which even an unauthenticated client is told "invalid".
const DEFAULT_MAX_BULK: usize = 512 * 1024 * 1024;
