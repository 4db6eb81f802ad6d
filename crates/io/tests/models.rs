//! The papers' I/O models do what distinguishes them, seen in their counters under known traffic.

mod world;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use gimmal_io::{
    Completion, ConnId, Counters, Engine, FindRequests, Output, Phases, PhasesOptions, Queue, QueueOptions,
    ReplyQueueKind,
};
use world::{Kind, PATIENCE, Peer, Random, Seen, Server, World, find_lines};

const DISTRIBUTED: ReplyQueueKind = ReplyQueueKind::Distributed { partial: 4, balancers: 1 };

fn phases(threads: usize, reads: bool) -> Phases {
    Phases::new(PhasesOptions { threads, reads: reads.then_some(FindRequests(find_lines)) }).unwrap()
}

fn queue(queue: ReplyQueueKind, writers: usize) -> Queue {
    Queue::new(QueueOptions { queue, writers }).unwrap()
}

/// So many connections of one engine.
fn connect(server: &mut Server, count: usize) -> Vec<(ConnId, Peer)> {
    let world = World::new(Kind::Epoll);
    let connect = |_| {
        let (near, far) = world.connection();
        (server.attach(near), far)
    };
    (0..count).map(connect).collect()
}

/// Sends a short output to each, and waits until all are sent.
fn send_to_all(server: &mut Server, ends: &mut [(ConnId, Peer)]) {
    for (conn, _) in ends.iter() {
        assert_eq!(server.send(*conn, Output::with_head(b"reply\n".to_vec())), None, "not before the phase");
    }
    let mut left = ends.len();
    server.until("sending", |_, seen| {
        left -= seen.iter().filter(|item| matches!(item, Seen::Sent(_, Ok(())))).count();
        left == 0
    });
    for (_, far) in ends {
        let mut reply = [0; 6];
        far.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"reply\n");
    }
}

/// S11: one barrier for all writes of a pass, if there are two for each thread; else the worker does them.
#[test]
fn a_write_phase_ends_with_one_barrier() {
    let mut server = Server::with(Box::new(phases(4, false)));
    let mut ends = connect(&mut server, 9);
    for round in 1..=20 {
        send_to_all(&mut server, &mut ends);
        send_to_all(&mut server, &mut ends[..7]);
        let Counters { write_phases, phases_alone, phase_jobs, read_phases, sends, .. } = server.engine.counters();
        assert_eq!((write_phases, phases_alone, phase_jobs), (round, round, 9 * round));
        assert_eq!((read_phases, sends), (0, 16 * round));
    }
    let Counters { barrier_waits, barrier_wait_ns, .. } = server.engine.counters();
    assert!(barrier_waits <= 20 && (barrier_waits > 0) == (barrier_wait_ns > 0), "{barrier_waits} {barrier_wait_ns}");
    server.finish();
}

/// S11 with reads: after a write phase that was worth it, what has come is received in a phase, and its requests found.
#[test]
fn a_read_phase_receives_for_all_and_finds_their_requests() {
    let mut engine = phases(2, true);
    let world = World::new(Kind::Epoll);
    let mut ends: Vec<Peer> = Vec::new();
    let conn = |index| ConnId { index, generation: 1 };
    for index in 0..6 {
        let (near, far) = world.connection();
        engine.attach(conn(index), near).unwrap();
        ends.push(far);
    }
    for round in 1..=20 {
        for index in 0..6 {
            assert!(engine.send(conn(index), Output::with_head(b"reply\n".to_vec())).is_none());
        }
        engine.wait(Some(Duration::ZERO)).unwrap();
        let mut sent = 0;
        while let Some(completion) = engine.next() {
            assert!(matches!(completion, Completion::Sent { result: Ok(()), .. }), "{completion:?}");
            sent += 1;
        }
        assert_eq!(sent, 6);
        for (index, far) in ends.iter_mut().enumerate() {
            far.write_all(format!("one{index}\ntwo\nthr").as_bytes()).unwrap();
        }
        let mut bytes: HashMap<ConnId, Vec<u8>> = HashMap::new();
        let (mut whole, mut pieces) = (0, 0);
        let began = Instant::now();
        while bytes.values().map(Vec::len).sum::<usize>() < 6 * 12 {
            assert!(began.elapsed() < PATIENCE, "round {round}: {bytes:?}");
            engine.wait(Some(Duration::from_millis(10))).unwrap();
            while let Some(completion) = engine.next() {
                let Completion::Parsed { conn, data, requests } = completion else { panic!("{completion:?}") };
                bytes.entry(conn).or_default().extend_from_slice(data);
                pieces += 1;
                if data.len() == 12 {
                    let first = format!("one{}", conn.index);
                    let found: Vec<&[u8]> = requests
                        .arguments
                        .iter()
                        .map(|(at, length)| &data[*at as usize..(at + length) as usize])
                        .collect();
                    assert_eq!(found, [first.as_bytes(), b"two"]);
                    assert_eq!(requests.ends, [(5, 1), (9, 2)]);
                    whole += 1;
                }
            }
        }
        for (conn, bytes) in &bytes {
            assert_eq!(*bytes, format!("one{}\ntwo\nthr", conn.index).into_bytes());
        }
        assert!(whole > 0, "each came in two pieces");
        let Counters { write_phases, phases_alone, receives, read_phases, phase_jobs, .. } = engine.counters();
        assert_eq!((write_phases, phases_alone), (round, 0));
        assert!(receives >= pieces && read_phases >= round && phase_jobs >= 6 * round + receives);
        ends.iter_mut().for_each(|far| far.read_exact(&mut [0; 6]).unwrap());
    }
}

