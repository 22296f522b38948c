//! What creating and changing have in common: who writes, admission, validation, and the store.
//!
//! The order is the real server's: ownership of fields is recorded on what the client sent (with defaults), then mutating admission, then
//! the kind's own preparation and validation, then validating admission, then the store.

use std::sync::Arc;

use axum::response::Response;
use serde_json::{Map, Value, json};

use crate::admission::{Attributes, Operation};
use crate::apply::{self, Writer};
use crate::builtin::{metadata, strategy, validation};
use crate::http::call::Call;
use crate::http::query::{DryRun, FieldValidation, OptionsKind};
use crate::object::Object;
use crate::schema::structural;
use crate::server::Core;
use crate::status::{ApiError, FieldError};
use crate::store::{DEFINITIONS, Refusal};
use crate::verbs::delete;
use crate::{crd, registry::Entry};

/// The finalizer that keeps a definition until its objects are gone.
pub(crate) const DEFINITION_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// How often a generated name is tried, as in the real server.
const NAME_ATTEMPTS: usize = 8;

/// How a write is to be done.
#[derive(Debug)]
pub(crate) struct Intent {
    pub subresource: Option<&'static str>,
    pub manager: String,
    pub dry_run: DryRun,
    pub validation: FieldValidation,
    pub options: Value,
}

impl Intent {
    /// Reads the options of a request.
    pub fn of(call: &Call, kind: OptionsKind, subresource: Option<&'static str>) -> Result<Self, ApiError> {
        Ok(Self {
            subresource,
            manager: call.manager(kind)?,
            dry_run: call.query.dry_run(kind)?,
            validation: call.query.field_validation(kind)?,
            // Admission knows no patches, only updates (and an apply that creates).
            options: call.query.options(if matches!(kind, OptionsKind::Patch) { OptionsKind::Update } else { kind }),
        })
    }

    fn attributes<'a>(
        &'a self,
        call: &'a Call,
        operation: Operation,
        old: Option<&'a Value>,
        name: &'a str,
    ) -> Attributes<'a> {
        Attributes {
            resource: &call.entry.resource,
            subresource: self.subresource,
            namespace: call.namespace(),
            name,
            operation,
            old,
            options: &self.options,
            dry_run: self.dry_run == DryRun::Yes,
            user: &call.user,
        }
    }

    /// Who writes, for the record of field owners.
    pub fn writer<'a>(&'a self, call: &'a Call, time: &'a str) -> Writer<'a> {
        Writer { manager: &self.manager, api_version: &call.entry.api_version, subresource: self.subresource, time }
    }
}

/// What came of a write.
#[derive(Debug)]
pub(crate) enum Written {
    /// It is stored.
    Stored(Arc<Object>),
    /// The object is gone, this was its last state.
    Removed(Value),
    /// A dry run: what would have been stored.
    Rehearsed(Value),
    /// Somebody else was faster.
    Overtaken,
}

impl Written {
    /// The answer; `Overtaken` must have been handled.
    pub fn answer(&self, call: &Call, code: u16) -> Result<Response, ApiError> {
        match self {
            Self::Stored(object) => call.answer(code, object),
            Self::Removed(value) | Self::Rehearsed(value) => call.answer_value(code, value),
            Self::Overtaken => Err(modified(call)),
        }
    }
}

/// 409 for a write against an old resource version.
pub(crate) fn modified(call: &Call) -> ApiError {
    let why = "the object has been modified; please apply your changes to the latest version and try again";
    ApiError::conflict(call.subject(), why)
}

/// Whether field ownership is still to be recorded, or was by server-side apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// Record it.
    Record,
    /// It is in the object.
    Recorded,
}

