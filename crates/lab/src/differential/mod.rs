//! The differential test of the data model: random commands of all groups to a real Redis and to the server under test.
//!
//! Commands are drawn from the grammar in `tests/differential`, in episodes that start from an empty keyspace. Every
//! command goes to both servers, every reply is compared, and at checkpoints the whole keyspace. What has no defined
//! order or value is normalized by one table (`compare::NORMALIZED`); differences that are known stand in one list
//! (`known.txt`). An episode depends on nothing but its seed, so one that fails is played again, and made short.

mod compare;
mod dice;
mod encoding;
mod episode;
mod grammar;
mod known;
mod macros;
mod pair;
mod play;
mod search;
mod shrink;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use lexopt::prelude::*;

use self::episode::{Choice, Episode};
use self::grammar::Grammar;
use self::known::Known;
use self::pair::{Pair, words};
use self::play::{Count, Difference, Played, play};
use crate::process::{ServerProcess, ServerSpec};
use crate::reply::Reply;
use crate::wire::Protocol;
use crate::words::split_text;

/// What to run; see the usage text for the options.
#[derive(Clone, Debug)]
pub struct Settings {
    commands: u64,
    seed: u64,
    length: usize,
    protocols: Vec<Protocol>,
    groups: Vec<String>,
    redis: Vec<String>,
    server: Vec<String>,
    differences: usize,
    from: Option<PathBuf>,
}

impl Settings {
    /// Reads the options behind `--differential`.
    pub fn parse(args: &mut lexopt::Parser) -> Result<Self> {
        let mut settings = Self {
            commands: 1_000_000,
            seed: 1,
            length: 3000,
            protocols: vec![Protocol::Resp2, Protocol::Resp3],
            groups: Vec::new(),
            redis: vec!["redis-server".to_owned()],
            server: Vec::new(),
            differences: 10,
            from: None,
        };
        while let Some(arg) = args.next()? {
            match arg {
                Long("commands") => settings.commands = args.value()?.parse()?,
                Long("seed") => settings.seed = args.value()?.parse()?,
                Long("length") => settings.length = args.value()?.parse()?,
                Long("resp2") => settings.protocols = vec![Protocol::Resp2],
                Long("resp3") => settings.protocols = vec![Protocol::Resp3],
                Long("groups") => settings.groups = args.value()?.string()?.split(',').map(str::to_owned).collect(),
                Long("redis") => settings.redis = split_text(&args.value()?.string()?)?,
                Long("server") => settings.server = split_text(&args.value()?.string()?)?,
                Long("from") => settings.from = Some(args.value()?.into()),
                Long("differences") => settings.differences = args.value()?.parse()?,
                other => return Err(other.unexpected().into()),
            }
        }
        if settings.server.is_empty() {
            let beside = std::env::current_exe()?.with_file_name("gimmal-server");
            settings.server = vec![beside.to_str().context("a path in UTF-8")?.to_owned()];
        }
        ensure!(settings.length > 0 && !settings.redis.is_empty(), "an episode has commands, the oracle a program");
        Ok(settings)
    }
}

/// Plays episodes until the commands are used up, and prints what was compared.
///
/// # Errors
/// An unexplained difference, with the episode that shows it; a server that does not start.
pub fn run(settings: &Settings) -> Result<()> {
    let grammar = grammar(settings.from.as_deref())?;
    let known = match &settings.from {
        Some(dir) => Known::parse(&fs::read_to_string(dir.join("known.txt"))?)?,
        None => known::known()?,
    };
    let mut servers = Servers::start(settings)?;
    let choice = choose(&grammar, &servers, settings)?;
    let start = Instant::now();
    let mut tally = Tally::default();
    let mut seed = settings.seed;
    while tally.commands < settings.commands && tally.signatures.len() < settings.differences {
        let episode = episode::draw(&choice, seed, settings.length);
        match play(servers.ports(), &episode, &known)? {
            Ok(played) => tally.add(played),
            Err(difference) => {
                tally.commands += u64::try_from(difference.step)?;
                servers.revive(settings)?;
                if tally.signatures.insert(difference.signature()) {
                    report(&mut servers, settings, seed, &episode, &difference, &known)?;
                }
            }
        }
        tally.episodes += 1;
        seed += 1;
    }
    tally.print(start, &known, settings, &groups_of_commands(&mut Pair::connect(servers.ports(), Protocol::Resp2)?)?);
    match tally.signatures.len() {
        0 => Ok(()),
        count => bail!("{count} unexplained differences, seeds {} to {}", settings.seed, seed - 1),
    }
}

