//! One gate for the whole keyspace, and the epochs by which memory that is read without a lock is reclaimed.
//!
//! Every thread that touches the keyspace is a *participant* with a padded word of its own. It enters the gate once per batch
//! and leaves at the batch's end. An operation on everything (FLUSHALL, SWAPDB, a snapshot flip) closes the gate and waits until
//! all other participants are outside, instead of taking a thousand locks.
//!
//! Invariants:
//! - *Exclusion.* A participant writes its word, then fences, then reads `closing`; a closer writes `closing`, then fences, then
//!   reads the words. By the two fences at least one of them sees the other (Dekker), and the participant gives way.
//! - *Reclamation.* A word carries the epoch at which its batch began. Memory unlinked before [`Gate::advance`] returned `e` may
//!   be freed once [`Gate::oldest`] exceeds `e`: a batch of a later epoch acquired the advance, and so the unlinking, and a batch
//!   whose word the fence in `oldest` did not see begins after it and reads what was linked instead.
//! - *Alone.* As long as one participant only has ever entered, its batches are `alone`: it locks shards without locked
//!   instructions, which were a fifth of the time of a pipelined GET. The second participant to come closes the gate, so that
//!   the first one is outside while the flag changes: it cannot change within a batch, and what the first one wrote before is
//!   visible to all who enter after. A thread that comes for a while only is a *visitor* ([`Gate::visit`]): the one that was alone is
//!   so again when the last visitor has gone.
//!
//! Dropped: a reader-writer lock (each reader would write one shared line), and hazard pointers (a fence for every lookup instead
//! of one for every batch).

use std::marker::PhantomData;

use crate::sync::{AtomicU64, AtomicUsize, Ordering, Padded, Wait, fence};

/// The gate; see the module's description.
pub struct Gate {
    /// 0 while open, else 1 + the participant that closes or has closed it.
    closing: Padded<AtomicUsize>,
    /// Who has entered so far: nobody, 1 + the only participant, or several; and so many times [`VISITOR`] as there are visitors.
    only: Padded<AtomicUsize>,
    /// Number of the epoch that batches entering now belong to.
    epoch: Padded<AtomicU64>,
    words: Box<[Padded<AtomicU64>]>,
}

/// Values of `Gate::only`, visitors apart.
const NOBODY: usize = 0;
const SEVERAL: usize = VISITOR - 1;
/// Each visitor, in `Gate::only`.
const VISITOR: usize = 1 << 32;

/// A participant's word when it is outside; inside it is `epoch * 2 + 1`.
const OUTSIDE: u64 = 0;

/// Participants that one gate serves at most, 1024 workers and some background threads: a bound that keeps waiting for all of
/// them cheap.
pub const PARTICIPANTS_MAX: usize = 1024 + 16;

impl Gate {
    /// An open gate for participants `0..participants`.
    ///
    /// # Panics
    /// If `participants` is 0 or more than [`PARTICIPANTS_MAX`].
    pub fn new(participants: usize) -> Self {
        assert!(
            (1..=PARTICIPANTS_MAX).contains(&participants),
            "1..={PARTICIPANTS_MAX} participants, not {participants}"
        );
        Self {
            closing: Padded(AtomicUsize::new(0)),
            only: Padded(AtomicUsize::new(NOBODY)),
            epoch: Padded(AtomicU64::new(1)),
            words: (0..participants).map(|_| Padded(AtomicU64::new(OUTSIDE))).collect(),
        }
    }

    /// Number of participants.
    pub fn participants(&self) -> usize {
        self.words.len()
    }

