//! The longest step of each operation on large values, as the server records it.
//!
//! A server that lets all its clients wait while it works on one value is as slow as its slowest command. This measurement builds
//! values of millions of elements, carries out the operations of `steps.txt` one after another with CONFIG RESETSTAT between, and
//! prints the most processor time that a worker spent without turning to anything else, which INFO shows as `max_step_cpu_usec`.
//! What a command leaves to a background thread is awaited.
//!
//! A thread's processor time contains what interrupts and the hypervisor take while it runs: on a busy machine a loop that does
//! nothing but read that clock sees gaps of many ms. So everything is done in several rounds. What the work itself takes is in each
//! of them, and the least of the longest steps is nearest to it; all of them are printed.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lexopt::prelude::*;

use crate::load;
use crate::process::{ServerProcess, ServerSpec};
use crate::reply;

/// What to measure; see the usage text for the options.
#[derive(Clone, Debug)]
pub struct Settings {
    server: ServerSpec,
    all: u64,
    many: u64,
    only: Vec<String>,
    rounds: usize,
}

impl Settings {
    /// Reads the options behind `--steps`.
    pub fn parse(args: &mut lexopt::Parser) -> Result<Self> {
        let (mut server, mut all, mut many, mut only, mut rounds) = (None, 10_000_000, 1_000_000, Vec::new(), 1);
        while let Some(arg) = args.next()? {
            match arg {
                Long("server") => server = Some(args.value()?.string()?.parse()?),
                Long("all") => all = args.value()?.parse()?,
                Long("many") => many = args.value()?.parse()?,
                Long("only") => only = args.value()?.string()?.split(',').map(str::to_owned).collect(),
                Long("rounds") => rounds = args.value()?.parse()?,
                other => return Err(other.unexpected().into()),
            }
        }
        ensure!(rounds > 0, "--rounds is at least 1");
        ensure!(many > 0 && all >= 4 * many, "--all is at least four times --many");
        Ok(Self { server: server.context("--steps needs a --server")?, all, many, only, rounds })
    }
}

const SCRIPT: &str = include_str!("steps.txt");
/// Elements of a command that fills.
const FILLED_AT_ONCE: u64 = 100;
/// Commands whose replies are awaited together.
const PIPELINE: u64 = 100;
/// Deadlines and timers have passed by then.
const SETTLED: Duration = Duration::from_millis(350);
/// Knuth's multiplier: scores and places come in no order.
const SCATTER: u64 = 0x9e37_79b9_7f4a_7c15;
/// No step should take longer.
const LIMIT_US: u64 = 1000;
/// The longest operation.
const PATIENCE: Duration = Duration::from_secs(300);

/// Carries out the script, section by section, and prints a line of a table for each operation that is measured.
pub fn run(settings: &Settings) -> Result<()> {
    let server = ServerProcess::start(&settings.server, None, &std::env::temp_dir())?;
    let mut client = Client { stream: load::connect(settings.server.port)?, measured: Vec::new(), operation: 0 };
    client.stream.set_read_timeout(Some(PATIENCE))?;
    client.ask("CONFIG SET command-cpu-tracking yes")?;
    println!("| operation | longest step of each round, µs | all of it, s |\n|---|---|---|");
    // A section of the script is about one type.
    for section in SCRIPT.split("\n\n").filter(|section| settings.takes(section)) {
        for _ in 0..settings.rounds {
            client.operation = 0;
            for line in section.lines().filter(|line| !line.starts_with('#')) {
                client.carry_out(&settings.numbers(line)).with_context(|| line.to_owned())?;
            }
            client.ask("FLUSHALL")?;
            client.settle()?;
        }
        std::mem::take(&mut client.measured).iter().for_each(|measured| println!("{}", measured.row()));
    }
    println!("\nResident memory at the end: {} MB", server.rss_bytes()? / 1_000_000);
    Ok(())
}

impl Settings {
    fn takes(&self, section: &str) -> bool {
        let kind = section.lines().find_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
            ["fill", kind, ..] => Some(kind),
            ["many", ..] => Some("arguments"),
            _ => None,
        });
        kind.is_some_and(|kind| self.only.is_empty() || self.only.iter().any(|wanted| wanted == kind))
    }

    fn numbers(&self, line: &str) -> String {
        let word = |word: &str| match word {
            "ALL" => self.all.to_string(),
            "HALF" => (self.all / 2).to_string(),
            "MANY" => self.many.to_string(),
            "-MANY" => format!("-{}", self.many),
            other => other.to_owned(),
        };
        line.split(' ').map(word).collect::<Vec<_>>().join(" ")
    }
}

