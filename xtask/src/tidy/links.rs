//! Links in the documents: those that point into the repository lead to a file, those within a page to a heading.

use std::path::Path;

use super::{expect_none, files, read};
use crate::invocation::workspace;

#[test]
fn links_in_documents_lead_somewhere() {
    let mut complaints = Vec::new();
    for document in files("md") {
        let text = read(&document);
        for target in links(&text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, heading) = target.split_once('#').unwrap_or((target.as_str(), ""));
            let page = match path {
                "" => document.clone(),
                _ => document.parent().unwrap_or(Path::new("")).join(path),
            };
            if !workspace().join(&page).exists() {
                complaints.push(format!("{}: `{target}` leads nowhere", document.display()));
            } else if !heading.is_empty() && !anchors(&read(&page)).contains(&heading.to_string()) {
                complaints.push(format!("{}: `{target}` names no heading", document.display()));
            }
        }
    }
    expect_none("links in documents lead somewhere", &complaints);
}

/// The targets of `[text](target)` outside of code.
fn links(text: &str) -> Vec<String> {
    let mut targets = Vec::new();
    for line in prose(text) {
        let mut rest = line;
        while let Some(start) = rest.find("](") {
            rest = &rest[start + 2..];
            let Some(end) = rest.find(')') else { break };
            targets.push(rest[..end].split_whitespace().next().unwrap_or_default().to_string());
            rest = &rest[end..];
        }
    }
    targets
}

/// The anchors that a renderer makes of a page's headings.
fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text).into_iter().filter(|line| line.starts_with('#'));
    let anchors = headings.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|character| character.is_alphanumeric() || "-_ ".contains(*character));
        kept.collect::<String>().replace(' ', "-")
    });
    anchors.collect()
}

/// The lines that are not inside a fenced block of code.
fn prose(text: &str) -> Vec<&str> {
    let mut in_code = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    });
    lines.collect()
}

#[test]
fn links_are_found_in_prose_only() {
    let text = "See [one](a.md) and [two](b.md#x \"title\").\n```\n[no](c.md)\n```\n";
    assert_eq!(links(text), ["a.md", "b.md#x"]);
}

#[test]
fn anchors_are_headings_in_lower_case() {
    assert_eq!(anchors("# One picture\n## `kai up`, again\n"), ["one-picture", "kai-up-again"]);
}
