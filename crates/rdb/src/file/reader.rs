//! Reading a file.

use super::keys::{Cut, attribute, skip_key};
use super::window::Window;
use crate::decode::Decoder;
use crate::error::{Error, ErrorKind, Result};
use crate::primitive::{array, byte, corrupt, length, skip_string, string_into};
use crate::sink::Sink;
use crate::skip::{skip_module, skip_value};
use crate::source::Source;
use crate::tag;
use std::io::Read;

/// Reads a file: [`next`](Reader::next) until [`Item::End`]; after an [`Item::Entry`] its value, in one of three ways:
/// decoded ([`value`](Reader::value)), as the encoded bytes for somebody else ([`encoded_value`](Reader::encoded_value)), or
/// not at all. Where keys come next, many of them can be had at once ([`keys`](Reader::keys)).
#[derive(Debug)]
pub struct Reader<R> {
    window: Window<R>,
    version: u32,
    checks_sum: bool,
    /// What is known of the next key.
    entry: Entry,
    key: Vec<u8>,
    text: Vec<u8>,
    decoder: Decoder,
    /// The type of the value that comes next in the file.
    pending: Option<u8>,
}

/// What a file consists of.
#[derive(Debug, PartialEq)]
pub enum Item<'a> {
    /// A remark: `redis-ver`, `ctime`, `repl-id`, …
    Aux {
        /// Its name.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// The keys that follow are of this database.
    Database(u64),
    /// How many keys the database has, and how many of them expire: hints.
    Sizes {
        /// All keys.
        keys: u64,
        /// Those that expire.
        expiring: u64,
    },
    /// The source of a function library.
    Function(&'a [u8]),
    /// Data of a module beside the keys; passed over.
    ModuleAux,
    /// A key; its value follows. Its name is [`Reader::key`].
    Entry(Entry),
    /// The end of the file; its checksum is right.
    End,
}

/// What stands with a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Its database.
    pub db: u64,
    /// The byte of its value's type; see [`kind`](crate::kind).
    pub tag: u8,
    /// When it expires, Unix time in milliseconds.
    pub expire_at_ms: Option<i64>,
    /// For how long it was not used, in seconds.
    pub idle_s: Option<u64>,
    /// How often it is used, as LFU counts.
    pub frequency: Option<u8>,
}

/// What follows the end of the file; see [`Reader::into_tail`].
#[derive(Debug)]
pub struct Tail<R> {
    /// Bytes that were read already.
    pub bytes: Vec<u8>,
    /// Where more come from.
    pub read: R,
    /// Length of the file before.
    pub position: u64,
}

impl<R: Read> Reader<R> {
    /// Begins a file: reads its magic and version. A large buffer of its own is unnecessary in `read`.
    pub fn new(read: R) -> Result<Reader<R>> {
        let mut window = Window::new(read);
        let magic: [u8; 9] = array(&mut window)?;
        let digits = match &magic {
            [b'R', b'E', b'D', b'I', b'S', digits @ ..] => &digits[..],
            [b'V', b'A', b'L', b'K', b'E', b'Y', digits @ ..] => &digits[..],
            _ => return Err(Error::new(ErrorKind::Magic(magic.to_vec()), 0)),
        };
        let version = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        let version = version.ok_or_else(|| Error::new(ErrorKind::Magic(magic.to_vec()), 0))?;
        if !(1..=tag::NEWEST_VERSION).contains(&version) {
            return Err(Error::new(ErrorKind::Version(version), 0));
        }
        Ok(Reader {
            window,
            version,
            checks_sum: true,
            entry: Entry::default(),
            key: Vec::new(),
            text: Vec::new(),
            decoder: Decoder::default(),
            pending: None,
        })
    }

    /// Whether a wrong checksum is an error (`rdbchecksum`); it is unless said otherwise.
    pub fn check_sum(&mut self, checks: bool) {
        self.checks_sum = checks;
    }

    /// Version of the format.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Bytes read so far.
    pub fn position(&self) -> u64 {
        self.window.position()
    }

