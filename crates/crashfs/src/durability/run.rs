//! One run: a server on a crashfs under load, then as many cuts of it as wanted, each recovered and checked.
//!
//! The load is recorded once. A cut is a position of the recording, a seed and a policy; half of the positions are those
//! at which an answer was just read, where a server that acknowledges too early is caught. Every so often a cut goes on:
//! the recovery itself runs on a crashfs, is cut, goes on to serve, and is cut again (P7).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::check::{Damage, Index, Outcome, Property, Violation, check_again, judge};
use super::client::{Client, encode};
use super::full;
use super::history::{Answer, History, Operation, Recovered, Stamp};
use super::server::{Server, StartError, Subject};
use super::workload::{Shared, Workload};
use crate::cut::{Image, Policy};
use crate::faults::Rule;
use crate::fs::{CrashFs, Options};
use crate::operation::Operation as FileOperation;
use crate::random::Random;
use crate::state::{Personality, Recording};

/// What is run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server.
    pub subject: Subject,
    /// What syncs make durable.
    pub personality: Personality,
    /// How long the load runs.
    pub duration: Duration,
    /// Clients that write, and clients that read.
    pub clients: (u32, u32),
    /// Operations a client sends at once, at most.
    pub pipeline: u64,
    /// Keys of each shape.
    pub keys: u64,
    /// How many cuts.
    pub cuts: u64,
    /// Instead of these: a cut under each policy at every operation from the first file that is made, renamed or removed while
    /// the load runs to what follows the last one. That is every step of a rewrite's switch to other files.
    pub is_every_step: bool,
    /// The policies, in turn.
    pub policies: Vec<Policy>,
    /// Every so many cuts go on to a second crash; 0 for none.
    pub again_every: u64,
    /// One bit of what is durable is flipped in every so many cuts; 0 for none.
    pub damage_every: u64,
    /// Commands sent during the load, each again and again after its time.
    pub commands: Vec<(Duration, String)>,
    /// Faults during the load. The server may then end, as it may when the disk is full.
    pub rules: Vec<Rule>,
    /// The run ends at the first cut that breaks one of these.
    pub sought: Vec<Property>,
    /// Whether a server may refuse what a cut left.
    pub is_refusal_allowed: bool,
    /// What the disk holds, in bytes, once the server serves; [`ROOMY`] at the end of the load.
    pub capacity_bytes: u64,
    /// Where the images of the first broken cuts are left, `broken-1` and so on.
    pub keep: Option<PathBuf>,
    /// Chooses everything.
    pub seed: u64,
    /// Where images are recovered: best a tmpfs.
    pub scratch: PathBuf,
}

/// What came out.
#[derive(Debug, Default)]
pub struct Report {
    /// Operations sent.
    pub operations: u64,
    /// Of these, answered without an error.
    pub acknowledged: u64,
    /// Of these, writes.
    pub acknowledged_writes: u64,
    /// How soon writes were taken when there was room on a full disk, if it was full and the server did not end.
    pub resumed: Option<Duration>,
    /// Cuts recovered and checked.
    pub cuts: u64,
    /// Second crashes.
    pub again: u64,
    /// Cuts with damage beyond the cut.
    pub damaged: u64,
    /// Cuts after which the server did not start.
    pub refused: u64,
    /// By property, in how many cuts it was broken.
    pub broken: BTreeMap<Property, u64>,
    /// The first cuts that broke something: how to have them again, and what broke.
    pub examples: Vec<(String, Vec<Violation>)>,
}

/// A capacity that is never reached, in bytes.
pub const ROOMY: u64 = 1 << 40;

/// How many broken cuts are told in full.
const EXAMPLES: usize = 5;

