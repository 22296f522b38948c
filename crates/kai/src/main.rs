//! The multi-call binary: installs the one TLS provider and hands over to the commands.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Objects here are many small strings: `kai bench lab` spends a third of its time in the system's allocator.
#[cfg(not(feature = "count-heap"))]
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The same, counting: see the feature.
#[cfg(feature = "count-heap")]
#[global_allocator]
static ALLOCATOR: cap::Cap<MiMalloc> = cap::Cap::new(MiMalloc, usize::MAX);

fn main() -> ExitCode {
    // Two providers in the graph would make rustls panic at first use; there is one, and it is named here.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        eprintln!("error: another TLS provider is installed already");
        return ExitCode::FAILURE;
    }
    #[cfg(feature = "count-heap")]
    kai_cli::count_heap_with(kai_cli::HeapCounter {
        live: || ALLOCATOR.allocated(),
        most: || ALLOCATOR.max_allocated(),
    });
    kai_cli::run()
}
