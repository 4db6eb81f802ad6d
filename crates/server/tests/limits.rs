//! What a hostile or careless client can make the server hold: output, input, connections, time; and that large values
//! pass with few copies. Memory is the process's own, so each test has a server of its own.

mod running;

use gimmal_resp::{Reply, encode_command};
use running::{Client, PATIENCE, Running, error_text, ok};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

/// The machine's choice, and the fallback.
const ENGINES: [&str; 2] = ["auto", "epoll"];

fn start_on(engine: &str, arguments: &str) -> Running {
    Running::start(&format!("--io-engine {engine} {arguments}"))
}

fn set(client: &mut Client, key: &str, bytes: usize) {
    assert_eq!(client.call(&[b"SET", key.as_bytes(), &vec![b'v'; bytes]]), ok());
}

#[test]
fn a_client_that_does_not_read_is_paused_and_loses_nothing() {
    const REPLIES: usize = 3000;
    for engine in ENGINES {
        let server = start_on(engine, "");
        set(&mut server.connect(), "v", 100_000);
        let before = server.rss_mib();
        let mut client = server.connect();
        client.send(&b"*2\r\n$3\r\nGET\r\n$1\r\nv\r\n".repeat(REPLIES));
        std::thread::sleep(Duration::from_millis(300));
        let held = server.rss_mib().saturating_sub(before);
        eprintln!("{engine}: {held} MiB held of {} MiB asked for", REPLIES * 100_000 / MIB);
        assert!(held < 32, "{held} MiB are buffered for a client that does not read");
        for _ in 0..REPLIES {
            assert_eq!(client.reply().as_bytes().map(<[u8]>::len), Some(100_000));
        }
    }
}

#[test]
fn a_client_that_never_reads_is_closed_at_the_hard_limit() {
    for engine in ENGINES {
        let server = start_on(engine, "--client-output-buffer-limit normal 4mb 0 0");
        set(&mut server.connect(), "v", 16 * MIB);
        let mut client = server.connect();
        client.send(b"GET v\r\n");
        server.await_log("output buffer limits");
        assert!(client.is_closed_within(PATIENCE));
        assert_eq!(server.connect().ask("PING"), Reply::Simple("PONG".into()));
    }
}

#[test]
fn a_client_over_the_soft_limit_is_closed_after_its_seconds() {
    for engine in ENGINES {
        let server = start_on(engine, "--client-output-buffer-limit normal 0 8mb 1");
        set(&mut server.connect(), "v", 64 * MIB);
        let mut client = server.connect();
        let asked = Instant::now();
        client.send(b"GET v\r\n");
        server.await_log("output buffer limits");
        assert!(asked.elapsed() > Duration::from_millis(900), "closed after {:?}", asked.elapsed());
        assert!(client.is_closed_within(PATIENCE));
    }
}

/// A pause keeps a client's output far below the usual soft limit. Without a time limit of its own, a client that asked
/// for much and went silent would hold its megabyte for as long as it liked, and ten thousand of them ten gigabytes.
#[test]
fn a_paused_client_that_takes_nothing_is_closed_like_one_over_the_soft_limit() {
    let server = Running::start("--client-output-buffer-limit normal 0 256mb 1");
    set(&mut server.connect(), "v", 100_000);
    let mut client = server.connect();
    client.send(&b"GET v\r\n".repeat(1000));
    server.await_log("output buffer limits");
    assert!(client.is_closed_within(PATIENCE));
    let server = Running::start("--client-output-buffer-limit normal 0 0 0");
    set(&mut server.connect(), "v", 100_000);
    let mut client = server.connect();
    client.send(&b"GET v\r\n".repeat(1000));
    std::thread::sleep(Duration::from_millis(2500));
    for _ in 0..1000 {
        assert_eq!(client.reply().as_bytes().map(<[u8]>::len), Some(100_000), "limits that are off closed a client");
    }
}