impl Plan {
    /// Every policy that leaves what a journaling file system may leave.
    pub fn new(argv: Vec<String>) -> Self {
        Self {
            subject: Subject { argv },
            personality: Personality::Ext4Like,
            duration: Duration::from_secs(2),
            clients: (6, 3),
            pipeline: 8,
            keys: 50,
            cuts: 50,
            is_every_step: false,
            policies: Policy::ALL.to_vec(),
            again_every: 10,
            damage_every: 0,
            commands: Vec::new(),
            rules: Vec::new(),
            sought: Vec::new(),
            is_refusal_allowed: false,
            capacity_bytes: ROOMY,
            keep: None,
            seed: 1,
            scratch: if Path::new("/dev/shm").is_dir() { "/dev/shm".into() } else { std::env::temp_dir() },
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// Nothing can be mounted, the server does not start on an empty directory, or ends under load.
    pub fn run(&self) -> Result<Report> {
        let scratch = self.scratch.join(format!("gimmal-durability-{}-{}", std::process::id(), self.seed));
        fs::create_dir_all(&scratch)?;
        let result = Run { plan: self, scratch: &scratch, report: Report::default() }.run();
        let removed = fs::remove_dir_all(&scratch);
        let report = result?;
        removed.with_context(|| scratch.display().to_string())?;
        Ok(report)
    }
}

struct Run<'a> {
    plan: &'a Plan,
    scratch: &'a Path,
    report: Report,
}

/// An image to be recovered, and where it is from.
struct Cut<'a> {
    name: &'a str,
    image: &'a Image,
    position: u64,
    damage: Damage,
}

/// A server's life on a crashfs: what its clients saw, from which operation of the file system on.
struct Life {
    fs: CrashFs,
    history: History,
    /// Positions: its files were there; it served.
    start: u64,
    served: u64,
    /// How soon it took writes again when a full disk had room.
    resumed: Option<Duration>,
}

