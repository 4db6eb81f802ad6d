//! INFO commandstats, errorstats, latencystats.

use super::Text;
use crate::command::Entry;
use crate::exec::Exec;
use crate::shared::Shared;
use crate::stats::{CommandStats, bucket_top};

/// Every command and subcommand.
fn entries<'a>(exec: &Exec<'a>) -> impl Iterator<Item = &'a Entry> + use<'a> {
    exec.commands().entries().iter().flat_map(|entry| std::iter::once(entry).chain(&entry.subcommands))
}

fn sum(shared: &Shared, entry: &Entry, of: impl Fn(&CommandStats) -> u64) -> u64 {
    shared.stats.iter().map(|stats| of(stats.command(entry.id))).sum()
}

pub fn commandstats(exec: &mut Exec<'_>, text: &mut Text) {
    let shared = exec.shared;
    for entry in entries(exec) {
        let calls = sum(shared, entry, |s| s.calls.value());
        let rejected = sum(shared, entry, |s| s.rejected.value());
        let failed = sum(shared, entry, |s| s.failed.value());
        if calls + rejected + failed == 0 {
            continue;
        }
        let micros = sum(shared, entry, |s| s.nanos.value()) / 1000;
        let per_call = if calls == 0 { 0.0 } else { micros as f64 / calls as f64 };
        let name = &entry.full_name;
        let mut line = format!(
            "cmdstat_{name}:calls={calls},usec={micros},usec_per_call={per_call:.2},rejected_calls={rejected},failed_calls={failed}"
        );
        let most = shared.stats.iter().map(|s| s.command(entry.id).cpu_max_us.value()).max().unwrap_or(0);
        if most > 0 {
            line += &format!(",max_cpu_usec={most}");
        }
        text.line(line);
    }
}

pub fn errorstats(exec: &mut Exec<'_>, text: &mut Text) {
    let errors = exec.shared.errors.lock().expect("counting does not panic");
    for (prefix, count) in errors.iter() {
        text.line(format_args!("errorstat_{prefix}:count={count}"));
    }
}

pub fn latencystats(exec: &mut Exec<'_>, text: &mut Text) {
    let config = exec.local.config.clone();
    for entry in entries(exec) {
        let mut sums = Vec::new();
        exec.shared.stats.iter().for_each(|stats| stats.command(entry.id).add_durations(&mut sums));
        if sums.iter().all(|count| *count == 0) {
            continue;
        }
        let shares = config.latency_tracking_info_percentiles().iter();
        let shown = shares.map(|p| format!("p{p}={:.3}", percentile_ns(&sums, *p) as f64 / 1000.0));
        let line = shown.collect::<Vec<_>>().join(",");
        text.line(format_args!("latency_percentiles_usec_{}:{line}", entry.full_name));
    }
}

/// The duration, in ns, that `percent` of those counted by bucket did not exceed; 0 if there are none.
pub fn percentile_ns(sums: &[u64], percent: f64) -> u64 {
    let total: u64 = sums.iter().sum();
    let wanted = (total as f64 * percent / 100.0).ceil().max(1.0);
    let mut seen = 0;
    for (bucket, count) in sums.iter().enumerate() {
        seen += count;
        if seen as f64 >= wanted {
            return bucket_top(bucket);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_count_up_to_their_share() {
        let mut sums = vec![0; 100];
        (sums[10], sums[50]) = (99, 1);
        assert_eq!(percentile_ns(&sums, 50.0), bucket_top(10));
        assert_eq!(percentile_ns(&sums, 99.0), bucket_top(10));
        assert_eq!(percentile_ns(&sums, 99.9), bucket_top(50));
        assert_eq!(percentile_ns(&sums, 100.0), bucket_top(50));
        assert_eq!(percentile_ns(&sums, 0.0), bucket_top(10));
        assert_eq!(percentile_ns(&[0; 10], 50.0), 0);
    }
}
