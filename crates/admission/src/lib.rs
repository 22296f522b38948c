//! The rules and changes for pods of our scheduler, and for queues, groups and topologies, as a webhook.
//!
//! ```text
//!  API server ─▶ tls (certificates: own CA, reloaded) ─▶ router ─▶ review ─▶ rules: pod, queue, pod_group, topology
//!       ▲                                                                          (pure: a review in, a verdict out)
//!       └── registration: webhook configurations with the CA's bundle
//! ```
//!
//! The embedded API server calls the same [`router`] in process. Rules see one request and, for queues, the other
//! queues; they know no client. Only pods that name our scheduler are sent here, so that the end of this process never
//! holds up anybody else's pod.

pub mod certificates;
mod metrics;
mod options;
mod pod;
mod pod_group;
mod queue;
pub mod registration;
mod review;
mod router;
mod rules;
mod server;
mod tls;
mod topology;

pub use self::{
    options::Options,
    registration::{Address, Names, Place, configurations, register},
    router::router,
    rules::{Rules, Settings},
    server::{Error, rights, run, serve},
};
