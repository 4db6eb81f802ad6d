//! INFO: the state of the server in sections, with the names and the order of Redis.
//!
//! Fields of Redis that this server has nothing to say about are left out; fields of mechanisms that it does not have but
//! that tools read are 0. Its own fields stand at the end of a section, or in the section `io`.

mod commandstats;
mod io;
mod keyspace;
mod memory;
mod server;
mod stats;

use crate::args::Args;
use crate::arguments::string;
use crate::command::{Command, acl, flag::*};
use crate::exec::{Exec, Outcome};
use std::fmt::{Display, Write};

pub use commandstats::percentile_ns;
pub use memory::human;

/// The family's table.
pub static COMMANDS: &[Command] = &[Command {
    name: "info",
    run: info,
    arity: -1,
    flags: LOADING | STALE,
    acl: acl::DANGEROUS,
    group: "server",
    complexity: "O(1)",
    summary: "Describes the server's state in sections of text.",
    arguments: &[string("section").optional().many()],
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    history: &[("7.0.0", "Several sections may be asked for.")],
    ..Command::DEFAULT
}];

/// A section: its name in a request, its heading, whether it is shown unasked, and what writes it.
struct Section {
    name: &'static str,
    heading: &'static str,
    default: bool,
    write: fn(&mut Exec<'_>, &mut Text),
}

#[rustfmt::skip] // one section, one line
const SECTIONS: &[Section] = &[
    Section { name: "server", heading: "Server", default: true, write: server::server },
    Section { name: "clients", heading: "Clients", default: true, write: server::clients },
    Section { name: "memory", heading: "Memory", default: true, write: memory::memory },
    Section { name: "persistence", heading: "Persistence", default: true, write: stats::persistence },
    Section { name: "stats", heading: "Stats", default: true, write: stats::stats },
    Section { name: "replication", heading: "Replication", default: true, write: stats::replication },
    Section { name: "cpu", heading: "CPU", default: true, write: server::cpu },
    Section { name: "modules", heading: "Modules", default: true, write: server::modules },
    Section { name: "commandstats", heading: "Commandstats", default: false, write: commandstats::commandstats },
    Section { name: "errorstats", heading: "Errorstats", default: true, write: commandstats::errorstats },
    Section { name: "latencystats", heading: "Latencystats", default: false, write: commandstats::latencystats },
    Section { name: "cluster", heading: "Cluster", default: true, write: server::cluster },
    Section { name: "keyspace", heading: "Keyspace", default: true, write: keyspace::keyspace },
    Section { name: "debug", heading: "Debug", default: false, write: stats::debug },
    Section { name: "io", heading: "Io", default: false, write: io::io },
];

/// The reply on its way.
#[derive(Default)]
pub struct Text(String);

impl Text {
    /// One line.
    fn field(&mut self, name: &str, value: impl Display) {
        self.line(format_args!("{name}:{value}"));
    }

    fn line(&mut self, line: impl Display) {
        write!(self.0, "{line}\r\n").expect("a string takes everything");
    }

    fn zeros(&mut self, names: &[&str]) {
        names.iter().for_each(|name| self.field(name, 0));
    }
}

fn info(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut text = Text::default();
    for section in SECTIONS.iter().filter(|section| is_wanted(section, args)) {
        if !text.0.is_empty() {
            text.0.push_str("\r\n");
        }
        text.line(format_args!("# {}", section.heading));
        (section.write)(exec, &mut text);
    }
    exec.reply.put().verbatim(b"txt", text.0.as_bytes());
    Ok(())
}

/// Whether a section is asked for; a word that names none asks for nothing.
fn is_wanted(section: &Section, args: &Args<'_>) -> bool {
    // As in Redis, "everything" is not the section for those who work on the server.
    let by_word = |i: usize| {
        args.is(i, section.name)
            || section.name != "debug" && (args.is(i, "all") || args.is(i, "everything"))
            || section.default && args.is(i, "default")
            || section.name == "modules" && args.is(i, "module_list")
    };
    if args.len() == 1 { section.default } else { (1..args.len()).any(by_word) }
}
