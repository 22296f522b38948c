//! Tables of defaults that depend on nothing but the field itself. (A table of facts: long by nature.)
//!
//! A rule names fields by pattern: `spec.ports[].protocol` is the field in every element, `spec.capacity.*` every entry of a map.

use serde_json::Value;

use crate::builtin::access::{Object, Write};

/// A constant value.
#[derive(Clone, Copy)]
pub(super) enum Constant {
    Text(&'static str),
    Number(i64),
    Flag(bool),
    EmptyObject,
    Null,
}

/// When a field takes its default.
#[derive(Clone, Copy)]
pub(super) enum When {
    /// It is missing or `null`: a pointer in Go.
    Missing,
    /// It is missing or a zero value.
    Zero,
    /// It is missing; `null` is a value.
    Absent,
}

/// Pattern, condition, value.
pub(super) type Rule = (&'static str, When, Constant);

use Constant::{EmptyObject, Flag, Null, Number, Text};
use When::{Absent, Missing, Zero};

impl From<Constant> for Value {
    fn from(constant: Constant) -> Self {
        match constant {
            Text(text) => text.into(),
            Number(number) => number.into(),
            Flag(flag) => flag.into(),
            EmptyObject => Self::Object(Object::new()),
            Null => Self::Null,
        }
    }
}

/// Applies rules to an object. Lists are never made; objects on the way to a field are, except below list elements that are none.
pub(super) fn apply(rules: &[Rule], object: &mut Value) {
    for (pattern, when, constant) in rules {
        let (parents, name) = pattern.rsplit_once('.').unwrap_or(("", pattern));
        each_parent(object, parents, &mut |parent| match when {
            Missing => parent.set_if_missing(name, *constant),
            Zero => parent.set_if_zero(name, *constant),
            Absent => {
                if !parent.contains_key(name) {
                    parent.set(name, *constant);
                }
            }
        });
    }
}

/// Calls `visit` with every object a pattern names. A plain name makes the object it names; `name?` does not.
pub(super) fn each_parent(value: &mut Value, pattern: &str, visit: &mut dyn FnMut(&mut Object)) {
    if pattern.is_empty() {
        if let Some(object) = value.object_at("") {
            visit(object);
        }
        return;
    }
    let (segment, rest) = pattern.split_once('.').unwrap_or((pattern, ""));
    if let Some(name) = segment.strip_suffix("[]") {
        for element in value.elements(name) {
            if element.is_object() {
                each_parent(element, rest, visit);
            }
        }
    } else if segment == "*" {
        let Some(map) = value.as_object_mut() else { return };
        for entry in map.values_mut() {
            each_parent(entry, rest, visit);
        }
    } else if let Some(name) = segment.strip_suffix('?') {
        if let Some(child) = value.get_mut(name).filter(|child| child.is_object()) {
            each_parent(child, rest, visit);
        }
    } else if let Some(object) = value.object_at("") {
        each_parent(object.entry(segment).or_insert(Value::Null), rest, visit);
    }
}

const WEBHOOK: &[Rule] = &[
    ("webhooks[].failurePolicy", Missing, Text("Fail")),
    ("webhooks[].matchPolicy", Missing, Text("Equivalent")),
    ("webhooks[].namespaceSelector", Missing, EmptyObject),
    ("webhooks[].objectSelector", Missing, EmptyObject),
    ("webhooks[].timeoutSeconds", Missing, Number(10)),
    ("webhooks[].rules[].scope", Missing, Text("*")),
    ("webhooks[].clientConfig.service?.port", Missing, Number(443)),
];

const MUTATING_WEBHOOK: &[Rule] = &[
    ("webhooks[].failurePolicy", Missing, Text("Fail")),
    ("webhooks[].matchPolicy", Missing, Text("Equivalent")),
    ("webhooks[].namespaceSelector", Missing, EmptyObject),
    ("webhooks[].objectSelector", Missing, EmptyObject),
    ("webhooks[].timeoutSeconds", Missing, Number(10)),
    ("webhooks[].reinvocationPolicy", Missing, Text("Never")),
    ("webhooks[].rules[].scope", Missing, Text("*")),
    ("webhooks[].clientConfig.service?.port", Missing, Number(443)),
];

const ADMISSION_POLICY: &[Rule] = &[
    ("spec.failurePolicy", Missing, Text("Fail")),
    ("spec.matchConstraints?.matchPolicy", Missing, Text("Equivalent")),
    ("spec.matchConstraints?.namespaceSelector", Missing, EmptyObject),
    ("spec.matchConstraints?.objectSelector", Missing, EmptyObject),
    ("spec.matchConstraints?.resourceRules[].scope", Missing, Text("*")),
    ("spec.matchConstraints?.excludeResourceRules[].scope", Missing, Text("*")),
];

const ADMISSION_POLICY_BINDING: &[Rule] = &[
    ("spec.matchResources?.matchPolicy", Missing, Text("Equivalent")),
    ("spec.matchResources?.namespaceSelector", Missing, EmptyObject),
    ("spec.matchResources?.objectSelector", Missing, EmptyObject),
    ("spec.matchResources?.resourceRules[].scope", Missing, Text("*")),
];

/// The plain defaults of a kind.
pub(super) fn plain(group: &str, kind: &str, version: &str) -> &'static [Rule] {
    match (group, kind) {
        ("", "ReplicationController") | ("apps", "ReplicaSet") => &[("spec.replicas", Missing, Number(1))],
        ("apps", "Deployment") => &[
            ("spec.replicas", Missing, Number(1)),
            ("spec.strategy.type", Zero, Text("RollingUpdate")),
            ("spec.revisionHistoryLimit", Missing, Number(10)),
            ("spec.progressDeadlineSeconds", Missing, Number(600)),
        ],
        ("apps", "DaemonSet") => &[
            ("spec.updateStrategy.type", Zero, Text("RollingUpdate")),
            ("spec.revisionHistoryLimit", Missing, Number(10)),
        ],
        ("apps", "StatefulSet") => &[
            ("spec.podManagementPolicy", Zero, Text("OrderedReady")),
            ("spec.persistentVolumeClaimRetentionPolicy.whenDeleted", Zero, Text("Retain")),
            ("spec.persistentVolumeClaimRetentionPolicy.whenScaled", Zero, Text("Retain")),
            ("spec.replicas", Missing, Number(1)),
            ("spec.revisionHistoryLimit", Missing, Number(10)),
        ],
        ("batch", "Job") => &[
            ("spec.completionMode", Missing, Text("NonIndexed")),
            ("spec.suspend", Missing, Flag(false)),
            ("spec.manualSelector", Missing, Flag(false)),
            ("spec.podFailurePolicy?.rules[].onPodConditions[].status", Zero, Text("True")),
        ],
        ("batch", "CronJob") => &[
            ("spec.concurrencyPolicy", Zero, Text("Allow")),
            ("spec.suspend", Missing, Flag(false)),
            ("spec.successfulJobsHistoryLimit", Missing, Number(3)),
            ("spec.failedJobsHistoryLimit", Missing, Number(1)),
            ("spec.jobTemplate.spec.podFailurePolicy?.rules[].onPodConditions[].status", Zero, Text("True")),
        ],
        ("", "Service") => &[
            ("spec.type", Zero, Text("ClusterIP")),
            ("spec.sessionAffinity", Zero, Text("None")),
            ("spec.ports[].protocol", Zero, Text("TCP")),
        ],
        ("", "Endpoints") => &[("subsets[].ports[].protocol", Zero, Text("TCP"))],
        ("", "PersistentVolume") => &[
            ("spec.persistentVolumeReclaimPolicy", Zero, Text("Retain")),
            ("spec.volumeMode", Missing, Text("Filesystem")),
            ("spec.hostPath?.type", Missing, Text("")),
            ("spec.rbd?.pool", Zero, Text("rbd")),
            ("spec.rbd?.user", Zero, Text("admin")),
            ("spec.rbd?.keyring", Zero, Text("/etc/ceph/keyring")),
            ("spec.iscsi?.iscsiInterface", Zero, Text("default")),
            ("spec.azureDisk?.cachingMode", Missing, Text("ReadWrite")),
            ("spec.azureDisk?.fsType", Missing, Text("ext4")),
            ("spec.azureDisk?.readOnly", Missing, Flag(false)),
            ("spec.azureDisk?.kind", Missing, Text("Shared")),
            ("spec.scaleIO?.storageMode", Zero, Text("ThinProvisioned")),
            ("spec.scaleIO?.fsType", Zero, Text("xfs")),
            ("status.phase", Zero, Text("Pending")),
        ],
        ("", "PersistentVolumeClaim") => {
            &[("spec.volumeMode", Missing, Text("Filesystem")), ("status.phase", Zero, Text("Pending"))]
        }
        ("", "Namespace") => &[("status.phase", Zero, Text("Active"))],
        ("", "Secret") => &[("type", Zero, Text("Opaque"))],
        ("autoscaling", "HorizontalPodAutoscaler") => &[("spec.minReplicas", Missing, Number(1))],
        ("scheduling.k8s.io", "PriorityClass") => &[("preemptionPolicy", Missing, Text("PreemptLowerPriority"))],
        ("storage.k8s.io", "StorageClass") => {
            &[("reclaimPolicy", Missing, Text("Delete")), ("volumeBindingMode", Missing, Text("Immediate"))]
        }
        ("storage.k8s.io", "CSIDriver") => &[
            ("spec.attachRequired", Missing, Flag(true)),
            ("spec.podInfoOnMount", Missing, Flag(false)),
            ("spec.storageCapacity", Missing, Flag(false)),
            ("spec.fsGroupPolicy", Missing, Text("ReadWriteOnceWithFSType")),
            ("spec.requiresRepublish", Missing, Flag(false)),
            ("spec.seLinuxMount", Missing, Flag(false)),
        ],
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            &[("roleRef.apiGroup", Zero, Text("rbac.authorization.k8s.io"))]
        }
        ("networking.k8s.io", "NetworkPolicy") => &[
            ("spec.ingress[].ports[].protocol", Missing, Text("TCP")),
            ("spec.egress[].ports[].protocol", Missing, Text("TCP")),
        ],
        ("networking.k8s.io", "IngressClass") => &[("spec.parameters?.scope", Missing, Text("Cluster"))],
        ("discovery.k8s.io", "EndpointSlice") => {
            &[("ports[].name", Missing, Text("")), ("ports[].protocol", Missing, Text("TCP"))]
        }
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration") => WEBHOOK,
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration") => MUTATING_WEBHOOK,
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") if version == "v1" => ADMISSION_POLICY,
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding") => ADMISSION_POLICY_BINDING,
        _ => &[],
    }
}

