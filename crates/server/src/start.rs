//! Starting and stopping: from a configuration to running workers, and from a signal to a clean end.

use crate::command::Table;
use crate::config::{Config, IoModel, Loaded, LogLevel};
use crate::evict::Exceeding;
use crate::lazyfree::Lazyfree;
use crate::logging::{self, Level};
use crate::mail::Mailbox;
use crate::persist::Persistence;
use crate::persist::save;
use crate::persist::save::shutdown::{Wish, shut_down};
use crate::pubsub::PubSub;
use crate::rates::Rates;
use crate::session::Peer;
use crate::shared::{DebugSwitches, Hold, Identity, Lifecycle, Pause, Settings, Shared};
use crate::slowlog::CommandLogs;
use crate::stats::WorkerStats;
use crate::tracking::Trackers;
use crate::worker::Worker;
use crate::{accept, commands, models, notice, os, persist, warning};
use gimmal_io::{Epoll, Kind, Model, Options as EngineOptions, SimEngine, Socket, Uring, choose};
use gimmal_log::Log;
use gimmal_store::{Gauge, Keyspace, Options};
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes of log that may be unread before writers wait.
const LOG_SOFT_LIMIT: usize = 256 << 20;
/// How soon the allocator gives unused memory back by itself, in ms: never. The thread `lazyfree` sees to it.
const PURGE_DELAY_MS: u32 = 7 * 24 * 3600 * 1000;
/// File descriptors the server needs beside those of its clients.
const RESERVED_FILES: u64 = 64;

/// The engine all workers use.
#[derive(Clone)]
pub enum EngineChoice {
    /// io_uring.
    Uring,
    /// epoll.
    Epoll,
    /// A model of the papers.
    Model(Model),
    /// The simulated network, for tests: one engine for each worker is made by this function.
    Sim(Arc<dyn Fn(usize) -> SimEngine + Send + Sync>),
}

/// A running server.
pub struct Server {
    /// What the workers share.
    pub shared: Arc<Shared>,
    workers: Vec<JoinHandle<io::Result<()>>>,
    lazyfree: JoinHandle<()>,
    snapshot: JoinHandle<()>,
    /// Loads what is on disk, if there is something.
    restoring: Option<JoinHandle<io::Result<()>>>,
}

/// Runs a server as the configuration says, until a signal or SHUTDOWN ends it.
pub fn run(loaded: Loaded) -> io::Result<()> {
    let config = &loaded.config;
    prepare_process(config)?;
    let (engine, why) = choose_engine(config)?;
    let sockets = accept::open(config)?;
    let port = config.port();
    let pidfile = write_pidfile(config);
    let mut server = Server::start(loaded.config.clone(), engine.clone(), sockets)?;
    announce(&server.shared, &loaded.notes, &why);
    watch_signals(server.shared.clone())?;
    let restored = match server.restored() {
        // Who stops a server while it loads ends the load: that is no failure.
        Err(_) if server.shared.lifecycle.is_stopping() => Ok(()),
        restored => restored,
    };
    match &restored {
        Ok(()) if server.shared.lifecycle.is_stopping() => {}
        Ok(()) => notice!("Ready to accept connections on port {port}"),
        Err(_) => server.shared.stop(),
    }
    // The process ends with its memory: freeing millions of keys one by one would only delay that.
    std::mem::forget(server.shared.clone());
    let ended = server.wait();
    let ended = restored.and(ended);
    if let Some(path) = pidfile {
        remove_quietly(&path);
    }
    if let Some(path) = config.unixsocket() {
        remove_quietly(path);
    }
    notice!("Gimmal is now ready to exit, bye bye...");
    ended
}

fn remove_quietly(path: &str) {
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        warning!("Removing {path}: {error}");
    }
}

impl Server {
    /// Starts the workers; returns when all of them serve, though nothing but `-LOADING` before [`Server::restored`].
    pub fn start(config: Config, engine: EngineChoice, sockets: Vec<(Socket, Peer)>) -> io::Result<Server> {
        let workers = worker_count(&config);
        let shared = Arc::new(shared(config, workers, &engine)?);
        let lazyfree = shared.lazyfree.start()?;
        let snapshot = save::thread::start_thread(&shared)?;
        // Before there are clients. With nothing to load, none of them is ever told to wait.
        let loads = persist::start::is_there_data(&shared.settings.current())?;
        if loads {
            persist::load::begin(&shared, 0);
        } else {
            persist::start::restore(&shared)?;
        }
        let (ready, all_ready) = channel();
        let mut sockets = Some(sockets);
        let mut threads = Vec::new();
        for id in 0..workers {
            let (shared, engine, ready) = (shared.clone(), engine.clone(), ready.clone());
            let sockets = sockets.take().unwrap_or_default();
            let body = move || work(id, shared, engine, sockets, ready);
            threads.push(std::thread::Builder::new().name(format!("worker {id}")).spawn(body)?);
        }
        drop(ready);
        for _ in 0..workers {
            if let Ok(Err(error)) = all_ready.recv() {
                shared.stop();
                shared.persist.save.stop();
                shared.lazyfree.stop();
                return Err(error);
            }
        }
        let restoring = if loads {
            let shared = shared.clone();
            let body = move || persist::start::restore(&shared);
            Some(std::thread::Builder::new().name("restore".into()).spawn(body)?)
        } else {
            None
        };
        Ok(Server { shared, workers: threads, lazyfree, snapshot, restoring })
    }

