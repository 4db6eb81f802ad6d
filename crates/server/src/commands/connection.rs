//! The connection itself: who the client is, its protocol and database, PING, and the ways to end or reset it.

use crate::args::Args;
use crate::arguments::{block, integer, string};
use crate::command::{Command, acl, flag::*};
use crate::commands::keyspace::database;
use crate::dispatch::echoed;
use crate::exec::{Exec, Outcome, ReplyError, error};
use crate::title::{REDIS_VERSION, SERVER};

/// The family's table.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "auth",
        run: auth,
        arity: -2,
        flags: NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY,
        acl: acl::CONNECTION,
        group: "connection",
        complexity: "O(N) where N is the number of passwords defined for the user",
        summary: "Tells the server who the client is.",
        arguments: &[string("username").optional().since("6.0.0"), string("password")],
        history: &[("6.0.0", "A user name may come before the password.")],
        ..Command::DEFAULT
    },
    Command {
        name: "hello",
        run: hello,
        arity: -1,
        flags: NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY,
        acl: acl::CONNECTION,
        since: "6.0.0",
        group: "connection",
        complexity: "O(1)",
        summary: "Chooses the protocol version, and says who server and client are.",
        arguments: &[block(
            "arguments",
            &[
                integer("protover"),
                block("auth", &[string("username"), string("password")]).after("AUTH").optional(),
                string("clientname").after("SETNAME").optional(),
            ],
        )
        .optional()],
        history: &[("6.2.0", "The version may be left out: the reply then describes the connection as it is.")],
        ..Command::DEFAULT
    },
    Command {
        name: "ping",
        run: ping,
        arity: -1,
        flags: FAST,
        acl: acl::CONNECTION,
        group: "connection",
        complexity: "O(1)",
        summary: "Answers PONG, or the message given.",
        arguments: &[string("message").optional()],
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        ..Command::DEFAULT
    },
    Command {
        name: "echo",
        run: echo,
        arity: 2,
        flags: LOADING | STALE | FAST,
        acl: acl::CONNECTION,
        group: "connection",
        complexity: "O(1)",
        summary: "Answers the message given.",
        arguments: &[string("message")],
        ..Command::DEFAULT
    },
    Command {
        name: "quit",
        run: quit,
        arity: -1,
        flags: ALLOW_BUSY | NOSCRIPT | LOADING | STALE | FAST | NO_AUTH,
        acl: acl::CONNECTION,
        group: "connection",
        complexity: "O(1)",
        summary: "Answers OK and closes the connection.",
        deprecated: Some(("7.2.0", "closing the connection")),
        ..Command::DEFAULT
    },
    Command {
        name: "reset",
        run: reset,
        arity: 1,
        flags: NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY,
        acl: acl::CONNECTION,
        since: "6.2.0",
        group: "connection",
        complexity: "O(1)",
        summary: "Puts the connection back into the state it began in.",
        ..Command::DEFAULT
    },
    Command {
        name: "select",
        run: select,
        arity: 2,
        flags: LOADING | STALE | FAST,
        acl: acl::CONNECTION,
        group: "connection",
        complexity: "O(1)",
        summary: "Chooses the database of the connection.",
        arguments: &[integer("index")],
        ..Command::DEFAULT
    },
];

const WRONG_PASSWORD: ReplyError = error("WRONGPASS invalid username-password pair or user is disabled.");
const NO_PASSWORD_SET: ReplyError = error(
    "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
);
const HELLO_NEEDS_AUTH: ReplyError = error(
    "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> option can be \
     used to authenticate the client and select the RESP protocol version at the same time",
);
/// A name that CLIENT SETNAME and HELLO refuse.
pub const BAD_NAME: ReplyError = error("ERR Client names cannot contain spaces, newlines or special characters.");

fn auth(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    match args.len() {
        2 if exec.local.config.requirepass().is_empty() => return Err(NO_PASSWORD_SET.into()),
        2 => authenticate(exec, b"default", args.at(1))?,
        3 => authenticate(exec, args.at(1), args.at(2))?,
        _ => return Err(crate::dispatch::SYNTAX.into()),
    }
    exec.reply.put().ok();
    Ok(())
}

/// There is one user. Without a password it is let in with any.
fn authenticate(exec: &mut Exec<'_>, user: &[u8], password: &[u8]) -> Result<(), ReplyError> {
    let expected = exec.local.config.requirepass().as_bytes();
    if user != b"default" || !(expected.is_empty() || same(expected, password)) {
        return Err(WRONG_PASSWORD);
    }
    exec.session.authenticated = true;
    Ok(())
}

/// Compares in a time that depends on the lengths only, so that it does not tell how much of a guess was right.
fn same(expected: &[u8], given: &[u8]) -> bool {
    let mut difference = u8::from(expected.len() != given.len());
    for (i, byte) in given.iter().enumerate() {
        difference |= byte ^ expected[i % expected.len()];
    }
    std::hint::black_box(difference) == 0
}

