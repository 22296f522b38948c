//! Server-side apply: who owns which field, and what an object becomes when someone applies a configuration to it.
//!
//! Every write leaves an entry in `metadata.managedFields` (see [`record_update`]). An apply states a whole configuration: fields
//! that its manager stated before and does not state now are removed unless someone else owns them, and changing a field that
//! someone else owns is a conflict unless forced.
//!
//! ```text
//!  record_update: compare(old, new) -> the writer owns what it changed, no one owns what is gone
//!  apply:         merge(live, applied) -> prune what was dropped -> compare(live, result) -> conflicts, owners
//! ```
//!
//! All versions of a kind are taken to have the same fields, as is so for custom resources without a conversion webhook.

mod compare;
mod conflict;
mod field_set;
mod fields;
mod last_applied;
mod managed;
mod merge;
mod path;
mod reset;
mod shape;
mod validate;

use serde_json::{Map, Value, json};

use self::compare::{Changes, UNOWNED, UNOWNED_METADATA, compare};
use self::conflict::Conflicts;
use self::field_set::{fields_of, reconcile, with_named_fields};
use self::fields::{Fields, intersection, remove_path, subtract, unite};
use self::managed::{Entry, Managed, Operation, Trust};
use self::merge::{merge, remove};
pub use self::reset::ResetFields;
use self::shape::{Kind, Origin, empty_object, same};
use crate::patch::unclassified;
use crate::schema::Schema;
use crate::status::ApiError;

/// Who writes.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// Name of the field manager.
    pub manager: &'a str,
    /// Version through which it writes, such as `apps/v1`.
    pub api_version: &'a str,
    /// Subresource through which it writes, if any.
    pub subresource: Option<&'a str>,
    /// RFC 3339, whole seconds.
    pub time: &'a str,
}

/// Whether an apply may take fields from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// Take them.
    Yes,
    /// Refuse with a conflict.
    No,
}

/// The manager of an object's fields from before ownership was tracked.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Brings `metadata.managedFields` of `new` up to date after create, update and the three patches.
///
/// `old` is `None` on create. Which fields are reset by the endpoint is guessed from the schema; callers that know the resource
/// use [`record_update_with`].
pub fn record_update(old: Option<&Value>, new: &mut Value, schema: Option<&Schema>, writer: &Writer<'_>) {
    record_update_with(old, new, schema, writer, ResetFields::guess(schema, writer.subresource));
}

/// As [`record_update`], given the fields that the endpoint resets.
pub fn record_update_with(
    old: Option<&Value>,
    new: &mut Value,
    schema: Option<&Schema>,
    writer: &Writer<'_>,
    reset: ResetFields,
) {
    let Some(object) = new.as_object_mut() else { return };
    let sent = object.get_mut("metadata").and_then(Value::as_object_mut).and_then(|m| m.remove("managedFields"));
    let live = old.and_then(|old| old.get("metadata")?.get("managedFields")).filter(|m| !m.is_null());
    let sent = if writer.subresource.is_some() { None } else { sent };
    let kind = Kind::root(schema);
    let mut changes = compare(kind, old.unwrap_or(empty_object()), new);
    changes.each(|set| reset.apply(set));

    // Owners as they are stored (or none) are the common case: they need no check, and no change if the object has none.
    let stored = match (sent, live) {
        (Some(sent), live) if Some(&sent) != live => Err(sent),
        (Some(sent), _) => Ok(Some(sent)),
        (None, live) => Ok(live.cloned()),
    };
    let mut managed = match stored {
        Ok(Some(stored)) if changes.is_empty() => return put(new, Some(stored)),
        Ok(stored) => stored.and_then(|stored| Managed::decode(stored, Trust::Ours)).unwrap_or_default(),
        Err(sent) => from_client(sent, live),
    };
    let created = old.is_none_or(|old| old.pointer("/metadata/uid").and_then(Value::as_str).is_none_or(str::is_empty));
    if managed.entries.is_empty() && !created {
        return;
    }
    record_changes(&mut managed, kind, changes, writer);
    managed.cap();
    put(new, managed.encode());
}

/// The entries that a client sent, if they are readable and not empty; a client that sends a reset clears them.
fn from_client(sent: Value, live: Option<&Value>) -> Managed {
    let is_reset = match &sent {
        Value::Array(entries) => match entries.as_slice() {
            [] => true,
            [one] => one.as_object().is_some_and(|e| e.values().all(Value::is_null)),
            _ => false,
        },
        _ => false,
    };
    if is_reset {
        return Managed::default();
    }
    match Managed::decode(sent, Trust::Theirs) {
        Some(managed) if !managed.entries.is_empty() => managed,
        _ => live.and_then(|live| Managed::decode(live.clone(), Trust::Ours)).unwrap_or_default(),
    }
}

