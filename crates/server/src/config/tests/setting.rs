//! CONFIG GET and CONFIG SET.

use super::{Scratch, config, get};
use crate::config::directive::{Change, Form, Kind};
use crate::config::{Caller, Config, Id, SetError};

#[track_caller]
fn refused(config: &Config, pairs: &[(&str, &str)]) -> String {
    let pairs: Vec<(&[u8], &[u8])> = pairs.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
    config.set(&pairs).expect_err("an error").to_string()
}

fn set(config: &Config, name: &str, value: &str) -> Result<Config, SetError> {
    config.set(&[(name.as_bytes(), value.as_bytes())])
}

#[test]
fn matching_finds_names_aliases_and_globs_once_each() {
    let config = Config::default();
    let names = |patterns: &[&[u8]]| config.matching(patterns).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(config.matching(&[b"port"]), [("port".into(), "6379".into())]);
    assert_eq!(names(&[b"MaxMemory"]), ["MaxMemory"]);
    assert_eq!(names(&[b"hash-max-*-value"]), ["hash-max-listpack-value", "hash-max-ziplist-value"]);
    assert_eq!(names(&[b"hz", b"HZ", b"h[z]", b"nothing", b"po?t"]), ["hz", "port"]);
    assert_eq!(names(&[b"nothing*", b"\xff*", b"\xff"]), Vec::<String>::new());
    assert_eq!(names(&[b"watchdog-period"]), ["watchdog-period"]);
    assert!(!names(&[b"*"]).contains(&"watchdog-period".to_owned()));
    assert!(names(&[b"*"]).len() > 200);
}

/// A test suite that sets every directive to what CONFIG GET says, but for those that are fixed in its server, failed at
/// `workers`.
#[test]
fn own_fixed_directives_may_be_set_to_what_they_are() {
    let config = Config::default();
    for (name, value) in [("workers", "0"), ("shards", "1024"), ("io-threads-do-reads", "no")] {
        let same = set(&config, name, value).expect(name);
        assert_eq!(same.changes_since(&config), [], "{name}");
    }
    for (name, value) in [("workers", "3"), ("io-threads-do-reads", "yes"), ("databases", "16")] {
        assert!(set(&config, name, value).is_err(), "{name}");
    }
}

#[test]
fn errors_have_the_words_of_redis() {
    let config = Config::default();
    let failed = |argument: &str, reason: &str| {
        format!("ERR CONFIG SET failed (possibly related to argument '{argument}') - {reason}")
    };
    let unknown = |name: &str| format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'");
    assert_eq!(refused(&config, &[("foo", "1"), ("port", "x")]), unknown("foo"));
    assert_eq!(refused(&config, &[("fo\r\no", "1")]), unknown("fo  o"));
    assert_eq!(
        refused(&config, &[("databases", "3"), ("foo", "1")]),
        failed("databases", "can't set immutable config")
    );
    assert_eq!(refused(&config, &[("dir", "/")]), failed("dir", "can't set protected config"));
    assert_eq!(refused(&config, &[("maxmemory", "1"), ("MAXMEMORY", "2")]), failed("MAXMEMORY", "duplicate parameter"));
    assert_eq!(
        refused(&config, &[("slave-priority", "1"), ("replica-priority", "2")]),
        failed("replica-priority", "duplicate parameter")
    );
    assert_eq!(refused(&config, &[("port", "abc")]), failed("port", "argument couldn't be parsed into an integer"));
    assert_eq!(
        refused(&config, &[("hz", "1"), ("Slave-Priority", "abc")]),
        failed("slave-priority", "argument couldn't be parsed into an integer")
    );
    assert_eq!(
        refused(&config, &[("timeout", "-1")]),
        failed("timeout", "argument must be between 0 and 2147483647 inclusive")
    );
    assert_eq!(refused(&config, &[("save", "100 1 300")]), failed("save", "Invalid save parameters"));
    assert_eq!(
        refused(&config, &[("shutdown-on-sigint", "")]),
        failed("shutdown-on-sigint", "argument(s) must be one of the following: default, save, nosave, now, force")
    );
    assert_eq!(
        config.set(&[(b"requirepass", b"\xff")]).expect_err("an error").to_string(),
        failed("requirepass", "argument is not valid UTF-8")
    );
    assert_eq!(
        SetError::refused(Id::of("port"), "Unable to listen on this port. Check server logs.").to_string(),
        failed("port", "Unable to listen on this port. Check server logs.")
    );
}

