//! The devices a process can see, whoever says so, and what to do if nobody can.

/// Somebody who knows the devices of this machine or container.
pub trait Devices: Send + Sync {
    /// The devices that are visible now, in the driver's order.
    fn list(&self) -> Result<Vec<Gpu>, Problem>;
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpu {
    /// The driver's name for it, such as `GPU-…`.
    pub uuid: String,
    /// Product.
    pub name: String,
    /// Its own memory in bytes; nothing where the memory is the machine's.
    pub memory: Option<u64>,
    /// Whether it is cut into MIG instances, of which a container sees only its own.
    pub mig: Mig,
}

/// Whether a device is cut into MIG instances.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Mig {
    /// It is whole.
    #[default]
    Off,
    /// It is cut; the instances that are visible.
    On(Vec<String>),
}

/// Why the devices are not known. The text says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// There is no library to ask.
    #[error(
        "libnvidia-ml.so.1 not found ({detail}): on a server give the pod the runtime class of the NVIDIA container \
         runtime (runtimeClassName: nvidia); on Jetson mount /usr/lib/aarch64-linux-gnu/nvidia of the node read-only at \
         the same place and set LD_LIBRARY_PATH to it"
    )]
    LibraryNotFound {
        /// What the loader said.
        detail: String,
    },
    /// The library finds no driver.
    #[error(
        "driver not loaded: the container sees no /dev/nvidia* or the node has no driver: check that nvidia-smi works on \
         the node; on a server give the pod the NVIDIA runtime class, on Jetson mount /dev and make the container \
         privileged"
    )]
    DriverNotLoaded,
    /// The devices are there but may not be opened.
    #[error(
        "no permission to use the devices: on Jetson make the container privileged (a mounted /dev alone is not enough), \
         elsewhere check the security context and the user"
    )]
    NoPermission,
    /// Library and driver are of different releases.
    #[error(
        "libnvidia-ml.so.1 does not fit the loaded driver: reboot the node after a driver update, and mount the node's \
         own library rather than one from the image"
    )]
    VersionMismatch,
    /// Anything else.
    #[error("NVML failed while it was to {doing}: {detail}")]
    Other {
        /// What was asked of it.
        doing: &'static str,
        /// What it said.
        detail: String,
    },
}
