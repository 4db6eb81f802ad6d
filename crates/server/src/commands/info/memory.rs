//! INFO memory.

use super::Text;
use crate::config::Id;
use crate::exec::Exec;
use crate::os;
use std::sync::LazyLock;

static SYSTEM_BYTES: LazyLock<u64> = LazyLock::new(os::memory_bytes);

pub fn memory(exec: &mut Exec<'_>, text: &mut Text) {
    let shared = exec.shared;
    let config = &exec.local.config;
    let rss = os::rss_bytes();
    let dataset = shared.dataset_bytes();
    let used = shared.used_bytes(dataset);
    let peak = shared.rates.peak(used);
    let startup = shared.identity.startup_bytes;
    let percent = |part: u64, whole: u64| format!("{:.2}%", part as f64 * 100.0 / whole.max(1) as f64);
    both(text, "used_memory", used);
    both(text, "used_memory_rss", rss);
    both(text, "used_memory_peak", peak);
    text.field("used_memory_peak_perc", percent(used, peak));
    text.field("used_memory_overhead", used - dataset);
    text.field("used_memory_startup", startup);
    text.field("used_memory_dataset", dataset);
    text.field("used_memory_dataset_perc", percent(dataset, used - startup));
    text.field("allocator_allocated", used);
    text.field("allocator_active", rss);
    text.field("allocator_resident", rss);
    both(text, "total_system_memory", *SYSTEM_BYTES);
    both(text, "used_memory_lua", 0);
    text.zeros(&["used_memory_vm_eval", "used_memory_scripts_eval", "number_of_cached_scripts"]);
    text.zeros(&["number_of_functions", "number_of_libraries", "used_memory_vm_functions"]);
    both(text, "used_memory_vm_total", 0);
    text.field("used_memory_functions", 0);
    both(text, "used_memory_scripts", 0);
    both(text, "maxmemory", config.maxmemory());
    text.field("maxmemory_policy", policy(exec));
    let ratio = rss as f64 / used.max(1) as f64;
    text.field("allocator_frag_ratio", format_args!("{ratio:.2}"));
    text.field("allocator_frag_bytes", rss.saturating_sub(used));
    text.field("allocator_rss_ratio", "1.00");
    text.field("allocator_rss_bytes", 0);
    text.field("rss_overhead_ratio", "1.00");
    text.field("rss_overhead_bytes", 0);
    text.field("mem_fragmentation_ratio", format_args!("{ratio:.2}"));
    text.field("mem_fragmentation_bytes", i128::from(rss) - i128::from(used));
    text.field("mem_not_counted_for_evict", shared.log.pending());
    let clients = shared.client_bytes.total();
    text.zeros(&["mem_replication_backlog", "mem_total_replication_buffers"]);
    text.field("mem_clients_slaves", 0);
    text.field("mem_clients_normal", clients);
    text.field("mem_cluster_links", 0);
    text.field("mem_aof_buffer", shared.log.pending());
    text.field("mem_allocator", "mimalloc");
    text.field("mem_overhead_db_hashtable_rehashing", 0);
    text.field("active_defrag_running", 0);
    text.field("lazyfree_pending_objects", shared.lazyfree.pending());
    text.field("lazyfreed_objects", shared.lazyfree.freed());
}

fn policy(exec: &Exec<'_>) -> String {
    const POLICY: Id = Id::of("maxmemory-policy");
    exec.local.config.print(POLICY)
}

/// A number of bytes, and the same for people.
fn both(text: &mut Text, name: &str, bytes: u64) {
    text.field(name, bytes);
    text.field(&format!("{name}_human"), human(bytes));
}

/// Bytes for people, as Redis writes them: `1.50M`.
pub fn human(bytes: u64) -> String {
    const UNITS: [(u64, char); 5] = [(1 << 50, 'P'), (1 << 40, 'T'), (1 << 30, 'G'), (1 << 20, 'M'), (1 << 10, 'K')];
    match UNITS.iter().find(|(size, _)| bytes >= *size) {
        Some((size, unit)) => format!("{:.2}{unit}", bytes as f64 / *size as f64),
        None => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_are_written_for_people() {
        for (bytes, text) in [(0, "0B"), (1023, "1023B"), (1024, "1.00K"), (1_572_864, "1.50M"), (1 << 40, "1.00T")] {
            assert_eq!(super::human(bytes), text);
        }
    }
}
