//! One cycle.

/// Structures that speed up planning and survive cycles.
#[derive(Debug, Default)]
pub struct Memory {}
