//! From a pod to its PodGroup: finds the object that a pod belongs to, writes a PodGroup for it and ties the pod to
//! the group.
//!
//! ```text
//!  pod watch ─▶ work queue ─▶ walk (pod ▸ ReplicaSet ▸ …) ─▶ kind (one file each) ─▶ Wanted ─▶ PodGroup: create, patch
//!                   ▲          │ owners are read once           │ rules: queue, …               ▼
//!                   └─ parked ◀─ turnstile                      └─ warnings ─▶ events          pod: annotation, label
//! ```
//!
//! A kind is a pure function from a [`Workload`] to a [`Wanted`] group. Everything that reads is in `walk`,
//! everything that writes in `reconcile`. It must not know: nodes, resources, what a queue holds, or any other
//! component.

mod apply;
mod crowd;
mod error;
pub mod kinds;
mod metrics;
mod options;
mod owner;
mod owner_watch;
mod reconcile;
mod resources;
pub mod rules;
mod run;
mod turnstile;
mod type_defaults;
mod walk;
mod wanted;

pub use self::{
    apply::QUEUE_WRITTEN,
    error::{Error, Trouble},
    options::{Options, rights},
    owner::{Owner, Reference, Workload},
    run::run,
    type_defaults::TypeDefaults,
    wanted::Wanted,
};
