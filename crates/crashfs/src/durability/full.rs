//! A full disk: a server may end, or refuse writes, serve reads, and take writes again as soon as there is room.
//!
//! Replies that wait for what is not on disk wait as long as it is full. So the load must not end before somebody makes room, or its
//! clients would wait until they give up.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gimmal_resp::Reply;

use super::client::Client;
use crate::fs::CrashFs;

/// How long the load may take to fill the disk.
const FILL_LIMIT: Duration = Duration::from_secs(20);

/// How long a read may take meanwhile, and how soon writes must be taken again.
const LIMIT: Duration = Duration::from_secs(1);

/// A write of nothing: it is refused as any other is, and shows nothing that would have to wait.
const WRITE: [&str; 2] = ["DEL", "none"];
const READ: [&str; 2] = ["GET", "none"];

/// Waits until the load has filled the disk, looks that reads are served, makes it hold `capacity_bytes`, and says how soon after that
/// writes were taken. `None`: the server has ended.
///
/// # Errors
/// The disk does not become full, a read is refused or late, or writes are not taken in time.
pub fn pass_through(port: u16, fs: &CrashFs, capacity_bytes: u64) -> Result<Option<Duration>> {
    let start = Instant::now();
    loop {
        let Some(is_refused) = is_write_refused(port)? else { return Ok(None) };
        if is_refused {
            break;
        }
        ensure!(start.elapsed() < FILL_LIMIT, "the disk is not full after {FILL_LIMIT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    let asked = Instant::now();
    let shown = Client::connect(port)?.ask(&READ).context("a read while the disk is full")?;
    let took = asked.elapsed();
    ensure!(matches!(shown, Reply::NullBulk), "a read while the disk is full was answered {shown:?}");
    ensure!(took < LIMIT, "a read while the disk was full took {took:?}");
    fs.set_capacity(capacity_bytes);
    let roomy = Instant::now();
    while is_write_refused(port)?.context("the server ended when there was room")? {
        ensure!(roomy.elapsed() < LIMIT, "writes are refused {LIMIT:?} after there was room");
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(Some(roomy.elapsed()))
}

/// Whether writes are refused; `None` if the server is gone.
fn is_write_refused(port: u16) -> Result<Option<bool>> {
    let Ok(mut client) = Client::connect(port) else { return Ok(None) };
    match client.ask(&WRITE) {
        Ok(Reply::Integer(_)) => Ok(Some(false)),
        Ok(Reply::Error(text)) => {
            let text = String::from_utf8_lossy(&text);
            ensure!(text.starts_with("MISCONF"), "a write on a full disk was answered {text}");
            Ok(Some(true))
        }
        Ok(reply) => anyhow::bail!("{WRITE:?} was answered {reply:?}"),
        // It ends while it is asked.
        Err(error) if error.is::<std::io::Error>() => Ok(None),
        Err(error) => Err(error),
    }
}
