//! `kai resource-reservation`: the program of reservation pods. It finds out which GPU the pod was given and says so on the pod.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Options of `kai resource-reservation`.
#[derive(Debug, clap::Args)]
pub struct Command {
    #[command(flatten)]
    options: kai_reservation::Options,
    /// End when the process that started this one ends, also when that one is killed.
    #[arg(long, hide = true)]
    end_with_parent: bool,
}

/// Runs it until SIGTERM.
pub async fn run(command: Command) -> anyhow::Result<()> {
    if command.end_with_parent {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    }
    let client = kai_kit::client::connect(None).await?;
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.cancel();
    });
    kai_reservation::run(command.options, client, cancel).await?;
    Ok(())
}
