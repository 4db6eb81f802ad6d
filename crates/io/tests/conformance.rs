//! The same promises on every engine, in ordinary and in hostile configurations.

mod world;

use std::io::{Read, Write};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use gimmal_io::{ConnId, Output};
use world::{Kind, PATIENCE, Peer, Random, Seen, Server, World};

/// Makes one test per world for each named scenario.
macro_rules! scenarios {
    ($($scenario:ident),* $(,)?) => {
        scenarios!(@world epoll, Kind::Epoll, $($scenario),*);
        scenarios!(@world epoll_unix, Kind::EpollUnix, $($scenario),*);
        scenarios!(@world uring, Kind::Uring, $($scenario),*);
        scenarios!(@world uring_defer, Kind::UringDefer, $($scenario),*);
        scenarios!(@world uring_hostile, Kind::UringHostile, $($scenario),*);
        scenarios!(@world uring_defer_hostile, Kind::UringDeferHostile, $($scenario),*);
        scenarios!(@world uring_unix, Kind::UringUnix, $($scenario),*);
        scenarios!(@world uring_sync_send, Kind::UringSyncSend, $($scenario),*);
        scenarios!(@world level, Kind::Level, $($scenario),*);
        scenarios!(@world uring_single, Kind::UringSingle, $($scenario),*);
        scenarios!(@world uring_netty, Kind::UringNetty, $($scenario),*);
        scenarios!(@world uring_netty_unix, Kind::UringNettyUnix, $($scenario),*);
        scenarios!(@world send_batch, Kind::SendBatch, $($scenario),*);
        scenarios!(@world send_async, Kind::SendAsync, $($scenario),*);
        scenarios!(@world send_sequential, Kind::SendSequential, $($scenario),*);
        scenarios!(@world send_kernel, Kind::SendKernel, $($scenario),*);
        scenarios!(@world send_paced, Kind::SendPaced, $($scenario),*);
        scenarios!(@world send_kernel_unix, Kind::SendKernelUnix, $($scenario),*);
        scenarios!(@world send_unix, Kind::SendUnix, $($scenario),*);
        scenarios!(@world queue_lock_unix, Kind::QueueLockUnix, $($scenario),*);
        scenarios!(@world queue_ms, Kind::QueueMs, $($scenario),*);
        scenarios!(@world queue_distributed, Kind::QueueDistributed, $($scenario),*);
        scenarios!(@world phases_unix, Kind::PhasesUnix, $($scenario),*);
        scenarios!(@world phases_reads, Kind::PhasesReads, $($scenario),*);
        scenarios!(@world sim, Kind::Sim, $($scenario),*);
        scenarios!(@world sim_hostile, Kind::SimHostile, $($scenario),*);
    };
    (@world $module:ident, $kind:expr, $($scenario:ident),*) => {
        mod $module {
            use super::{Kind, World};
            $(#[test] fn $scenario() { super::$scenario(&World::new($kind)); })*
        }
    };
}

scenarios!(
    echo_of_random_sizes_cut_anywhere,
    a_large_output_with_shared_chunks_arrives_whole,
    a_paused_connection_receives_a_bounded_amount,
    close_storms_return_every_output_once,
    detached_connections_lose_no_byte,
    what_was_foreseen_of_a_connection_that_goes_is_lost_only_if_it_is_closed,
    peers_that_vanish_end_receiving_and_fail_sending,
    wakes_are_coalesced_and_none_is_lost,
    waiting_keeps_to_its_timeout,
    half_closed_connections_go_on,
    listening_accepts_everyone_until_it_ends,
);

/// Echoes until all connections have ended and their echoes are sent.
fn serve_echo(server: &mut Server) {
    let mut pending: Vec<(ConnId, Output)> = Vec::new();
    let mut ended = Vec::new();
    server.until("echoing", |server, seen| {
        for item in seen {
            match item {
                Seen::Received(conn, data) => match pending.iter_mut().find(|(id, _)| id == conn) {
                    Some((_, output)) => output.bytes_mut().extend_from_slice(data),
                    None => pending.push((*conn, Output::with_head(data.clone()))),
                },
                Seen::Ended(conn, None) => ended.push(*conn),
                Seen::Sent(_, result) => assert_eq!(*result, Ok(())),
                Seen::Closed(_) => {}
                other => panic!("{other:?}"),
            }
        }
        for (conn, output) in std::mem::take(&mut pending) {
            if server.is_sending(conn) {
                pending.push((conn, output));
            } else {
                assert!(matches!(server.send(conn, output), None | Some(Ok(()))));
            }
        }
        ended.retain(|conn| {
            let busy = server.is_sending(*conn) || pending.iter().any(|(id, _)| id == conn);
            if !busy {
                server.close(*conn);
            }
            busy
        });
        server.connections() == 0
    });
}

fn echo_of_random_sizes_cut_anywhere(world: &World) {
    let mut server = Server::new(world);
    let mut clients = Vec::new();
    for seed in 0..16 {
        let (near, far) = world.connection();
        server.attach(near);
        let (mut reader, mut writer) = far.split();
        let total = world.scaled(Random(seed).below(2_000_000)) + 1;
        clients.push(thread::spawn(move || {
            let mut random = Random(seed);
            let bytes = random.bytes(total);
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let most = [3, 64, 5_000, 200_000][random.below(4)];
                let (cut, later) = rest.split_at(rest.len().min(random.below(most) + 1));
                writer.write_all(cut).unwrap();
                rest = later;
            }
            writer.end_writing();
        }));
        let expected = {
            let mut random = Random(seed);
            random.bytes(total)
        };
        clients.push(thread::spawn(move || {
            let mut echoed = Vec::new();
            reader.read_to_end(&mut echoed).unwrap();
            assert!(echoed == expected, "the echo differs");
        }));
    }
    serve_echo(&mut server);
    for client in clients {
        client.join().unwrap();
    }
    server.finish();
}

