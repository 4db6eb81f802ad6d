//! Servers as child processes: started in a directory of their own, bound to a processor, killed when dropped.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::{sys, words};

/// `NAME|PORT|COMMAND LINE`: how to start a server that then listens on loopback PORT.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerSpec {
    /// Name in the results.
    pub name: String,
    /// Port it will listen on.
    pub port: u16,
    /// Program and arguments.
    pub argv: Vec<String>,
}

impl FromStr for ServerSpec {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut fields = text.splitn(3, '|');
        let (Some(name), Some(port), Some(line)) = (fields.next(), fields.next(), fields.next()) else {
            bail!("a server is 'NAME|PORT|COMMAND LINE', not {text:?}");
        };
        let argv = words::split_text(line)?;
        ensure!(!argv.is_empty(), "the server {name:?} has no command line");
        Ok(Self { name: name.to_owned(), port: port.parse().with_context(|| format!("the port {port:?}"))?, argv })
    }
}

/// A running server. Dropping it kills the process and removes its directory.
pub struct ServerProcess {
    child: Child,
    dir: PathBuf,
    port: u16,
}

/// How long a server may take until it accepts connections.
const START_LIMIT: Duration = Duration::from_secs(60);

impl ServerProcess {
    /// Starts the server, on processor `cpu` if given, in a new directory under `parent`, and waits until it accepts.
    ///
    /// # Errors
    /// The port is taken, the program does not start, ends at once, or does not accept in time; the error carries
    /// the end of what it printed.
    pub fn start(spec: &ServerSpec, cpu: Option<usize>, parent: &Path) -> Result<Self> {
        await_free(spec.port)?;
        let dir = new_directory(parent)?;
        let printed = fs::File::create(dir.join("printed"))?;
        let mut command = Command::new(program(&spec.argv[0])?);
        command.args(&spec.argv[1..]).current_dir(&dir).stdin(Stdio::null());
        command.stdout(printed.try_clone()?).stderr(printed);
        let spawned = match cpu {
            Some(cpu) => sys::on_cpu(cpu, || command.spawn()).with_context(|| format!("processor {cpu}"))?,
            None => command.spawn(),
        };
        let child = spawned.with_context(|| format!("cannot start {}", spec.argv[0]))?;
        let mut server = Self { child, dir, port: spec.port };
        server.await_accept().with_context(|| spec.argv.join(" "))?;
        Ok(server)
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What it has printed so far.
    pub fn printed(&self) -> String {
        let bytes = fs::read(self.dir.join("printed")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Processor time used so far, in µs with the resolution of a clock tick.
    pub fn cpu_us(&self) -> Result<u64> {
        cpu_us_of(self.pid())
    }

    /// Resident memory in bytes.
    pub fn rss_bytes(&self) -> Result<u64> {
        bytes_in(&format!("/proc/{}/status", self.pid()), "VmRSS:").context("has it ended?")
    }

    fn await_accept(&mut self) -> Result<()> {
        let start = Instant::now();
        while !accepts(self.port) {
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended before it listened ({status}): {}", last_lines(&self.printed()));
            }
            ensure!(
                start.elapsed() < START_LIMIT,
                "not listening on port {} after {START_LIMIT:?}: {}",
                self.port,
                last_lines(&self.printed())
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

/// A field of a file of `/proc` that has sizes in kB, in bytes.
pub(crate) fn bytes_in(path: &str, field: &str) -> Result<u64> {
    let text = fs::read_to_string(path)?;
    let line =
        text.lines().find_map(|line| line.strip_prefix(field)).with_context(|| format!("no {field} in {path}"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().with_context(|| line.to_owned())?;
    Ok(kib * 1024)
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Neither can fail in a way that matters here: the process may have ended, the directory may hold a mount.
        drop(self.child.kill());
        drop(self.child.wait());
        drop(fs::remove_dir_all(&self.dir));
    }
}

/// User and system time of a process, in µs.
pub fn cpu_us_of(pid: u32) -> Result<u64> {
    cpu_fields_us(pid, &[11, 12])
}

/// The same, with that of its children that have ended.
pub fn cpu_us_with_children(pid: u32) -> Result<u64> {
    cpu_fields_us(pid, &[11, 12, 13, 14])
}

fn cpu_fields_us(pid: u32, indices: &[usize]) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("process {pid} has ended"))?;
    // Fields are counted from behind the name, which may itself contain spaces and parentheses.
    let (_, fields) = stat.rsplit_once(')').context("a stat file without a name")?;
    let mut ticks = 0;
    for index in indices {
        let field = fields.split_whitespace().nth(*index).context("a stat file too short")?;
        ticks += field.parse::<u64>()?;
    }
    Ok(ticks * 1_000_000 / sys::ticks_per_second())
}

/// Time that processors `cpus` have spent on anything since the machine started, in µs; steal and idle do not count.
pub fn busy_us_of(cpus: &[usize]) -> Result<u64> {
    let stat = fs::read_to_string("/proc/stat")?;
    let mut ticks = 0;
    for cpu in cpus {
        let name = format!("cpu{cpu} ");
        let line = stat.lines().find_map(|line| line.strip_prefix(&name)).with_context(|| format!("no {name}"))?;
        let fields = line.split_whitespace().map(|field| Ok(field.parse::<u64>()?)).collect::<Result<Vec<_>>>()?;
        // user, nice, system, then (idle, iowait), irq, softirq
        let [user, nice, system, _, _, irq, softirq, ..] = fields[..] else { bail!("a cpu line too short: {line}") };
        ticks += user + nice + system + irq + softirq;
    }
    Ok(ticks * 1_000_000 / sys::ticks_per_second())
}

/// A program named by a relative path is meant relative to where the lab was started, not to the server's directory.
fn program(name: &str) -> Result<PathBuf> {
    if name.contains('/') {
        fs::canonicalize(name).with_context(|| format!("no program {name}"))
    } else {
        Ok(PathBuf::from(name))
    }
}

fn new_directory(parent: &Path) -> Result<PathBuf> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("gimmal-lab-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let dir = parent.join(name);
    fs::create_dir_all(&dir).with_context(|| format!("directory {}", dir.display()))?;
    Ok(dir)
}

/// Waits until `port` can be bound. The kernel takes an io_uring apart after its process has ended, and until then a
/// listening socket in it still accepts.
fn await_free(port: u16) -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(5);
    let start = Instant::now();
    while TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_err() {
        ensure!(start.elapsed() < LIMIT, "something already listens on port {port}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn accepts(port: u16) -> bool {
    TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), Duration::from_secs(1)).is_ok()
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_three_fields() {
        let spec: ServerSpec = "redis|7002|redis-server --save \"\" --x a|b".parse().expect("parses");
        assert_eq!((spec.name.as_str(), spec.port), ("redis", 7002));
        assert_eq!(spec.argv, ["redis-server", "--save", "", "--x", "a|b"]);
        assert!("redis|7002".parse::<ServerSpec>().is_err());
        assert!("redis|x|y".parse::<ServerSpec>().is_err());
        assert!("redis|1|".parse::<ServerSpec>().is_err());
    }

    #[test]
    fn a_program_that_ends_is_reported_with_what_it_printed() {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
        let argv = ["sh", "-c", "echo it broke >&2; exit 3"].map(str::to_owned).to_vec();
        let spec = ServerSpec { name: "x".to_owned(), port, argv };
        let error = ServerProcess::start(&spec, None, &std::env::temp_dir()).err().expect("it cannot start");
        assert!(format!("{error:#}").contains("it broke"), "{error:#}");
    }

    #[test]
    fn own_cpu_time_grows() {
        let pid = std::process::id();
        let start = Instant::now();
        let before = cpu_us_of(pid).expect("alive");
        while cpu_us_of(pid).expect("alive") <= before {
            assert!(start.elapsed() < Duration::from_secs(60), "no time used in 60 s of spinning");
        }
        assert!(busy_us_of(&[0]).expect("there is a processor 0") > 0);
        assert!(busy_us_of(&[1 << 20]).is_err());
    }

    #[test]
    fn a_port_that_is_taken_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        assert!(await_free(port).is_err());
        drop(listener);
        assert!(await_free(port).is_ok());
    }
}
