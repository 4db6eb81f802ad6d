//! INFO io: what the engines do, in all and worker by worker.

use super::Text;
use crate::exec::Exec;
use crate::stats::ENGINE_COUNTERS;

pub fn io(exec: &mut Exec<'_>, text: &mut Text) {
    let shared = exec.shared;
    text.field("io_engine", shared.identity.engine);
    text.field("workers", shared.mail.len());
    for (i, name) in ENGINE_COUNTERS.iter().enumerate() {
        text.field(&format!("io_{name}"), shared.sum(|s| s.engine[i].value()));
    }
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
        for (name, counter) in ENGINE_COUNTERS.iter().zip(&stats.engine) {
            line += &format!(",{name}={}", counter.value());
        }
        text.line(line);
    }
}
