//! Checks beyond the recorded answers: shapes no client sends, and sizes too large to record.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::builtin::defaults::{self, tests::any_object};
use crate::builtin::recorded::resource;
use crate::builtin::{metadata, strategy};
use crate::resource::Scope;

const KINDS: &[(&str, &str)] = &[
    ("v1", "Pod"),
    ("v1", "PodTemplate"),
    ("v1", "ReplicationController"),
    ("v1", "Service"),
    ("v1", "Namespace"),
    ("v1", "Node"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "Event"),
    ("v1", "LimitRange"),
    ("v1", "ResourceQuota"),
    ("v1", "PersistentVolume"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "Binding"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("policy/v1", "PodDisruptionBudget"),
    ("scheduling.k8s.io/v1", "PriorityClass"),
    ("node.k8s.io/v1", "RuntimeClass"),
    ("coordination.k8s.io/v1", "Lease"),
    ("storage.k8s.io/v1", "StorageClass"),
    ("storage.k8s.io/v1", "CSIDriver"),
    ("discovery.k8s.io/v1", "EndpointSlice"),
    ("events.k8s.io/v1", "Event"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("resource.k8s.io/v1", "ResourceClaim"),
    ("resource.k8s.io/v1", "ResourceClaimTemplate"),
    ("resource.k8s.io/v1", "DeviceClass"),
    ("resource.k8s.io/v1", "ResourceSlice"),
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_json_of_any_kind_panics(object in any_object(), old in any_object()) {
        for (api_version, kind) in KINDS {
            let resource = resource(api_version, kind, Scope::Namespaced);
            let gvk = &resource.gvk;
            let mut created = object.clone();
            let _ = defaults::undecodable_quantity(gvk, &mut created);
            defaults::set_defaults(gvk, &mut created);
            strategy::prepare_for_create(&resource, &mut created);
            let _ = metadata::validate_metadata(&resource, &created);
            let _ = validate_create(gvk, &created);
            let _ = strategy::selectable_fields(gvk, &created);
            for subresource in [None, Some("status"), Some("ephemeralcontainers"), Some("resize"), Some("finalize"), Some("scale")] {
                let mut updated = created.clone();
                strategy::prepare_for_update(&resource, subresource, &mut updated, &old);
                let _ = metadata::validate_metadata_update(&resource, &updated, &old);
                let _ = validate_update(gvk, subresource, &updated, &old);
            }
        }
    }
}

#[test]
fn a_secret_or_config_map_over_one_mebibyte_is_too_long() {
    let text = "x".repeat(1024 * 1024 + 1);
    let errors = validate_create(&Gvk::new("", "v1", "ConfigMap"), &json!({"data": {"a": text}}));
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].message, "Too long: may not be more than 1048576 bytes");
}

#[test]
fn a_binding_names_a_node() {
    let gvk = Gvk::new("", "v1", "Binding");
    assert!(validate_create(&gvk, &json!({"target": {"name": "n", "kind": "Node"}})).is_empty());
    let errors = validate_create(&gvk, &json!({"target": {"kind": "Pod"}}));
    let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(fields, ["target.kind", "target.name"]);
}
