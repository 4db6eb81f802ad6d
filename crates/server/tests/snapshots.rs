//! Snapshots of the real server: SAVE, BGSAVE, save points and the end of the server; that a file is what there was at its moment,
//! that a Redis loads it, and what follows when it cannot be written.

mod running;

use gimmal_rdb::file::{Item, Reader};
use gimmal_rdb::{Collect, Object};
use gimmal_resp::Reply;
use running::{Client, PATIENCE, Running, await_info, error_text, free_port, info, ok};
use std::collections::BTreeMap;
use std::fs::File;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Value and deadline by database and key.
type Contents = BTreeMap<(u64, Vec<u8>), (Object, Option<i64>)>;

/// Where a server keeps its files.
fn directory(client: &mut Client) -> PathBuf {
    let reply = client.ask("CONFIG GET dir");
    let words = reply.as_list().or_else(|| panic!("{reply:?}")).expect("an array");
    PathBuf::from(String::from_utf8(words[1].as_bytes().expect("a path").to_vec()).expect("a path"))
}

fn read(path: &Path) -> Contents {
    let mut reader = Reader::new(File::open(path).expect("the file is there")).expect("a good file");
    let mut contents = Contents::new();
    loop {
        let entry = match reader.next().expect("a good file") {
            Item::End => return contents,
            Item::Entry(entry) => entry,
            _ => continue,
        };
        let (mut collect, place) = (Collect::default(), (entry.db, reader.key().to_vec()));
        reader.value(&mut collect).expect("a good value");
        let before = contents.insert(place, (collect.finish().expect("a value"), entry.expire_at_ms));
        assert!(before.is_none(), "{:?} is there twice", String::from_utf8_lossy(reader.key()));
    }
}

fn bgsave(client: &mut Client) {
    assert_eq!(client.ask("BGSAVE"), Reply::Simple(b"Background saving started".to_vec()));
}

/// Values of every type and size, in three databases.
fn fill(client: &mut Client) {
    let text = |len: usize| "abcdefghij".repeat(len / 10);
    for db in [0, 3, 9] {
        assert_eq!(client.ask(&format!("SELECT {db}")), ok());
        let mut ask = |line: String| {
            let reply = client.ask(&line);
            assert!(!reply.is_error(), "{}: {reply:?}", &line[..line.len().min(60)]);
        };
        for i in 0..300_usize {
            ask(format!("SET number:{i} {}", i64::try_from(i).expect("small") * 7919 - 1000));
            ask(format!("SET text:{i} {}{i}", text(i)));
        }
        ask(format!("SET long {}", text(5000)));
        ask(format!("SET longer {}", text(700_000)));
        ask(format!("SETRANGE sparse 900000 {}", text(20)));
        ask("SET soon v PXAT 4000000000000".into());
        ask("HSET small a 1 b two".into());
        ask("SADD numbers 1 2 3 -4".into());
        ask("SADD words one two three".into());
        ask("ZADD scores 1 one 2.5 two -inf three".into());
        ask("RPUSH items a b c 4".into());
        ask("PFADD hll a b c d".into());
        ask("XADD stream 5-1 f v g w".into());
        ask("XGROUP CREATE stream group 0".into());
        ask("XREADGROUP GROUP group alice COUNT 1 STREAMS stream >".into());
        for part in 0..10 {
            let of = |word: &str| {
                (0..600).map(|i| word.replace('N', &(part * 600 + i).to_string())).collect::<Vec<_>>().join(" ")
            };
            ask(format!("RPUSH list {}", of("item:N")));
            ask(format!("SADD set {}", of("member:N")));
            ask(format!("ZADD zset {}", of("N.5 member:N")));
            ask(format!("HSET hash {}", of("field:N value:N")));
        }
        (6..2000).for_each(|i| ask(format!("XADD log {i}-{i} field value:{i} other {}", text(30))));
        ask("PEXPIREAT hash 4000000000000".into());
    }
    assert_eq!(client.ask("SELECT 0"), ok());
}

/// A real Redis on files in a directory; killed when dropped.
struct Redis {
    child: Child,
    port: u16,
}

