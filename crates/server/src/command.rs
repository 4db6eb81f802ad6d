//! What a command is: the one declaration that drives lookup, arity, gates, keys, ACL categories, COMMAND and its docs.
//!
//! Each family in `commands/` opens with its static table of [`Command`]s; [`Table`] joins them once at start. The
//! static part never changes: run-time statistics live in `stats.rs`, indexed by [`Entry::id`].

use crate::args::Args;
use crate::exec::{Exec, Outcome};

/// A command handler: parses its options, locks its keys, acts, replies.
pub type Handler = fn(&mut Exec<'_>, &Args<'_>) -> Outcome;

/// Finds the keys of a command whose positions depend on its options; positions are argument indices.
pub type KeysFn = fn(&Args<'_>) -> Option<Vec<(usize, u32)>>;

/// One declared command or subcommand.
#[derive(Debug)]
pub struct Command {
    /// Lower-case name; a subcommand's own name without its container's.
    pub name: &'static str,
    /// What runs it.
    pub run: Handler,
    /// Number of arguments with the name; negative: at least that many.
    pub arity: i32,
    /// Bits of [`flag`].
    pub flags: u32,
    /// Explicit ACL category bits of [`acl`]; the implied ones are added by [`Command::categories`].
    pub acl: u32,
    /// Where its keys are.
    pub keys: &'static [KeySpec],
    /// For commands whose keys depend on options.
    pub keys_fn: Option<KeysFn>,
    /// Which arguments it looks for in the value at its key.
    pub sought: Option<Sought>,
    /// Redis version that introduced it.
    pub since: &'static str,
    /// Documentation group.
    pub group: &'static str,
    /// Time complexity, in words.
    pub complexity: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// Arguments for COMMAND DOCS.
    pub arguments: &'static [Argument],
    /// Hints for client libraries.
    pub tips: &'static [&'static str],
    /// Changes, as (version, sentence).
    pub history: &'static [(&'static str, &'static str)],
    /// Version that deprecated it and what to use instead.
    pub deprecated: Option<(&'static str, &'static str)>,
    /// A container's subcommands.
    pub subcommands: &'static [Command],
}

impl Command {
    /// What the tables fill up from.
    pub const DEFAULT: Command = Command {
        name: "",
        run: container_only,
        arity: 1,
        flags: 0,
        acl: 0,
        keys: &[],
        keys_fn: None,
        sought: None,
        since: "1.0.0",
        group: "generic",
        complexity: "",
        summary: "",
        arguments: &[],
        tips: &[],
        history: &[],
        deprecated: None,
        subcommands: &[],
    };

    /// True if `argc` arguments (with the name) fit the arity.
    pub fn accepts(&self, argc: usize) -> bool {
        let argc = i32::try_from(argc).unwrap_or(i32::MAX);
        if self.arity >= 0 { argc == self.arity } else { argc >= -self.arity }
    }

    /// All ACL categories: the explicit ones and those its flags imply, as Redis derives them.
    pub fn categories(&self) -> u32 {
        let mut bits = self.acl;
        let implied = [
            (flag::WRITE, acl::WRITE),
            (flag::PUBSUB, acl::PUBSUB),
            (flag::BLOCKING, acl::BLOCKING),
            (flag::ADMIN, acl::ADMIN | acl::DANGEROUS),
        ];
        for (when, then) in implied {
            if self.flags & when != 0 {
                bits |= then;
            }
        }
        if self.flags & flag::READONLY != 0 && self.acl & acl::SCRIPTING == 0 {
            bits |= acl::READ;
        }
        bits | if self.flags & flag::FAST != 0 { acl::FAST } else { acl::SLOW }
    }
}

/// A container called without a subcommand never reaches its handler: its arity is at least -2.
fn container_only(_: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    Err("ERR unknown subcommand".into())
}

