//! The group that a pod should be in.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kai_api::{Duration, PodGroup, PodGroupSpec, Preemptibility, SubGroup, TopologyConstraint};

use crate::{apply::QUEUE_WRITTEN, owner::Owner};

/// Everything the workload says about its group and the pod's place in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The object that it goes away with.
    pub owner: OwnerReference,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Node pool, if the workload names one.
    pub node_pool: Option<String>,
    /// Queue.
    pub queue: String,
    /// Priority class.
    pub priority_class: String,
    /// Whether it may be stopped, if the workload says so.
    pub preemptibility: Option<Preemptibility>,
    /// How many pods start together; nothing if `min_sub_group` counts.
    pub min_member: Option<i32>,
    /// How many subgroups start together.
    pub min_sub_group: Option<i32>,
    /// Parts.
    pub sub_groups: Vec<SubGroup>,
    /// How near to each other the pods must be.
    pub topology: Option<TopologyConstraint>,
    /// How long it waits before others are stopped for it.
    pub preemption_delay: Option<Duration>,
    /// How long it may run with too few pods.
    pub staleness_grace_period: Option<Duration>,
    /// The part that this pod belongs to.
    pub pod_sub_group: Option<String>,
    /// What the workload says that cannot be followed. Each names object, field and remedy.
    pub warnings: Vec<String>,
}

impl Wanted {
    /// Makes it a group of this pod alone.
    pub fn only_for(&mut self, pod: &Owner) {
        self.name = kai_api::group_name(&pod.reference.name, &pod.uid);
        self.owner = pod.as_owner_reference();
        self.min_member = Some(1);
    }

    /// The object to be created.
    pub fn to_pod_group(&self, queue_label: &str, node_pool_label: &str) -> PodGroup {
        let mut labels = self.labels.clone();
        if let Some(pool) = &self.node_pool {
            labels.entry(node_pool_label.to_owned()).or_insert_with(|| pool.clone());
        }
        // What the owner's label says is only right if it is what counts.
        if let Some(label) = labels.get_mut(queue_label) {
            label.clone_from(&self.queue);
        }
        let mut annotations = self.annotations.clone();
        annotations.insert(QUEUE_WRITTEN.to_owned(), self.queue.clone());
        PodGroup {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                labels: (!labels.is_empty()).then_some(labels),
                annotations: Some(annotations),
                owner_references: Some(vec![self.owner.clone()]),
                ..ObjectMeta::default()
            },
            spec: PodGroupSpec {
                min_member: self.min_member.filter(|_| self.min_sub_group.is_none()),
                min_sub_group: self.min_sub_group,
                queue: Some(self.queue.clone()),
                priority_class_name: Some(self.priority_class.clone()),
                preemptibility: self.preemptibility,
                topology_constraint: self.topology.clone(),
                sub_groups: self.sub_groups.clone(),
                preemption_delay: self.preemption_delay,
                staleness_grace_period: self.staleness_grace_period,
                ..PodGroupSpec::default()
            },
            status: None,
        }
    }
}
