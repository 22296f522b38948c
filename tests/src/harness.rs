//! Runs one table of cases on every tier that each case names, and says how each went.
//!
//! A tier's cluster is started once, its cases run side by side (each in namespaces of its own), then the cluster is stopped
//! before the next tier starts. The last line of the output is `N passed, N failed`.

use std::{
    any::Any,
    env, fmt,
    panic::AssertUnwindSafe,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, bail};
use futures::{FutureExt as _, StreamExt as _, future::LocalBoxFuture, stream};
use kai_lab::fleet::Fleet;
use kube::Client;
use tokio::time::timeout;

use crate::{cluster::Cluster, programs::Programs};

/// Cases that run at the same time on one cluster.
const SIDE_BY_SIDE: usize = 8;
/// How long one case may take; a case that waits for ever is a failed one.
const PATIENCE: Duration = Duration::from_mins(5);

/// Every tier.
pub const ALL: &[Tier] = &[Tier::Embedded, Tier::ControlPlane, Tier::RealNode];
/// The tiers whose nodes are simulated, and so can have GPUs.
pub const SIMULATED_NODES: &[Tier] = &[Tier::Embedded, Tier::ControlPlane];
/// The tier whose node is a real kubelet.
pub const REAL_NODE: &[Tier] = &[Tier::RealNode];

/// How much of a cluster is real.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Tier 1: everything in this process.
    Embedded,
    /// Tier 2: real control plane, simulated nodes.
    ControlPlane,
    /// Tier 3: real control plane, real node.
    RealNode,
}

impl fmt::Display for Tier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Embedded => "tier 1",
            Self::ControlPlane => "tier 2",
            Self::RealNode => "tier 3",
        })
    }
}

/// One behaviour that must hold on each of its tiers.
#[derive(Clone, Copy)]
pub struct Case {
    /// A sentence about the behaviour, in the form of a function's name.
    pub name: &'static str,
    /// Where it must hold.
    pub tiers: &'static [Tier],
    /// Shows the behaviour on a cluster, or fails.
    pub run: for<'cluster> fn(&'cluster Cluster) -> LocalBoxFuture<'cluster, Result<()>>,
}

/// Makes a [`Case`] from an `async fn(&Cluster) -> anyhow::Result<()>` and the tiers it runs on.
#[macro_export]
macro_rules! case {
    ($run:ident, $tiers:expr) => {
        $crate::harness::Case { name: stringify!($run), tiers: $tiers, run: |cluster| Box::pin($run(cluster)) }
    };
}

/// Which tiers to run, from the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// `KAI_TEST_REAL=1`: tiers 2 and 3 as well.
    pub real: bool,
    /// `KAI_TEST_NO_SKIP=1`: whatever is missing is a failure.
    pub no_skip: bool,
}

impl Selection {
    /// Reads `KAI_TEST_REAL` and `KAI_TEST_NO_SKIP`.
    pub fn from_environment() -> Self {
        let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
        let no_skip = is_set("KAI_TEST_NO_SKIP");
        Self { real: no_skip || is_set("KAI_TEST_REAL"), no_skip }
    }

    /// Whether to run a tier; if not, the reason is printed by the caller. An error is a forbidden skip.
    pub fn decide(self, tier: Tier, needs: Needs) -> Result<Decision> {
        if tier == Tier::Embedded && needs == Needs::Rust {
            return Ok(Decision::Run);
        }
        if !self.real {
            return Ok(Decision::Skip("KAI_TEST_REAL=1 asks for it".into()));
        }
        let programs = (needs == Needs::Programs).then(|| Programs::find().err().map(|error| format!("{error:#}")));
        match programs.flatten().or_else(|| Cluster::missing(tier)) {
            None => Ok(Decision::Run),
            Some(missing) if self.no_skip => bail!("{missing}"),
            Some(missing) => Ok(Decision::Skip(missing)),
        }
    }
}

/// What a suite needs besides its clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: tier 1 always runs.
    Rust,
    /// The programs of a real cluster, such as kubectl, or Go: tier 1 too runs only when real clusters are asked for.
    Programs,
}

/// What to do about a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It can run.
    Run,
    /// It is left out, for this reason.
    Skip(String),
}

/// The main function of a suite: runs the cases whose names contain the first argument that is not a flag.
pub fn main(cases: &[Case]) -> ExitCode {
    main_needing(Needs::Rust, cases)
}

/// The main function of a suite that cannot run with Rust alone.
pub fn main_needing(needs: Needs, cases: &[Case]) -> ExitCode {
    main_of(Suite { cases, last: &[], needs, ground: Ground::Kubernetes })
}

/// What a cluster has before the control plane of kai is started.
#[derive(Clone, Copy)]
pub struct Preparation {
    /// Its nodes.
    pub fleet: fn() -> Result<Fleet>,
    /// Puts objects there, as somebody with all rights.
    pub before: for<'client> fn(&'client Client) -> LocalBoxFuture<'client, Result<()>>,
}

