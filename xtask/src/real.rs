//! `cargo xtask real`: builds the programs of a real Kubernetes cluster from Go modules, and starts one for hands-on work.
//!
//! The modules in `tests/real` fix every version; Go fetches and checks the sources. What is built stays in a cache outside of the
//! clone, so it takes minutes once and nothing after.

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;

use crate::{
    invocation::{Invocation, workspace},
    programs::{self, Programs},
    steps::seconds,
};

const PROGRESS_EVERY: Duration = Duration::from_secs(15);

/// What to do with a real cluster.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Builds etcd, kube-apiserver, kube-controller-manager, kubelet and kubectl into the cache.
    Build {
        /// Also these programs of Kubernetes, such as `kube-scheduler` for `kai bench e2e`.
        also: Vec<String>,
    },
    /// Starts a control plane and runs it until Ctrl-C or `down`.
    Up {
        /// Adds a real kubelet on containerd; needs root.
        #[arg(long)]
        node: bool,
    },
    /// Ends a cluster that `up` has started.
    Down,
}

/// Does it.
pub fn run(action: &Action) -> Result<()> {
    match action {
        Action::Build { also } => {
            build()?;
            build_also(also)
        }
        Action::Up { node } => {
            build()?;
            let arguments: &[&str] = if *node { &["up", "--node"] } else { &["up"] };
            real_cluster(arguments)
        }
        Action::Down => real_cluster(&["down"]),
    }
}

/// Builds what the cache lacks; a complete folder `KUBEBUILDER_ASSETS` is taken as it is.
pub fn build() -> Result<()> {
    if let Ok(found) = Programs::find() {
        eprintln!("    etcd, Kubernetes: {}", found.path("").display());
        return Ok(());
    }
    if let Some(folder) = env::var_os("KUBEBUILDER_ASSETS") {
        let names = programs::NAMES.join(", ");
        eprintln!("    KUBEBUILDER_ASSETS={} is not used: it does not have all of {names}", folder.display());
    }
    check_go()?;
    let folder = programs::built_folder()?;
    fs::create_dir_all(&folder).with_context(|| format!("create `{}`", folder.display()))?;
    let missing: Vec<&str> = programs::NAMES.into_iter().filter(|name| !folder.join(name).is_file()).collect();
    for (index, name) in missing.iter().enumerate() {
        eprintln!("    building {name} ({} of {})", index + 1, missing.len());
        build_program(name, &folder)?;
    }
    Ok(())
}

/// Builds programs that no test needs, beside the others.
fn build_also(names: &[String]) -> Result<()> {
    let folder = programs::built_folder()?;
    for name in names {
        if !name.starts_with("kube") || name.contains(['/', '.']) {
            bail!("`{name}` is no program of Kubernetes\nhint: such as `kube-scheduler`");
        }
        if !folder.join(name).is_file() {
            check_go()?;
            fs::create_dir_all(&folder).with_context(|| format!("create `{}`", folder.display()))?;
            build_program(name, &folder)?;
        }
        eprintln!("    {name}: {}", folder.join(name).display());
    }
    Ok(())
}

fn check_go() -> Result<()> {
    if programs::on_path("go").is_none() {
        bail!(
            "`go` is needed to build a real Kubernetes and was not found\nhint: install Go (https://go.dev/dl), or set KUBEBUILDER_ASSETS to a folder with {}",
            programs::NAMES.join(", ")
        );
    }
    Ok(())
}

fn build_program(name: &str, folder: &Path) -> Result<()> {
    // Built beside its place and moved there when it is whole: who finds a program in the cache can run it.
    let unfinished = folder.join(format!(".{name}.{}", std::process::id()));
    let invocation = build_invocation(name, &unfinished)?;
    let start = Instant::now();
    let result = run_with_progress(&invocation, name);
    if let Err(error) = result {
        // The build's own error counts; there may be no file yet.
        drop(fs::remove_file(&unfinished));
        return Err(error);
    }
    fs::rename(&unfinished, folder.join(name)).with_context(|| format!("put `{name}` into the cache"))?;
    eprintln!("    {name}: {}", seconds(start.elapsed()));
    Ok(())
}

fn build_invocation(name: &str, output: &Path) -> Result<Invocation> {
    let (module, package, flags) = if name == "etcd" {
        ("etcd", ".".to_string(), "-s -w".to_string())
    } else {
        ("kubernetes", format!("k8s.io/kubernetes/cmd/{name}"), kubernetes_link_flags()?)
    };
    let output = output.display().to_string();
    let arguments = ["build", "-v", "-trimpath", "-mod=readonly", "-ldflags", &flags, "-o", &output, &package];
    let module: PathBuf = workspace().join("tests").join("real").join(module);
    // Without C the programs run wherever the kernel does, and no C compiler is needed.
    Ok(Invocation::new("go", arguments).environment("CGO_ENABLED", "0").folder(module))
}

/// Kubernetes takes its version from the linker; without it every program says `v0.0.0-master`.
fn kubernetes_link_flags() -> Result<String> {
    let version = programs::kubernetes_version()?;
    let mut parts = version.split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let package = "k8s.io/component-base/version";
    let set = |name: &str, value: &str| format!(" -X {package}.{name}={value}");
    Ok(format!(
        "-s -w{}{}{}{}",
        set("gitVersion", &format!("v{version}")),
        set("gitMajor", major),
        set("gitMinor", minor),
        set("gitTreeState", "clean"),
    ))
}

/// Shows how far `go build -v` is from time to time, and what it said if it fails.
fn run_with_progress(invocation: &Invocation, name: &str) -> Result<()> {
    let mut child = invocation.command().stderr(Stdio::piped()).spawn().context("start `go`")?;
    let output = child.stderr.take().context("the output of `go` is a pipe")?;
    let packages = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&packages);
    let reader = thread::spawn(move || {
        let mut said = Vec::new();
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            counter.fetch_add(1, Ordering::Relaxed);
            said.push(line);
        }
        said
    });
    let start = Instant::now();
    let mut announced = Duration::ZERO;
    while !reader.is_finished() {
        thread::sleep(Duration::from_millis(200));
        if start.elapsed() >= announced + PROGRESS_EVERY {
            announced = start.elapsed();
            let packages = packages.load(Ordering::Relaxed);
            eprintln!("    {name}: {packages} packages after {}", seconds(announced));
        }
    }
    let said = reader.join().unwrap_or_default();
    let status = child.wait().context("wait for `go`")?;
    if status.success() {
        return Ok(());
    }
    let last = said.get(said.len().saturating_sub(30)..).unwrap_or_default().join("\n");
    bail!("build `{name}`: {status}\n{last}\nhint: repeat with\n    {invocation}")
}

fn real_cluster(arguments: &[&str]) -> Result<()> {
    let invocation = Invocation::cargo(["run", "--quiet", "--package", "kai-tests", "--bin", "real-cluster", "--"]);
    let status = invocation.arguments(arguments.iter().copied()).status()?;
    if !status.success() {
        bail!("{status}");
    }
    Ok(())
}
