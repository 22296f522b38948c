//! DELETE of one object: preconditions, grace, finalizers and what happens to dependents.
//!
//! An object goes at once, or it is marked (`deletionTimestamp`) and goes when its grace period is over and its last finalizer is
//! removed. Only pods have grace. Dependents are told by the finalizers `orphan` and `foregroundDeletion`, which the
//! background work removes when it is done.

use std::sync::Arc;

use axum::response::Response;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::admission::{Attributes, Operation};
use crate::http::answer;
use crate::http::call::Call;
use crate::http::query::{DryRun, OptionsKind};
use crate::object::{Key, Object};
use crate::registry::Entry;
use crate::server::{Core, second_text};
use crate::status::{ApiError, FieldError, Subject};
use crate::store::{NAMESPACES, Refusal};
use crate::verbs::write::{metadata_of, text};

/// The finalizer that keeps an owner until its dependents let go of it.
pub(crate) const ORPHAN: &str = "orphan";
/// The finalizer that keeps an owner until its dependents are gone.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// Resources whose deletion answers with the object; the others answer with a `Status`.
const ANSWERED_WITH_OBJECT: [&str; 18] = [
    "csidrivers.storage.k8s.io",
    "csinodes.storage.k8s.io",
    "deviceclasses.resource.k8s.io",
    "namespaces",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "podtemplates",
    "resourceclaims.resource.k8s.io",
    "resourceclaimtemplates.resource.k8s.io",
    "resourcequotas",
    "resourceslices.resource.k8s.io",
    "serviceaccounts",
    "services",
    "storageclasses.storage.k8s.io",
    "volumeattachments.storage.k8s.io",
    "volumeattributesclasses.storage.k8s.io",
    "devicetaintrules.resource.k8s.io",
];

/// What happens to dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// They are deleted after the owner is gone.
    Background,
    /// The owner stays until they are gone.
    Foreground,
    /// They stay and lose their owner.
    Orphan,
}

/// `metav1.DeleteOptions`.
#[derive(Clone, Debug)]
pub(crate) struct DeleteOptions {
    pub grace: Option<i64>,
    pub propagation: Option<Propagation>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub dry_run: DryRun,
    /// As clients and webhooks see them.
    pub source: Value,
    /// `orphanDependents: false` was said, which changes the code of the answer.
    pub cascade_asked: bool,
}

impl Default for DeleteOptions {
    fn default() -> Self {
        Self {
            grace: None,
            propagation: None,
            uid: None,
            resource_version: None,
            dry_run: DryRun::No,
            source: json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}),
            cascade_asked: false,
        }
    }
}

/// What came of a deletion.
#[derive(Debug)]
pub(crate) enum Deleted {
    /// The object is gone; its last state.
    Gone(Arc<Object>),
    /// The object is marked and will go.
    Marked(Arc<Object>),
    /// A dry run: the object as it would be.
    Rehearsed(Value),
}

/// Deletes the object in the path.
pub(crate) async fn delete(call: &mut Call) -> Result<Response, ApiError> {
    let options = DeleteOptions::of(call)?;
    let object = call.stored()?;
    admit(call, &object, &options).await?;
    let entry = Arc::clone(&call.entry);
    let outcome = delete_object(&call.core, &entry, &call.key(), &options)?;
    let code = if options.cascade_asked && matches!(outcome, Deleted::Marked(_)) { 202 } else { 200 };
    match &outcome {
        Deleted::Marked(object) => call.answer(code, object),
        Deleted::Rehearsed(value) => call.answer_value(code, value),
        Deleted::Gone(object) if ANSWERED_WITH_OBJECT.contains(&&*entry.storage.key) => call.answer(code, object),
        Deleted::Gone(object) => Ok(answer::json(code, &success(&entry, object))),
    }
}

/// Asks admission about a deletion.
pub(crate) async fn admit(call: &mut Call, object: &Object, options: &DeleteOptions) -> Result<(), ApiError> {
    let old = call.entry.served(object);
    let attributes = Attributes {
        resource: &call.entry.resource,
        subresource: None,
        namespace: call.namespace(),
        name: object.key.name(),
        operation: Operation::Delete,
        old: Some(&old),
        options: &options.source,
        dry_run: options.dry_run == DryRun::Yes,
        user: &call.user,
    };
    let warnings = call.core.admission.validate(&attributes, None, &*call.core).await?;
    call.warnings.extend(warnings);
    Ok(())
}