    /// Begins a batch of `participant`; waits (spins, yields, then sleeps in short steps) while the gate is closed.
    ///
    /// # Panics
    /// If the participant is inside already: the number names one thread of control.
    pub fn enter(&self, participant: usize) -> Batch<'_> {
        let only = self.only.0.load(Ordering::Acquire);
        if only != SEVERAL && only != participant + 1 {
            self.come_first_or_join(participant);
        }
        self.enter_known(participant)
    }

    /// Lets a participant come that will go again: until then nobody is alone. It must not [`Gate::enter`] by itself.
    pub fn visit(&self, participant: usize) -> Visit<'_> {
        self.close_for(participant, || self.only.0.fetch_add(VISITOR, Ordering::AcqRel));
        Visit { gate: self, participant }
    }

    /// Begins a batch of a participant that has been here before, or that visits.
    fn enter_known(&self, participant: usize) -> Batch<'_> {
        let word = &self.words[participant].0;
        let mut wait = Wait::default();
        loop {
            if self.closing.0.load(Ordering::Acquire) == 0 {
                let inside = self.epoch.0.load(Ordering::Acquire) * 2 + 1;
                let entered = word.compare_exchange(OUTSIDE, inside, Ordering::Acquire, Ordering::Relaxed);
                assert!(entered.is_ok(), "participant {participant} entered the gate twice");
                fence(Ordering::SeqCst);
                if self.closing.0.load(Ordering::Acquire) == 0 {
                    // Acquire: what visitors did before they went is visible to who is alone again.
                    let alone = self.only.0.load(Ordering::Acquire) == participant + 1;
                    return Batch {
                        gate: self,
                        participant,
                        alone,
                        locked: std::cell::Cell::new(0),
                        not_send: PhantomData,
                    };
                }
                word.store(OUTSIDE, Ordering::Release);
            }
            wait.turn();
        }
    }

    /// A participant enters for the first time, and is the only one so far, or ends the time of the one that was; or there are
    /// visitors.
    #[cold]
    fn come_first_or_join(&self, participant: usize) {
        let me = participant + 1;
        let (only, before) = (&self.only.0, self.only.0.load(Ordering::Acquire) % VISITOR);
        if before == me || before == SEVERAL {
            return;
        }
        if only.compare_exchange(NOBODY, me, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return;
        }
        let joined = |only: usize| {
            let who = if matches!(only % VISITOR, NOBODY) { me } else { SEVERAL };
            Some(only / VISITOR * VISITOR + who)
        };
        // It is not there yet itself: only its own thread would have put it there.
        self.close_for(participant, || only.fetch_update(Ordering::AcqRel, Ordering::Acquire, joined));
    }

    /// Does something while all others are outside; the participant is outside, too.
    fn close_for<R>(&self, participant: usize, act: impl FnOnce() -> R) {
        let mut wait = Wait::default();
        while self.closing.0.compare_exchange(0, participant + 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            wait.turn();
        }
        fence(Ordering::SeqCst);
        self.wait_for_others(participant);
        act();
        self.closing.0.store(0, Ordering::Release);
    }

    /// Waits until every participant but this one is outside; the gate was closed before.
    fn wait_for_others(&self, participant: usize) {
        let mut wait = Wait::default();
        for (other, word) in self.words.iter().enumerate() {
            while other != participant && word.0.load(Ordering::Acquire) != OUTSIDE {
                wait.turn();
            }
        }
    }

    /// Whether someone waits for the participants to leave. A hint: relaxed, to be looked at between connections.
    #[inline]
    pub fn is_closing(&self) -> bool {
        self.closing.0.load(Ordering::Relaxed) != 0
    }

    /// Ends the current epoch and returns its number: what was unlinked before this call may be freed when [`Gate::oldest`]
    /// exceeds the number.
    pub fn advance(&self) -> u64 {
        self.epoch.0.fetch_add(1, Ordering::AcqRel)
    }

    /// The lowest epoch that a participant inside the gate belongs to; `u64::MAX` when all are outside.
    pub fn oldest(&self) -> u64 {
        fence(Ordering::SeqCst);
        let epoch = |word: u64| if word == OUTSIDE { u64::MAX } else { word / 2 };
        self.words.iter().map(|word| epoch(word.0.load(Ordering::Acquire))).min().unwrap_or(u64::MAX)
    }
}

/// A participant that is here for a while; see [`Gate::visit`]. Dropping it ends the visit.
pub struct Visit<'g> {
    gate: &'g Gate,
    participant: usize,
}

impl Visit<'_> {
    /// Begins a batch, as [`Gate::enter`].
    pub fn enter(&self) -> Batch<'_> {
        self.gate.enter_known(self.participant)
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        // Release: what was done here is visible to who is alone from now on. Its batches borrow the visit, so there is none.
        self.gate.only.0.fetch_sub(VISITOR, Ordering::Release);
    }
}

/// A participant's stay inside the gate; dropping it leaves. It belongs to the thread that entered.
#[must_use = "dropping the batch leaves the gate"]
pub struct Batch<'g> {
    gate: &'g Gate,
    participant: usize,
    /// No other participant has ever entered, and none can while this batch lasts.
    alone: bool,
    /// Shards that this batch holds locked: operations on whole databases demand that it is 0.
    locked: std::cell::Cell<usize>,
    not_send: PhantomData<*const ()>,
}

impl<'g> Batch<'g> {
    /// Closes the gate and waits until every other participant is outside.
    ///
    /// `None` if another participant is closing it: drop the batch, enter again, retry; waiting inside would deadlock.
    pub fn try_close(&self) -> Option<Exclusive<'_>> {
        let me = self.participant + 1;
        self.gate.closing.0.compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        let exclusive = Exclusive { batch: self };
        fence(Ordering::SeqCst);
        self.gate.wait_for_others(self.participant);
        Some(exclusive)
    }

    /// Whether no other participant has ever entered the gate; it stays so while this batch lasts.
    #[inline]
    pub fn is_alone(&self) -> bool {
        self.alone
    }

    /// Whether this batch has closed the gate, and not opened it again: every other participant is outside.
    pub fn has_closed(&self) -> bool {
        // Only this thread writes this value, and `try_close` returns when the others are outside.
        self.gate.closing.0.load(Ordering::Relaxed) == self.participant + 1
    }

    /// Leaves the gate and enters it again: what a worker does between two connections when somebody wants to close.
    ///
    /// # Panics
    /// If a shard is locked through this batch.
    pub fn renew(&mut self) {
        assert!(self.locked.get() == 0, "a batch is left with a shard locked");
        let (gate, participant) = (self.gate, self.participant);
        gate.words[participant].0.store(OUTSIDE, Ordering::Release);
        // The new batch takes the old one's place; neither is dropped, so the word says what `enter` stored.
        std::mem::forget(std::mem::replace(self, gate.enter_known(participant)));
    }

    /// The participant that this batch belongs to.
    pub fn participant(&self) -> usize {
        self.participant
    }

    /// The gate that was entered.
    pub fn gate(&self) -> &'g Gate {
        self.gate
    }

    /// Shards locked through this batch at present.
    pub(crate) fn locked(&self) -> &std::cell::Cell<usize> {
        &self.locked
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.gate.words[self.participant].0.store(OUTSIDE, Ordering::Release);
    }
}