impl Redis {
    /// None, and says so, if there is no Redis here.
    fn start(directory: &Path) -> Option<Redis> {
        let port = free_port();
        let mut command = Command::new("redis-server");
        let directory = directory.display().to_string();
        command.args([
            "--port",
            &port.to_string(),
            "--dir",
            &directory,
            "--save",
            "",
            "--enable-protected-configs",
            "yes",
        ]);
        match command.stdout(Stdio::null()).spawn() {
            Ok(child) => Some(Redis { child, port }),
            Err(error) => {
                eprintln!("not run: redis-server cannot be started: {error}");
                None
            }
        }
    }

    fn connect(&self) -> Client {
        let started = Instant::now();
        loop {
            if let Ok(stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)) {
                let mut client = Client::new(stream);
                if client.ask("PING") == Reply::Simple(b"PONG".to_vec()) {
                    return client;
                }
            }
            assert!(started.elapsed() < PATIENCE, "the Redis does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn a_redis_loads_what_was_saved() {
    for arguments in
        ["--workers 2", "--workers 1 --maxmemory-policy allkeys-lfu --rdbcompression no", "--rdbchecksum no"]
    {
        let server = Running::start(arguments);
        let mut client = server.connect();
        fill(&mut client);
        bgsave(&mut client);
        await_info(&mut client, "rdb_bgsave_in_progress", "0");
        assert_eq!(
            (info(&mut client, "rdb_last_bgsave_status").as_str(), info(&mut client, "rdb_saves").as_str()),
            ("ok", "1")
        );
        let directory = directory(&mut client);
        let file = directory.join("dump.rdb");
        let found = read(&file);
        assert_eq!(found.len(), 3 * 616, "{arguments}");
        assert_eq!(found[&(3, b"soon".to_vec())], (Object::String(b"v".to_vec()), Some(4_000_000_000_000)));
        match Command::new("redis-check-rdb").arg(&file).output() {
            Ok(checked) => assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout)),
            Err(error) => eprintln!("not run: redis-check-rdb cannot be started: {error}"),
        }
        let Some(redis) = Redis::start(&directory) else { return };
        let mut other = redis.connect();
        // What it saves in turn is the same.
        assert_eq!(other.ask("CONFIG SET dbfilename again.rdb"), ok());
        assert_eq!(other.ask("SAVE"), ok());
        let again = read(&directory.join("again.rdb"));
        for (place, value) in &found {
            assert!(again.get(place) == Some(value), "{arguments}: {place:?}: {value:?} {:?}", again.get(place));
        }
        for db in [0, 3, 9] {
            other.ask(&format!("SELECT {db}"));
            assert_eq!(other.ask("DBSIZE"), Reply::Integer(616));
        }
    }
}

