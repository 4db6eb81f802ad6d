//! SAVE, BGSAVE, BGREWRITEAOF and LASTSAVE.

use crate::args::Args;
use crate::arguments::{one_of, word};
use crate::command::{Command, acl, flag::*};
use crate::dispatch::SYNTAX;
use crate::exec::{Continuation, Exec, Outcome, Stop};
use crate::mail::Message;
use crate::persist::aof::rewrite;
use crate::persist::save::points::{background, failure_text};
use crate::persist::save::{self, Done, Failure, Kind, Turn, file};
use crate::session::ReplyMode;
use crate::shared::Shared;

/// The family's table.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "save",
        run: save,
        arity: 1,
        flags: ADMIN | NOSCRIPT | NO_ASYNC_LOADING | NO_MULTI,
        group: "server",
        complexity: "O(N) where N is the total number of keys in all databases",
        summary: "Saves the data set, and answers when that is done.",
        ..Command::DEFAULT
    },
    Command {
        name: "bgsave",
        run: bgsave,
        arity: -1,
        flags: ADMIN | NOSCRIPT | NO_ASYNC_LOADING,
        group: "server",
        complexity: "O(1)",
        summary: "Saves the data set in the background.",
        arguments: &[one_of(
            "operation",
            &[word("schedule", "SCHEDULE").since("3.2.2"), word("cancel", "CANCEL").since("8.1.0")],
        )
        .optional()],
        history: &[("3.2.2", "`SCHEDULE`."), ("8.1.0", "`CANCEL`.")],
        ..Command::DEFAULT
    },
    Command {
        name: "bgrewriteaof",
        run: bgrewriteaof,
        arity: 1,
        flags: ADMIN | NOSCRIPT | NO_ASYNC_LOADING,
        group: "server",
        complexity: "O(1)",
        summary: "Rewrites the append-only file in the background, so that it is as short as the data set allows.",
        ..Command::DEFAULT
    },
    Command {
        name: "lastsave",
        run: lastsave,
        arity: 1,
        flags: LOADING | STALE | FAST,
        acl: acl::ADMIN | acl::DANGEROUS,
        group: "server",
        complexity: "O(1)",
        summary: "Answers when the data set was last saved.",
        tips: &["nondeterministic_output"],
        ..Command::DEFAULT
    },
];

const IN_PROGRESS: &str = "ERR Background save already in progress";

/// The client waits for it, and nobody else does. What is being saved already is waited for, unless in the background.
fn save(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    let saving = &exec.shared.persist.save;
    if saving.under_way() == Some(Kind::Background) {
        return Err(IN_PROGRESS.into());
    }
    has_thread(exec)?;
    let closed = exec.exclusive()?;
    let (mail, worker, conn) = (exec.shared.mail.clone(), exec.local.id, exec.local.conn);
    let waits = exec.session.reply_mode == ReplyMode::On;
    let done = move |_: &Shared, result: Result<Done, Failure>| {
        if waits {
            let rest = Box::new(Saved(result.map(drop)));
            mail[worker].post(Message::Resume { conn, rest });
        }
    };
    let request = file::request(exec.shared, Kind::Foreground, done);
    if let Err(request) = save::begin(exec.shared, exec.batch(), request) {
        save::submit(exec.shared, request);
    }
    drop(closed);
    if waits { Err(Stop::Wait) } else { Ok(()) }
}

/// What became of a SAVE.
struct Saved(Result<(), Failure>);

impl Continuation for Saved {
    fn step(&mut self, exec: &mut Exec<'_>) -> Result<bool, Stop> {
        match &self.0 {
            Ok(()) => {
                exec.reply.put().ok();
                Ok(true)
            }
            Err(failure) => Err(failure_text(failure).into()),
        }
    }
}

fn bgsave(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let scheduled = match args.len() {
        1 => false,
        2 if args.is(1, "schedule") => true,
        2 if args.is(1, "cancel") => return cancel(exec),
        _ => return Err(SYNTAX.into()),
    };
    has_thread(exec)?;
    let saving = &exec.shared.persist.save;
    match saving.under_way() {
        Some(Kind::Foreground | Kind::Background | Kind::Shutdown) => return Err(IN_PROGRESS.into()),
        Some(Kind::Rewrite) if !scheduled && !exec.in_transaction() => {
            return Err(
                "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in order to \
                        schedule a BGSAVE whenever possible."
                    .into(),
            );
        }
        None if !exec.in_transaction() => {
            let closed = exec.exclusive()?;
            let begun = save::begin(exec.shared, exec.batch(), background(exec.shared));
            drop(closed);
            // Another worker may have been faster.
            begun.map_err(|_| Stop::from(IN_PROGRESS))?;
            exec.reply.put().simple(b"Background saving started");
        }
        _ => {
            saving.schedule();
            exec.reply.put().simple(b"Background saving scheduled");
        }
    }
    Ok(())
}

fn cancel(exec: &mut Exec<'_>) -> Outcome {
    let saving = &exec.shared.persist.save;
    if saving.cancel(|kind| kind == Kind::Background) {
        exec.reply.put().simple(b"Background saving cancelled");
    } else if saving.unschedule() {
        exec.reply.put().simple(b"Scheduled background saving cancelled");
    } else {
        return Err("ERR Background saving is currently not in progress or scheduled".into());
    }
    Ok(())
}

fn bgrewriteaof(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    has_thread(exec)?;
    let text = match rewrite::submit(exec.shared) {
        Turn::UnderWay => return Err("ERR Background append only file rewriting already in progress".into()),
        // What belongs to a transaction begins behind it.
        Turn::Now if !exec.in_transaction() => "Background append only file rewriting started",
        Turn::Now | Turn::Later => "Background append only file rewriting scheduled",
    };
    exec.reply.put().simple(text);
    Ok(())
}

/// Whether snapshots can be made at all.
pub fn has_thread(exec: &Exec<'_>) -> Result<(), Stop> {
    match exec.shared.persist.save.has_thread() {
        true => Ok(()),
        false => Err("ERR no snapshot can be made: the server was started without its thread".into()),
    }
}

fn lastsave(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    let saved_s = exec.shared.last_save_s();
    exec.reply.put().integer(saved_s);
    Ok(())
}