struct Client {
    stream: TcpStream,
    /// The operations of the section.
    measured: Vec<Measured>,
    /// How many of them this round has measured.
    operation: usize,
}

/// An operation, and what each round measured.
struct Measured {
    label: String,
    steps_us: Vec<u64>,
    took: Vec<Duration>,
}

impl Measured {
    /// A row of the table; bold if the operation missed in every round.
    fn row(&self) -> String {
        let mark = if self.steps_us.iter().all(|step| *step > LIMIT_US) { "**" } else { "" };
        let steps: Vec<String> = self.steps_us.iter().map(u64::to_string).collect();
        let took = self.took.iter().min().map_or(0.0, Duration::as_secs_f64);
        format!("| {} | {mark}{}{mark} | {took:.3} |", self.label, steps.join(", "))
    }
}

impl Client {
    fn carry_out(&mut self, line: &str) -> Result<()> {
        if let Some(command) = line.strip_prefix("> ") {
            return self.measure(&reply::encode(command)?, 1, command);
        }
        if let Some(command) = line.strip_prefix("beside ") {
            let requests = [reply::encode("BGSAVE")?, reply::encode(command)?].concat();
            return self.measure(&requests, 2, &format!("{command}, beside BGSAVE"));
        }
        if let Some(command) = line.strip_prefix("- ") {
            return self.ask(command).map(drop);
        }
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["fill", kind, key, count] => self.fill(kind, key, count.parse()?),
            ["many", count, ref begin @ ..] => {
                let label = format!("{} … of {count} elements", begin.join(" "));
                self.measure(&many(begin, 0..count.parse()?), 1, &label)
            }
            _ => bail!("no line of a script"),
        }
    }

    /// Measures requests that have so many replies, from the first of them until nothing is done for them any more.
    fn measure(&mut self, requests: &[u8], replies: u64, label: &str) -> Result<()> {
        self.settle()?;
        self.ask("CONFIG RESETSTAT")?;
        let started = Instant::now();
        let mut writer = self.stream.try_clone()?;
        std::thread::scope(|scope| {
            let sender = scope.spawn(move || writer.write_all(requests));
            let skipped = load::await_replies(&mut self.stream, replies).with_context(|| label.to_owned());
            sender.join().expect("the sender does not panic").context("write")?;
            skipped
        })?;
        let took = started.elapsed();
        // What freeing is left comes after the reply, and so does what has expired.
        self.settle()?;
        let stats = self.ask("INFO stats")?;
        let step = field(&stats, "max_step_cpu_usec")?;
        if self.operation == self.measured.len() {
            self.measured.push(Measured { label: label.to_owned(), steps_us: Vec::new(), took: Vec::new() });
        }
        let measured = &mut self.measured[self.operation];
        measured.steps_us.push(step);
        measured.took.push(took);
        self.operation += 1;
        Ok(())
    }

    /// Waits until timers have run, nothing is left to be freed and no snapshot is being written.
    fn settle(&mut self) -> Result<()> {
        let started = Instant::now();
        loop {
            std::thread::sleep(SETTLED);
            let info = self.ask("INFO memory persistence")?;
            if field(&info, "lazyfree_pending_objects")? == 0 && field(&info, "rdb_bgsave_in_progress")? == 0 {
                return Ok(());
            }
            ensure!(started.elapsed() < PATIENCE, "it is still being freed, or saved");
        }
    }

    fn ask(&mut self, command: &str) -> Result<String> {
        reply::ask(&mut self.stream, command)
    }

    fn fill(&mut self, kind: &str, key: &str, count: u64) -> Result<()> {
        let (name, step) = match kind {
            "list" => ("RPUSH", FILLED_AT_ONCE),
            "set" => ("SADD", FILLED_AT_ONCE),
            "hash" => ("HSET", FILLED_AT_ONCE),
            "zset" => ("ZADD", FILLED_AT_ONCE),
            "geo" => ("GEOADD", FILLED_AT_ONCE),
            "stream" => ("XADD", 1),
            _ => bail!("no type {kind}"),
        };
        self.ask(&format!("DEL {key}"))?;
        let mut from = 0;
        while from < count {
            let (mut output, mut sent) = (Vec::new(), 0);
            while sent < PIPELINE && from < count {
                let to = count.min(from + step);
                output.extend(many(&[name, key], from..to));
                (from, sent) = (to, sent + 1);
            }
            self.stream.write_all(&output)?;
            load::await_replies(&mut self.stream, sent)?;
        }
        Ok(())
    }
}