fn success(entry: &Entry, object: &Object) -> Value {
    let uid = object.value().pointer("/metadata/uid").cloned().unwrap_or_default();
    let mut details = json!({"name": object.key.name(), "kind": entry.resource.plural, "uid": uid});
    if !entry.resource.gvk.group.is_empty() {
        details["group"] = json!(entry.resource.gvk.group);
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

/// Deletes an object, without admission.
pub(crate) fn delete_object(
    core: &Core,
    entry: &Entry,
    key: &Key,
    options: &DeleteOptions,
) -> Result<Deleted, ApiError> {
    let subject = entry.resource.subject(key.name());
    loop {
        let object = core.store.get(&entry.storage.key, key).ok_or_else(|| ApiError::not_found(subject))?;
        let mut value = object.value();
        check_preconditions(entry, &value, key.name(), options)?;
        let changed = mark(&entry.storage.key, &mut value, options, core.clock.now());
        let finished = is_finished(&entry.storage.key, &value);
        if options.dry_run == DryRun::Yes {
            entry.to_served(&mut value);
            return Ok(Deleted::Rehearsed(value));
        }
        let outcome = if finished {
            core.remove(entry, key, object.revision).map(Deleted::Gone)
        } else if changed {
            core.replace(entry, key, object.revision, &value).map(Deleted::Marked)
        } else {
            Ok(Deleted::Marked(object))
        };
        match outcome {
            Ok(deleted) => return Ok(deleted),
            Err(Refusal::Changed) => {}
            Err(_) => return Err(ApiError::not_found(subject)),
        }
    }
}

/// Whether nothing keeps a marked object any longer.
pub(crate) fn is_finished(table: &str, value: &Value) -> bool {
    let is_empty = |path: &str| value.pointer(path).and_then(Value::as_array).is_none_or(Vec::is_empty);
    value.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null())
        && is_empty("/metadata/finalizers")
        && value.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0) == 0
        && (table != NAMESPACES || is_empty("/spec/finalizers"))
}

fn check_preconditions(entry: &Entry, value: &Value, name: &str, options: &DeleteOptions) -> Result<(), ApiError> {
    // The real server names the kind here, not the resource.
    let subject = Subject { resource: &entry.resource.gvk.kind, ..entry.resource.subject(name) };
    if let Some(wanted) = &options.uid
        && wanted != text(value, "uid")
    {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            text(value, "uid")
        );
        return Err(ApiError::conflict(subject, why));
    }
    if let Some(wanted) = &options.resource_version
        && wanted != text(value, "resourceVersion")
    {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({}). The object might have been modified",
            text(value, "resourceVersion")
        );
        return Err(ApiError::conflict(subject, why));
    }
    Ok(())
}

/// Marks an object as being deleted, or shortens its grace; says whether anything changed.
fn mark(table: &str, value: &mut Value, options: &DeleteOptions, now: Timestamp) -> bool {
    let before = value.clone();
    let grace = if table == "pods" { pod_grace(value, options) } else { 0 };
    let deleting = value.pointer("/metadata/deletionTimestamp").and_then(Value::as_str).map(str::to_owned);
    let pending = value.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    set_finalizers(value, options.propagation);
    let fields = metadata_of(value);
    match deleting.and_then(|text| text.parse::<Timestamp>().ok()) {
        None => {
            fields.insert("deletionTimestamp".to_owned(), json!(second_text(after(now, grace))));
            fields.insert("deletionGracePeriodSeconds".to_owned(), json!(grace));
            if let Some(generation) = fields.get("generation").and_then(Value::as_i64).filter(|g| *g > 0) {
                fields.insert("generation".to_owned(), json!(generation + 1));
            }
        }
        // Only a shorter grace may be given, and none means the one that is pending.
        Some(time) if pending > 0 && options.grace.is_some_and(|grace| grace < pending) => {
            let (time, grace) = match after(time, options_grace(options) - pending) {
                past if past < now && options_grace(options) != 0 => (now, 1),
                past if past < now => (now, 0),
                time => (time, options_grace(options)),
            };
            fields.insert("deletionTimestamp".to_owned(), json!(second_text(time)));
            fields.insert("deletionGracePeriodSeconds".to_owned(), json!(grace));
        }
        Some(_) => {}
    }
    if table == NAMESPACES {
        value["status"]["phase"] = json!("Terminating");
    }
    *value != before
}

