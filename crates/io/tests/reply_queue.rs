//! The reply queues under load: nothing is lost or doubled, the strict ones are in order, and the distributed one is out of
//! order by no more than its bound.

#![cfg(not(loom))]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use gimmal_io::{ReplyQueue, ReplyQueueKind, Turn};

const KINDS: [ReplyQueueKind; 5] = [
    ReplyQueueKind::Lock,
    ReplyQueueKind::Ms,
    ReplyQueueKind::Distributed { partial: 1, balancers: 1 },
    ReplyQueueKind::Distributed { partial: 4, balancers: 1 },
    ReplyQueueKind::Distributed { partial: 5, balancers: 3 },
];

/// A small seeded generator (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % end
    }
}

/// Threads put values and others take them, with room for few, so that nodes are used again all the time.
#[test]
fn nothing_is_lost_or_doubled_under_load() {
    const PUTTERS: usize = 3;
    const TAKERS: usize = 3;
    const EACH: u32 = 100_000;
    const ROOM: usize = 60;
    for kind in KINDS {
        let queue = Arc::new(ReplyQueue::new(kind, PUTTERS + TAKERS));
        queue.reserve(ROOM);
        let inside = Arc::new(AtomicU64::new(0));
        let takers: Vec<_> = (0..TAKERS)
            .map(|taker| {
                let (queue, inside) = (Arc::clone(&queue), Arc::clone(&inside));
                thread::spawn(move || {
                    let mut turn = Turn::new(PUTTERS + taker);
                    let mut taken = Vec::new();
                    while let Some(value) = queue.take(&mut turn) {
                        inside.fetch_sub(1, Ordering::AcqRel);
                        taken.push(value);
                    }
                    taken
                })
            })
            .collect();
        let putters: Vec<_> = (0..PUTTERS as u32)
            .map(|putter| {
                let (queue, inside) = (Arc::clone(&queue), Arc::clone(&inside));
                thread::spawn(move || {
                    let mut turn = Turn::new(putter as usize);
                    for value in putter * EACH..(putter + 1) * EACH {
                        while inside.fetch_add(1, Ordering::AcqRel) >= ROOM as u64 {
                            inside.fetch_sub(1, Ordering::AcqRel);
                            thread::yield_now();
                        }
                        queue.put(&mut turn, value);
                    }
                })
            })
            .collect();
        putters.into_iter().for_each(|putter| putter.join().unwrap());
        // What is still there is taken after the stop.
        queue.stop();
        let taken: Vec<Vec<u32>> = takers.into_iter().map(|taker| taker.join().unwrap()).collect();
        let strict = queue.relaxation() == 0;
        for one in &taken {
            for putter in 0..PUTTERS as u32 {
                let of_putter: Vec<u32> = one.iter().copied().filter(|value| value / EACH == putter).collect();
                assert!(!strict || of_putter.is_sorted(), "{kind:?}: one putter's values change places");
            }
        }
        let mut all: Vec<u32> = taken.concat();
        let mut turn = Turn::new(0);
        all.extend(std::iter::from_fn(|| queue.try_take(&mut turn)));
        all.sort_unstable();
        assert!(all == (0..PUTTERS as u32 * EACH).collect::<Vec<_>>(), "{kind:?}: {} values came out", all.len());
    }
}

/// A lost wake-up shows as a hang: each taker sleeps before almost every value.
#[test]
fn no_wake_up_is_lost() {
    for kind in KINDS {
        let (there, back) = (Arc::new(ReplyQueue::new(kind, 3)), Arc::new(ReplyQueue::new(kind, 3)));
        there.reserve(2);
        back.reserve(2);
        let echoes: Vec<_> = (1..3)
            .map(|thread| {
                let (there, back) = (Arc::clone(&there), Arc::clone(&back));
                thread::spawn(move || {
                    let mut turn = Turn::new(thread);
                    while let Some(value) = there.take(&mut turn) {
                        back.put(&mut turn, value);
                    }
                })
            })
            .collect();
        let mut turn = Turn::new(0);
        for round in 0..20_000 {
            there.put(&mut turn, 2 * round);
            there.put(&mut turn, 2 * round + 1);
            let mut both = [back.take(&mut turn), back.take(&mut turn)];
            both.sort_unstable();
            assert_eq!(both, [Some(2 * round), Some(2 * round + 1)], "{kind:?}");
        }
        there.stop();
        echoes.into_iter().for_each(|echo| echo.join().unwrap());
        assert_eq!(there.try_take(&mut turn), None);
    }
}

