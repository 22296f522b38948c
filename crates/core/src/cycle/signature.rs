//! Groups that ask for the same: what was found out about one need not be found out again.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    cycle::{Cycle, gang::pods_of, tasks::Steps},
    ids::{ClassId, GroupId, QueueId},
};

/// All that decides whether a group's next step can be placed: equal signatures have equal chances.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Signature {
    queue: QueueId,
    priority: i32,
    preemptible: bool,
    classes: SmallVec<[(u16, ClassId, u32); 2]>,
}

/// The first group of each signature that was refused.
pub type Refused = FxHashMap<Signature, GroupId>;

impl Cycle<'_> {
    /// The signature of a group's next step; `None` if it is one of a kind: topology, claims and affinity between pods set it apart.
    pub(super) fn signature(&self, group: GroupId, steps: &Steps) -> Option<Signature> {
        let described = self.group(group);
        if described.tree.is_some() || described.active_allocated() > 0 {
            return None;
        }
        let mut classes: SmallVec<[(u16, ClassId, u32); 2]> = SmallVec::new();
        for step in steps {
            for id in &step.pods {
                let pod = &self.cluster.pods[id.index()];
                let alone = pod.rare.as_ref().is_some_and(|rare| !rare.claims.is_empty() || rare.nominated.is_some());
                if alone || self.cluster.class(pod.class).constraints.is_dynamic() {
                    return None;
                }
                match classes.last_mut() {
                    Some((podset, class, count)) if *podset == step.podset && *class == pod.class => *count += 1,
                    _ => classes.push((step.podset, pod.class, 1)),
                }
            }
        }
        debug_assert!(pods_of(steps).count() > 0, "a step has pods");
        Some(Signature {
            queue: described.queue?,
            priority: described.priority,
            preemptible: described.preemptible,
            classes,
        })
    }
}
