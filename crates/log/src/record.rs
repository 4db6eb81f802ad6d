//! Records: what one write, transaction or script puts into the log.
//!
//! Between records the selected database is 0, so that every end of a record is a place to start reading: a record for
//! database n carries its own `SELECT n` and ends with `SELECT 0`. A record for database 0 carries nothing extra.
//! A transaction is one record: `MULTI`, its commands, `EXEC`; if it turns out to be a single command, just that, as in Redis.
//!
//! Redis instead remembers the last database across commands, which saves bytes and makes each position of the stream
//! depend on all before it.

use std::ops::Range;
use std::sync::Arc;

use gimmal_resp::{encode_array_header, encode_bulk, encode_bulk_header, encode_command};

use crate::LARGE_RECORD;
use crate::append::Part;
use crate::mutant::{self, Mutant};

/// A record being encoded. Made before any lock is taken; kept and cleared for reuse.
#[derive(Debug, Default)]
pub struct Record {
    bytes: Vec<u8>,
    /// Large arguments, each to be read at this offset of `bytes`. Ascending.
    shared: Vec<(usize, Arc<Vec<u8>>, Range<usize>)>,
    selected: u32,
    transaction: bool,
    /// Commands added, without those of the record itself.
    commands: usize,
    finished: bool,
}

/// What a transaction begins with.
const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";

impl Record {
    /// An empty record.
    pub fn new() -> Record {
        Record::default()
    }

    /// Memory that is kept for reuse.
    const KEPT: usize = 64 * 1024;

