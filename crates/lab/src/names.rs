//! Annotations a user may set on a pod to steer its simulated life, and names the lab writes itself.
//!
//! | annotation | value | meaning |
//! |---|---|---|
//! | `lab.kai/pull-seconds` | seconds | time the image pull takes; 0 = image already on the machine |
//! | `lab.kai/start-seconds` | seconds | time from admission (after the pull) to started containers |
//! | `lab.kai/ready-seconds` | seconds | time from start to ready |
//! | `lab.kai/run-seconds` | seconds or `forever` | run time of the ordinary containers |
//! | `lab.kai/exit-code` | integer | exit code of the ordinary containers when they end by themselves |
//! | `lab.kai/init-exit-code` | integer | exit code of the init containers |
//! | `lab.kai/stop-seconds` | seconds | time a container takes to end after SIGTERM; beyond the grace period it is killed |
//! | `lab.kai/devices` | JSON | written by the kubelet: the devices each container was given (its checkpoint) |
//!
//! Seconds may have a fraction, or be a duration such as `500ms`. Without annotations the fleet's delays hold: containers of
//! pods with `restartPolicy: Always` run for ever, all others (Jobs among them) end after the fleet's `run` delay with code 0.
//! An `exit-code` without `run-seconds` also takes the fleet's `run` delay, so `Always` with an exit code is a crash loop.

/// How long the image pull takes.
pub const PULL_SECONDS: &str = "lab.kai/pull-seconds";
/// How long the sandbox and containers take to start.
pub const START_SECONDS: &str = "lab.kai/start-seconds";
/// How long a started container takes to become ready.
pub const READY_SECONDS: &str = "lab.kai/ready-seconds";
/// How long ordinary containers run.
pub const RUN_SECONDS: &str = "lab.kai/run-seconds";
/// Exit code of ordinary containers.
pub const EXIT_CODE: &str = "lab.kai/exit-code";
/// Exit code of init containers.
pub const INIT_EXIT_CODE: &str = "lab.kai/init-exit-code";
/// How long a container takes to end when asked to.
pub const STOP_SECONDS: &str = "lab.kai/stop-seconds";
/// The kubelet's record of devices, so that a restarted one knows who holds what.
pub const DEVICES: &str = "lab.kai/devices";

/// Namespace of node heartbeats.
pub const LEASE_NAMESPACE: &str = "kube-node-lease";
/// Field manager and event source of the simulated kubelets.
pub const KUBELET: &str = "kubelet";
