//! Limit ranges: containers get the defaults of their namespace and stay within its bounds.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::quantity::Quantity;
use super::{Attributes, ClusterReader, Operation};
use crate::resource::lookup;
use crate::status::ApiError;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";
const RANGES: &str = "limitranges";

type Amounts = BTreeMap<String, Quantity>;

/// Writes default requests and limits into the containers of a new pod, and says so in an annotation.
pub(super) fn mutate(attributes: &Attributes<'_>, object: &mut Value, cluster: &dyn ClusterReader) {
    let (Operation::Create, Some(namespace)) = (attributes.operation, attributes.namespace) else { return };
    for range in cluster.list(RANGES, Some(namespace)) {
        let defaults = Defaults::of(&range);
        let mut notes = Vec::new();
        for (field, word) in [("containers", "container"), ("initContainers", "init container")] {
            let containers = object.get_mut("spec").and_then(|spec| spec.get_mut(field)).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                defaults.apply(container, word, &mut notes);
            }
        }
        if !notes.is_empty() {
            annotate(object, &format!("LimitRanger plugin set: {}", notes.join("; ")));
        }
    }
}

/// Refuses a pod or claim outside the bounds.
pub(super) fn validate(
    attributes: &Attributes<'_>,
    object: &Value,
    cluster: &dyn ClusterReader,
) -> Result<(), ApiError> {
    let pod = attributes.is_about("", "pods") && attributes.operation == Operation::Create;
    let claim = attributes.is_about("", "persistentvolumeclaims")
        && matches!(attributes.operation, Operation::Create | Operation::Update);
    let deleted = attributes.old.is_some_and(|old| lookup(old, "metadata.deletionTimestamp").is_some());
    let Some(namespace) = attributes.namespace.filter(|_| (pod || claim) && !deleted) else { return Ok(()) };
    for range in cluster.list(RANGES, Some(namespace)) {
        let mut errors: Vec<String> = Vec::new();
        for limit in limits_of(&range) {
            match limit.get("type").and_then(Value::as_str) {
                Some("Container") if pod => {
                    for container in containers(object) {
                        let (requests, limits) = (amounts(container, "requests"), amounts(container, "limits"));
                        check(limit, "Container", &requests, &limits, &mut errors);
                    }
                }
                Some("Pod") if pod => {
                    let (requests, limits) = (pod_amounts(object, "requests"), pod_amounts(object, "limits"));
                    check(limit, "Pod", &requests, &limits, &mut errors);
                }
                Some("PersistentVolumeClaim") if claim => check_claim(limit, object, &mut errors),
                _ => {}
            }
        }
        let mut distinct: Vec<String> = Vec::new();
        for error in errors {
            if !distinct.contains(&error) {
                distinct.push(error);
            }
        }
        let why = match distinct.as_slice() {
            [] => continue,
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        return Err(attributes.forbidden(Some(object), why));
    }
    Ok(())
}

/// What a container gets that does not say.
struct Defaults {
    requests: Map<String, Value>,
    limits: Map<String, Value>,
}

impl Defaults {
    fn of(range: &Value) -> Self {
        let mut defaults = Self { requests: Map::new(), limits: Map::new() };
        for limit in limits_of(range) {
            if limit.get("type").and_then(Value::as_str) == Some("Container") {
                let map = |field: &str| limit.get(field).and_then(Value::as_object).cloned().unwrap_or_default();
                defaults.requests.extend(map("defaultRequest"));
                defaults.limits.extend(map("default"));
            }
        }
        defaults
    }

    fn apply(&self, container: &mut Value, word: &str, notes: &mut Vec<String>) {
        let name = container.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        for (field, noun, wanted) in [("requests", "request", &self.requests), ("limits", "limit", &self.limits)] {
            let added = add_missing(container, field, wanted);
            if !added.is_empty() {
                notes.push(format!("{} {noun} for {word} {name}", added.join(", ")));
            }
        }
    }
}

/// Names of the resources that were missing and are there now, sorted.
fn add_missing(container: &mut Value, field: &str, wanted: &Map<String, Value>) -> Vec<String> {
    let present = container.get("resources").and_then(|resources| resources.get(field));
    let missing: Vec<(String, Value)> = wanted
        .iter()
        .filter(|(name, _)| present.is_none_or(|present| present.get(name).is_none()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let Some(container) = container.as_object_mut().filter(|_| !missing.is_empty()) else { return Vec::new() };
    let resources = object_entry(container, "resources");
    let Some(amounts) = resources.and_then(|resources| object_entry(resources, field)) else { return Vec::new() };
    let names = missing.iter().map(|(name, _)| name.clone()).collect();
    amounts.extend(missing);
    names
}

fn object_entry<'a>(map: &'a mut Map<String, Value>, field: &str) -> Option<&'a mut Map<String, Value>> {
    let entry = map.entry(field).or_insert_with(|| json!({}));
    if entry.is_null() {
        *entry = json!({});
    }
    entry.as_object_mut()
}

fn annotate(object: &mut Value, note: &str) {
    let metadata = object.as_object_mut().and_then(|object| object_entry(object, "metadata"));
    if let Some(annotations) = metadata.and_then(|metadata| object_entry(metadata, "annotations")) {
        annotations.insert(ANNOTATION.to_owned(), json!(note));
    }
}

fn limits_of(range: &Value) -> &[Value] {
    lookup(range, "spec.limits").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let list = |path| lookup(pod, path).and_then(Value::as_array).into_iter().flatten();
    list("spec.containers").chain(list("spec.initContainers"))
}

fn amounts(owner: &Value, field: &str) -> Amounts {
    let map = owner.get("resources").and_then(|resources| resources.get(field)).and_then(Value::as_object);
    read_amounts(map)
}

fn read_amounts(map: Option<&Map<String, Value>>) -> Amounts {
    let read = |value: &Value| match value {
        Value::String(text) => Quantity::parse(text),
        Value::Number(number) => Quantity::parse(&number.to_string()),
        _ => None,
    };
    map.into_iter().flatten().filter_map(|(name, value)| Some((name.clone(), read(value)?))).collect()
}

/// What a pod needs as a whole: its containers and sidecars together, or its largest step of initialisation.
fn pod_amounts(pod: &Value, field: &str) -> Amounts {
    let list = |path| lookup(pod, path).and_then(Value::as_array).into_iter().flatten();
    let mut total = Amounts::new();
    for container in list("spec.containers") {
        add(&mut total, &amounts(container, field));
    }
    let (mut sidecars, mut largest) = (Amounts::new(), Amounts::new());
    for container in list("spec.initContainers") {
        let mut step = amounts(container, field);
        if container.get("restartPolicy").and_then(Value::as_str) == Some("Always") {
            add(&mut total, &step);
            add(&mut sidecars, &step);
            step.clone_from(&sidecars);
        } else {
            add(&mut step, &sidecars);
        }
        raise(&mut largest, &step);
    }
    raise(&mut total, &largest);
    for (name, amount) in amounts(pod.get("spec").unwrap_or(&Value::Null), field) {
        if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
            total.insert(name, amount);
        }
    }
    total
}