#[test]
fn protected_directives_need_leave() {
    let local = Caller { local: true, loading: false };
    let pairs: &[(&[u8], &[u8])] = &[(b"dbfilename", b"x.rdb")];
    assert!(Config::default().set_by(local, pairs).is_err());
    let for_local = config(&["--enable-protected-configs", "local"]);
    assert!(for_local.set(pairs).is_err());
    assert_eq!(for_local.set_by(local, pairs).expect("leave").dbfilename(), "x.rdb");
    assert!(config(&["--enable-protected-configs", "yes"]).set(pairs).is_ok());
}

#[test]
fn nothing_that_a_load_depends_on_changes_while_it_runs() {
    let loading = Caller { local: true, loading: true };
    let error = Config::default().set_by(loading, &[(b"appendonly", b"yes")]).expect_err("loading");
    assert_eq!(error.to_string(), "LOADING Redis is loading the dataset in memory");
    assert!(Config::default().set_by(loading, &[(b"hz", b"20")]).is_ok());
}

#[test]
fn all_or_nothing_and_the_difference_is_known() {
    let before = Config::default();
    let after = before.set(&[(b"hz", b"20"), (b"maxmemory", b"5MB"), (b"timeout", b"0")]).expect("valid");
    assert_eq!(after.changes_since(&before), [Id::of("hz"), Id::of("maxmemory")]);
    assert_eq!((after.hz(), after.maxmemory(), before.maxmemory()), (20, 5 << 20, 0));
    assert!(before.set(&[(b"hz", b"20"), (b"maxmemory", b"x")]).is_err());
}

#[test]
fn values_print_as_redis_prints_them() {
    let mut config = Config::default();
    for (name, value, printed) in [
        ("appendfsync", "ALWAYS", "always"),
        ("oom-score-adj", "relative", "yes"),
        ("shutdown-on-sigint", "SAVE force", "save force"),
        ("latency-tracking-info-percentiles", "50.5 99.9999999", "50.5 100"),
        ("latency-tracking-info-percentiles", "", ""),
        ("maxmemory-clients", "5%", "5%"),
        ("maxmemory-clients", "1g", "1000000000"),
        ("notify-keyspace-events", "KEA", "AKE"),
        ("notify-keyspace-events", "g$lshzxetdKEm", "AKEm"),
        ("notify-keyspace-events", "xE", "xE"),
        ("notify-keyspace-events", "An", "An"),
        ("notify-keyspace-events", "", ""),
        (
            "client-output-buffer-limit",
            "replica 1k 1kb 5",
            "normal 1073741824 67108864 60 slave 1000 1024 5 pubsub 33554432 8388608 60",
        ),
        ("save", "", ""),
        ("save", "60 1", "60 1"),
        ("bind", "", ""),
        ("hz", "0", "1"),
        ("activerehashing", "NO", "no"),
    ] {
        config = set(&config, name, value).unwrap_or_else(|error| panic!("{name} {value}: {error}"));
        assert_eq!(get(&config, name), printed, "{name} {value}");
    }
}

