//! Sessions of plain kubectl, kept as files in `tests/transcripts` and replayed against the embedded and the real API server.
//!
//! A file whose first line is `# tiers: 1` holds what only the embedded cluster can do.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use kai_tests::cluster::Cluster;
use kai_tests::harness::{self, Case, Needs, Tier};
use kai_tests::programs::Programs;
use kai_tests::transcript;

macro_rules! transcripts {
    ($($name:ident on $tiers:expr),* $(,)?) => {
        &[$(Case { name: stringify!($name), tiers: $tiers, run: |cluster| Box::pin(replay(cluster, concat!(stringify!($name), ".txt"))) }),*]
    };
}

const BOTH: &[Tier] = &[Tier::Embedded, Tier::ControlPlane];
const EMBEDDED: &[Tier] = &[Tier::Embedded];

const CASES: &[Case] = transcripts![
    nodes on EMBEDDED,
    rollout on BOTH,
    objects on BOTH,
    patches on BOTH,
    deletion on BOTH,
    explain on EMBEDDED,
    logs_and_events on EMBEDDED,
    drain on BOTH,
    bad_input on BOTH,
];

fn main() -> ExitCode {
    harness::main_needing(Needs::Programs, CASES)
}

async fn replay(cluster: &Cluster, file: &str) -> Result<()> {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("transcripts").join(file);
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let kubeconfig = cluster.kubeconfig().await?;
    let programs = Programs::find()?;
    let kubectl = programs.path("kubectl");
    let folder = kubectl.parent().context("kubectl lies in a folder")?;
    let search = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = vec![folder.to_path_buf()];
    folders.extend(std::env::split_paths(&search));
    let search = PathBuf::from(std::env::join_paths(folders)?);
    let home = kubeconfig.parent().context("the kubeconfig lies in a folder")?;
    transcript::run(&text, &[("KUBECONFIG", &kubeconfig), ("PATH", &search), ("HOME", home)]).await
}
