//! Console transcripts as tests: each `$` line is run in a shell, and what it prints must be what the file says.
//!
//! ```text
//! # a comment
//! $ kubectl create namespace shop
//! namespace/shop created
//! $ kubectl get pod none
//! Error from server (NotFound): pods "none" not found
//! ? 1
//! ```
//!
//! A command goes on over the next lines while it holds an open here-document (`<<EOF`). Expected lines may hold `[..]` for any
//! text within the line; a line `...` stands for any lines. `? N` is the exit code when it is not 0. Standard output and error
//! are read together. Runs of spaces compare equal: kubectl aligns columns by what else is in them.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::process::Command;
use tokio::time::timeout;

/// How long one command may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// One command and what it should print.
#[derive(Debug, Default, PartialEq, Eq)]
struct Step {
    line: usize,
    command: String,
    expected: Vec<String>,
    exit_code: i32,
}

/// Runs a transcript with these environment variables added; the error names the line that differs.
pub async fn run(text: &str, environment: &[(&str, &Path)]) -> Result<()> {
    for step in parse(text)? {
        let (output, exit_code) =
            execute(&step, environment).await.with_context(|| format!("line {}: {}", step.line, step.command))?;
        let lines: Vec<String> = output.lines().map(squeeze).collect();
        let expected: Vec<String> = step.expected.iter().map(|line| squeeze(line)).collect();
        ensure!(
            matches(&lines, &expected) && exit_code == step.exit_code,
            "line {}: $ {}\n--- expected (exit code {})\n{}\n--- printed (exit code {exit_code})\n{}",
            step.line,
            step.command,
            step.exit_code,
            step.expected.join("\n"),
            output.trim_end(),
        );
    }
    Ok(())
}

fn parse(text: &str) -> Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if let Some(command) = line.strip_prefix("$ ") {
            let mut step = Step { line: number + 1, command: command.to_owned(), ..Step::default() };
            if let Some((_, word)) = command.split_once("<<") {
                let end = word.trim().trim_matches('\'').to_owned();
                loop {
                    let (_, more) =
                        lines.next().with_context(|| format!("line {}: no `{end}` ends the input", step.line))?;
                    step.command.push('\n');
                    step.command.push_str(more);
                    if more == end {
                        break;
                    }
                }
            }
            steps.push(step);
        } else if let Some(step) = steps.last_mut().filter(|_| !line.starts_with('#')) {
            match line.strip_prefix("? ") {
                Some(code) => step.exit_code = code.trim().parse().with_context(|| format!("line {}", number + 1))?,
                None => step.expected.push(line.to_owned()),
            }
        } else if !line.starts_with('#') && !line.trim().is_empty() {
            bail!("line {}: output before the first command", number + 1);
        }
    }
    for step in &mut steps {
        while step.expected.last().is_some_and(|line| line.trim().is_empty()) {
            step.expected.pop();
        }
    }
    Ok(steps)
}

async fn execute(step: &Step, environment: &[(&str, &Path)]) -> Result<(String, i32)> {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("exec 2>&1\n{}", step.command)).stdin(Stdio::null()).kill_on_drop(true);
    command.envs(environment.iter().map(|(name, value)| (name, value.as_os_str())));
    let output = timeout(PATIENCE, command.output()).await.context("still running")??;
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code().unwrap_or(-1)))
}

fn squeeze(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether lines match a pattern in which `...` stands for any number of lines.
fn matches(lines: &[String], pattern: &[String]) -> bool {
    match pattern.split_first() {
        None => lines.iter().all(String::is_empty),
        Some((first, rest)) if first == "..." => (0..=lines.len()).any(|skip| matches(&lines[skip..], rest)),
        Some((first, rest)) => {
            lines.split_first().is_some_and(|(line, more)| line_matches(line, first) && matches(more, rest))
        }
    }
}

/// Whether a line matches a pattern in which `[..]` stands for any text.
fn line_matches(line: &str, pattern: &str) -> bool {
    match pattern.split_once("[..]") {
        None => line == pattern,
        Some((start, rest)) => line.strip_prefix(start).is_some_and(|tail| {
            tail.char_indices().map(|(at, _)| at).chain([tail.len()]).any(|at| line_matches(&tail[at..], rest))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_printed_must_be_what_is_written() {
        let good = "# a comment\n$ echo one; echo two 3s\none\ntwo [..]s\n\n$ cat <<EOF\n$ x\nEOF\n[..]x\n$ false\n? 1\n$ seq 5\n1\n...\n5\n";
        run(good, &[]).await.unwrap();
        for bad in ["$ echo one\ntwo\n", "$ echo one\n", "$ true\n? 1\n", "$ seq 5\n1\n...\n4\n"] {
            assert!(run(bad, &[]).await.is_err(), "{bad}");
        }
    }
}
