//! Reading the configuration at start: file, then standard input, then the command line's options, line by line.

use super::choices::IoModel;
use super::command_line::{self, CommandLine};
use super::directive::Effect;
use super::error::{ConfigError, Origin, Place};
use super::lists::plain;
use super::value::{Reading, Value};
use super::words::split;
use super::{Config, Id, Rename, include};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A configuration that was read, and what its owner should know about it.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Lines for the start log: directives without effect, values that were changed.
    pub notes: Vec<String>,
}

/// What a command line asks for.
#[derive(Debug)]
pub enum Invocation {
    /// To serve with this configuration.
    Run(Box<Loaded>),
    /// To print this (version or help) and end.
    Print(String),
}

/// Does what a command line (without the program's name) asks for, as far as the configuration is concerned.
///
/// # Errors
/// The first line that is refused, or a file that cannot be read.
pub fn load<S: AsRef<OsStr>>(arguments: &[S]) -> Result<Invocation, ConfigError> {
    match command_line::answer(arguments) {
        Some(text) => Ok(Invocation::Print(text)),
        None => read(arguments).map(|loaded| Invocation::Run(Box::new(loaded))),
    }
}

/// Reads the configuration that a command line (without the program's name) asks for.
///
/// # Errors
/// The first line that is refused, or a file that cannot be read.
pub fn read<S: AsRef<OsStr>>(arguments: &[S]) -> Result<Loaded, ConfigError> {
    let CommandLine { file, stdin, lines } = command_line::parse(arguments).map_err(ConfigError::general)?;
    let mut loader = Loader::new(&working_directory());
    if let Some(file) = file {
        let path = loader.base().join(file);
        let path = path.canonicalize().unwrap_or(path);
        loader.config.file = Some(path.clone());
        loader.file(&path)?;
    }
    if stdin {
        let mut text = Vec::new();
        std::io::stdin()
            .read_to_end(&mut text)
            .map_err(|error| ConfigError::general(format!("can't read standard input: {}", plain(&error))))?;
        loader.text(&Origin::Stdin, &text)?;
    }
    loader.text(&Origin::CommandLine, lines.join("\n").as_bytes())?;
    loader.finish()
}

/// The directory the process runs in, or the root where it has been removed.
pub(super) fn working_directory() -> PathBuf {
    std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"))
}

/// Deepest nesting of includes; real files need two or three.
const INCLUDE_DEPTH_MAX: usize = 32;

/// Directives of older versions that do nothing and are accepted with one value.
const FORGOTTEN: &[&str] = &["list-max-ziplist-entries", "list-max-ziplist-value", "lua-replicate-commands"];

/// Directives of Redis that are not ignored with `io-model phases`.
const BY_PHASES: &[&str] = &["io-threads", "io-threads-do-reads"];

/// What is read so far.
pub(super) struct Loader {
    config: Config,
    /// Directives that a line has set.
    given: BTreeSet<Id>,
    /// Files being read, outermost first.
    open: Vec<PathBuf>,
}

impl Loader {
    pub(super) fn new(base: &Path) -> Loader {
        Loader { config: Config::new(base), given: BTreeSet::new(), open: Vec::new() }
    }

    /// What relative paths are relative to: the last `dir`, as if the process had gone there.
    fn base(&self) -> PathBuf {
        self.config.dir().to_path_buf()
    }

