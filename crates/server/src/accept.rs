//! New connections: listening sockets, who may come in, and which worker serves them.
//!
//! The first worker accepts for all and hands each socket to the worker with the fewest connections: kernel-side
//! distribution is lumpy with few connections, and accepting is not a hot path.

use crate::config::Config;
use crate::connection::Connection;
use crate::mail::Message;
use crate::session::{Peer, Session};
use crate::shared::Shared;
use crate::worker::{Action, State};
use gimmal_io::{ListenerId, Socket};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

/// Opens every listening socket of the configuration. An address with a leading `-` may fail (Redis's `-::1`).
pub fn open(config: &Config) -> io::Result<Vec<(Socket, Peer)>> {
    let mut sockets = Vec::new();
    if config.port() != 0 {
        for address in config.bind() {
            let (optional, host) = match address.strip_prefix('-') {
                Some(host) => (true, host),
                None => (false, address.as_str()),
            };
            match listen(host, config.port(), config.tcp_backlog()) {
                Ok(socket) => {
                    let local = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), config.port());
                    sockets.push((Socket::from(socket), Peer::Tcp(local, local)));
                }
                Err(error) if optional && error.kind() != io::ErrorKind::AddrInUse => {}
                Err(error) => {
                    let text =
                        format!("Could not create server TCP listening socket {host}:{}: {error}", config.port());
                    return Err(io::Error::new(error.kind(), text));
                }
            }
        }
    }
    if let Some(path) = config.unixsocket() {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("Failed opening Unix socket {path}: {error}"));
        match std::fs::remove_file(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(named(error)),
        }
        let listener = UnixListener::bind(path).map_err(named)?;
        if let Some(mode) = config.unixsocketperm() {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(named)?;
        }
        sockets.push((Socket::from(OwnedFd::from(listener)), Peer::Unix));
    }
    if sockets.is_empty() {
        return Err(io::Error::other("Configured to not listen anywhere, exiting."));
    }
    Ok(sockets)
}

/// One listening TCP socket.
fn listen(host: &str, port: u16, backlog: i32) -> io::Result<OwnedFd> {
    let host = if host == "*" { "0.0.0.0" } else { host };
    let address = (host, port).to_socket_addrs()?.next().ok_or(io::Error::other("no such address"))?;
    // The standard library sets SO_REUSEADDR; listening again only changes the backlog.
    let listener = bind(address)?;
    crate::os::listen_again(listener.as_raw_fd(), backlog)?;
    Ok(OwnedFd::from(listener))
}

/// Binds, and if the port is taken tries again for a while: the kernel lets go of what a killed server's rings held a moment after
/// the process is gone.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let begun = Instant::now();
    loop {
        match TcpListener::bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && begun.elapsed() < PORT_PATIENCE => {
                std::thread::sleep(PORT_PAUSE);
            }
            bound => return bound,
        }
    }
}

/// How long a port that is taken is tried, and how often.
const PORT_PATIENCE: Duration = Duration::from_secs(1);
const PORT_PAUSE: Duration = Duration::from_millis(10);

/// A connection was accepted: refuse it, or hand it to the worker with the fewest.
pub fn accepted(state: &mut State, listener: ListenerId, socket: Socket) {
    let shared = state.shared.clone();
    state.local.stats.accepted.add(1);
    let kind = state.listeners.iter().find(|(id, _)| *id == listener).map(|(_, peer)| peer.clone());
    let Some((socket, peer)) = prepare(state, socket, kind) else { return };
    if let Some(text) = refusal(&shared, state, &peer) {
        state.local.stats.rejected.add(1);
        refuse(socket, text);
        return;
    }
    let least = (0..shared.mail.len()).min_by_key(|&w| shared.stats[w].connections.value()).expect("there are workers");
    if least == state.local.id {
        adopt(state, socket, peer);
    } else {
        // Counted at once, so that a burst is spread; the owner sets the exact number.
        shared.stats[least].connections.add(1);
        shared.mail[least].post(Message::Adopt(socket, peer));
    }
}

/// Sets the options of a fresh socket and finds out who it is.
fn prepare(state: &State, socket: Socket, kind: Option<Peer>) -> Option<(Socket, Peer)> {
    if socket.raw_fd().is_none() {
        return Some((socket, Peer::Sim));
    }
    if kind == Some(Peer::Unix) {
        return Some((socket, Peer::Unix));
    }
    let fd = socket.into_fd().ok()?;
    let stream = TcpStream::from(fd);
    // A peer that is already gone has no address: nobody is waiting for an answer.
    let (peer, local) = (stream.peer_addr().ok()?, stream.local_addr().ok()?);
    let keepalive = state.local.config.tcp_keepalive();
    let options = stream.set_nodelay(true).and_then(|()| crate::os::set_keepalive(stream.as_raw_fd(), keepalive));
    if let Err(error) = options {
        crate::verbose!("Setting the options of a connection from {peer}: {error}");
    }
    Some((Socket::from(OwnedFd::from(stream)), Peer::Tcp(peer, local)))
}

const DENIED: &str = "-DENIED Gimmal is running in protected mode because protected mode is enabled and no password is set \
for the default user. In this mode connections are only accepted from the loopback interface. If you want to connect from \
external computers, either set a password (CONFIG SET requirepass), or turn protected mode off (CONFIG SET protected-mode \
no, or 'protected-mode no' in the configuration file) if the server is not reachable from untrusted networks.\r\n";

/// Why a connection may not come in, if so.
fn refusal(shared: &Shared, state: &State, peer: &Peer) -> Option<&'static str> {
    let config = &state.local.config;
    if let Peer::Tcp(address, _) = peer
        && config.protected_mode()
        && config.requirepass().is_empty()
        && !address.ip().to_canonical().is_loopback()
    {
        return Some(DENIED);
    }
    let full = !shared.lifecycle.enter(config.maxclients());
    full.then_some("-ERR max number of clients reached\r\n")
}

fn refuse(socket: Socket, text: &str) {
    if let Ok(fd) = socket.into_fd() {
        // A new socket's buffer takes a line at once; if not, the client sees a closed connection.
        let mut stream = TcpStream::from(fd);
        let _unsent = stream.set_nonblocking(true).and_then(|()| stream.write_all(text.as_bytes()));
    }
}

/// Serves a new connection on this worker.
pub fn adopt(state: &mut State, socket: Socket, peer: Peer) {
    let id = state.shared.lifecycle.next_client();
    let open = state.local.config.requirepass().is_empty();
    let session = Session::new(id, peer, open, crate::now_ms());
    let conn = state.connections.insert(Box::new(Connection::new(session)));
    state.local.stats.connections.set(state.connections.len() as u64);
    state.actions.push(Action::Attach(conn, socket));
}

/// Accepting failed; the engine tries again after a while.
pub fn failed(error: &io::Error) {
    crate::warning!("Accepting a client connection: {error}");
}
