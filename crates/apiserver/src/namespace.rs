//! The end of namespaces and of CustomResourceDefinitions: first everything in them goes, then they go.

use serde_json::{Value, json};

use crate::garbage::drop_finalizer;
use crate::object::Key;
use crate::server::Core;
use crate::store::{DEFINITIONS, NAMESPACES};
use crate::verbs::delete::{DeleteOptions, delete_object};
use crate::verbs::write::{DEFINITION_FINALIZER, judge};

/// The finalizer in `spec.finalizers` of every namespace.
const NAMESPACE_FINALIZER: &str = "kubernetes";

/// Goes on with the deletion of a namespace.
pub(crate) fn end(core: &Core, name: &str) {
    let registry = core.registry();
    let key = Key::new(None, name);
    let Some(entry) = registry.find_storage(NAMESPACES) else { return };
    if !core.store.get(NAMESPACES, &key).is_some_and(|namespace| namespace.facts.deleting) {
        return;
    }
    for (table, key) in core.store.contents(name) {
        let marked = core.store.get(&table, &key).is_none_or(|object| object.facts.deleting);
        if let Some(entry) = registry.find_storage(&table)
            && !marked
        {
            // Gone already is as good.
            let _ = delete_object(core, entry, &key, &DeleteOptions::default());
        }
    }
    let remaining = core.store.contents(name);
    if remaining.is_empty() {
        core.edit(entry, &key, finish);
    } else {
        let finalized = remaining.iter().filter_map(|(table, key)| core.store.get(table, key));
        let mut finalizers: Vec<String> = finalized.flat_map(|object| object.facts.finalizers.clone()).collect();
        finalizers.sort();
        let now = core.now_text();
        core.edit(entry, &key, |value| describe(value, remaining.len(), &finalizers, &now));
    }
}

/// Removes the finalizer; says whether it was there.
fn finish(namespace: &mut Value) -> bool {
    let Some(list) = namespace.pointer_mut("/spec/finalizers").and_then(Value::as_array_mut) else { return true };
    let before = list.len();
    list.retain(|finalizer| finalizer != NAMESPACE_FINALIZER);
    list.len() != before
}

/// Says in the status what the namespace waits for.
fn describe(namespace: &mut Value, remaining: usize, finalizers: &[String], now: &str) -> bool {
    let content = format!("Some resources are remaining: {remaining} objects");
    let mut wanted = vec![("NamespaceContentRemaining", "SomeResourcesRemain", content)];
    if !finalizers.is_empty() {
        let mut names = finalizers.to_vec();
        names.dedup();
        let message = format!("Some content in the namespace has finalizers remaining: {}", names.join(", "));
        wanted.push(("NamespaceFinalizersRemaining", "SomeFinalizersRemain", message));
    }
    if !namespace["status"]["conditions"].is_array() {
        namespace["status"]["conditions"] = json!([]);
    }
    let Some(conditions) = namespace.pointer_mut("/status/conditions").and_then(Value::as_array_mut) else {
        return false;
    };
    let mut changed = false;
    for (kind, reason, message) in wanted {
        match conditions.iter_mut().find(|condition| condition["type"] == kind) {
            // The first thing it waits for is said once: a write per removed object would tell nobody anything.
            Some(condition) if condition["status"] == "True" => {}
            Some(condition) => {
                *condition = json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now});
                changed = true;
            }
            None => {
                conditions.push(json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}));
                changed = true;
            }
        }
    }
    changed
}

/// Goes on with the deletion of a CustomResourceDefinition.
pub(crate) fn end_definition(core: &Core, name: &str) {
    let registry = core.registry();
    let key = Key::new(None, name);
    let Some(definitions) = registry.find_storage(DEFINITIONS) else { return };
    if !core.store.get(DEFINITIONS, &key).is_some_and(|definition| definition.facts.deleting) {
        return;
    }
    let (objects, _) = core.store.snapshot(name);
    if let Some(entry) = registry.find_storage(name) {
        for object in objects.values().filter(|object| !object.facts.deleting) {
            // Gone already is as good.
            let _ = delete_object(core, entry, &object.key, &DeleteOptions::default());
        }
    }
    if core.store.snapshot(name).0.is_empty() {
        core.edit(definitions, &key, |value| drop_finalizer(value, DEFINITION_FINALIZER));
        if core.store.get(DEFINITIONS, &key).is_none() {
            core.store.close(name);
            release_names(core);
        }
    }
}

/// Lets definitions have the names that another one took with it.
fn release_names(core: &Core) {
    let registry = core.registry();
    let Some(entry) = registry.find_storage(DEFINITIONS) else { return };
    let now = core.now_text();
    for key in core.store.snapshot(DEFINITIONS).0.keys() {
        core.edit(entry, key, |definition| {
            let before = definition.clone();
            judge(core, definition, &now);
            *definition != before
        });
    }
}