fn field(info: &str, name: &str) -> Result<u64> {
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.with_context(|| format!("INFO has no {name}"))?.trim().parse().context("a number")
}

fn push(request: &mut Vec<u8>, word: &str) {
    request.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
}

/// A command that begins with these words, with the elements of these numbers. XADD without an id is an entry for each.
fn many(begin: &[&str], elements: std::ops::Range<u64>) -> Vec<u8> {
    let name = match begin {
        ["XADD", _, _, ..] => "fields",
        _ => begin.first().copied().unwrap_or_default(),
    };
    let words = match name {
        "HSET" | "HSETEX" | "MSET" | "fields" | "ZADD" => 2,
        "GEOADD" | "XADD" => 3,
        _ => 1,
    };
    let mut request = Vec::new();
    let count = elements.end - elements.start;
    request.extend_from_slice(format!("*{}\r\n", begin.len() as u64 + words * count).as_bytes());
    begin.iter().for_each(|word| push(&mut request, word));
    for number in elements {
        let scattered = (number.wrapping_mul(SCATTER) >> 32) % 10_000_000;
        match name {
            "XACK" | "XCLAIM" | "XDEL" => {
                push(&mut request, &format!("{}-1", number + 1));
                continue;
            }
            "ZADD" => push(&mut request, &scattered.to_string()),
            "GEOADD" => {
                push(&mut request, &format!("{}", (scattered % 3_600) as f64 / 10.0 - 180.0));
                push(&mut request, &format!("{}", (scattered / 3_600 % 1_700) as f64 / 10.0 - 85.0));
            }
            "XADD" => {
                push(&mut request, &format!("{}-1", number + 1));
                push(&mut request, "field");
            }
            _ => {}
        }
        push(&mut request, &format!("element:{number:010}"));
        if matches!(name, "HSET" | "HSETEX" | "MSET" | "fields") {
            push(&mut request, &number.to_string());
        }
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_run_stand_in_for_words() {
        let server = "s|1|x".parse().expect("a server");
        let settings = Settings { server, all: 8, many: 2, only: vec!["set".into()], rounds: 1 };
        assert_eq!(settings.numbers("> LPOP a ALL"), "> LPOP a 8");
        assert_eq!(settings.numbers("> ZRANDMEMBER a -MANY"), "> ZRANDMEMBER a -2");
        assert_eq!(settings.numbers("> FLUSHALL SYNC"), "> FLUSHALL SYNC");
        assert_eq!(settings.numbers("> XTRIM a MAXLEN ~ HALF"), "> XTRIM a MAXLEN ~ 4");
        let sections: Vec<&str> = SCRIPT.split("\n\n").filter(|section| settings.takes(section)).collect();
        assert!(sections.len() == 1 && sections[0].starts_with("fill set a"));
    }

    #[test]
    fn a_row_is_bold_if_all_rounds_missed() {
        let took = vec![Duration::from_millis(20), Duration::from_millis(3)];
        let mut measured = Measured { label: "DEL a".into(), steps_us: vec![4000, 90], took };
        assert_eq!(measured.row(), "| DEL a | 4000, 90 | 0.003 |");
        measured.steps_us[1] = 1001;
        assert_eq!(measured.row(), "| DEL a | **4000, 1001** | 0.003 |");
    }

    #[test]
    fn elements_are_commands() {
        assert_eq!(many(&["SADD", "a"], 0..1), b"*3\r\n$4\r\nSADD\r\n$1\r\na\r\n$18\r\nelement:0000000000\r\n");
        assert!(many(&["XADD", "a"], 4..5).starts_with(b"*5\r\n$4\r\nXADD\r\n$1\r\na\r\n$3\r\n5-1\r\n$5\r\nfield\r\n"));
        assert!(many(&["HSET", "a"], 0..3).starts_with(b"*8\r\n"));
        assert!(many(&["XADD", "a", "*"], 0..3).starts_with(b"*9\r\n$4\r\nXADD"));
        assert!(many(&["XDEL", "a"], 0..2).ends_with(b"$3\r\n1-1\r\n$3\r\n2-1\r\n"));
    }
}
