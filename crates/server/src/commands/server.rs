//! The server as a whole: its clock, its role, its end, its emblem, and modules, of which there are none.

use crate::args::Args;
use crate::arguments::{block, integer, one_of, string, word};
use crate::command::{Command, acl, flag::*};
use crate::commands::config::is_local;
use crate::commands::help::{HELP_ENTRY, help as help_lines};
use crate::dispatch::{IS_LOADING, SYNTAX, echoed};
use crate::exec::{Continuation, Exec, Outcome, ReplyError, Stop, error};
use crate::mail::Message;
use crate::persist::save::shutdown::{Wish, abort, shut_down};
use crate::shared::{Hold, Shared};
use crate::title::{REDIS_VERSION, VERSION};

/// What the commands about modules that change something have in common.
const OF_MODULE: Command = Command {
    flags: ADMIN | NOSCRIPT | NO_ASYNC_LOADING | PROTECTED,
    since: "4.0.0",
    group: "server",
    complexity: "O(1)",
    ..Command::DEFAULT
};

/// The family's table.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "time",
        run: time,
        arity: 1,
        flags: LOADING | STALE | FAST,
        since: "2.6.0",
        group: "server",
        complexity: "O(1)",
        summary: "Answers the server's clock.",
        tips: &["nondeterministic_output"],
        ..Command::DEFAULT
    },
    Command {
        name: "shutdown",
        run: shutdown,
        arity: -1,
        flags: ADMIN | NOSCRIPT | LOADING | STALE | NO_MULTI | ALLOW_BUSY,
        group: "server",
        complexity: "O(N) when saving, where N is the total number of keys in all databases when saving data, otherwise O(1)",
        summary: "Ends the server.",
        arguments: &[one_of(
            "abort-selector",
            &[
                block(
                    "save-selector-block",
                    &[
                        one_of("save-selector", &[word("nosave", "NOSAVE"), word("save", "SAVE")]).optional(),
                        word("now", "NOW").optional().since("7.0.0"),
                        word("force", "FORCE").optional().since("7.0.0"),
                    ],
                ),
                word("abort", "ABORT").since("7.0.0"),
            ],
        )
        .optional()],
        history: &[("7.0.0", "`NOW`, `FORCE` and `ABORT`.")],
        ..Command::DEFAULT
    },
    Command {
        name: "lolwut",
        run: lolwut,
        arity: -1,
        flags: READONLY | FAST,
        since: "5.0.0",
        group: "server",
        summary: "Draws the server's emblem.",
        arguments: &[integer("version").after("VERSION").optional()],
        ..Command::DEFAULT
    },
    Command {
        name: "role",
        run: role,
        arity: 1,
        flags: NOSCRIPT | LOADING | STALE | FAST,
        acl: acl::ADMIN | acl::DANGEROUS,
        since: "2.8.12",
        group: "server",
        complexity: "O(1)",
        summary: "Answers what part the server plays in replication.",
        ..Command::DEFAULT
    },
    Command {
        name: "module",
        arity: -2,
        since: "4.0.0",
        group: "server",
        complexity: "Depends on subcommand",
        summary: "Commands about modules, of which there are none.",
        subcommands: &[
            Command {
                name: "list",
                run: list,
                arity: 2,
                flags: ADMIN | NOSCRIPT,
                since: "4.0.0",
                group: "server",
                complexity: "O(N) where N is the number of loaded modules",
                summary: "Answers the loaded modules.",
                tips: &["nondeterministic_output_order"],
                ..Command::DEFAULT
            },
            Command {
                name: "load",
                run: load,
                arity: -3,
                summary: "Loads a module; here it cannot.",
                arguments: &[string("path"), string("arg").optional().many()],
                ..OF_MODULE
            },
            Command {
                name: "loadex",
                run: load,
                arity: -3,
                since: "7.0.0",
                summary: "Loads a module with configuration; here it cannot.",
                arguments: &[
                    string("path"),
                    block("configs", &[string("name"), string("value")])
                        .after("CONFIG")
                        .many()
                        .many_tokens()
                        .optional(),
                    string("args").after("ARGS").many().optional(),
                ],
                ..OF_MODULE
            },
            Command {
                name: "unload",
                run: unload,
                arity: 3,
                summary: "Unloads a module, of which there are none.",
                arguments: &[string("name")],
                ..OF_MODULE
            },
            Command { run: help, since: "5.0.0", group: "server", ..HELP_ENTRY },
        ],
        ..Command::DEFAULT
    },
];

fn time(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    exec.reply.put().array(2);
    exec.reply.put().bulk_str(itoa::Buffer::new().format(now.as_secs()));
    exec.reply.put().bulk_str(itoa::Buffer::new().format(now.subsec_micros()));
    Ok(())
}

/// What SHUTDOWN was asked.
#[derive(Debug, Default, PartialEq, Eq)]
struct Shutdown {
    save: bool,
    nosave: bool,
    /// NOW: there are no replicas to wait for.
    now: bool,
    /// FORCE: saving may fail.
    force: bool,
    abort: bool,
}

