//! DEBUG: commands for tests of the server itself, open only where `enable-debug-command` says so.
//!
//! What belongs to encodings and processes that this server does not have is accepted without effect where test suites
//! set it, and refused where the answer would be a lie.

mod digest;
mod populate;
mod reload;

use crate::args::{Args, parse_int};
use crate::command::{Command, flag::*};
use crate::commands::config::is_local;
use crate::commands::help::help as help_lines;
use crate::config::{Config, Id};
use crate::dispatch::{echoed, wrong_arguments};
use crate::exec::{Exec, Outcome, ReplyError, Stop, error};
use crate::glob;
use gimmal_store::types::ListRef;
use gimmal_store::{Encoding, ValueRef};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The family's table.
pub static COMMANDS: &[Command] = &[Command {
    name: "debug",
    run: debug,
    arity: -2,
    flags: ADMIN | NOSCRIPT | LOADING | STALE | PROTECTED | SYSCMD,
    group: "server",
    complexity: "Depends on subcommand",
    summary: "Commands for tests of the server itself.",
    ..Command::DEFAULT
}];

const NOT_ALLOWED: ReplyError = error(
    "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a local \
     connection, otherwise you need to set this option in the configuration file, and then restart the server.",
);
const NO_SUCH_KEY: ReplyError = error("ERR no such key");
const WRONG_TYPE_NAME: ReplyError = error(
    "ERR Wrong protocol type name. Please use one of the following: \
     string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
);

fn debug(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    if !exec.local.config.enable_debug_command().allows(is_local(exec.session)) {
        return Err(NOT_ALLOWED.into());
    }
    let is = |word: &str, argc: std::ops::RangeInclusive<usize>| args.is(1, word) && argc.contains(&args.len());
    match () {
        () if is("sleep", 3..=3) => sleep(args),
        () if is("object", 3..=4) => return object(exec, args),
        () if is("listpack", 3..=3) || is("ziplist", 3..=3) => return structure(exec, args, "listpack"),
        () if is("quicklist", 3..=4) => return structure(exec, args, "quicklist"),
        () if is("set-active-expire", 3..=3) => {
            exec.shared.debug.no_active_expire.store(leading_int(args.at(2)) == 0, Relaxed);
        }
        () if is("populate", 3..=5) => return populate::populate(exec, args),
        () if is("digest", 2..=2) => return digest::digest(exec),
        () if is("digest-value", 2..=usize::MAX) => return digest::digest_value(exec, args),
        () if is("protocol", 3..=3) => return protocol(exec, args),
        () if is("stringmatch-len", 4..=4) => return stringmatch_len(exec, args),
        () if is("log", 3..=3) => crate::warning!("DEBUG LOG: {}", String::from_utf8_lossy(args.at(2))),
        () if is("error", 3..=3) => return Err(String::from_utf8_lossy(args.at(2)).into_owned().into()),
        () if ["panic", "segfault", "assert"].iter().any(|word| is(word, 2..=2)) => {
            crate::warning!("DEBUG {}: the process aborts", echoed(args.at(1)));
            std::process::abort();
        }
        () if is("reload", 2..=usize::MAX) => return reload::reload(exec, args),
        () if is("loadaof", 2..=2) => return reload::load_aof(exec),
        () if is("jmap", 2..=usize::MAX) => return Err("ERR there is no Java heap here".into()),
        () if WITHOUT_EFFECT.iter().any(|(word, argc)| is(word, *argc..=*argc)) => {}
        () if is("help", 2..=2) => return help_lines(exec, "DEBUG", HELP),
        () => return Err(wrong_arguments(args).into()),
    }
    exec.reply.put().ok();
    Ok(())
}

/// Switches of mechanisms that are not there, and their number of arguments.
const WITHOUT_EFFECT: [(&str, usize); 12] = [
    ("change-repl-id", 2),
    ("quicklist-packed-threshold", 3),
    ("listpack-threshold", 3),
    ("set-disable-deny-scripts", 3),
    ("set-skip-checksum-validation", 3),
    ("aof-flush-sleep", 3),
    ("pause-cron", 3),
    ("pause-after-fork", 3),
    ("delay-rdb-client-free-seconds", 3),
    ("dict-resizing", 3),
    ("replybuffer", 4),
    ("stringmatch-test", 2),
];

/// Stops this worker, as a command that takes long would.
fn sleep(args: &Args<'_>) {
    let seconds: f64 = str::from_utf8(args.at(2)).ok().and_then(|text| text.parse().ok()).unwrap_or(0.0);
    if let Ok(pause) = Duration::try_from_secs_f64(seconds) {
        std::thread::sleep(pause);
    }
}

/// The integer that a text begins with, 0 if none.
fn leading_int(text: &[u8]) -> i64 {
    let end = text.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'-').unwrap_or(text.len());
    parse_int(&text[..end]).unwrap_or(0)
}

fn object(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let now = exec.local.access;
    let mut locked = exec.lock(args.at(2))?;
    let entry = exec.peek(locked.key()).ok_or(NO_SUCH_KEY)?;
    let clock = entry.clock();
    let idle_s = now.idle_s(clock);
    let mut line = format!(
        "Value at:0x{:x} refcount:1 encoding:{} serializedlength:{} lru:{clock} lru_seconds_idle:{idle_s}",
        entry.key().as_ptr() as usize,
        entry.encoding().name(),
        digest::serialized_length(&entry),
    );
    if let (Encoding::Quicklist, ValueRef::List(list)) = (entry.encoding(), entry.value()) {
        line += &quicklist(list, &exec.local.config);
    }
    exec.reply.put().simple(line);
    Ok(())
}