/// What is changed after BGSAVE has answered is not in the file, whatever it is, and what was there before is.
#[test]
fn a_file_is_what_there_was_when_bgsave_answered() {
    let server = Running::start("--workers 2 --rdb-key-save-delay 100 --shards 16");
    let mut client = server.connect();
    let value = |i: usize| if i.is_multiple_of(50) { "v".repeat(9000) } else { format!("value:{i}") };
    for i in 0..4000 {
        assert_eq!(client.ask(&format!("SET key:{i} {}", value(i))), ok());
    }
    client.ask("RPUSH list 1 2 3");
    client.ask("SELECT 1");
    (0..50).for_each(|i| drop(client.ask(&format!("SET other:{i} {i}"))));
    client.ask("SELECT 2");
    (0..50).for_each(|i| drop(client.ask(&format!("SET third:{i} {i} PXAT 4000000000000"))));
    client.ask("SELECT 0");
    bgsave(&mut client);
    for i in 0..4000 {
        match i % 7 {
            0 => drop(client.ask(&format!("SET key:{i} changed"))),
            1 => drop(client.ask(&format!("DEL key:{i}"))),
            2 => drop(client.ask(&format!("RENAME key:{i} renamed:{i}"))),
            3 => drop(client.ask(&format!("EXPIRE key:{i} 1000"))),
            4 => drop(client.ask(&format!("APPEND key:{i} x"))),
            5 => drop(client.ask(&format!("SET new:{i} {i}"))),
            _ => drop(client.ask(&format!("MOVE key:{i} 5"))),
        }
    }
    client.ask("RPUSH list 4");
    assert_eq!(client.ask("SWAPDB 1 0"), ok());
    client.ask("SELECT 2");
    (0..50).for_each(|i| drop(client.ask(&format!("PERSIST third:{i}"))));
    assert_eq!(client.ask("FLUSHDB"), ok());
    client.ask("SET third:1 again");
    client.ask("SELECT 0");
    assert_eq!(info(&mut client, "rdb_bgsave_in_progress"), "1", "the test was too slow");
    assert_eq!(client.ask("FLUSHDB"), ok());
    await_info(&mut client, "rdb_bgsave_in_progress", "0");
    let directory = directory(&mut client);
    let found = read(&directory.join("dump.rdb"));
    assert_eq!(found.len(), 4101);
    for i in 0..4000 {
        let place = (0, format!("key:{i}").into_bytes());
        assert_eq!(found.get(&place), Some(&(Object::String(value(i).into_bytes()), None)), "key:{i}");
    }
    assert_eq!(found[&(0, b"list".to_vec())].0, Object::List([b"1", b"2", b"3"].map(|item| item.to_vec()).to_vec()));
    assert!((0..50).all(|i| found.contains_key(&(1, format!("other:{i}").into_bytes()))));
    let third = (Object::String(b"1".to_vec()), Some(4_000_000_000_000));
    assert_eq!(found[&(2, b"third:1".to_vec())], third);
    // What was done meanwhile counts for the next one.
    assert!(info(&mut client, "rdb_changes_since_last_save").parse::<u64>().expect("a number") > 3000);
    assert_eq!(client.ask("SAVE"), ok());
    assert_eq!(info(&mut client, "rdb_changes_since_last_save"), "0");
    assert!(!read(&directory.join("dump.rdb")).contains_key(&(1, b"other:1".to_vec())), "flushed");
}

#[test]
fn one_snapshot_at_a_time_and_the_others_are_served() {
    let server = Running::start("--workers 2 --rdb-key-save-delay 1000");
    let (mut client, mut other) = (server.connect(), server.connect());
    (0..500).for_each(|i| drop(client.ask(&format!("SET key:{i} {i}"))));
    let in_progress = "ERR Background save already in progress";
    bgsave(&mut client);
    assert_eq!(error_text(&client.ask("BGSAVE")), in_progress);
    assert_eq!(error_text(&client.ask("BGSAVE SCHEDULE")), in_progress);
    assert_eq!(error_text(&client.ask("SAVE")), in_progress);
    assert_eq!(info(&mut client, "current_save_keys_total"), "500");
    assert_eq!(client.ask("BGSAVE CANCEL"), Reply::Simple(b"Background saving cancelled".to_vec()));
    await_info(&mut client, "rdb_bgsave_in_progress", "0");
    assert_eq!(
        error_text(&client.ask("BGSAVE CANCEL")),
        "ERR Background saving is currently not in progress or scheduled"
    );
    let directory = directory(&mut client);
    let files = || std::fs::read_dir(&directory).expect("it is there").map(|file| file.expect("a file").file_name());
    assert!(files().all(|name| !name.to_string_lossy().ends_with(".rdb")), "a file was left");
    assert_eq!(
        (info(&mut client, "rdb_saves").as_str(), info(&mut client, "rdb_last_bgsave_status").as_str()),
        ("0", "ok")
    );
    assert_eq!(error_text(&client.ask("BGSAVE NOW")), "ERR syntax error");

    // SAVE is answered when it is done, two at a time one after the other; nobody else waits.
    let save = b"SAVE\r\n";
    client.send(save);
    let mut third = server.connect();
    third.send(save);
    let started = Instant::now();
    assert_eq!(other.ask("PING"), Reply::Simple(b"PONG".to_vec()));
    assert_eq!(other.ask("SET key:1 changed"), ok());
    assert!(started.elapsed() < Duration::from_millis(300), "{:?}", started.elapsed());
    assert!(client.try_reply(Duration::from_millis(50)).is_none(), "500 keys of 1 ms each were saved");
    assert_eq!((client.reply(), third.reply()), (ok(), ok()));
    assert_eq!(info(&mut client, "rdb_saves"), "2");

    // In a transaction it is put off; and a transaction is whole.
    for line in ["MULTI", "SET key:0 in", "BGSAVE", "SET key:1 in"] {
        assert!(!other.ask(line).is_error());
    }
    let replies = other.ask("EXEC");
    let scheduled = Reply::Simple(b"Background saving scheduled".to_vec());
    assert_eq!(replies.as_list().map(|list| list[1].clone()), Some(scheduled));
    await_info(&mut client, "rdb_saves", "3");
    let found = read(&directory.join("dump.rdb"));
    assert_eq!(found[&(0, b"key:0".to_vec())], found[&(0, b"key:1".to_vec())]);
}

