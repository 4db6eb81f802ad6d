//! Going through files without loading them: `--check-rdb FILE` and `--check-aof [--fix] DIRECTORY|MANIFEST`, or by the names
//! under which a program of Redis's does that.

use crate::config::Config;
use crate::payload::{Build, Limits};
use gimmal_log::aof::{self, BaseKind, Directory, RealDisk};
use gimmal_rdb::Kind;
use gimmal_rdb::file::{Entry, Item, Reader};
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is in a snapshot.
#[derive(Debug, Default)]
pub struct RdbReport {
    /// The file.
    pub path: PathBuf,
    /// Version of its format.
    pub version: u32,
    /// Remarks.
    pub remarks: Vec<(String, String)>,
    /// Keys by type.
    pub keys: BTreeMap<&'static str, u64>,
    /// Keys that expire.
    pub expiring: u64,
    /// Those of them whose time is past.
    pub expired: u64,
    /// Keys whose value has no element, which a load leaves out.
    pub empty: u64,
    /// Libraries of functions.
    pub functions: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Bytes behind its end: commands, if it is the base of an append-only file.
    pub behind: u64,
    /// It carries a checksum, which is right if there is no `problem`.
    pub has_checksum: bool,
    /// What is wrong with it, where, and which key came last.
    pub problem: Option<String>,
}

/// Goes through a snapshot: every value is decoded, and dropped.
///
/// # Errors
/// The file cannot be opened. What is wrong with its contents is part of the report.
pub fn check_rdb(path: &Path) -> io::Result<RdbReport> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut report = RdbReport { path: path.to_owned(), ..RdbReport::default() };
    let mut last = None;
    if let Err(error) = go_through(&file, &mut report, &mut last) {
        let after = match last {
            Some((db, name)) => format!("; the last key was '{}' of database {db}", name.escape_ascii()),
            None => String::new(),
        };
        report.problem = Some(format!("{} at offset {}{after}", error.kind, error.offset));
        return Ok(report);
    }
    report.behind = length - report.bytes;
    let mut stored = [0; 8];
    if report.version >= FIRST_WITH_CHECKSUM {
        file.read_exact_at(&mut stored, report.bytes - 8)?;
    }
    report.has_checksum = stored != [0; 8];
    Ok(report)
}

/// Older files have no checksum.
const FIRST_WITH_CHECKSUM: u32 = 5;
/// Longest remark that is shown.
const REMARK: usize = 200;

fn go_through(file: &File, report: &mut RdbReport, last: &mut Option<(u64, Vec<u8>)>) -> gimmal_rdb::Result<()> {
    let now_ms = crate::now_ms();
    let limits = Limits::of(&Config::default());
    let mut reader = Reader::new(file)?;
    report.version = reader.version();
    loop {
        match reader.next()? {
            Item::Entry(Entry { db, tag, expire_at_ms, .. }) => {
                *last = Some((db, reader.key().to_vec()));
                match reader.value(&mut Build::new(limits)) {
                    Err(error) if error.is_empty_value() => report.empty += 1,
                    other => other?,
                }
                *report.keys.entry(name_of(tag)).or_default() += 1;
                report.expiring += u64::from(expire_at_ms.is_some());
                report.expired += u64::from(expire_at_ms.is_some_and(|at_ms| at_ms < now_ms));
            }
            Item::Aux { name, value } => {
                let text = |bytes: &[u8]| bytes[..bytes.len().min(REMARK)].escape_ascii().to_string();
                report.remarks.push((text(name), text(value)));
            }
            Item::Function(_) => report.functions += 1,
            Item::Database(_) | Item::Sizes { .. } | Item::ModuleAux => {}
            Item::End => {
                report.bytes = reader.position();
                return Ok(());
            }
        }
    }
}

fn name_of(tag: u8) -> &'static str {
    match gimmal_rdb::kind(tag) {
        Some(Kind::String) => "string",
        Some(Kind::List) => "list",
        Some(Kind::Set) => "set",
        Some(Kind::SortedSet) => "zset",
        Some(Kind::Hash) => "hash",
        Some(Kind::Stream) => "stream",
        None => "unknown",
    }
}

