//! What making one write durable costs on the file system of the current directory, by how the file was made ready:
//! `cargo run --release -p gimmal-log --example aof_sync [WRITES]`. It decided that space is preallocated.

#![allow(clippy::print_stdout)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// A page whose address suits O_DIRECT.
#[repr(align(4096))]
struct Page([u8; PAGE]);
const PAGE: usize = 4096;

fn main() -> io::Result<()> {
    let writes: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(2000);
    println!("{writes} writes each; microseconds: p50, p99, worst");
    for size in [192, PAGE] {
        let sync_data = |file: &File| file.sync_data();
        report(&format!("{size:4} bytes appended, fdatasync"), size, writes, 0, 0, sync_data)?;
        report(&format!("{size:4} bytes over lines written before, fdatasync"), size, writes, u64::MAX, 0, sync_data)?;
        for step in [64 << 10, 256 << 10, 1 << 20, 4 << 20] {
            let name = format!("{size:4} bytes, {:4} KiB of lines written at need, in one", step >> 10);
            report(&name, size, writes, step, 0, sync_data)?;
        }
    }
    let direct = libc::O_DIRECT | libc::O_DSYNC;
    report("4096 bytes appended, O_DIRECT|O_DSYNC", PAGE, writes, 0, direct, |_| Ok(()))?;
    report("4096 bytes over lines written before, O_DIRECT|O_DSYNC", PAGE, writes, u64::MAX, direct, |_| Ok(()))
}

/// Writes `size` bytes after each other. `ahead`: bytes of lines that are written behind a write that reaches the end of
/// the file; `u64::MAX`: all before the first.
fn report(
    name: &str,
    size: usize,
    writes: u64,
    ahead: u64,
    flags: i32,
    sync: impl Fn(&File) -> io::Result<()>,
) -> io::Result<()> {
    let path = Path::new("aof_sync.tmp");
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    let total = writes * size as u64;
    let lines = [b'#'; 62].into_iter().chain(*b"\r\n").collect::<Vec<u8>>().repeat(1024);
    let mut end = 0;
    while ahead == u64::MAX && end < total {
        file.write_all_at(&lines, end)?;
        end += lines.len() as u64;
    }
    file.sync_all()?;
    let file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
    let page = Page([b'x'; PAGE]);
    let mut long = page.0[..size].to_vec();
    long.extend(lines.iter().cycle().take(if ahead == u64::MAX { 0 } else { ahead as usize }));
    let mut times: Vec<Duration> = Vec::new();
    for at in (0..total).step_by(size) {
        let started = Instant::now();
        if ahead != u64::MAX && ahead > 0 && at + size as u64 > end {
            file.write_all_at(&long, at)?;
            end = at + long.len() as u64;
        } else {
            file.write_all_at(&page.0[..size], at)?;
        }
        sync(&file)?;
        times.push(started.elapsed());
    }
    std::fs::remove_file(path)?;
    let mean = times.iter().sum::<Duration>().as_micros() as u64 / writes;
    times.sort();
    let at = |share: usize| times[(times.len() - 1) * share / 100].as_micros();
    println!("{name:60} {:6} {:6} {:6}   mean {mean:6}", at(50), at(99), at(100));
    Ok(())
}
