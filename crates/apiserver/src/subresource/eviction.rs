//! Evicting a pod: a deletion that a PodDisruptionBudget may refuse.

use std::sync::Arc;

use axum::response::Response;
use serde_json::{Value, json};

use super::admit;
use super::binding::set_condition;
use crate::http::answer;
use crate::http::call::Call;
use crate::http::query::{DryRun, OptionsKind};
use crate::object::{Key, Object};
use crate::select::LabelSelector;
use crate::status::{ApiError, Subject};
use crate::store::within;
use crate::verbs::delete::{DeleteOptions, delete_object};
use crate::verbs::write::text;

const BUDGETS: &str = "poddisruptionbudgets.policy";
const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
/// More unconfirmed evictions than this mean that nobody counts any longer.
const MOST_DISRUPTED: usize = 2000;

/// Evicts the pod in the path.
pub(crate) async fn evict(call: &mut Call) -> Result<Response, ApiError> {
    let mut eviction = call.decode("Eviction")?.value;
    if text(&eviction, "name") != call.name() {
        return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
    }
    let source =
        eviction.get("deleteOptions").filter(|options| options.is_object()).cloned().unwrap_or_else(|| json!({}));
    let mut options = DeleteOptions::parse(source)?;
    if call.query.dry_run(OptionsKind::Create)? == DryRun::Yes {
        options.dry_run = DryRun::Yes;
    }
    admit(call, "eviction", &mut eviction, options.dry_run).await?;
    let object = call.stored()?;
    let pod = object.value();
    if !can_ignore_budgets(&pod, &object) {
        match budgets(call, &object).as_slice() {
            [] => {}
            [budget] => spend(call, &pod, budget, options.dry_run)?,
            _ => {
                let message =
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                return Err(ApiError::new(500, "", message));
            }
        }
    }
    remove(call, &options)?;
    Ok(answer::success(201))
}

fn can_ignore_budgets(pod: &Value, object: &Object) -> bool {
    let phase = pod.pointer("/status/phase").and_then(Value::as_str);
    object.facts.deleting || matches!(phase, Some("Succeeded" | "Failed" | "Pending"))
}

fn budgets(call: &Call, pod: &Object) -> Vec<Arc<Object>> {
    let (all, _) = call.core.store.snapshot(BUDGETS);
    let here = within(&all, call.namespace().unwrap_or_default());
    here.map(|(_, budget)| budget).filter(|budget| guards(&budget.value(), pod)).cloned().collect()
}

fn guards(budget: &Value, pod: &Object) -> bool {
    let selector = budget.pointer("/spec/selector").filter(|selector| selector.is_object());
    let selector = selector.and_then(|selector| LabelSelector::from_value(selector).ok());
    selector.is_some_and(|selector| selector.matches(&pod.facts.labels))
}

/// Takes one disruption from a budget, or refuses.
fn spend(call: &Call, pod: &Value, budget: &Arc<Object>, dry_run: DryRun) -> Result<(), ApiError> {
    let value = budget.value();
    let count = |value: &Value, name: &str| value["status"][name].as_i64().unwrap_or(0);
    if !is_ready(pod) {
        let always = value.pointer("/spec/unhealthyPodEvictionPolicy") == Some(&json!("AlwaysAllow"));
        let (healthy, desired) = (count(&value, "currentHealthy"), count(&value, "desiredHealthy"));
        if always || (healthy >= desired && desired > 0) {
            return Ok(());
        }
    }
    let name = budget.key.name().to_owned();
    let now = call.core.now_text();
    let registry = call.core.registry();
    let Some(entry) = registry.find_storage(BUDGETS) else { return Err(ApiError::no_such_resource()) };
    let mut verdict = Ok(());
    call.core.edit(entry, &budget.key, |value| {
        verdict = check(value, &name);
        if verdict.is_err() || dry_run == DryRun::Yes {
            return false;
        }
        let left = count(value, "disruptionsAllowed") - 1;
        value["status"]["disruptionsAllowed"] = json!(left);
        value["status"]["disruptedPods"][call.name()] = json!(now);
        if left == 0 {
            let condition = json!({"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods",
                "message": "", "observedGeneration": value["status"]["observedGeneration"]});
            set_condition(value, condition, &now);
        }
        true
    });
    verdict
}

fn check(budget: &Value, name: &str) -> Result<(), ApiError> {
    let status = &budget["status"];
    let count = |name: &str| status[name].as_i64().unwrap_or(0);
    let refuse = |why: &str| {
        let subject = Subject { group: "policy", resource: "poddisruptionbudget", kind: "PodDisruptionBudget", name };
        Err(ApiError::forbidden(subject, why))
    };
    let cause = |message: String| json!([{"reason": "DisruptionBudget", "message": message}]);
    if count("observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
        let causes = cause(format!("The disruption budget {name} is still being processed by the server."));
        let details = json!({"causes": causes, "retryAfterSeconds": 10});
        return Err(ApiError { details: Some(details), ..ApiError::too_many_requests(REFUSED) });
    }
    if count("disruptionsAllowed") < 0 {
        return refuse("pdb disruptions allowed is negative");
    }
    if status["disruptedPods"].as_object().is_some_and(|pods| pods.len() > MOST_DISRUPTED) {
        return refuse("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
    }
    if count("disruptionsAllowed") == 0 {
        let (desired, healthy) = (count("desiredHealthy"), count("currentHealthy"));
        let causes =
            cause(format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"));
        let error = ApiError::too_many_requests(REFUSED);
        return Err(ApiError { details: Some(json!({"causes": causes})), ..error });
    }
    Ok(())
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    conditions.is_some_and(|list| list.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
}

/// Says on the pod why it goes, then deletes it.
fn remove(call: &Call, options: &DeleteOptions) -> Result<(), ApiError> {
    let key: Key = call.key();
    let mut options = options.clone();
    if options.dry_run == DryRun::No && options.resource_version.is_none() {
        let now = call.core.now_text();
        call.core.edit(&call.entry, &key, |pod| {
            let before = pod.clone();
            let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting"});
            set_condition(pod, condition, &now);
            *pod != before
        });
    }
    options.grace = options.grace.map(|grace| grace.max(0));
    delete_object(&call.core, &call.entry, &key, &options).map(|_| ())
}