#[test]
fn a_slow_reader_that_keeps_reading_is_not_closed() {
    let server = Running::start("--client-output-buffer-limit normal 0 256mb 2");
    set(&mut server.connect(), "v", 100_000);
    let mut client = server.connect();
    client.send(&b"GET v\r\n".repeat(1000));
    let started = Instant::now();
    for _ in 0..1000 {
        assert_eq!(client.reply().as_bytes().map(<[u8]>::len), Some(100_000));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(started.elapsed() > Duration::from_secs(4), "it was no slow reader");
}

/// A send was known to have got on only when it was over: who took one large reply at its own pace counted as taking
/// nothing, and was closed in the middle of it.
#[test]
fn a_slow_reader_of_one_large_reply_is_not_closed_while_it_reads() {
    for engine in ENGINES {
        let server = start_on(engine, "--client-output-buffer-limit normal 0 8mb 2");
        set(&mut server.connect(), "v", 64 * MIB);
        let mut client = server.connect();
        client.send(b"GET v\r\n");
        let started = Instant::now();
        let mut left = b"$67108864\r\n\r\n".len() + 64 * MIB;
        let mut piece = vec![0; MIB];
        while left > 0 {
            let count = client.stream.read(&mut piece[..MIB.min(left)]).expect("the connection is sound");
            assert!(count > 0, "closed with {left} bytes to come");
            left -= count;
            std::thread::sleep(Duration::from_micros(count as u64 / 12));
        }
        assert!(started.elapsed() > Duration::from_secs(4), "it was no slow reader");
    }
}

/// By default every value that can be stored can be read.
#[test]
fn the_longest_value_is_answered_under_the_usual_limits() {
    let server = Running::start("");
    let mut client = server.connect();
    assert_eq!(client.ask("SETRANGE v 536870911 x"), Reply::Integer(512 * MIB as i64));
    client.send(b"GET v\r\n");
    let mut left = b"$536870912\r\n\r\n".len() + 512 * MIB;
    let mut piece = vec![0; MIB];
    while left > 0 {
        let count = client.stream.read(&mut piece[..MIB.min(left)]).expect("the connection is sound");
        assert!(count > 0, "closed with {left} bytes to come");
        left -= count;
    }
    assert_eq!(client.ask("PING"), Reply::Simple("PONG".into()));
}

/// Input was paused beyond a megabyte, whether or not any of it could run. The rest of a command that was longer never
/// came in, and its client waited for ever.
#[test]
fn a_command_of_many_small_arguments_is_answered_whatever_its_length() {
    const ARGUMENTS: usize = 300_000;
    for engine in ENGINES {
        let server = start_on(engine, "");
        let mut client = server.connect();
        let words = vec![&b"an argument of 20 b."[..]; ARGUMENTS];
        let mut bytes = Vec::new();
        encode_command(&mut bytes, &[&[&b"ECHO"[..]], &words[..]].concat());
        assert!(bytes.len() > 7 * MIB);
        client.send(&bytes);
        let text = error_text(&client.reply());
        assert!(text.starts_with("ERR wrong number of arguments"), "{text}");
    }
}

#[test]
fn unfinished_input_is_bounded_however_it_is_made() {
    let small_arguments = b"$20\r\nan argument of 20 b.\r\n".repeat(4 * MIB / 27);
    let large_argument = [&b"$100000000\r\n"[..], &vec![b'v'; 4 * MIB]].concat();
    let large_arguments = [&b"$50000\r\n"[..], &vec![b'v'; 50_000], b"\r\n"].concat().repeat(80);
    let cases = [("small", small_arguments), ("one large", large_argument), ("large", large_arguments)];
    for engine in ENGINES {
        let server = start_on(engine, "--client-query-buffer-limit 2mb");
        for (what, arguments) in &cases {
            let mut client = server.connect();
            // The server closes in the middle; what is left cannot be written.
            let _cut_short = client.stream.write_all(&[&b"*1000000\r\n"[..], arguments].concat());
            assert!(client.is_closed_within(PATIENCE), "{engine}: {what}: not closed");
        }
        let closings = server.log().matches("max query buffer length").count();
        assert_eq!(closings, cases.len(), "{}", server.log());
    }
}

#[test]
fn before_authentication_a_client_may_say_little() {
    let server = Running::start("--requirepass secret");
    for (bytes, expected) in [
        (b"*11\r\n".to_vec(), "unauthenticated multibulk length"),
        (b"*2\r\n$16385\r\n".to_vec(), "unauthenticated bulk length"),
        (vec![b'x'; 16 * 1024 + 1], "too big inline request"),
    ] {
        let mut client = server.connect();
        client.send(&bytes);
        let text = error_text(&client.reply());
        assert!(text.starts_with("ERR Protocol error") && text.contains(expected), "{text}");
        assert!(client.is_closed_within(PATIENCE));
    }
    // Nine arguments that are each allowed, and together not.
    let mut client = server.connect();
    let argument = [&b"$16000\r\n"[..], &[b'x'; 16_000], b"\r\n"].concat();
    let _cut_short = client.stream.write_all(&[&b"*10\r\n"[..], &argument.repeat(9)].concat());
    assert!(client.is_closed_within(PATIENCE), "144 KB of an unfinished command were kept");
    // The password may be followed by anything, in the same packet.
    let mut client = server.connect();
    let mut bytes = Vec::new();
    encode_command(&mut bytes, &[b"AUTH", &b"secret"[..]]);
    encode_command(&mut bytes, &[b"SET", &b"k"[..], &vec![b'v'; 200_000]]);
    client.send(&bytes);
    assert_eq!((client.reply(), client.reply()), (ok(), ok()));
}

#[test]
fn before_authentication_little_is_kept_for_a_client_that_does_not_read() {
    const CLIENTS: usize = 200;
    let server = Running::start("--requirepass secret");
    let before = server.rss_mib();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
    let request = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".repeat(20_000);
    for client in &mut clients {
        client.stream.set_nonblocking(true).expect("a TCP socket");
        // As much as fits; the rest is refused by the socket.
        let _full = client.stream.write(&request);
    }
    std::thread::sleep(Duration::from_millis(500));
    let held = server.rss_mib().saturating_sub(before);
    eprintln!("{held} MiB for {CLIENTS} clients that have not authenticated");
    assert!(held < 24, "{held} MiB for {CLIENTS} clients that have not authenticated");
}

#[test]
fn who_does_not_authenticate_in_ten_seconds_is_closed() {
    let server = Running::start("--requirepass secret");
    // From before the server can have accepted them, so that a machine that stands still makes it longer only.
    let started = Instant::now();
    let (silent, mut trickling, mut known) = (server.connect(), server.connect(), server.connect());
    assert_eq!(known.ask("AUTH secret"), ok());
    let mut feeder = trickling.stream.try_clone().expect("a descriptor");
    let until_closed = |client: &mut Client, who: &str| {
        assert!(client.is_closed_within(Duration::from_secs(40)), "the {who} client is still there");
        let elapsed = started.elapsed();
        eprintln!("the {who} client was closed after {elapsed:?}");
        assert!(elapsed > Duration::from_millis(9500), "the {who} client was closed before its time: {elapsed:?}");
    };
    std::thread::scope(|scope| {
        let mut silent = silent;
        scope.spawn(move || until_closed(&mut silent, "silent"));
        // Until it is closed: then nothing can be sent any more.
        scope.spawn(move || {
            while feeder.write_all(b"P").is_ok() && started.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(500));
            }
        });
        until_closed(&mut trickling, "trickling");
    });
    assert_eq!(known.ask("PING"), Reply::Simple("PONG".into()));
}