    fn file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let text = std::fs::read(path).map_err(|error| {
            ConfigError::general(format!("Fatal error, can't open config file '{}': {}", path.display(), plain(&error)))
        })?;
        self.open.push(path.to_path_buf());
        self.text(&Origin::File(path.to_path_buf()), &text)?;
        self.open.pop();
        Ok(())
    }

    pub(super) fn text(&mut self, origin: &Origin, text: &[u8]) -> Result<(), ConfigError> {
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            self.line(line).map_err(|stop| match stop {
                Stop::Here(reason) => {
                    let text = String::from_utf8_lossy(line).into_owned();
                    ConfigError { place: Some(Place { origin: origin.clone(), line: index + 1, text }), reason }
                }
                Stop::Inside(error) => error,
            })?;
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Stop> {
        let words = split(line).ok_or("Unbalanced quotes in configuration line")?;
        let words: Vec<String> = words
            .into_iter()
            .map(String::from_utf8)
            .collect::<Result<_, _>>()
            .map_err(|_| "the line is not valid UTF-8")?;
        let Some((name, arguments)) = words.split_first() else { return Ok(()) };
        match Id::find(name) {
            Some(id) => Ok(self.directive(id, arguments)?),
            None => self.special(&name.to_ascii_lowercase(), arguments),
        }
    }

    fn directive(&mut self, id: Id, arguments: &[String]) -> Result<(), String> {
        let directive = id.directive();
        // `--bind "a b"` and `bind a b` mean the same.
        let split_again = match arguments {
            [only] if directive.takes_many() && !only.is_empty() => {
                let words = split(only.as_bytes()).ok_or("Unbalanced quotes in configuration line")?;
                Some(words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>())
            }
            _ => None,
        };
        let base = self.base();
        let reading = Reading { previous: self.config.value(id), adds_up: self.given.contains(&id), base: &base };
        let value = directive.read(split_again.as_deref().unwrap_or(arguments), &reading)?;
        self.config.values[id.0] = value;
        self.given.insert(id);
        Ok(())
    }

    /// Lines that are no directives with a value.
    fn special(&mut self, name: &str, arguments: &[String]) -> Result<(), Stop> {
        match (name, arguments) {
            ("include", [pattern]) => return self.include(pattern),
            ("rename-command", [command, new_name]) => {
                self.config.renames.push(Rename { command: command.clone(), new_name: new_name.clone() });
            }
            ("user", [_, ..]) => self.config.users.push(arguments.to_vec()),
            ("loadmodule", [path, ..]) => {
                return Err(format!("Can't load module from {path}: this server has no modules").into());
            }
            ("sentinel", _) => {
                return Err("sentinel directive while not in sentinel mode: this server has no such mode".into());
            }
            (name, []) if name.contains('.') => return Err("Module config specified without value".into()),
            (name, _) if name.contains('.') => {
                return Err(format!("'{name}' belongs to a module: this server has no modules").into());
            }
            (name, [_]) if FORGOTTEN.contains(&name) => {}
            _ => return Err("Bad directive or wrong number of arguments".into()),
        }
        Ok(())
    }

    fn include(&mut self, pattern: &str) -> Result<(), Stop> {
        for path in include::files(&self.base(), pattern)? {
            let path = path.canonicalize().unwrap_or(path);
            if self.open.contains(&path) {
                return Err(format!("'{}' includes itself", path.display()).into());
            }
            if self.open.len() >= INCLUDE_DEPTH_MAX {
                return Err("includes are nested too deeply".into());
            }
            self.file(&path).map_err(|error| match error.place {
                Some(_) => Stop::Inside(error),
                None => Stop::Here(error.reason),
            })?;
        }
        Ok(())
    }

    /// Checks what concerns several directives, and says what has no effect.
    pub(super) fn finish(mut self) -> Result<Loaded, ConfigError> {
        let mut notes = Vec::new();
        if self.config.cluster_enabled() {
            if self.config.replica_of().is_some() {
                return Err(ConfigError::general("replicaof directive not allowed in cluster mode"));
            }
            if self.config.databases() > 1 {
                notes.push(format!("databases: 1 instead of {}, as in any cluster node", self.config.databases()));
                self.config.values[const { Id::of("databases").0 }] = Value::Number(1);
            }
        }
        let defaults = Config::default();
        let phases = self.config.io_model() == IoModel::Phases;
        let mut not_yet = Vec::new();
        let mut ignored = Vec::new();
        for id in self.config.changes_since(&defaults).into_iter().filter(|id| self.given.contains(id)) {
            match id.directive().effect {
                Effect::Works => {}
                Effect::Ignored(_) if phases && BY_PHASES.contains(&id.directive().name) => {}
                Effect::NotYet => not_yet.push(id.directive().name.to_owned()),
                Effect::Ignored(why) => ignored.push(format!("{} ({why})", id.directive().name)),
            }
        }
        if !not_yet.is_empty() {
            notes.push(format!("accepted, but without effect in this version: {}", not_yet.join(", ")));
        }
        if !ignored.is_empty() {
            notes.push(format!("ignored: {}", ignored.join(", ")));
        }
        Ok(Loaded { config: self.config, notes })
    }
}

/// Why reading stops: because of the line at hand, or of one in a file it includes.
enum Stop {
    Here(String),
    Inside(ConfigError),
}

impl From<String> for Stop {
    fn from(reason: String) -> Stop {
        Stop::Here(reason)
    }
}

impl From<&str> for Stop {
    fn from(reason: &str) -> Stop {
        Stop::Here(reason.to_owned())
    }
}