/// Nobody else is inside the gate while this lives; dropping it opens the gate again.
#[must_use = "dropping it opens the gate"]
pub struct Exclusive<'b> {
    batch: &'b Batch<'b>,
}

impl<'b> Exclusive<'b> {
    /// The batch that closed the gate.
    pub fn batch(&self) -> &'b Batch<'b> {
        self.batch
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        self.batch.gate.closing.0.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A gate that each participant has entered once, so that they can be inside together on one thread.
    fn joined(participants: usize) -> Gate {
        let gate = Gate::new(participants);
        (0..participants).for_each(|participant| drop(gate.enter(participant)));
        gate
    }

    #[test]
    fn a_participant_is_alone_until_another_comes() {
        let gate = Gate::new(3);
        assert!(gate.enter(2).is_alone());
        assert!(gate.enter(2).is_alone());
        assert!(!gate.enter(0).is_alone());
        assert!(!gate.enter(2).is_alone());
    }

    #[test]
    fn who_was_alone_is_so_again_when_visitors_have_gone() {
        let gate = Gate::new(3);
        assert!(gate.enter(0).is_alone());
        let (one, other) = (gate.visit(1), gate.visit(2));
        assert!(!gate.enter(0).is_alone() && !one.enter().is_alone());
        let batch = other.enter();
        assert!(!batch.is_alone());
        drop(batch);
        drop(one);
        assert!(!gate.enter(0).is_alone());
        drop(other);
        assert!(gate.enter(0).is_alone());
        assert!(!gate.enter(1).is_alone(), "who enters by itself is no visitor");
        assert!(!gate.enter(0).is_alone());
    }

    #[test]
    fn a_visitor_that_comes_first_ends_nobodys_time() {
        let gate = Gate::new(2);
        let visit = gate.visit(1);
        drop(visit.enter());
        assert!(!gate.enter(0).is_alone());
        drop(visit);
        assert!(gate.enter(0).is_alone());
    }

    #[test]
    fn entering_twice_as_one_participant_is_refused() {
        let gate = joined(2);
        let _batch = gate.enter(1);
        let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(gate.enter(1))));
        assert!(again.is_err());
        drop(gate.enter(0));
    }

    /// As many workers as may be configured, and the background: the gate had no room for both, and the server did not start.
    #[test]
    fn all_workers_and_the_background_can_take_part() {
        let gate = Gate::new(1024 + 1);
        drop(gate.enter(1024));
        assert_eq!(gate.oldest(), u64::MAX);
    }

    #[test]
    fn second_closer_is_told_to_give_way() {
        let gate = Gate::new(1);
        let batch = gate.enter(0);
        let exclusive = batch.try_close().expect("nobody else");
        assert!(gate.is_closing() && batch.has_closed());
        assert!(batch.try_close().is_none());
        drop(exclusive);
        assert!(!gate.is_closing() && !batch.has_closed());
        assert!(batch.try_close().is_some());
    }

    #[test]
    fn oldest_epoch_follows_the_participants() {
        let gate = joined(2);
        assert_eq!(gate.oldest(), u64::MAX);
        let early = gate.enter(0);
        let ended = gate.advance();
        assert!(gate.oldest() <= ended, "a batch of the ended epoch is still inside");
        let late = gate.enter(1);
        assert!(gate.oldest() <= ended);
        drop(early);
        assert!(gate.oldest() > ended, "only the batch of the next epoch is left");
        drop(late);
    }

    #[test]
    fn exclusive_waits_for_the_others() {
        let gate = Gate::new(4);
        let counter = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for participant in 0..4 {
                let (gate, counter) = (&gate, &counter);
                scope.spawn(move || {
                    let mut closed = 0;
                    while closed < 200 {
                        let batch = gate.enter(participant);
                        if let Some(_exclusive) = batch.try_close() {
                            // Not atomic on purpose: only exclusion keeps the count whole.
                            let before = counter.load(std::sync::atomic::Ordering::Relaxed);
                            std::thread::yield_now();
                            counter.store(before + 1, std::sync::atomic::Ordering::Relaxed);
                            closed += 1;
                        }
                    }
                });
            }
        });
        assert_eq!(counter.into_inner(), 800);
    }
}
