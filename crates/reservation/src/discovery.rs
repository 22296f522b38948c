//! Which device the container was given: exactly one, and a whole one.

use kai_gpu::{Devices, devices::Mig};

use crate::{Error, Progress, Voice};

/// The UUID of the only device.
pub(crate) fn only_device(devices: &dyn Devices, voice: &Voice) -> Result<String, Error> {
    let found = devices.list()?;
    voice(&Progress::Found { count: found.len() });
    let [device] = found.as_slice() else {
        let names: Vec<&str> = found.iter().map(|device| device.uuid.as_str()).collect();
        return Err(Error::NotOne {
            count: found.len(),
            names: if names.is_empty() { "none".to_owned() } else { names.join(", ") },
            remedy: if names.is_empty() {
                ", and the NVIDIA runtime must put it in: check the pod's runtime class"
            } else {
                "; it sees more, so NVIDIA_VISIBLE_DEVICES is not honoured: a privileged container on a server sees all"
            },
        });
    };
    if let Mig::On(instances) = &device.mig {
        return Err(Error::Mig { instances: instances.join(", "), gpu: device.uuid.clone() });
    }
    voice(&Progress::Device { uuid: device.uuid.clone() });
    Ok(device.uuid.clone())
}
