//! The reply of a container's HELP subcommand, in Redis's layout.

use crate::command::{Command, flag};
use crate::exec::{Exec, Outcome};

/// What the HELP of every container has in common; each adds its handler, group and age.
pub const HELP_ENTRY: Command = Command {
    name: "help",
    arity: 2,
    flags: flag::LOADING | flag::STALE,
    complexity: "O(1)",
    summary: "Explains the subcommands.",
    ..Command::DEFAULT
};

/// Answers the lines between Redis's first and its last two; `container` is in upper case.
pub fn help(exec: &mut Exec<'_>, container: &str, lines: &[&str]) -> Outcome {
    exec.reply.put().array(lines.len() + 3);
    exec.reply.put().simple(format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for line in lines {
        exec.reply.put().simple(line);
    }
    exec.reply.put().simple("HELP");
    exec.reply.put().simple("    Prints this help.");
    Ok(())
}
