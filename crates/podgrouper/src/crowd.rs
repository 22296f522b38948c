//! Many pods without an owner at once: nobody waits for a group of which everybody knows what it will be, and whoever binds the pod ties
//! it. So others come first.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kai_kit::Pace;
use parking_lot::Mutex;

use crate::options::Options;

/// After this it is seen whether a crowd is over. Who came within two seconds is one.
pub(crate) const LATER: Duration = Duration::from_millis(2500);

/// How crowded it is. Clones share the count.
#[derive(Clone)]
pub(crate) struct Crowd {
    /// Pods without an owner that came lately.
    pub(crate) pace: Arc<Mutex<Pace>>,
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

    /// Whether it comes before the group of a pod.
    pub(crate) fn comes_first(&self, pod: &Pod) -> bool {
        let crowded = self.from > 0 && self.pace.lock().count(0) >= self.from;
        crowded && kai_api::implies_group(pod, &self.queue_label)
    }
}
