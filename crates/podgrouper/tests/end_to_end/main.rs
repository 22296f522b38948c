//! The pod-grouper on the embedded cluster with its workload controllers, in virtual time.

mod adoption;
mod harness;
mod options;
mod queues;
mod rights;
mod troubles;
mod workloads;