/// Stores a new object.
pub(crate) async fn store_new(
    call: &mut Call,
    intent: &Intent,
    mut object: Value,
    ownership: Ownership,
) -> Result<Written, ApiError> {
    let entry = Arc::clone(&call.entry);
    let now = call.core.now_text();
    wipe_system_fields(&mut object);
    set_namespace(call, &mut object)?;
    if ownership == Ownership::Record {
        apply::record_update(None, &mut object, entry.resource.schema.as_deref(), &intent.writer(call, &now));
    }
    let name = text(&object, "name").to_owned();
    let warnings = {
        let attributes = intent.attributes(call, Operation::Create, None, &name);
        call.core.admission.mutate(&attributes, &mut object, &*call.core).await?
    };
    call.warnings.extend(warnings);
    if !matches!(text(&object, "resourceVersion"), "" | "0") {
        return Err(ApiError::new(500, "", "resourceVersion should not be set on objects to be created"));
    }
    set_namespace(call, &mut object)?;
    let prefix = text(&object, "generateName").to_owned();
    let generated = text(&object, "name").is_empty() && !prefix.is_empty();
    let fields = metadata_of(&mut object);
    fields.insert("uid".to_owned(), json!(call.core.random.uid()));
    fields.insert("creationTimestamp".to_owned(), json!(now));
    if generated {
        fields.insert("name".to_owned(), json!(call.core.random.name(&prefix)));
    }
    strategy::prepare_for_create(&entry.resource, &mut object);
    establish(&call.core, &entry, &mut object, &now);
    check(&entry, object_name(&object), &validate_new(&entry, &object))?;
    let name = text(&object, "name").to_owned();
    let warnings = {
        let attributes = intent.attributes(call, Operation::Create, None, &name);
        call.core.admission.validate(&attributes, Some(&object), &*call.core).await?
    };
    call.warnings.extend(warnings);
    for attempt in 1.. {
        let name = text(&object, "name").to_owned();
        let key = call.key_of(&name);
        if intent.dry_run == DryRun::Yes {
            return match call.core.store.get(&entry.storage.key, &key) {
                Some(_) => Err(ApiError::already_exists(entry.resource.subject(&name))),
                None => Ok(Written::Rehearsed(object)),
            };
        }
        match call.core.insert(&entry, &key, &entry.stored(&object)) {
            Ok(stored) => return Ok(Written::Stored(stored)),
            Err(Refusal::NoNamespace) => return Err(no_namespace(call)),
            Err(_) if generated && attempt < NAME_ATTEMPTS => {
                metadata_of(&mut object).insert("name".to_owned(), json!(call.core.random.name(&prefix)));
            }
            Err(_) => return Err(ApiError::already_exists(entry.resource.subject(&name))),
        }
    }
    Err(ApiError::internal("names ran out"))
}

/// Stores `new` over `old`, whose served form is `old_value`.
pub(crate) async fn store_over(
    call: &mut Call,
    intent: &Intent,
    old: &Arc<Object>,
    old_value: &Value,
    mut new: Value,
    ownership: Ownership,
) -> Result<Written, ApiError> {
    let entry = Arc::clone(&call.entry);
    let now = call.core.now_text();
    set_namespace(call, &mut new)?;
    check_identity(call, &new, old_value)?;
    if ownership == Ownership::Record {
        let writer = intent.writer(call, &now);
        apply::record_update(Some(old_value), &mut new, entry.resource.schema.as_deref(), &writer);
    }
    let warnings = {
        let attributes = intent.attributes(call, Operation::Update, Some(old_value), call.name());
        call.core.admission.mutate(&attributes, &mut new, &*call.core).await?
    };
    call.warnings.extend(warnings);
    keep(&mut new, old_value, &["generation"]);
    strategy::prepare_for_update(&entry.resource, intent.subresource, &mut new, old_value);
    keep_identity(&mut new, old_value);
    keep(&mut new, old_value, &["resourceVersion"]);
    establish(&call.core, &entry, &mut new, &now);
    check(&entry, call.name(), &validate_change(&entry, intent.subresource, &new, old_value))?;
    let warnings = {
        let attributes = intent.attributes(call, Operation::Update, Some(old_value), call.name());
        call.core.admission.validate(&attributes, Some(&new), &*call.core).await?
    };
    call.warnings.extend(warnings);
    if intent.dry_run == DryRun::Yes {
        return Ok(Written::Rehearsed(new));
    }
    if delete::is_finished(&entry.storage.key, &new) {
        return match call.core.remove(&entry, &old.key, old.revision) {
            Ok(_) => Ok(Written::Removed(new)),
            Err(_) => Ok(Written::Overtaken),
        };
    }
    if new == *old_value {
        return Ok(Written::Stored(Arc::clone(old)));
    }
    match call.core.replace(&entry, &old.key, old.revision, &entry.stored(&new)) {
        Ok(stored) => Ok(Written::Stored(stored)),
        Err(_) => Ok(Written::Overtaken),
    }
}

/// 404 for the namespace of a new object.
fn no_namespace(call: &Call) -> ApiError {
    let name = call.namespace().unwrap_or_default();
    ApiError::not_found(crate::status::Subject { group: "", resource: "namespaces", kind: "Namespace", name })
}

/// Defines what a definition defines, and protects it.
fn establish(core: &Core, entry: &Entry, object: &mut Value, now: &str) {
    if &*entry.storage.key != DEFINITIONS {
        return;
    }
    let deleting = object.pointer("/metadata/deletionTimestamp").is_some();
    let finalizers = metadata_of(object).entry("finalizers").or_insert_with(|| json!([]));
    if let Some(list) = finalizers.as_array_mut()
        && !deleting
        && !list.iter().any(|f| f == DEFINITION_FINALIZER)
    {
        list.push(json!(DEFINITION_FINALIZER));
    }
    judge(core, object, now);
}

