//! Flags that change as what the scheduler sees objects: nodes by the labels of their role, queues without their hierarchy.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, Pod};
use kai_api::{Queue, QueueResource, QueueResources, names::annotations};
use kai_convert::Object;
use kube::ResourceExt as _;

/// The parent of all queues in a hierarchy of one level.
const FLAT: &str = "default";
/// What devices are asked for by.
const DEVICES: [&str; 2] = ["nvidia.com/", "amd.com/gpu"];

/// The labels of workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Roles {
    /// Of nodes for pods without GPUs.
    pub(crate) cpu: String,
    /// Of nodes for pods with GPUs.
    pub(crate) gpu: String,
}

/// As what objects are seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Only nodes with these labels count, each for its kind of pods.
    pub(crate) roles: Option<Roles>,
    /// All queues that have a parent are siblings; others do not count.
    pub(crate) flat: bool,
}

impl Shape {
    /// An object as it is seen; `None`: it does not count.
    pub(crate) fn see(&self, object: Object) -> Option<Object> {
        match (object, &self.roles) {
            (Object::Queue(queue), _) if self.flat => flatten(queue).map(Object::Queue),
            (Object::Node(node), Some(roles)) => work(node, roles).map(Object::Node),
            (Object::Pod(pod), Some(roles)) => Some(Object::Pod(restrict(pod, roles))),
            (object, _) => Some(object),
        }
    }

    /// An object that nobody made.
    pub(crate) fn invented(&self) -> Option<Object> {
        let amount = || Some(QueueResource { quota: -1.0, limit: -1.0, over_quota_weight: 1.0 });
        let mut root = Queue::new(FLAT, kai_api::QueueSpec::default());
        root.spec.resources = Some(QueueResources { gpu: amount(), cpu: amount(), memory: amount() });
        self.flat.then(|| Object::Queue(Arc::new(root)))
    }
}

fn flatten(mut queue: Arc<Queue>) -> Option<Arc<Queue>> {
    queue.spec.parent_queue.as_ref().filter(|parent| !parent.is_empty())?;
    Arc::make_mut(&mut queue).spec.parent_queue = Some(FLAT.to_owned());
    Some(queue)
}

/// A node without the label of GPU workers has no GPUs, one without any is no worker.
fn work(mut node: Arc<Node>, roles: &Roles) -> Option<Arc<Node>> {
    let has = |label: &str| node.labels().contains_key(label);
    let (cpu, gpu) = (has(&roles.cpu), has(&roles.gpu));
    if !gpu && let Some(status) = &mut Arc::make_mut(&mut node).status {
        let strip = |amounts: &mut Option<BTreeMap<String, _>>| {
            if let Some(amounts) = amounts {
                amounts.retain(|name, _| !is_device(name));
            }
        };
        strip(&mut status.allocatable);
        strip(&mut status.capacity);
    }
    (cpu || gpu).then_some(node)
}

fn is_device(resource: &str) -> bool {
    DEVICES.iter().any(|device| resource.starts_with(device))
}

fn wants_devices(pod: &Pod) -> bool {
    let marks = [annotations::GPU_FRACTION, annotations::GPU_MEMORY];
    let spec = pod.spec.iter();
    let containers = spec.flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    let mut amounts = containers.filter_map(|container| container.resources.as_ref()).flat_map(|resources| {
        resources.limits.iter().flatten().chain(resources.requests.iter().flatten()).map(|(name, _)| name)
    });
    marks.iter().any(|mark| pod.annotations().contains_key(*mark))
        || amounts.any(|name| is_device(name))
        || pod.spec.as_ref().is_some_and(|spec| spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()))
}

/// The pod with the label of its kind of workers among what it requires of nodes.
fn restrict(mut pod: Arc<Pod>, roles: &Roles) -> Arc<Pod> {
    let label = if wants_devices(&pod) { &roles.gpu } else { &roles.cpu };
    let must = NodeSelectorRequirement { key: label.clone(), operator: "Exists".to_owned(), values: None };
    if let Some(spec) = &mut Arc::make_mut(&mut pod).spec {
        let affinity = spec.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
        let required = affinity.required_during_scheduling_ignored_during_execution.get_or_insert_default();
        if required.node_selector_terms.is_empty() {
            required.node_selector_terms.push(NodeSelectorTerm::default());
        }
        for term in &mut required.node_selector_terms {
            term.match_expressions.get_or_insert_default().push(must.clone());
        }
    }
    pod
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn see(shape: &Shape, object: &Value) -> Option<Object> {
        shape.see(Object::read(object).unwrap().unwrap())
    }

    #[test]
    fn nodes_work_for_the_pods_that_their_labels_name() {
        let shape = Shape { roles: Some(Roles { cpu: "cpu".to_owned(), gpu: "gpu".to_owned() }), flat: false };
        let node = |labels: Value| {
            let amounts = json!({"cpu": "8", "nvidia.com/gpu": "4"});
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": labels},
                "status": {"allocatable": amounts, "capacity": amounts}})
        };
        assert!(see(&shape, &node(json!({}))).is_none());
        let gpus = |labels: Value| match see(&shape, &node(labels)) {
            Some(Object::Node(node)) => {
                node.status.as_ref().unwrap().allocatable.as_ref().unwrap().contains_key("nvidia.com/gpu")
            }
            _ => panic!("no node"),
        };
        assert!(gpus(json!({"gpu": ""})) && !gpus(json!({"cpu": ""})));
        let required =
            |limits: Value| {
                let container = json!({"name": "c", "resources": {"limits": limits}});
                let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "d"},
                "spec": {"containers": [container]}});
                match see(&shape, &pod) {
                Some(Object::Pod(pod)) => json!(*pod).pointer(
                    "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0\
                     /matchExpressions/0/key",
                ).cloned(),
                _ => None,
            }
            };
        assert_eq!(
            (required(json!({})), required(json!({"nvidia.com/gpu": "1"}))),
            (Some(json!("cpu")), Some(json!("gpu")))
        );
    }

    #[test]
    fn queues_without_hierarchy_are_siblings() {
        let shape = Shape { roles: None, flat: true };
        let queue = |parent: Option<&str>| {
            json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "q"},
                "spec": {"parentQueue": parent}})
        };
        assert!(see(&shape, &queue(None)).is_none());
        let parent = |object: Option<Object>| match object {
            Some(Object::Queue(queue)) => queue.spec.parent_queue.clone(),
            _ => None,
        };
        assert_eq!(parent(see(&shape, &queue(Some("department")))).as_deref(), Some("default"));
        assert!(shape.invented().is_some() && Shape::default().invented().is_none());
    }
}
