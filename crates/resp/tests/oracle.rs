//! The request parser against a real redis-server: the same bytes, the same commands, the same errors, the same end.
//!
//! Redis shows what it parsed by answering ECHO, and by quoting unknown commands; the test plays an ECHO server with this
//! crate's parser and compares the answers byte for byte. NUL bytes are left out: there Redis waits for more (see
//! `parser.rs`). On a machine without redis-server the test says so and does nothing.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Connection, Random};
use gimmal_resp::{Limits, Writer, encode_command};

const EDGES: &[&[u8]] = &[
    b"*-1\r\nECHO a\r\n",
    b"*\r\n",
    b"*0\r\nECHO a\r\n",
    b"*2147483648\r\n",
    b"*2147483647\r\n",
    b"*-9223372036854775808\r\nECHO a\r\n",
    b"*-9223372036854775809\r\n",
    b"\r\n\r\nECHO a\r\n",
    b"\nECHO a\n",
    b"*1\r\n$-1\r\n",
    b"*2\r\n$4\rXECHOXY$1\rXaXXECHO b\n",
    b"*1\r\n$04\r\nECHO\r\n",
    b"*01\r\n$4\r\nECHO\r\n",
    b"*+1\r\n",
    b"*1\n$4\nECHO\n",
    b"*1\r\n$+4\r\nECHO\r\n",
    b"*1\r\nX\r\n",
    b"*1\r\nX",
    b"*1\r\n\xff4\r\n",
    b"*1\r\n\r\n",
    b"*1\r\n\n4\r\n",
    b"*1\r\n$\r\n",
    b"*1\r\n$-0\r\n",
    b"*-0\r\n",
    b"* 1\r\n",
    b"*1 \r\n",
    b"*1\r\n$536870913\r\n",
    b"*1\r\n$536870912\r\n",
    b"*1\r\n$16385\r\n",
    b"*1\r\n$16384\r\n",
    b"*11\r\n",
    b"*10\r\n",
    b"*1\r\n$0\r\n\r\n",
    b"ECHO \"a\\x41\\n\\q\" \n",
    b"ECHO 'a\\'b\\n' \n",
    b"ECHO \"abc\n",
    b"ECHO \"a\"b\n",
    b"ECHO 'a'b\n",
    b"ECHO a\"b c\"\r\n",
    b"ECHO a'b c'd\r\n",
    b"ECHO a'b c'\r\n",
    b"ECHO \"\\x4\"\n",
    b"ECHO \"\\xZZ\\b\\a\\t\\r\"\n",
    b"ECHO \"\\\n",
    b"ECHO \"\\\"\n",
    b"ECHO ''\n",
    b" \t ECHO \x0b\x0c a \r\n",
    b"ECHO a\x0bb\r\n",
    b"ECHO \"a\"\x0b\r\n",
    b"ECHO a\r\r\n",
    b"ECHO a\rb\r\n",
    b"\"ECHO\" a\r\n",
    b"*2\r\n$4 \r\nECHO\r\n",
    b"ECHO",
    b"*2\r\n$4\r\nECHO\r\n$1\r\na\r",
    b"unknown a b\r\n",
];

#[test]
fn the_edges_of_the_protocol() {
    let Some(redis) = Redis::start(&[]) else {
        return;
    };
    for bytes in EDGES {
        redis.compare(bytes, &Limits::default());
        redis.compare(&[b"*2\r\n$4\r\nECHO\r\n$3\r\nabc\r\n", *bytes].concat(), &Limits::default());
    }
    for head in ["*", "*1\r\n$", "x"] {
        // Redis notices with its next read; far enough behind the limit, both do.
        redis.compare(&[head.as_bytes(), &[b'1'; 100_000]].concat(), &Limits::default());
    }
}

#[test]
fn before_authentication() {
    let Some(redis) = Redis::start(&["--requirepass", "secret"]) else {
        return;
    };
    for bytes in EDGES {
        redis.compare(bytes, &Limits::unauthenticated());
    }
}