fn options_grace(options: &DeleteOptions) -> i64 {
    match options.grace {
        Some(grace) if grace < 0 => 1,
        grace => grace.unwrap_or(0),
    }
}

fn after(time: Timestamp, seconds: i64) -> Timestamp {
    time.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(time)
}

fn pod_grace(pod: &Value, options: &DeleteOptions) -> i64 {
    let unscheduled = pod.pointer("/spec/nodeName").and_then(Value::as_str).is_none_or(str::is_empty);
    let terminated = matches!(pod.pointer("/status/phase").and_then(Value::as_str), Some("Succeeded" | "Failed"));
    if unscheduled || terminated {
        return 0;
    }
    let default = || pod.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    match options.grace.unwrap_or_else(default) {
        grace if grace < 0 => 1,
        grace => grace,
    }
}

/// Adds or removes the finalizers that say what happens to dependents.
fn set_finalizers(value: &mut Value, propagation: Option<Propagation>) {
    let Some(propagation) = propagation else { return };
    let fields = metadata_of(value);
    let mut list: Vec<Value> = fields.get("finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
    list.retain(|finalizer| finalizer != ORPHAN && finalizer != FOREGROUND);
    match propagation {
        Propagation::Background => {}
        Propagation::Foreground => list.push(json!(FOREGROUND)),
        Propagation::Orphan => list.push(json!(ORPHAN)),
    }
    if list.is_empty() {
        fields.remove("finalizers");
    } else {
        fields.insert("finalizers".to_owned(), json!(list));
    }
}

impl DeleteOptions {
    /// Reads them from the body, or from the query if there is none.
    pub fn of(call: &Call) -> Result<Self, ApiError> {
        let source = if call.body.is_empty() { Self::from_query(call)? } else { call.decode("DeleteOptions")?.value };
        let mut options = Self::parse(source)?;
        if options.dry_run == DryRun::No {
            options.dry_run = call.query.dry_run(OptionsKind::Delete)?;
        }
        Ok(options)
    }

    /// Reads them from an object.
    pub fn parse(source: Value) -> Result<Self, ApiError> {
        let kind = source.get("kind").and_then(Value::as_str).unwrap_or("DeleteOptions");
        if kind != "DeleteOptions" {
            let message =
                format!("decoded object cannot be converted to DeleteOptions: the kind in the body is {kind}");
            return Err(ApiError::bad_request(message));
        }
        let text = |path: &str| source.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let orphan = source.get("orphanDependents").and_then(Value::as_bool);
        let policy = text("/propagationPolicy");
        if orphan.is_some() && policy.is_some() {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            let error = FieldError::invalid("propagationPolicy", &json!(policy), why);
            return Err(OptionsKind::Delete.invalid(&[error]));
        }
        let propagation = match (policy.as_deref(), orphan) {
            (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
            (Some("Foreground"), _) => Some(Propagation::Foreground),
            (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
            (None, None) => None,
            (Some(other), _) => {
                let supported = ["Background", "Foreground", "Orphan", "nil"];
                let error = FieldError::not_supported("propagationPolicy", &json!(other), &supported);
                return Err(OptionsKind::Delete.invalid(&[error]));
            }
        };
        let dry_run = source.get("dryRun").and_then(Value::as_array).cloned().unwrap_or_default();
        if let Some(unknown) = dry_run.iter().find(|value| *value != "All") {
            let error = FieldError::not_supported("dryRun", &json!([unknown]), &["All"]);
            return Err(OptionsKind::Delete.invalid(&[error]));
        }
        Ok(Self {
            grace: source.get("gracePeriodSeconds").and_then(Value::as_i64),
            propagation,
            uid: text("/preconditions/uid"),
            resource_version: text("/preconditions/resourceVersion"),
            dry_run: if dry_run.is_empty() { DryRun::No } else { DryRun::Yes },
            cascade_asked: orphan == Some(false),
            source,
        })
    }

    fn from_query(call: &Call) -> Result<Value, ApiError> {
        let mut source = call.query.options(OptionsKind::Delete);
        if let Some(grace) = call.query.integer("gracePeriodSeconds")? {
            source["gracePeriodSeconds"] = json!(grace);
        }
        if let Some(policy) = call.query.text("propagationPolicy") {
            source["propagationPolicy"] = json!(policy);
        }
        if call.query.text("orphanDependents").is_some() {
            source["orphanDependents"] = json!(call.query.flag("orphanDependents"));
        }
        Ok(source)
    }
}
