//! Files, includes and the command line.

use super::{Scratch, config, get, loaded, refused};
use crate::config::load::Loader;
use crate::config::{Appendfsync, ClientClass, Id, IoEngine, LogLevel, MaxmemoryPolicy, Origin, Rename, SavePoint};

#[test]
fn no_arguments_mean_the_defaults() {
    let config = config(&[]);
    assert_eq!(config.port(), 6379);
    assert_eq!(config.bind(), ["127.0.0.1", "-::1"]);
    assert_eq!((config.workers(), config.shards(), config.databases()), (0, 1024, 16));
    assert_eq!(config.io_engine(), IoEngine::Auto);
    assert_eq!(config.loglevel(), LogLevel::Notice);
    assert_eq!(config.maxmemory_policy(), MaxmemoryPolicy::NoEviction);
    assert_eq!(config.appendfsync(), Appendfsync::EverySec);
    assert_eq!(
        (config.timeout(), config.tcp_keepalive(), config.tcp_backlog(), config.maxclients()),
        (0, 300, 511, 10_000)
    );
    assert_eq!(config.save().first(), Some(&SavePoint { seconds: 3600, changes: 1 }));
    assert_eq!(config.client_output_buffer_limit(ClientClass::Pubsub).hard, 32 << 20);
    assert_eq!(config.dir(), std::env::current_dir().expect("a directory"));
    assert_eq!(
        (config.pidfile(), config.logfile(), config.unixsocket(), config.unixsocketperm()),
        (None, "", None, None)
    );
    assert!(config.file().is_none());
}

#[test]
fn a_file_then_options() {
    let scratch = Scratch::new();
    let file = scratch.write(
        "a.conf",
        "# comment\n\n  PORT 7000\r\nbind 10.0.0.1 ::1\nmaxmemory 1Gb\nunixsocketperm 700\nrequirepass \"a b\\x21\"\n\
         client-output-buffer-limit replica 1mb 0 5\nslave-priority 7\nuser joe on >x\nrename-command KEYS \"\"\n\
         logfile log\ndaemonize yes\n",
    );
    let config = config(&[&file, "--port", "7001", "--hz", "1000", "--loglevel", "DEBUG"]);
    assert_eq!(config.port(), 7001);
    assert_eq!(config.bind(), ["10.0.0.1", "::1"]);
    assert_eq!(config.maxmemory(), 1 << 30);
    assert_eq!(config.unixsocketperm(), Some(0o700));
    assert_eq!(config.requirepass(), "a b!");
    assert_eq!(config.client_output_buffer_limit(ClientClass::Replica).soft_seconds, 5);
    assert_eq!(config.client_output_buffer_limit(ClientClass::Normal).hard, 1 << 30);
    assert_eq!(get(&config, "replica-priority"), "7");
    assert_eq!(config.users(), [["joe", "on", ">x"]]);
    assert_eq!(config.renames(), [Rename { command: "KEYS".into(), new_name: String::new() }]);
    assert_eq!(config.hz(), 500);
    assert_eq!(config.loglevel(), LogLevel::Debug);
    assert_eq!(config.logfile(), "log");
    assert_eq!(config.pidfile(), Some("/var/run/gimmal.pid"));
    assert_eq!(config.file(), Some(file.as_ref()));
}

#[test]
fn save_lines_add_up_and_an_empty_one_starts_anew() {
    let points = |arguments: &[&str]| get(&config(arguments), "save");
    assert_eq!(points(&["--save", "60", "1"]), "60 1");
    assert_eq!(points(&["--save", "60 1", "--save", "5 2 7 3"]), "60 1 5 2 7 3");
    assert_eq!(points(&["--save", "60 1", "--save", ""]), "");
    assert_eq!(points(&["--save", "60 1", "--save", "", "--save", "1 2"]), "1 2");
    assert_eq!(points(&["--save", "--port", "1"]), "");
}

