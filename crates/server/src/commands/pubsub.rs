//! Publish/subscribe on the wire: SUBSCRIBE and its kin, PUBLISH, PUBSUB. How messages travel: `crate::pubsub`.
//!
//! A subscriber's confirmations are pushes, one for each name, in place of a reply; CLIENT REPLY does not silence them.

use crate::args::Args;
use crate::arguments::{pattern, string};
use crate::command::{Argument, Command, flag::*, key_range, keyflag::NOT_KEY};
use crate::commands::help::{HELP_ENTRY, help as help_lines};
use crate::dispatch::wrong_arguments;
use crate::exec::{Exec, Outcome};
use crate::glob;
use crate::pubsub::{Kind, Payload};
use std::sync::Arc;

const CHANNEL: Argument = string("channel");
const SHARD_CHANNEL: Argument = string("shardchannel");
const PATTERN: Argument = pattern("pattern");

/// What all commands of the family have in common.
const PUBSUB: Command = Command { arity: -2, flags: PUBSUB_FLAGS, since: "2.0.0", group: "pubsub", ..Command::DEFAULT };
const PUBSUB_FLAGS: u32 = crate::command::flag::PUBSUB | LOADING | STALE;

/// The family's table.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "subscribe",
        run: subscribe,
        flags: PUBSUB_FLAGS | NOSCRIPT,
        complexity: "O(N) where N is the number of channels",
        summary: "Listens to channels.",
        arguments: &[CHANNEL.many()],
        ..PUBSUB
    },
    Command {
        name: "unsubscribe",
        run: unsubscribe,
        arity: -1,
        flags: PUBSUB_FLAGS | NOSCRIPT,
        complexity: "O(N) where N is the number of channels",
        summary: "Stops listening to channels, or to all of them.",
        arguments: &[CHANNEL.optional().many()],
        ..PUBSUB
    },
    Command {
        name: "psubscribe",
        run: psubscribe,
        flags: PUBSUB_FLAGS | NOSCRIPT,
        complexity: "O(N) where N is the number of patterns",
        summary: "Listens to the channels that match patterns.",
        arguments: &[PATTERN.many()],
        ..PUBSUB
    },
    Command {
        name: "punsubscribe",
        run: punsubscribe,
        arity: -1,
        flags: PUBSUB_FLAGS | NOSCRIPT,
        complexity: "O(N) where N is the number of patterns",
        summary: "Stops listening to patterns, or to all of them.",
        arguments: &[PATTERN.optional().many()],
        ..PUBSUB
    },
    Command {
        name: "ssubscribe",
        run: ssubscribe,
        flags: PUBSUB_FLAGS | NOSCRIPT,
        keys: &[key_range(1, -1, 1, NOT_KEY)],
        since: "7.0.0",
        complexity: "O(N) where N is the number of sharded channels",
        summary: "Listens to sharded channels.",
        arguments: &[SHARD_CHANNEL.many()],
        ..PUBSUB
    },
    Command {
        name: "sunsubscribe",
        run: sunsubscribe,
        arity: -1,
        flags: PUBSUB_FLAGS | NOSCRIPT,
        keys: &[key_range(1, -1, 1, NOT_KEY)],
        since: "7.0.0",
        complexity: "O(N) where N is the number of sharded channels",
        summary: "Stops listening to sharded channels, or to all of them.",
        arguments: &[SHARD_CHANNEL.optional().many()],
        ..PUBSUB
    },
    Command {
        name: "publish",
        run: publish,
        arity: 3,
        flags: PUBSUB_FLAGS | FAST | MAY_REPLICATE,
        complexity: "O(N+M) where N is the number of subscribers of the channel and M the number of all patterns",
        summary: "Sends a message to a channel's subscribers, and answers how many there are.",
        arguments: &[CHANNEL, string("message")],
        ..PUBSUB
    },
    Command {
        name: "spublish",
        run: spublish,
        arity: 3,
        flags: PUBSUB_FLAGS | FAST | MAY_REPLICATE,
        keys: &[key_range(1, 0, 1, NOT_KEY)],
        since: "7.0.0",
        complexity: "O(N) where N is the number of subscribers of the sharded channel",
        summary: "Sends a message to a sharded channel's subscribers, and answers how many there are.",
        arguments: &[SHARD_CHANNEL, string("message")],
        ..PUBSUB
    },
    Command {
        name: "pubsub",
        arity: -2,
        flags: 0,
        since: "2.8.0",
        complexity: "Depends on subcommand.",
        summary: "Commands about channels and their subscribers.",
        subcommands: &[
            Command {
                name: "channels",
                run: channels,
                since: "2.8.0",
                complexity: "O(N) where N is the number of channels with subscribers",
                summary: "Answers the channels that have subscribers, all or those that match.",
                arguments: &[PATTERN.optional()],
                ..PUBSUB
            },
            Command {
                name: "numsub",
                run: numsub,
                since: "2.8.0",
                complexity: "O(N) where N is the number of channels asked for",
                summary: "Answers how many subscribers channels have, patterns apart.",
                arguments: &[CHANNEL.optional().many()],
                ..PUBSUB
            },
            Command {
                name: "numpat",
                run: numpat,
                arity: 2,
                since: "2.8.0",
                complexity: "O(1)",
                summary: "Answers how many different patterns have subscribers.",
                ..PUBSUB
            },
            Command {
                name: "shardchannels",
                run: shardchannels,
                since: "7.0.0",
                complexity: "O(N) where N is the number of sharded channels with subscribers",
                summary: "Answers the sharded channels that have subscribers, all or those that match.",
                arguments: &[PATTERN.optional()],
                ..PUBSUB
            },
            Command {
                name: "shardnumsub",
                run: shardnumsub,
                since: "7.0.0",
                complexity: "O(N) where N is the number of sharded channels asked for",
                summary: "Answers how many subscribers sharded channels have.",
                arguments: &[SHARD_CHANNEL.optional().many()],
                ..PUBSUB
            },
            Command { run: help, since: "6.2.0", group: "pubsub", ..HELP_ENTRY },
        ],
        ..PUBSUB
    },
];

