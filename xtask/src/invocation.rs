//! A command line that can be run, and shown in a form that can be pasted into a shell.

use std::{
    env, fmt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

use anyhow::{Context as _, Result};

/// One command with its arguments, environment and folder.
#[derive(Clone, Debug)]
pub struct Invocation {
    program: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    folder: PathBuf,
}

impl Invocation {
    /// Runs in the root of the workspace unless told otherwise.
    pub fn new<S: Into<String>>(program: &str, arguments: impl IntoIterator<Item = S>) -> Self {
        let arguments = arguments.into_iter().map(Into::into).collect();
        Self { program: program.into(), arguments, environment: Vec::new(), folder: workspace() }
    }

    /// The cargo that runs this task.
    pub fn cargo<S: Into<String>>(arguments: impl IntoIterator<Item = S>) -> Self {
        Self::new("cargo", arguments)
    }

    /// Adds arguments at the end.
    pub fn arguments<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Runs in this folder.
    pub fn folder(mut self, folder: PathBuf) -> Self {
        self.folder = folder;
        self
    }

    /// Runs the command with this process's output and waits for its end.
    pub fn status(&self) -> Result<ExitStatus> {
        self.command().status().with_context(|| format!("start `{}`", self.program))
    }

    /// Runs the command and gives what it printed, failing when it fails.
    #[cfg(test)]
    pub fn output(&self) -> Result<String> {
        let output = self.command().output().with_context(|| format!("start `{}`", self.program))?;
        anyhow::ensure!(output.status.success(), "`{self}` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        String::from_utf8(output.stdout).context("the output is text")
    }

    /// The command, for who wants to handle its streams.
    pub fn command(&self) -> Command {
        let program = match self.program.as_str() {
            "cargo" => env::var("CARGO").unwrap_or_else(|_| "cargo".into()),
            other => other.into(),
        };
        let mut command = Command::new(program);
        command.args(&self.arguments).current_dir(&self.folder).stdin(Stdio::null());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

impl fmt::Display for Invocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.folder != workspace() {
            write!(formatter, "cd {} && ", quoted(&self.folder.display().to_string()))?;
        }
        for (name, value) in &self.environment {
            write!(formatter, "{name}={} ", quoted(value))?;
        }
        write!(formatter, "{}", self.program)?;
        self.arguments.iter().try_for_each(|argument| write!(formatter, " {}", quoted(argument)))
    }
}

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

fn quoted(text: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_./=:,@+".contains(character);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.into()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_a_shell_takes_it() {
        let invocation = Invocation::cargo(["test", "--", "it's"]).environment("KAI_TEST_REAL", "1");
        assert_eq!(invocation.to_string(), r"KAI_TEST_REAL=1 cargo test -- 'it'\''s'");
    }
}
