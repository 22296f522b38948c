//! Kubernetes objects to the core's deltas, and its decisions and reasons back into KAI's words: the only crate that knows both.
//!
//! ```text
//!   Node, Pod, Queue, PodGroup, claims … ──▶ Converter ──▶ Delta ──▶ kai_core
//!   SchedulingShard ──▶ policy ──▶ Policy ───────────────────────▶ kai_core ──▶ Plan ──▶ explain ──▶ text, JSON
//! ```
//!
//! It must not know: clients, watches, clocks. Bad input is a verdict on one object, never an error of the whole and never a panic.

mod amount;
mod bind_request;
mod converter;
pub mod decision;
mod device;
pub mod explain;
pub mod gpu_labels;
mod group;
mod node;
mod numa;
mod object;
mod pod;
pub mod policy;
mod queue;
pub mod scenario;
mod volume;

pub use self::{
    bind_request::Veto,
    converter::{Converter, GroupNote, NodePool, Settings},
    group::Priorities,
    numa::{Attribute, NodeResourceTopology, Zone, ZoneResource},
    object::{Kind, Object, ReadError},
    pod::{Asked, ClaimUse, GpuPart, asked, claims_of, gpu::gpus, gpus_of},
};
pub use kai_core::delta::Gpus;