fn subscribe(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    begin(exec, args, Kind::Channel, "subscribe")
}

fn psubscribe(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    begin(exec, args, Kind::Pattern, "psubscribe")
}

fn ssubscribe(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    begin(exec, args, Kind::Shard, "ssubscribe")
}

fn begin(exec: &mut Exec<'_>, args: &Args<'_>, kind: Kind, word: &str) -> Outcome {
    for name in args.rest(1) {
        exec.subscribe(kind, name);
        confirm(exec, kind, word, Some(name));
    }
    Ok(())
}

fn unsubscribe(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    end(exec, args, Kind::Channel, "unsubscribe")
}

fn punsubscribe(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    end(exec, args, Kind::Pattern, "punsubscribe")
}

fn sunsubscribe(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    end(exec, args, Kind::Shard, "sunsubscribe")
}

fn end(exec: &mut Exec<'_>, args: &Args<'_>, kind: Kind, word: &str) -> Outcome {
    if args.len() > 1 {
        for name in args.rest(1) {
            exec.unsubscribe(kind, name);
            confirm(exec, kind, word, Some(name));
        }
        return Ok(());
    }
    let all: Vec<Arc<[u8]>> =
        exec.session.subscriptions.as_ref().map_or(Vec::new(), |all| all.names(kind).iter().cloned().collect());
    for name in &all {
        exec.unsubscribe(kind, name);
        confirm(exec, kind, word, Some(name));
    }
    if all.is_empty() {
        confirm(exec, kind, word, None);
    }
    Ok(())
}

/// Says what is listened to, or not any more, and how many names are left.
fn confirm(exec: &mut Exec<'_>, kind: Kind, word: &str, name: Option<&[u8]>) {
    let count = exec.session.subscriptions.as_ref().map_or(0, |all| all.count(kind));
    exec.local.pushed = true;
    let mut reply = exec.reply.put();
    reply.push(3);
    reply.bulk_str(word);
    match name {
        Some(name) => reply.bulk(name),
        None => reply.null(),
    }
    reply.count(count);
}

fn publish(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    send(exec, args, Kind::Channel)
}

fn spublish(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    send(exec, args, Kind::Shard)
}

fn send(exec: &mut Exec<'_>, args: &Args<'_>, kind: Kind) -> Outcome {
    let message = match args.rope(2) {
        Some(rope) => Payload::Large(rope),
        None => Payload::Bytes(args.at(2)),
    };
    let receivers = exec.publish(kind, args.at(1), message)?;
    exec.reply.put().count(receivers);
    Ok(())
}

fn channels(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    list(exec, args, Kind::Channel)
}

fn shardchannels(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    list(exec, args, Kind::Shard)
}

fn list(exec: &mut Exec<'_>, args: &Args<'_>, kind: Kind) -> Outcome {
    if args.len() > 3 {
        return Err(wrong_arguments(args).into());
    }
    let mut found: Vec<Box<[u8]>> = Vec::new();
    exec.shared.pubsub.each_channel(kind, |name| {
        if args.len() < 3 || glob::matches(args.at(2), name) {
            found.push(name.into());
        }
    });
    let mut reply = exec.reply.put();
    reply.array(found.len());
    found.iter().for_each(|name| reply.bulk(name));
    Ok(())
}

fn numsub(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    count(exec, args, Kind::Channel)
}

fn shardnumsub(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    count(exec, args, Kind::Shard)
}

fn count(exec: &mut Exec<'_>, args: &Args<'_>, kind: Kind) -> Outcome {
    let mut reply = exec.reply.put();
    reply.array(2 * (args.len() - 2));
    for name in args.rest(2) {
        reply.bulk(name);
        reply.count(exec.shared.pubsub.subscribers(kind, name));
    }
    Ok(())
}

fn numpat(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    let patterns = exec.shared.pubsub.names(Kind::Pattern);
    exec.reply.put().count(patterns);
    Ok(())
}

#[rustfmt::skip] // a heading and its explanation, line by line
const HELP: &[&str] = &[
    "CHANNELS [<pattern>]",
    "    The channels that have subscribers, all or those that match.",
    "NUMPAT",
    "    How many different patterns have subscribers.",
    "NUMSUB [<channel> ...]",
    "    How many subscribers the channels have, patterns apart.",
    "SHARDCHANNELS [<pattern>]",
    "    The sharded channels that have subscribers, all or those that match.",
    "SHARDNUMSUB [<shardchannel> ...]",
    "    How many subscribers the sharded channels have.",
];

fn help(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    help_lines(exec, "PUBSUB", HELP)
}
