//! The multi-call binary: installs the one TLS provider and hands over to the commands.

use std::process::ExitCode;

use kai_heap::Counting;
use mimalloc::MiMalloc;

/// Objects here are many small strings: `kai bench lab` spends a third of its time in the system's allocator. What it gives out is counted for
/// `kai bench core`.
#[global_allocator]
static ALLOCATOR: Counting<MiMalloc> = Counting(MiMalloc);

fn main() -> ExitCode {
    // Two providers in the graph would make rustls panic at first use; there is one, and it is named here.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        eprintln!("error: another TLS provider is installed already");
        return ExitCode::FAILURE;
    }
    kai_cli::run()
}
