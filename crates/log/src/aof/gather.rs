//! Whether to wait a moment before the next group, so that it is larger and there are fewer of them.
//!
//! With closed-loop clients a writer that starts the next group as soon as one is synced finds two crowds: those whose commands came
//! during the sync, and those who have just been answered. Each waits for the other one's sync, and the disk is asked twice as
//! often as need be. So after a release the writer waits until as much has come as was just released and as was there already; or
//! until a worker that holds replies has nothing more to do and sleeps (whoever was answered has sent his next command by then, or will
//! not soon); or as long as a sync takes, at most. Where that brought nothing, clients are not of that kind; where it took so long,
//! the processor is what everybody waits for, and the disk should work meanwhile. Then the next groups begin at once, twice as many
//! after each such try.
//!
//! Measured (`results/durability.md`): fewer and larger groups, which saves the processor as well as the disk.

use std::time::{Duration, Instant};

use super::writer::Step;
use crate::Lsn;

/// When to wait.
#[derive(Debug, Default)]
pub(super) struct Gather {
    is_on: bool,
    /// How long a sync takes, about.
    sync: Duration,
    /// The wait before the next group, if there is one.
    next: Option<Wait>,
    /// Tries that brought nothing, since one did.
    in_vain: u32,
    /// Groups that begin at once.
    skip: u32,
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    /// Bytes that were there when it began, and that are enough.
    had: u64,
    enough: u64,
    until: Instant,
    /// The writer has slept.
    is_over: bool,
}

/// A wait takes no longer than this, however slow the disk is.
const LONGEST: Duration = Duration::from_millis(2);
/// Doublings of the groups that begin at once.
const MOST_IN_VAIN: u32 = 6;

impl Gather {
    pub(super) fn switch_on(&mut self) {
        self.is_on = true;
    }

    pub(super) fn synced(&mut self, took: Duration) {
        self.sync = if self.sync.is_zero() { took } else { (self.sync * 7 + took) / 8 };
    }

    /// So many bytes were released, and so many more are there.
    pub(super) fn released(&mut self, bytes: u64, pending: u64) {
        if !self.is_on {
            return;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        let enough = (bytes + pending) / 8 * 7;
        let until = Instant::now() + self.sync.min(LONGEST);
        self.next = Some(Wait { had: pending, enough, until, is_over: false });
    }

    /// Whether to wait before the group that begins at `written`, when the log can be read up to `readable`.
    pub(super) fn wait(&mut self, written: Lsn, readable: Lsn) -> Option<Step> {
        let Wait { had, enough, until, is_over } = self.next?;
        let has = readable - written;
        let left = until.saturating_duration_since(Instant::now());
        if !is_over && has < enough && !left.is_zero() {
            return Some(Step::Gather(written + enough, left));
        }
        self.next = None;
        if has > had && !left.is_zero() {
            self.in_vain = 0;
        } else if is_over {
            self.in_vain = (self.in_vain + 1).min(MOST_IN_VAIN);
            self.skip = 1 << self.in_vain;
        }
        None
    }

    /// The writer has waited.
    pub(super) fn slept(&mut self) {
        if let Some(wait) = &mut self.next {
            wait.is_over = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: Duration = Duration::from_secs(60);

    fn gather() -> Gather {
        let mut gather = Gather { is_on: true, ..Gather::default() };
        gather.synced(SYNC);
        gather
    }

    #[test]
    fn one_client_never_waits() {
        let mut gather = gather();
        gather.released(80, 0);
        assert_eq!(gather.wait(80, 160), None);
    }

    #[test]
    fn who_was_answered_is_waited_for() {
        let mut gather = gather();
        gather.released(800, 400);
        let Some(Step::Gather(up_to, limit)) = gather.wait(800, 1200) else { panic!("no wait") };
        assert_eq!((up_to, limit > SYNC / 2), (800 + 1050, false), "not longer than the longest");
        gather.slept();
        assert_eq!(gather.wait(800, 1900), None);
        gather.released(1100, 100);
        assert!(gather.wait(1900, 2000).is_some(), "it has paid");
    }

    #[test]
    fn waits_in_vain_become_rare() {
        let (mut gather, mut waits) = (gather(), 0);
        for _ in 0..1000 {
            gather.released(80, 80);
            if gather.wait(80, 160).is_some() {
                waits += 1;
                gather.slept();
                assert_eq!(gather.wait(80, 160), None);
            }
        }
        assert!((15..30).contains(&waits), "{waits} waits");
    }

    #[test]
    fn without_a_thread_there_is_no_wait() {
        let mut gather = Gather::default();
        gather.synced(SYNC);
        gather.released(800, 400);
        assert_eq!(gather.wait(800, 1200), None);
    }
}
