//! The bytes that announce values and opcodes, with the versions of the format that brought them.

use crate::sink::Kind;

pub(crate) const STRING: u8 = 0;
pub(crate) const LIST: u8 = 1;
pub(crate) const SET: u8 = 2;
pub(crate) const ZSET: u8 = 3;
pub(crate) const HASH: u8 = 4;
/// Binary scores; version 8.
pub(crate) const ZSET_2: u8 = 5;
pub(crate) const MODULE_PRE_GA: u8 = 6;
pub(crate) const MODULE_2: u8 = 7;
pub(crate) const HASH_ZIPMAP: u8 = 9;
pub(crate) const LIST_ZIPLIST: u8 = 10;
pub(crate) const SET_INTSET: u8 = 11;
pub(crate) const ZSET_ZIPLIST: u8 = 12;
pub(crate) const HASH_ZIPLIST: u8 = 13;
pub(crate) const LIST_QUICKLIST: u8 = 14;
pub(crate) const STREAM_LISTPACKS: u8 = 15;
/// Version 10 (Redis 7.0), as the next three.
pub(crate) const HASH_LISTPACK: u8 = 16;
pub(crate) const ZSET_LISTPACK: u8 = 17;
pub(crate) const LIST_QUICKLIST_2: u8 = 18;
pub(crate) const STREAM_LISTPACKS_2: u8 = 19;
/// Version 11 (Redis 7.2), as the next.
pub(crate) const SET_LISTPACK: u8 = 20;
pub(crate) const STREAM_LISTPACKS_3: u8 = 21;
/// Valkey 9 (version 80): a hash whose fields expire. In versions 12 to 79 (Redis 7.4's release candidates) it is another.
pub(crate) const HASH_2: u8 = 22;
/// Redis 7.4's release candidates.
pub(crate) const HASH_LISTPACK_EX_PRE_GA: u8 = 23;
/// Redis 7.4 (version 12).
pub(crate) const HASH_METADATA: u8 = 24;
pub(crate) const HASH_LISTPACK_EX: u8 = 25;

/// Valkey 9: a slot migration under way. Redis 8.6: metadata of modules for the next key.
pub(crate) const SLOT_IMPORT: u8 = 243;
pub(crate) const SLOT_INFO: u8 = 244;
pub(crate) const FUNCTION2: u8 = 245;
pub(crate) const FUNCTION_PRE_GA: u8 = 246;
pub(crate) const MODULE_AUX: u8 = 247;
pub(crate) const IDLE: u8 = 248;
pub(crate) const FREQ: u8 = 249;
pub(crate) const AUX: u8 = 250;
pub(crate) const RESIZEDB: u8 = 251;
pub(crate) const EXPIRETIME_MS: u8 = 252;
pub(crate) const EXPIRETIME: u8 = 253;
pub(crate) const SELECTDB: u8 = 254;
pub(crate) const EOF: u8 = 255;

/// Whether `tag` has Valkey's meaning in data of this version, where Redis and Valkey went separate ways.
pub(crate) fn is_valkey(version: u32) -> bool {
    // Below 12 nobody wrote these tags, except us, for a hash that older servers cannot hold either.
    !(FIRST_OF_REDIS_ALONE..FIRST_OF_VALKEY_ALONE).contains(&version)
}

/// The type of the value that `tag` announces; `None` if it announces none that can be decoded.
pub fn kind(tag: u8) -> Option<Kind> {
    match tag {
        STRING => Some(Kind::String),
        LIST | LIST_ZIPLIST | LIST_QUICKLIST | LIST_QUICKLIST_2 => Some(Kind::List),
        SET | SET_INTSET | SET_LISTPACK => Some(Kind::Set),
        ZSET | ZSET_2 | ZSET_ZIPLIST | ZSET_LISTPACK => Some(Kind::SortedSet),
        HASH
        | HASH_ZIPMAP
        | HASH_ZIPLIST
        | HASH_LISTPACK
        | HASH_2
        | HASH_LISTPACK_EX_PRE_GA
        | HASH_METADATA
        | HASH_LISTPACK_EX => Some(Kind::Hash),
        STREAM_LISTPACKS | STREAM_LISTPACKS_2 | STREAM_LISTPACKS_3 => Some(Kind::Stream),
        _ => None,
    }
}

/// Newest version of the format that is read, as far as its types are known: Valkey 9's.
pub const NEWEST_VERSION: u32 = 80;

const FIRST_OF_REDIS_ALONE: u32 = 12;
const FIRST_OF_VALKEY_ALONE: u32 = 80;
