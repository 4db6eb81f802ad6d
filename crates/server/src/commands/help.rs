//! The reply of a container's HELP subcommand, in Redis's layout.

use crate::exec::{Exec, Outcome};

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
