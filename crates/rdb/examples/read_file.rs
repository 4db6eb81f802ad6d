//! How fast a file is read: its checksum alone, its values passed over, copied for others to decode, decoded.
//!
//! `cargo run --release -p gimmal-rdb --example read_file -- dump.rdb` prints keys and bytes a second of each way. Nothing is
//! built: this is what reading costs beside it.

use gimmal_rdb::file::{Item, Reader};
use gimmal_rdb::{Fields, Group, Kind, Sink, StreamId, StreamMeta, Taken, crc64};
use std::fs::File;
use std::time::Instant;

fn main() {
    let path = std::env::args().nth(1).expect("usage: read_file FILE");
    let bytes = std::fs::read(&path).expect("a file");
    let begun = Instant::now();
    let sum = crc64(0, &bytes);
    let seconds = begun.elapsed().as_secs_f64();
    let rate = bytes.len() as f64 / 1e6 / seconds;
    report(&format!("checksum ({sum:016x}): {seconds:.3} s, {rate:.0} MB/s"));
    for way in [Way::Passed, Way::Copied, Way::Decoded] {
        let begun = Instant::now();
        let (keys, elements) = read(File::open(&path).expect("a file"), way);
        let seconds = begun.elapsed().as_secs_f64();
        let (rate, speed) = (keys as f64 / 1e6 / seconds, bytes.len() as f64 / 1e6 / seconds);
        report(&format!(
            "{way:?}: {keys} keys, {elements} elements, {seconds:.3} s, {rate:.2} M keys/s, {speed:.0} MB/s"
        ));
    }
}

/// What is done with the values.
#[derive(Clone, Copy, Debug)]
enum Way {
    Passed,
    Copied,
    Decoded,
}

fn read(file: File, way: Way) -> (u64, u64) {
    let mut reader = Reader::new(file).expect("an RDB file");
    let (mut keys, mut count, mut batch) = (0, Count(0), Vec::new());
    loop {
        match reader.next().expect("a good file") {
            Item::Entry(_) => {
                keys += 1;
                match way {
                    Way::Passed => {}
                    Way::Decoded => reader.value(&mut count).expect("a good value"),
                    Way::Copied => {
                        let value = reader.encoded_value(usize::MAX).expect("a good value").expect("no limit");
                        batch.extend_from_slice(value);
                        batch.extend_from_slice(reader.key());
                        if batch.len() > 1 << 18 {
                            batch.clear();
                        }
                    }
                }
            }
            Item::End => return (keys, count.0),
            _ => {}
        }
    }
}

#[allow(clippy::print_stdout)] // It is what this is for.
fn report(line: &str) {
    println!("{line}");
}

/// Counts what it is given.
struct Count(u64);

impl Count {
    fn one(&mut self) -> Taken {
        self.0 += 1;
        Ok(())
    }
}

impl Sink for Count {
    fn begin(&mut self, _: Kind, _: Option<u64>) -> Taken {
        Ok(())
    }

    fn string(&mut self, _: &[u8], _: u64) -> Taken {
        self.one()
    }

    fn list_item(&mut self, _: &[u8]) -> Taken {
        self.one()
    }

    fn set_member(&mut self, _: &[u8]) -> Taken {
        self.one()
    }

    fn sorted_set_member(&mut self, _: &[u8], _: f64) -> Taken {
        self.one()
    }

    fn hash_field(&mut self, _: &[u8], _: &[u8], _: Option<u64>) -> Taken {
        self.one()
    }

    fn stream_entry(&mut self, _: StreamId, _: &Fields) -> Taken {
        self.one()
    }

    fn stream_meta(&mut self, _: &StreamMeta) -> Taken {
        Ok(())
    }

    fn stream_group(&mut self, _: Group) -> Taken {
        Ok(())
    }
}
