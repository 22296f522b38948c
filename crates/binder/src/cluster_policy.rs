//! What the GPU operator's `ClusterPolicy` says about CDI. Without one, containers learn their GPUs through the environment alone.

use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::Value;

/// From this version on, enabling CDI is enough.
const ENABLED_SUFFICES: (u32, u32) = (25, 10);

/// The kind, which may not exist.
pub(crate) fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("nvidia.com", "v1", "ClusterPolicy"), "clusterpolicies")
}

/// Whether containers are to be told GPUs as CDI devices, as the first policy says.
pub(crate) fn uses_cdi(policies: &[DynamicObject]) -> bool {
    let Some(policy) = policies.first() else { return false };
    let flag = |path: &str| policy.data.pointer(path).and_then(Value::as_bool).unwrap_or(false);
    let labels = policy.metadata.labels.as_ref();
    let version = labels.and_then(|labels| labels.get("app.kubernetes.io/version")).and_then(|text| version(text));
    flag("/spec/cdi/enabled") && (flag("/spec/cdi/default") || version.is_some_and(|found| found >= ENABLED_SUFFICES))
}

/// Major and minor number of `v25.10.1`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.trim_start_matches('v').split(['.', '-', '+']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cdi(version: &str, cdi: Value) -> bool {
        let object =
            json!({"metadata": {"name": "p", "labels": {"app.kubernetes.io/version": version}}, "spec": {"cdi": cdi}});
        uses_cdi(&[serde_json::from_value(object).expect("an object")])
    }

    #[test]
    fn enabled_and_default_or_a_new_operator_mean_cdi() {
        assert!(!uses_cdi(&[]));
        assert!(cdi("v24.9.0", json!({"enabled": true, "default": true})));
        assert!(!cdi("v24.9.0", json!({"enabled": true})));
        assert!(!cdi("v25.3.4", json!({"enabled": true, "default": false})));
        assert!(cdi("v25.10.0", json!({"enabled": true})));
        assert!(cdi("v26.3.0-rc.1", json!({"enabled": true})));
        assert!(!cdi("v26.3.0", json!({"enabled": false, "default": true})));
        assert!(!cdi("unknown", json!({"enabled": true})));
        assert!(!cdi("v26.3.0", json!({})));
    }
}