fn a_large_output_with_shared_chunks_arrives_whole(world: &World) {
    const LARGE: usize = 100 << 20;
    let total = match world.kind {
        Kind::SimHostile => LARGE / 100,
        _ if world.is_hostile() => LARGE / 4,
        _ => LARGE,
    };
    let mut server = Server::new(world);
    let (near, far) = world.connection();
    let conn = server.attach(near);
    let value = Arc::new(Random(1).bytes(3 << 20));
    let mut output = Output::with_head(b"head".to_vec());
    let mut expected = b"head".to_vec();
    while expected.len() < total {
        let start = expected.len() % 1000;
        output.push_shared(Arc::clone(&value), start..value.len());
        expected.extend_from_slice(&value[start..]);
        output.bytes_mut().extend_from_slice(b"\r\n");
        expected.extend_from_slice(b"\r\n");
        for piece in 0..100 {
            output.push_shared(Arc::clone(&value), piece..piece * 2 + 1);
            expected.extend_from_slice(&value[piece..piece * 2 + 1]);
        }
    }
    assert_eq!(output.len(), expected.len());
    let length = expected.len();
    let client = thread::spawn(move || {
        let mut far = far;
        let mut received = vec![0; length];
        far.read_exact(&mut received).unwrap();
        assert!(received == expected, "the bytes differ");
        far
    });
    assert_eq!(server.send(conn, output), None, "so much cannot be sent at once");
    server.until("sending", |_, seen| {
        assert!(seen.is_empty() || seen == [Seen::Sent(conn, Ok(()))], "{seen:?}");
        !seen.is_empty()
    });
    assert_eq!(Arc::strong_count(&value), 1, "nothing holds the value after it was sent");
    drop(client.join().unwrap());
    server.finish();
}

