//! Many pods without an owner at once: nobody waits for a group of which everybody knows what it will be, and whoever binds the pod ties
//! it. So others come first, until pods neither come nor are bound in such numbers.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kai_kit::{Pace, mirror::Change};
use parking_lot::Mutex;

use crate::options::Options;

/// After this it is seen whether a crowd is over. Who came within two seconds is one.
pub(crate) const LATER: Duration = Duration::from_millis(2500);

/// So long it is waited to see whether a pod is the first of a crowd.
const SOON: Duration = Duration::from_millis(200);

/// How crowded it is. Clones share the count.
#[derive(Clone)]
pub(crate) struct Crowd {
    /// Pods without an owner that came or were bound lately.
    pace: Arc<Mutex<Pace>>,
    /// From how many on it is a crowd; 0: never.
    from: usize,
    queue_label: String,
}

impl Crowd {
    /// Nobody came yet.
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            pace: Arc::default(),
            from: if options.groups_as_implied() { options.put_off_from } else { 0 },
            queue_label: options.queue_label_key.clone(),
        }
    }

    /// Sees a pod that came or was bound.
    pub(crate) fn see(&self, change: &Change<'_, Pod>) {
        let counts = match change {
            Change::Added(pod) => kai_api::is_alone(pod),
            Change::Changed(old, new) => kai_api::is_alone(new) && !is_placed(old) && is_placed(new),
            Change::Removed(_) => false,
        };
        if counts {
            self.pace.lock().count(1);
        }
    }

    /// How long the group of a pod can wait.
    pub(crate) fn patience(&self, pod: &Pod) -> Duration {
        if self.from == 0 || !kai_api::implies_group(pod, &self.queue_label) {
            return Duration::ZERO;
        }
        if self.pace.lock().count(0) >= self.from { LATER } else { SOON }
    }

    /// Whether it comes before the group of a pod.
    pub(crate) fn comes_first(&self, pod: &Pod) -> bool {
        self.patience(pod) == LATER
    }
}

/// Whether a pod has its node.
pub(crate) fn is_placed(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_ref().is_some_and(|node| !node.is_empty()))
}
