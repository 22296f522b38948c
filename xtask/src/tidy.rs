//! Tidiness as tests: rules about the shape of the repository that no compiler checks.

mod dependencies;
mod files;
mod layers;
mod links;

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::invocation::workspace;

/// The files of the repository with this extension, as paths below the root of the workspace, sorted.
fn files(extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect(&workspace(), extension, &mut found);
    let mut files: Vec<_> =
        found.iter().filter_map(|path| path.strip_prefix(workspace()).ok()).map(Path::to_path_buf).collect();
    files.sort();
    assert!(!files.is_empty(), "there is no .{extension} file: the list is wrong");
    files
}

fn collect(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("read `{}`: {error}", folder.display())) {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            // Build results and git's own files are not the repository's.
            if name != "target" && name != ".git" {
                collect(&path, extension, found);
            }
        } else if path.extension().is_some_and(|other| other == extension) {
            found.push(path);
        }
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(workspace().join(path)).unwrap_or_else(|error| panic!("read `{}`: {error}", path.display()))
}

/// Fails with one line for each complaint.
fn expect_none(rule: &str, complaints: &[String]) {
    assert!(complaints.is_empty(), "{rule}:\n  {}", complaints.join("\n  "));
}