fn a_paused_connection_receives_a_bounded_amount(world: &World) {
    // What may still come: socket buffers are not read, so only a pass's worth of provided buffers.
    const BOUND: usize = 2 << 20;
    let mut server = Server::new(world);
    let (near, far) = world.connection();
    let conn = server.attach(near);
    let total = world.scaled(64 << 20);
    let bytes = Random(2).bytes(total);
    let expected = bytes.clone();
    let client = thread::spawn(move || {
        let mut far = far;
        far.write_all(&bytes).unwrap();
        far
    });
    let mut received = Vec::new();
    let mut collect = |seen: &[Seen]| {
        for item in seen {
            match item {
                Seen::Received(_, data) => received.extend_from_slice(data),
                other => panic!("{other:?}"),
            }
        }
        received.len()
    };
    for _ in 0..8 {
        let before = collect(&server.pass(Some(Duration::from_millis(20))));
        server.engine.pause(conn);
        // It has stopped once three passes in a row bring nothing.
        let (mut after, mut quiet) = (before, 0);
        while quiet < 3 {
            let now = collect(&server.pass(Some(Duration::from_millis(10))));
            quiet = if now == after { quiet + 1 } else { 0 };
            after = now;
            assert!(after - before <= BOUND, "{} bytes arrived while paused", after - before);
        }
        server.engine.resume(conn);
        server.engine.pause(conn);
        server.engine.resume(conn);
    }
    server.until("receiving the rest", |_, seen| collect(seen) == total);
    assert!(received == expected, "the bytes differ");
    drop(client.join().unwrap());
    server.finish();
}

fn close_storms_return_every_output_once(world: &World) {
    let mut random = Random(3);
    let mut server = Server::new(world);
    for round in 0..40 {
        let mut clients = Vec::new();
        let mut conns = Vec::new();
        for _ in 0..20 {
            let (near, far) = world.connection();
            conns.push(server.attach(near));
            let (seed, patient) = (random.next(), random.below(2) == 0);
            clients.push(thread::spawn(move || {
                let mut far = far;
                let mut random = Random(seed);
                let count = random.below(20_000);
                // The server may close at any moment: errors are part of the storm.
                let _ = far.write(&random.bytes(count));
                if patient {
                    let _ = far.read(&mut [0; 1000]);
                }
            }));
        }
        while !conns.is_empty() {
            let conn = conns.swap_remove(random.below(conns.len()));
            match random.below(4) {
                0 => server.close(conn),
                1 => {
                    // More than a socket takes: in flight when the close comes.
                    let output = Output::with_head(vec![0; 8 << 20]);
                    if server.send(conn, output).is_none() {
                        assert!(server.is_sending(conn));
                    }
                    server.close(conn);
                }
                2 => {
                    server.engine.pause(conn);
                    server.pass(Some(Duration::ZERO));
                    server.engine.resume(conn);
                    server.close(conn);
                    server.engine.close(conn); // Closing twice is closing once.
                }
                _ => {
                    let output = Output::with_head(vec![0; random.below(100_000) + 1]);
                    let _ = server.send(conn, output);
                    server.pass(Some(Duration::ZERO));
                    server.close(conn);
                }
            }
        }
        server.until("closing", |server, _| server.connections() == 0);
        assert_eq!(server.engine.outstanding(), 0, "round {round}");
        for client in clients {
            client.join().unwrap();
        }
    }
    server.finish();
}

fn detached_connections_lose_no_byte(world: &World) {
    let other = if world.is_simulated() { world.kind } else { Kind::Epoll };
    let other = Server::new(&World { kind: other, net: Arc::clone(&world.net) });
    let mut servers = [Server::new(world), Server::new(world), other];
    let (near, far) = world.connection();
    let total = world.scaled(24 << 20);
    let bytes = Random(4).bytes(total);
    let expected = bytes.clone();
    let client = thread::spawn(move || {
        let mut far = far;
        let mut random = Random(5);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (cut, later) = rest.split_at(rest.len().min(random.below(30_000) + 1));
            far.write_all(cut).unwrap();
            rest = later;
        }
        far
    });
    let mut received = Vec::new();
    let mut socket = Some(near);
    let (mut at, mut moves) = (0, 0);
    let start = Instant::now();
    while received.len() < total {
        assert!(start.elapsed() < PATIENCE, "{} of {total} bytes after {moves} moves", received.len());
        let server = &mut servers[at];
        let conn = server.attach(socket.take().unwrap());
        for item in server.pass(Some(Duration::from_millis(5))) {
            if let Seen::Received(_, data) = item {
                received.extend_from_slice(&data);
            }
        }
        server.detach(conn);
        server.until("detaching", |_, seen| {
            for item in seen {
                match item {
                    Seen::Received(_, data) => received.extend_from_slice(data),
                    Seen::Detached(_) => return true,
                    other => panic!("{other:?}"),
                }
            }
            false
        });
        socket = server.sockets.pop();
        (at, moves) = ((at + 1) % servers.len(), moves + 1);
    }
    assert!(received == expected, "the bytes differ");
    assert!(moves > 10);
    drop(client.join().unwrap());
    for server in &mut servers {
        server.finish();
    }
}