#[test]
fn one_quoted_argument_is_split_where_a_list_is_wanted() {
    assert_eq!(config(&["--bind", "1.1.1.1 2.2.2.2"]).bind(), ["1.1.1.1", "2.2.2.2"]);
    assert!(config(&["--bind", ""]).bind().is_empty());
    assert_eq!(get(&config(&["--shutdown-on-sigint", "nosave now"]), "shutdown-on-sigint"), "nosave now");
    assert_eq!(get(&config(&["--replicaof", "127.0.0.1 7000"]), "slaveof"), "127.0.0.1 7000");
    assert_eq!(get(&config(&["--oom-score-adj-values", "1 2 -3"]), "oom-score-adj-values"), "1 2 -3");
}

#[test]
fn a_bad_line_is_named_with_file_number_and_reason() {
    let scratch = Scratch::new();
    let file = scratch.write("bad.conf", "# one\n\n  port abc \n");
    let expected = format!(
        "*** FATAL CONFIG FILE ERROR (Gimmal {}) ***\nReading the configuration file, at line 3 of {file}\n\
         >>> 'port abc'\nargument couldn't be parsed into an integer",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(refused(&[&file]), expected);
}

#[test]
fn reasons_are_those_of_redis() {
    let not_a_number = "argument couldn't be parsed into an integer";
    let buffer_limit = "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
    for (arguments, reason) in [
        (&["--port", "65536"][..], "argument must be between 0 and 65535 inclusive"),
        (&["--port", "-1"], "argument must be between 0 and 65535 inclusive"),
        (&["--port", "007"], not_a_number),
        (&["--port", "+7"], not_a_number),
        (&["--port", "99999999999999999999"], not_a_number),
        (&["--port"], "wrong number of arguments"),
        (&["--port", "1", "2"], "wrong number of arguments"),
        (&["--appendonly", "maybe"], "argument must be 'yes' or 'no'"),
        (&["--maxmemory", "1tb"], "argument must be a memory value"),
        (&["--maxmemory", "-1"], "argument must be a memory value"),
        (&["--maxmemory", "99999999999gb"], "argument must be a memory value"),
        (&["--proto-max-bulk-len", "1k"], "argument must be between 1048576 and 9223372036854775807 inclusive"),
        (&["--maxmemory-clients", "x"], "argument must be a memory or percent value"),
        (&["--maxmemory-clients", "200%"], "percentage argument must be less or equal to 100"),
        (&["--unixsocketperm", "999"], "argument couldn't be parsed as an octal number"),
        (&["--unixsocketperm", "1777"], "argument must be between 0 and 777 inclusive"),
        (&["--appendfsync", "x"], "argument(s) must be one of the following: everysec, always, no"),
        (&["--io-engine", "sim"], "argument(s) must be one of the following: auto, uring, epoll, uring-send"),
        (&["--shards", "1000"], "argument must be a power of two"),
        (&["--shards", "32768"], "argument must be between 1 and 16384 inclusive"),
        (&["--shutdown-on-sigint", "save nosave"], "shutdown options SAVE and NOSAVE can't be used simultaneously"),
        (&["--save", "60"], "Invalid save parameters"),
        (&["--save", "0 1"], "Invalid save parameters"),
        (&["--oom-score-adj-values", "1 2"], "wrong number of arguments"),
        (
            &["--oom-score-adj-values", "1", "2", "3000"],
            "Invalid oom-score-adj-values, elements must be between -2000 and 2000.",
        ),
        (
            &["--client-output-buffer-limit", "normal", "1", "2"],
            "Wrong number of arguments in buffer limit configuration.",
        ),
        (
            &["--client-output-buffer-limit", "x", "1", "2", "3"],
            "Invalid client class specified in buffer limit configuration.",
        ),
        (&["--client-output-buffer-limit", "normal", "1", "2", "x"], buffer_limit),
        (&["--notify-keyspace-events", "Q"], "Invalid event class character. Use 'Ag$lshzxeKEtmdn'."),
        (
            &["--latency-tracking-info-percentiles", "101"],
            "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]",
        ),
        (&["--latency-tracking-info-percentiles", "x"], "Invalid latency-tracking-info-percentiles parameters"),
        (&["--replicaof", "a", "99999"], "Invalid master port"),
        (&["--replicaof", "a"], "wrong number of arguments"),
        (&["--bind", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17"], "Too many bind addresses specified."),
        (&["--dir", "/no/such/directory"], "No such file or directory"),
        (&["--dir", "/dev/null"], "Not a directory"),
        (&["--dbfilename", "a/b"], "dbfilename can't be a path, just a filename"),
        (&["--appenddirname", "a/b"], "appenddirname can't be a path, just a dirname"),
        (&["--proc-title-template", "{foo}"], "template format is invalid or contains unknown variables"),
        (
            &["--cluster-announce-hostname", "a_b"],
            "Hostnames may only contain alphanumeric characters, hyphens or dots",
        ),
        (&["--foo", "bar"], "Bad directive or wrong number of arguments"),
        (&["--rename-command", "get"], "Bad directive or wrong number of arguments"),
        (&["--user"], "Bad directive or wrong number of arguments"),
        (&["--port '1"], "Unbalanced quotes in configuration line"),
        (&["--sentinel", "monitor"], "sentinel directive while not in sentinel mode: this server has no such mode"),
        (&["--loadmodule", "/x.so", "1"], "Can't load module from /x.so: this server has no modules"),
        (&["--json.x"], "Module config specified without value"),
        (&["--json.x", "1"], "'json.x' belongs to a module: this server has no modules"),
        (&["--cluster-enabled", "yes", "--replicaof", "h", "1"], "replicaof directive not allowed in cluster mode"),
        (&["/no/such.conf"], "Fatal error, can't open config file '/no/such.conf': No such file or directory"),
        (
            &["--include", "/no/such.conf"],
            "Fatal error, can't open config file '/no/such.conf': No such file or directory",
        ),
    ] {
        let error = refused(arguments);
        assert_eq!(error.lines().last(), Some(reason), "{arguments:?}");
    }
}

#[test]
fn bytes_that_are_no_text_are_refused_but_not_in_comments() {
    let scratch = Scratch::new();
    assert_eq!(config(&[&scratch.write("ok.conf", b"# caf\xe9\nport 1\n")]).port(), 1);
    assert!(refused(&[&scratch.write("bad.conf", b"requirepass caf\xe9\n")]).ends_with("the line is not valid UTF-8"));
}

#[test]
fn old_directives_are_forgotten_and_new_ones_noted() {
    let loaded =
        loaded(&["--lua-replicate-commands", "yes", "--io-threads", "4", "--tls-port", "1", "--activedefrag", "yes"]);
    assert_eq!(
        loaded.notes,
        [
            "accepted, but without effect in this version: tls-port",
            "ignored: io-threads (use workers, or io-model phases), activedefrag (the store has no pass that moves values)",
        ]
    );
    assert_eq!(super::loaded(&["--io-threads", "1", "--tls-port", "0"]).notes, Vec::<String>::new());
    let phases = ["--io-model", "phases", "--io-threads", "4", "--io-threads-do-reads", "yes"];
    assert_eq!(super::loaded(&phases).notes, Vec::<String>::new(), "there they do what they say");
}

#[test]
fn a_cluster_node_has_one_database() {
    let loaded = loaded(&["--cluster-enabled", "yes", "--databases", "4"]);
    assert_eq!(loaded.config.databases(), 1);
    assert_eq!(loaded.notes.first().map(String::as_str), Some("databases: 1 instead of 4, as in any cluster node"));
}

#[test]
fn includes_are_read_in_place() {
    let scratch = Scratch::new();
    scratch.write("conf.d/20.conf", "port 20\nhz 20\n");
    scratch.write("conf.d/10.conf", "port 10\n");
    scratch.write("conf.d/.hidden.conf", "port abc\n");
    scratch.write("conf.d/readme", "port abc\n");
    let base = scratch.path().display();
    let file = scratch.write(
        "main.conf",
        format!("port 1\ninclude {base}/conf.d/*.conf\nhz 30\ndir {base}\ninclude conf.d/1?.conf\ninclude {base}/none/*.conf\n"),
    );
    let config = config(&[&file]);
    assert_eq!((config.port(), config.hz()), (10, 30));
    assert_eq!(config.dir(), scratch.path());
}

#[test]
fn a_bad_line_of_an_include_names_that_file() {
    let scratch = Scratch::new();
    let inner = scratch.write("inner.conf", "hz 1\nhz x\n");
    let outer = scratch.write("outer.conf", format!("include {inner}\n"));
    assert!(refused(&[&outer]).contains(&format!("at line 2 of {inner}\n>>> 'hz x'\n")));
    let missing = scratch.write("missing.conf", "include /no/such.conf\n");
    assert!(
        refused(&[&missing]).contains(&format!("at line 1 of {missing}\n>>> 'include /no/such.conf'\nFatal error"))
    );
}

#[test]
fn files_that_include_each_other_are_refused() {
    // Redis reads on until it runs out of stack; a loop is one mistyped name away.
    let scratch = Scratch::new();
    let (a, b) = (scratch.path().join("a.conf"), scratch.path().join("b.conf"));
    scratch.write("a.conf", format!("include {}\n", b.display()));
    scratch.write("b.conf", format!("include {}\n", a.display()));
    let error = refused(&[a.to_str().expect("UTF-8")]);
    assert!(error.ends_with(&format!("'{}' includes itself", a.display())), "{error}");
    let all = scratch.write("all.conf", format!("include {}/all*.conf\n", scratch.path().display()));
    assert!(refused(&[&all]).contains("includes itself"));
}

#[test]
fn includes_do_not_nest_for_ever() {
    let scratch = Scratch::new();
    for n in 0..40 {
        scratch.write(&format!("{n}.conf"), format!("include {}/{}.conf\n", scratch.path().display(), n + 1));
    }
    let first = scratch.path().join("0.conf");
    assert!(refused(&[first.to_str().expect("UTF-8")]).contains("includes are nested too deeply"));
}

#[test]
fn one_file_may_be_included_twice() {
    let scratch = Scratch::new();
    let common = scratch.write("common.conf", "hz 42\n");
    let file = scratch.write("main.conf", format!("include {common}\nhz 1\ninclude {common}\n"));
    assert_eq!(config(&[&file]).hz(), 42);
}

#[test]
fn no_line_whatever_its_bytes_ends_the_program() {
    let mut random = super::Random(1);
    let (mut accepted, mut refused) = (0, 0);
    let pieces: Vec<Vec<u8>> =
        ["yes", "no", "0", "-1", "99999999999999999999", "1gb", "5%", "\"\"", "\"", "'", "\\x", "x", " ", "#"]
            .iter()
            .map(|piece| piece.as_bytes().to_vec())
            .chain([vec![0], vec![0xff], vec![b'a'; 5000]])
            .collect();
    for _ in 0..20_000 {
        let id = Id(random.below(crate::config::table::COUNT));
        let mut line = id.directive().name.as_bytes().to_vec();
        for _ in 0..random.below(4) {
            line.push(b' ');
            line.extend(&pieces[random.below(pieces.len())]);
        }
        let mut loader = Loader::new("/".as_ref());
        match loader.text(&Origin::Stdin, &line) {
            Ok(()) => {
                let config = loader.finish().map(|loaded| loaded.config);
                accepted += usize::from(config.is_ok_and(|config| !config.rewrite(&line, None).is_empty()));
            }
            Err(_) => refused += 1,
        }
    }
    assert!(accepted > 500 && refused > 500, "{accepted} {refused}");
}