fn add(total: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = total.get(name).map_or(*amount, |present| present.plus(*amount));
        total.insert(name.clone(), sum);
    }
}

fn raise(total: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let larger = total.get(name).map_or(*amount, |present| present.max(*amount));
        total.insert(name.clone(), larger);
    }
}

fn bounds(limit: &Value, field: &str) -> Amounts {
    read_amounts(limit.get(field).and_then(Value::as_object))
}

fn check(limit: &Value, kind: &str, requests: &Amounts, limits: &Amounts, errors: &mut Vec<String>) {
    for (name, bound) in bounds(limit, "min") {
        let text = format!("minimum {name} usage per {kind} is {bound}");
        match (requests.get(&name), limits.get(&name)) {
            (None, _) => errors.push(format!("{text}.  No request is specified")),
            (Some(request), _) if bound.exceeds(*request) => errors.push(format!("{text}, but request is {request}")),
            (_, Some(limit)) if bound.exceeds(*limit) => errors.push(format!("{text}, but limit is {limit}")),
            _ => {}
        }
    }
    for (name, bound) in bounds(limit, "max") {
        let text = format!("maximum {name} usage per {kind} is {bound}");
        match (limits.get(&name), requests.get(&name)) {
            (None, _) => errors.push(format!("{text}.  No limit is specified")),
            (Some(limit), _) if limit.exceeds(bound) => errors.push(format!("{text}, but limit is {limit}")),
            (_, Some(request)) if request.exceeds(bound) => errors.push(format!("{text}, but request is {request}")),
            _ => {}
        }
    }
    for (name, bound) in bounds(limit, "maxLimitRequestRatio") {
        let text = format!("{name} max limit to request ratio per {kind} is {bound}");
        let given = |amounts: &Amounts| amounts.get(&name).copied().filter(|amount| !amount.is_zero());
        match (given(requests), given(limits)) {
            (None, _) => errors.push(format!("{text}, but no request is specified or request is 0")),
            (_, None) => errors.push(format!("{text}, but no limit is specified or limit is 0")),
            (Some(request), Some(limit)) if limit.ratio(request) > bound.as_f64() => {
                errors.push(format!("{text}, but provided ratio is {:.6}", limit.ratio(request)));
            }
            _ => {}
        }
    }
}

/// Claims have requests only.
fn check_claim(limit: &Value, claim: &Value, errors: &mut Vec<String>) {
    let kind = "PersistentVolumeClaim";
    let requests = amounts(claim.get("spec").unwrap_or(&Value::Null), "requests");
    for (name, bound) in bounds(limit, "min") {
        let text = format!("minimum {name} usage per {kind} is {bound}");
        match requests.get(&name) {
            None => errors.push(format!("{text}.  No request is specified")),
            Some(request) if bound.exceeds(*request) => errors.push(format!("{text}, but request is {request}")),
            Some(_) => {}
        }
    }
    for (name, bound) in bounds(limit, "max") {
        let text = format!("maximum {name} usage per {kind} is {bound}");
        match requests.get(&name) {
            None => errors.push(format!("{text}.  No request is specified")),
            Some(request) if request.exceeds(bound) => errors.push(format!("{text}, but request is {request}")),
            Some(_) => {}
        }
    }
}