#[test]
fn clients_beyond_maxclients_are_told_so() {
    for engine in ENGINES {
        let server = start_on(engine, "--maxclients 3");
        // The first connection of the test itself may still be closing.
        let mut clients = await_clients(&server, 3);
        let mut refused = server.connect();
        assert_eq!(error_text(&refused.reply()), "ERR max number of clients reached");
        assert!(refused.is_closed_within(PATIENCE));
        drop(clients.pop());
        drop(await_clients(&server, 1));
        assert_eq!(clients[0].ask("PING"), Reply::Simple("PONG".into()));
    }
}

/// So many clients that are served, once those before them are gone.
fn await_clients(server: &Running, count: usize) -> Vec<Client> {
    let started = Instant::now();
    let mut clients: Vec<Client> = Vec::new();
    while clients.len() < count {
        assert!(started.elapsed() < PATIENCE, "there is no room for {count} clients");
        let mut client = server.connect();
        // A refused client's own request may be answered by a reset.
        if client.stream.write_all(b"PING\r\n").is_ok() && client.next_reply() == Some(Reply::Simple("PONG".into())) {
            clients.push(client);
        }
    }
    clients
}

#[test]
fn protected_mode_refuses_those_from_outside() {
    let Some(address) = outside_address() else {
        eprintln!("not run: protected mode: this machine has no address but loopback");
        return;
    };
    for (arguments, refused) in [
        ("--bind 0.0.0.0", true),
        ("--bind 0.0.0.0 --protected-mode no", false),
        ("--bind 0.0.0.0 --requirepass secret", false),
    ] {
        let server = Running::start(arguments);
        let stream = TcpStream::connect((address, server.port())).expect("it listens on every address");
        let mut client = Client::new(stream);
        if refused {
            let text = error_text(&client.reply());
            assert!(text.starts_with("DENIED ") && text.contains("protected mode"), "{text}");
            assert!(client.is_closed_within(PATIENCE));
            assert_eq!(server.connect().ask("PING"), Reply::Simple("PONG".into()), "loopback is refused too");
        } else {
            let reply = client.ask("PING");
            assert!(!reply.is_error() || error_text(&reply).starts_with("NOAUTH"), "{reply:?}");
        }
    }
}

