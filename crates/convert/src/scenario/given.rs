//! The objects that a file gives: read, named, and told apart. One that cannot be read is a verdict on that object alone, as it is in a
//! cluster; a file that contradicts itself is an error.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::file::ScenarioError;
use crate::object::{Kind, Object};

/// An object's kind and `namespace/name`, or name where the kind has no namespaces.
pub(super) type ObjectKey = (Kind, String);

/// Maps of quantities: numbers in them are quantities too.
const QUANTITY_MAPS: [&str; 6] = ["allocatable", "capacity", "requests", "limits", "overhead", "amount"];

/// Kinds that a cluster may have and that no decision depends on.
const IGNORED: [&str; 22] = [
    "CSIDriver",
    "CSINode",
    "CSIStorageCapacity",
    "Config",
    "CronJob",
    "CustomResourceDefinition",
    "DaemonSet",
    "Deployment",
    "Event",
    "Job",
    "Lease",
    "LimitRange",
    "PodDisruptionBudget",
    "ReplicaSet",
    "ResourceClaimTemplate",
    "ResourceQuota",
    "RuntimeClass",
    "Secret",
    "Service",
    "ServiceAccount",
    "StatefulSet",
    "VolumeAttachment",
];

/// What a file gives.
#[derive(Debug, Default)]
pub(super) struct Given {
    pub(super) objects: BTreeMap<ObjectKey, Value>,
    /// Verdicts on objects that cannot be read.
    pub(super) unreadable: Vec<String>,
}

/// Reads the objects of a file.
pub(super) fn read(given: &[Value]) -> Result<Given, ScenarioError> {
    let mut read = Given::default();
    let mut uids: BTreeSet<String> = BTreeSet::new();
    for (index, value) in given.iter().enumerate() {
        let mut value = value.clone();
        write_quantities(&mut value, 0);
        let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
        let field = format!("objects[{index}]");
        let object = match Object::read(&value) {
            Ok(Some(object)) => object,
            Ok(None) if IGNORED.contains(&text("kind")) => continue,
            Ok(None) => return Err(unknown(&field, text("apiVersion"), text("kind"))),
            Err(error) => {
                read.unreadable.push(error.to_string());
                continue;
            }
        };
        let key = key_of(&object);
        if key.1.is_empty() || key.1.ends_with('/') {
            read.unreadable
                .push(format!("{} `{field}`: field `metadata.name`: is missing; hint: name it", text("kind")));
            continue;
        }
        let twice = format!("{} `{}` is there twice", text("kind"), key.1);
        if key.0 == Kind::Pod && !uids.insert(text_at(&value, "/metadata/uid").to_owned()) {
            // No cluster gives two pods one uid: the file only says that it does not care.
            set_uid(&mut value, &key.1);
        }
        if read.objects.insert(key, value).is_some() {
            return Err(ScenarioError::field(field, twice, "remove one of them"));
        }
    }
    Ok(read)
}

/// A kind that means nothing here: most likely it is misspelt, and a case that ignored it would prove nothing.
fn unknown(field: &str, api: &str, kind: &str) -> ScenarioError {
    let what = format!("`{api}` `{kind}` is not a kind the scheduler knows");
    let hint = match Kind::named(kind) {
        Some((kind, api)) => format!("write `apiVersion: {api}` and `kind: {kind}`"),
        None => "correct `apiVersion` and `kind`".to_owned(),
    };
    ScenarioError::field(field, what, &hint)
}

fn text_at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn set_uid(value: &mut Value, uid: &str) {
    if let Some(Value::Object(metadata)) = value.get_mut("metadata") {
        metadata.insert("uid".to_owned(), Value::String(uid.to_owned()));
    }
}

fn key_of(object: &Object) -> ObjectKey {
    let (namespace, name) = object.name();
    let namespaced = matches!(
        object.kind(),
        Kind::Pod
            | Kind::ConfigMap
            | Kind::PersistentVolumeClaim
            | Kind::ResourceClaim
            | Kind::PodGroup
            | Kind::BindRequest
    );
    let namespace = if namespace.is_empty() { "default" } else { namespace };
    (object.kind(), if namespaced { format!("{namespace}/{name}") } else { name.to_owned() })
}

/// Quantities may be written as numbers; the types want text.
fn write_quantities(value: &mut Value, depth: usize) {
    if depth > 64 {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields {
                if QUANTITY_MAPS.contains(&name.as_str())
                    && let Value::Object(amounts) = inner
                {
                    for amount in amounts.values_mut().filter(|amount| amount.is_number()) {
                        *amount = Value::String(amount.to_string());
                    }
                }
                write_quantities(inner, depth + 1);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| write_quantities(item, depth + 1)),
        _ => {}
    }
}
