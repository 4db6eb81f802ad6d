//! The rules, one test each. Sizes and names are those of the project's style; see CONTRIBUTING.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use gimmal_tidy::{Exceptions, Finding, RustFile, median, root, rust_files, text_files};

static FILES: LazyLock<Vec<RustFile>> = LazyLock::new(|| rust_files(&root()));
static EXCEPTIONS: LazyLock<Exceptions> = LazyLock::new(|| {
    let path = root().join("crates/tidy/exceptions.txt");
    Exceptions::parse(&fs::read_to_string(path).expect("the list of exceptions"))
});

const FILE_LINES: usize = 1000;
const FILE_LINES_MEDIAN: usize = 250;
const FUNCTION_LINES: usize = 70;
const FUNCTION_LINES_MEDIAN: usize = 10;

/// Every rule that may have exceptions.
const RULES: [&str; 9] = [
    "opens-with-doc",
    "file-lines",
    "function-lines",
    "unsafe-file",
    "unsafe-block",
    "unsafe-crate",
    "banned-name",
    "unfinished",
    "machine-path",
];

#[test]
fn exceptions_name_rules_that_exist() {
    let unknown: Vec<&str> = EXCEPTIONS.rules().filter(|rule| !RULES.contains(rule)).collect();
    assert!(unknown.is_empty(), "no such rules: {unknown:?}");
}

#[test]
fn every_file_opens_by_saying_what_it_is() {
    let silent = FILES.iter().filter(|file| !file.text.starts_with("//! "));
    obey("opens-with-doc", silent.map(|file| about_file(file, 1, "does not open with `//! `")).collect());
}

#[test]
fn files_are_short() {
    let long = FILES.iter().filter_map(|file| {
        let lines = file.text.lines().count();
        (lines > FILE_LINES).then(|| about_file(file, lines, &format!("has {lines} lines, the cap is {FILE_LINES}")))
    });
    obey("file-lines", long.collect());
    let lengths = FILES.iter().map(|file| file.lines_without_tests).filter(|lines| *lines > 0);
    let middle = median(lengths.collect());
    assert!(middle <= FILE_LINES_MEDIAN, "the median file has {middle} lines without tests");
}

#[test]
fn functions_are_short() {
    let mut long = Vec::new();
    let mut lengths = Vec::new();
    for (file, function) in FILES.iter().flat_map(|file| file.functions.iter().map(move |f| (file, f))) {
        if function.is_test {
            continue;
        }
        lengths.push(function.lines);
        if function.lines > FUNCTION_LINES {
            let subject = format!("{}::{}", file.path.display(), function.name);
            let message = format!(
                "{}:{}: {} has {} lines, the cap is {FUNCTION_LINES}",
                file.path.display(),
                function.line,
                function.name,
                function.lines
            );
            long.push(Finding { subject, size: function.lines, message });
        }
    }
    obey("function-lines", long);
    let middle = median(lengths);
    assert!(middle <= FUNCTION_LINES_MEDIAN, "the median function has {middle} lines");
}

#[test]
fn unsafe_stands_only_in_files_that_explain_it() {
    let unexplained = FILES.iter().filter(|file| {
        let header = file.header();
        file.idents.iter().any(|ident| ident.name == "unsafe") && !header.lines().any(|line| line == "# Safety")
    });
    let wrong = "uses unsafe without a `# Safety` section in its header";
    obey("unsafe-file", unexplained.map(|file| about_file(file, 1, wrong)).collect());
}

#[test]
fn every_unsafe_has_its_reason() {
    let mut findings = Vec::new();
    for file in FILES.iter() {
        let lines: Vec<&str> = file.text.lines().collect();
        let unsafe_lines: BTreeSet<usize> =
            file.idents.iter().filter(|ident| ident.name == "unsafe").map(|ident| ident.line).collect();
        let bare: Vec<usize> = unsafe_lines.into_iter().filter(|line| !has_reason(&lines, *line)).collect();
        if !bare.is_empty() {
            findings.push(about_file(file, bare.len(), &format!("no SAFETY comment above lines {bare:?}")));
        }
    }
    obey("unsafe-block", findings);
}

