//! NVML: the NVIDIA driver's own account of the devices, through whatever `libnvidia-ml.so.1` the loader finds.
//!
//! The library is loaded, asked and let go at each question: nothing is held open while a program idles.

use std::path::PathBuf;

use nvml_wrapper::{Device, Nvml as Library, error::NvmlError};

use crate::devices::{Devices, Gpu, Mig, Problem};

/// The driver of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nvml {
    path: Option<PathBuf>,
}

impl Nvml {
    /// The library at this path instead of the one the loader finds.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: Some(path.into()) }
    }

    fn load(&self) -> Result<Library, Problem> {
        let loaded = match &self.path {
            None => Library::init(),
            Some(path) => Library::builder().lib_path(path.as_os_str()).init(),
        };
        loaded.map_err(|error| problem("start", &error))
    }
}

impl Devices for Nvml {
    fn list(&self) -> Result<Vec<Gpu>, Problem> {
        let library = self.load()?;
        let count = library.device_count().map_err(|error| problem("count the devices", &error))?;
        (0..count)
            .map(|index| {
                let device = library.device_by_index(index).map_err(|error| problem("open a device", &error))?;
                Ok(Gpu {
                    uuid: device.uuid().map_err(|error| problem("tell the UUID of a device", &error))?,
                    // Boards with memory of their own chip do not know it, and some do not know their name.
                    name: device.name().unwrap_or_default(),
                    memory: device.memory_info().ok().map(|memory| memory.total).filter(|total| *total > 0),
                    mig: mig(&device),
                })
            })
            .collect()
    }
}

/// A device that does not know of MIG has none.
fn mig(device: &Device<'_>) -> Mig {
    if !device.mig_mode().is_ok_and(|mode| mode.current == 1) {
        return Mig::Off;
    }
    let most = device.mig_device_count().unwrap_or(0);
    // Numbers without an instance are usual.
    let instances = (0..most).filter_map(|index| device.mig_device_by_index(index).ok()?.uuid().ok());
    Mig::On(instances.collect())
}

fn problem(doing: &'static str, error: &NvmlError) -> Problem {
    match error {
        NvmlError::LibloadingError(detail) => Problem::LibraryNotFound { detail: detail.to_string() },
        NvmlError::DriverNotLoaded => Problem::DriverNotLoaded,
        NvmlError::NoPermission => Problem::NoPermission,
        NvmlError::LibRmVersionMismatch => Problem::VersionMismatch,
        other => Problem::Other { doing, detail: other.to_string() },
    }
}