/// An address of this machine that is not loopback. Connecting a datagram socket sends nothing.
fn outside_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(("192.0.2.1", 9)).ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

#[test]
fn idle_clients_are_closed_and_others_are_not() {
    for engine in ENGINES {
        // A machine that stands still for long makes an idle client of the busy one; then it is begun anew.
        let lasted = (0..5).find_map(|_| close_idle_beside_busy(engine));
        let lasted = lasted.expect("the machine stood still five times");
        assert!(lasted > Duration::from_millis(3500), "{engine}: closed after {lasted:?}");
    }
}

/// After what time an idle client was closed; `None` if the busy one could not ask for almost as long.
fn close_idle_beside_busy(engine: &str) -> Option<Duration> {
    let server = start_on(engine, "--timeout 4");
    let (mut idle, mut busy) = (server.connect(), server.connect());
    let started = Instant::now();
    let mut asked = started;
    loop {
        let is_closed = idle.is_closed_within(Duration::from_millis(200));
        let lasted = started.elapsed();
        if asked.elapsed() > Duration::from_millis(2500) {
            eprintln!("{engine}: begun anew: the busy client could not ask for {:?}", asked.elapsed());
            return None;
        }
        asked = Instant::now();
        assert_eq!(busy.ask("PING"), Reply::Simple("PONG".into()));
        if is_closed {
            return Some(lasted);
        }
        assert!(lasted < PATIENCE, "{engine}: idle for {lasted:?} and still there");
    }
}

#[test]
fn large_values_pass_with_few_copies() {
    const BYTES: usize = 64 * MIB;
    let value: Vec<u8> = (0..BYTES).map(|i| u8::try_from(i % 251).expect("below 251")).collect();
    for engine in ENGINES {
        let server = start_on(engine, "");
        let before = server.rss_mib();
        let mut client = server.connect();
        assert_eq!(client.call(&[b"SET", b"k", &value]), ok());
        let stored = server.rss_mib() - before;
        assert!(client.call(&[b"GET", b"k"]).as_bytes() == Some(&value[..]), "the value is another one");
        let sent = server.peak_rss_mib() - before;
        eprintln!("{engine}: a value of 64 MiB: {stored} MiB when stored, at most {sent} MiB when it was sent");
        assert!(stored < 64 + 24, "{stored} MiB for 64 MiB");
        assert!(sent < 64 + 32, "{sent} MiB for 64 MiB");
        assert_eq!(client.call(&[b"SET", b"k", b""]), ok());
    }
}

