//! LATENCY: how long commands took, and which delays the monitor remembers (`events.rs`).

use crate::args::Args;
use crate::arguments::string;
use crate::command::{Command, Entry, flag::*};
use crate::commands::help::{HELP_ENTRY, help as help_lines};
use crate::dispatch::echoed;
use crate::events::{Event, LatencyMonitor, Sample};
use crate::exec::{Exec, Outcome};
use crate::stats::bucket_top;
use std::sync::MutexGuard;

/// The family's table.
pub static COMMANDS: &[Command] = &[Command {
    name: "latency",
    arity: -2,
    since: "2.8.13",
    group: "server",
    complexity: "Depends on subcommand",
    summary: "Commands about delays.",
    subcommands: &[
        Command {
            name: "histogram",
            run: histogram,
            arity: -2,
            flags: ADMIN | NOSCRIPT | LOADING | STALE,
            since: "7.0.0",
            group: "server",
            complexity: "O(N) where N is the number of commands with latency information being retrieved",
            summary: "Answers how long commands took.",
            arguments: &[string("COMMAND").optional().many()],
            tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
            ..Command::DEFAULT
        },
        Command {
            name: "reset",
            run: reset,
            arity: -2,
            flags: ADMIN | NOSCRIPT | LOADING | STALE,
            since: "2.8.13",
            group: "server",
            complexity: "O(1)",
            summary: "Forgets the delays of some events or of all.",
            arguments: &[string("event").optional().many()],
            tips: &["request_policy:all_nodes", "response_policy:agg_sum"],
            ..Command::DEFAULT
        },
        Command {
            name: "latest",
            run: latest,
            arity: 2,
            flags: ADMIN | NOSCRIPT | LOADING | STALE,
            since: "2.8.13",
            group: "server",
            complexity: "O(1)",
            summary: "Answers the latest delay of each event.",
            tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
            ..Command::DEFAULT
        },
        Command {
            name: "history",
            run: history,
            arity: 3,
            flags: ADMIN | NOSCRIPT | LOADING | STALE,
            since: "2.8.13",
            group: "server",
            complexity: "O(1)",
            summary: "Answers the remembered delays of an event.",
            arguments: &[string("event")],
            tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
            ..Command::DEFAULT
        },
        Command {
            name: "doctor",
            run: doctor,
            arity: 2,
            flags: ADMIN | NOSCRIPT | LOADING | STALE,
            since: "2.8.13",
            group: "server",
            complexity: "O(1)",
            summary: "Says what the remembered delays mean.",
            tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
            ..Command::DEFAULT
        },
        Command {
            name: "graph",
            run: graph,
            arity: 3,
            flags: ADMIN | NOSCRIPT | LOADING | STALE,
            since: "2.8.13",
            group: "server",
            complexity: "O(1)",
            summary: "Draws the remembered delays of an event.",
            arguments: &[string("event")],
            tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
            ..Command::DEFAULT
        },
        Command { run: help, since: "2.8.13", group: "server", ..HELP_ENTRY },
    ],
    ..Command::DEFAULT
}];

/// Runs counted up to each duration, in µs, where the count grows: powers of two.
fn cumulative(sums: &[u64]) -> Vec<(u64, u64)> {
    let mut points: Vec<(u64, u64)> = Vec::new();
    let mut seen = 0;
    for (bucket, count) in sums.iter().enumerate().filter(|(_, count)| **count > 0) {
        seen += count;
        let limit_us = (bucket_top(bucket) / 1000 + 1).next_power_of_two();
        match points.last_mut() {
            Some((last, count)) if *last == limit_us => *count = seen,
            _ => points.push((limit_us, seen)),
        }
    }
    points
}

fn histogram(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let table = exec.commands();
    let chosen: Vec<&Entry> = match args.len() {
        2 => table.entries().iter().collect(),
        _ => args.rest(2).filter_map(|name| table.find_full(name)).collect(),
    };
    let mut shown = Vec::new();
    for entry in chosen.iter().flat_map(|entry| std::iter::once(*entry).chain(&entry.subcommands)) {
        let mut sums = Vec::new();
        exec.shared.stats.iter().for_each(|stats| stats.command(entry.id).add_durations(&mut sums));
        let points = cumulative(&sums);
        if !points.is_empty() {
            shown.push((&entry.full_name, points));
        }
    }
    let mut reply = exec.reply.put();
    reply.map(shown.len());
    for (name, points) in shown {
        reply.bulk_str(name);
        reply.map(2);
        reply.bulk_str("calls");
        reply.integer(points.last().map_or(0, |(_, seen)| seen.cast_signed()));
        reply.bulk_str("histogram_usec");
        reply.map(points.len());
        for (limit_us, seen) in points {
            reply.integer(limit_us.cast_signed());
            reply.integer(seen.cast_signed());
        }
    }
    Ok(())
}

