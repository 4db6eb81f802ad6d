//! INFO server, clients, cpu, modules, cluster.

use super::Text;
use crate::exec::Exec;
use crate::os;
use crate::title::{REDIS_VERSION, VERSION};
use std::sync::LazyLock;

static KERNEL: LazyLock<String> = LazyLock::new(os::kernel);

pub fn server(exec: &mut Exec<'_>, text: &mut Text) {
    let shared = exec.shared;
    let config = &exec.local.config;
    let identity = &shared.identity;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let uptime_s = (exec.local.now_ms - identity.started_ms).max(0) / 1000;
    text.field("redis_version", REDIS_VERSION);
    text.field("server_name", "gimmal");
    text.field("gimmal_version", VERSION);
    text.field("redis_git_sha1", "00000000");
    text.field("redis_git_dirty", 0);
    text.field("redis_build_id", 0);
    text.field("redis_mode", "standalone");
    text.field("os", KERNEL.as_str());
    text.field("arch_bits", usize::BITS);
    text.field("monotonic_clock", "POSIX clock_gettime");
    text.field("multiplexing_api", if identity.engine == "uring" { "io_uring" } else { identity.engine });
    text.field("process_id", std::process::id());
    text.field("process_supervised", "no");
    text.field("run_id", &identity.run_id);
    text.field("tcp_port", config.port());
    text.field("server_time_usec", now.as_micros());
    text.field("uptime_in_seconds", uptime_s);
    text.field("uptime_in_days", uptime_s / 86_400);
    text.field("hz", config.hz());
    text.field("configured_hz", config.hz());
    text.field("lru_clock", exec.local.access.seconds());
    text.field("executable", &identity.executable);
    text.field("config_file", &identity.config_file);
    text.field("io_threads_active", 0);
    let listeners = config.bind().iter().filter(|_| config.port() != 0);
    let mut number = 0;
    for address in listeners {
        let address = address.trim_start_matches('-');
        text.line(format_args!("listener{number}:name=tcp,bind={address},port={}", config.port()));
        number += 1;
    }
    if let Some(path) = config.unixsocket() {
        text.line(format_args!("listener{number}:name=unix,bind={path}"));
    }
    text.field("io_engine", identity.engine);
    text.field("workers", shared.mail.len());
    text.field("shards", shared.keyspace.shards());
}

pub fn clients(exec: &mut Exec<'_>, text: &mut Text) {
    text.field("connected_clients", exec.shared.lifecycle.clients());
    text.field("cluster_connections", 0);
    text.field("maxclients", exec.local.config.maxclients());
    text.zeros(&["client_recent_max_input_buffer", "client_recent_max_output_buffer"]);
    text.field("blocked_clients", exec.shared.sum(|s| s.blocked.value()));
    text.field("tracking_clients", exec.shared.trackers.clients());
    text.field("pubsub_clients", exec.shared.sum(|s| s.pubsub_clients.value()));
    text.field("watching_clients", exec.shared.watching.clients());
    text.field("clients_in_timeout_table", 0);
    text.field("total_watched_keys", exec.shared.watching.keys());
    let [keys, until_lost] = exec.keys_waited_for();
    text.field("total_blocking_keys", keys);
    text.field("total_blocking_keys_on_nokey", until_lost);
}

pub fn cpu(_: &mut Exec<'_>, text: &mut Text) {
    let [user, system, child_user, child_system] = os::process_cpu().map(|time| time.as_secs_f64());
    text.field("used_cpu_sys", format_args!("{system:.6}"));
    text.field("used_cpu_user", format_args!("{user:.6}"));
    text.field("used_cpu_sys_children", format_args!("{child_system:.6}"));
    text.field("used_cpu_user_children", format_args!("{child_user:.6}"));
}

/// There are none: the heading alone.
pub fn modules(_: &mut Exec<'_>, _: &mut Text) {}

pub fn cluster(_: &mut Exec<'_>, text: &mut Text) {
    text.field("cluster_enabled", 0);
}
