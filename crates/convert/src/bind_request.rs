//! BindRequests: decisions on their way. A pod with one that has not failed is where the request says.

use k8s_openapi::api::resource::v1::AllocationResult;
use kai_api::names::{annotations, bind_errors, bind_phases};
use kai_core::time::Time;
use serde::{Deserialize, Serialize};

use crate::{
    amount::time,
    numa::{self, ZoneShare},
};

/// A node that refused a pod and is not tried again before some time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Veto {
    /// The node.
    pub node: String,
    /// Why it refused.
    pub reason: String,
    /// When it may be tried again, in milliseconds since 1970.
    pub until: i64,
}

impl Veto {
    /// All vetoes that a BindRequest tells of: the one of its own failure, and those that were handed on to it.
    #[must_use]
    pub fn of(object: &kai_api::BindRequest) -> Vec<Self> {
        let notes = object.metadata.annotations.as_ref();
        let handed_on = notes.and_then(|all| all.get(annotations::BIND_VETOES));
        let mut vetoes: Vec<Self> = handed_on.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let status = object.status.clone().unwrap_or_default();
        // Whatever the failure was: who says when to try again wants not to be tried before.
        let refused = status.phase.as_deref() == Some(bind_phases::FAILED)
            && status.error_class.as_deref() != Some(bind_errors::GONE);
        if let (true, Some(node), Some(until)) = (refused, &object.spec.selected_node, &status.next_retry) {
            vetoes.retain(|veto| veto.node != *node);
            let reason = status.reason.clone().unwrap_or_else(|| "no reason was given".to_owned());
            vetoes.push(Self { node: node.clone(), reason, until: time(until.0).0 });
        }
        vetoes.sort_by(|a, b| a.node.cmp(&b.node));
        vetoes
    }

    /// Whether it holds.
    pub(crate) fn holds(&self, now: Time) -> bool {
        self.until > now.0
    }
}

/// What is kept of a BindRequest.
#[derive(Debug)]
pub(crate) struct BindRecord {
    /// `namespace/name` of its pod.
    pub(crate) pod: String,
    /// The uid of the pod that owns it: a pod of the same name made later is another one.
    pub(crate) owner: Option<String>,
    /// The node.
    pub(crate) node: String,
    /// The GPU groups.
    pub(crate) devices: Vec<String>,
    /// Millionths of each shared device that were given, if it says so.
    pub(crate) portion: Option<u32>,
    /// The zones, as foreseen.
    pub(crate) zones: Vec<ZoneShare>,
    /// The devices chosen for claims, by the claim's name in the pod.
    pub(crate) claims: Vec<(String, AllocationResult)>,
    /// Whether it has not failed for good.
    pub(crate) live: bool,
    /// The nodes that refused the pod.
    pub(crate) vetoes: Vec<Veto>,
}

impl BindRecord {
    /// Reads the object.
    pub(crate) fn of(object: &kai_api::BindRequest) -> Self {
        let spec = &object.spec;
        let namespace = object.metadata.namespace.as_deref().unwrap_or("default");
        let own = object.metadata.name.clone().unwrap_or_default();
        let pod = spec.pod_name.clone().filter(|name| !name.is_empty()).unwrap_or(own);
        let owners = object.metadata.owner_references.iter().flatten();
        let status = object.status.clone().unwrap_or_default();
        let tried_enough = match spec.backoff_limit {
            None => true,
            Some(limit) => status.failed_attempts.unwrap_or(0) >= limit,
        };
        let claims = spec
            .resource_claim_allocations
            .iter()
            .filter_map(|chosen| Some((chosen.name.clone()?, chosen.allocation.clone()?)));
        Self {
            pod: format!("{namespace}/{pod}"),
            owner: owners.filter(|owner| owner.kind == "Pod").map(|owner| owner.uid.clone()).next(),
            node: spec.selected_node.clone().unwrap_or_default(),
            devices: spec.selected_gpu_groups.clone(),
            portion: spec.received_gpu.as_ref().and_then(|gpu| millionths(gpu.portion.as_deref()?)),
            zones: numa::shares(&spec.predicted_numa_zones),
            claims: claims.collect(),
            vetoes: Veto::of(object),
            live: !(status.phase.as_deref() == Some(bind_phases::FAILED) && tried_enough),
        }
    }
}

/// A part of a device, such as `0.25`, in millionths: rounded up, so that nobody is charged less than they hold.
fn millionths(portion: &str) -> Option<u32> {
    let nano = portion.parse::<kai_quantity::Quantity>().ok()?.nano()?;
    let millionths = nano.checked_add(999)?.div_euclid(1000);
    u32::try_from(millionths).ok().filter(|millionths| (1..=1_000_000).contains(millionths))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(status: Value, limit: Option<i32>) -> BindRecord {
        let object = json!({"apiVersion": "scheduling.run.ai/v1alpha2", "kind": "BindRequest",
            "metadata": {"name": "p", "namespace": "team"},
            "spec": {"selectedNode": "n", "selectedGPUGroups": ["g"], "backoffLimit": limit}, "status": status});
        BindRecord::of(&serde_json::from_value(object).expect("a request"))
    }

    #[test]
    fn a_request_that_failed_for_good_no_longer_counts() {
        assert!(read(json!({}), None).live);
        assert!(read(json!({"phase": "Succeeded"}), None).live);
        assert!(!read(json!({"phase": "Failed"}), None).live);
        assert!(read(json!({"phase": "Failed", "failedAttempts": 1}), Some(2)).live);
        assert!(!read(json!({"phase": "Failed", "failedAttempts": 2}), Some(2)).live);
        assert_eq!(read(json!({}), None).pod, "team/p");
    }
}