    /// The name of the last entry's key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// What comes next; a value that was not asked for is passed over.
    #[allow(clippy::should_implement_trait)] // Items borrow from the reader, which an iterator's cannot.
    pub fn next(&mut self) -> Result<Item<'_>> {
        if let Some(tag) = self.pending.take() {
            skip_value(tag, self.version, &mut self.window)?;
        }
        loop {
            let entry = &mut self.entry;
            entry.tag = byte(&mut self.window)?;
            if attribute(&mut self.window, entry)? {
                continue;
            }
            match entry.tag {
                tag @ (tag::SLOT_IMPORT | tag::SLOT_INFO) => self.skip_slots(tag)?,
                tag @ tag::FUNCTION_PRE_GA.. => return self.opcode(tag),
                tag @ tag::FUNCTION2 => return self.opcode(tag),
                tag => {
                    string_into(&mut self.window, &mut self.key)?;
                    self.pending = Some(tag);
                    let next = Entry { db: self.entry.db, ..Entry::default() };
                    return Ok(Item::Entry(std::mem::replace(&mut self.entry, next)));
                }
            }
        }
    }

    /// The keys that come next, values included, as they stand in the file: as many as have about half of `limit` bytes,
    /// to be taken apart by [`Keys`](super::Keys). `None` if what comes next is no key, or one of more than `limit` bytes:
    /// [`next`](Reader::next) says what it is.
    pub fn keys(&mut self, limit: usize) -> Result<Option<Cut<'_>>> {
        if let Some(tag) = self.pending.take() {
            skip_value(tag, self.version, &mut self.window)?;
        }
        let offset = self.position();
        self.window.set_mark(limit);
        let (mut keys, mut len) = (0, 0);
        while len < limit / 2 {
            match skip_key(self.version, &mut self.window) {
                Ok(true) => (keys, len) = (keys + 1, self.window.len_since_mark()),
                Ok(false) => break,
                Err(_) if self.window.is_over_limit() => break,
                Err(error) => return Err(error),
            }
        }
        let bytes = self.window.cut_at(len);
        Ok((keys > 0).then_some(Cut { bytes, keys, db: self.entry.db, offset }))
    }

    fn opcode(&mut self, tag: u8) -> Result<Item<'_>> {
        match tag {
            tag::AUX => {
                string_into(&mut self.window, &mut self.key)?;
                string_into(&mut self.window, &mut self.text)?;
                Ok(Item::Aux { name: &self.key, value: &self.text })
            }
            tag::SELECTDB => {
                self.entry.db = length(&mut self.window)?;
                Ok(Item::Database(self.entry.db))
            }
            tag::RESIZEDB => Ok(Item::Sizes { keys: length(&mut self.window)?, expiring: length(&mut self.window)? }),
            tag::FUNCTION2 => {
                string_into(&mut self.window, &mut self.text)?;
                Ok(Item::Function(&self.text))
            }
            tag::MODULE_AUX => {
                let _module = length(&mut self.window)?;
                skip_module(&mut self.window)?;
                Ok(Item::ModuleAux)
            }
            tag::EOF => {
                self.end()?;
                Ok(Item::End)
            }
            tag::FUNCTION_PRE_GA => {
                let what = "functions in a format of release candidates";
                Err(Error::new(ErrorKind::Unsupported(what), self.position()))
            }
            tag => Err(Error::new(ErrorKind::UnknownType(tag), self.position())),
        }
    }

    /// What concerns slots of a cluster: how full they are (a hint), or that some are being imported (a state that ends
    /// with the process that wrote it).
    fn skip_slots(&mut self, tag: u8) -> Result<()> {
        let numbers = match tag {
            tag::SLOT_INFO => 3,
            _ if self.version < tag::NEWEST_VERSION => {
                let what = "metadata of modules for a key";
                return Err(Error::new(ErrorKind::Unsupported(what), self.position()));
            }
            _ => {
                skip_string(&mut self.window)?;
                let ranges = length(&mut self.window)?;
                ranges.checked_mul(2).ok_or_else(|| corrupt(&self.window, "too many slots"))?
            }
        };
        for _ in 0..numbers {
            length(&mut self.window)?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        if self.version < FIRST_WITH_CHECKSUM {
            return Ok(());
        }
        let calculated = self.window.checksum();
        let offset = self.position();
        let stored = u64::from_le_bytes(array(&mut self.window)?);
        // Zero: written without one.
        if self.checks_sum && stored != 0 && stored != calculated {
            return Err(Error::new(ErrorKind::Checksum { stored, calculated }, offset));
        }
        Ok(())
    }

    /// Decodes the value of the last entry. After [`Error::is_empty_value`] the reader can go on, after others not.
    ///
    /// # Panics
    /// Without an entry whose value is still there.
    pub fn value<K: Sink>(&mut self, sink: &mut K) -> Result<()> {
        let tag = self.pending.take().expect("an entry came before");
        let decoded = self.decoder.decode(tag, self.version, &mut self.window, sink);
        self.decoder.shrink();
        decoded
    }

    /// The encoded value of the last entry, to be decoded by a [`Decoder`] with the entry's tag and this reader's version;
    /// `None` if it would have to be collected beyond `limit` bytes: it stays to be asked for with [`value`](Reader::value).
    ///
    /// # Panics
    /// Without an entry whose value is still there.
    pub fn encoded_value(&mut self, limit: usize) -> Result<Option<&[u8]>> {
        let tag = self.pending.expect("an entry came before");
        self.window.set_mark(limit);
        match skip_value(tag, self.version, &mut self.window) {
            Err(_) if self.window.is_over_limit() => {
                self.window.rewind();
                Ok(None)
            }
            Err(error) => Err(error),
            Ok(()) => {
                self.pending = None;
                Ok(Some(self.window.since_mark()))
            }
        }
    }

    /// After [`Item::End`]: what follows the file, as the commands in an AOF whose beginning is an RDB.
    pub fn into_tail(self) -> Tail<R> {
        let position = self.window.position();
        let (bytes, read) = self.window.into_rest();
        Tail { bytes, read, position }
    }
}

/// Older files have no checksum.
const FIRST_WITH_CHECKSUM: u32 = 5;
