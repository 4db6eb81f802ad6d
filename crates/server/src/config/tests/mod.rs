//! Tests of the configuration as a whole; those of single parts are beside them.

mod documents;
mod files;
mod oracle;
mod rewriting;
mod setting;

use super::{Config, Loaded, read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that is removed at the end of its test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let unique = format!("gimmal-config-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(unique);
        std::fs::create_dir_all(&path).expect("a scratch directory");
        Scratch(path.canonicalize().expect("its path"))
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        std::fs::write(&path, text).expect("a file");
        path.to_str().expect("UTF-8").to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("the scratch directory goes away");
    }
}

fn loaded(arguments: &[&str]) -> Loaded {
    read(arguments).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

fn config(arguments: &[&str]) -> Config {
    loaded(arguments).config
}

#[track_caller]
fn refused(arguments: &[&str]) -> String {
    match read(arguments) {
        Ok(_) => panic!("{arguments:?} was accepted"),
        Err(error) => error.to_string(),
    }
}

#[track_caller]
fn get(config: &Config, name: &str) -> String {
    let found = config.matching(&[name.as_bytes()]);
    assert_eq!(found.len(), 1, "{name}");
    found[0].1.clone()
}

/// A small generator of pseudo-random numbers (xorshift64*), so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let scaled = u128::from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)) * limit as u128;
        usize::try_from(scaled >> 64).expect("below the limit")
    }

    /// A word of `from..to` letters.
    fn word(&mut self, letters: &[u8], from: usize, to: usize) -> Vec<u8> {
        let length = from + self.below(to - from);
        (0..length).map(|_| letters[self.below(letters.len())]).collect()
    }
}