impl Run<'_> {
    fn run(mut self) -> Result<Report> {
        let life = self.live(&Image { entries: BTreeMap::new() }, 1, self.plan.duration, self.plan.seed)?.0;
        self.count(&life);
        let recording = life.fs.recording().context("it is recorded")?;
        let cuts = match self.plan.is_every_step {
            true => self.every_step(&life, &recording)?,
            false => self.choose(&life, self.plan.cuts, self.plan.seed),
        };
        let index = Index::new(&life.history);
        let mut replay = recording.replay();
        for (nth, (position, seed, policy)) in (1..).zip(cuts) {
            if self.report.is_caught(&self.plan.sought) {
                break;
            }
            let name = format!("cut at {position} of {}, seed {seed}, {policy}", recording.operations.len());
            let nothing = Recovered::default();
            if self.plan.damage_every > 0 && nth % self.plan.damage_every == 0 {
                let mut image = Image::cut(replay.state_at(position), seed, Policy::DropAll);
                if let Some(place) = image.flip_bit(seed, &recording.tails(position)) {
                    let name = format!("{name}, as drop-all with a bit flipped in {place}");
                    let damaged = Cut { name: &name, image: &image, position, damage: Damage::BelowDurable };
                    self.recover_and_judge(&damaged, &index, &nothing)?;
                }
                continue;
            }
            let image = Image::cut(replay.state_at(position), seed, policy);
            let cut = Cut { name: &name, image: &image, position, damage: Damage::None };
            let outcome = self.recover_and_judge(&cut, &index, &nothing)?;
            if let Outcome::Recovered(state) = &outcome
                && self.plan.again_every > 0
                && nth % self.plan.again_every == 0
            {
                self.crash_again(&name, &image, state, seed)?;
            }
        }
        Ok(self.report)
    }

    /// Runs a server on `image` with clients numbered from `first_connection`; also what it served before them.
    fn live(&self, image: &Image, first_connection: u32, duration: Duration, seed: u64) -> Result<(Life, Recovered)> {
        let dir = self.scratch.join("mount");
        fs::create_dir_all(&dir)?;
        let personality = self.plan.personality;
        let fs = CrashFs::new(Options { personality, capacity_bytes: ROOMY, is_recording: true })?;
        let mounted = fs.mount(&dir).context("cannot mount")?;
        image.write_to(&dir)?;
        fs.sync_all();
        let start = fs.position();
        let mut server = match self.plan.subject.start(&dir, &self.scratch.join("log")) {
            Ok(server) => server,
            Err(StartError::Refused(text)) => bail!("the server does not start: {text}"),
            Err(StartError::Broken(error)) => return Err(error),
        };
        let base = Client::connect(server.port())?.recovered()?;
        let served = fs.position();
        let (history, resumed) = self.load(&mut server, &fs, first_connection, duration, seed)?;
        drop(server);
        mounted.unmount().context("cannot unmount")?;
        fs::remove_dir(&dir)?;
        Ok((Life { fs, history, start, served, resumed }, base))
    }

    fn load(
        &self,
        server: &mut Server,
        fs: &CrashFs,
        first: u32,
        duration: Duration,
        seed: u64,
    ) -> Result<(History, Option<Duration>)> {
        let (writers, readers) = self.plan.clients;
        let shared = Shared::new(self.plan.keys, first, writers);
        let (is_over, ticks) = (AtomicBool::new(false), AtomicU64::new(1));
        let stamp = || Stamp { tick: ticks.fetch_add(1, Ordering::SeqCst), position: fs.position() };
        let port = server.port();
        let (mut history, mut resumed) = (History::default(), None);
        // All of them before the first writes: a fault may end the server before the last one's thread has begun.
        let connected = (first..first + writers + readers).map(|connection| Ok((connection, Client::connect(port)?)));
        let connected: Vec<(u32, Client)> = connected.collect::<Result<_>>()?;
        std::thread::scope(|scope| -> Result<()> {
            let clients: Vec<_> = connected
                .into_iter()
                .map(|(connection, client)| {
                    let workload = Workload::new(&shared, seed, connection);
                    let (is_over, stamp, pipeline) = (&is_over, &stamp, self.plan.pipeline);
                    scope.spawn(move || converse(client, connection, workload, pipeline, is_over, stamp))
                })
                .collect();
            let disturbed = self.disturb(port, fs, duration);
            let mut passed = Ok(());
            if self.plan.capacity_bytes < ROOMY {
                match full::pass_through(port, fs, ROOMY) {
                    // What is written from here on is behind what was written anew.
                    Ok(after) => resumed = after.inspect(|_| std::thread::sleep(duration / 2)),
                    Err(error) => passed = Err(error),
                }
                fs.set_capacity(ROOMY);
            }
            let runs = server.check_runs();
            is_over.store(true, Ordering::SeqCst);
            // Nobody waits for answers that a fault holds back.
            fs.clear_rules();
            for client in clients {
                history.operations.extend(client.join().expect("clients do not panic")?);
            }
            let is_faulty = !self.plan.rules.is_empty() || self.plan.capacity_bytes < ROOMY;
            passed.and(if is_faulty { Ok(()) } else { runs.and(disturbed) })
        })?;
        Ok((history, resumed))
    }

    /// Lets the time of the load pass, with what the plan wants to happen meanwhile.
    fn disturb(&self, port: u16, fs: &CrashFs, duration: Duration) -> Result<()> {
        const STEP: Duration = Duration::from_millis(5);
        let start = Instant::now();
        self.plan.rules.iter().for_each(|rule| fs.add_rule(rule.clone()));
        fs.set_capacity(self.plan.capacity_bytes);
        let mut due: Vec<Duration> = self.plan.commands.iter().map(|(every, _)| *every).collect();
        while start.elapsed() < duration {
            for ((every, command), due) in self.plan.commands.iter().zip(&mut due) {
                if start.elapsed() >= *due {
                    *due = start.elapsed() + *every;
                    // It may be refused, as a second BGSAVE is while the first runs.
                    Client::connect(port)?.ask(&command.split_whitespace().collect::<Vec<_>>())?;
                }
            }
            std::thread::sleep(STEP.min(duration));
        }
        Ok(())
    }

    /// Positions in ascending order, which is how they are replayed, each with a seed and a policy.
    fn choose(&self, life: &Life, count: u64, seed: u64) -> Vec<(u64, u64, Policy)> {
        let mut random = Random::new(seed);
        let end = life.fs.position();
        let answers: Vec<u64> = life
            .history
            .operations
            .iter()
            .filter_map(|operation| Some(operation.answer.as_ref()?.0.position))
            .collect();
        let position = |random: &mut Random| match answers.len() {
            0 => life.start + random.below(end - life.start + 1),
            _ if random.one_in(2) => life.start + random.below(end - life.start + 1),
            len => answers[crate::content::index(random.below(u64::try_from(len).expect("a count")))],
        };
        let policies = &self.plan.policies;
        let mut cuts: Vec<(u64, u64, Policy)> = (0..count)
            .map(|nth| {
                let policy = policies[crate::content::index(nth) % policies.len()];
                (position(&mut random), random.any() >> 32, policy)
            })
            .collect();
        cuts.sort_by_key(|(position, ..)| *position);
        cuts
    }

    /// Every position from the first change of a name while the load ran to two operations behind the last, which are those that
    /// make it durable.
    fn every_step(&self, life: &Life, recording: &Recording) -> Result<Vec<(u64, u64, Policy)>> {
        let served = crate::content::index(life.served);
        let during = recording.operations.get(served..).unwrap_or_default();
        let is_of_names = |operation: &FileOperation| {
            use FileOperation::{Create, Link, Remove, Rename};
            matches!(operation, Create { .. } | Link { .. } | Remove { .. } | Rename { .. })
        };
        let (first, last) = (during.iter().position(is_of_names), during.iter().rposition(is_of_names));
        let first = first.context("no file was made, renamed or removed while the load ran")?;
        let end = (last.unwrap_or(first) + 3).min(during.len());
        let mut random = Random::new(self.plan.seed);
        let positions = life.served + u64::try_from(first)?..=life.served + u64::try_from(end)?;
        let cuts = positions.flat_map(|position| self.plan.policies.iter().map(move |policy| (position, *policy)));
        Ok(cuts.map(|(position, policy)| (position, random.any() >> 32, policy)).collect())
    }

    /// Starts a server on a cut and takes what it holds.
    fn recover(&self, image: &Image) -> Result<Outcome> {
        let dir = self.scratch.join("recovered");
        image.write_to(&dir)?;
        let outcome = match self.plan.subject.start(&dir, &self.scratch.join("log")) {
            Ok(server) => Outcome::Recovered(Client::connect(server.port())?.recovered()?),
            Err(StartError::Refused(text)) => Outcome::Refused(text),
            Err(StartError::Broken(error)) => return Err(error),
        };
        fs::remove_dir_all(&dir)?;
        Ok(outcome)
    }

    /// The recovery runs on a crashfs, goes on to serve, and is cut before and after that.
    fn crash_again(&mut self, name: &str, image: &Image, first: &Recovered, seed: u64) -> Result<()> {
        // Counters belong to connections: these are new ones.
        let (life, base) = self.live(image, 1000, self.plan.duration / 10, seed)?;
        let again = check_again(first, &base);
        self.note(&format!("{name}, recovered twice"), again);
        let recording = life.fs.recording().context("it is recorded")?;
        let index = Index::new(&life.history);
        let mut replay = recording.replay();
        // Two cuts while it recovered, then four of what it did afterwards.
        let mut random = Random::new(seed);
        let mut cuts = self.choose(&life, 4, seed);
        for _ in 0..2 {
            let position = life.start + random.below(life.served - life.start + 1);
            let nth = random.below(u64::try_from(self.plan.policies.len())?);
            cuts.push((position, random.any() >> 32, self.plan.policies[crate::content::index(nth)]));
        }
        cuts.sort_by_key(|(position, ..)| *position);
        for (position, seed, policy) in cuts {
            let image = Image::cut(replay.state_at(position), seed, policy);
            let name = format!("{name}, again at {position} of {}, seed {seed}, {policy}", recording.operations.len());
            let cut = Cut { name: &name, image: &image, position, damage: Damage::None };
            self.recover_and_judge(&cut, &index, &base)?;
            self.report.again += 1;
        }
        Ok(())
    }

    /// Recovers a cut and notes what is wrong with that.
    fn recover_and_judge(&mut self, cut: &Cut<'_>, index: &Index<'_>, base: &Recovered) -> Result<Outcome> {
        let outcome = self.recover(cut.image)?;
        let is_refused = matches!(outcome, Outcome::Refused(_));
        self.report.cuts += 1;
        self.report.damaged += u64::from(cut.damage != Damage::None);
        self.report.refused += u64::from(is_refused);
        if is_refused && self.plan.is_refusal_allowed {
            return Ok(outcome);
        }
        let violations = judge(index, base, cut.position, cut.damage, &outcome);
        if let (Some(dir), false, true) =
            (&self.plan.keep, violations.is_empty(), self.report.examples.len() < EXAMPLES)
        {
            let dir = dir.join(format!("broken-{}", self.report.examples.len() + 1));
            cut.image.write_to(&dir).with_context(|| dir.display().to_string())?;
        }
        self.note(cut.name, violations);
        Ok(outcome)
    }

    fn note(&mut self, name: &str, violations: Vec<Violation>) {
        let properties: BTreeSet<Property> = violations.iter().map(|violation| violation.property).collect();
        for property in properties {
            *self.report.broken.entry(property).or_default() += 1;
        }
        if !violations.is_empty() && self.report.examples.len() < EXAMPLES {
            self.report.examples.push((name.to_owned(), violations));
        }
    }

    fn count(&mut self, life: &Life) {
        self.report.resumed = life.resumed;
        for operation in &life.history.operations {
            self.report.operations += 1;
            if operation.acknowledged(u64::MAX).is_some() {
                self.report.acknowledged += 1;
                self.report.acknowledged_writes += u64::from(operation.is_write());
            }
        }
    }
}