/// One thread, which takes the turns of several: every order of operations that it makes is one of the queue's, and how
/// often each value is overtaken is counted exactly.
#[test]
fn values_are_overtaken_no_more_often_than_the_bound_says() {
    for kind in KINDS {
        let mut worst = 0;
        for seed in 0..200 {
            let mut random = Random(seed);
            let threads = 1 + random.below(6) as usize;
            let queue = ReplyQueue::new(kind, threads);
            queue.reserve(5_000);
            let mut turns: Vec<Turn> = (0..threads).map(Turn::new).collect();
            // Values inside, oldest first, with how often each was overtaken.
            let (mut inside, mut next): (VecDeque<(u32, usize)>, u32) = Default::default();
            for _ in 0..4_000 {
                // Seeds differ in whether the queue is mostly empty, mostly long, or swings.
                let swing = if (next / 500) % 2 == 0 { 3 } else { 7 };
                let puts = [5, 6, swing][(seed % 3) as usize];
                let thread = random.below(threads as u64) as usize;
                if random.below(10) < puts {
                    queue.put(&mut turns[thread], next);
                    inside.push_back((next, 0));
                    next += 1;
                    continue;
                }
                let Some(value) = queue.try_take(&mut turns[thread]) else {
                    assert!(inside.is_empty(), "{kind:?}: said to be empty with {} inside", inside.len());
                    continue;
                };
                let at = inside.iter().position(|(inside, _)| *inside == value).expect("a value that was put in");
                inside.iter_mut().take(at).for_each(|(_, overtaken)| *overtaken += 1);
                worst = worst.max(inside.remove(at).unwrap().1);
                assert!(worst <= queue.relaxation(), "{kind:?}: overtaken {worst} times");
            }
        }
        let strict = matches!(kind, ReplyQueueKind::Lock | ReplyQueueKind::Ms);
        let single = matches!(kind, ReplyQueueKind::Distributed { partial: 1, .. });
        assert_eq!(worst == 0, strict || single, "{kind:?}: overtaken {worst} times at most");
    }
}

/// With threads nobody sees the order in which operations take effect; but a value that was put in after another one was,
/// and was out before the other one's taking began, has overtaken it for certain.
#[test]
fn threads_see_values_overtaken_no_more_often_than_the_bound_says() {
    const EACH: u32 = 20_000;
    const THREADS: usize = 4;
    for kind in KINDS {
        let queue = Arc::new(ReplyQueue::new(kind, THREADS));
        queue.reserve(THREADS * EACH as usize);
        let clock = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..THREADS as u32)
            .map(|thread| {
                let (queue, clock) = (Arc::clone(&queue), Arc::clone(&clock));
                thread::spawn(move || {
                    let mut turn = Turn::new(thread as usize);
                    let mut random = Random(u64::from(thread));
                    let tick = || clock.fetch_add(1, Ordering::SeqCst);
                    let (mut put, mut taken) = (Vec::new(), Vec::new());
                    let mut left = thread * EACH..(thread + 1) * EACH;
                    loop {
                        if random.below(2) == 0 {
                            let Some(value) = left.next() else { break };
                            let began = tick();
                            queue.put(&mut turn, value);
                            put.push((value, began, tick()));
                        } else {
                            let began = tick();
                            if let Some(value) = queue.try_take(&mut turn) {
                                taken.push((value, began, tick()));
                            }
                        }
                    }
                    (put, taken)
                })
            })
            .collect();
        // For each value: when its putting began and ended, and when its taking did.
        let mut put = vec![(0, 0); THREADS * EACH as usize];
        let mut taken = Vec::new();
        for thread in threads {
            let (of_puts, of_takes) = thread.join().unwrap();
            of_puts.into_iter().for_each(|(value, began, ended)| put[value as usize] = (began, ended));
            taken.extend(of_takes);
        }
        taken.sort_unstable_by_key(|(_, _, ended)| *ended);
        let bound = queue.relaxation();
        let mut worst = 0;
        for (at, (value, began, _)) in taken.iter().enumerate().step_by(7) {
            let (_, inside) = put[*value as usize];
            let out_before = taken[..at].iter().rev().filter(|(_, _, ended)| ended < began);
            let overtakers = out_before.take(4 * bound + 100).filter(|(other, _, _)| put[*other as usize].0 > inside);
            worst = worst.max(overtakers.count());
        }
        assert!(worst <= bound, "{kind:?}: overtaken {worst} times, {bound} at most");
    }
}
