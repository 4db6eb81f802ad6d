//! Reads script files into cases and steps.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::Protocol;
use super::pattern::{Pattern, repetition};
use crate::words::{double_quoted, split_text};

/// A script file.
#[derive(Debug)]
pub struct Script {
    /// Its name, for messages.
    pub name: String,
    /// Arguments for the server's command line.
    pub server_args: Vec<String>,
    /// The password that the runner needs for its own connection.
    pub password: Option<String>,
    /// Its cases.
    pub cases: Vec<Case>,
}

/// A case: run on an empty keyspace, with connections of its own.
#[derive(Debug)]
pub struct Case {
    /// What it shows.
    pub title: String,
    /// The line of its title, from 1.
    pub line: usize,
    /// The protocols it is run in.
    pub protocols: Vec<Protocol>,
    /// The servers that must pass it.
    pub audience: Audience,
    /// Commands without which it cannot be run.
    pub needs: Vec<String>,
    /// What happens.
    pub steps: Vec<Step>,
}

/// Which servers a case is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Gimmal and the oracle.
    All,
    /// Gimmal only: its own features, or where it differs on purpose.
    Gimmal,
}

/// One line of a case.
#[derive(Debug)]
pub struct Step {
    /// Its line, from 1.
    pub line: usize,
    /// The connection it is about; empty for the unnamed one.
    pub connection: String,
    /// What happens on it.
    pub action: Action,
}

/// What a step does.
#[derive(Debug)]
pub enum Action {
    /// Sends a command as an array of bulk strings.
    Command(Vec<Vec<u8>>),
    /// Sends bytes as they are, piece by piece, with a pause between.
    Raw(Vec<Vec<u8>>),
    /// Takes a reply and compares it; with a protocol only on a connection that speaks it.
    Expect(Option<Protocol>, Pattern),
    /// Expects that the server closes the connection.
    ExpectEnd,
    /// Expects that nothing comes for a while.
    ExpectSilence,
    /// Closes the client's end.
    Close,
    /// Lets time pass.
    Sleep(Duration),
    /// The next command is sent again and again until its reply is as expected.
    Until,
}

impl Script {
    /// Reads a script.
    ///
    /// # Errors
    /// A line that is none of the format, with its number.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let mut script = Self { name: name.to_owned(), server_args: Vec::new(), password: None, cases: Vec::new() };
        for (number, line) in logical_lines(text) {
            script.line(number, &line).with_context(|| format!("{name}:{number}: {line}"))?;
        }
        ensure!(!script.cases.is_empty(), "{name} has no cases");
        Ok(script)
    }

    fn line(&mut self, number: usize, line: &str) -> Result<()> {
        if let Some(title) = line.strip_prefix("== ") {
            self.cases.push(Case::titled(title, number)?);
            return Ok(());
        }
        if let (Some(directive), true) = (line.strip_prefix("! "), self.cases.is_empty()) {
            match directive.split_once(' ') {
                Some(("server", args)) => self.server_args = split_text(args)?,
                Some(("password", password)) => self.password = Some(password.trim().to_owned()),
                _ => bail!("before the first case stand `! server ARGS` and `! password WORD`"),
            }
            return Ok(());
        }
        let case = self.cases.last_mut().context("a step before the first case")?;
        let (connection, action) = step(line)?;
        case.steps.push(Step { line: number, connection, action });
        Ok(())
    }
}

impl Case {
    fn titled(title: &str, line: usize) -> Result<Self> {
        let (title, tags) = match title.split_once(" [") {
            Some((title, tags)) => (title, tags.strip_suffix(']').context("a tag without its end")?),
            None => (title, ""),
        };
        let mut case = Self {
            title: title.to_owned(),
            line,
            protocols: vec![Protocol::Resp2, Protocol::Resp3],
            audience: Audience::All,
            needs: Vec::new(),
            steps: Vec::new(),
        };
        for tag in tags.split_whitespace() {
            match tag {
                "resp2" => case.protocols = vec![Protocol::Resp2],
                "resp3" => case.protocols = vec![Protocol::Resp3],
                "gimmal" => case.audience = Audience::Gimmal,
                _ => match tag.strip_prefix("needs:") {
                    Some(command) => case.needs.push(command.to_owned()),
                    None => bail!("no such tag: {tag}"),
                },
            }
        }
        Ok(case)
    }
}

/// Lines with their numbers, without comments and empty ones; a line that starts with a space continues the last.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        match line.chars().next() {
            None | Some('#') => {}
            Some(' ') if !lines.is_empty() => {
                let (_, last) = lines.last_mut().expect("not empty");
                last.push_str(line);
            }
            Some(_) => lines.push((at + 1, line.to_owned())),
        }
    }
    lines
}