    /// Empties the record, keeping its memory unless it was unusually large.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(Self::KEPT);
        self.shared.clear();
        (self.selected, self.transaction, self.commands, self.finished) = (0, false, 0, false);
    }

    /// Makes the record a transaction: the commands that follow are between `MULTI` and `EXEC`.
    ///
    /// # Panics
    /// When the record has commands already.
    pub fn transaction(&mut self) -> &mut Record {
        assert!(self.is_empty(), "a record is a transaction from its start");
        if mutant::is(Mutant::MultiSplit) {
            return self;
        }
        self.transaction = true;
        self.bytes.extend_from_slice(MULTI);
        self
    }

    /// Adds a command for a database.
    pub fn command<T: AsRef<[u8]>>(&mut self, database: u32, args: &[T]) -> &mut Record {
        self.begin_command(database, args.len());
        for arg in args {
            self.arg(arg.as_ref());
        }
        self
    }

    /// Adds the head of a command with `args` arguments, which are then added with [`Record::arg`] and
    /// [`Record::shared_arg`].
    pub fn begin_command(&mut self, database: u32, args: usize) -> &mut Record {
        debug_assert!(!self.finished, "a finished record is cleared before it is used again");
        self.select(database);
        self.commands += 1;
        encode_array_header(&mut self.bytes, args);
        self
    }

    /// Commands added so far.
    pub fn commands(&self) -> usize {
        self.commands
    }

    /// Adds an argument.
    #[inline]
    pub fn arg(&mut self, bytes: &[u8]) -> &mut Record {
        encode_bulk(&mut self.bytes, bytes);
        self
    }

    /// Adds an argument that is referenced when it is large.
    pub fn shared_arg(&mut self, bytes: &Arc<Vec<u8>>, range: Range<usize>) -> &mut Record {
        if range.len() < LARGE_RECORD {
            return self.arg(&bytes[range]);
        }
        encode_bulk_header(&mut self.bytes, range.len());
        self.shared.push((self.bytes.len(), Arc::clone(bytes), range));
        self.bytes.extend_from_slice(b"\r\n");
        self
    }

    /// Adds an argument of `len` bytes that consists of several pieces; large ones are referenced.
    pub fn shared_arg_of(
        &mut self,
        len: usize,
        pieces: impl Iterator<Item = (Arc<Vec<u8>>, Range<usize>)>,
    ) -> &mut Record {
        encode_bulk_header(&mut self.bytes, len);
        for (bytes, range) in pieces {
            if range.len() < LARGE_RECORD {
                self.bytes.extend_from_slice(&bytes[range]);
            } else {
                self.shared.push((self.bytes.len(), bytes, range));
            }
        }
        self.bytes.extend_from_slice(b"\r\n");
        self
    }

    /// Ends the record: `EXEC` if it is a transaction, and back to database 0. Once, before it is appended.
    pub fn finish(&mut self) -> &mut Record {
        if !self.finished {
            self.finished = true;
            if self.transaction && self.commands > 1 {
                encode_command(&mut self.bytes, &["EXEC"]);
            }
            self.select(0);
        }
        self
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The encoded bytes, if they are all in one place.
    #[inline]
    pub fn contiguous(&self) -> Option<&[u8]> {
        debug_assert!(self.finished || self.is_empty(), "a record is finished before it is appended");
        self.shared.is_empty().then(|| &self.bytes[self.begin()..])
    }

    /// The pieces of the record, in order.
    pub fn parts(&self) -> Vec<Part<'_>> {
        let mut parts = Vec::with_capacity(2 * self.shared.len() + 1);
        let mut from = self.begin();
        for (at, bytes, range) in &self.shared {
            parts.push(Part::Bytes(&self.bytes[from..*at]));
            parts.push(Part::Shared(Arc::clone(bytes), range.clone()));
            from = *at;
        }
        parts.push(Part::Bytes(&self.bytes[from..]));
        parts
    }

    /// Where the record begins: a transaction of one command leaves `MULTI` out.
    fn begin(&self) -> usize {
        if self.transaction && self.commands < 2 { MULTI.len() } else { 0 }
    }

    fn select(&mut self, database: u32) {
        if database != self.selected {
            self.selected = database;
            encode_command(&mut self.bytes, &["SELECT", &database.to_string()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(record: &Record) -> String {
        let bytes: Vec<u8> = record.parts().iter().flat_map(|part| part.bytes().to_vec()).collect();
        String::from_utf8_lossy(&bytes).replace("\r\n", " ")
    }

    #[test]
    fn database_0_carries_nothing_extra() {
        let mut record = Record::new();
        record.command(0, &["SET", "k", "v"]).finish();
        assert_eq!(text(&record), "*3 $3 SET $1 k $1 v ");
        assert!(record.contiguous().is_some());
    }

    #[test]
    fn other_databases_are_selected_and_left() {
        let mut record = Record::new();
        record.command(12, &["DEL", "k"]).command(12, &["DEL", "l"]).finish();
        assert_eq!(text(&record), "*2 $6 SELECT $2 12 *2 $3 DEL $1 k *2 $3 DEL $1 l *2 $6 SELECT $1 0 ");
    }

    #[test]
    fn a_transaction_is_one_record() {
        let mut record = Record::new();
        record.transaction().command(0, &["A"]).command(3, &["B"]).command(0, &["C"]).command(1, &["D"]).finish();
        assert_eq!(
            text(&record),
            "*1 $5 MULTI *1 $1 A *2 $6 SELECT $1 3 *1 $1 B *2 $6 SELECT $1 0 *1 $1 C *2 $6 SELECT $1 1 *1 $1 D \
             *1 $4 EXEC *2 $6 SELECT $1 0 "
        );
        record.clear();
        record.command(0, &["A"]).finish();
        assert_eq!(text(&record), "*1 $1 A ");
    }

    #[test]
    fn a_transaction_of_one_command_is_that_command() {
        let mut record = Record::new();
        record.transaction().command(0, &["A"]).finish();
        assert_eq!((text(&record).as_str(), record.commands()), ("*1 $1 A ", 1));
        record.clear();
        let value = Arc::new(vec![b'v'; LARGE_RECORD]);
        record.transaction().begin_command(2, 1).shared_arg(&value, 0..LARGE_RECORD).finish();
        let large = "v".repeat(LARGE_RECORD);
        assert_eq!(text(&record), format!("*2 $6 SELECT $1 2 *1 ${LARGE_RECORD} {large} *2 $6 SELECT $1 0 "));
    }

    #[test]
    fn large_arguments_are_referenced() {
        let value = Arc::new(vec![b'v'; LARGE_RECORD + 1]);
        let mut record = Record::new();
        record
            .begin_command(0, 4)
            .arg(b"MSET")
            .shared_arg(&value, 1..LARGE_RECORD + 1)
            .arg(b"k")
            .shared_arg(&value, 0..3);
        record.finish();
        assert!(record.contiguous().is_none());
        let parts = record.parts();
        assert_eq!(parts.len(), 3);
        assert!(
            matches!(&parts[1], Part::Shared(bytes, range) if Arc::ptr_eq(bytes, &value) && *range == (1..LARGE_RECORD + 1))
        );
        let large = "v".repeat(LARGE_RECORD);
        assert_eq!(text(&record), format!("*4 $4 MSET ${LARGE_RECORD} {large} $1 k $3 vvv "));
    }
}
