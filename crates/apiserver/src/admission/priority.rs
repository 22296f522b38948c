//! Pods get the number behind their priority class; there is at most one default class.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Attributes, ClusterReader, Operation, spec_of};
use crate::status::{ApiError, FieldError};

const CLASSES: &str = "priorityclasses.scheduling.k8s.io";
/// Above this, priorities belong to the system.
const HIGHEST_USER_PRIORITY: i64 = 1_000_000_000;
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

/// Resolves the class of a pod.
pub(super) fn mutate(
    attributes: &Attributes<'_>,
    object: &mut Value,
    cluster: &dyn ClusterReader,
) -> Result<(), ApiError> {
    match attributes.operation {
        Operation::Create => resolve(attributes, object, cluster),
        Operation::Update => {
            keep(attributes, object);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Refuses a second default class and the names and numbers of the system.
pub(super) fn validate(
    attributes: &Attributes<'_>,
    object: &Value,
    cluster: &dyn ClusterReader,
) -> Result<(), ApiError> {
    if !attributes.is_about("scheduling.k8s.io", "priorityclasses")
        || !matches!(attributes.operation, Operation::Create | Operation::Update)
    {
        return Ok(());
    }
    let name = name_of(object);
    let errors = reserved(name, object);
    if !errors.is_empty() {
        return Err(ApiError::invalid(attributes.resource.subject(name), &errors));
    }
    if !is_default(object) {
        return Ok(());
    }
    match default_class(cluster) {
        Some(other) if attributes.operation == Operation::Create || name_of(&other) != name => {
            let other = name_of(&other);
            let why = format!("PriorityClass {other} is already marked as default. Only one default can exist");
            Err(attributes.forbidden(Some(object), why))
        }
        _ => Ok(()),
    }
}

fn resolve(attributes: &Attributes<'_>, object: &mut Value, cluster: &dyn ClusterReader) -> Result<(), ApiError> {
    let spec = |field: &str| object.get("spec").and_then(|spec| spec.get(field)).filter(|value| !value.is_null());
    let wanted = spec("priorityClassName").and_then(Value::as_str).filter(|name| !name.is_empty());
    let class = match wanted {
        Some(name) => Some(cluster.get(CLASSES, None, name).ok_or_else(|| {
            attributes.forbidden(Some(object), format!("no PriorityClass with name {name} was found"))
        })?),
        None => default_class(cluster),
    };
    let priority = class.as_ref().map_or(0, |class| value_of(class));
    // A class without a policy leaves the pod without one; no class at all means the default policy.
    let policy = match &class {
        Some(class) => class.get("preemptionPolicy").and_then(Value::as_str),
        None => Some("PreemptLowerPriority"),
    };
    if let Some(given) = spec("priority").and_then(Value::as_i64).filter(|given| *given != priority) {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {priority} from the given PriorityClass name"
        );
        return Err(attributes.forbidden(Some(object), why));
    }
    if let (Some(given), Some(policy)) = (spec("preemptionPolicy").and_then(Value::as_str), policy)
        && given != policy
    {
        let why = format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
             controller computed {policy} from the given PriorityClass name"
        );
        return Err(attributes.forbidden(Some(object), why));
    }
    let (default_name, policy) =
        (class.as_ref().filter(|_| wanted.is_none()).map(|class| name_of(class).to_owned()), policy.map(str::to_owned));
    let Some(spec) = spec_of(object) else { return Ok(()) };
    if let Some(name) = default_name {
        spec.insert("priorityClassName".to_owned(), json!(name));
    }
    spec.insert("priority".to_owned(), json!(priority));
    if let Some(policy) = policy {
        spec.insert("preemptionPolicy".to_owned(), json!(policy));
    }
    Ok(())
}

/// An update that leaves out what this plugin set does not unset it.
fn keep(attributes: &Attributes<'_>, object: &mut Value) {
    let Some(old) = attributes.old.and_then(|old| old.get("spec")) else { return };
    let Some(spec) = spec_of(object) else { return };
    for field in ["priority", "preemptionPolicy"] {
        if let Some(value) = old.get(field)
            && spec.get(field).is_none_or(Value::is_null)
        {
            spec.insert(field.to_owned(), value.clone());
        }
    }
}

fn reserved(name: &str, class: &Value) -> Vec<FieldError> {
    if !name.starts_with("system-") {
        return if value_of(class) > HIGHEST_USER_PRIORITY {
            let why = format!("maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}");
            vec![FieldError::forbidden("value", why)]
        } else {
            Vec::new()
        };
    }
    let problem = match SYSTEM_CLASSES.iter().find(|(system, _)| *system == name) {
        Some((_, value)) if *value != value_of(class) => format!("value of {name} PriorityClass must be {value}"),
        Some(_) if is_default(class) => format!("globalDefault of {name} PriorityClass must be false"),
        Some(_) => return Vec::new(),
        None => format!("{name} is not a known system priority class"),
    };
    let why = format!("priority class names with 'system-' prefix are reserved for system use only. error: {problem}");
    vec![FieldError::forbidden("metadata.name", why)]
}

/// The default class; the lowest one should a race have left several.
fn default_class(cluster: &dyn ClusterReader) -> Option<Arc<Value>> {
    cluster.list(CLASSES, None).into_iter().filter(|class| is_default(class)).min_by_key(|class| value_of(class))
}

fn is_default(class: &Value) -> bool {
    class.get("globalDefault").and_then(Value::as_bool).unwrap_or(false)
}

fn value_of(class: &Value) -> i64 {
    class.get("value").and_then(Value::as_i64).unwrap_or_default()
}

fn name_of(class: &Value) -> &str {
    class.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Value::as_str).unwrap_or_default()
}