/// S11: Redis's threads write 64 KiB for a client, the rest is the main thread's, as there is room.
#[test]
fn what_is_long_is_written_to_its_end_by_the_worker() {
    let mut server = Server::with(Box::new(phases(2, false)));
    let mut ends = connect(&mut server, 4);
    let bytes = Random(1).bytes(3 << 20);
    for (conn, _) in &ends {
        assert_eq!(server.send(*conn, Output::with_head(bytes.clone())), None);
    }
    let peers: Vec<_> = ends
        .drain(..)
        .map(|(_, mut far)| {
            let expected = bytes.clone();
            thread::spawn(move || {
                let mut received = vec![0; expected.len()];
                far.read_exact(&mut received).unwrap();
                assert!(received == expected, "the bytes differ");
                far
            })
        })
        .collect();
    let mut left = 4;
    server.until("sending", |_, seen| {
        left -= seen.iter().filter(|item| matches!(item, Seen::Sent(_, Ok(())))).count();
        left == 0
    });
    let Counters { write_phases, phase_jobs, sends, .. } = server.engine.counters();
    assert_eq!((write_phases, phase_jobs), (1, 4));
    assert!(sends >= 4 * (3 << 20) / (64 << 10), "{sends} sends of at most 64 KiB");
    peers.into_iter().for_each(|peer| drop(peer.join().unwrap()));
    server.finish();
}

/// S12 and S13: every output goes through the queue once, and comes back.
#[test]
fn every_output_goes_through_the_queue() {
    for kind in [ReplyQueueKind::Lock, ReplyQueueKind::Ms, DISTRIBUTED] {
        let mut server = Server::with(Box::new(queue(kind, 2)));
        let mut ends = connect(&mut server, 10);
        for round in 1..=50 {
            send_to_all(&mut server, &mut ends);
            let counters = server.engine.counters();
            let Counters { queued, queue_in, queue_out, sends, .. } = counters;
            assert_eq!([queued, queue_in, queue_out, sends], [10 * round; 4], "{kind:?}");
            assert!(counters.queue_wait_ns > 0);
            assert_eq!(counters.partial_visits > 0, kind == DISTRIBUTED);
        }
        server.finish();
    }
}

/// S14: a taker looks at the partial queues one after another, and a queue without values has been looked at twice as a
/// whole when it is said to be empty.
#[test]
fn takers_look_at_partial_queues() {
    let mut server = Server::with(Box::new(queue(DISTRIBUTED, 1)));
    let mut ends = connect(&mut server, 1);
    let mut before = 0;
    for _ in 0..30 {
        // The writer finds the queue empty, says that it will sleep, finds it empty once more, and sleeps.
        thread::sleep(Duration::from_millis(20));
        send_to_all(&mut server, &mut ends);
        let visits = server.engine.counters().partial_visits;
        // Twice two looks at 4 parts each; then up to 4 until the value is found.
        assert!((17..=20).contains(&(visits - before)), "{} looks", visits - before);
        before = visits;
    }
    server.finish();
}

/// A client that does not read keeps no writer: with only one, the others are served.
#[test]
fn a_slow_client_does_not_keep_a_writer() {
    let mut server = Server::with(Box::new(queue(ReplyQueueKind::Ms, 1)));
    let mut ends = connect(&mut server, 6);
    let (slow, far) = ends.pop().unwrap();
    let bytes = Random(2).bytes(32 << 20);
    assert_eq!(server.send(slow, Output::with_head(bytes.clone())), None);
    for _ in 0..100 {
        send_to_all(&mut server, &mut ends);
    }
    assert!(server.is_sending(slow) && server.engine.unsent(slow) > 0);
    let reader = thread::spawn(move || {
        let (mut far, mut received) = (far, vec![0; bytes.len()]);
        far.read_exact(&mut received).unwrap();
        assert!(received == bytes, "the bytes differ");
        far
    });
    server.until("the slow one", |_, seen| seen.contains(&Seen::Sent(slow, Ok(()))));
    drop(reader.join().unwrap());
    server.finish();
}
