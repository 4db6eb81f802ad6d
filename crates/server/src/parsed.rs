//! Requests that the engine's threads have found (`io-model phases` with `io-threads-do-reads`, as Redis 6 parses in its I/O
//! threads): [`find`] is what they call, and what it found is run here without looking for it again.
//!
//! They know nothing of a connection. What they found is used only where it must be what the connection's own parser would
//! have found: at the beginning of a command, by a client that has authenticated, without anything set aside. Else the bytes
//! are received as any others. No other engine ever comes here.

use crate::connection::Connection;
use crate::serve::{PASS_COMMANDS, PASS_NS};
use crate::worker::State;
use gimmal_io::{ConnId, Requests};
use gimmal_resp::{Limits, Next, Parser, Span};
use gimmal_store::Batch;
use std::cell::RefCell;

thread_local! {
    /// Scratch space of [`find`].
    static SPANS: RefCell<Vec<Span>> = const { RefCell::new(Vec::new()) };
}

/// Finds the commands that lie whole in `bytes`, up to the first thing that is not plain: a line with quotes, an empty
/// command, an error. Limits do not matter: what lies whole in a receive buffer is below all of them.
pub fn find(bytes: &[u8], requests: &mut Requests) {
    let (mut parser, limits) = (Parser::default(), Limits::default());
    let mut at = 0;
    SPANS.with_borrow_mut(|spans| {
        loop {
            spans.clear();
            if !matches!(parser.next(bytes, &mut at, &limits, spans), Ok(Next::Command)) || spans.is_empty() {
                return;
            }
            requests.arguments.extend(spans.iter().map(|span| (span.start, span.len)));
            let place = |at: usize| u32::try_from(at).expect("a receive buffer is small");
            requests.ends.push((place(at), place(requests.arguments.len())));
        }
    });
}

impl State {
    /// Bytes arrived, in which requests were found.
    #[cold]
    pub fn received_parsed(&mut self, id: ConnId, data: &[u8], requests: &Requests, batch: &mut Batch<'_>) {
        let fits = |c: &mut Connection| c.is_as_usual() && !c.marks.ready && c.parser.is_idle();
        if !self.connections.find(id).is_some_and(fits) {
            return self.received(id, data, batch);
        }
        let Some(mut connection) = self.connections.lift(id) else { return };
        let c = &mut *connection;
        self.note_received(c, data.len());
        let used = self.run_parsed(id, c, data, requests, batch);
        c.query.extend_from_slice(&data[used..]);
        self.after_commands(id, c);
        self.connections.put_back(id, connection);
    }

    /// As `run`, for commands that were found; what is behind them is left to `run`. Returns how many bytes are done with.
    fn run_parsed(
        &mut self,
        id: ConnId,
        c: &mut Connection,
        data: &[u8],
        requests: &Requests,
        batch: &mut Batch<'_>,
    ) -> usize {
        let until = self.local.raw_after(PASS_NS);
        let (mut at, mut done, mut left) = (0, 0, PASS_COMMANDS);
        loop {
            if !self.local.ready_keys.is_empty() && !self.serve_ready(batch) {
                self.mark(id, c, true);
                return at;
            }
            if c.pending_bytes() > self.output_pause(c) || left == 0 {
                self.mark(id, c, left == 0 && at < data.len());
                return at;
            }
            if done == requests.ends.len() {
                return at + self.run(id, c, &data[at..], false, batch).used;
            }
            if self.local.log_active {
                self.local.ring_if_far();
                self.local.look_for_room(&self.shared.log);
            }
            let mut scratch = std::mem::take(&mut self.scratch);
            scratch.clear();
            self.take_parsed(c, data, requests, done..requests.ends.len().min(done + left), &mut scratch, batch);
            self.prefetch(c, &scratch, batch);
            let ran = self.execute_all(id, c, data, &mut scratch, batch, until);
            let stopped = ran < scratch.parsed.len() || !c.runs();
            self.scratch = scratch;
            (done, left) = (done + ran, left - ran);
            at = done.checked_sub(1).map_or(0, |last| requests.ends[last].0 as usize);
            if stopped {
                self.mark(id, c, c.runs());
                return at;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_plain_commands_are_found_and_nothing_else() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\nPING\r\n*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$1";
        let mut requests = Requests::default();
        find(bytes, &mut requests);
        let text = |(at, length): &(u32, u32)| &bytes[*at as usize..(at + length) as usize];
        assert_eq!(requests.arguments.iter().map(text).collect::<Vec<_>>(), [&b"GET"[..], b"a", b"PING", b"PING"]);
        assert_eq!(requests.ends, [(20, 2), (26, 3), (40, 4)]);
        for unusual in [&b"*0\r\nPING\r\n"[..], b"SET a \"b c\"\r\n", b"*x\r\n", b"\r\nPING\r\n", b""] {
            requests.clear();
            find(unusual, &mut requests);
            assert_eq!(requests, Requests::default(), "{}", unusual.escape_ascii());
        }
    }
}