#[derive(Default)]
struct Tally {
    commands: u64,
    keys: u64,
    episodes: u64,
    cut_short: u64,
    signatures: BTreeSet<String>,
    names: BTreeMap<String, Count>,
}

impl Tally {
    fn add(&mut self, played: Played) {
        self.commands += played.commands;
        self.keys += played.keys;
        self.cut_short += u64::from(played.cut_short);
        for (name, count) in played.names {
            let sum = self.names.entry(name).or_default();
            sum.answered += count.answered;
            sum.accepted += count.accepted;
        }
    }

    /// By groups of the server's command table how many commands were answered, and which never without an error.
    fn print_coverage(&self, groups: &BTreeMap<String, String>) {
        let mut by_group: BTreeMap<&str, (Count, Vec<&str>)> = BTreeMap::new();
        for (name, group) in groups {
            let Some(count) = self.names.get(name) else { continue };
            let (sum, refused) = by_group.entry(group).or_default();
            sum.answered += count.answered;
            sum.accepted += count.accepted;
            if count.accepted == 0 {
                refused.push(name);
            }
        }
        for (group, (sum, refused)) in by_group {
            let mut line = format!("group {group}: {} answered, {} without an error", sum.answered, sum.accepted);
            if !refused.is_empty() {
                line.push_str(&format!("; always with one: {}", refused.join(" ")));
            }
            println!("{line}");
        }
    }

    fn print(&self, start: Instant, known: &Known, settings: &Settings, groups: &BTreeMap<String, String>) {
        for rule in compare::NORMALIZED {
            let commands = if rule.commands.is_empty() { "all commands".to_owned() } else { rule.commands.join(" ") };
            println!("not compared whole: {commands}: {}", rule.reason);
        }
        for entry in known.entries() {
            println!("known difference, met {} times: {}", entry.met.get(), entry.reason);
        }
        self.print_coverage(groups);
        let protocols: Vec<String> = settings.protocols.iter().map(ToString::to_string).collect();
        println!(
            "differential: {} commands from seed {} on, {}, in {} episodes ({} ended by a known difference), \
             {} keys at checkpoints, {} unexplained differences, {:.0} s",
            self.commands,
            settings.seed,
            protocols.join(" and "),
            self.episodes,
            self.cut_short,
            self.keys,
            self.signatures.len(),
            start.elapsed().as_secs_f64()
        );
    }
}

/// Prints a difference with a short episode that shows it.
fn report(
    servers: &mut Servers,
    settings: &Settings,
    seed: u64,
    episode: &Episode,
    difference: &Difference,
    known: &Known,
) -> Result<()> {
    println!("== a difference, seed {seed} (--seed {seed} --length {} --commands 1)", settings.length);
    print_difference(difference);
    let mut fails = |candidate: &Episode| {
        let outcome = play(servers.ports(), candidate, known);
        servers.revive(settings)?;
        Ok(outcome?.err().map(|difference| *difference))
    };
    let (short, difference) = shrink::shrink(episode, difference, &mut fails)?;
    println!("   made shorter:");
    let protocols: Vec<String> = short.protocols.iter().map(ToString::to_string).collect();
    println!("   {} with {:?}", protocols.join(", "), short.config);
    for line in shrink::lines(&short) {
        println!("   {}", cut(&line));
    }
    print_difference(&difference);
    Ok(())
}

fn print_difference(difference: &Difference) {
    println!("   command {}", cut(&difference.command));
    println!("   redis   {}", cut(&difference.redis));
    println!("   gimmal  {}", cut(&difference.gimmal));
}

fn cut(line: &str) -> String {
    const SHOWN: usize = 1500;
    if line.chars().count() > SHOWN {
        format!("{} …", line.chars().take(SHOWN).collect::<String>())
    } else {
        line.to_owned()
    }
}

/// The grammar in the program, or the files of the same names in a directory.
fn grammar(from: Option<&Path>) -> Result<Grammar> {
    let mut grammar = Grammar::default();
    for (name, text) in FILES {
        match from {
            Some(dir) => grammar.add(name, &fs::read_to_string(dir.join(name).with_extension("txt"))?)?,
            None => grammar.add(name, text)?,
        }
    }
    Ok(grammar)
}

