//! How KAI decides out of the box, and the same with one action only.

use kai_core::policy::{Action, Policy};

/// The settings of a new installation.
pub fn standard() -> Policy {
    kai_convert::policy::default_policy()
}

/// The same with this action alone: KAI's benchmarks of reclaim time nothing else.
pub fn only(action: Action) -> Policy {
    Policy { actions: vec![action], ..standard() }
}
