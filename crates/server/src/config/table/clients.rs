//! Limits of clients, passwords, and which dangerous commands are open.

use super::super::choices::Guarded;
use super::super::directive::{Directive, Form, Kind, bound, bytes, choice, list, number, of_kind, optional, text};

/// The section's rows.
#[rustfmt::skip] // one row, one line
pub const DIRECTIVES: &[Directive] = &[
    number("maxclients", 10000, (1, u32::MAX as i64), "Connections served at once; more are refused."),
    list("client-output-buffer-limit", "normal 1gb 64mb 60 replica 256mb 64mb 60 pubsub 32mb 8mb 60", Form::OutputLimits, "Unread replies at which a client of a class is closed: hard limit, soft limit, seconds above the soft one; 0 for none."),
    bytes("client-query-buffer-limit", 1 << 30, (1 << 20, i64::MAX as u64), "Most unfinished input kept for one client."),
    bytes("proto-max-bulk-len", 512 << 20, (1 << 20, i64::MAX as u64), "Longest single argument and longest string."),
    of_kind("maxmemory-clients", Kind::BytesOrPercent { max: i64::MAX as u64 }, "Memory of all clients above which the largest are closed, in bytes or percent of maxmemory; 0 for no limit."),
    number("max-new-connections-per-cycle", 10, (1, 1000), "Connections accepted in one round.").valkey().ignored("a worker accepts what its engine hands it"),
    number("max-new-tls-connections-per-cycle", 1, (1, 1000), "TLS connections accepted in one round.").valkey().not_yet(),
    number("client-default-resp", 2, (2, 3), "Protocol version of a client that sent no HELLO.").at_start().hidden().not_yet(),
    number("tracking-table-max-keys", 1_000_000, bound::LONG, "Keys remembered for clients that cache; above it clients are told to forget some. 0 for no limit."),
    optional("requirepass", "Password of the default user.").sensitive(),
    text("aclfile", "", "File with the users; without it they are in this file, one user line each.").at_start().not_yet(),
    number("acllog-max-len", 128, bound::LONG, "Refusals that ACL LOG remembers.").not_yet(),
    choice("acl-pubsub-default", 0, &[("allchannels", 1), ("resetchannels", 0)], "Channels a new user may use: all or none.").not_yet(),
    choice("enable-protected-configs", Guarded::No as u8, Guarded::WORDS, "Who may change dir and dbfilename with CONFIG SET: nobody, everybody, or clients on this host.").at_start(),
    choice("enable-debug-command", Guarded::No as u8, Guarded::WORDS, "Who may use DEBUG.").at_start(),
    choice("enable-module-command", Guarded::No as u8, Guarded::WORDS, "Who may use MODULE.").at_start(),
];