fn monitor<'a>(exec: &Exec<'a>) -> MutexGuard<'a, LatencyMonitor> {
    exec.shared.latency.lock().expect("the latency monitor does not panic")
}

fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn reset(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let named = |name: &str| args.len() == 2 || args.rest(2).any(|word| word.eq_ignore_ascii_case(name.as_bytes()));
    let count = monitor(exec).reset(named);
    exec.reply.put().count(count);
    Ok(())
}

fn latest(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    let monitor = monitor(exec);
    let mut reply = exec.reply.put();
    reply.array(monitor.events().len());
    for (name, event) in monitor.events() {
        let last = event.samples().next_back().expect("an event has samples");
        reply.array(4);
        reply.bulk_str(name);
        reply.integer(last.at_s);
        reply.integer(number(last.took_ms));
        reply.integer(number(event.most_ms()));
    }
    Ok(())
}

fn history(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let monitor = monitor(exec);
    let samples: Vec<Sample> = monitor.event(args.at(2)).map_or(vec![], |(_, event)| event.samples().collect());
    let mut reply = exec.reply.put();
    reply.array(samples.len());
    for sample in samples {
        reply.array(2);
        reply.integer(sample.at_s);
        reply.integer(number(sample.took_ms));
    }
    Ok(())
}

fn graph(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let text = match monitor(exec).event(args.at(2)) {
        Some((name, event)) => drawn(name, event, exec.now_ms() / 1000),
        None => return Err(format!("ERR No samples available for event '{}'", echoed(args.at(2))).into()),
    };
    exec.reply.put().verbatim(b"txt", text.as_bytes());
    Ok(())
}

/// A bar for each sample, oldest first, with how long ago it was.
fn drawn(name: &str, event: &Event, now_s: i64) -> String {
    const WIDTH: u64 = 60;
    let high = event.samples().map(|sample| sample.took_ms).max().unwrap_or(0);
    let low = event.samples().map(|sample| sample.took_ms).min().unwrap_or(0);
    let most = event.most_ms();
    let mut text = format!("{name} - high {high} ms, low {low} ms (all time high {most} ms)\n{}\n", "-".repeat(80));
    for sample in event.samples() {
        let bar = usize::try_from((sample.took_ms * WIDTH).div_ceil(high.max(1))).expect("at most the width");
        let age = match (now_s - sample.at_s).max(0) {
            s @ 0..60 => format!("{s}s"),
            s @ 60..3600 => format!("{}m", s / 60),
            s @ 3600..86_400 => format!("{}h", s / 3600),
            s => format!("{}d", s / 86_400),
        };
        text += &format!("{age:>4} {} {}\n", "#".repeat(bar), sample.took_ms);
    }
    text
}

fn doctor(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    let threshold_ms = exec.local.config.latency_monitor_threshold();
    let mut text = match threshold_ms {
        0 => "Delays are not being recorded: CONFIG SET latency-monitor-threshold <milliseconds> starts that.\n".into(),
        ms => format!("Delays of {ms} ms and more are recorded.\n"),
    };
    let monitor = monitor(exec);
    if monitor.events().len() == 0 {
        text += "None is remembered.\n";
    }
    for (name, event) in monitor.events() {
        let (count, sum) = event.samples().fold((0, 0), |(count, sum), sample| (count + 1, sum + sample.took_ms));
        text += &format!(
            "{name}: {count} seconds with a delay, {} ms on average, {} ms at most.\n",
            sum / count.max(1),
            event.most_ms()
        );
    }
    text += "SLOWLOG GET names the commands that took longest, INFO latencystats and LATENCY HISTOGRAM how long each took, \
             INFO io how long the passes of the workers are.\n";
    drop(monitor);
    exec.reply.put().verbatim(b"txt", text.as_bytes());
    Ok(())
}

#[rustfmt::skip] // a heading and its explanation, line by line
const HELP: &[&str] = &[
    "DOCTOR",
    "    What the recorded delays mean.",
    "GRAPH <event>",
    "    The recorded delays of an event, drawn.",
    "HISTOGRAM [<command> ...]",
    "    How long commands took: runs up to each power of two of microseconds.",
    "HISTORY <event>",
    "    The recorded delays of an event.",
    "LATEST",
    "    The latest delay of each event.",
    "RESET [<event> ...]",
    "    Forget recorded delays.",
];

fn help(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    help_lines(exec, "LATENCY", HELP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_grow_over_powers_of_two() {
        let mut sums = vec![0; 200];
        // Two below 1 µs, three of about 10 µs.
        (sums[20], sums[81]) = (2, 3);
        let points = cumulative(&sums);
        assert_eq!(points.first(), Some(&(1, 2)), "{points:?}");
        assert_eq!(points.last().map(|(_, seen)| *seen), Some(5));
        assert!(points.iter().all(|(limit, _)| limit.is_power_of_two()));
        assert!(cumulative(&[]).is_empty());
    }
}
