//! The memory limit, eviction, expiry, freeing and defragmentation.

use super::super::choices::MaxmemoryPolicy;
use super::super::directive::{Directive, bound, bytes, choice, flag, number};

const O1: &str = "large values are always freed in the background";
const DEFRAG: &str = "the store has no pass that moves values";

/// The section's rows.
#[rustfmt::skip] // one row, one line
pub const DIRECTIVES: &[Directive] = &[
    bytes("maxmemory", 0, bound::BIG_SIZE, "Memory for data, above which keys are evicted or writes refused; 0 for no limit."),
    choice("maxmemory-policy", MaxmemoryPolicy::NoEviction as u8, MaxmemoryPolicy::WORDS, "Which keys are evicted at the limit: of all keys or only of those with a time to live, by last use, frequency, chance or time left."),
    number("maxmemory-samples", 5, bound::POSITIVE_INT, "Keys compared to choose one to evict."),
    number("maxmemory-eviction-tenacity", 10, (0, 100), "How long eviction may hold up a command, 0 for least."),
    number("lfu-log-factor", 10, bound::INT, "How many hits the use counter of a key needs to grow; higher is slower."),
    number("lfu-decay-time", 1, bound::INT, "Minutes after which the use counter of an idle key shrinks."),
    number("active-expire-effort", 1, (1, 10), "How much time goes into finding expired keys that nobody reads.").not_yet(),
    flag("lazyfree-lazy-eviction", true, "Log the removal of evicted keys as UNLINK, not DEL. Large values are freed in the background in any case."),
    flag("lazyfree-lazy-expire", true, "Log the removal of expired keys as UNLINK, not DEL. Large values are freed in the background in any case."),
    flag("lazyfree-lazy-server-del", true, "Log the removal of values that a command takes or replaces whole as UNLINK, not DEL. Large values are freed in the background in any case."),
    flag("lazyfree-lazy-user-del", true, "Let DEL free in the background, as UNLINK does.").ignored(O1),
    flag("lazyfree-lazy-user-flush", true, "Let FLUSHALL, FLUSHDB and SCRIPT FLUSH free in the background when they do not say.").ignored(O1),
    flag("activerehashing", true, "Spend idle time on resizing tables.").ignored("tables grow in small segments"),
    flag("activedefrag", false, "Move values to give fragmented memory back.").ignored(DEFRAG),
    bytes("active-defrag-ignore-bytes", 100 << 20, (1, i64::MAX as u64), "Waste below which nothing is moved.").ignored(DEFRAG),
    number("active-defrag-threshold-lower", 10, (0, 1000), "Percent of waste at which moving starts.").ignored(DEFRAG),
    number("active-defrag-threshold-upper", 100, (0, 1000), "Percent of waste at which it works hardest.").ignored(DEFRAG),
    number("active-defrag-cycle-min", 1, (1, 99), "Least percent of a processor it uses.").ignored(DEFRAG),
    number("active-defrag-cycle-max", 25, (1, 99), "Most percent of a processor it uses.").ignored(DEFRAG),
    number("active-defrag-max-scan-fields", 1000, (1, i64::MAX), "Fields of one value visited at once.").ignored(DEFRAG),
    flag("jemalloc-bg-thread", true, "Let jemalloc give memory back in a thread.").ignored("the allocator is another"),
];
