//! Where the server listens.

use super::super::directive::{Directive, Form, Kind, bound, flag, list, number, of_kind, optional};

/// The section's rows.
#[rustfmt::skip] // one row, one line
pub const DIRECTIVES: &[Directive] = &[
    list("bind", "127.0.0.1 -::1", Form::Addresses, "Addresses to listen on; a leading - makes one optional, * and ::* mean all."),
    number("port", 6379, bound::PORT, "TCP port; 0 opens none."),
    optional("unixsocket", "Path of a Unix socket to listen on as well.").at_start(),
    of_kind("unixsocketperm", Kind::Octal { max: 0o777 }, "Permission bits of the Unix socket, in octal; 0 leaves them to the umask.").at_start(),
    optional("unixsocketgroup", "Group that owns the Unix socket.").at_start().valkey().not_yet(),
    flag("protected-mode", true, "Without a password, serve only clients on this host."),
    number("tcp-backlog", 511, bound::INT, "Connections the kernel queues before they are accepted.").at_start(),
    number("timeout", 0, bound::INT, "Seconds after which an idle client is closed; 0 never."),
    number("tcp-keepalive", 300, bound::INT, "Seconds between TCP probes of an idle connection; 0 sends none."),
    optional("bind-source-addr", "Local address for connections that the server opens itself.").not_yet(),
    number("socket-mark-id", 0, (0, u32::MAX as i64), "Mark set on the listening sockets (SO_MARK), for routing and filters.").at_start().not_yet(),
];
