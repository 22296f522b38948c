//! Which platform a node is, and what the NVIDIA driver says about its devices.
//!
//! ```text
//!  setting > label > Node fields ─▶ platform        (pure, for everybody)
//!  libnvidia-ml.so.1 ─▶ nvml ─▶ devices             (feature `nvml`: only for programs that run beside a GPU)
//! ```
//!
//! It must not know: Kubernetes, and what is done with the answers.

pub mod devices;
#[cfg(feature = "nvml")]
pub mod nvml;
pub mod platform;

#[cfg(feature = "nvml")]
pub use self::nvml::Nvml;
pub use self::{
    devices::{Devices, Gpu, Problem},
    platform::{Detection, Platform, Setting},
};