/// What HELLO was asked, parsed before it changes anything.
struct Hello<'a> {
    resp3: Option<bool>,
    credentials: Option<(&'a [u8], &'a [u8])>,
    name: Option<&'a [u8]>,
}

impl<'a> Hello<'a> {
    fn parse(args: &Args<'a>) -> Result<Hello<'a>, ReplyError> {
        let mut hello = Hello { resp3: None, credentials: None, name: None };
        if args.len() > 1 {
            let version = args.int(1).map_err(|_| "ERR Protocol version is not an integer or out of range")?;
            hello.resp3 = match version {
                2 => Some(false),
                3 => Some(true),
                _ => return Err("NOPROTO unsupported protocol version".into()),
            };
        }
        let mut i = 2;
        while i < args.len() {
            let left = args.len() - 1 - i;
            if args.is(i, "auth") && left >= 2 {
                hello.credentials = Some((args.at(i + 1), args.at(i + 2)));
                i += 3;
            } else if args.is(i, "setname") && left >= 1 {
                valid_name(args.at(i + 1))?;
                hello.name = Some(args.at(i + 1));
                i += 2;
            } else {
                return Err(format!("ERR Syntax error in HELLO option '{}'", echoed(args.at(i))).into());
            }
        }
        Ok(hello)
    }
}

fn hello(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let hello = Hello::parse(args)?;
    if let Some((user, password)) = hello.credentials {
        authenticate(exec, user, password)?;
    }
    if !exec.session.authenticated {
        return Err(HELLO_NEEDS_AUTH.into());
    }
    if let Some(name) = hello.name {
        set_name(exec, name)?;
    }
    if let Some(resp3) = hello.resp3 {
        exec.session.resp3 = resp3;
        exec.session.restrict();
        exec.reply.switch(resp3);
    }
    let id = exec.session.id.cast_signed();
    let version = if exec.session.resp3 { 3 } else { 2 };
    let mut reply = exec.reply.put();
    reply.map(7);
    for (name, value) in [("server", SERVER), ("version", REDIS_VERSION)] {
        reply.bulk_str(name);
        reply.bulk_str(value);
    }
    reply.bulk_str("proto");
    reply.integer(version);
    reply.bulk_str("id");
    reply.integer(id);
    for (name, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk_str(name);
        reply.bulk_str(value);
    }
    reply.bulk_str("modules");
    reply.array(0);
    Ok(())
}

/// Names, library names and versions are words of visible ASCII: CLIENT LIST is split at blanks.
pub fn is_word(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_graphic)
}

fn valid_name(name: &[u8]) -> Result<(), ReplyError> {
    if is_word(name) { Ok(()) } else { Err(BAD_NAME) }
}

/// Names the connection; the empty name takes the name away.
pub fn set_name(exec: &mut Exec<'_>, name: &[u8]) -> Result<(), ReplyError> {
    valid_name(name)?;
    exec.session.name = (!name.is_empty()).then(|| String::from_utf8_lossy(name).into());
    Ok(())
}

fn ping(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    // Among messages a reply has to look like one.
    if exec.session.subscriptions.is_some() && !exec.session.resp3 && args.len() <= 2 {
        let mut reply = exec.reply.put();
        reply.array(2);
        reply.bulk_str("pong");
        reply.bulk(if args.len() == 2 { args.at(1) } else { b"" });
        return Ok(());
    }
    match args.len() {
        1 => exec.reply.put().status("PONG"),
        2 => exec.reply.put().bulk(args.at(1)),
        _ => return Err("ERR wrong number of arguments for 'ping' command".into()),
    }
    Ok(())
}

fn echo(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    exec.reply.put().bulk(args.at(1));
    Ok(())
}

fn quit(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    exec.reply.put().ok();
    exec.session.close_after_reply = true;
    Ok(())
}

fn reset(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    let open = exec.local.config.requirepass().is_empty();
    exec.stop_listening();
    exec.stop_tracking();
    exec.session.reset(open, exec.local.now_ms);
    exec.reply.switch(false);
    exec.reply.put().simple("RESET");
    Ok(())
}

fn select(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    exec.session.db = database(exec, args.int(1)?)?;
    exec.reply.put().ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_compared_whole() {
        assert!(same(b"secret", b"secret"));
        for wrong in [b"".as_slice(), b"s", b"secre", b"secrets", b"secretsecret", b"tecret"] {
            assert!(!same(b"secret", wrong), "{wrong:?}");
        }
    }

    #[test]
    fn words_are_visible_ascii() {
        assert!(is_word(b"redis-py/5.0~!") && is_word(b""));
        for bad in [b"a b".as_slice(), b"a\n", b"\x7f", b"\xc3\xa4", b"\0"] {
            assert!(!is_word(bad), "{bad:?}");
        }
    }
}
