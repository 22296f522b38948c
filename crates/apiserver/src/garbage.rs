//! Garbage collection: objects whose owners are gone go too.
//!
//! An owner is *solid* when it exists and stays, *waiting* when it is in foreground deletion, *absent* when no object of that
//! kind, name and identity exists in the dependent's namespace or cluster-wide, and *unknown* when its kind is not served (then nothing
//! is decided). A dependent lives as long as it has a solid owner.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::object::{Key, Object, Owner, Uid};
use crate::registry::Registry;
use crate::server::Core;
use crate::verbs::delete::{DeleteOptions, FOREGROUND, ORPHAN, Propagation, delete_object};
use crate::verbs::write::metadata_of;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Solid,
    Waiting,
    Absent,
    Unknown,
}

/// Decides whether a dependent should still exist.
pub(crate) fn collect(core: &Core, table: &Arc<str>, key: &Key) {
    let registry = core.registry();
    let Some(object) = core.store.get(table, key) else { return };
    let Some(entry) = registry.find_storage(table) else { return };
    let states: Vec<State> = object.facts.owners.iter().map(|owner| state(core, &registry, owner, key)).collect();
    let any = |wanted: State| states.contains(&wanted);
    if states.is_empty() || any(State::Unknown) {
        return;
    }
    if any(State::Solid) {
        let gone: Vec<Option<Uid>> = object
            .facts
            .owners
            .iter()
            .zip(&states)
            .filter(|(_, state)| **state != State::Solid)
            .map(|(owner, _)| owner.uid)
            .collect();
        if !gone.is_empty() {
            core.edit(entry, key, |value| drop_owners(value, &gone));
        }
        return;
    }
    if object.facts.deleting {
        return;
    }
    let options = DeleteOptions {
        propagation: Some(propagation(core, &object, any(State::Waiting))),
        uid: Some(uid_text(&object)),
        ..DeleteOptions::default()
    };
    // Gone already or replaced by another object of that name: nothing to do.
    let _ = delete_object(core, entry, key, &options);
}

/// How a dependent is deleted: as its owner if that waits for it and it has dependents of its own, else as its own finalizers say.
fn propagation(core: &Core, object: &Object, owner_waits: bool) -> Propagation {
    let has = |finalizer: &str| object.facts.finalizers.iter().any(|f| f == finalizer);
    if has(ORPHAN) {
        Propagation::Orphan
    } else if has(FOREGROUND) || (owner_waits && !core.store.dependents(object.facts.uid).is_empty()) {
        Propagation::Foreground
    } else {
        Propagation::Background
    }
}

/// Goes on with the foreground or orphaning deletion of an owner.
pub(crate) fn end(core: &Core, table: &Arc<str>, key: &Key) {
    let registry = core.registry();
    let Some(owner) = core.store.get(table, key).filter(|owner| owner.facts.deleting) else { return };
    let Some(entry) = registry.find_storage(table) else { return };
    let dependents = core.store.dependents(owner.facts.uid);
    if owner.facts.finalizers.iter().any(|f| f == ORPHAN) {
        for (table, key) in &dependents {
            if let Some(entry) = registry.find_storage(table) {
                core.edit(entry, key, |value| drop_owners(value, &[Some(owner.facts.uid)]));
            }
        }
        core.edit(entry, key, |value| drop_finalizer(value, ORPHAN));
    } else if owner.facts.finalizers.iter().any(|f| f == FOREGROUND) {
        for (table, key) in &dependents {
            collect(core, table, key);
        }
        let blocked = core.store.dependents(owner.facts.uid).iter().any(|(table, key)| {
            core.store.get(table, key).is_some_and(|dependent| {
                dependent.facts.owners.iter().any(|o| o.blocks && o.uid == Some(owner.facts.uid))
            })
        });
        if !blocked {
            core.edit(entry, key, |value| drop_finalizer(value, FOREGROUND));
        }
    }
}

fn state(core: &Core, registry: &Registry, owner: &Owner, dependent: &Key) -> State {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    let Some(entry) = registry.find_kind(group, &owner.kind) else { return State::Unknown };
    let namespace = if entry.is_namespaced() {
        // A cluster-wide object cannot be owned by one in a namespace: the real collector cannot resolve it either.
        match dependent.namespace() {
            Some(namespace) => Some(namespace),
            None => return State::Unknown,
        }
    } else {
        None
    };
    let Some(found) = core.store.get(&entry.storage.key, &Key::new(namespace, &owner.name)) else {
        return State::Absent;
    };
    if Some(found.facts.uid) != owner.uid {
        return State::Absent;
    }
    let foreground = found.facts.finalizers.iter().any(|f| f == FOREGROUND);
    if found.facts.deleting && foreground { State::Waiting } else { State::Solid }
}

fn uid_text(object: &Object) -> String {
    object.value().pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Removes owner references; says whether there were any.
fn drop_owners(value: &mut Value, gone: &[Option<Uid>]) -> bool {
    let fields = metadata_of(value);
    let Some(owners) = fields.get_mut("ownerReferences").and_then(Value::as_array_mut) else { return false };
    let before = owners.len();
    owners.retain(|owner| {
        let uid = owner.get("uid").and_then(Value::as_str).and_then(Uid::parse);
        !gone.contains(&uid)
    });
    let changed = owners.len() != before;
    if owners.is_empty() {
        fields.remove("ownerReferences");
    }
    changed
}

/// Removes a finalizer; says whether it was there.
pub(crate) fn drop_finalizer(value: &mut Value, finalizer: &str) -> bool {
    let fields = metadata_of(value);
    let Some(list) = fields.get_mut("finalizers").and_then(Value::as_array_mut) else { return false };
    let before = list.len();
    list.retain(|other| *other != json!(finalizer));
    let changed = list.len() != before;
    if list.is_empty() {
        fields.remove("finalizers");
    }
    changed
}
