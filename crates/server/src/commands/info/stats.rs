//! INFO persistence, stats, replication.

use super::Text;
use crate::exec::Exec;
use crate::persist::aof;
use crate::persist::load::Progress;
use crate::persist::save::Kind;
use crate::pubsub;
use crate::stats::WorkerStats;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

pub fn persistence(exec: &mut Exec<'_>, text: &mut Text) {
    let shared = exec.shared;
    let load = &shared.persist.load;
    text.field("loading", u8::from(load.is_under_way()));
    text.field("async_loading", 0);
    snapshots(exec, text);
    text.field("rdb_last_load_keys_expired", load.progress.expired());
    text.field("rdb_last_load_keys_loaded", load.progress.keys());
    log(exec, text);
    text.field("log_end_lsn", shared.log.end());
    text.field("log_released_lsn", shared.log.released());
    text.field("log_pending_bytes", shared.log.pending());
    if load.is_under_way() {
        loading(&load.progress, text);
    }
}

/// How far a load is.
fn loading(progress: &Progress, text: &mut Text) {
    text.field("loading_start_time", progress.started_ms() / 1000);
    text.field("loading_total_bytes", progress.total_bytes());
    text.field("loading_rdb_used_mem", progress.used_memory());
    text.field("loading_loaded_bytes", progress.loaded_bytes());
    text.field("loading_loaded_perc", format_args!("{:.2}", progress.percent()));
    text.field("loading_eta_seconds", progress.eta_s(crate::now_ms()));
}

/// The append-only file.
fn log(exec: &mut Exec<'_>, text: &mut Text) {
    let shared = exec.shared;
    let (saving, rewrites) = (&shared.persist.save, shared.persist.aof.rewrites.history());
    let rewriting = saving.running().filter(|running| running.kind == Kind::Rewrite);
    text.field("aof_enabled", u8::from(exec.local.config.appendonly()));
    let in_progress = saving.under_way() == Some(Kind::Rewrite);
    text.field("aof_rewrite_in_progress", u8::from(in_progress));
    text.field("aof_rewrite_scheduled", u8::from(!in_progress && saving.is_waiting(Kind::Rewrite)));
    text.field("aof_last_rewrite_time_sec", seconds(rewrites.took));
    text.field("aof_current_rewrite_time_sec", seconds(rewriting.map(|running| running.since.elapsed())));
    text.field("aof_last_bgrewrite_status", if rewrites.failures == 0 { "ok" } else { "err" });
    text.field("aof_rewrites", rewrites.count);
    text.field("aof_rewrites_consecutive_failures", rewrites.failures);
    text.field("aof_pending_rewrite", u8::from(!shared.persist.aof.has_base(&exec.local.config)));
    let running = shared.persist.aof.running();
    let fine = shared.persist.aof.state() == aof::State::Fine;
    text.field("aof_last_write_status", if fine { "ok" } else { "err" });
    text.zeros(&["aof_last_cow_size", "module_fork_in_progress", "module_fork_last_cow_size"]);
    if let Some(running) = &*running {
        let progress = &running.progress;
        let (base, all) = running.sizes();
        text.field("aof_current_size", all);
        text.field("aof_base_size", base);
        text.field("aof_buffer_length", shared.log.pending());
        text.field("aof_pending_bio_fsync", u8::from(progress.durable_lsn() < progress.written_lsn()));
        text.field("aof_delayed_fsync", progress.delayed());
        text.field("aof_written_lsn", progress.written_lsn());
        text.field("aof_durable_lsn", progress.durable_lsn());
        text.field("aof_groups", progress.groups());
        text.field("aof_syncs", progress.syncs());
        text.field("aof_last_sync_usec", progress.last_sync().as_micros());
        text.field("aof_wakes", progress.wakes());
        text.field("aof_resubmitted", progress.resubmitted());
    }
}

/// A time in whole seconds, -1 for none.
fn seconds(time: Option<Duration>) -> i64 {
    time.map_or(-1, |time| time.as_secs().cast_signed())
}

