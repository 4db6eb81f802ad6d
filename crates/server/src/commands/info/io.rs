//! INFO io: what the engines do, in all and worker by worker.

use super::Text;
use crate::exec::Exec;
use gimmal_io::Counters;

pub fn io(exec: &mut Exec<'_>, text: &mut Text) {
    let shared = exec.shared;
    text.field("io_engine", shared.identity.engine);
    text.field("workers", shared.mail.len());
    for (i, name) in Counters::NAMES.iter().enumerate() {
        text.field(&format!("io_{name}"), shared.sum(|s| s.engine_counter_at(i)));
    }
    let raw = |name: &str| shared.sum(|s| s.engine_total(name));
    text.field("reply_queue_length", raw("queue_in").saturating_sub(raw("queue_out")));
    text.field("passes", shared.sum(|s| s.passes.value()));
    text.field("parks", shared.sum(|s| s.parks.value()));
    text.field("moved_connections", shared.sum(|s| s.moved.value()));
    text.field("retired_blocks", shared.keyspace.retired());
    for (worker, stats) in shared.stats.iter().enumerate() {
        let mut line = format!(
            "worker{worker}:connections={},commands={},passes={},pass_usec={},parks={},moved={},in={},out={}",
            stats.connections.value(),
            stats.commands.value(),
            stats.passes.value(),
            stats.pass_us.value(),
            stats.parks.value(),
            stats.moved.value(),
            stats.received_bytes.value(),
            stats.sent_bytes.value(),
        );
        for (i, name) in Counters::NAMES.iter().enumerate() {
            line += &format!(",{name}={}", stats.engine_counter_at(i));
        }
        text.line(line);
    }
}
