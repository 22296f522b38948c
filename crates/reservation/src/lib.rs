//! The program of a reservation pod: asks the driver which device the pod was given and writes it onto the pod.
//!
//! ```text
//!  own pod ─▶ driver: exactly one device ─▶ UUID ─▶ annotation run.ai/reserve_for_gpu_index ─▶ idle, look again now and then
//! ```
//!
//! The pod exists to hold a device; this program is what runs meanwhile. It opens no port and reads and patches nothing but its
//! own pod. Errors of the API are waited out; errors of the driver end it, so that they show as a container that fails.
//! It must not know: groups, nodes, and who asked for the device.

mod discovery;
mod progress;
mod tell;

use std::{sync::Arc, time::Duration};

use kai_gpu::{Devices, Nvml, Problem};
use kai_kit::{backoff::Backoff, rbac::Right};
use kube::Client;
use tokio_util::sync::CancellationToken;

pub use self::{
    progress::{Progress, Voice},
    tell::Outcome,
};

/// How often the annotation is looked at again.
const LOOK_AGAIN: Duration = Duration::from_mins(3);
/// Pauses between attempts while the API does not answer.
const PAUSES: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// Who the program is: its own pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct Options {
    /// Name of the pod this program runs in.
    #[arg(long, env = "POD_NAME", default_value = "")]
    pub pod_name: String,
    /// Namespace of the pod this program runs in.
    #[arg(long, env = "POD_NAMESPACE", default_value = "")]
    pub pod_namespace: String,
}

/// Why the program ended by itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It does not know who it is.
    #[error(
        "{variable} is not set: give the container an environment variable {variable} with valueFrom.fieldRef.fieldPath \
         {field}"
    )]
    NoName {
        /// The variable.
        variable: &'static str,
        /// The field of the pod that belongs into it.
        field: &'static str,
    },
    /// The driver does not tell.
    #[error(transparent)]
    Driver(#[from] Problem),
    /// There is not exactly one device.
    #[error(
        "found {count} GPU devices ({names}) instead of exactly 1: the container must be given one device by the device \
         plugin (limits nvidia.com/gpu: 1){remedy}"
    )]
    NotOne {
        /// How many there are.
        count: usize,
        /// Their UUIDs, or `none`.
        names: String,
        /// What else to look at.
        remedy: &'static str,
    },
    /// The device is part of a GPU.
    #[error(
        "the only device is MIG instance {instances} of GPU {gpu}: a MIG instance is not shared by fractions; ask for its \
         profile as a resource (nvidia.com/mig-…), or turn MIG off on this node"
    )]
    Mig {
        /// UUIDs of the instances that are visible.
        instances: String,
        /// UUID of the GPU.
        gpu: String,
    },
}

/// What the program may do: look at and annotate pods beside it.
pub fn rights(namespace: &str) -> Vec<Right> {
    vec![Right::in_namespace(
        namespace,
        "",
        "pods",
        &["get", "patch"],
        "writes the UUID of its device onto its own pod",
    )]
}

/// Runs until `cancel`, with the driver of the machine and its lines in the process's own log.
pub async fn run(options: Options, client: Client, cancel: CancellationToken) -> Result<(), Error> {
    in_process(Arc::new(Nvml::default())).run(options, client, cancel).await
}

/// The same program over other devices, for clusters that live in one process.
pub fn in_process(devices: Arc<dyn Devices>) -> Program {
    Program { devices, voice: progress::log() }
}

/// The program, ready to run.
#[derive(Clone)]
pub struct Program {
    devices: Arc<dyn Devices>,
    voice: Voice,
}

impl Program {
    /// Tells what it does to `voice` instead of to the log. [`Progress`] displays as the line that the log would show.
    #[must_use]
    pub fn saying(mut self, voice: Voice) -> Self {
        self.voice = voice;
        self
    }

    /// Runs until `cancel`. An error is the end of the process with code 1.
    pub async fn run(self, options: Options, client: Client, cancel: CancellationToken) -> Result<(), Error> {
        for (value, variable, field) in [
            (&options.pod_name, "POD_NAME", "metadata.name"),
            (&options.pod_namespace, "POD_NAMESPACE", "metadata.namespace"),
        ] {
            if value.is_empty() {
                return Err(Error::NoName { variable, field });
            }
        }
        tokio::select! {
            biased;
            () = cancel.cancelled() => Ok(()),
            ended = self.keep(options, client) => ended,
        }
    }

    /// Keeps the annotation right for ever.
    async fn keep(self, options: Options, client: Client) -> Result<(), Error> {
        let mut teller = tell::Teller::new(&client, options, self.devices, self.voice.clone());
        let mut failures = 0;
        loop {
            let pause = match teller.look().await? {
                Outcome::Right => {
                    failures = 0;
                    LOOK_AGAIN
                }
                Outcome::Later(problem) => {
                    failures += 1;
                    let pause = PAUSES.after(failures);
                    (self.voice)(&Progress::Waiting { problem, pause });
                    pause
                }
            };
            tokio::time::sleep(pause).await;
        }
    }
}
