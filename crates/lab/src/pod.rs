//! The life of one pod on one node, without any API: a plan made from the object, and a machine that follows it.
//!
//! ```text
//!  Creating --start delay--> Active --all ended--> Ended
//!     |                        |                     ^
//!     '------- deleted --------+----> Stopping ------'
//! ```
//!
//! The machine is pure: `step(now)` moves it as far as the time allows and says what happened; `wake()` says when to call again;
//! `status()` renders what the kubelet would report.

mod machine;
mod plan;
mod reboot;
mod resume;
mod status;

pub use self::{
    machine::{Effect, PodMachine},
    plan::{ContainerPlan, PodPlan, RestartPolicy, Role},
    status::{Phase, rejected},
};

#[cfg(test)]
mod tests;