/// Makes the writer the owner of what changed, and no one the owner of what is gone.
fn record_changes(managed: &mut Managed, kind: Kind<'_>, changes: Changes, writer: &Writer<'_>) {
    adapt_to_schema(managed, kind);
    managed.release(&[&changes.modified, &changes.added, &changes.removed]);
    let mut taken = changes.added;
    unite(&mut taken, &changes.modified);
    if taken.is_empty() {
        return;
    }
    let mut entry = Entry::of(writer, Operation::Update);
    let previous = managed.take(&entry);
    // The scale endpoint of a real server loses the time on the way to the scaled object.
    let time = if writer.subresource == Some("scale") { None } else { Some(writer.time.to_owned()) };
    if let Some(previous) = previous {
        entry.time = time.or(previous.time);
        entry.fields = previous.fields;
        unite(&mut entry.fields, &taken);
    } else {
        entry.time = time;
        entry.fields = taken;
    }
    managed.entries.push(entry);
}

/// Schemas of built-in kinds do not change while the server runs; those of custom ones may.
fn adapt_to_schema(managed: &mut Managed, kind: Kind<'_>) {
    if matches!(kind, Kind::Known { origin: Origin::Custom, .. }) {
        for entry in &mut managed.entries {
            reconcile(kind, &mut entry.fields);
        }
    }
}

/// Stores the entries; the object has none when this is called.
fn put(object: &mut Value, entries: Option<Value>) {
    let (Some(object), Some(entries)) = (object.as_object_mut(), entries) else { return };
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert("managedFields".to_owned(), entries);
    }
}

/// Restores the times in `metadata.managedFields` of `new` when nothing but times differs from `old`, so that a write without
/// effect stays one. To be called last, after defaulting and whatever else completes an update.
pub fn keep_times_of_unchanged(old: &Value, new: &mut Value) {
    let (Some(before), Some(after)) = (old.pointer("/metadata/managedFields"), new.pointer("/metadata/managedFields"))
    else {
        return;
    };
    if before == after {
        return;
    }
    let (Some(left), Some(right)) = (before.as_array(), after.as_array()) else { return };
    let timeless = |entry: &Value| -> Option<Map<String, Value>> {
        let mut entry = entry.as_object()?.clone();
        entry.remove("time");
        Some(entry)
    };
    if left.len() != right.len() || !left.iter().zip(right).all(|(l, r)| timeless(l) == timeless(r)) {
        return;
    }
    let rest_is_equal = match (old, &*new) {
        (Value::Object(old), Value::Object(new)) => {
            old.len() == new.len()
                && old.iter().zip(new).all(|((k, left), (l, right))| {
                    k == l && if k == "metadata" { equal_but_managed_fields(left, right) } else { left == right }
                })
        }
        _ => false,
    };
    if rest_is_equal {
        let before = before.clone();
        if let Some(after) = new.pointer_mut("/metadata/managedFields") {
            *after = before;
        }
    }
}

fn equal_but_managed_fields(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().zip(right).all(|((k, v), (l, w))| k == l && (k == "managedFields" || v == w))
        }
        _ => left == right,
    }
}

/// Applies a configuration and returns the new object with its owners.
///
/// `live` is `None` when the apply creates the object. The reset fields are guessed as in [`record_update`]; callers that know
/// the resource use [`apply_with`].
pub fn apply(
    live: Option<&Value>,
    applied: &Value,
    schema: Option<&Schema>,
    writer: &Writer<'_>,
    force: Force,
) -> Result<Value, ApiError> {
    apply_with(live, applied, schema, writer, force, ResetFields::guess(schema, writer.subresource))
}

/// As [`apply`], given the fields that the endpoint resets.
pub fn apply_with(
    live: Option<&Value>,
    applied: &Value,
    schema: Option<&Schema>,
    writer: &Writer<'_>,
    force: Force,
    reset: ResetFields,
) -> Result<Value, ApiError> {
    check_applied(live, applied, writer)?;
    let kind = Kind::root(schema);
    if let Some(problems) = validate::problems(kind, applied) {
        return Err(unclassified(format!("failed to create typed patch object ({}): {problems}", subject(applied))));
    }
    let stored = live.and_then(|l| l.pointer("/metadata/managedFields")).cloned().unwrap_or(Value::Null);
    let Some(mut managed) = Managed::decode(stored, Trust::Ours) else {
        return Err(unclassified("failed to decode managed fields: an entry is not readable"));
    };
    let mut without_owners = live.unwrap_or(empty_object()).clone();
    if let Some(metadata) = without_owners.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    if managed.entries.is_empty() && live.is_some() {
        let before = Writer { manager: BEFORE_FIRST_APPLY, ..*writer };
        let mut changes = compare(kind, empty_object(), &without_owners);
        changes.each(|set| reset.apply(set));
        record_changes(&mut managed, kind, changes, &before);
    }
    adapt_to_schema(&mut managed, kind);
    let application = Application { kind, live: &without_owners, applied, writer, reset };
    let outcome = match application.run(managed.clone(), force) {
        Err(conflicts) if writer.manager == last_applied::MANAGER => {
            let allowed = last_applied::stated_and_unchanged(kind, &without_owners, writer.api_version);
            let left = conflicts.without(&allowed);
            if left.is_empty() { application.run(managed, Force::Yes) } else { Err(left) }
        }
        outcome => outcome,
    };
    let (mut object, managed) = outcome.map_err(Conflicts::into_error)?;
    if writer.manager == last_applied::MANAGER {
        last_applied::update(&mut object, applied);
    }
    put(&mut object, managed.encode());
    Ok(object)
}

