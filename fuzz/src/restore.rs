//! RESTORE of any payload, through the whole server. Checked: no panic and no hang; what was taken is read, changed and
//! copied by the commands of its type; its own payload makes the same value again.
//!
//! Input: a byte for version and cuts, then a type and its value. The checksum is put right.

use crate::command_front::answer;
use gimmal_resp::{Reply, ReplyReader, encode_command};

/// Commands of each type on what was restored; on the others they are errors.
const USES: [&str; 51] = [
    "GET k",
    "APPEND k x",
    "GETRANGE k -5 -1",
    "SETRANGE k 3 y",
    "PFCOUNT k",
    "BITCOUNT k",
    "LRANGE k 0 -1",
    "LPOP k",
    "LINSERT k BEFORE a b",
    "LREM k 0 a",
    "RPUSH k z",
    "LTRIM k 1 -2",
    "SMEMBERS k",
    "SADD k member",
    "SRANDMEMBER k -3",
    "SPOP k",
    "SSCAN k 0",
    "HGETALL k",
    "HSET k field value",
    "HRANDFIELD k -3 WITHVALUES",
    "HDEL k field a",
    "HSCAN k 0",
    "ZRANGE k 0 -1 WITHSCORES",
    "ZADD k 1 member",
    "ZRANGEBYSCORE k -inf +inf",
    "ZPOPMAX k",
    "ZSCAN k 0",
    "XRANGE k - +",
    "XINFO STREAM k FULL",
    "XADD k * a b",
    "XDEL k 1-1",
    "XTRIM k MAXLEN 2",
    "XREADGROUP GROUP g c COUNT 2 STREAMS k >",
    "XAUTOCLAIM k g c 0 0",
    "XINFO GROUPS k",
    "XINFO CONSUMERS k g",
    "XPENDING k g",
    "XPENDING k g IDLE 1 - + 10",
    "XCLAIM k g other 0 1-1 FORCE",
    "XACK k g 1-1",
    "XSETID k 18446744073709551615-1",
    "XGROUP CREATE k new 0 ENTRIESREAD 1",
    "XGROUP SETID k g 0",
    "XGROUP DELCONSUMER k g c",
    "HTTL k FIELDS 1 a",
    "HPEXPIRETIME k FIELDS 1 a",
    "HPEXPIRE k 1000 FIELDS 1 a",
    "HPERSIST k FIELDS 1 a",
    "SORT k ALPHA",
    "GEOPOS k member",
    "ZINCRBY k 1e308 member",
];

/// Runs one input.
pub fn run(input: &[u8]) {
    let [how, body @ ..] = input else { return };
    let version: u16 = [80, 11, 10, 9][usize::from(how & 3)];
    let mut payload = body.to_vec();
    payload.extend_from_slice(&version.to_le_bytes());
    let checksum = gimmal_rdb::crc64(0, &payload);
    payload.extend_from_slice(&checksum.to_le_bytes());

    let questions = ["OBJECT ENCODING k", "MEMORY USAGE k", "DEBUG DIGEST-VALUE k", "DUMP k", "COPY k copy"];
    let mut first = Conversation::default();
    first.say(&[b"RESTORE", b"k", b"0", &payload, b"REPLACE"]);
    questions.iter().for_each(|line| first.line(line));
    let replies = first.replies(how >> 2);
    if replies[0].is_error() {
        return;
    }
    let (Some(digest), Some(dumped)) = (replies[3].as_list(), replies[4].as_bytes()) else {
        panic!("no answers to {}: {replies:?}", payload.escape_ascii())
    };
    let mut second = Conversation::default();
    second.say(&[b"RESTORE", b"k", b"0", dumped]);
    second.line("DEBUG DIGEST-VALUE k");
    USES.iter().chain(&questions).for_each(|line| second.line(line));
    let again = second.replies(how >> 2);
    assert!(!again[0].is_error(), "{:?} of our own payload {}", again[0], dumped.escape_ascii());
    assert_eq!(again[1].as_list(), Some(digest), "not the same value: {}", payload.escape_ascii());
}

#[derive(Default)]
struct Conversation {
    bytes: Vec<u8>,
    commands: usize,
}

impl Conversation {
    fn say(&mut self, words: &[&[u8]]) {
        encode_command(&mut self.bytes, words);
        self.commands += 1;
    }

    fn line(&mut self, line: &str) {
        self.say(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
    }

    fn replies(self, how: u8) -> Vec<Reply> {
        let mut reader = ReplyReader::default();
        reader.feed(&answer(self.bytes, self.commands, how));
        std::iter::from_fn(|| reader.next_reply().expect("they were counted")).collect()
    }
}
