//! What has come of the parts that were submitted.

use std::io;

use super::{CANCEL, NUMBERS, Submit, UringSend};
use crate::table::Token;
use crate::uring::ring::Cqe;
use crate::{Completion, ConnId};

impl UringSend {
    /// Looks at the ring's completions, without a system call unless the kernel has work for it.
    pub(super) fn reap(&mut self) -> io::Result<()> {
        self.ring.submit_and_wait(false, None)?;
        self.take_completions();
        Ok(())
    }

    pub(super) fn take_completions(&mut self) {
        while let Some(cqe) = self.ring.pop() {
            let token = Token(cqe.user_data);
            let Some(conn) = self.sendings.resolve(token) else { continue };
            match token.operation() {
                CANCEL => self.cancelled(conn),
                operation => self.completed(conn, operation % NUMBERS, cqe),
            }
        }
    }

    /// A cancellation can miss an operation that is just completing; if it goes on after all, it is tried again.
    fn cancelled(&mut self, conn: ConnId) {
        let Some(sending) = self.sendings.get_mut(conn) else { return };
        sending.cancels -= 1;
        if sending.cancels == 0 && sending.in_flight > 0 {
            self.cancel_all_of(conn);
        } else {
            self.settle(conn);
        }
    }

    fn completed(&mut self, conn: ConnId, number: u8, cqe: Cqe) {
        let is_patient = self.is_patient();
        let Some(sending) = self.sendings.get_mut(conn) else { return };
        let part = sending.parts.iter_mut().find(|part| part.is_submitted && part.number == number);
        let Some(part) = part else { return };
        part.is_submitted = false;
        sending.in_flight -= 1;
        match cqe.result {
            count @ 0.. => {
                let count = count.unsigned_abs() as usize;
                part.output.advance(count);
                let is_short = count < part.offered;
                self.counters.short_sends += u64::from(is_short);
                sending.awaits_room |= is_short && !is_patient;
            }
            error => match -error {
                libc::EAGAIN => {
                    self.counters.short_sends += 1;
                    sending.awaits_room = true;
                }
                // Those behind one that was not sent whole, or of a connection that is closed.
                libc::ECANCELED | libc::EINTR => {}
                error => sending.error = Some(io::Error::from_raw_os_error(error)),
            },
        }
        // Nothing more may be submitted before those behind it have come back as well.
        sending.is_broken |= !part.output.is_empty();
        if self.options.submit != Submit::Sequential {
            self.hand_out_sent(conn);
            self.go_on(conn);
        }
    }

    /// Hands out the parts at the front that are sent.
    fn hand_out_sent(&mut self, conn: ConnId) {
        let Some(sending) = self.sendings.get_mut(conn) else { return };
        while let Some(mut part) = sending.parts.pop_front_if(|part| !part.is_submitted && part.output.is_empty()) {
            self.messages.extend(part.message.take());
            part.output.clear();
            self.level.finished(Completion::Sent { conn, output: part.output, result: Ok(()) });
        }
    }

    /// Once all that was submitted has come back: what is left of a connection is submitted again, or waits for room, or is
    /// given up.
    fn go_on(&mut self, conn: ConnId) {
        let Some(sending) = self.sendings.get_mut(conn) else { return };
        if sending.in_flight > 0 {
            return;
        }
        sending.is_broken = false;
        if sending.is_closing {
            return self.settle(conn);
        }
        // The first one that is left may have been sent in part; none behind it.
        let has_gap = sending.parts.iter().skip(1).any(|part| part.output.len() < part.output.end());
        let error = match sending.error.take() {
            None if has_gap => Some(libc::EPROTO),
            error => error.map(|error| error.raw_os_error().unwrap_or(libc::EIO)),
        };
        if let Some(error) = error {
            return self.give_back(conn, error);
        }
        if sending.parts.is_empty() {
            return;
        }
        if sending.awaits_room {
            if let Err(error) = self.level.await_room(conn) {
                self.give_back(conn, error.raw_os_error().unwrap_or(libc::EIO));
            }
        } else {
            let parts = sending.parts.len();
            self.has_waiting(conn, parts);
        }
    }
}