/// Redis prints the structure of a value that has this encoding. Here is none that could be printed; what is answered is the same.
fn structure(exec: &mut Exec<'_>, args: &Args<'_>, encoding: &str) -> Outcome {
    let mut locked = exec.lock(args.at(2))?;
    let entry = exec.peek(locked.key()).ok_or(NO_SUCH_KEY)?;
    if entry.encoding().name() != encoding {
        return Err(format!("ERR Not a {encoding} encoded object.").into());
    }
    let text = match encoding {
        "listpack" => "Listpack structure printed on stdout",
        _ => "Quicklist structure printed on stdout",
    };
    exec.reply.put().simple(text);
    Ok(())
}

/// What test suites read of a list: its buffers, and what the directives say.
fn quicklist(list: ListRef<'_>, config: &Config) -> String {
    const COMPRESS_DEPTH: Id = Id::of("list-compress-depth");
    format!(
        " ql_nodes:{} ql_avg_node:{:.2} ql_listpack_max:{} ql_compressed:{} ql_uncompressed_size:{}",
        list.nodes(),
        list.len() as f64 / list.nodes() as f64,
        config.list_max_listpack_size(),
        u8::from(config.print(COMPRESS_DEPTH) != "0"),
        list.listpack_bytes(),
    )
}

/// Whether a glob matches a text of so many `a`: what is slow in a matcher that backtracks.
fn stringmatch_len(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    const LONGEST: usize = 1 << 20;
    let len = usize::try_from(args.int(2)?).ok().filter(|len| *len <= LONGEST);
    let text = vec![b'a'; len.ok_or("ERR value is out of range")?];
    let matches = glob::matches(args.at(3), &text);
    exec.reply.put().integer(i64::from(matches));
    Ok(())
}

#[allow(clippy::approx_constant, reason = "what Redis answers, and clients' tests expect")]
const A_DOUBLE: f64 = 3.141;

/// A reply of each type, for tests of clients.
fn protocol(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let resp3 = exec.session.resp3;
    let mut reply = exec.reply.put();
    let is = |word| args.is(2, word);
    match () {
        () if is("string") => reply.bulk_str("Hello World"),
        () if is("integer") => reply.integer(12345),
        () if is("double") => reply.double(A_DOUBLE),
        () if is("bignum") => reply.big_number("1234567999999999999999999999999999999"),
        () if is("null") => reply.null(),
        () if is("array") || is("set") => {
            if is("set") {
                reply.set(3);
            } else {
                reply.array(3);
            }
            (0..3).for_each(|i| reply.integer(i));
        }
        () if is("map") => {
            reply.map(3);
            for i in 0..3 {
                reply.integer(i);
                reply.boolean(i == 1);
            }
        }
        () if is("attrib") => {
            if reply.attribute(1) {
                reply.bulk_str("key-popularity");
                reply.array(2);
                reply.bulk_str("key:123");
                reply.integer(90);
            }
            reply.bulk_str("Some real reply following the attribute");
        }
        () if is("push") && !resp3 => return Err("ERR RESP2 is not supported by this command".into()),
        () if is("push") => {
            reply.push(2);
            reply.bulk_str("server-cpu-usage");
            reply.integer(42);
            reply.bulk_str("Some real reply following the push reply");
        }
        () if is("true") => reply.boolean(true),
        () if is("false") => reply.boolean(false),
        () if is("verbatim") => reply.verbatim(b"txt", b"This is a verbatim\nstring"),
        () => return Err(Stop::Error(WRONG_TYPE_NAME)),
    }
    Ok(())
}

#[rustfmt::skip] // a heading and its explanation, line by line
const HELP: &[&str] = &[
    "DIGEST",
    "    A number that two equal data sets share.",
    "DIGEST-VALUE <key> [<key> ...]",
    "    The same for single values.",
    "ERROR <text>",
    "    Answer this error.",
    "LISTPACK <key>, QUICKLIST <key>",
    "    Whether a value is encoded so.",
    "LOADAOF",
    "    Empty the data set and load it from the append-only file.",
    "LOG <text>",
    "    Write into the server's log.",
    "OBJECT <key>",
    "    How a value is stored.",
    "PANIC, SEGFAULT, ASSERT",
    "    Abort the process.",
    "POPULATE <count> [<prefix>] [<size>]",
    "    Store so many strings under <prefix>:0 and on, where there are none.",
    "PROTOCOL (STRING|INTEGER|DOUBLE|BIGNUM|NULL|ARRAY|SET|MAP|ATTRIB|PUSH|VERBATIM|TRUE|FALSE)",
    "    A reply of this type.",
    "RELOAD [NOSAVE] [NOFLUSH] [MERGE]",
    "    Save the data set, empty it and load it again. NOSAVE leaves out the first, NOFLUSH the second; with MERGE keys that are",
    "    there are replaced.",
    "SET-ACTIVE-EXPIRE (0|1)",
    "    Stop or start the removal of expired keys in the background.",
    "SLEEP <seconds>",
    "    Stop the worker of this connection.",
    "STRINGMATCH-LEN <length> <glob>",
    "    Match a glob against so many letters a.",
];

#[cfg(test)]
mod tests {
    #[test]
    fn switches_take_the_number_a_text_begins_with() {
        for (text, n) in [("0", 0), ("1", 1), ("10x", 10), ("x", 0), ("", 0), ("-1", -1), ("--", 0)] {
            assert_eq!(super::leading_int(text.as_bytes()), n, "{text}");
        }
    }
}
