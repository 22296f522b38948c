//! What can go wrong: with the component as a whole, and with one pod.

/// Why the component ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An option cannot be understood.
    #[error("option `--{option}`: `{value}` is not a list of key=value")]
    Selector {
        /// The option.
        option: &'static str,
        /// What was given.
        value: String,
    },
}

/// Why a pod has no group yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// Somebody wrote something that cannot be followed. The text names object, field and remedy.
    #[error("{0}")]
    Input(String),
    /// The cluster is in between two states; that should pass.
    #[error("{0}")]
    Unsettled(String),
    /// The API server did not do what was asked.
    #[error("{0}")]
    Server(String),
    /// Another worker is reading or writing the same thing; the pod is asked for again when that is done.
    #[error("waits for another pod of the same workload")]
    Parked,
}

impl Trouble {
    /// After how many failures in a row the pod is told.
    pub(crate) fn patience(&self) -> u32 {
        match self {
            Self::Input(_) => 0,
            Self::Unsettled(_) => 1,
            Self::Server(_) => 3,
            Self::Parked => u32::MAX,
        }
    }
}