#[test]
fn writes_are_refused_after_a_failure_until_a_snapshot_succeeds() {
    let server = Running::start("--workers 2");
    let mut client = server.connect();
    assert_eq!(client.call(&[b"CONFIG", b"SET", b"save", b"3600 1000000"]), ok());
    let directory = directory(&mut client);
    // A directory that is not empty cannot be replaced by a file.
    std::fs::create_dir_all(directory.join("dump.rdb/in/the/way")).expect("it can be made");
    assert_eq!(client.ask("SET k v"), ok());
    bgsave(&mut client);
    await_info(&mut client, "rdb_last_bgsave_status", "err");
    assert!(!directory.join(format!("temp-{}.rdb", server.process().pid())).exists(), "a temporary file was left");
    for line in ["SET k w", "DEL k", "PING"] {
        assert!(
            error_text(&client.ask(line)).starts_with("MISCONF Redis is configured to save RDB snapshots"),
            "{line}"
        );
    }
    assert_eq!(client.ask("GET k"), Reply::Bulk(b"v".to_vec()));
    assert!(!client.ask("MULTI").is_error());
    assert!(error_text(&client.ask("SET k w")).starts_with("MISCONF"));
    assert!(error_text(&client.ask("EXEC")).starts_with("EXECABORT"));
    assert_eq!(client.ask("CONFIG SET stop-writes-on-bgsave-error no"), ok());
    assert_eq!(client.ask("SET k w"), ok());
    assert_eq!(client.ask("CONFIG SET stop-writes-on-bgsave-error yes"), ok());
    assert!(error_text(&client.ask("SAVE")).starts_with("ERR the snapshot was not saved: moving"));
    assert!(error_text(&client.ask("SHUTDOWN SAVE")).starts_with("ERR Errors trying to SHUTDOWN"));
    assert!(error_text(&client.ask("SET k x")).starts_with("MISCONF"), "the server goes on");
    std::fs::remove_dir_all(directory.join("dump.rdb")).expect("it was made above");
    assert_eq!(client.ask("SAVE"), ok());
    assert_eq!(client.ask("SET k x"), ok());
    assert_eq!(read(&directory.join("dump.rdb"))[&(0, b"k".to_vec())].0, Object::String(b"w".to_vec()));
}

#[test]
fn save_points_save_and_flushall_saves_that_there_is_nothing() {
    let server = Running::start("--workers 1");
    let mut client = server.connect();
    let before = client.ask("LASTSAVE");
    assert_eq!(client.call(&[b"CONFIG", b"SET", b"save", b"1 5"]), ok());
    (0..4).for_each(|i| drop(client.ask(&format!("SET key:{i} {i}"))));
    std::thread::sleep(Duration::from_millis(2300));
    assert_eq!(info(&mut client, "rdb_saves"), "0", "4 changes are not 5");
    client.ask("SET key:4 4");
    await_info(&mut client, "rdb_saves", "1");
    assert!(server.log().contains("5 changes in 1 seconds. Saving..."));
    let directory = directory(&mut client);
    assert_eq!(read(&directory.join("dump.rdb")).len(), 5);
    assert_ne!(client.ask("LASTSAVE"), before);
    assert_eq!(info(&mut client, "rdb_changes_since_last_save"), "0");
    assert_eq!(client.ask("FLUSHALL"), ok());
    await_info(&mut client, "rdb_saves", "2");
    assert_eq!(read(&directory.join("dump.rdb")).len(), 0);
}