impl fmt::Display for RdbReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{}: RDB version {}", self.path.display(), self.version)?;
        for (name, value) in &self.remarks {
            writeln!(out, "  {name} = '{value}'")?;
        }
        writeln!(out, "{} keys", self.keys.values().sum::<u64>())?;
        for (kind, count) in &self.keys {
            writeln!(out, "  {kind}: {count}")?;
        }
        writeln!(out, "{} expire, {} of them have already", self.expiring, self.expired)?;
        if self.empty > 0 {
            writeln!(out, "{} have no element, and are left out by a load", self.empty)?;
        }
        if self.functions > 0 {
            writeln!(out, "{} libraries of functions", self.functions)?;
        }
        match &self.problem {
            Some(problem) => return writeln!(out, "It is damaged: {problem}."),
            None if self.has_checksum => writeln!(out, "{} bytes, and the checksum is right.", self.bytes)?,
            None => writeln!(out, "{} bytes; it was written without a checksum.", self.bytes)?,
        }
        if self.behind > 0 {
            writeln!(out, "{} bytes follow its end: commands, if a log begins with it.", self.behind)?;
        }
        Ok(())
    }
}

/// Does what a command line asks for, if it is a check: the text to print, and whether all is well.
pub fn asked(program: &str, arguments: &[String]) -> Option<(String, bool)> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let answer = match &words[..] {
        ["--check-rdb", rest @ ..] => rdb(rest),
        ["--check-aof", rest @ ..] => log(rest),
        rest if program.ends_with("check-rdb") => rdb(rest),
        rest if program.ends_with("check-aof") => log(rest),
        _ => return None,
    };
    Some(answer)
}

fn rdb(words: &[&str]) -> (String, bool) {
    let [path] = words else { return ("usage: gimmal-server --check-rdb FILE".into(), false) };
    match check_rdb(Path::new(path)) {
        Ok(report) => (report.to_string(), report.problem.is_none()),
        Err(error) => (format!("{path}: {error}"), false),
    }
}

fn log(words: &[&str]) -> (String, bool) {
    let (path, fix) = match words {
        [path] => (path, false),
        ["--fix", path] | [path, "--fix"] => (path, true),
        _ => return ("usage: gimmal-server --check-aof [--fix] DIRECTORY|MANIFEST".into(), false),
    };
    check_log(Path::new(path), fix).unwrap_or_else(|error| (error, false))
}

/// Looks through an append-only directory, its base included.
fn check_log(path: &Path, fix: bool) -> Result<(String, bool), String> {
    let told = |error: io::Error| format!("{}: {error}", path.display());
    let mut directory = open(path).map_err(told)?;
    let base = directory.base().map_err(told)?;
    let (mut text, mut sound) = (String::new(), true);
    if let Some((path, BaseKind::Rdb)) = base {
        let report = check_rdb(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        sound = report.problem.is_none();
        write!(text, "{report}").expect("a string takes everything");
    }
    let report = aof::check(&mut directory, fix).map_err(|error| error.to_string())?;
    write!(text, "{report}").expect("a string takes everything");
    Ok((text, sound && report.is_sound()))
}

/// The append-only directory that this is, or whose manifest this is.
fn open(path: &Path) -> io::Result<Directory> {
    let path = path.canonicalize()?;
    let manifest = if path.is_dir() { manifest_in(&path)? } else { path };
    let (name, directory) = (manifest.file_name(), manifest.parent());
    let name = name.and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(MANIFEST));
    let parent = directory.and_then(Path::parent);
    let directory = directory.and_then(Path::file_name).and_then(|name| name.to_str());
    let (Some(name), Some(directory), Some(parent)) = (name, directory, parent) else {
        return Err(io::Error::other("it is neither an append-only directory nor its manifest"));
    };
    Directory::open(Arc::new(RealDisk), parent, directory, name)
}

const MANIFEST: &str = ".manifest";

fn manifest_in(directory: &Path) -> io::Result<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(MANIFEST) {
            found.push(path);
        }
    }
    match found.pop() {
        Some(path) if found.is_empty() => Ok(path),
        Some(_) => Err(io::Error::other("it has several manifests: name one of them")),
        None => Err(io::Error::other("it has no manifest")),
    }
}
