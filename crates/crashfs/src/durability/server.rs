//! The server under test: a command line, started in a directory, killed when dropped.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gimmal_resp::Reply;

use super::client::Client;

/// How long a server may take until it serves.
const START_LIMIT: Duration = Duration::from_secs(120);

/// How long the children of a killed server may take to disappear.
const END_LIMIT: Duration = Duration::from_secs(60);

/// How to start one: program and arguments, in which `{dir}` and `{port}` are replaced.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Program and arguments.
    pub argv: Vec<String>,
}

/// A running one.
pub struct Server {
    child: Child,
    port: u16,
}

/// Why there is none.
#[derive(Debug)]
pub enum StartError {
    /// It ended by itself; the end of what it printed.
    Refused(String),
    /// The test itself could not do its part.
    Broken(anyhow::Error),
}

impl From<anyhow::Error> for StartError {
    fn from(error: anyhow::Error) -> Self {
        Self::Broken(error)
    }
}

impl Subject {
    /// Starts it on the files in `dir`; what it prints goes to `log`.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(&self, dir: &Path, log: &Path) -> Result<Server, StartError> {
        let port = free_port()?;
        let child = self.spawn(dir, log, port)?;
        let mut server = Server { child, port };
        let start = Instant::now();
        loop {
            if let Some(status) = server.child.try_wait().context("waiting for the server")? {
                let printed = fs::read(log).unwrap_or_default();
                let printed = String::from_utf8_lossy(&printed);
                let lines: Vec<&str> = printed.lines().collect();
                let end = lines[lines.len().saturating_sub(4)..].join(" / ");
                return Err(StartError::Refused(format!("{status}: {end}")));
            }
            // While it loads it answers errors.
            if let Ok(mut client) = Client::connect(port)
                && matches!(client.ask(&["PING"]), Ok(Reply::Simple(_)))
            {
                return Ok(server);
            }
            if start.elapsed() > START_LIMIT {
                return Err(StartError::Refused(format!("it does not serve after {START_LIMIT:?}")));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn spawn(&self, dir: &Path, log: &Path, port: u16) -> Result<Child> {
        let dir_text = dir.to_str().context("a directory that is not text")?;
        let replaced = |word: &String| word.replace("{dir}", dir_text).replace("{port}", &port.to_string());
        let argv: Vec<String> = self.argv.iter().map(replaced).collect();
        let (program, arguments) = argv.split_first().context("no command line")?;
        let printed = File::create(log).with_context(|| log.display().to_string())?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(dir).stdin(Stdio::null());
        command.stdout(printed.try_clone()?).stderr(printed);
        // A group of its own: its children, which save and rewrite, must die with it.
        command.process_group(0);
        command.spawn().with_context(|| format!("cannot start {program}"))
    }
}

impl Server {
    /// The port that it serves.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// It has ended; how.
    pub fn check_runs(&mut self) -> Result<()> {
        let status = self.child.try_wait()?;
        ensure!(status.is_none(), "the server ended by itself: {status:?}");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        let signal = |signal: &str| {
            let line = ["-c", "kill -s \"$0\" -- \"$1\"", signal, &group];
            let status = Command::new("sh").args(line).stdin(Stdio::null()).stderr(Stdio::null()).status();
            status.is_ok_and(|status| status.success())
        };
        // These fail only if it has ended already.
        signal("KILL");
        drop(self.child.kill());
        drop(self.child.wait());
        let start = Instant::now();
        while signal("0") && start.elapsed() < END_LIMIT {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