/// Command flags, with Redis's names in COMMAND INFO.
pub mod flag {
    #![allow(missing_docs, reason = "the names are Redis's own flag names")]
    pub const WRITE: u32 = 1 << 0;
    pub const READONLY: u32 = 1 << 1;
    pub const DENYOOM: u32 = 1 << 2;
    pub const ADMIN: u32 = 1 << 3;
    pub const PUBSUB: u32 = 1 << 4;
    pub const NOSCRIPT: u32 = 1 << 5;
    pub const BLOCKING: u32 = 1 << 6;
    pub const LOADING: u32 = 1 << 7;
    pub const STALE: u32 = 1 << 8;
    pub const SKIP_MONITOR: u32 = 1 << 9;
    pub const SKIP_SLOWLOG: u32 = 1 << 10;
    pub const ASKING: u32 = 1 << 11;
    pub const FAST: u32 = 1 << 12;
    pub const NO_AUTH: u32 = 1 << 13;
    pub const MAY_REPLICATE: u32 = 1 << 14;
    pub const NO_MANDATORY_KEYS: u32 = 1 << 15;
    pub const PROTECTED: u32 = 1 << 16;
    pub const NO_ASYNC_LOADING: u32 = 1 << 17;
    pub const NO_MULTI: u32 = 1 << 18;
    pub const ALLOW_BUSY: u32 = 1 << 19;
    pub const TOUCHES_ARBITRARY_KEYS: u32 = 1 << 20;
    /// For tests and tools only; shown as a doc flag, not as a flag.
    pub const SYSCMD: u32 = 1 << 27;
    /// Gimmal's own: keys move with options (Redis's `movablekeys`).
    pub const MOVABLE_KEYS: u32 = 1 << 29;

    /// Bit and name of every flag that COMMAND INFO shows, in Redis's order.
    pub const NAMES: &[(u32, &str)] = &[
        (WRITE, "write"),
        (READONLY, "readonly"),
        (DENYOOM, "denyoom"),
        (ADMIN, "admin"),
        (PUBSUB, "pubsub"),
        (NOSCRIPT, "noscript"),
        (BLOCKING, "blocking"),
        (LOADING, "loading"),
        (STALE, "stale"),
        (SKIP_MONITOR, "skip_monitor"),
        (SKIP_SLOWLOG, "skip_slowlog"),
        (ASKING, "asking"),
        (FAST, "fast"),
        (NO_AUTH, "no_auth"),
        (NO_MANDATORY_KEYS, "no_mandatory_keys"),
        (NO_ASYNC_LOADING, "no_async_loading"),
        (NO_MULTI, "no_multi"),
        (MOVABLE_KEYS, "movablekeys"),
        (ALLOW_BUSY, "allow_busy"),
    ];
}

/// Conditions under which some commands do not simply run; `entry.gates & active` is the one test on the data path.
pub mod gate {
    /// The client has not authenticated.
    pub const NEEDS_AUTH: u32 = 1 << 0;
    /// CLIENT PAUSE … WRITE.
    pub const PAUSED_WRITES: u32 = 1 << 1;
    /// CLIENT PAUSE … ALL.
    pub const PAUSED_ALL: u32 = 1 << 2;
    /// All commands are held; see `shared::Hold`.
    pub const HELD: u32 = 1 << 7;
    /// The data set is being loaded.
    pub const LOADING: u32 = 1 << 3;
    /// The log has no room: writes wait until it was read.
    pub const LOG_FULL: u32 = 1 << 4;
    /// There is a memory limit: a command that may take memory looks at it.
    pub const MEMORY: u32 = 1 << 5;
    /// What is on disk cannot be kept up: writes are refused.
    pub const DISK: u32 = 1 << 6;
    /// The client is in MULTI: its commands are queued.
    pub const IN_MULTI: u32 = 1 << 8;
    /// The client has subscriptions and speaks RESP2.
    pub const SUBSCRIBED: u32 = 1 << 9;
    /// The client is a monitor.
    pub const MONITORING: u32 = 1 << 10;
    /// The client tracks what it reads: its commands are looked at more closely.
    pub const CACHING: u32 = 1 << 11;
    /// Those that make a command wait instead of refusing it.
    pub const WAITING: u32 = PAUSED_WRITES | PAUSED_ALL | LOG_FULL | HELD;
}

/// ACL categories.
pub mod acl {
    #![allow(missing_docs, reason = "the names are Redis's own category names")]
    pub const KEYSPACE: u32 = 1 << 0;
    pub const READ: u32 = 1 << 1;
    pub const WRITE: u32 = 1 << 2;
    pub const SET: u32 = 1 << 3;
    pub const SORTEDSET: u32 = 1 << 4;
    pub const LIST: u32 = 1 << 5;
    pub const HASH: u32 = 1 << 6;
    pub const STRING: u32 = 1 << 7;
    pub const BITMAP: u32 = 1 << 8;
    pub const HYPERLOGLOG: u32 = 1 << 9;
    pub const GEO: u32 = 1 << 10;
    pub const STREAM: u32 = 1 << 11;
    pub const PUBSUB: u32 = 1 << 12;
    pub const ADMIN: u32 = 1 << 13;
    pub const FAST: u32 = 1 << 14;
    pub const SLOW: u32 = 1 << 15;
    pub const BLOCKING: u32 = 1 << 16;
    pub const DANGEROUS: u32 = 1 << 17;
    pub const CONNECTION: u32 = 1 << 18;
    pub const TRANSACTION: u32 = 1 << 19;
    pub const SCRIPTING: u32 = 1 << 20;

