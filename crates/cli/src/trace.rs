//! `kai trace replay`: plans again what was recorded, and whether the plans are the same.

use std::{fs::File, io::BufReader, path::PathBuf, process::ExitCode};

use anyhow::Context;
use kai_trace::{Difference, Reader, Report, replay};
use serde_json::json;

use crate::output::{self, Format};

/// Options of `kai trace replay`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The trace.
    file: PathBuf,
    /// How to print the outcome.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// Replays the trace; the exit code says whether every plan came out as recorded.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let name = options.file.display();
    let file = File::open(&options.file).with_context(|| format!("open trace `{name}`"))?;
    let reader = Reader::new(BufReader::new(file)).with_context(|| format!("read trace `{name}`"))?;
    let report = replay(reader).with_context(|| format!("replay trace `{name}`"))?;
    match options.output {
        Format::Text => output::print(&text(&report))?,
        Format::Json => {
            let Report { deltas, cycles, difference } = &report;
            let object =
                json!({ "file": name.to_string(), "deltas": deltas, "cycles": cycles, "difference": difference });
            output::print(&serde_json::to_string_pretty(&object)?)?;
        }
    }
    Ok(if report.difference.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn text(report: &Report) -> String {
    let Report { deltas, cycles, difference } = report;
    match difference {
        None => format!("{cycles} cycles, {deltas} deltas: every plan is as recorded"),
        Some(Difference { cycle, now, place, recorded, replayed }) => format!(
            "cycle {cycle} (now {now}) differs at {place}\n  recorded: {}\n  replayed: {}",
            recorded.as_deref().unwrap_or("nothing"),
            replayed.as_deref().unwrap_or("nothing")
        ),
    }
}
