//! A cluster without machines: simulated nodes and kubelets, workload controllers, faults, virtual time.
pub mod controllers;
