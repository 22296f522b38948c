//! In which order groups wait, for people who ask why another is served first.

use std::collections::BTreeMap;

use kai_core::{Cluster, policy::Policy, time::Time};
use serde::Serialize;

/// A group that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Waiting {
    /// `namespace/name`.
    id: String,
    /// Its priority.
    priority: i32,
}

/// All groups that wait. The names are KAI's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct JobOrder {
    /// As their turn comes if nobody before them gets anything.
    global_order: Vec<Waiting>,
    /// The same for each queue.
    queue_order: BTreeMap<String, Vec<Waiting>>,
}

impl JobOrder {
    /// The order as of now.
    pub(crate) fn of(cluster: &mut Cluster, now: Time, policy: &Policy) -> Self {
        let mut order = Self::default();
        for id in kai_core::job_order(cluster, now, policy) {
            let Some(group) = cluster.groups.get(id.index()) else { continue };
            let waiting = Waiting { id: cluster.group_key(id).to_owned(), priority: group.priority };
            let queue = group.queue.and_then(|queue| cluster.queues.get(queue.index()));
            let queue = queue.map(|queue| queue.name.to_string()).unwrap_or_default();
            order.queue_order.entry(queue).or_default().push(waiting.clone());
            order.global_order.push(waiting);
        }
        order
    }
}
