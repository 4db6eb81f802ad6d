//! How values are written: for which servers, and how small a value has to be for a packed form.

/// What the writer goes by. The thresholds are those of Redis's directives of the same names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Who is to load it.
    pub version: Version,
    /// Compress strings with LZF (`rdbcompression`).
    pub compress: bool,
    /// Positive: items of a list node. -1 to -5: 4 to 64 KiB.
    pub list_max_listpack_size: i64,
    /// Fields of a hash that is written as one listpack.
    pub hash_max_listpack_entries: usize,
    /// Bytes of a field or value there.
    pub hash_max_listpack_value: usize,
    /// Members of a set that is written as an intset.
    pub set_max_intset_entries: usize,
    /// Members of a set that is written as a listpack, from [`Version::V11`] on.
    pub set_max_listpack_entries: usize,
    /// Bytes of a member there.
    pub set_max_listpack_value: usize,
    /// Members of a sorted set that is written as a listpack.
    pub zset_max_listpack_entries: usize,
    /// Bytes of a member there.
    pub zset_max_listpack_value: usize,
    /// Bytes of a stream node; 0: no bound of its own.
    pub stream_node_max_bytes: usize,
    /// Entries of a stream node; 0: no bound of its own.
    pub stream_node_max_entries: usize,
}

impl Default for Options {
    /// Redis's defaults, for Redis 7.0.
    fn default() -> Options {
        Options {
            version: Version::V10,
            compress: true,
            list_max_listpack_size: -2,
            hash_max_listpack_entries: 128,
            hash_max_listpack_value: 64,
            set_max_intset_entries: 512,
            set_max_listpack_entries: 128,
            set_max_listpack_value: 64,
            zset_max_listpack_entries: 128,
            zset_max_listpack_value: 64,
            stream_node_max_bytes: 4096,
            stream_node_max_entries: 100,
        }
    }
}

/// The version of the format to write. A hash whose fields expire has no form before [`Version::V80`]: it is written as
/// there, and the servers that a lower version is for refuse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Redis 7.0 and everything later. Consumers of streams lose the time of their last success.
    V10,
    /// Redis 7.2, Valkey 7.2 and later.
    V11,
    /// Valkey 9 and later; no Redis.
    V80,
}

impl Version {
    /// Its number.
    pub fn number(self) -> u16 {
        match self {
            Version::V10 => 10,
            Version::V11 => 11,
            Version::V80 => 80,
        }
    }

    /// The first nine bytes of a file.
    pub fn magic(self) -> [u8; 9] {
        match self {
            Version::V10 => *b"REDIS0010",
            Version::V11 => *b"REDIS0011",
            Version::V80 => *b"VALKEY080",
        }
    }
}
