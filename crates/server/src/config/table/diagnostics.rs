//! The slow log, latency figures, keyspace events and scripts that run for long.

use super::super::directive::{Directive, Form, bound, flag, list, number};

/// The section's rows.
#[rustfmt::skip] // one row, one line
pub const DIRECTIVES: &[Directive] = &[
    number("slowlog-log-slower-than", 10_000, (-1, i64::MAX), "Microseconds from which a command is in the slow log; 0 for all, -1 for none.").alias(&["commandlog-execution-slower-than"]),
    number("slowlog-max-len", 128, bound::LONG, "Commands the slow log remembers.").alias(&["commandlog-slow-execution-max-len"]),
    number("commandlog-request-larger-than", 1 << 20, (-1, i64::MAX), "Bytes from which a request is in the log of large requests; 0 for all, -1 for none.").gimmal(),
    number("commandlog-large-request-max-len", 128, bound::LONG, "Large requests that are remembered.").gimmal(),
    number("commandlog-reply-larger-than", 1 << 20, (-1, i64::MAX), "Bytes from which a reply is in the log of large replies; 0 for all, -1 for none.").gimmal(),
    number("commandlog-large-reply-max-len", 128, bound::LONG, "Commands with large replies that are remembered.").gimmal(),
    number("latency-monitor-threshold", 0, bound::LONG, "Milliseconds from which LATENCY remembers an event; 0 for none."),
    flag("latency-tracking", true, "Keep a histogram of times per command."),
    list("latency-tracking-info-percentiles", "50 99 99.9", Form::Percentiles, "Percentiles of it that INFO shows."),
    flag("command-cpu-tracking", false, "Measure the processor time of every command and of every step of the workers, and show the most that one took.").gimmal(),
    list("notify-keyspace-events", "", Form::Events, "Events published on changes of keys: K and E choose the channels, g $ l s h z x e t d n m or A the classes."),
    number("busy-reply-threshold", 5000, bound::LONG, "Milliseconds after which a script is called slow and others get -BUSY.").alias(&["lua-time-limit"]).not_yet(),
];