/// Fields that every answer of a kind has, because Go encodes them even when they are zero.
pub(super) fn present(group: &str, kind: &str, version: &str) -> &'static [Rule] {
    match (group, kind) {
        ("", "Pod") => &[
            ("status.conditions[].lastProbeTime", Absent, Null),
            ("status.conditions[].lastTransitionTime", Absent, Null),
            ("status.containerStatuses[].name", Absent, Text("")),
            ("status.containerStatuses[].ready", Absent, Flag(false)),
            ("status.containerStatuses[].restartCount", Absent, Number(0)),
            ("status.containerStatuses[].image", Absent, Text("")),
            ("status.containerStatuses[].imageID", Absent, Text("")),
            ("status.containerStatuses[].state", Absent, EmptyObject),
            ("status.containerStatuses[].lastState", Absent, EmptyObject),
            ("status.initContainerStatuses[].ready", Absent, Flag(false)),
            ("status.initContainerStatuses[].restartCount", Absent, Number(0)),
            ("status.initContainerStatuses[].image", Absent, Text("")),
            ("status.initContainerStatuses[].imageID", Absent, Text("")),
            ("status.initContainerStatuses[].state", Absent, EmptyObject),
            ("status.initContainerStatuses[].lastState", Absent, EmptyObject),
        ],
        ("", "ReplicationController") | ("apps", "ReplicaSet") => &[("status.replicas", Absent, Number(0))],
        ("apps", "Deployment") => &[
            ("status", Missing, EmptyObject),
            ("status.conditions[].lastUpdateTime", Absent, Null),
            ("status.conditions[].lastTransitionTime", Absent, Null),
        ],
        ("apps", "DaemonSet") => &[
            ("status.currentNumberScheduled", Absent, Number(0)),
            ("status.numberMisscheduled", Absent, Number(0)),
            ("status.desiredNumberScheduled", Absent, Number(0)),
            ("status.numberReady", Absent, Number(0)),
        ],
        ("apps", "StatefulSet") => &[
            ("spec.serviceName", Absent, Text("")),
            ("status.replicas", Absent, Number(0)),
            ("status.availableReplicas", Absent, Number(0)),
        ],
        ("batch", "Job") => &[
            ("status", Missing, EmptyObject),
            ("status.conditions[].lastProbeTime", Absent, Null),
            ("status.conditions[].lastTransitionTime", Absent, Null),
        ],
        ("batch", "CronJob") => {
            &[("spec.jobTemplate.metadata", Missing, EmptyObject), ("status", Missing, EmptyObject)]
        }
        ("resource.k8s.io", "ResourceClaimTemplate") => &[("spec.metadata", Missing, EmptyObject)],
        ("resource.k8s.io", "ResourceClaim")
        | ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy")
        | ("", "PersistentVolumeClaim" | "PersistentVolume") => &[("status", Missing, EmptyObject)],
        ("", "ResourceQuota") => &[("spec", Missing, EmptyObject), ("status", Missing, EmptyObject)],
        ("", "Namespace") | ("coordination.k8s.io", "Lease") | ("resource.k8s.io", "DeviceClass") => {
            &[("spec", Missing, EmptyObject)]
        }
        ("", "Service") | ("networking.k8s.io", "Ingress") => &[("status.loadBalancer", Missing, EmptyObject)],
        ("", "Node") => &[
            ("spec", Missing, EmptyObject),
            ("status.daemonEndpoints.kubeletEndpoint.Port", Absent, Number(0)),
            ("status.nodeInfo.architecture", Absent, Text("")),
            ("status.nodeInfo.bootID", Absent, Text("")),
            ("status.nodeInfo.containerRuntimeVersion", Absent, Text("")),
            ("status.nodeInfo.kernelVersion", Absent, Text("")),
            ("status.nodeInfo.kubeProxyVersion", Absent, Text("")),
            ("status.nodeInfo.kubeletVersion", Absent, Text("")),
            ("status.nodeInfo.machineID", Absent, Text("")),
            ("status.nodeInfo.operatingSystem", Absent, Text("")),
            ("status.nodeInfo.osImage", Absent, Text("")),
            ("status.nodeInfo.systemUUID", Absent, Text("")),
            ("status.conditions[].lastHeartbeatTime", Absent, Null),
            ("status.conditions[].lastTransitionTime", Absent, Null),
        ],
        ("", "Event") => &[
            ("involvedObject", Missing, EmptyObject),
            ("source", Missing, EmptyObject),
            ("firstTimestamp", Absent, Null),
            ("lastTimestamp", Absent, Null),
            ("eventTime", Absent, Null),
            ("reportingComponent", Absent, Text("")),
            ("reportingInstance", Absent, Text("")),
        ],
        ("events.k8s.io", "Event") => &[
            ("regarding", Missing, EmptyObject),
            ("deprecatedSource", Missing, EmptyObject),
            ("deprecatedFirstTimestamp", Absent, Null),
            ("deprecatedLastTimestamp", Absent, Null),
            ("eventTime", Absent, Null),
        ],
        ("policy", "PodDisruptionBudget") => &[
            ("status.disruptionsAllowed", Absent, Number(0)),
            ("status.currentHealthy", Absent, Number(0)),
            ("status.desiredHealthy", Absent, Number(0)),
            ("status.expectedPods", Absent, Number(0)),
        ],
        ("autoscaling", "HorizontalPodAutoscaler") if version == "v1" => {
            &[("status.currentReplicas", Absent, Number(0)), ("status.desiredReplicas", Absent, Number(0))]
        }
        ("autoscaling", "HorizontalPodAutoscaler") => {
            &[("status.desiredReplicas", Absent, Number(0)), ("status.currentMetrics", Absent, Null)]
        }
        ("scheduling.k8s.io", "PriorityClass") => &[("value", Absent, Number(0))],
        ("apps", "ControllerRevision") => &[("revision", Absent, Number(0))],
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => &[("rules", Absent, Null)],
        ("discovery.k8s.io", "EndpointSlice") => {
            &[("endpoints", Absent, Null), ("endpoints[].conditions", Missing, EmptyObject), ("ports", Absent, Null)]
        }
        ("storage.k8s.io", "VolumeAttachment") => &[("status.attached", Absent, Flag(false))],
        ("storage.k8s.io", "CSINode") => &[("spec.drivers", Absent, Null)],
        ("networking.k8s.io", "NetworkPolicy") => &[("spec.podSelector", Missing, EmptyObject)],
        _ => &[],
    }
}
