//! The multi-call binary: installs the one TLS provider and hands over to the commands.

use std::process::ExitCode;

use kai_heap::Counting;
use mimalloc::MiMalloc;

/// Objects here are many small strings: `kai bench lab` spends a third of its time in the system's allocator. What it gives out is counted for
/// `kai bench core`.
#[global_allocator]
static ALLOCATOR: Counting<MiMalloc> = Counting(MiMalloc);

fn main() -> ExitCode {
    // The allocator takes memory in pieces of 64 KiB here and there; with huge pages each piece costs 2 MiB that the kernel must clear. A
    // kernel without them has nothing to switch off.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    // Two providers in the graph would make rustls panic at first use; there is one, and it is named here.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        eprintln!("error: another TLS provider is installed already");
        return ExitCode::FAILURE;
    }
    kai_cli::run()
}
