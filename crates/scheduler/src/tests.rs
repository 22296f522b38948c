//! The scheduler on the embedded API server, in virtual time. No kubelets and no binder: tests play both.

mod binding;
mod crowd;
mod failing;
mod fixture;
mod leading;
mod reclaiming;
mod snapshots;
mod vetoing;
mod waiting;
