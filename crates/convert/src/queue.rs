//! Queues and topologies. Millicores, megabytes of 10^6 bytes and devices become millicores, bytes and millionths; -1 is "unlimited",
//! what is left out is 0.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kai_api::defaults;
use kai_core::{
    amounts::GPU,
    delta::{Level, Queue, QueueResource, Topology},
};

use crate::amount::{created, scaled, span};

/// A queue as the core sees it. Negative amounts other than -1 are passed on: the core gives its verdict on them.
pub(crate) fn queue(object: &kai_api::Queue) -> Queue {
    let spec = &object.spec;
    let resources = spec.resources.unwrap_or_default();
    let priority = spec.priority.unwrap_or(defaults::QUEUE_PRIORITY);
    let lowest = i64::from(i32::MIN);
    Queue {
        name: name(&object.metadata),
        parent: spec.parent_queue.clone().filter(|parent| !parent.is_empty()),
        created: created(object.metadata.creation_timestamp.as_ref()),
        priority: i32::try_from(priority.max(lowest)).unwrap_or(i32::MAX),
        cpu: resource(resources.cpu, 1),
        memory: resource(resources.memory, defaults::QUEUE_MEMORY_UNIT),
        gpu: resource(resources.gpu, GPU),
        preempt_min_runtime: spec.preempt_min_runtime.map(span),
        reclaim_min_runtime: spec.reclaim_min_runtime.map(span),
    }
}

fn resource(given: Option<kai_api::QueueResource>, unit: i64) -> QueueResource {
    let given = given.unwrap_or_default();
    // JSON cannot write what is not a number, so 0 stands in for it here.
    let bounded = |value: f64| {
        let unlimited = (value - defaults::UNLIMITED).abs() < f64::EPSILON;
        if unlimited { None } else { Some(scaled(value, unit).unwrap_or(0)) }
    };
    QueueResource {
        quota: bounded(given.quota),
        limit: bounded(given.limit),
        over_quota_weight: scaled(given.over_quota_weight, GPU).unwrap_or(0),
    }
}

/// A topology as the core sees it.
pub(crate) fn topology(object: &kai_api::Topology) -> Topology {
    let levels = object.spec.levels.iter().map(|level| Level {
        label: level.node_label.clone(),
        alias: level.alias.clone().filter(|alias| !alias.is_empty()),
    });
    Topology { name: name(&object.metadata), levels: levels.collect() }
}

/// The name of an object; empty where it has none.
pub(crate) fn name(metadata: &ObjectMeta) -> String {
    metadata.name.clone().unwrap_or_default()
}

/// `namespace/name` of an object.
pub(crate) fn key(metadata: &ObjectMeta) -> String {
    format!("{}/{}", metadata.namespace.as_deref().unwrap_or("default"), metadata.name.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(spec: serde_json::Value) -> Queue {
        let object =
            json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "q"}, "spec": spec});
        queue(&serde_json::from_value(object).expect("a queue"))
    }

    #[test]
    fn units_become_the_cores() {
        let queue = read(json!({"resources": {
            "cpu": {"quota": 1500, "limit": -1, "overQuotaWeight": 1},
            "memory": {"quota": 2, "limit": 4.5},
            "gpu": {"quota": 0.5, "limit": -1, "overQuotaWeight": -1}
        }}));
        assert_eq!(queue.cpu, QueueResource { quota: Some(1500), limit: None, over_quota_weight: 1_000_000 });
        assert_eq!(queue.memory.quota, Some(2_000_000));
        assert_eq!(queue.memory.limit, Some(4_500_000));
        assert_eq!(queue.gpu, QueueResource { quota: Some(500_000), limit: None, over_quota_weight: -1_000_000 });
    }

    #[test]
    fn what_is_left_out_is_nothing_at_all() {
        let queue = read(json!({"parentQueue": "", "priority": 5_000_000_000_i64}));
        assert_eq!(queue.gpu, QueueResource { quota: Some(0), limit: Some(0), over_quota_weight: 0 });
        assert_eq!((queue.parent, queue.priority), (None, i32::MAX));
        assert_eq!(read(json!({})).priority, 100);
    }

    #[test]
    fn a_negative_limit_reaches_the_core_as_it_is() {
        assert_eq!(read(json!({"resources": {"gpu": {"limit": -2}}})).gpu.limit, Some(-2_000_000));
    }
}
