//! Carries out the scheduler's decisions: a BindRequest becomes a bound pod, and a shared GPU becomes known to its containers.
//!
//! ```text
//!  BindRequest ─▶ step (pure) ─▶ reservations ready? ─▶ volumes, claims, labels, ConfigMaps ─▶ binding ─▶ status
//!                                      ▲ woken by their change; no worker waits
//!  reservation pods ─▶ plan (pure, per node) ─▶ one holder per shared device, none without need
//! ```
//!
//! Every step can be repeated and every process may die between two calls: nothing is known that is not in the API. It must not
//! know: how decisions are made.

mod binding;
mod claims;
mod cluster_policy;
mod extended_claim;
mod failure;
mod groups;
mod metrics;
mod options;
mod outcome;
pub mod platform;
mod reservation;
mod rights;
mod rollback;
mod run;
mod selector;
mod settings;
mod sharing;
mod step;
mod volumes;
mod world;

pub use self::{
    options::Options,
    reservation::reservation_name,
    rights::rights,
    run::{Error, run},
};
