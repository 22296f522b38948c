//! Watches to deltas, deltas to a plan, the plan to writes.
