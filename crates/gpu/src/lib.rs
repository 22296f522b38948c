//! Which platform a node is, and what NVML says about its devices. The only crate with `unsafe`.