/// One client until it is over; what it did. A server that goes away ends it without an error: that is what is tested.
fn converse(
    mut client: Client,
    connection: u32,
    mut workload: Workload<'_>,
    pipeline: u64,
    is_over: &AtomicBool,
    stamp: &(impl Fn() -> Stamp + Sync),
) -> Result<Vec<Operation>> {
    let mut operations: Vec<Operation> = Vec::new();
    while !is_over.load(Ordering::SeqCst) {
        let first = operations.len();
        let mut commands = Vec::new();
        for _ in 0..workload.pipeline(pipeline) {
            let (sequence, action) = workload.operation();
            encode(&mut commands, &action);
            operations.push(Operation { connection, sequence, invoked: stamp(), action, answer: None });
        }
        if client.send(&commands).is_err() {
            break;
        }
        for operation in &mut operations[first..] {
            match client.answer(&operation.action) {
                Ok(answer) => operation.answer = Some((stamp(), answer)),
                Err(error) if error.is::<std::io::Error>() => return Ok(operations),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(operations)
}

impl Operation {
    fn is_write(&self) -> bool {
        !matches!(self.answer, Some((_, Answer::Value(_) | Answer::Values(_))))
    }
}

impl Report {
    /// Whether nothing was broken.
    pub fn is_kept(&self) -> bool {
        self.broken.is_empty()
    }

    /// Whether one of these was broken.
    pub fn is_caught(&self, sought: &[Property]) -> bool {
        sought.iter().any(|property| self.broken.contains_key(property))
    }

    /// A line of numbers.
    pub fn summary(&self) -> String {
        let broken: Vec<String> =
            self.broken.iter().map(|(property, cuts)| format!("{property:?} in {cuts}")).collect();
        let resumed = self.resumed.map(|took| format!(", writes taken {} ms after there was room", took.as_millis()));
        format!(
            "{} operations, {} acknowledged ({} writes), {} cuts ({} after a recovery, {} damaged), {} refused to start{}, broken: {}",
            self.operations,
            self.acknowledged,
            self.acknowledged_writes,
            self.cuts,
            self.again,
            self.damaged,
            self.refused,
            resumed.unwrap_or_default(),
            if broken.is_empty() { "none".to_owned() } else { broken.join(", ") }
        )
    }
}