    /// Waits until what is on disk is loaded.
    ///
    /// # Errors
    /// It cannot be: the server must not serve.
    pub fn restored(&mut self) -> io::Result<()> {
        match self.restoring.take() {
            None => Ok(()),
            Some(thread) => thread.join().unwrap_or_else(|_| Err(io::Error::other("loading panicked"))),
        }
    }

    /// Waits for the end of all workers, and until what they have logged is on disk; the first error counts.
    pub fn wait(mut self) -> io::Result<()> {
        let mut first = self.restored();
        for worker in self.workers {
            let ended = worker.join().unwrap_or_else(|_| Err(io::Error::other("a worker panicked")));
            if first.is_ok() {
                first = ended;
            }
        }
        self.shared.persist.save.stop();
        if self.snapshot.join().is_err() && first.is_ok() {
            first = Err(io::Error::other("the thread that makes snapshots panicked"));
        }
        let logged = self.shared.persist.aof.stop(&self.shared.log);
        first = first.and(logged);
        // What is not freed yet goes with the process, or when the last one lets go of it.
        self.shared.lazyfree.stop();
        if self.lazyfree.join().is_err() && first.is_ok() {
            first = Err(io::Error::other("the thread that frees values panicked"));
        }
        first
    }
}

/// One worker's thread. The engine is made here, since a ring belongs to the thread that made it.
fn work(
    id: usize,
    shared: Arc<Shared>,
    engine: EngineChoice,
    sockets: Vec<(Socket, Peer)>,
    ready: Sender<io::Result<()>>,
) -> io::Result<()> {
    macro_rules! serve {
        ($engine:expr) => {
            match $engine.and_then(|engine| {
                let mut worker = Worker::new(id, engine, shared.clone());
                worker.listen(sockets)?;
                Ok(worker)
            }) {
                Err(error) => {
                    // The starter reports it; if it is gone, so is the server.
                    let _gone = ready.send(Err(error));
                    Ok(())
                }
                Ok(worker) => {
                    let _gone = ready.send(Ok(()));
                    drop(ready);
                    let ended = worker.run();
                    if let Err(error) = &ended {
                        warning!("Worker {id} cannot go on: {error}");
                        shared.stop();
                    }
                    ended
                }
            }
        };
    }
    match engine {
        EngineChoice::Uring => serve!(Uring::new(EngineOptions::default().uring)),
        EngineChoice::Epoll => serve!(Epoll::new()),
        EngineChoice::Model(model) => serve!(model.open()),
        EngineChoice::Sim(make) => serve!(io::Result::Ok(make(id))),
    }
}

fn worker_count(config: &Config) -> usize {
    match config.workers() {
        0 if config.io_model() != IoModel::Workers => 1,
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n,
    }
}

/// What so many workers on this engine will share.
pub fn shared(config: Config, workers: usize, engine: &EngineChoice) -> io::Result<Shared> {
    static COMMANDS: LazyLock<Table> = LazyLock::new(commands::table);
    let commands = &*COMMANDS;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let seed = (random()?, random()?);
    let keyspace = Keyspace::new(Options {
        shards: config.shards(),
        databases: config.databases(),
        participants: workers + 2,
        seed,
    });
    let keyspace_bytes = keyspace.fixed_bytes();
    let stats: Box<[_]> = (0..workers).map(|_| Arc::new(WorkerStats::new(commands.ids()))).collect();
    let log = Log::new(workers, LOG_SOFT_LIMIT);
    Ok(Shared {
        keyspace,
        log,
        persist: Persistence::default(),
        commands,
        pubsub: PubSub::new(workers),
        mail: (0..workers).map(|_| Mailbox::default()).collect(),
        identity: identity(&config, engine, keyspace_bytes + stats.iter().map(|s| s.memory_bytes()).sum::<usize>())?,
        stats,
        settings: Settings::new(config),
        command_logs: CommandLogs::default(),
        latency: Mutex::default(),
        errors: Mutex::default(),
        pause: Pause::default(),
        lifecycle: Lifecycle::default(),
        lazyfree: Arc::new(Lazyfree::default()),
        client_bytes: Gauge::new(workers),
        exceeding: Exceeding::default(),
        watching: Arc::default(),
        trackers: Trackers::default(),
        rates: Rates::default(),
        debug: DebugSwitches::default(),
        spin_on_locks: workers < cores,
    })
}

fn identity(config: &Config, engine: &EngineChoice, fixed_bytes: usize) -> io::Result<Identity> {
    Ok(Identity {
        run_id: random_hex()?,
        replication_id: random_hex()?,
        started_ms: crate::now_ms(),
        executable: std::env::current_exe().map(|path| path.display().to_string()).unwrap_or_default(),
        config_file: config.file().map(|path| path.display().to_string()).unwrap_or_default(),
        engine: match engine {
            EngineChoice::Uring => "uring",
            EngineChoice::Epoll => "epoll",
            EngineChoice::Model(model) => model.name(),
            EngineChoice::Sim(_) => "sim",
        },
        startup_bytes: fixed_bytes as u64,
    })
}

fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(format!("no random numbers: {error}")))?;
    Ok(u64::from_le_bytes(bytes))
}

fn random_hex() -> io::Result<String> {
    Ok(format!("{:016x}{:016x}{:08x}", random()?, random()?, random()? >> 32))
}

/// Working directory, background, log, limits: what must stand before any thread is started.
fn prepare_process(config: &Config) -> io::Result<()> {
    let dir = config.dir();
    std::env::set_current_dir(dir)
        .map_err(|error| io::Error::new(error.kind(), format!("Can't chdir to '{}': {error}", dir.display())))?;
    if config.daemonize() {
        os::daemonize()?;
    }
    logging::configure(level(config.loglevel()), config.logfile());
    os::disable_huge_pages();
    gimmal_store::Allocator::set_purge_delay_ms(PURGE_DELAY_MS);
    gimmal_store::Allocator::bound_heaps();
    let wanted = config.maxclients() + RESERVED_FILES;
    let files = os::raise_file_limit(wanted)?;
    if files < wanted {
        warning!(
            "maxclients is {} but only {files} files may be open: connections beyond that are refused. \
             Raise the limit ('ulimit -n {wanted}') or lower maxclients.",
            config.maxclients()
        );
    }
    Ok(())
}

/// Makes room for the sockets of this many clients; the error is how many fit.
pub fn raise_file_limit(maxclients: u64) -> Result<(), u64> {
    let wanted = maxclients.saturating_add(RESERVED_FILES);
    let files = os::raise_file_limit(wanted).unwrap_or(0);
    if files < wanted { Err(files.saturating_sub(RESERVED_FILES)) } else { Ok(()) }
}

/// The directive's level as the log's.
pub fn level(level: LogLevel) -> Level {
    match level {
        LogLevel::Debug => Level::Debug,
        LogLevel::Verbose => Level::Verbose,
        LogLevel::Notice => Level::Notice,
        LogLevel::Warning => Level::Warning,
        LogLevel::Nothing => Level::Nothing,
    }
}

/// The engine, and why it is this one.
fn choose_engine(config: &Config) -> io::Result<(EngineChoice, String)> {
    let choice = models::choice(config).map_err(io::Error::other)?;
    let decision = choose(choice, &EngineOptions::default())
        .map_err(|why| {
            let engine = config.io_engine().word();
            format!("io-engine {engine} cannot work here: {why}. '--io-engine epoll' works without it.")
        })
        .map_err(io::Error::other)?;
    Ok((decision.kind.into(), decision.why))
}

impl From<Kind> for EngineChoice {
    fn from(kind: Kind) -> EngineChoice {
        match kind {
            Kind::Uring => EngineChoice::Uring,
            Kind::Epoll => EngineChoice::Epoll,
            Kind::Model(model) => EngineChoice::Model(model),
        }
    }
}

fn write_pidfile(config: &Config) -> Option<String> {
    let path = config.pidfile()?;
    match std::fs::write(path, format!("{}\n", std::process::id())) {
        Ok(()) => Some(path.to_string()),
        Err(error) => {
            warning!("Failed to write PID file {path}: {error}");
            None
        }
    }
}

fn announce(shared: &Shared, notes: &[String], why: &str) {
    notice!("Gimmal {} (Redis 7.2 compatible), pid {}", env!("CARGO_PKG_VERSION"), std::process::id());
    notes.iter().for_each(|note| notice!("{note}"));
    let line = format!("I/O engine: {} ({why})", shared.identity.engine);
    notice!("{line}");
    notice!("Workers: {}, shards: {}", shared.mail.len(), shared.keyspace.shards());
}

fn exit_at_once(config: &Config) -> ! {
    warning!("You insist... exiting now.");
    save::file::remove_temporary(config);
    std::process::exit(1);
}

/// SIGTERM and SIGINT stop the server, which may save first; a second one ends the process at once.
fn watch_signals(shared: Arc<Shared>) -> io::Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    let body = move || {
        while let Some(signal) = signals.forever().next() {
            let config = shared.settings.current();
            let (name, wish) = match signal {
                SIGINT => ("SIGINT", config.shutdown_on_sigint()),
                _ => ("SIGTERM", config.shutdown_on_sigterm()),
            };
            if shared.lifecycle.is_stopping() || shared.lifecycle.hold() == Some(Hold::Shutdown) {
                exit_at_once(&config);
            }
            warning!("Received {name} scheduling shutdown...");
            // A failure is in the log; one that is under way already was looked for above. The end of DEBUG RELOAD is waited for.
            while !shut_down(&shared, Wish::of_signal(wish), |_| ())
                && shared.lifecycle.hold() == Some(Hold::Replacement)
            {
                std::thread::sleep(Duration::from_millis(10));
                if signals.pending().next().is_some() {
                    exit_at_once(&config);
                }
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(body)?;
    Ok(())
}
