//! What the program says about itself. The first four lines are those by which users check that NVML works.

use std::{fmt, sync::Arc, time::Duration};

/// Somebody who listens to the program.
pub type Voice = Arc<dyn Fn(&Progress) + Send + Sync>;

/// A line of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It begins.
    Looking,
    /// The driver answered.
    Found {
        /// How many devices it has.
        count: usize,
    },
    /// There is exactly one device.
    Device {
        /// Its UUID.
        uuid: String,
    },
    /// The annotation was written.
    Updated,
    /// The annotation was there and is right.
    Known {
        /// The UUID it has.
        uuid: String,
    },
    /// The annotation was there and the driver does not answer: it stays.
    Unchecked {
        /// The UUID it has.
        uuid: String,
        /// What the driver said.
        problem: String,
    },
    /// The annotation was there but wrong, as after a reboot that gave the device another name.
    Wrong {
        /// What it said.
        annotated: String,
        /// What is true.
        uuid: String,
    },
    /// The annotation was taken away.
    Missing,
    /// The API did not do what was asked; another attempt follows.
    Waiting {
        /// What it said.
        problem: String,
        /// When.
        pause: Duration,
    },
}

impl fmt::Display for Progress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Looking => write!(formatter, "Looking for GPU device id for pod"),
            Self::Found { count } => write!(formatter, "Found {count} GPU devices"),
            Self::Device { uuid } => write!(formatter, "Found GPU device deviceId={uuid:?}"),
            Self::Updated => write!(formatter, "Pod was updated with GPU device UUID"),
            Self::Known { uuid } => write!(formatter, "Pod already has GPU device UUID deviceId={uuid:?}"),
            Self::Unchecked { uuid, problem } => {
                write!(formatter, "Pod keeps GPU device UUID deviceId={uuid:?} unchecked: {problem}")
            }
            Self::Wrong { annotated, uuid } => {
                write!(formatter, "Pod has GPU device UUID {annotated:?} but the device is {uuid:?} now; correcting it")
            }
            Self::Missing => write!(formatter, "Pod has lost its GPU device UUID; writing it again"),
            Self::Waiting { problem, pause } => write!(formatter, "{problem}; trying again in {pause:?}"),
        }
    }
}

/// The process's own log. The device is a field there, as other tools expect.
pub(crate) fn log() -> Voice {
    Arc::new(|progress| match progress {
        Progress::Device { uuid } => tracing::info!(deviceId = uuid.as_str(), "Found GPU device"),
        Progress::Known { uuid } => tracing::info!(deviceId = uuid.as_str(), "Pod already has GPU device UUID"),
        Progress::Unchecked { .. } | Progress::Wrong { .. } | Progress::Missing | Progress::Waiting { .. } => {
            tracing::warn!("{progress}");
        }
        Progress::Looking | Progress::Found { .. } | Progress::Updated => tracing::info!("{progress}"),
    })
}
