//! PATCH of the four types.

use axum::response::Response;
use serde_json::Value;

use crate::apply::{self, Force};
use crate::http::call::Call;
use crate::http::decode::{self, Decoded};
use crate::http::query::OptionsKind;
use crate::patch as patches;
use crate::status::{ApiError, FieldError};
use crate::verbs::body;
use crate::verbs::update::check_name;
use crate::verbs::write::{Intent, Ownership, Written, modified, store_new, store_over, text};

/// How often a patch is computed again when somebody else was faster, as in the real server.
const ATTEMPTS: usize = 5;

/// A decoded patch.
enum Patch {
    Json,
    Merge(Value),
    Strategic(Value),
    Apply(Value, Force),
}

/// Patches the object in the path, or the part of it that `subresource` is about.
pub(crate) async fn patch(call: &mut Call, subresource: Option<&'static str>) -> Result<Response, ApiError> {
    let patch = read(call)?;
    let intent = Intent::of(call, OptionsKind::Patch, subresource)?;
    for _ in 0..ATTEMPTS {
        let Some(old) = call.core.store.get(&call.entry.storage.key, &call.key()) else {
            return match &patch {
                Patch::Apply(applied, force) if subresource.is_none() => {
                    create(call, &intent, applied.clone(), *force).await
                }
                _ => Err(ApiError::not_found(call.subject())),
            };
        };
        let old_value = call.entry.served(&old);
        let (new, ownership) = apply_to(call, &intent, &patch, &old_value)?;
        let new = body::object(call, Decoded { value: new, duplicates: Vec::new() }, intent.validation)?;
        check_name(call, &new)?;
        let insists = text(&new, "resourceVersion") != text(&old_value, "resourceVersion");
        match store_over(call, &intent, &old, &old_value, new, ownership).await? {
            Written::Overtaken if !insists => call.warnings.clear(),
            written => return written.answer(call, 200),
        }
    }
    Err(modified(call))
}

/// The object after the patch.
fn apply_to(call: &Call, intent: &Intent, patch: &Patch, old: &Value) -> Result<(Value, Ownership), ApiError> {
    let new = match patch {
        Patch::Json => patches::json_patch(old, &call.body)?,
        Patch::Merge(patch) => patches::merge_patch(old, patch),
        Patch::Strategic(patch) => {
            let schema = call.entry.resource.schema.as_deref().ok_or_else(|| unsupported(call))?;
            patches::strategic_merge_patch(old, patch, schema)?
        }
        Patch::Apply(applied, force) => {
            return Ok((applied_over(call, intent, Some(old), applied, *force)?, Ownership::Recorded));
        }
    };
    Ok((new, Ownership::Record))
}

fn applied_over(
    call: &Call,
    intent: &Intent,
    live: Option<&Value>,
    applied: &Value,
    force: Force,
) -> Result<Value, ApiError> {
    let now = call.core.now_text();
    apply::apply(live, applied, call.entry.resource.schema.as_deref(), &intent.writer(call, &now), force)
}

/// Server-side apply of an object that is not there.
async fn create(call: &mut Call, intent: &Intent, applied: Value, force: Force) -> Result<Response, ApiError> {
    let uid = text(&applied, "uid");
    if !uid.is_empty() {
        let why = format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
        return Err(ApiError::conflict(call.subject(), why));
    }
    let new = applied_over(call, intent, None, &applied, force)?;
    let new = body::object(call, Decoded { value: new, duplicates: Vec::new() }, intent.validation)?;
    store_new(call, intent, new, Ownership::Recorded).await?.answer(call, 201)
}

fn read(call: &Call) -> Result<Patch, ApiError> {
    let applies = call.media_type() == "application/apply-patch+yaml";
    if call.query.flag("force") && !applies {
        let error = FieldError::forbidden("force", "may not be specified for non-apply patch");
        return Err(OptionsKind::Patch.invalid(&[error]));
    }
    match call.media_type() {
        "application/json-patch+json" => Ok(Patch::Json),
        "application/merge-patch+json" => Ok(Patch::Merge(json_object(call)?)),
        "application/strategic-merge-patch+json" if call.entry.is_builtin() => Ok(Patch::Strategic(json_object(call)?)),
        "application/apply-patch+yaml" => {
            if call.query.text("fieldManager").is_none() {
                let error = FieldError::required("fieldManager", "is required for apply patch");
                return Err(OptionsKind::Patch.invalid(&[error]));
            }
            let applied = applied_object(call)?;
            let force = if call.query.flag("force") { Force::Yes } else { Force::No };
            Ok(Patch::Apply(applied, force))
        }
        _ => Err(unsupported(call)),
    }
}

/// The configuration in the body, as it is: apply itself refuses what the schema does not know.
pub(crate) fn applied_object(call: &Call) -> Result<Value, ApiError> {
    call.query.field_validation(OptionsKind::Patch)?;
    let value =
        decode::yaml(&call.body).map_err(|error| ApiError::bad_request(format!("error decoding YAML: {error}")))?;
    if !value.is_object() {
        return Err(ApiError::bad_request("error decoding YAML: the applied configuration must be an object"));
    }
    let mut value = value;
    check_applied_kind(call, &value)?;
    body::check_type(call, &mut value)?;
    if text(&value, "name").is_empty() {
        let name = Value::from(call.name());
        crate::verbs::write::metadata_of(&mut value).insert("name".to_owned(), name);
    }
    check_name(call, &value)?;
    Ok(value)
}

/// A configuration must say what it is; other writes may leave that to the path.
fn check_applied_kind(call: &Call, value: &Value) -> Result<(), ApiError> {
    let word = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (word("apiVersion"), word("kind"));
    if kind == call.entry.resource.gvk.kind && !api_version.is_empty() {
        return Ok(());
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Err(ApiError::bad_request(format!("invalid object type: {group}/{version}, Kind={kind}")))
}

fn json_object(call: &Call) -> Result<Value, ApiError> {
    let value: Value = serde_json::from_slice(&call.body)
        .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))?;
    if value.is_object() {
        Ok(value)
    } else {
        Err(ApiError::bad_request("error decoding patch: the patch must be a JSON object"))
    }
}

fn unsupported(call: &Call) -> ApiError {
    let mut accepted = vec!["application/json-patch+json", "application/merge-patch+json"];
    if call.entry.is_builtin() {
        accepted.push("application/strategic-merge-patch+json");
    }
    accepted.push("application/apply-patch+yaml");
    ApiError::unsupported_media_type(&accepted)
}