/// Says in a definition's status whether its names are free, given all other definitions.
pub(crate) fn judge(core: &Core, definition: &mut Value, now: &str) {
    let name = text(definition, "name").to_owned();
    let (existing, _) = core.store.snapshot(DEFINITIONS);
    let existing: Vec<Arc<Value>> =
        existing.values().filter(|other| other.key.name() != name).map(|other| other.shared_value()).collect();
    crd::establish(definition, &existing.iter().map(Arc::as_ref).collect::<Vec<_>>(), now);
}

fn validate_new(entry: &Entry, object: &Value) -> Vec<FieldError> {
    let mut errors = metadata::validate_metadata(&entry.resource, object);
    if entry.is_builtin() {
        errors.extend(validation::validate_create(&entry.resource.gvk, object));
        if &*entry.storage.key == DEFINITIONS {
            errors.extend(crd::validate(object, None));
        }
    } else if let Some(schema) = &entry.resource.schema {
        errors.extend(structural::validate(schema, object, None));
    }
    // Whatever the rules of the kind: a key must not be ambiguous.
    let name = text(object, "name");
    if errors.is_empty() && (name.is_empty() || name.contains('/')) {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    }
    errors
}

fn validate_change(entry: &Entry, subresource: Option<&str>, object: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = metadata::validate_metadata_update(&entry.resource, object, old);
    if entry.is_builtin() {
        errors.extend(validation::validate_update(&entry.resource.gvk, subresource, object, old));
        if &*entry.storage.key == DEFINITIONS && subresource.is_none() {
            errors.extend(crd::validate(object, Some(old)));
        }
    } else if let Some(schema) = &entry.resource.schema {
        errors.extend(structural::validate(schema, object, Some(old)));
    }
    errors
}

fn check(entry: &Entry, name: &str, errors: &[FieldError]) -> Result<(), ApiError> {
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid(entry.resource.subject(name), errors)) }
}

fn object_name(object: &Value) -> &str {
    let name = text(object, "name");
    if name.is_empty() { text(object, "generateName") } else { name }
}

/// The precondition on identity and version that an update carries in itself.
fn check_identity(call: &Call, new: &Value, old: &Value) -> Result<(), ApiError> {
    let (wanted, found) = (text(new, "uid"), text(old, "uid"));
    if !wanted.is_empty() && wanted != found {
        let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}");
        return Err(ApiError::conflict(call.subject(), why));
    }
    let version = text(new, "resourceVersion");
    if !matches!(version, "" | "0") && version != text(old, "resourceVersion") {
        return Err(modified(call));
    }
    Ok(())
}

/// What an update can never change.
fn keep_identity(new: &mut Value, old: &Value) {
    keep(new, old, &["creationTimestamp"]);
    let fields = metadata_of(new);
    let old = old.get("metadata");
    let old = |name: &str| old.and_then(|metadata| metadata.get(name)).filter(|value| !value.is_null()).cloned();
    for name in ["uid", "deletionGracePeriodSeconds"] {
        if let Some(value) = old(name)
            && fields.get(name).is_none_or(|value| value.is_null() || value == "")
        {
            fields.insert(name.to_owned(), value);
        }
    }
    if let Some(value) = old("deletionTimestamp") {
        fields.insert("deletionTimestamp".to_owned(), value);
    }
    fields.remove("selfLink");
}

/// Takes metadata fields from the old object, absent ones too.
fn keep(new: &mut Value, old: &Value, names: &[&str]) {
    let fields = metadata_of(new);
    for name in names {
        match old.get("metadata").and_then(|metadata| metadata.get(*name)) {
            Some(value) => fields.insert((*name).to_owned(), value.clone()),
            None => fields.remove(*name),
        };
    }
}

fn wipe_system_fields(object: &mut Value) {
    let fields = metadata_of(object);
    for name in ["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        fields.remove(name);
    }
}

/// Puts the namespace of the path into the object, or refuses another one.
fn set_namespace(call: &Call, object: &mut Value) -> Result<(), ApiError> {
    let expected = if call.entry.is_namespaced() { call.namespace().unwrap_or_default() } else { "" };
    let found = text(object, "namespace");
    if !found.is_empty() && found != expected {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(ApiError::bad_request(message));
    }
    let fields = metadata_of(object);
    if expected.is_empty() {
        fields.remove("namespace");
    } else {
        fields.insert("namespace".to_owned(), json!(expected));
    }
    Ok(())
}

/// A text field of the metadata.
pub(crate) fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    object.get("metadata").and_then(|metadata| metadata.get(name)).and_then(Value::as_str).unwrap_or_default()
}

/// The metadata of an object, made if it is not there.
pub(crate) fn metadata_of(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    let metadata = match object {
        Value::Object(map) => map.entry("metadata").or_insert_with(|| json!({})),
        _ => unreachable!("made an object above"),
    };
    if !metadata.is_object() {
        *metadata = json!({});
    }
    match metadata {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}
