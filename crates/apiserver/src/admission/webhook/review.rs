//! `AdmissionReview`: the question to a webhook and how its answer is read.

use std::borrow::Cow;

use base64::Engine;
use serde::Serialize;
use serde_json::{Value, json};

use super::configuration::Target;
use crate::admission::Attributes;
use crate::resource::Gvk;
use crate::status::ApiError;

/// The question.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Review<'a> {
    kind: &'static str,
    api_version: String,
    request: Request<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "the names of the API")]
struct Request<'a> {
    uid: String,
    kind: Value,
    resource: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    sub_resource: Option<&'a str>,
    request_kind: Value,
    request_resource: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_sub_resource: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    operation: &'static str,
    user_info: Value,
    object: Option<Cow<'a, Value>>,
    old_object: Option<Cow<'a, Value>>,
    dry_run: bool,
    options: &'a Value,
}

/// The answer.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) allowed: bool,
    /// `metav1.Status`, or null.
    pub(super) status: Value,
    pub(super) patch: Option<Vec<u8>>,
    pub(super) warnings: Vec<String>,
}

impl<'a> Review<'a> {
    /// A question about this object, in the version that the webhook knows.
    pub(super) fn new(
        uid: String,
        version: &str,
        attributes: &Attributes<'a>,
        target: &Target<'_>,
        object: Option<&'a Value>,
    ) -> Self {
        let (namespace, name) = place(attributes);
        Self {
            kind: "AdmissionReview",
            api_version: format!("admission.k8s.io/{version}"),
            request: Request {
                uid,
                kind: kind(attributes, &target.version),
                resource: resource(attributes, &target.version),
                sub_resource: attributes.subresource,
                request_kind: kind(attributes, &attributes.resource.gvk.version),
                request_resource: resource(attributes, &attributes.resource.gvk.version),
                request_sub_resource: attributes.subresource,
                name,
                namespace,
                operation: attributes.operation.as_str(),
                user_info: user(attributes),
                object: object.map(|object| converted(object, target)),
                old_object: attributes.old.map(|object| converted(object, target)),
                dry_run: attributes.dry_run,
                options: attributes.options,
            },
        }
    }
}

/// What match conditions see as `request`: these fields of it, or all.
pub(super) fn request_for_conditions(attributes: &Attributes<'_>, target: &Target<'_>, only: Option<&[&str]>) -> Value {
    const FIELDS: &[&str] = &[
        "kind",
        "resource",
        "subResource",
        "requestKind",
        "requestResource",
        "requestSubResource",
        "name",
        "namespace",
        "operation",
        "userInfo",
        "dryRun",
        "options",
    ];
    let (namespace, name) = place(attributes);
    let field = |field: &str| match field {
        "kind" => json!(kind(attributes, &target.version)),
        "resource" => json!(resource(attributes, &target.version)),
        "requestKind" => json!(kind(attributes, &attributes.resource.gvk.version)),
        "requestResource" => json!(resource(attributes, &attributes.resource.gvk.version)),
        "subResource" | "requestSubResource" => json!(attributes.subresource.unwrap_or_default()),
        "name" => json!(name),
        "namespace" => json!(namespace.unwrap_or_default()),
        "operation" => json!(attributes.operation.as_str()),
        "userInfo" => json!(user(attributes)),
        "dryRun" => json!(attributes.dry_run),
        _ => json!(attributes.options),
    };
    let wanted = FIELDS.iter().filter(|name| only.is_none_or(|only| only.contains(name)));
    wanted.map(|name| ((*name).to_owned(), field(name))).collect()
}

