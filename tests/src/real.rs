//! Real Kubernetes on this machine: the control plane from the programs of [`crate::programs`], and a node on containerd.
//!
//! Everything lives in a temporary folder and on free loopback ports, so that any number of them can run beside each other and
//! beside whatever else the machine runs. Certificates, keys and tokens are made for each start. RBAC is on.

mod certificates;
pub mod control_plane;
pub mod node;

pub use control_plane::ControlPlane;
pub(crate) use control_plane::free_port;
pub use node::RealNode;