fn peers_that_vanish_end_receiving_and_fail_sending(world: &World) {
    let mut server = Server::new(world);
    for round in 0..20 {
        let (near, far) = world.connection();
        let conn = server.attach(near);
        assert_eq!(server.send(conn, Output::with_head(vec![1; 64 << 20])), None);
        let client = thread::spawn(move || {
            let mut far = far;
            far.write_all(b"hello").unwrap();
            far.read_exact(&mut [0; 10]).unwrap();
            far.reset();
        });
        let (mut ended, mut failed) = (false, false);
        server.until("the reset", |_, seen| {
            for item in seen {
                match item {
                    Seen::Received(_, _) => {}
                    Seen::Ended(_, _) => ended = true,
                    Seen::Sent(_, result) => {
                        assert!(result.is_err(), "round {round}: sent to nobody");
                        failed = true;
                    }
                    other => panic!("{other:?}"),
                }
            }
            ended && failed
        });
        client.join().unwrap();
        let (result, mut tries) = (server.send(conn, Output::with_head(b"x".to_vec())), 0);
        if result.is_none() {
            server.until("the failed send", |_, seen| {
                tries += 1;
                seen.iter().any(|item| matches!(item, Seen::Sent(_, Err(_))))
            });
        } else {
            assert!(matches!(result, Some(Err(_))));
        }
        server.finish();
    }
}

fn wakes_are_coalesced_and_none_is_lost(world: &World) {
    use std::sync::atomic::{AtomicU64, Ordering};
    let mut server = Server::new(world);
    let waker = server.engine.waker();
    for _ in 0..5 {
        waker.wake();
    }
    assert_eq!(server.pass(Some(PATIENCE)), [Seen::Woken]);
    assert_eq!(server.pass(Some(Duration::ZERO)), []);
    let published = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (waker, published) = (waker.clone(), Arc::clone(&published));
            thread::spawn(move || {
                for _ in 0..20_000 {
                    published.fetch_add(1, Ordering::Release);
                    waker.wake();
                }
            })
        })
        .collect();
    let (start, mut seen) = (Instant::now(), 0);
    // Each wait may sleep long: a lost wake shows as a time-out here.
    while seen < 60_000 {
        let woken = server.pass(Some(PATIENCE));
        assert!(woken.len() <= 1 && start.elapsed() < PATIENCE, "{seen} of 60000");
        if woken == [Seen::Woken] {
            seen = published.load(Ordering::Acquire);
        }
    }
    for thread in threads {
        thread.join().unwrap();
    }
    server.finish();
}

fn waiting_keeps_to_its_timeout(world: &World) {
    let mut server = Server::new(world);
    for timeout in [Duration::from_micros(300), Duration::from_millis(20)] {
        let start = Instant::now();
        assert_eq!(server.pass(Some(timeout)), []);
        assert!(start.elapsed() >= timeout, "{:?} of {timeout:?}", start.elapsed());
    }
    // What the engine waits for comes each time; what the machine adds does not.
    let soon = |what: &str, act: &mut dyn FnMut()| {
        let times = (0..3).map(|_| {
            let start = Instant::now();
            act();
            start.elapsed()
        });
        let shortest = times.min().expect("three");
        assert!(shortest < Duration::from_secs(1), "{what} took {shortest:?}");
    };
    soon("100 waits that may not sleep", &mut || {
        (0..100).for_each(|_| assert_eq!(server.pass(Some(Duration::ZERO)), []));
    });
    soon("a wait with a completion at hand", &mut || {
        let (near, _far) = world.connection();
        let conn = server.attach(near);
        server.close(conn);
        while server.pass(Some(PATIENCE)) != [Seen::Closed(conn)] {}
    });
    server.finish();
}