/// What is called copy-on-write in Redis is here what is held for a snapshot because it was about to change.
fn snapshots(exec: &Exec<'_>, text: &mut Text) {
    let (shared, saving) = (exec.shared, &exec.shared.persist.save);
    let (running, last, progress) = (saving.running(), saving.last(), saving.progress());
    let of_running = |value: u64| if running.is_some() { value } else { 0 };
    let held = shared.keyspace.handed_bytes() as u64;
    text.field("current_cow_peak", of_running(progress.held_peak.load(Relaxed) as u64));
    text.field("current_cow_size", of_running(held));
    text.field("current_cow_size_age", 0);
    text.field("current_fork_perc", "0.00");
    text.field("current_save_keys_processed", of_running(progress.keys.load(Relaxed)));
    text.field("current_save_keys_total", of_running(progress.total.load(Relaxed)));
    let dirty = shared.sum(|s| s.dirty.value());
    text.field("rdb_changes_since_last_save", dirty.saturating_sub(last.dirty));
    let background = running.filter(|running| running.kind == Kind::Background);
    text.field("rdb_bgsave_in_progress", u8::from(background.is_some()));
    text.field("rdb_last_save_time", shared.last_save_s());
    text.field("rdb_last_bgsave_status", if saving.has_failed() { "err" } else { "ok" });
    text.field("rdb_last_bgsave_time_sec", seconds(last.took));
    text.field("rdb_current_bgsave_time_sec", seconds(background.map(|running| running.since.elapsed())));
    text.field("rdb_saves", last.count);
    text.field("rdb_last_cow_size", last.held_peak);
}