/// Whether the lines directly above `line` (from 1) give a reason: a `SAFETY:` comment, or `# Safety` in the docs of
/// an unsafe function. The start of the statement that holds the block may lie between.
fn has_reason(lines: &[&str], line: usize) -> bool {
    const STATEMENT_LINES: usize = 3;
    let mut code_lines = 0;
    for text in lines[..line].iter().rev() {
        let text = text.trim();
        if text.contains("SAFETY:") || text.contains("# Safety") {
            return true;
        }
        let is_prose = text.starts_with("//") || text.starts_with("#[");
        code_lines += usize::from(!is_prose);
        if text.is_empty() || code_lines > STATEMENT_LINES {
            return false;
        }
    }
    false
}

#[test]
fn every_crate_says_where_unsafe_may_stand() {
    // A root of a few lines is a crate that does not exist yet.
    let roots = FILES.iter().filter(|file| file.path.ends_with("src/lib.rs") && file.text.lines().count() > 10);
    let open = roots.filter(|file| {
        let states = |level: &str| {
            let at = file.idents.windows(2).position(|two| two[0].name == level && two[1].name == "unsafe_code");
            at.is_some_and(|at| file.idents[at].is_attribute)
        };
        !states("forbid") && !states("deny")
    });
    let wrong = "has neither forbid(unsafe_code) nor deny(unsafe_code)";
    obey("unsafe-crate", open.map(|file| about_file(file, 1, wrong)).collect());
}

#[test]
fn names_are_those_of_the_field() {
    let mut findings = Vec::new();
    for file in FILES.iter() {
        let stem = file.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        for (name, line) in file.defined.iter().chain([&(stem, 1)]) {
            if let Some(word) = banned_word(name) {
                let subject = format!("{}::{name}", file.path.display());
                let message = format!("{}:{line}: {name} is named after {word:?}", file.path.display());
                findings.push(Finding { subject, size: 1, message });
            }
        }
    }
    obey("banned-name", findings);
}

/// The word of a type's or function's name that says nothing about what it is.
fn banned_word(name: &str) -> Option<&'static str> {
    const BANNED: [&str; 7] = ["manager", "helper", "helpers", "util", "utils", "processor", "service"];
    // The standard library's own names for access by index stay what readers know.
    const STANDARD: [&str; 4] = ["get_mut", "get_ref", "get_unchecked", "get_unchecked_mut"];
    if STANDARD.contains(&name) {
        return None;
    }
    let words = words_of(name);
    if words.len() > 1 && words[0] == "get" && name.starts_with("get_") {
        return Some("get_");
    }
    BANNED.into_iter().find(|banned| words.iter().any(|word| word == banned))
}

fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_lower = false;
    for letter in name.chars() {
        if letter == '_' || (letter.is_uppercase() && after_lower) {
            words.push(String::new());
        }
        after_lower = letter.is_lowercase();
        if letter != '_' {
            words.last_mut().expect("never empty").extend(letter.to_lowercase());
        }
    }
    words
}

#[test]
fn words_are_found_in_names() {
    assert_eq!(words_of("HTTPService_a1"), ["httpservice", "a1"]);
    assert_eq!(banned_word("ConnManager"), Some("manager"));
    assert_eq!(banned_word("get_value"), Some("get_"));
    assert_eq!(banned_word("utils"), Some("utils"));
    for fine in ["get", "get_mut", "getset", "utility_of", "GetOptions", "serviced"] {
        assert_eq!(banned_word(fine), None, "{fine}");
    }
}

#[test]
fn nothing_is_left_unfinished() {
    let mut findings = Vec::new();
    for file in FILES.iter() {
        let path = file.path.display();
        for ident in &file.idents {
            let macros = ["todo", "unimplemented", "dbg"];
            let is_stub = ident.is_macro && macros.contains(&ident.name.as_str());
            if is_stub || (ident.is_attribute && ident.name == "ignore") {
                findings.push(about_file(file, 1, &format!("line {}: {}", ident.line, ident.name)));
            }
        }
        let marks = [concat!("TO", "DO"), concat!("FIX", "ME")];
        for (at, line) in file.text.lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark)) {
                let message = format!("{path}:{}: {}", at + 1, line.trim());
                findings.push(Finding { subject: path.to_string(), size: 1, message });
            }
        }
    }
    obey("unfinished", findings);
}

