//! The shape of source files: a header that says what the file answers, a bearable length, names that name an idea.

use std::path::Path;

use super::{expect_none, files, read};

const LONGEST: usize = 600;

/// Longer files, each with the reason why it is one piece.
const MAY_BE_LONGER: &[(&str, &str)] = &[];

/// Words that say nothing about what is inside.
const NAMELESS: &[&str] = &["utils", "util", "helpers", "helper", "common", "misc"];

#[test]
fn every_file_begins_with_what_it_is_about() {
    // The tests of a module have that module's header.
    let sources = files("rs").into_iter().filter(|path| path.file_name().is_some_and(|name| name != "tests.rs"));
    let bare = sources.filter(|path| !read(path).starts_with("//!"));
    let complaints: Vec<_> = bare.map(|path| format!("{} does not begin with `//!`", path.display())).collect();
    expect_none("every file begins with what it is about", &complaints);
}

#[test]
fn no_file_is_too_long_to_read() {
    let mut complaints = Vec::new();
    for path in files("rs") {
        let lines = read(&path).lines().count();
        if lines > LONGEST && !MAY_BE_LONGER.iter().any(|(listed, _)| Path::new(listed) == path) {
            complaints.push(format!("{} has {lines} lines", path.display()));
        }
    }
    expect_none("files have at most 600 lines", &complaints);
}

#[test]
fn files_that_may_be_longer_are_longer() {
    for (path, reason) in MAY_BE_LONGER {
        let lines = read(Path::new(path)).lines().count();
        assert!(lines > LONGEST, "`{path}` ({reason}) is short enough: take it off the list");
    }
}

#[test]
fn names_name_an_idea() {
    let mut complaints = Vec::new();
    for path in files("rs") {
        let mut parts = path.iter().map(|part| part.to_string_lossy().trim_end_matches(".rs").to_string());
        if parts.any(|part| NAMELESS.contains(&part.as_str())) {
            complaints.push(format!("{} names no idea", path.display()));
        }
        if path.ends_with("mod.rs") {
            complaints.push(format!("{}: `foo.rs` beside `foo/`, not `foo/mod.rs`", path.display()));
        }
    }
    expect_none("names name an idea", &complaints);
}
