//! The files an `include` names: one path, or a pattern that may match none.

use super::lists::plain;
use crate::glob;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

/// The files that `pattern` names, relative to `base`, in alphabetical order. A path without wildcards is itself, whether
/// it exists or not.
///
/// # Errors
/// A directory that cannot be read, for another reason than that it is missing.
pub fn files(base: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    if !has_wildcard(OsStr::new(pattern)) {
        return Ok(vec![base.join(pattern)]);
    }
    let mut found = vec![if Path::new(pattern).is_absolute() { PathBuf::from("/") } else { base.to_path_buf() }];
    for component in Path::new(pattern).components() {
        match component {
            Component::Normal(name) if has_wildcard(name) => {
                let mut matched = Vec::new();
                for directory in &found {
                    entries(directory, name, &mut matched)?;
                }
                found = matched;
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            Component::Normal(_) | Component::ParentDir => found.iter_mut().for_each(|path| path.push(component)),
        }
    }
    found.retain(|path| path.exists());
    Ok(found)
}

/// Adds the entries of `directory` that match, sorted; hidden ones only where the pattern begins with a dot.
fn entries(directory: &Path, pattern: &OsStr, matched: &mut Vec<PathBuf>) -> Result<(), String> {
    let listing = match std::fs::read_dir(directory) {
        Ok(listing) => listing,
        Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            return Ok(());
        }
        Err(error) => return Err(format!("can't read directory '{}': {}", directory.display(), plain(&error))),
    };
    let mut names = Vec::new();
    for entry in listing {
        let name = entry
            .map_err(|error| format!("can't read directory '{}': {}", directory.display(), plain(&error)))?
            .file_name();
        let (bytes, wanted) = (name.as_encoded_bytes(), pattern.as_encoded_bytes());
        if bytes.starts_with(b".") == wanted.starts_with(b".") && glob::matches(wanted, bytes) {
            names.push(name);
        }
    }
    names.sort();
    matched.extend(names.into_iter().map(|name| directory.join(name)));
    Ok(())
}

fn has_wildcard(path: &OsStr) -> bool {
    path.as_encoded_bytes().iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
}