    /// Bit and name (without `@`), in Redis's order.
    pub const NAMES: &[(u32, &str)] = &[
        (KEYSPACE, "keyspace"),
        (READ, "read"),
        (WRITE, "write"),
        (SET, "set"),
        (SORTEDSET, "sortedset"),
        (LIST, "list"),
        (HASH, "hash"),
        (STRING, "string"),
        (BITMAP, "bitmap"),
        (HYPERLOGLOG, "hyperloglog"),
        (GEO, "geo"),
        (STREAM, "stream"),
        (PUBSUB, "pubsub"),
        (ADMIN, "admin"),
        (FAST, "fast"),
        (SLOW, "slow"),
        (BLOCKING, "blocking"),
        (DANGEROUS, "dangerous"),
        (CONNECTION, "connection"),
        (TRANSACTION, "transaction"),
        (SCRIPTING, "scripting"),
    ];

    /// The bit of a category, by its name in any case.
    pub fn category(name: &[u8]) -> Option<u32> {
        NAMES.iter().find(|(_, known)| known.as_bytes().eq_ignore_ascii_case(name)).map(|(bit, _)| *bit)
    }
}

/// What a command does to the keys of one key spec.
pub mod keyflag {
    #![allow(missing_docs, reason = "the names are Redis's own key-spec flag names")]
    pub const RO: u32 = 1 << 0;
    pub const RW: u32 = 1 << 1;
    pub const OW: u32 = 1 << 2;
    pub const RM: u32 = 1 << 3;
    pub const ACCESS: u32 = 1 << 4;
    pub const UPDATE: u32 = 1 << 5;
    pub const INSERT: u32 = 1 << 6;
    pub const DELETE: u32 = 1 << 7;
    pub const NOT_KEY: u32 = 1 << 8;
    pub const INCOMPLETE: u32 = 1 << 9;
    pub const VARIABLE_FLAGS: u32 = 1 << 10;

    /// Bit and name, in Redis's order.
    pub const NAMES: &[(u32, &str)] = &[
        (RO, "RO"),
        (RW, "RW"),
        (OW, "OW"),
        (RM, "RM"),
        (ACCESS, "access"),
        (UPDATE, "update"),
        (INSERT, "insert"),
        (DELETE, "delete"),
        (NOT_KEY, "not_key"),
        (INCOMPLETE, "incomplete"),
        (VARIABLE_FLAGS, "variable_flags"),
    ];
}

/// Where some of a command's keys are.
#[derive(Debug, Clone, Copy)]
pub struct KeySpec {
    /// Bits of [`keyflag`].
    pub flags: u32,
    /// How the first key is found.
    pub begin: Begin,
    /// How the others follow.
    pub find: Find,
    /// A remark for COMMAND INFO.
    pub notes: &'static str,
}

/// How the first key of a spec is found.
#[derive(Debug, Clone, Copy)]
pub enum Begin {
    /// At this argument.
    Index(usize),
    /// After this word, searched from `from` (negative: from the end).
    Keyword(&'static str, i32),
    /// Not describable.
    Unknown,
}

/// How keys follow the first one.
#[derive(Debug, Clone, Copy)]
pub enum Find {
    /// Up to `last` arguments after the first (negative: counted from the end), every `step`; `limit` divides the rest.
    Range {
        /// The last key, counted from the first.
        last: i32,
        /// From one key to the next.
        step: usize,
        /// Divides how far the keys reach.
        limit: usize,
    },
    /// A count stands at `at` after the begin, the first key at `first`, then every `step`.
    KeyNum {
        /// Where the count is.
        at: usize,
        /// Where the first key is.
        first: usize,
        /// From one key to the next.
        step: usize,
    },
    /// Not describable.
    Unknown,
}

/// The one key at argument 1.
pub const fn key1(flags: u32) -> KeySpec {
    KeySpec { flags, begin: Begin::Index(1), find: Find::Range { last: 0, step: 1, limit: 0 }, notes: "" }
}

/// The one key at argument `at`.
pub const fn key_at(at: usize, flags: u32) -> KeySpec {
    KeySpec { flags, begin: Begin::Index(at), find: Find::Range { last: 0, step: 1, limit: 0 }, notes: "" }
}

/// Keys from argument `first` to the end (`last` -1), every `step`.
pub const fn key_range(first: usize, last: i32, step: usize, flags: u32) -> KeySpec {
    KeySpec { flags, begin: Begin::Index(first), find: Find::Range { last, step, limit: 0 }, notes: "" }
}

/// Arguments that name members or fields which a command looks for in the one value that it works on: of several commands they are
/// requested from memory together.
#[derive(Debug, Clone, Copy)]
pub struct Sought {
    /// The first of them.
    pub first: usize,
    /// From one to the next.
    pub step: usize,
    /// Their places in the order of a sorted set are looked for as well.
    pub places: bool,
}

impl Sought {
    /// The one at argument `first`.
    pub const fn at(first: usize) -> Sought {
        Sought { first, step: usize::MAX, places: false }
    }

