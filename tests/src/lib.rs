//! The harness of the suites in `tests/tests`: clusters of three tiers, one table of cases run on each of them.
//!
//! ```text
//! tier 1  Cluster::embedded       API server, controllers and simulated nodes in this process, no sockets
//! tier 2  Cluster::control_plane  real etcd, kube-apiserver and kube-controller-manager, simulated nodes joined to them
//! tier 3  Cluster::real_node      tier 2's programs, and a real kubelet on containerd instead of simulated nodes
//! ```
//!
//! A suite is a table of [`harness::Case`] and one call of [`harness::main`]. Tiers 2 and 3 run when `KAI_TEST_REAL=1`; with
//! `KAI_TEST_NO_SKIP=1` a part that is missing is a failure instead of a skipped tier. A part that only some machines have is
//! never looked for silently: the run prints what it left out and why.

pub mod calls;
pub mod cluster;
pub mod harness;
pub mod oci_image;
pub mod process;
pub mod programs;
pub mod real;
pub mod request;
pub mod transcript;
pub mod wait;