/// Reads an answer, or says what is wrong with it in the words of a real server.
pub(super) fn read(body: &[u8], review: &Review<'_>, mutating: bool) -> Result<Verdict, String> {
    let answer: Value = serde_json::from_slice(body)
        .map_err(|error| format!("failed to call webhook: couldn't get version/kind; json parse error: {error}"))?;
    let text = |field: &str| answer.get(field).and_then(Value::as_str).unwrap_or_default();
    if text("kind").is_empty() || text("apiVersion").is_empty() {
        let missing = if text("kind").is_empty() { "Kind" } else { "apiVersion" };
        return Err(format!("failed to call webhook: Object '{missing}' is missing in '{answer}'"));
    }
    let invalid = |why: String| Err(format!("received invalid webhook response: {why}"));
    let Some(response) = answer.get("response").filter(|response| !response.is_null()) else {
        return invalid("webhook response was absent".to_owned());
    };
    let field = |name: &str| response.get(name).filter(|value| !value.is_null());
    let strict = review.api_version == "admission.k8s.io/v1";
    let uid = field("uid").and_then(Value::as_str).unwrap_or_default();
    if strict && uid != review.request.uid {
        return invalid(format!("expected response.uid=\"{}\", got \"{uid}\"", review.request.uid));
    }
    if strict && (text("apiVersion") != review.api_version || text("kind") != review.kind) {
        let (version, kind) = (text("apiVersion"), text("kind"));
        let expected = &review.api_version;
        return invalid(format!(
            "expected webhook response of {expected}, Kind=AdmissionReview, got {version}, Kind={kind}"
        ));
    }
    let patch = field("patch").and_then(Value::as_str).filter(|patch| !patch.is_empty());
    let patch_type = field("patchType").and_then(Value::as_str);
    match (mutating, patch, patch_type) {
        (true, Some(_), None) if strict => {
            return invalid("webhook returned response.patch but not response.patchType".to_owned());
        }
        (true, None, Some(_)) if strict => {
            return invalid("webhook returned response.patchType but not response.patch".to_owned());
        }
        (true, Some(_), Some(other)) if strict && other != "JSONPatch" => {
            return Err(format!("unsupported patch type \"{other}\""));
        }
        (false, Some(_), _) if strict => {
            return invalid("validating webhook may not return response.patch".to_owned());
        }
        (false, _, Some(_)) if strict => {
            return invalid("validating webhook may not return response.patchType".to_owned());
        }
        _ => {}
    }
    let patch = patch.filter(|_| mutating).map(|patch| base64::engine::general_purpose::STANDARD.decode(patch));
    let patch = patch.transpose().map_err(|error| format!("failed to call webhook: illegal base64 data: {error}"))?;
    let warnings = field("warnings").and_then(Value::as_array).into_iter().flatten();
    Ok(Verdict {
        allowed: field("allowed").and_then(Value::as_bool).unwrap_or(false),
        status: field("status").cloned().unwrap_or_default(),
        patch,
        warnings: warnings.filter_map(Value::as_str).map(str::to_owned).collect(),
    })
}

/// The error a client gets when a webhook said no.
pub(super) fn refusal(webhook: &str, status: &Value) -> ApiError {
    let text = |field: &str| status.get(field).and_then(Value::as_str).unwrap_or_default();
    let denied = format!("admission webhook \"{webhook}\" denied the request");
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    let code = status.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    let code = code.filter(|code| (400..600).contains(code)).unwrap_or(400);
    let mut error = ApiError::new(code, known_reason(text("reason")), message);
    error.details = status.get("details").filter(|details| !details.is_null()).cloned();
    error
}

fn known_reason(reason: &str) -> &'static str {
    const REASONS: [&str; 17] = [
        "Unauthorized",
        "Forbidden",
        "NotFound",
        "AlreadyExists",
        "Conflict",
        "Gone",
        "Invalid",
        "ServerTimeout",
        "Timeout",
        "TooManyRequests",
        "BadRequest",
        "MethodNotAllowed",
        "NotAcceptable",
        "RequestEntityTooLarge",
        "InternalError",
        "Expired",
        "ServiceUnavailable",
    ];
    REASONS.into_iter().find(|known| *known == reason).unwrap_or_default()
}

/// Namespace and name; a Namespace counts as being in itself.
fn place<'a>(attributes: &Attributes<'a>) -> (Option<&'a str>, &'a str) {
    let itself = attributes.resource.gvk.group.is_empty() && attributes.resource.plural == "namespaces";
    let namespace = attributes.namespace.or_else(|| (itself && !attributes.name.is_empty()).then_some(attributes.name));
    (namespace, attributes.name)
}

fn kind(attributes: &Attributes<'_>, version: &str) -> Value {
    let resource = attributes.resource;
    // A subresource has a kind of its own, in a version of its own.
    let own = attributes
        .subresource
        .and_then(|name| resource.subresources.iter().find(|subresource| subresource.name == name))
        .map(|subresource| &subresource.kind);
    match own {
        Some(own) if *own != resource.gvk => json!({"group": own.group, "version": own.version, "kind": own.kind}),
        _ => json!({"group": resource.gvk.group, "version": version, "kind": resource.gvk.kind}),
    }
}

fn resource(attributes: &Attributes<'_>, version: &str) -> Value {
    json!({"group": attributes.resource.gvk.group, "version": version, "resource": attributes.resource.plural})
}

fn user(attributes: &Attributes<'_>) -> Value {
    json!({"username": attributes.user.username, "groups": attributes.user.groups})
}

/// The object in the version that the webhook knows; versions of a resource differ in nothing but their name.
fn converted<'a>(object: &'a Value, target: &Target<'_>) -> Cow<'a, Value> {
    let gvk = &target.resource.gvk;
    if target.version == gvk.version {
        return Cow::Borrowed(object);
    }
    let mut object = object.clone();
    if let Some(version) = object.get_mut("apiVersion") {
        *version = json!(Gvk::new(&gvk.group, &target.version, "").api_version());
    }
    Cow::Owned(object)
}
