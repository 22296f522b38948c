//! Simulated nodes for any Kubernetes API server, and the embedded cluster made of them.
//!
//! Kubelets here admit, start, run, finish and delete pods as the real one does, hand out individual GPU devices and write the
//! same statuses, events and logs; only the containers are missing. They speak through `kube::Client` alone, so the server may
//! be the one in this process or a real one. Time comes from `kai_clock`, chance from a seed: in a paused runtime an hour of
//! a thousand nodes takes seconds and the same seed writes the same event log.
//!
//! ```text
//!  fleet (presets, file) -> node objects ----------------.
//!  pod watch -> kubelet loop -> admission, devices        > kube::Client -> [faults] -> API server (router or TCP)
//!                    |-> pod machine (pure: step(now)) --'
//!                    '-> logs, record (what tests and users read)
//! ```
//!
//! It knows nothing of kai's own kinds.

pub mod admission;
pub mod affinity;
pub mod client;
pub mod cluster;
pub mod controllers;
pub mod device;
pub mod environment;
pub mod faults;
pub mod fleet;
pub mod kubelet;
pub mod logs;
pub mod names;
pub mod node;
mod node_lifecycle;
pub mod pod;
pub mod preset;
pub mod programs;
pub mod record;
pub mod resources;
pub mod seed;