    /// All from argument `first` on.
    pub const fn from(first: usize) -> Sought {
        Sought { first, step: 1, places: false }
    }

    /// Every second one from argument `first` on.
    pub const fn pairs(first: usize) -> Sought {
        Sought { first, step: 2, places: false }
    }

    /// The same, with their places.
    pub const fn with_places(self) -> Sought {
        Sought { places: true, ..self }
    }
}

/// One argument in COMMAND DOCS.
#[derive(Debug, Clone, Copy)]
pub struct Argument {
    /// Name.
    pub name: &'static str,
    /// `key`, `string`, `integer`, `double`, `pattern`, `unix-time`, `pure-token`, `oneof`, `block`.
    pub kind: &'static str,
    /// The literal word before it, or the word itself.
    pub token: &'static str,
    /// Bits: 1 optional, 2 multiple, 4 multiple_token.
    pub flags: u8,
    /// Index of its key spec, if it is a key.
    pub key_spec: Option<usize>,
    /// Version that introduced it, if later than the command.
    pub since: &'static str,
    /// Version that deprecated it.
    pub deprecated: &'static str,
    /// How it is shown in a syntax line, where that is not its name.
    pub shown: &'static str,
    /// Parts of a `oneof` or `block`.
    pub parts: &'static [Argument],
}

impl Argument {
    /// What the tables fill up from.
    pub const DEFAULT: Argument = Argument {
        name: "",
        kind: "string",
        token: "",
        flags: 0,
        key_spec: None,
        since: "",
        deprecated: "",
        shown: "",
        parts: &[],
    };
    /// It may be left out.
    pub const OPTIONAL: u8 = 1;
    /// It may be repeated.
    pub const MULTIPLE: u8 = 2;
    /// Its token is repeated with it.
    pub const MULTIPLE_TOKEN: u8 = 4;
}

/// A command in the joined table.
#[derive(Debug)]
pub struct Entry {
    /// The declaration.
    pub command: &'static Command,
    /// Index into per-command statistics.
    pub id: usize,
    /// `config|get` for a subcommand, else the name.
    pub full_name: String,
    /// Argument index of the first key if it is fixed, else 0: what the prefetch looks at.
    pub first_key: usize,
    /// Bits of [`gate`]: when one of them is up, the command does not simply run.
    pub gates: u32,
    /// With few arguments it is carried out in a µs or so: it is a step, or few, on one value.
    pub is_brief: bool,
    /// Subcommands, by position of their declaration.
    pub subcommands: Vec<Entry>,
}

/// Every command, joined once at start.
#[derive(Debug)]
pub struct Table {
    entries: Vec<Entry>,
    /// Where the entries are by their names' [`name_hash`], from there to the next 0: 1 + index. A table of our own, since names are
    /// looked up for each command, and clients can add none.
    by_name: Box<[u16]>,
    ids: usize,
}

/// Longest command or subcommand name that a lookup considers; longer words are unknown at once.
const LONGEST_NAME: usize = 64;

/// FNV-1a, of a name in lower case. Source: Fowler, Noll and Vo, draft-eastlake-fnv.
#[inline]
fn name_hash(name: &[u8]) -> usize {
    let hash = name
        .iter()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte.to_ascii_lowercase())).wrapping_mul(0x0100_0193));
    hash as usize
}