#[test]
fn values_of_every_size_around_the_borders_pass_unchanged() {
    let sizes = [32_767, 32_768, 65_535, 65_536, 262_143, 262_144, 262_145, MIB - 1, MIB, MIB + 1, 3 * MIB + 7];
    for engine in ENGINES {
        let server = start_on(engine, "");
        let mut client = server.connect();
        for size in sizes {
            let value: Vec<u8> = (0..size).map(|i| u8::try_from(i % 253).expect("below 253")).collect();
            let mut bytes = Vec::new();
            encode_command(&mut bytes, &[&b"SET"[..], b"k", &value]);
            encode_command(&mut bytes, &[b"GET", &b"k"[..]]);
            // In pieces, with a pause in the middle of the payload.
            let (first, rest) = bytes.split_at(size / 2);
            client.send(first);
            std::thread::sleep(Duration::from_millis(3));
            client.send(rest);
            assert_eq!(client.reply(), ok(), "{engine}: {size} bytes");
            assert!(client.reply().as_bytes() == Some(&value[..]), "{engine}: {size} bytes came back changed");
        }
    }
}

#[test]
fn declared_lengths_beyond_the_limits_are_refused() {
    let server = Running::start("");
    for (bytes, expected) in [
        (&b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870913\r\n"[..], "invalid bulk length"),
        (b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$9223372036854775807\r\n", "invalid bulk length"),
        (b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$-1\r\n", "invalid bulk length"),
        (b"*2147483648\r\n", "invalid multibulk length"),
        (b"*99999999999999999999\r\n", "invalid multibulk length"),
    ] {
        let mut client = server.connect();
        client.send(bytes);
        let text = error_text(&client.reply());
        assert!(text.starts_with("ERR Protocol error") && text.contains(expected), "{text}");
        assert!(client.is_closed_within(PATIENCE));
    }
}

#[test]
fn declared_lengths_allocate_nothing() {
    const CLIENTS: usize = 100;
    let server = Running::start("--proto-max-bulk-len 4gb");
    let before = server.rss_mib();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        for start in
            [&b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2147483648\r\nthe first bytes"[..], b"*2147483647\r\n$3\r\nSET\r\n"]
        {
            let mut client = server.connect();
            client.send(start);
            clients.push(client);
        }
    }
    assert_eq!(server.connect().ask("PING"), Reply::Simple("PONG".into()));
    std::thread::sleep(Duration::from_millis(200));
    let grown = server.rss_mib().saturating_sub(before);
    eprintln!("{grown} MiB for {CLIENTS} values of 2 GiB and as many commands of 2^31 arguments, all declared only");
    assert!(grown < 40, "{grown} MiB for declared lengths");
}

#[test]
fn ten_thousand_half_sent_commands_cost_little_and_can_be_finished() {
    const CLIENTS: u64 = 10_000;
    let files = gimmal_lab::sys::raise_open_files().expect("the limit can be read");
    if files < CLIENTS + 200 {
        eprintln!("not run: ten thousand half-sent commands: only {files} files may be open here");
        return;
    }
    let server = Running::start("--maxclients 10100");
    let before = server.rss_mib();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(b"*3\r\n$3\r\nSET\r\n$8\r\nhalf-");
    }
    let mut other = server.connect();
    let slowest = (0..100).map(|_| {
        let asked = Instant::now();
        assert_eq!(other.ask("PING"), Reply::Simple("PONG".into()));
        asked.elapsed()
    });
    let slowest = slowest.max().expect("a hundred");
    let grown = server.rss_mib().saturating_sub(before);
    eprintln!(
        "{CLIENTS} half-sent commands: {grown} MiB, {} bytes each; slowest PING {slowest:?}",
        grown * 1024 * 1024 / CLIENTS
    );
    assert!(grown < 60, "{grown} MiB for {CLIENTS} half-sent commands");
    for client in &mut clients {
        client.send(b"key\r\n$1\r\nv\r\n");
    }
    for client in &mut clients {
        assert_eq!(client.reply(), ok());
    }
    drop(clients);
    let mut rest = Vec::new();
    other.stream.set_nonblocking(true).expect("a TCP socket");
    assert!(other.stream.read_to_end(&mut rest).is_err() && rest.is_empty(), "something else was said: {rest:?}");
}