/// What both servers know is drawn from; the rest is named.
fn choose<'a>(grammar: &'a Grammar, servers: &Servers, settings: &'a Settings) -> Result<Choice<'a>> {
    let mut pair = Pair::connect(servers.ports(), Protocol::Resp2)?;
    let mut unknown: [BTreeSet<&str>; 2] = Default::default();
    let mut groups = Vec::new();
    for group in &grammar.groups {
        let mut productions = Vec::new();
        for production in &group.productions {
            let name = if production.command == "CARRY" { "DUMP" } else { &production.command };
            let (redis, gimmal) = pair.ask_one(&words(&["COMMAND", "INFO", name]))?;
            let known = [redis, gimmal].map(|reply| !matches!(reply, Reply::Array(infos) if matches!(infos[..], [Reply::NullArray | Reply::NullBulk])));
            for (known, unknown) in known.iter().zip(&mut unknown) {
                if !known {
                    unknown.insert(name);
                }
            }
            if known == [true, true] {
                productions.push(production);
            }
        }
        let is_wanted = settings.groups.is_empty() || settings.groups.contains(&group.name);
        if !productions.is_empty() && is_wanted {
            groups.push(productions);
        }
    }
    for (name, unknown) in ["redis", "gimmal"].iter().zip(&unknown) {
        if !unknown.is_empty() {
            println!(
                "differential: not run: unknown to {name}: {}",
                unknown.iter().copied().collect::<Vec<_>>().join(" ")
            );
        }
    }
    ensure!(!groups.is_empty(), "nothing to draw from");
    Ok(Choice { grammar, groups, protocols: &settings.protocols })
}

/// The group of each command of the server under test, by its name in capitals.
fn groups_of_commands(pair: &mut Pair) -> Result<BTreeMap<String, String>> {
    let Reply::Array(docs) = pair.gimmal.ask(&words(&["COMMAND", "DOCS"]))? else { bail!("COMMAND DOCS is an array") };
    let group_of = |doc: &Reply| {
        let Reply::Array(fields) = doc else { return None };
        fields.chunks(2).find_map(|field| match field {
            [Reply::Bulk(name), Reply::Bulk(group)] if name == b"group" => Some(group.clone()),
            _ => None,
        })
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let both = docs.chunks(2).map(|doc| match doc {
        [Reply::Bulk(name), doc] => Some((text(name).to_ascii_uppercase(), text(&group_of(doc)?))),
        _ => None,
    });
    both.collect::<Option<_>>().context("names and groups of commands")
}

/// The oracle and the server under test.
struct Servers {
    redis: ServerProcess,
    gimmal: ServerProcess,
}

impl Servers {
    fn start(settings: &Settings) -> Result<Self> {
        Ok(Self { redis: start("redis", &settings.redis, &[])?, gimmal: start("gimmal", &settings.server, WORKERS)? })
    }

    fn ports(&self) -> [u16; 2] {
        [self.redis.port(), self.gimmal.port()]
    }

    /// Starts a server anew that has ended, and says what it printed.
    fn revive(&mut self, settings: &Settings) -> Result<()> {
        for (server, argv, more) in
            [(&mut self.redis, &settings.redis, &[][..]), (&mut self.gimmal, &settings.server, WORKERS)]
        {
            if crate::load::connect(server.port()).is_err() {
                println!("{} has ended: {}", argv[0], server.printed());
                *server = start(&argv[0], argv, more)?;
            }
        }
        Ok(())
    }
}

/// Two workers: keys of one connection's transaction may be locked by another worker.
const WORKERS: &[&str] = &["--workers", "2"];

fn start(name: &str, argv: &[String], more: &[&str]) -> Result<ServerProcess> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut argv = argv.to_vec();
    argv.extend(["--port", &port.to_string(), "--save", "", "--appendonly", "no"].map(str::to_owned));
    argv.extend(more.iter().map(|word| (*word).to_owned()));
    ServerProcess::start(&ServerSpec { name: name.to_owned(), port, argv }, None, &std::env::temp_dir())
}

macro_rules! file {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../../tests/differential/", $name, ".txt")))
    };
}

/// The grammar, `common` first: its rules are used by all.
const FILES: &[(&str, &str)] = &[
    file!("common"),
    file!("generic"),
    file!("string"),
    file!("bitmap"),
    file!("hyperloglog"),
    file!("hash"),
    file!("list"),
    file!("set"),
    file!("sorted_set"),
    file!("geo"),
    file!("stream"),
    file!("transaction"),
];

#[cfg(test)]
mod tests {
    use super::dice::Dice;

    #[test]
    fn the_grammar_draws_from_each_line() {
        let grammar = super::grammar(None).expect("a grammar");
        let mut dice = Dice::new(1);
        let mut drawn = 0;
        for production in grammar.groups.iter().flat_map(|group| &group.productions) {
            for _ in 0..100 {
                let words = grammar.draw(production, &mut dice);
                assert!(words[0].eq_ignore_ascii_case(production.command.as_bytes()));
                drawn += 1;
            }
        }
        assert!(drawn > 10_000, "{drawn} commands");
    }
}
