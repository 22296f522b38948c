//! Pods stay five minutes on a node that is not ready or not reachable, unless they say otherwise.

use serde_json::{Value, json};

use super::{Attributes, Operation, spec_of};

const TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

pub(super) fn mutate(attributes: &Attributes<'_>, object: &mut Value) {
    if !matches!(attributes.operation, Operation::Create | Operation::Update) {
        return;
    }
    let Some(spec) = spec_of(object) else { return };
    let present = spec.get("tolerations").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let text =
        |toleration: &Value, field: &str| toleration.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let tolerated = |taint: &str| {
        present.iter().any(|toleration| {
            let (key, effect) = (text(toleration, "key"), text(toleration, "effect"));
            (key == taint || key.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        })
    };
    let missing: Vec<Value> = TAINTS
        .into_iter()
        .filter(|taint| !tolerated(taint))
        .map(|taint| json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}))
        .collect();
    if missing.is_empty() {
        return;
    }
    let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
    if tolerations.is_null() {
        *tolerations = json!([]);
    }
    if let Some(list) = tolerations.as_array_mut() {
        list.extend(missing);
    }
}