/// An engine that has received for several connections finds out that one of them is closed, or given away, meanwhile.
fn what_was_foreseen_of_a_connection_that_goes_is_lost_only_if_it_is_closed(world: &World) {
    let (mut server, mut other) = (Server::new(world), Server::new(world));
    for _ in 0..50 {
        let mut ends: Vec<_> =
            (0..3).map(|_| world.connection()).map(|(near, far)| (server.attach(near), far)).collect();
        for (at, (_, far)) in ends.iter_mut().enumerate() {
            far.write_all(&[b"closed", b"moved ", b"stayed"][at][..]).unwrap();
        }
        let (closed, moved, stayed) = (ends[0].0, ends[1].0, ends[2].0);
        server.engine.wait(Some(Duration::from_millis(1))).unwrap();
        server.engine.look_ahead();
        server.close(closed);
        server.detach(moved);
        let (mut of_moved, mut of_stayed, mut gone) = (Vec::new(), Vec::new(), 0);
        server.until("one to stay", |_, seen| {
            for item in seen {
                match item {
                    Seen::Received(conn, data) if *conn == moved => of_moved.extend_from_slice(data),
                    Seen::Received(conn, data) if *conn == stayed => of_stayed.extend_from_slice(data),
                    Seen::Closed(_) | Seen::Detached(_) => gone += 1,
                    item => panic!("{item:?}"),
                }
            }
            gone == 2 && of_stayed == b"stayed"
        });
        let moved = other.attach(server.sockets.pop().unwrap());
        // A pass that finds nothing waits.
        if of_moved != b"moved " {
            other.until("the rest", |_, seen| {
                for item in seen {
                    let Seen::Received(_, data) = item else { panic!("{item:?}") };
                    of_moved.extend_from_slice(data);
                }
                of_moved == b"moved "
            });
        }
        other.close(moved);
        other.until("closing", |other, _| other.connections() == 0);
        server.close(stayed);
        server.until("closing", |server, _| server.connections() == 0);
    }
    server.finish();
    other.finish();
}

fn half_closed_connections_go_on(world: &World) {
    let mut server = Server::new(world);
    let (near, mut far): (_, Peer) = world.connection();
    let conn = server.attach(near);
    server.engine.shutdown_write(conn);
    assert_eq!(far.read(&mut [0; 10]).unwrap(), 0, "the peer reads the end");
    far.write_all(b"still here").unwrap();
    server.until("receiving", |_, seen| seen == [Seen::Received(conn, b"still here".to_vec())]);
    let (near, mut far) = world.connection();
    let other = server.attach(near);
    far.end_writing();
    server.until("the end", |_, seen| seen == [Seen::Ended(other, None)]);
    let sent = server.send(other, Output::with_head(b"late".to_vec()));
    if sent.is_none() {
        server.until("sending", |_, seen| seen == [Seen::Sent(other, Ok(()))]);
    }
    let mut reply = [0; 4];
    far.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"late");
    server.finish();
}

fn listening_accepts_everyone_until_it_ends(world: &World) {
    const CLIENTS: usize = 300;
    let mut server = Server::new(world);
    for listener in [5, 6] {
        let (socket, connect) = world.listener();
        server.engine.listen(listener, socket).unwrap();
        let clients = thread::spawn(move || {
            let peers: Vec<Peer> = (0..CLIENTS).map(|_| connect().unwrap()).collect();
            (peers, connect)
        });
        server.until("accepting", |server, seen| {
            for item in seen {
                let failed = world.kind == Kind::SimHostile && *item == Seen::AcceptFailed(listener);
                assert!(*item == Seen::Accepted(listener) || failed, "{item:?}");
            }
            server.sockets.len() == CLIENTS
        });
        let (mut peers, connect) = clients.join().unwrap();
        let sockets = std::mem::take(&mut server.sockets);
        let conns: Vec<ConnId> = sockets.into_iter().map(|socket| server.attach(socket)).collect();
        for peer in &mut peers {
            peer.write_all(b"x").unwrap();
        }
        let mut heard = 0;
        server.until("a byte of each", |_, seen| {
            heard += seen.iter().filter(|item| matches!(item, Seen::Received(_, data) if data == b"x")).count();
            heard == conns.len()
        });
        server.engine.unlisten(listener);
        server.pass(Some(Duration::ZERO));
        server.pass(Some(Duration::ZERO));
        assert!(connect().is_err(), "nobody listens any more");
        server.finish();
    }
}
