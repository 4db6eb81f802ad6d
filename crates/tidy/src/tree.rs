//! The files of the tree: everything below the root but build products and hidden names (`.ci` is read nevertheless).

use std::fs;
use std::path::{Path, PathBuf};

use crate::source::RustFile;

/// The root of the repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this crate lies two levels below the root").to_owned()
}

/// Every Rust file under `root`, parsed.
pub fn rust_files(root: &Path) -> Vec<RustFile> {
    let is_rust = |(path, _): &(PathBuf, String)| path.extension().is_some_and(|extension| extension == "rs");
    text_files(root).into_iter().filter(is_rust).map(|(path, text)| RustFile::parse(path, text)).collect()
}

/// Every file under `root` that is UTF-8 text, with its path relative to `root`, in order of paths.
pub fn text_files(root: &Path) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    collect(root, root, &mut files);
    files.sort();
    files
}

fn collect(root: &Path, dir: &Path, files: &mut Vec<(PathBuf, String)>) {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    for entry in entries {
        let entry = entry.expect("a readable entry");
        let path = entry.path();
        let kind = entry.file_type().expect("an entry has a type");
        if is_skipped(&entry.file_name().to_string_lossy()) {
            continue;
        }
        if kind.is_dir() {
            collect(root, &path, files);
        } else if kind.is_file()
            && let Ok(text) = fs::read_to_string(&path)
        {
            let relative = path.strip_prefix(root).expect("below the root");
            files.push((relative.to_owned(), text));
        }
    }
}

/// In a worktree `.git` is a file, so files are judged by their names as directories are.
fn is_skipped(name: &str) -> bool {
    const PRODUCTS: [&str; 4] = ["target", "node_modules", "corpus", "artifacts"];
    PRODUCTS.contains(&name) || (name.starts_with('.') && ![".ci", ".github", ".gitignore"].contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_file_is_in_the_tree() {
        let files = text_files(&root());
        assert!(files.iter().any(|(path, _)| path == Path::new("crates/tidy/src/tree.rs")));
        assert!(files.iter().all(|(path, _)| !path.starts_with("target") && !path.starts_with(".git")));
    }
}