impl Shutdown {
    fn parse(args: &Args<'_>) -> Result<Shutdown, ReplyError> {
        let mut asked = Shutdown::default();
        for i in 1..args.len() {
            let flag = match () {
                () if args.is(i, "save") => &mut asked.save,
                () if args.is(i, "nosave") => &mut asked.nosave,
                () if args.is(i, "now") => &mut asked.now,
                () if args.is(i, "force") => &mut asked.force,
                () if args.is(i, "abort") => &mut asked.abort,
                () => return Err(SYNTAX),
            };
            *flag = true;
        }
        let others = asked.save || asked.nosave || asked.now || asked.force;
        if asked.abort && others || asked.save && asked.nosave {
            return Err(SYNTAX);
        }
        Ok(asked)
    }
}

/// Ends the server. There is no reply, as the connection is closed with all others, unless the server cannot save and goes on.
fn shutdown(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let asked = Shutdown::parse(args)?;
    if asked.abort {
        return match abort(exec.shared) {
            true => {
                exec.reply.put().ok();
                Ok(())
            }
            false => Err("ERR No shutdown in progress.".into()),
        };
    }
    let save = match (asked.save, asked.nosave) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    };
    crate::warning!("User requested shutdown...");
    let (mail, worker, conn) = (exec.shared.mail.clone(), exec.local.id, exec.local.conn);
    let failed = move |_: &Shared| mail[worker].post(Message::Resume { conn, rest: Box::new(NoShutdown) });
    match shut_down(exec.shared, Wish { save, force: asked.force }, failed) {
        true => Err(Stop::Wait),
        false if exec.shared.lifecycle.hold() == Some(Hold::Replacement) => Err(IS_LOADING.into()),
        false => Err("ERR a shutdown is in progress already".into()),
    }
}

/// The server could not save, and goes on.
struct NoShutdown;

impl Continuation for NoShutdown {
    fn step(&mut self, _: &mut Exec<'_>) -> Result<bool, Stop> {
        Err("ERR Errors trying to SHUTDOWN. Check logs.".into())
    }
}

fn role(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    let offset = exec.shared.log.end();
    let mut reply = exec.reply.put();
    reply.array(3);
    reply.bulk_str("master");
    reply.integer(i64::try_from(offset).unwrap_or(i64::MAX));
    reply.array(0);
    Ok(())
}

/// A gimmal: two rings that pass through each other.
const EMBLEM: &str = r"
        .-''''-.   .-''''-.
      .'  .--.  '.'  .--.  '.
     /  .'    './  .'    '.  \
    |  |      | |  | |      |  |
    |  |      | |  | |      |  |
     \  '.    .'\  '.    .'  /
      '.  '--'  .'.  '--'  .'
        '-....-'   '-....-'
";

fn lolwut(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    if args.len() > 1 && args.is(1, "version") && args.len() > 2 {
        args.int(2)?;
    }
    let text = format!("{EMBLEM}\nGimmal {VERSION}. Redis ver. {REDIS_VERSION}\n");
    exec.reply.put().verbatim(b"txt", text.as_bytes());
    Ok(())
}

fn list(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    exec.reply.put().array(0);
    Ok(())
}

const NO_MODULES: ReplyError = error(
    "ERR MODULE command not allowed. If the enable-module-command option is set to \"local\", you can run it from a local \
     connection, otherwise you need to set this option in the configuration file, and then restart the server.",
);

fn may_use_modules(exec: &Exec<'_>) -> Result<(), ReplyError> {
    match exec.local.config.enable_module_command().allows(is_local(exec.session)) {
        true => Ok(()),
        false => Err(NO_MODULES),
    }
}

/// There is nothing here that could run a module of Redis.
fn load(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    may_use_modules(exec)?;
    crate::warning!("Module {} failed to load: this server has no modules", echoed(args.at(2)));
    Err("ERR Error loading the extension. Please check the server logs.".into())
}

fn unload(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    may_use_modules(exec)?;
    Err("ERR Error unloading module: no such module with that name".into())
}

fn help(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    let lines = [
        "LIST",
        "    The loaded modules: there are none.",
        "LOAD <path> [<arg> ...]",
        "    Load a module: none can be loaded.",
        "LOADEX <path> [[CONFIG <name> <value>] ...] [ARGS <arg> ...]",
        "    Load a module: none can be loaded.",
        "UNLOAD <name>",
        "    Unload a module.",
    ];
    help_lines(exec, "MODULE", &lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Detached;
    use gimmal_resp::Span;

    fn parse(line: &str) -> Result<Shutdown, ReplyError> {
        let words: Vec<Detached> = line.split(' ').map(|word| Detached::Bytes(word.as_bytes().to_vec())).collect();
        let spans: Vec<Span> = (0..).zip(&words).map(|(i, _)| Span { start: Span::DETACHED, len: i }).collect();
        Shutdown::parse(&Args::new(&[], &spans, &words))
    }

    #[test]
    fn shutdown_takes_words_that_go_together() {
        assert_eq!(parse("shutdown"), Ok(Shutdown::default()));
        assert_eq!(
            parse("shutdown NoSave now force"),
            Ok(Shutdown { nosave: true, now: true, force: true, ..Shutdown::default() })
        );
        for bad in ["shutdown save nosave", "shutdown abort now", "shutdown abort save", "shutdown later"] {
            assert_eq!(parse(bad), Err(SYNTAX), "{bad}");
        }
    }
}