#[test]
fn damaged_pipelines() {
    const DAMAGE: &[u8] = b"\r\n\r\n$*-019 \"'\\x\xff";
    let Some(redis) = Redis::start(&[]) else {
        return;
    };
    for seed in 0..10_000 {
        let mut random = Random(seed);
        let mut bytes = Vec::new();
        for _ in 0..1 + random.below(4) {
            let text: Vec<u8> = (0..random.below(30)).map(|_| b"\r\n$*012ab \"'\\x\t"[random.below(15)]).collect();
            if random.below(4) > 0 {
                encode_command(&mut bytes, &[b"ECHO", &text[..]]);
            } else {
                bytes.extend_from_slice(b"echo ");
                bytes.extend_from_slice(&text);
                bytes.extend_from_slice(b"\r\n");
            }
        }
        for _ in 0..random.below(4) {
            let at = random.below(bytes.len());
            let byte = DAMAGE[random.below(DAMAGE.len())];
            match random.below(3) {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
            if bytes.is_empty() {
                break;
            }
        }
        redis.compare(&bytes, &Limits::default());
    }
}

#[test]
fn sizes_around_every_boundary() {
    let Some(redis) = Redis::start(&[]) else {
        return;
    };
    for size in [0, 1, 9, 10, 99, 100, 16_383, 16_384, 32_767, 32_768, 32_769, 65_535, 65_536, 65_537, 1 << 20] {
        let mut bytes = Vec::new();
        for _ in 0..3 {
            encode_command(&mut bytes, &[&b"ECHO"[..], &vec![b'v'; size]]);
        }
        let ours = answers(&bytes, &Limits::default());
        assert!(redis.first_answers(&bytes, ours.len()) == ours, "three times {size} bytes");
    }
}

/// A redis-server on a Unix socket of its own.
struct Redis {
    child: Child,
    directory: PathBuf,
}

impl Redis {
    fn start(options: &[&str]) -> Option<Redis> {
        let name = format!("gimmal-resp-{}-{:?}", std::process::id(), std::thread::current().id());
        let directory = std::env::temp_dir().join(name.replace(['(', ')'], ""));
        std::fs::create_dir_all(&directory).expect("a directory");
        let child = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--unixsocket", "socket", "--dir"])
            .arg(&directory)
            .args(options)
            .current_dir(&directory)
            .stdout(Stdio::null())
            .spawn();
        let child = match child {
            Ok(child) => child,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                eprintln!("NOT RUN: no redis-server on this machine");
                return None;
            }
            Err(error) => panic!("redis-server does not start: {error}"),
        };
        let redis = Redis { child, directory };
        let begun = Instant::now();
        while let Err(error) = UnixStream::connect(redis.socket()) {
            assert!(begun.elapsed() < Duration::from_secs(60), "redis-server does not answer: {error}");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(redis)
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }

    /// Sends the bytes and the end of the stream to Redis, and the bytes to the parser; both answer the same.
    fn compare(&self, bytes: &[u8], limits: &Limits) {
        let shown = bytes[..bytes.len().min(200)].escape_ascii();
        let theirs = self.ask(bytes);
        let ours = answers(bytes, limits);
        assert_eq!(theirs.escape_ascii().to_string(), ours.escape_ascii().to_string(), "asked: {shown}");
    }

    /// So many bytes of the answer, with the stream left open: at its end Redis drops what it could not send.
    fn first_answers(&self, bytes: &[u8], count: usize) -> Vec<u8> {
        let mut stream = UnixStream::connect(self.socket()).expect("connects");
        let mut reading = stream.try_clone().expect("a second handle");
        let reader = std::thread::spawn(move || {
            let mut answer = vec![0; count];
            reading.read_exact(&mut answer).expect("the whole answer");
            answer
        });
        stream.write_all(bytes).expect("redis-server takes all");
        reader.join().expect("the answer")
    }

    fn ask(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = UnixStream::connect(self.socket()).expect("connects");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time limit");
        let mut reading = stream.try_clone().expect("a second handle");
        let reader = std::thread::spawn(move || {
            let mut answer = Vec::new();
            match reading.read_to_end(&mut answer) {
                Ok(_) => answer,
                // Redis closed with some of our bytes unread.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => answer,
                Err(error) => panic!("redis-server neither answers nor closes: {error}"),
            }
        });
        // Redis may close before it has read everything.
        match stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write)) {
            Err(error)
                if !matches!(
                    error.kind(),
                    ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::NotConnected
                ) =>
            {
                panic!("cannot send: {error}")
            }
            _ => reader.join().expect("the answer"),
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.child.kill().expect("redis-server is stopped");
        self.child.wait().expect("redis-server has stopped");
        std::fs::remove_dir_all(&self.directory).expect("the directory is removed");
    }
}

/// What a server that knows only ECHO answers, with Redis 7.0's texts.
fn answers(bytes: &[u8], limits: &Limits) -> Vec<u8> {
    let mut connection = Connection::default();
    let error = connection.receive(bytes, limits).err();
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, false);
    for command in &connection.commands {
        let (name, args) = command.split_first().expect("a command has a name");
        if !name.eq_ignore_ascii_case(b"ECHO") {
            writer.error(unknown(name, args));
        } else if args.len() != 1 {
            writer.error("ERR wrong number of arguments for 'echo' command");
        } else if limits.authenticated {
            writer.bulk(&args[0]);
        } else {
            writer.error("NOAUTH Authentication required.");
        }
    }
    if let Some(error) = error {
        writer.protocol_error(&error);
    }
    out
}

fn unknown(name: &[u8], args: &[Vec<u8>]) -> Vec<u8> {
    let mut quoted = Vec::new();
    for arg in args {
        if quoted.len() >= 128 {
            break;
        }
        let room = 128 - quoted.len();
        quoted.push(b'\'');
        quoted.extend_from_slice(&arg[..arg.len().min(room)]);
        quoted.extend_from_slice(b"' ");
    }
    [b"ERR unknown command '", &name[..name.len().min(128)], b"', with args beginning with: ", &quoted].concat()
}
