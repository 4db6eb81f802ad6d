//! Active expiry: removing keys whose time has come, without looking at keys whose time has not.
//!
//! The table and each segment keep a lower bound of their keys' times of expiry. A pass walks the directory, opens only segments
//! whose bound has passed, removes what is due and recomputes the bound. The pass's own minimum becomes the table's bound at its
//! end, so that a table without due keys costs one compare until the next is due.
//!
//! Dropped: a heap or wheel of deadlines (16 bytes per volatile key), and sampling keys at random (which finds the last due key of
//! a million late).

use std::sync::atomic::Ordering::Relaxed;

use super::scan::{END, segment_at};
use super::{Location, Table};
use crate::hash::Hash;
use crate::segment::Segment;

impl Table {
    /// Goes on with the table's own pass over its segments, as [`Table::expired_slice`], which remembers where it stands: for whoever
    /// walks many tables in turn. True when a pass is complete.
    pub fn expire_some(&mut self, now_ms: i64, max_visited: usize, f: &mut dyn FnMut(&[u8], Hash)) -> bool {
        let mut resume = u64::from(self.pass_position);
        self.expired_slice(now_ms, max_visited, &mut resume, f);
        resume == 0
    }

    /// Removes keys whose time of expiry is before `now_ms` (as in Redis, a key is still there at that very ms), calling `f` with each before it goes. Returns how many were removed.
    ///
    /// `resume` is 0 to begin a pass and is where the next call goes on; 0 again when the pass is complete. `max_visited` bounds
    /// the work: a segment looked at counts 1, and each entry of one that is opened counts 1 more; a segment is finished once
    /// opened.
    pub fn expired_slice(
        &mut self,
        now_ms: i64,
        max_visited: usize,
        resume: &mut u64,
        f: &mut dyn FnMut(&[u8], Hash),
    ) -> usize {
        if self.deadline_ms() >= now_ms {
            *resume = 0;
            return 0;
        }
        if *resume == 0 {
            self.pass_position = 0;
            self.pass_deadline_ms = i64::MAX;
        }
        // A caller that goes on where another pass was does expire keys, but may not raise the table's bound.
        let own_pass = u64::from(self.pass_position) == *resume;
        let (mut position, mut visited, mut removed) = (*resume, 0, 0);
        while position < END && visited < max_visited.max(1) {
            let directory = self.directory().expect("a table with a deadline has a directory");
            let (segment, next) = segment_at(directory, position);
            visited += 1;
            if segment.deadline_ms() < now_ms {
                visited += segment.len();
                removed += self.expire_segment(segment, now_ms, f);
            }
            self.pass_deadline_ms = self.pass_deadline_ms.min(segment.deadline_ms());
            if segment.len() * 4 < segment.slots() && removed > 0 {
                self.shrink(position << 32);
            }
            position = next;
        }
        if position >= END {
            if own_pass {
                self.root().deadline_ms.store(self.pass_deadline_ms, Relaxed);
            }
            position = 0;
        }
        if own_pass {
            self.pass_position = u32::try_from(position).expect("positions have 32 bits");
        }
        *resume = position;
        removed
    }

    /// Removes what is due from one segment and sets its deadline exactly.
    fn expire_segment(&mut self, segment: Segment, now_ms: i64, f: &mut dyn FnMut(&[u8], Hash)) -> usize {
        segment.entries().for_each(|(_, entry)| crate::prefetch::prefetch(entry.as_ptr().as_ptr()));
        let (mut earliest_ms, mut removed) = (i64::MAX, 0);
        for index in 0..segment.slots() {
            let Some((_, entry)) = segment.at(index) else {
                continue;
            };
            match entry.expire_at_ms() {
                Some(at_ms) if at_ms < now_ms => {
                    f(entry.key(), self.context().hasher.hash(entry.key()));
                    drop(self.detach(Location { segment, index, entry }));
                    removed += 1;
                }
                Some(at_ms) => earliest_ms = earliest_ms.min(at_ms),
                None => {}
            }
        }
        segment.set_deadline_ms(earliest_ms);
        removed
    }
}
