//! The request parser as a connection uses it: edge cases, every cut of a pipeline, random pipelines in random pieces.

mod common;

use common::{Command, Connection, Random};
use gimmal_resp::{LARGE, Limits, MAX_LINE, Next, Parser, ProtocolError, Span, encode_command};

fn command(args: &[&str]) -> Command {
    args.iter().map(|arg| arg.as_bytes().to_vec()).collect()
}

fn parse_in_pieces(bytes: &[u8], pieces: &[usize], limits: &Limits) -> (Vec<Command>, Option<ProtocolError>) {
    let mut connection = Connection::default();
    let mut rest = bytes;
    for size in pieces.iter().copied().chain([usize::MAX]) {
        let (piece, after) = rest.split_at(size.min(rest.len()));
        rest = after;
        if let Err(error) = connection.receive(piece, limits) {
            return (connection.commands, Some(error));
        }
    }
    (connection.commands, None)
}

fn parse(bytes: &[u8]) -> (Vec<Command>, Option<ProtocolError>) {
    parse_in_pieces(bytes, &[], &Limits::default())
}

#[test]
fn commands() {
    for (bytes, expected) in [
        (&b"*1\r\n$4\r\nPING\r\n"[..], vec![command(&["PING"])]),
        (b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n", vec![command(&["SET", "k", ""])]),
        (b"*0\r\n*-1\r\n*-77\r\n\r\n\nPING\r\n", vec![command(&["PING"])]),
        (
            b"PING\n*1\r\n$4\r\nPING\r\nECHO \"a b\"\r\n",
            vec![command(&["PING"]), command(&["PING"]), command(&["ECHO", "a b"])],
        ),
        // Redis looks neither at the byte after a CR nor at the two after a payload.
        (b"*1\rX$4\rXPINGXY*1\r\n$4\r\nPING\r\n", vec![command(&["PING"]), command(&["PING"])]),
        (b"*2\r\n$4\r\nECHO\r\n$8\r\n\r\n*1\r\n$4\r\n", vec![command(&["ECHO", "\r\n*1\r\n$4"])]),
        (b"PI\0NG\r\n", vec![command(&["PI\0NG"])]),
    ] {
        assert_eq!(parse(bytes), (expected, None), "{}", bytes.escape_ascii());
    }
}

#[test]
fn errors() {
    use ProtocolError::*;
    for (bytes, error) in [
        (&b"*\r\n"[..], InvalidMultibulkLength),
        (b"*2147483648\r\n", InvalidMultibulkLength),
        (b"*-9223372036854775809\r\n", InvalidMultibulkLength),
        (b"*01\r\n", InvalidMultibulkLength),
        (b"*-0\r\n", InvalidMultibulkLength),
        (b"* 1\r\n", InvalidMultibulkLength),
        (b"*1\r\n$-1\r\n", InvalidBulkLength),
        (b"*1\r\n$-0\r\n", InvalidBulkLength),
        (b"*1\r\n$04\r\nPING\r\n", InvalidBulkLength),
        (b"*1\r\n$+4\r\nPING\r\n", InvalidBulkLength),
        (b"*1\r\n$4 \r\nPING\r\n", InvalidBulkLength),
        (b"*1\r\n$\r\n", InvalidBulkLength),
        (b"*1\r\n$536870913\r\n", InvalidBulkLength),
        (b"*1\r\n$18446744073709551616\r\n", InvalidBulkLength),
        (b"*1\r\nX\r\n", ExpectedDollar(b'X')),
        (b"*1\r\n\r\n", ExpectedDollar(b'\r')),
        (b"*1\r\n\n4\r\n", ExpectedDollar(b'\n')),
        (b"ECHO \"abc\r\n", UnbalancedQuotes),
    ] {
        let after_a_good_one = [b"*1\r\n$4\r\nPING\r\n", bytes].concat();
        assert_eq!(parse(&after_a_good_one), (vec![command(&["PING"])], Some(error)), "{}", bytes.escape_ascii());
    }
}

#[test]
fn waits_for_more() {
    for bytes in [
        "*",
        "*1",
        "*1\r",
        "*1\n$4\nPING\n",
        "*1\r\n",
        "*1\r\n$",
        "*1\r\n$4\r\nPING",
        "*1\r\n$4\r\nPING\r",
        "*2147483647\r\n",
        "PING",
    ] {
        assert_eq!(parse(bytes.as_bytes()), (vec![], None), "{bytes:?}");
    }
}

#[test]
fn lines_are_bounded() {
    for (start, error) in [
        ("", ProtocolError::TooBigInline),
        ("*", ProtocolError::TooBigMultibulkCount),
        ("*1\r\n$", ProtocolError::TooBigBulkCount),
    ] {
        let line_start = start.rfind('\n').map_or(0, |at| at + 1);
        let fits = [start.as_bytes(), &b"1".repeat(line_start + MAX_LINE - start.len())].concat();
        assert_eq!(parse(&fits), (vec![], None));
        let too_long = [&fits[..], b"1"].concat();
        assert_eq!(parse(&too_long), (vec![], Some(error)));
        assert_eq!(parse_in_pieces(&too_long, &[1; 70_000], &Limits::default()), (vec![], Some(error)));
    }
}

#[test]
fn before_authentication() {
    let limits = Limits::unauthenticated();
    let parse = |bytes: &[u8]| parse_in_pieces(bytes, &[], &limits);
    assert_eq!(parse(b"*11\r\n").1, Some(ProtocolError::UnauthenticatedMultibulkLength));
    assert_eq!(parse(b"*10\r\n").1, None);
    assert_eq!(parse(b"*2147483648\r\n").1, Some(ProtocolError::InvalidMultibulkLength));
    assert_eq!(parse(b"*1\r\n$16385\r\n").1, Some(ProtocolError::UnauthenticatedBulkLength));
    assert_eq!(parse(b"*1\r\n$16384\r\n").1, None);
    assert_eq!(parse(b"*1\r\n$536870913\r\n").1, Some(ProtocolError::InvalidBulkLength));
    assert_eq!(parse(&[b'a'; 16_385]).1, Some(ProtocolError::TooBigInline));
    assert_eq!(parse(b"a b c d e f g h i j k\r\n").1, Some(ProtocolError::UnauthenticatedMultibulkLength));
}

#[test]
fn errors_leave_the_spans_of_earlier_commands() {
    let buf = b"*1\r\n$4\r\nPING\r\n*2\r\n$1\r\na\r\nX\r\n";
    let (mut parser, mut pos, mut args) = (Parser::default(), 0, vec![]);
    assert_eq!(parser.next(buf, &mut pos, &Limits::default(), &mut args), Ok(Next::Command));
    assert_eq!(parser.next(buf, &mut pos, &Limits::default(), &mut args), Err(ProtocolError::ExpectedDollar(b'X')));
    assert_eq!(args, [Span { start: 8, len: 4 }]);
}

/// One vector collects a pipeline, and a command that was cut off continues at another place of another buffer.
#[test]
fn spans_are_relative_to_the_buffer_that_completes_the_command() {
    let (mut parser, mut args) = (Parser::default(), vec![]);
    let limits = Limits::default();
    let mut pos = 0;
    let first = b"*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$1\r";
    assert_eq!(parser.next(first, &mut pos, &limits, &mut args), Ok(Next::Command));
    assert_eq!(parser.next(first, &mut pos, &limits, &mut args), Ok(Next::Incomplete));
    assert!(!parser.is_idle());
    let second = [b"......", &first[pos..], b"\nk\r\nECHO  x\r\nECHO \"x y\"\r\n"].concat();
    let mut pos = 6;
    assert_eq!(parser.next(&second, &mut pos, &limits, &mut args), Ok(Next::Command));
    assert!(parser.is_idle());
    assert_eq!(args[1..].iter().map(|span| span.bytes(&second)).collect::<Vec<_>>(), [&b"GET"[..], b"k"]);
    assert_eq!(parser.next(&second, &mut pos, &limits, &mut args), Ok(Next::Command));
    assert_eq!(args[3..].iter().map(|span| span.bytes(&second)).collect::<Vec<_>>(), [&b"ECHO"[..], b"x"]);
    assert_eq!(parser.next(&second, &mut pos, &limits, &mut args), Ok(Next::Inline(command(&["ECHO", "x y"]))));
    assert_eq!(pos, second.len());
    assert_eq!(args.len(), 5);
}

#[test]
fn an_idle_parser_is_small() {
    assert!(size_of::<Parser>() <= 16);
}

/// A pipeline means the same however the network cuts it: once at every byte, and in pieces of every small size.
#[test]
fn every_cut_gives_the_same_commands() {
    let big = "x".repeat(LARGE + 3);
    let mut small = b"*0\r\n\r\n".to_vec();
    encode_command(&mut small, &["SET", "key", "a value\r\nwith lines"]);
    small.extend_from_slice(b"ECHO \"in \\x41 line\"\r\n*-1\r\n");
    encode_command(&mut small, &["MSET", "", "", "k", "$5\r\n*2\r\n"]);
    small.extend_from_slice(b"PING\n");
    for text in ["*1\r\nX\r\n", "*x\r\n", "*1\r\n$-1\r\n", "'\r\n", ""] {
        let bytes = [&small[..], text.as_bytes()].concat();
        let whole = parse(&bytes);
        assert_eq!(whole.0.len(), 4);
        for cut in 0..=bytes.len() {
            assert_eq!(parse_in_pieces(&bytes, &[cut], &Limits::default()), whole, "cut at {cut}");
        }
        for size in 1..bytes.len() {
            assert_eq!(
                parse_in_pieces(&bytes, &vec![size; bytes.len() / size], &Limits::default()),
                whole,
                "pieces of {size}"
            );
        }
    }
    let mut large = small.clone();
    encode_command(&mut large, &["MSET", "a", &big, "b", "small", "c", &big, &big]);
    large.extend_from_slice(&small);
    let whole = parse(&large);
    assert_eq!((whole.0.len(), whole.1), (9, None));
    for cut in
        (0..large.len()).filter(|cut| cut % 97 == 0 || large[cut.saturating_sub(12)..*cut].iter().any(|b| *b != b'x'))
    {
        assert_eq!(parse_in_pieces(&large, &[cut], &Limits::default()), whole, "cut at {cut}");
    }
    for size in [1, 2, 3, 7, 100, 4096, 16_384, 32_768, 40_000, 65_536] {
        assert_eq!(
            parse_in_pieces(&large, &vec![size; large.len() / size], &Limits::default()),
            whole,
            "pieces of {size}"
        );
    }
}

#[test]
fn large_arguments_are_taken_not_kept() {
    let value = vec![b'v'; 10 * 1024 * 1024];
    let mut bytes = Vec::new();
    encode_command(&mut bytes, &[b"MSET", &b"k1"[..], &value, b"k2", &value]);
    encode_command(&mut bytes, &["PING"]);
    let mut connection = Connection::default();
    for piece in bytes.chunks(16 * 1024) {
        connection.receive(piece, &Limits::default()).expect("legal");
        assert!(connection.kept() < 64 + 16 * 1024, "{} bytes kept", connection.kept());
    }
    assert_eq!(connection.larges, 2);
    assert_eq!(connection.commands.len(), 2);
    assert!(connection.commands[0] == [b"MSET".to_vec(), b"k1".to_vec(), value.clone(), b"k2".to_vec(), value]);
    assert!(connection.is_idle());
}

/// A large argument whose payload is complete but for its line end needs no buffer of its own: it is all there.
#[test]
fn a_payload_that_is_there_is_not_detached() {
    let mut bytes = Vec::new();
    encode_command(&mut bytes, &[&vec![b'v'; LARGE]]);
    for missing in 1..=2 {
        let (mut parser, mut pos, mut args) = (Parser::default(), 0, vec![]);
        let cut = &bytes[..bytes.len() - missing];
        assert_eq!(parser.next(cut, &mut pos, &Limits::default(), &mut args), Ok(Next::Incomplete));
        assert_eq!(parser.next(&bytes, &mut pos, &Limits::default(), &mut args), Ok(Next::Command));
        assert!(!args[0].is_detached());
    }
}

/// Once, reparsing a cut command from its start made wide commands quadratic; a million arguments in 16 KiB pieces took minutes.
#[test]
fn a_million_arguments_in_small_pieces_take_linear_time() {
    let mut bytes = b"*1000001\r\n$4\r\nMSET\r\n".to_vec();
    for _ in 0..1_000_000 {
        bytes.extend_from_slice(b"$3\r\nabc\r\n");
    }
    let limits = Limits::default();
    let mut timings = [0, 1].map(|run| {
        let started = std::time::Instant::now();
        let (mut parser, mut args, mut end) = (Parser::default(), vec![], 0);
        loop {
            end = (end + if run == 0 { 16 * 1024 } else { 256 * 1024 }).min(bytes.len());
            let mut pos = 0;
            if parser.next(&bytes[..end], &mut pos, &limits, &mut args) == Ok(Next::Command) {
                assert_eq!((args.len(), pos), (1_000_001, bytes.len()));
                return started.elapsed();
            }
            assert!(end < bytes.len());
        }
    });
    timings.sort();
    assert!(
        timings[1] < timings[0] * 8 + std::time::Duration::from_millis(50),
        "not linear in the pieces: {timings:?}"
    );
}

#[test]
fn random_pipelines_in_random_pieces() {
    for seed in 0..400 {
        let mut random = Random(seed);
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        for _ in 0..1 + random.below(12) {
            let args: Command = (0..1 + random.below(6))
                .map(|_| {
                    let len = match random.below(20) {
                        0 => LARGE - 1 + random.below(3),
                        1 => random.below(100_000),
                        2..6 => random.below(2000),
                        _ => random.below(20),
                    };
                    (0..len).map(|_| b"\r\n$*0123456789ab"[random.below(16)]).collect()
                })
                .collect();
            encode_command(&mut bytes, &args);
            expected.push(args);
        }
        let scale = [8, 100, 5_000, 70_000][random.below(4)];
        let pieces: Vec<usize> = (0..2 * bytes.len() / scale + 2).map(|_| random.below(scale)).collect();
        let (commands, error) = parse_in_pieces(&bytes, &pieces, &Limits::default());
        assert_eq!(error, None);
        assert!(commands == expected, "seed {seed}");
    }
}

/// What a command that repeats the one before is taken for, compared with what it is.
#[test]
fn repeated_commands_are_known_and_nothing_else_is() {
    let names = ["GET", "get", "GE", "GETS", "SET", "P", "", "EIGHT__8", "NINE____9"];
    let mut repeated = 0;
    for seed in 0..2000 {
        let mut random = Random(seed);
        let (mut bytes, mut expected, mut like) = (Vec::new(), Vec::new(), 0);
        let (mut name, mut count) = (names[0], 1);
        for _ in 0..20 {
            if random.below(3) == 0 {
                (name, count) = (names[random.below(names.len())], random.below(12));
            }
            let mut args = vec![name.as_bytes().to_vec()];
            args.extend((0..count).map(|_| vec![b'x'; random.below(12)]));
            encode_command(&mut bytes, &args);
            expected.push(args);
        }
        for pair in expected.windows(2) {
            let same = pair[0][0] == pair[1][0] && pair[0].len() == pair[1].len();
            like += usize::from(same && (1..=8).contains(&pair[1][0].len()) && pair[1].len() < 10);
        }
        let mut connection = Connection::default();
        connection.receive(&bytes, &Limits::default()).expect("whole commands");
        assert_eq!(connection.commands, expected, "seed {seed}");
        // A last command of less than 16 bytes is not looked at as one word.
        assert!((like.saturating_sub(1)..=like).contains(&connection.repeated), "seed {seed}: {}", connection.repeated);
        repeated += connection.repeated;
    }
    assert!(repeated > 10_000, "{repeated}");
}

const DAMAGE: &[u8] = b"\r\n$*-019 \"'\\x\0\xff";

/// Damaged bytes must neither panic nor mean something else when they are cut elsewhere.
#[test]
fn damaged_pipelines_mean_the_same_in_any_pieces() {
    let (mut failed, mut fine) = (0, 0);
    for seed in 0..20_000 {
        let mut random = Random(seed);
        let mut bytes = Vec::new();
        for _ in 0..1 + random.below(3) {
            encode_command(&mut bytes, &["SET", "key", "value", "EX", "10"]);
        }
        for _ in 0..1 + random.below(4) {
            let at = random.below(bytes.len());
            let byte = DAMAGE[random.below(DAMAGE.len())];
            match random.below(3) {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
        }
        let whole = parse(&bytes);
        let pieces: Vec<usize> = (0..bytes.len()).map(|_| random.below(9)).collect();
        assert_eq!(
            parse_in_pieces(&bytes, &pieces, &Limits::default()),
            whole,
            "seed {seed}: {}",
            bytes.escape_ascii()
        );
        if whole.1.is_some() { failed += 1 } else { fine += 1 }
    }
    assert!(failed > 1000 && fine > 1000, "{failed} {fine}");
}
