//! What a client says about itself and asks for itself: names, library, reply mode, eviction, access times.

use crate::args::Args;
use crate::commands::connection::{is_word, set_name};
use crate::dispatch::{SYNTAX, echoed};
use crate::exec::{Exec, Outcome, ReplyError};
use crate::session::ReplyMode;

pub fn id(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    let id = exec.session.id;
    exec.reply.put().integer(id.cast_signed());
    Ok(())
}

pub fn setname(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    set_name(exec, args.at(2))?;
    exec.reply.put().ok();
    Ok(())
}

pub fn getname(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    match exec.session.name.as_deref() {
        Some(name) => exec.reply.put().bulk_str(name),
        None => exec.reply.put().null(),
    }
    Ok(())
}

pub fn setinfo(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let is_name = args.is(2, "lib-name");
    if !is_name && !args.is(2, "lib-ver") {
        return Err(format!("ERR Unrecognized option '{}'", echoed(args.at(2))).into());
    }
    if !is_word(args.at(3)) {
        let option = echoed(args.at(2));
        return Err(format!("ERR {option} cannot contain spaces, newlines or special characters.").into());
    }
    let value = String::from_utf8_lossy(args.at(3)).into_owned();
    let library = exec.session.library.get_or_insert_default();
    if is_name {
        library.0 = value;
    } else {
        library.1 = value;
    }
    exec.reply.put().ok();
    Ok(())
}

pub fn reply(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    if args.is(2, "on") {
        exec.session.reply_mode = ReplyMode::On;
        exec.reply.put().ok();
    } else if args.is(2, "off") {
        exec.session.reply_mode = ReplyMode::Off;
    } else if args.is(2, "skip") {
        if exec.session.reply_mode != ReplyMode::Off {
            exec.session.reply_mode = ReplyMode::SkipNext;
        }
    } else {
        return Err(SYNTAX.into());
    }
    Ok(())
}

fn on_or_off(args: &Args<'_>) -> Result<bool, ReplyError> {
    match (args.is(2, "on"), args.is(2, "off")) {
        (true, _) => Ok(true),
        (_, true) => Ok(false),
        _ => Err(SYNTAX),
    }
}

pub fn no_evict(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    exec.session.no_evict = on_or_off(args)?;
    exec.reply.put().ok();
    Ok(())
}

pub fn no_touch(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    exec.session.touches = !on_or_off(args)?;
    exec.reply.put().ok();
    Ok(())
}

/// Words that a client says it can handle. None changes what this server does.
pub fn capa(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    exec.reply.put().ok();
    Ok(())
}
