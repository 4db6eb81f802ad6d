//! What parsing and writing cost, in nanoseconds: `cargo run --release -p gimmal-resp --example resp_bench`.
//! Each line is the best of several rounds, so that what else runs on the machine counts little.

#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use gimmal_resp::{Limits, Next, Parser, ReplyScanner, Writer, encode_command};

fn main() {
    parsing();
    writing();
    scanning();
}

fn parsing() {
    let value = "v".repeat(64);
    let long = "v".repeat(1000);
    for (name, args) in [
        ("GET key:000000012345", vec!["GET", "key:000000012345"]),
        ("SET key:000000012345 <64>", vec!["SET", "key:000000012345", &value]),
        ("SET key:000000012345 <1000>", vec!["SET", "key:000000012345", &long]),
        (
            "ZADD key <20 pairs>",
            ["ZADD", "key"].into_iter().chain(["1234", "member:0001"].into_iter().cycle().take(40)).collect(),
        ),
    ] {
        let mut buf = Vec::new();
        let mut commands = 0usize;
        while buf.len() < 16 * 1024 - 2000 {
            encode_command(&mut buf, &args);
            commands += 1;
        }
        let (mut parser, mut spans, limits) = (Parser::default(), Vec::new(), Limits::default());
        let ns = best(commands, || {
            let mut pos = 0;
            spans.clear();
            let buf = black_box(&buf[..]);
            while parser.next(buf, &mut pos, &limits, &mut spans) == Ok(Next::Command) {}
            assert_eq!(spans.len(), commands * args.len());
        });
        println!("parse {name:30} {ns:7.1} ns per command, {:5.2} ns per argument", ns / args.len() as f64);
    }
}

fn writing() {
    let mut out = Vec::with_capacity(1 << 20);
    let mut measure = |name: &str, write: &dyn Fn(&mut Writer<'_>)| {
        let ns = best(1000, || {
            out.clear();
            let mut writer = Writer::new(&mut out, false);
            for _ in 0..1000 {
                write(black_box(&mut writer));
            }
        });
        println!("write {name:30} {ns:7.2} ns");
    };
    let value = black_box(&[b'v'; 64][..]);
    measure("ok", &|writer| writer.ok());
    measure("bulk of 64 bytes", &|writer| writer.bulk(value));
    measure("bulk of 5 bytes", &|writer| writer.bulk(&value[..5]));
    measure("integer 1", &|writer| writer.integer(black_box(1)));
    measure("integer 123456789", &|writer| writer.integer(black_box(123_456_789)));
    measure("null", &|writer| writer.null());
    measure("array", &|writer| writer.array(black_box(10)));
    measure("double 0.1", &|writer| writer.double(black_box(0.1)));
    measure("double 12345", &|writer| writer.double(black_box(12_345.0)));
}

fn scanning() {
    let mut out = Vec::new();
    for _ in 0..100 {
        Writer::new(&mut out, false).bulk(&[b'v'; 64]);
    }
    let ns = best(100, || {
        let (mut scanner, mut at) = (ReplyScanner::default(), 0);
        while let Ok(Some(len)) = scanner.scan(black_box(&out[at..])) {
            at += len;
        }
        assert_eq!(at, out.len());
    });
    println!("scan  {:30} {ns:7.2} ns", "bulk of 64 bytes");
}

/// Nanoseconds per item of the fastest round.
fn best(items: usize, mut round: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..20 {
        let started = Instant::now();
        for _ in 0..200 {
            round();
        }
        best = best.min(started.elapsed().as_nanos() as f64 / (200 * items) as f64);
    }
    best
}