pub fn stats(exec: &mut Exec<'_>, text: &mut Text) {
    let shared = exec.shared;
    let rates = shared.rates.per_second();
    let kilobytes = |bytes: f64| format!("{:.2}", bytes / 1024.0);
    text.field("total_connections_received", shared.sum(|s| s.accepted.value()));
    text.field("total_commands_processed", shared.sum(|s| s.commands.value()));
    text.field("instantaneous_ops_per_sec", format_args!("{:.0}", rates.commands));
    text.field("total_net_input_bytes", shared.sum(|s| s.received_bytes.value()));
    text.field("total_net_output_bytes", shared.sum(|s| s.sent_bytes.value()));
    text.zeros(&["total_net_repl_input_bytes", "total_net_repl_output_bytes"]);
    text.field("instantaneous_input_kbps", kilobytes(rates.received));
    text.field("instantaneous_output_kbps", kilobytes(rates.sent));
    text.field("instantaneous_input_repl_kbps", "0.00");
    text.field("instantaneous_output_repl_kbps", "0.00");
    text.field("rejected_connections", shared.sum(|s| s.rejected.value()));
    text.zeros(&["sync_full", "sync_partial_ok", "sync_partial_err"]);
    text.field("expired_keys", shared.sum(|s| s.expired_keys.value()));
    text.field("expired_fields", shared.sum(|s| s.expired_fields.value()));
    text.field("expired_stale_perc", "0.00");
    text.field("expired_time_cap_reached_count", 0);
    text.field("expire_cycle_cpu_milliseconds", shared.sum(|s| s.expire_ns.value()) / 1_000_000);
    text.field("evicted_keys", shared.sum(|s| s.evicted_keys.value()));
    text.field("evicted_clients", shared.sum(|s| s.evicted_clients.value()));
    let (current_ms, total_ms) = shared.exceeding.ms();
    text.field("total_eviction_exceeded_time", total_ms);
    text.field("current_eviction_exceeded_time", current_ms);
    text.field("keyspace_hits", shared.sum(|s| s.keyspace_hits.value()));
    text.field("keyspace_misses", shared.sum(|s| s.keyspace_misses.value()));
    text.field("pubsub_channels", shared.pubsub.names(pubsub::Kind::Channel));
    text.field("pubsub_patterns", shared.pubsub.names(pubsub::Kind::Pattern));
    text.field("pubsubshard_channels", shared.pubsub.names(pubsub::Kind::Shard));
    text.zeros(&["latest_fork_usec", "total_forks"]);
    text.zeros(&["migrate_cached_sockets", "slave_expires_tracked_keys", "active_defrag_hits", "active_defrag_misses"]);
    text.zeros(&["active_defrag_key_hits", "active_defrag_key_misses", "total_active_defrag_time"]);
    text.field("current_active_defrag_time", 0);
    text.field("tracking_total_keys", shared.trackers.keys());
    text.field("tracking_total_items", shared.trackers.items());
    text.field("tracking_total_prefixes", shared.trackers.prefixes());
    text.field("unexpected_error_replies", 0);
    text.field("total_error_replies", shared.sum(|s| s.errors.value()));
    text.field("dump_payload_sanitizations", 0);
    text.field("total_reads_processed", shared.sum(|s| s.engine_counter("receives")));
    text.field("total_writes_processed", shared.sum(|s| s.engine_counter("sends")));
    text.zeros(&["io_threaded_reads_processed", "io_threaded_writes_processed"]);
    text.field("client_query_buffer_limit_disconnections", shared.sum(|s| s.query_limit_closes.value()));
    text.field("client_output_buffer_limit_disconnections", shared.sum(|s| s.output_limit_closes.value()));
    text.zeros(&["reply_buffer_shrinks", "reply_buffer_expands"]);
    text.field("eventloop_cycles", shared.sum(|s| s.passes.value()));
    text.field("eventloop_duration_sum", shared.sum(|s| s.busy_ns.value()) / 1000);
    text.field("eventloop_duration_cmd_sum", shared.sum(WorkerStats::command_ns) / 1000);
    // Of a worker, on average: what the number is compared with is `hz`, which each of them has.
    let per_worker = rates.passes / shared.stats.len() as f64;
    text.field("instantaneous_eventloop_cycles_per_sec", format_args!("{per_worker:.0}"));
    let per_pass_us = if rates.passes > 0.0 { rates.busy_ns / rates.passes / 1000.0 } else { 0.0 };
    text.field("instantaneous_eventloop_duration_usec", format_args!("{per_pass_us:.0}"));
    let most = |of: fn(&WorkerStats) -> u64| shared.stats.iter().map(|stats| of(stats)).max().unwrap_or(0);
    text.field("max_command_cpu_usec", most(|s| s.command_cpu_max_us.value()));
    text.field("max_step_cpu_usec", most(|s| s.step_cpu_max_us.value()));
}

/// What is of interest to who works on the server itself; a cycle is a worker's pass.
pub fn debug(exec: &mut Exec<'_>, text: &mut Text) {
    let shared = exec.shared;
    let most = |of: fn(&WorkerStats) -> u64| shared.stats.iter().map(|stats| of(stats)).max().unwrap_or(0);
    text.field("eventloop_duration_aof_sum", 0);
    text.field("eventloop_duration_cron_sum", shared.sum(|s| s.timers_ns.value()) / 1000);
    text.field("eventloop_duration_max", most(|s| s.pass_max_ns.value()) / 1000);
    text.field("eventloop_cmd_per_cycle_max", most(|s| s.pass_max_commands.value()));
}

pub fn replication(exec: &mut Exec<'_>, text: &mut Text) {
    let shared = exec.shared;
    text.field("role", "master");
    text.field("connected_slaves", 0);
    text.field("master_failover_state", "no-failover");
    text.field("master_replid", &shared.identity.replication_id);
    text.field("master_replid2", "0".repeat(40));
    text.field("master_repl_offset", shared.log.end());
    text.field("second_repl_offset", -1);
    text.field("repl_backlog_active", 0);
    text.field("repl_backlog_size", exec.local.config.repl_backlog_size());
    text.zeros(&["repl_backlog_first_byte_offset", "repl_backlog_histlen"]);
}