/// Values other than the default that a directive must take.
fn samples(id: Id, scratch: &Scratch) -> Vec<String> {
    let words = |words: &[(&str, u8)]| words.iter().map(|(word, _)| (*word).to_owned()).collect();
    match id.directive().kind {
        Kind::Flag(_) => vec!["yes".into(), "no".into()],
        Kind::Number { min, max, .. } if id == Id::of("hz") => vec![min.max(1).to_string(), max.min(500).to_string()],
        Kind::Number { min, max, .. } => vec![min.to_string(), max.to_string()],
        Kind::Bytes { max, .. } if id == Id::of("repl-backlog-size") => vec!["16384".into(), max.to_string()],
        Kind::Bytes { min, max, .. } => vec![min.to_string(), max.to_string()],
        Kind::BytesOrPercent { max } => vec!["0".into(), max.to_string(), "100%".into()],
        Kind::Octal { max } => vec![format!("{max:o}")],
        Kind::Choice { words: known, .. } => words(known),
        Kind::Choices { .. } => vec!["save now force".into(), "default".into()],
        Kind::Text { .. } => match id.directive().name {
            "cluster-announce-client-ipv4" => vec!["10.0.0.1".into()],
            "cluster-announce-client-ipv6" => vec!["2001:db8::1".into()],
            "reply-queue-partial" => vec!["auto".into(), "1024".into()],
            "proc-title-template" => vec!["{port} {{x".into()],
            "dbfilename" | "cluster-announce-hostname" | "cluster-announce-human-nodename" => vec!["a-b".into()],
            _ => vec!["with space \"quoted\" größe\n".into(), String::new()],
        },
        Kind::List { form, .. } => match form {
            Form::Addresses => vec!["::1 *".into(), String::new()],
            Form::SavePoints => vec!["1 0 2 3".into(), String::new()],
            Form::OutputLimits => vec!["normal 0 0 0 slave 1 2 3 pubsub 4 5 6".into()],
            Form::OomScores => vec!["-2000 0 2000".into()],
            Form::Percentiles => vec!["0 12.345678 100".into(), String::new()],
            Form::ReplicaOf => vec!["host 1".into()],
            Form::Events => vec!["A".into(), "g$lsKm".into(), "AnKEm".into(), String::new()],
            Form::Directory => vec![scratch.path().display().to_string()],
        },
    }
}

#[test]
fn every_directive_that_may_change_gives_back_what_it_was_given() {
    let scratch = Scratch::new();
    let mut config = config(&["--enable-protected-configs", "yes"]);
    let mut tried = 0;
    for id in Id::all().filter(|id| id.directive().change != Change::AtStart) {
        for value in samples(id, &scratch) {
            for name in id.directive().names() {
                config = set(&config, name, &value).unwrap_or_else(|error| panic!("{name} {value:?}: {error}"));
                let printed = get(&config, name);
                let again = set(&config, name, &printed).unwrap_or_else(|error| panic!("{name} {printed:?}: {error}"));
                assert_eq!(again, config, "{name} {value:?}");
                let synonym = id == Id::of("oom-score-adj") && value == "relative";
                assert!(printed == value || synonym, "{name}: {value:?} is printed as {printed:?}");
                tried += 1;
            }
        }
    }
    assert!(tried > 2 * 150, "{tried}");
}

#[test]
fn every_directive_takes_its_values_from_a_file_and_survives_a_rewrite() {
    let scratch = Scratch::new();
    for id in Id::all() {
        for value in samples(id, &scratch) {
            let name = id.directive().name;
            let quoted = crate::config::words::quote(&value);
            let value_words = if name == "shards" { "16384" } else { &quoted };
            let file = scratch.write("one.conf", format!("{name} {value_words}\n"));
            let Ok(loaded) = crate::config::read(&[&file]) else {
                // Names of files are checked further; a name with quotes in it is none of theirs.
                assert!(["appendfilename", "appenddirname", "cluster-config-file"].contains(&name), "{name} {value:?}");
                continue;
            };
            let text = loaded.config.rewrite(&std::fs::read(&file).expect("the file"), None);
            std::fs::write(&file, &text).expect("the file");
            let again = super::config(&[&file]);
            assert_eq!(again, loaded.config, "{name} {value:?}: {}", String::from_utf8_lossy(&text));
            assert_eq!(again.rewrite(&text, None), text, "{name} {value:?}");
        }
    }
}

#[test]
fn secrets_are_known_as_such() {
    assert!(Config::is_sensitive(b"RequirePass"));
    assert!(Config::is_sensitive(b"primaryauth"));
    assert!(!Config::is_sensitive(b"port"));
    assert!(!Config::is_sensitive(b"\xff"));
}
