//! Pods of a runtime class get its overhead, node selector and tolerations.

use std::sync::Arc;

use serde_json::{Value, json};

use super::quantity::Quantity;
use super::{Attributes, ClusterReader, Operation, spec_of};
use crate::resource::lookup;
use crate::select::go_quote;
use crate::status::ApiError;

const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

pub(super) fn mutate(
    attributes: &Attributes<'_>,
    object: &mut Value,
    cluster: &dyn ClusterReader,
) -> Result<(), ApiError> {
    if attributes.operation != Operation::Create {
        return Ok(());
    }
    let Some(class) = class_of(attributes, object, cluster)? else { return Ok(()) };
    if let Some(overhead) = class.get("overhead").filter(|overhead| !overhead.is_null()) {
        let fixed = overhead.get("podFixed").unwrap_or(&Value::Null);
        if is_set(lookup(object, "spec.overhead")) && !same_amounts(lookup(object, "spec.overhead"), Some(fixed)) {
            return Err(attributes.forbidden(Some(object), MISMATCH));
        }
        if let (true, Some(spec)) = (is_set(Some(fixed)), spec_of(object)) {
            spec.insert("overhead".to_owned(), fixed.clone());
        }
    }
    if let Some(scheduling) = class.get("scheduling") {
        merge_node_selector(attributes, object, scheduling.get("nodeSelector"))?;
        merge_tolerations(object, scheduling.get("tolerations"));
    }
    Ok(())
}

pub(super) fn validate(
    attributes: &Attributes<'_>,
    object: &Value,
    cluster: &dyn ClusterReader,
) -> Result<(), ApiError> {
    if !attributes.is_about("", "pods") || attributes.operation != Operation::Create {
        return Ok(());
    }
    let overhead = lookup(object, "spec.overhead");
    let class = class_of(attributes, object, cluster)?;
    let defined = class.as_ref().and_then(|class| class.get("overhead")).filter(|overhead| !overhead.is_null());
    match defined {
        Some(defined) if !same_amounts(overhead, defined.get("podFixed")) => {
            Err(attributes.forbidden(Some(object), MISMATCH))
        }
        None if is_set(overhead) => {
            let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
            Err(attributes.forbidden(Some(object), why))
        }
        _ => Ok(()),
    }
}

fn class_of(
    attributes: &Attributes<'_>,
    object: &Value,
    cluster: &dyn ClusterReader,
) -> Result<Option<Arc<Value>>, ApiError> {
    let Some(name) = lookup(object, "spec.runtimeClassName").and_then(Value::as_str) else { return Ok(None) };
    let class = cluster.get("runtimeclasses.node.k8s.io", None, name);
    class.map(Some).ok_or_else(|| {
        attributes.forbidden(Some(object), format!("pod rejected: RuntimeClass {} not found", go_quote(name)))
    })
}

fn is_set(amounts: Option<&Value>) -> bool {
    amounts.and_then(Value::as_object).is_some_and(|map| !map.is_empty())
}

/// Whether two resource lists say the same, however they write it.
fn same_amounts(left: Option<&Value>, right: Option<&Value>) -> bool {
    let empty = serde_json::Map::new();
    let map = |value: Option<&Value>| value.and_then(Value::as_object).cloned().unwrap_or_else(|| empty.clone());
    let (left, right) = (map(left), map(right));
    let amount = |value: &Value| Quantity::parse(&value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    left.len() == right.len()
        && left.iter().all(|(name, value)| {
            right.get(name).is_some_and(|other| match (amount(value), amount(other)) {
                (Some(value), Some(other)) => !value.exceeds(other) && !other.exceeds(value),
                _ => value == other,
            })
        })
}

fn merge_node_selector(
    attributes: &Attributes<'_>,
    object: &mut Value,
    selector: Option<&Value>,
) -> Result<(), ApiError> {
    let Some(selector) = selector.and_then(Value::as_object).filter(|selector| !selector.is_empty()) else {
        return Ok(());
    };
    for (key, value) in selector {
        let found = object.get("spec").and_then(|spec| spec.get("nodeSelector")).and_then(|found| found.get(key));
        if let Some(found) = found.filter(|found| *found != value) {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let why = format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                text(value),
                text(found)
            );
            return Err(attributes.forbidden(Some(object), why));
        }
    }
    if let Some(spec) = spec_of(object) {
        let present = spec.entry("nodeSelector").or_insert_with(|| json!({}));
        if present.is_null() {
            *present = json!({});
        }
        if let Some(present) = present.as_object_mut() {
            present.extend(selector.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
    }
    Ok(())
}

/// Tolerations of both, without those that another one covers.
fn merge_tolerations(object: &mut Value, added: Option<&Value>) {
    let Some(added) = added.and_then(Value::as_array).filter(|added| !added.is_empty()) else { return };
    let Some(spec) = spec_of(object) else { return };
    let present = spec.get("tolerations").and_then(Value::as_array).cloned().unwrap_or_default();
    let all: Vec<&Value> = present.iter().chain(added).collect();
    let mut merged: Vec<Value> = Vec::new();
    for (index, toleration) in all.iter().enumerate() {
        let later = all.iter().skip(index + 1);
        let covered = merged.iter().any(|other| covers(other, toleration))
            || later.filter(|other| *other != toleration).any(|other| covers(other, toleration));
        if !covered {
            merged.push((*toleration).clone());
        }
    }
    spec.insert("tolerations".to_owned(), Value::Array(merged));
}

/// Whether `wide` tolerates everything that `narrow` does.
fn covers(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    let text =
        |toleration: &Value, field: &str| toleration.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let seconds = |toleration: &Value| toleration.get("tolerationSeconds").and_then(Value::as_i64);
    let (operator, effect) = (text(wide, "operator"), text(wide, "effect"));
    let all_keys = text(wide, "key").is_empty() && operator == "Exists";
    if text(wide, "key") != text(narrow, "key") && !all_keys {
        return false;
    }
    if effect != text(narrow, "effect") && !effect.is_empty() {
        return false;
    }
    if let (true, Some(limit)) = (effect == "NoExecute", seconds(wide))
        && seconds(narrow).is_none_or(|seconds| seconds > limit)
    {
        return false;
    }
    match operator.as_str() {
        "Equal" | "" => text(narrow, "operator") == "Equal" && text(narrow, "value") == text(wide, "value"),
        "Exists" => true,
        _ => false,
    }
}