/// Stops a server that then saves or does not; its files.
fn stopped(arguments: &str, save: &str, stop: impl FnOnce(&Running, &mut Client)) -> (PathBuf, Vec<String>) {
    let place = std::env::temp_dir().join(format!("gimmal-stop-{}-{}", std::process::id(), free_port()));
    std::fs::create_dir(&place).expect("a new directory");
    let server = Running::start(&format!("--dir {} {arguments}", place.display()));
    let mut client = server.connect();
    assert_eq!(client.call(&[b"CONFIG", b"SET", b"save", save.as_bytes()]), ok());
    (0..1000).for_each(|i| drop(client.ask(&format!("SET key:{i} {i}"))));
    stop(&server, &mut client);
    let started = Instant::now();
    while TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).is_ok() {
        assert!(started.elapsed() < PATIENCE, "the server does not end:\n{}", server.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    server.await_log("ready to exit");
    let files = std::fs::read_dir(&place).expect("it is there");
    let files = files.map(|file| file.expect("a file").file_name().to_string_lossy().into_owned()).collect();
    (place, files)
}

fn terminate(server: &Running) {
    let killed = Command::new("kill").arg(server.process().pid().to_string()).status();
    assert!(killed.expect("there is a kill").success());
}

#[test]
fn the_end_saves_as_asked() {
    let all = |place: &Path| assert_eq!(read(&place.join("dump.rdb")).len(), 1000);
    let (place, files) = stopped("", "", |_, client| client.send(b"SHUTDOWN\r\n"));
    assert!(files.is_empty(), "{files:?}");
    std::fs::remove_dir_all(place).expect("it is there");
    let (place, _) = stopped("", "", |_, client| client.send(b"SHUTDOWN SAVE\r\n"));
    all(&place);
    std::fs::remove_dir_all(place).expect("it is there");
    let (place, _) = stopped("", "3600 1", |_, client| client.send(b"SHUTDOWN\r\n"));
    all(&place);
    std::fs::remove_dir_all(place).expect("it is there");
    let (place, _) = stopped("--workers 2", "3600 1", |server, _| terminate(server));
    all(&place);
    std::fs::remove_dir_all(place).expect("it is there");
    let (place, files) = stopped("--shutdown-on-sigterm nosave", "3600 1", |server, _| terminate(server));
    assert!(files.is_empty(), "{files:?}");
    std::fs::remove_dir_all(place).expect("it is there");
}

/// A snapshot that is under way is given up, and of what it has written nothing is left.
#[test]
fn the_end_does_not_wait_for_a_snapshot() {
    let slow = "--rdb-key-save-delay 100000";
    let (place, files) = stopped(slow, "3600 1", |_, client| {
        bgsave(client);
        client.send(b"SHUTDOWN NOSAVE\r\n");
    });
    assert!(files.is_empty(), "{files:?}");
    std::fs::remove_dir_all(place).expect("it is there");
}

/// While the server saves its last snapshot no command runs, so that nothing is acknowledged that is not in it; ABORT ends that.
#[test]
fn a_shutdown_holds_commands_and_can_be_aborted() {
    let server = Running::start("--workers 2 --rdb-key-save-delay 1000");
    let (mut client, mut other, mut third) = (server.connect(), server.connect(), server.connect());
    (0..1000).for_each(|i| drop(client.ask(&format!("SET key:{i} {i}"))));
    assert_eq!(error_text(&client.ask("SHUTDOWN ABORT")), "ERR No shutdown in progress.");
    client.send(b"SHUTDOWN SAVE\r\n");
    server.await_log("Saving the final RDB snapshot");
    std::thread::sleep(Duration::from_millis(150));
    other.send(b"SET key:0 late\r\n");
    assert!(other.try_reply(Duration::from_millis(150)).is_none(), "a command ran during the shutdown");
    assert_eq!(third.ask("SHUTDOWN ABORT"), ok());
    assert!(error_text(&client.reply()).starts_with("ERR Errors trying to SHUTDOWN"));
    assert_eq!(other.reply(), ok());
    assert_eq!(third.ask("GET key:0"), Reply::Bulk(b"late".to_vec()));
}
