//! What came of writes.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kai_api::BindRequest;
use kai_convert::{GroupNote, Veto};

/// What came of one write.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// A BindRequest was to be made for a pod.
    Bound {
        /// `namespace/name` of the request and the pod.
        key: String,
        /// What is there now.
        result: Bound,
    },
    /// A pod was to be deleted.
    Evicted {
        /// Its uid.
        uid: String,
        /// The pod, if it stays.
        stays: Option<Arc<Pod>>,
    },
    /// Notes were to be written on a group.
    Noted {
        /// `namespace/name`.
        group: String,
        /// Those that were not written.
        failed: Vec<GroupNote>,
    },
    /// A BindRequest was deleted, or was not there.
    Dropped {
        /// `namespace/name`.
        key: String,
        /// Its uid.
        uid: String,
        /// Whether it is gone.
        gone: bool,
    },
}

/// What is there after a BindRequest was to be made.
#[derive(Debug)]
pub(crate) enum Bound {
    /// This request: the one that was to be made, or one that somebody else made first.
    There(Arc<BindRequest>),
    /// None.
    Missing,
    /// None, and the server will not take one.
    Refused(Veto),
    /// None, for the pod with this uid was bound without one.
    Placed(String),
}
