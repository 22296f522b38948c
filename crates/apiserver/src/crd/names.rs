//! Which of its names a definition gets, and the conditions that say so.
//!
//! All definitions of a group share one space of plurals, singulars and short names, and one of kinds and list kinds. The first to
//! come has a name; a later one waits, with `NamesAccepted` false, until the name is free.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{condition, strings, text, versions};

/// Writes the status: accepted names, conditions `NamesAccepted` and `Established`, stored versions.
///
/// `existing` are the other definitions of the cluster (one of the same name is passed over); `now` is the time of a transition.
pub fn establish(definition: &mut Value, existing: &[&Value], now: &str) {
    let name = definition.pointer("/metadata/name").cloned().unwrap_or_default();
    let group = definition.pointer("/spec/group").cloned().unwrap_or_default();
    let (mut resources, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    for other in existing {
        if other.pointer("/spec/group") == Some(&group) && other.pointer("/metadata/name") != Some(&name) {
            let names = other.pointer("/status/acceptedNames").unwrap_or(&Value::Null);
            resources.extend([text(names, "plural"), text(names, "singular")]);
            resources.extend(strings(names, "shortNames"));
            kinds.extend([text(names, "kind"), text(names, "listKind")]);
        }
    }
    let requested = definition.pointer("/spec/names").cloned().unwrap_or_default();
    let accepted = definition.pointer("/status/acceptedNames").cloned().unwrap_or_default();
    let (names, conflict) = settle(&requested, &accepted, &resources, &kinds);

    let mut conditions: Vec<Value> =
        definition.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let established = condition(definition, "Established") == Some("True");
    match &conflict {
        None => {
            set(&mut conditions, "NamesAccepted", "True", "NoConflicts", "no conflicts found", now);
            if !established {
                let message = "the initial names have been accepted";
                set(&mut conditions, "Established", "True", "InitialNamesAccepted", message, now);
            }
        }
        Some((reason, message)) => {
            set(&mut conditions, "NamesAccepted", "False", reason, message, now);
            if !established {
                set(&mut conditions, "Established", "False", "NotAccepted", "not all names are accepted", now);
            }
        }
    }

    let mut stored: Vec<Value> =
        definition.pointer("/status/storedVersions").and_then(Value::as_array).cloned().unwrap_or_default();
    let storage = versions(definition).find(|v| super::flag(v, "storage")).and_then(|v| v.get("name")).cloned();
    if let Some(storage) = storage
        && !stored.contains(&storage)
    {
        stored.push(storage);
    }
    if let Some(object) = definition.as_object_mut() {
        let status = json!({"conditions": conditions, "acceptedNames": names, "storedVersions": stored});
        object.insert("status".to_owned(), status);
    }
}

/// The names a definition has from now on, and the last conflict, if any.
fn settle(
    requested: &Value,
    accepted: &Value,
    resources: &BTreeSet<String>,
    kinds: &BTreeSet<String>,
) -> (Value, Option<(&'static str, String)>) {
    let mut names: Map<String, Value> = accepted.as_object().cloned().unwrap_or_default();
    let mut conflict = None;
    let in_use = |name: &str| format!("\"{name}\" is already in use");
    for (key, taken, reason) in [
        ("plural", resources, "PluralConflict"),
        ("singular", resources, "SingularConflict"),
        ("shortNames", resources, "ShortNamesConflict"),
        ("kind", kinds, "KindConflict"),
        ("listKind", kinds, "ListKindConflict"),
    ] {
        let (wanted, have) = if key == "shortNames" {
            (strings(requested, key), strings(accepted, key))
        } else {
            (vec![text(requested, key)], vec![text(accepted, key)])
        };
        let clashes: Vec<String> =
            wanted.iter().filter(|n| !have.contains(n) && taken.contains(*n)).map(|n| in_use(n)).collect();
        match clashes.as_slice() {
            [] => copy(requested, &mut names, key),
            [one] => conflict = Some((reason, one.clone())),
            many => conflict = Some((reason, format!("[{}]", many.join(", ")))),
        }
    }
    copy(requested, &mut names, "categories");
    for key in ["plural", "kind"] {
        names.entry(key).or_insert_with(|| json!(""));
    }
    (Value::Object(names), conflict)
}

fn copy(from: &Value, to: &mut Map<String, Value>, key: &str) {
    match from.get(key) {
        Some(value) => to.insert(key.to_owned(), value.clone()),
        None => to.remove(key),
    };
}

/// Sets a condition; the time changes only when the status does.
fn set(conditions: &mut Vec<Value>, kind: &str, status: &str, reason: &str, message: &str, now: &str) {
    let position = conditions.iter().position(|c| c.get("type").and_then(Value::as_str) == Some(kind));
    let old = position.and_then(|p| conditions.get(p));
    let since = match old {
        Some(old) if old.get("status").and_then(Value::as_str) == Some(status) => {
            old.get("lastTransitionTime").cloned().unwrap_or_else(|| json!(now))
        }
        _ => json!(now),
    };
    let condition = json!({
        "type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message,
    });
    match position.and_then(|p| conditions.get_mut(p)) {
        Some(slot) => *slot = condition,
        None => conditions.push(condition),
    }
}
