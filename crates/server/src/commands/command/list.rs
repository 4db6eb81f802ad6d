//! COMMAND LIST: the names of commands and subcommands, all or filtered.

use crate::args::Args;
use crate::command::{Entry, acl};
use crate::dispatch::SYNTAX;
use crate::exec::{Exec, Outcome, ReplyError};
use crate::glob;

/// Which commands are meant.
enum Filter<'a> {
    All,
    /// Of a module: there are none.
    None,
    Category(u32),
    Pattern(&'a [u8]),
}

impl<'a> Filter<'a> {
    fn parse(args: &Args<'a>) -> Result<Filter<'a>, ReplyError> {
        match args.len() {
            2 => Ok(Filter::All),
            5 if args.is(2, "filterby") && args.is(3, "module") => Ok(Filter::None),
            5 if args.is(2, "filterby") && args.is(3, "aclcat") => {
                Ok(Filter::Category(acl::category(args.at(4)).unwrap_or(0)))
            }
            5 if args.is(2, "filterby") && args.is(3, "pattern") => Ok(Filter::Pattern(args.at(4))),
            _ => Err(SYNTAX),
        }
    }

    fn takes(&self, entry: &Entry) -> bool {
        match self {
            Filter::All => true,
            Filter::None => false,
            Filter::Category(bit) => entry.command.categories() & bit != 0,
            Filter::Pattern(pattern) => glob::matches_nocase(pattern, entry.full_name.as_bytes()),
        }
    }
}

pub fn list(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let filter = Filter::parse(args)?;
    let with_subcommands =
        exec.commands().entries().iter().flat_map(|entry| std::iter::once(entry).chain(&entry.subcommands));
    let taken: Vec<&Entry> = with_subcommands.filter(|entry| filter.takes(entry)).collect();
    exec.reply.put().array(taken.len());
    for entry in taken {
        exec.reply.put().bulk_str(&entry.full_name);
    }
    Ok(())
}