fn step(line: &str) -> Result<(String, Action)> {
    if let Some(directive) = line.strip_prefix("! ") {
        return match directive.split_once(' ') {
            Some(("sleep", ms)) => Ok((String::new(), Action::Sleep(Duration::from_millis(ms.trim().parse()?)))),
            Some(("close", name)) => Ok((name.trim().to_owned(), Action::Close)),
            None if directive == "until" => Ok((String::new(), Action::Until)),
            None if directive == "close" => Ok((String::new(), Action::Close)),
            _ => bail!("no such directive"),
        };
    }
    let mark = line.find(['<', '>']).context("neither sent (>) nor expected (<)")?;
    let (connection, rest) = line.split_at(mark);
    ensure!(connection.chars().all(|c| c.is_ascii_alphanumeric()), "no connection is named {connection:?}");
    let (mark, text) = rest.split_once(' ').context("a mark without anything behind it")?;
    let action = match mark {
        ">" => Action::Command(command(text)?),
        ">>" => Action::Raw(pieces(text)?),
        "<" if text.trim() == "EOF" => Action::ExpectEnd,
        "<" if text.trim() == "SILENCE" => Action::ExpectSilence,
        "<" => Action::Expect(None, Pattern::parse(text)?),
        "<2" => Action::Expect(Some(Protocol::Resp2), Pattern::parse(text)?),
        "<3" => Action::Expect(Some(Protocol::Resp3), Pattern::parse(text)?),
        _ => bail!("no such mark: {mark}"),
    };
    Ok((connection.to_owned(), action))
}

/// Words apart by spaces; a quoted one may be repeated (`"ab"*100`).
fn command(text: &str) -> Result<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = text.trim().as_bytes();
    while !rest.is_empty() {
        let word;
        if rest[0] == b'"' {
            (word, rest) = repeated(rest, text)?;
            ensure!(rest.first().is_none_or(u8::is_ascii_whitespace), "no space after a quoted word");
        } else {
            let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
            word = rest[..end].to_vec();
            rest = &rest[end..];
        }
        words.push(word);
        rest = rest.trim_ascii_start();
    }
    ensure!(!words.is_empty(), "an empty command");
    Ok(words)
}

/// Quoted strings one after the other; `|` between them is a cut.
fn pieces(text: &str) -> Result<Vec<Vec<u8>>> {
    let mut pieces = vec![Vec::new()];
    let mut rest = text.trim().as_bytes();
    while !rest.is_empty() {
        if rest[0] == b'|' {
            pieces.push(Vec::new());
            rest = &rest[1..];
        } else {
            ensure!(rest[0] == b'"', "raw bytes are quoted");
            let (bytes, after) = repeated(rest, text)?;
            pieces.last_mut().expect("never empty").extend_from_slice(&bytes);
            rest = after;
        }
        rest = rest.trim_ascii_start();
    }
    Ok(pieces)
}

fn repeated<'a>(text: &'a [u8], line: &str) -> Result<(Vec<u8>, &'a [u8])> {
    let (bytes, rest) = double_quoted(text, line)?;
    let (times, rest) = repetition(rest)?;
    Ok((bytes.repeat(times), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# a comment
! server --requirepass "a b"
! password ab

== a title [resp3 gimmal needs:lpush]
> SET k "a\n"*2
<2 +OK
b>> "PI" "N"*2 | "G\r\n"
b< [:1
   :2]
b< EOF
< SILENCE
! sleep 20
! close b
"#;

    #[test]
    fn a_script_is_read() {
        let script = Script::parse("x.txt", TEXT).expect("parses");
        assert_eq!(script.server_args, ["--requirepass", "a b"]);
        assert_eq!(script.password.as_deref(), Some("ab"));
        let case = &script.cases[0];
        assert_eq!((case.title.as_str(), case.line, case.audience), ("a title", 5, Audience::Gimmal));
        assert_eq!(case.protocols, [Protocol::Resp3]);
        assert_eq!(case.needs, ["lpush"]);
        let steps: Vec<_> = case.steps.iter().map(|step| (step.line, step.connection.as_str())).collect();
        assert_eq!(steps, [(6, ""), (7, ""), (8, "b"), (9, "b"), (11, "b"), (12, ""), (13, ""), (14, "b")]);
        assert!(matches!(&case.steps[0].action, Action::Command(words) if words[2] == b"a\na\n"));
        assert!(matches!(&case.steps[1].action, Action::Expect(Some(Protocol::Resp2), _)));
        assert!(matches!(&case.steps[2].action, Action::Raw(raw) if *raw == [b"PINN".to_vec(), b"G\r\n".to_vec()]));
        assert!(matches!(&case.steps[3].action, Action::Expect(None, Pattern::Array(items)) if items.len() == 2));
        assert!(matches!(&case.steps[6].action, Action::Sleep(time) if time.as_millis() == 20));
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        for (text, line) in [("> PING\n", 1), ("== a\n>PING\n", 2), ("== a [x]\n", 1), ("== a\n\n< what\n", 3)] {
            let error = format!("{:#}", Script::parse("x", text).expect_err("refused"));
            assert!(error.starts_with(&format!("x:{line}: ")), "{error}");
        }
        assert!(Script::parse("x", "# nothing\n").is_err());
    }
}
