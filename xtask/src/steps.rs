//! Steps that are announced, timed, summed up, and stop at the first failure with the command that repeats it.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::invocation::Invocation;

/// The steps done so far.
#[derive(Debug, Default)]
pub struct Steps {
    done: Vec<(String, Duration)>,
}

impl Steps {
    /// Runs a command as one step.
    pub fn run(&mut self, name: &str, invocation: &Invocation) -> Result<()> {
        self.run_with(name, || {
            let status = invocation.status()?;
            if status.success() {
                return Ok(());
            }
            bail!("{status}\nhint: repeat this step with\n    {invocation}")
        })
    }

    /// Runs anything as one step.
    pub fn run_with(&mut self, name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        eprintln!("\n==> {name}");
        let start = Instant::now();
        let result = work();
        let took = start.elapsed();
        self.done.push((name.into(), took));
        if let Err(error) = result {
            eprintln!("\nsteps");
            self.print("FAILED");
            bail!("step `{name}` failed after {}: {error:#}", seconds(took));
        }
        eprintln!("    {name}: {}", seconds(took));
        Ok(())
    }

    /// Sums up when all steps went well.
    pub fn finish(&self) {
        eprintln!("\nsteps");
        self.print("ok");
        let total = self.done.iter().map(|(_, took)| *took).sum();
        eprintln!("all {} steps passed in {}", self.done.len(), seconds(total));
    }

    fn print(&self, last: &str) {
        for (index, (name, took)) in self.done.iter().enumerate() {
            let verdict = if index + 1 == self.done.len() { last } else { "ok" };
            eprintln!("    {verdict:<6}  {:>9}  {name}", seconds(*took));
        }
    }
}

/// A duration as people say it: seconds with a tenth, minutes above one.
pub fn seconds(duration: Duration) -> String {
    let whole = duration.as_secs();
    if whole < 60 { format!("{:.1} s", duration.as_secs_f64()) } else { format!("{} min {} s", whole / 60, whole % 60) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_says_how_to_repeat_it() {
        let error = Steps::default().run("lies", &Invocation::new("false", ["--now"])).unwrap_err().to_string();
        assert!(error.contains("step `lies` failed") && error.contains("    false --now"), "{error}");
    }
}