#[test]
fn no_text_names_a_path_of_somebodys_machine() {
    let paths = [concat!("/wo", "rk/"), concat!("/tmp", "/bin"), concat!("/ho", "me/")];
    let mut findings = Vec::new();
    for (path, text) in text_files(&root()) {
        for (at, line) in text.lines().enumerate().filter(|(_, line)| paths.iter().any(|p| line.contains(p))) {
            let message = format!("{}:{}: {}", path.display(), at + 1, line.trim());
            findings.push(Finding { subject: path.display().to_string(), size: 1, message });
        }
    }
    obey("machine-path", findings);
}

#[test]
fn every_dependency_has_its_reason() {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md")).expect("CONTRIBUTING.md");
    let explained: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("- `")?.split_once("`: ")).map(|(name, _)| name).collect();
    let used = direct_dependencies();
    let silent: Vec<_> = used.iter().filter(|(name, _)| !explained.contains(name.as_str())).collect();
    assert!(silent.is_empty(), "CONTRIBUTING.md has no line \"- `NAME`: why\" for {silent:?}");
}

/// Names of the crates from outside that the workspace names, with who uses them.
fn direct_dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let mut used: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let user = package["name"].as_str().expect("a name").to_owned();
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            if dependency["path"].is_null() {
                let name = dependency["name"].as_str().expect("a name").to_owned();
                used.entry(name).or_default().insert(user.clone());
            }
        }
    }
    assert!(!used.is_empty(), "the workspace has dependencies");
    used
}

#[test]
fn the_two_lives_name_functions_that_exist() {
    let server = Path::new("crates/server/src");
    // The lists are due as soon as there is an event loop to describe.
    if !FILES.iter().any(|file| file.path.starts_with(server) && file.path.ends_with("worker.rs")) {
        return;
    }
    let lib = FILES.iter().find(|file| file.path == server.join("lib.rs")).expect("the server's lib.rs");
    for title in ["Life of a command", "Life of a durable write"] {
        let named = functions_listed_under(&lib.header(), title);
        assert!(named.len() >= 3, "lib.rs lists {} functions under {title:?}", named.len());
        let missing: Vec<_> = named.iter().filter(|name| !is_function(name)).collect();
        assert!(missing.is_empty(), "{title:?} names functions that do not exist: {missing:?}");
    }
}

/// The first name in backticks of each list item (`- ` or `1. `) below the heading that contains `title`.
fn functions_listed_under(header: &str, title: &str) -> Vec<String> {
    let lines = header.lines().skip_while(|line| !line.contains(title)).skip(1);
    let section = lines.take_while(|line| !line.starts_with('#') && !line.contains("Life of a"));
    let items = section.filter(|line| line.starts_with("- ") || line.starts_with(|c: char| c.is_ascii_digit()));
    items.filter_map(|line| Some(line.split('`').nth(1)?.trim_end_matches("()").to_owned())).collect()
}

#[test]
fn lists_of_functions_are_read() {
    let header = "x\n# Life of a command\n1. `worker::run`: waits\n- `parse()` then `x`\ntext `no`\n# Next\n- `y`\n";
    assert_eq!(functions_listed_under(header, "Life of a command"), ["worker::run", "parse"]);
    assert!(is_function("the_two_lives_name_functions_that_exist") && is_function("RustFile::header"));
    assert!(!is_function("RustFile::footer") && !is_function("Nothing::header"));
}

/// Whether `name` (`f`, `module::f`, `Type::f`) is a function: its owner is the type or module around it, or its file.
fn is_function(name: &str) -> bool {
    let mut segments: Vec<&str> = name.split("::").collect();
    let function = segments.pop().unwrap_or_default();
    FILES.iter().any(|file| {
        let in_file = |segment: &str| {
            file.path
                .components()
                .any(|part| Path::new(part.as_os_str()).file_stem().is_some_and(|stem| *stem == *segment))
        };
        file.functions.iter().any(|candidate| {
            let in_owner = |segment: &&str| candidate.owner == **segment || in_file(segment);
            candidate.name == function
                && segments.iter().all(|segment| ["crate", "self"].contains(segment) || in_owner(segment))
        })
    })
}

fn about_file(file: &RustFile, size: usize, wrong: &str) -> Finding {
    let subject = file.path.display().to_string();
    Finding { message: format!("{subject} {wrong}"), subject, size }
}

fn obey(rule: &str, findings: Vec<Finding>) {
    assert!(RULES.contains(&rule), "{rule} is not listed in RULES");
    let wrong = EXCEPTIONS.judge(rule, &findings);
    assert!(wrong.is_empty(), "{rule}:\n{}", wrong.join("\n"));
}
