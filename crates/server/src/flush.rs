//! Handing replies to the engine, when it wants them ([`Flush`]), and what comes back.
//!
//! The engine is asked once per pass, and the default ones answer by a constant. Where each reply is to be sent by itself,
//! connections run one command at a time ([`State::turn`]) and take turns, so that nothing is asked per command either.

use crate::serve::PASS_COMMANDS;
use crate::worker::{State, Worker};
use gimmal_io::{ConnId, Engine, Flush, Output};
use gimmal_store::Batch;
use std::io;

/// How many commands of a connection are run before its replies are sent.
pub fn turn(flush: Flush) -> usize {
    if flush == Flush::Command { 1 } else { PASS_COMMANDS }
}

/// Behind a group of completions.
#[inline]
pub fn after_group<E: Engine>(engine: &mut E, state: &mut State) {
    if engine.flushes() == Flush::Group {
        send_replies(engine, state, false);
    }
}

/// Behind one completion.
#[inline]
pub fn after_completion<E: Engine>(engine: &mut E, state: &mut State) {
    if engine.flushes() == Flush::Command {
        send_replies(engine, state, true);
    }
}

/// A send is over.
#[inline]
pub fn sent<E: Engine>(engine: &E, state: &mut State, conn: ConnId, output: Output, result: io::Result<()>) {
    let left = if engine.pipelines() { engine.unsent(conn) } else { 0 };
    state.sent(conn, output, left, result);
}

/// Sends replies: one send for each connection that has some, and none in flight unless the engine pipelines. In the middle
/// of a pass, while their sockets are still in the cache, only for connections of which it is unlikely that they get more in
/// this pass: `all` is false.
pub fn send_replies<E: Engine>(engine: &mut E, state: &mut State, all: bool) {
    // Those before were looked at after an earlier group, and wait for the end of the pass.
    let from = if all { 0 } else { state.sent_later };
    if state.dirty.len() == from {
        return;
    }
    let mut later = std::mem::take(&mut state.dirty);
    let mut dirty = later.split_off(from);
    dirty.retain(|&conn| {
        if !all && state.gets_more(conn) {
            return true;
        }
        if let Some(output) = state.to_send(conn, engine.pipelines())
            && let Some((output, result)) = engine.send(conn, output)
        {
            sent(engine, state, conn, output, result);
        }
        false
    });
    later.append(&mut dirty);
    state.sent_later = if all { 0 } else { later.len() };
    // A finished send may have marked its connection again; those keep their place.
    later.append(&mut state.dirty);
    state.dirty = later;
}

impl<E: Engine> Worker<E> {
    /// Runs what was left over.
    pub fn run_ready(&mut self, batch: &mut Batch<'_>) {
        if self.engine.flushes() != Flush::Command {
            return self.state.run_ready(batch);
        }
        // One command of each connection after the other, as many of each as in any pass.
        for _ in 0..PASS_COMMANDS {
            if self.state.ready.is_empty() {
                break;
            }
            self.state.run_ready(batch);
            self.flush();
        }
    }

    /// Sends the replies of this pass.
    pub fn flush(&mut self) {
        send_replies(&mut self.engine, &mut self.state, true);
        self.act();
    }
}
