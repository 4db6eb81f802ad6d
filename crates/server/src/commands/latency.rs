//! LATENCY: how long commands took. Events of a latency monitor are not recorded, so there are none to answer.

use crate::args::Args;
use crate::arguments::string;
use crate::command::{Command, Entry, flag::*};
use crate::commands::help::help as help_lines;
use crate::dispatch::echoed;
use crate::exec::{Exec, Outcome};
use crate::stats::bucket_top;

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
        Command {
            name: "help",
            run: help,
            arity: 2,
            flags: LOADING | STALE,
            since: "2.8.13",
            group: "server",
            complexity: "O(1)",
            summary: "Explains the subcommands.",
            ..Command::DEFAULT
        },
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

fn reset(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    exec.reply.put().integer(0);
    Ok(())
}

fn latest(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    exec.reply.put().array(0);
    Ok(())
}

fn history(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    exec.reply.put().array(0);
    Ok(())
}

fn graph(_: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    Err(format!("ERR No samples available for event '{}'", echoed(args.at(2))).into())
}

fn doctor(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    let text = "Latency events are not recorded by this version. LATENCY HISTOGRAM and INFO latencystats say how long \
                commands took, SLOWLOG GET which ones took longest, INFO io how long the passes of the workers are.\n";
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