/// The main function of a suite about the control plane of kai. The `last` cases run one after the other when all others have ended.
pub fn main_with_kai(preparation: Preparation, cases: &[Case], last: &[Case]) -> ExitCode {
    main_of(Suite { cases, last, needs: Needs::Rust, ground: Ground::Kai(preparation) })
}

/// What a suite's cluster has.
#[derive(Clone, Copy)]
enum Ground {
    Kubernetes,
    Kai(Preparation),
}

impl Ground {
    async fn start(self, tier: Tier) -> Result<Cluster> {
        match self {
            Self::Kubernetes => Cluster::start(tier).await,
            Self::Kai(preparation) => Cluster::with_kai(tier, preparation).await,
        }
    }
}

#[derive(Clone, Copy)]
struct Suite<'a> {
    cases: &'a [Case],
    last: &'a [Case],
    needs: Needs,
    ground: Ground,
}

fn main_of(suite: Suite<'_>) -> ExitCode {
    let filter = env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: start the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let tally = runtime.block_on(run_tiers(suite, &filter, Selection::from_environment()));
    println!("{} passed, {} failed", tally.passed, tally.failed);
    if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    passed: usize,
    failed: usize,
}

async fn run_tiers(suite: Suite<'_>, filter: &str, selection: Selection) -> Tally {
    let mut tally = Tally::default();
    for &tier in ALL {
        let chosen = |cases: &'_ [Case]| -> Vec<Case> {
            let chosen = cases.iter().filter(|case| case.tiers.contains(&tier) && case.name.contains(filter));
            chosen.copied().collect()
        };
        let (cases, last) = (chosen(suite.cases), chosen(suite.last));
        let count = cases.len() + last.len();
        if count == 0 {
            continue;
        }
        match selection.decide(tier, suite.needs) {
            Ok(Decision::Run) => Box::pin(run_tier(tier, suite.ground, &cases, &last, &mut tally)).await,
            Ok(Decision::Skip(reason)) => println!("{tier}: {count} cases not run: {reason}"),
            Err(missing) => {
                println!("FAILED  {tier}  cannot run and must not be skipped: {missing:#}");
                tally.failed += count;
            }
        }
    }
    tally
}

async fn run_tier(tier: Tier, ground: Ground, cases: &[Case], last: &[Case], tally: &mut Tally) {
    let start = Instant::now();
    let cluster = match ground.start(tier).await {
        Ok(cluster) => cluster,
        Err(error) => {
            println!("FAILED  {tier}  start the cluster: {error:#}");
            tally.failed += cases.len() + last.len();
            return;
        }
    };
    println!("{tier}: started in {:.1} s", start.elapsed().as_secs_f64());
    let mut outcomes = stream::iter(cases).map(|case| timed(case, &cluster)).buffer_unordered(SIDE_BY_SIDE);
    while let Some(outcome) = outcomes.next().await {
        tally.take(tier, outcome);
    }
    drop(outcomes);
    for case in last {
        tally.take(tier, timed(case, &cluster).await);
    }
    let start = Instant::now();
    match cluster.stop().await {
        Ok(()) => println!("{tier}: stopped in {:.1} s", start.elapsed().as_secs_f64()),
        Err(error) => {
            tally.failed += 1;
            println!("FAILED  {tier}  stop the cluster: {error:#}");
        }
    }
}

type Outcome = (&'static str, Result<()>, Duration);

async fn timed(case: &Case, cluster: &Cluster) -> Outcome {
    let start = Instant::now();
    (case.name, run_case(case, cluster).await, start.elapsed())
}

impl Tally {
    fn take(&mut self, tier: Tier, (name, outcome, took): Outcome) {
        let seconds = took.as_secs_f64();
        match outcome {
            Ok(()) => {
                self.passed += 1;
                println!("ok      {tier}  {name}  {seconds:.2} s");
            }
            Err(error) => {
                self.failed += 1;
                println!("FAILED  {tier}  {name}  {seconds:.2} s\n        {error:#}");
            }
        }
    }
}

async fn run_case(case: &Case, cluster: &Cluster) -> Result<()> {
    match timeout(PATIENCE, AssertUnwindSafe((case.run)(cluster)).catch_unwind()).await {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => Err(anyhow!("panicked: {}", panic_message(panic.as_ref()))),
        Err(_) => Err(anyhow!("still running after {} s", PATIENCE.as_secs())),
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("with a value that is no text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_tiers_run_only_when_asked_for() {
        let selection = Selection { real: false, no_skip: false };
        assert_eq!(selection.decide(Tier::Embedded, Needs::Rust).unwrap(), Decision::Run);
        assert!(matches!(selection.decide(Tier::Embedded, Needs::Programs).unwrap(), Decision::Skip(_)));
        assert!(matches!(selection.decide(Tier::ControlPlane, Needs::Rust).unwrap(), Decision::Skip(_)));
    }
}