impl Table {
    /// Joins the families' tables.
    pub fn new(families: &[&'static [Command]]) -> Table {
        let commands: Vec<&'static Command> = families.iter().flat_map(|family| family.iter()).collect();
        let slots = (4 * commands.len()).next_power_of_two();
        let mut table = Table { entries: Vec::new(), by_name: vec![0; slots].into(), ids: 0 };
        for command in commands {
            assert!(table.find(command.name.as_bytes()).is_none(), "command {} is declared twice", command.name);
            let entry = entry(command, None, &mut table.ids);
            table.entries.push(entry);
            let free = table.probe(command.name.as_bytes()).find(|at| table.by_name[*at] == 0);
            let free = free.expect("three quarters of the slots are free");
            table.by_name[free] = u16::try_from(table.entries.len()).expect("a few hundred commands");
        }
        table
    }

    /// The slots in which a name may be, in order.
    #[inline]
    fn probe(&self, name: &[u8]) -> impl Iterator<Item = usize> + use<> {
        let (first, mask) = (name_hash(name), self.by_name.len() - 1);
        (0..=mask).map(move |step| (first.wrapping_add(step)) & mask)
    }

    /// The command of this name, in any case.
    pub fn find(&self, name: &[u8]) -> Option<&Entry> {
        if name.len() > LONGEST_NAME {
            return None;
        }
        let listed = self.probe(name).map(|at| usize::from(self.by_name[at])).take_while(|number| *number != 0);
        let mut entries = listed.map(|number| &self.entries[number - 1]);
        entries.find(|entry| entry.command.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// The command of this full name, `get` or `config|get`, in any case.
    pub fn find_full(&self, name: &[u8]) -> Option<&Entry> {
        match name.iter().position(|&b| b == b'|') {
            None => self.find(name),
            Some(bar) => self.find(&name[..bar])?.subcommand(&name[bar + 1..]),
        }
    }

    /// The command or subcommand with this statistics index.
    pub fn by_id(&self, id: usize) -> Option<&Entry> {
        // Indices are given in the order of the table, a container's before its subcommands'.
        let after = self.entries.partition_point(|entry| entry.id <= id);
        let entry = &self.entries[after.checked_sub(1)?];
        if entry.id == id { Some(entry) } else { entry.subcommands.iter().find(|sub| sub.id == id) }
    }

    /// Every command, containers with their subcommands inside.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Number of statistics slots: commands and subcommands.
    pub fn ids(&self) -> usize {
        self.ids
    }
}

impl Entry {
    /// The subcommand of this name, in any case.
    pub fn subcommand(&self, name: &[u8]) -> Option<&Entry> {
        self.subcommands.iter().find(|sub| sub.command.name.as_bytes().eq_ignore_ascii_case(name))
    }
}

/// What a subscriber may send in RESP2.
const IN_SUBSCRIBED_MODE: [&str; 9] =
    ["ping", "subscribe", "ssubscribe", "psubscribe", "unsubscribe", "sunsubscribe", "punsubscribe", "quit", "reset"];

fn entry(command: &'static Command, container: Option<&str>, ids: &mut usize) -> Entry {
    let id = *ids;
    *ids += 1;
    let full_name = match container {
        Some(container) => format!("{container}|{}", command.name),
        None => command.name.to_string(),
    };
    let first_key = match command.keys.first() {
        Some(KeySpec { begin: Begin::Index(at), find: Find::Range { .. }, .. }) => *at,
        _ => 0,
    };
    let subcommands = command.subcommands.iter().map(|sub| entry(sub, Some(command.name), ids)).collect();
    let mut gates = gate::PAUSED_ALL | gate::HELD;
    // These three are carried out at once; EXEC asks on behalf of what is queued.
    if container.is_some() || !matches!(command.name, "discard" | "quit" | "reset") {
        gates |= gate::IN_MULTI;
    }
    if container.is_some() || !IN_SUBSCRIBED_MODE.contains(&command.name) {
        gates |= gate::SUBSCRIBED;
    }
    if command.flags & (flag::READONLY | flag::WRITE | flag::MAY_REPLICATE) != 0 {
        gates |= gate::MONITORING;
    }
    // CLIENT CACHING is about the next command that is none of CLIENT's.
    if container != Some("client") {
        gates |= gate::CACHING;
    }
    if command.flags & flag::NO_AUTH == 0 {
        gates |= gate::NEEDS_AUTH;
    }
    if command.flags & (flag::WRITE | flag::MAY_REPLICATE) != 0 {
        gates |= gate::PAUSED_WRITES | gate::LOG_FULL;
    }
    // Whoever looks after the server by PING is told, too.
    if command.flags & flag::WRITE != 0 || container.is_none() && command.name == "ping" {
        gates |= gate::DISK;
    }
    if command.flags & flag::LOADING == 0 {
        gates |= gate::LOADING;
    }
    if command.flags & flag::DENYOOM != 0 {
        gates |= gate::MEMORY;
    }
    let is_brief = (command.flags & flag::FAST != 0 || command.complexity == "O(1)")
        && command.flags & (flag::PUBSUB | flag::BLOCKING | flag::ADMIN) == 0;
    Entry { command, id, full_name, first_key, gates, is_brief, subcommands }
}
