//! Faults: whatever process dies at whatever write, whatever answer is lost, whatever happens to nodes, in the end every pod runs or
//! says truly why not, and nothing is left behind.
//!
//! ```text
//!  World = embedded cluster + control plane, each process behind its own transport (processes.rs)
//!  test  = what happens ─▶ settle ─▶ invariants (invariants.rs)
//! ```
//!
//! Everything runs in virtual time from a seed, so a failure repeats exactly.

mod cases;
mod crash_matrix;
mod invariants;
mod processes;
mod random;
mod rights;
mod settle;
mod workloads;
mod world;