fn check_applied(live: Option<&Value>, applied: &Value, writer: &Writer<'_>) -> Result<(), ApiError> {
    let word = |object: &Value, key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let kind = word(applied, "kind");
    let expected = live.map(|live| word(live, "kind")).filter(|kind| !kind.is_empty());
    if word(applied, "apiVersion") != writer.api_version || expected.is_some_and(|expected| expected != kind) {
        return Err(ApiError::bad_request(format!("invalid object type: {}", gvk(applied))));
    }
    if applied.pointer("/metadata/managedFields").is_some_and(|m| !m.is_null()) {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    Ok(())
}

fn gvk(object: &Value) -> String {
    let word = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let version = word("apiVersion");
    let slash = if version.contains('/') { "" } else { "/" };
    format!("{slash}{version}, Kind={}", word("kind"))
}

fn subject(object: &Value) -> String {
    let word = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    format!("{}/{}; {}", word("/metadata/namespace"), word("/metadata/name"), gvk(object))
}

/// One apply, ready to run with or without force.
struct Application<'a> {
    kind: Kind<'a>,
    live: &'a Value,
    applied: &'a Value,
    writer: &'a Writer<'a>,
    reset: ResetFields,
}

impl Application<'_> {
    fn run(&self, mut managed: Managed, force: Force) -> Result<(Value, Managed), Conflicts> {
        let mut entry = Entry::of(self.writer, Operation::Apply);
        let previous = managed.take(&entry);
        entry.fields = fields_of(self.kind, self.applied);
        self.reset.apply(&mut entry.fields);
        let mut result = merge(self.kind, self.live, self.applied);
        self.settle_nulls(&mut result);
        if let Some(previous) = previous.as_ref().filter(|p| !p.fields.is_empty()) {
            result = self.prune(&result, &managed, &entry.fields, &previous.fields);
            self.settle_nulls(&mut result);
        }
        let mut changes = compare(self.kind, self.live, &result);
        changes.each(|set| self.reset.apply(set));
        let mut taken = changes.modified;
        unite(&mut taken, &changes.added);
        if force == Force::No {
            let conflicts = Conflicts::between(&managed, &taken);
            if !conflicts.is_empty() {
                return Err(conflicts);
            }
        }
        managed.release(&[&taken, &changes.removed]);
        for name in UNOWNED {
            remove_path(&mut entry.fields, &[name]);
        }
        for name in UNOWNED_METADATA {
            remove_path(&mut entry.fields, &["metadata", name]);
        }
        subtract(&mut entry.fields, json!({"f:metadata": {}}).as_object().unwrap_or(&Fields::new()));
        let is_new = !same(self.live, &result);
        entry.time =
            if is_new { Some(self.writer.time.to_owned()) } else { previous.and_then(|previous| previous.time) };
        if !entry.fields.is_empty() {
            managed.entries.push(entry);
        }
        Ok((if is_new { result } else { self.live.clone() }, managed))
    }

    /// Takes out what the manager stated before and does not state now, but for what others own.
    fn prune(&self, merged: &Value, managed: &Managed, stated: &Fields, before: &Fields) -> Value {
        let before = with_named_fields(self.kind, before);
        let without_previous = remove(self.kind, merged, &before);
        let all = with_named_fields(self.kind, &fields_of(self.kind, merged));

        let mut owned = stated.clone();
        for entry in &managed.entries {
            unite(&mut owned, &entry.fields);
        }
        let mut unowned = all.clone();
        subtract(&mut unowned, &with_named_fields(self.kind, &fields_of(self.kind, &without_previous)));
        subtract(&mut unowned, &with_named_fields(self.kind, &owned));
        let pruned = remove(self.kind, merged, &unowned);

        // Only what this manager had stated may go, even if something else hangs below it.
        let mut gone = all;
        subtract(&mut gone, &with_named_fields(self.kind, &fields_of(self.kind, &pruned)));
        remove(self.kind, merged, &intersection(&gone, &before))
    }

    /// A typed object has no `null`s, and no one can unset the metadata that the server keeps.
    fn settle_nulls(&self, result: &mut Value) {
        let kept = |name: &str| UNOWNED_METADATA.contains(&name) || name.starts_with("deletion");
        if let Some(Value::Object(metadata)) = result.get_mut("metadata") {
            metadata.retain(|name, value| !(value.is_null() && kept(name)));
            for (name, value) in self.live.pointer("/metadata").and_then(Value::as_object).into_iter().flatten() {
                if kept(name) && !metadata.contains_key(name) {
                    metadata.insert(name.clone(), value.clone());
                }
            }
        }
        if matches!(self.kind, Kind::Known { origin: Origin::BuiltIn, .. }) {
            shape::drop_nulls(self.kind, result, 0);
        }
    }
}

#[cfg(test)]
mod tests;
