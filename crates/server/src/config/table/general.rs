//! The process: daemon, log, title, working directory, and what protects it from the kernel's memory killer.

use super::super::check;
use super::super::choices::{LogLevel, OomScoreAdj, SHUTDOWN, SYSLOG_FACILITIES, Supervised};
use super::super::directive::{Directive, Form, Kind, bound, choice, flag, list, number, of_kind, optional, text};

/// The section's rows.
#[rustfmt::skip] // one row, one line
pub const DIRECTIVES: &[Directive] = &[
    flag("daemonize", false, "Run in the background and write a pid file.").at_start(),
    choice("supervised", Supervised::No as u8, Supervised::WORDS, "Tell a supervisor when the server is ready: systemd, upstart, or auto to look for either.").at_start().not_yet(),
    optional("pidfile", "Where the process id is written; a daemon without it uses /var/run/gimmal.pid.").at_start(),
    choice("loglevel", LogLevel::Notice as u8, LogLevel::WORDS, "The least important messages that are logged."),
    text("logfile", "", "File the log is appended to; empty for standard output.").at_start(),
    choice("log-format", 0, &[("legacy", 0), ("logfmt", 1)], "Form of a log line.").valkey().not_yet(),
    choice("log-timestamp-format", 0, &[("legacy", 0), ("iso8601", 1), ("milliseconds", 2)], "Form of the time in a log line.").valkey().not_yet(),
    flag("syslog-enabled", false, "Send the log to the system log too.").at_start().not_yet(),
    text("syslog-ident", "gimmal", "Name used in the system log.").at_start().not_yet(),
    choice("syslog-facility", 1, SYSLOG_FACILITIES, "Facility used in the system log.").at_start().not_yet(),
    flag("hide-user-data-from-log", true, "Keep keys and values out of the log.").valkey().ignored("keys and values are never logged"),
    flag("always-show-logo", false, "Print the logo also where the log is no terminal.").at_start().not_yet(),
    flag("set-proc-title", true, "Show ports and mode in the process title.").at_start().not_yet(),
    text("proc-title-template", "{title} {listen-addr} {server-mode}", "What the process title shows; variables are title, listen-addr, server-mode, port, tls-port, unixsocket and config-file.").check(check::title_template).not_yet(),
    number("databases", 16, bound::POSITIVE_INT, "How many databases SELECT can choose from.").at_start(),
    list("dir", "./", Form::Directory, "Working directory: data files and relative paths are found here.").protected().fixed_while_loading(),
    number("hz", 10, bound::INT, "Rounds of background work per second, 1 to 500.").check(check::hz).not_yet(),
    flag("dynamic-hz", true, "More rounds of background work with many clients.").ignored("background work is spread over the workers"),
    number("shutdown-timeout", 10, bound::INT, "Seconds a shutdown waits for replicas to catch up.").not_yet(),
    of_kind("shutdown-on-sigint", Kind::Choices { words: SHUTDOWN }, "What SIGINT does: default, or any of save, nosave, now, force.").check(check::shutdown),
    of_kind("shutdown-on-sigterm", Kind::Choices { words: SHUTDOWN }, "What SIGTERM does; as shutdown-on-sigint.").check(check::shutdown),
    choice("oom-score-adj", OomScoreAdj::No as u8, OomScoreAdj::WORDS, "Whether to adjust how readily the kernel kills the process for memory.").not_yet(),
    list("oom-score-adj-values", "0 200 800", Form::OomScores, "Adjustment for a primary, a replica, and background work.").not_yet(),
    flag("disable-thp", true, "Turn off transparent huge pages for the process.").at_start().not_yet(),
    text("locale-collate", "", "Locale that SORT ALPHA compares with; empty for the environment's.").not_yet(),
    text("ignore-warnings", "", "Start-up warnings not to stop for.").ignored("no start-up warning stops this server"),
    text("availability-zone", "", "Name of the zone the server runs in, for clients to see.").valkey().not_yet(),
    flag("crash-log-enabled", true, "Write a report when the process crashes.").not_yet(),
    flag("crash-memcheck-enabled", true, "Test memory when the process crashes.").ignored("a crashed process touches no memory it need not"),
    flag("use-exit-on-panic", false, "Exit instead of aborting on a failed assertion.").hidden().ignored("a broken invariant aborts"),
    flag("enable-debug-assert", false, "Check costly assertions.").at_start().valkey().hidden().ignored("debug builds check them"),
    text("debug-context", "", "Free text shown in crash reports.").valkey().hidden().not_yet(),
    number("watchdog-period", 0, bound::INT, "Milliseconds after which a stuck loop is logged; 0 never.").hidden().not_yet(),
    flag("extended-redis-compatibility", false, "Call the server Redis where Valkey would say Valkey.").valkey().ignored("replies name Redis versions for compatibility anyway"),
];
