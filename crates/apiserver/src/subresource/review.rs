//! Questions about access. In this cluster everybody may do everything.

use axum::response::Response;
use serde_json::{Value, json};

use crate::http::answer;
use crate::http::call::Call;
use crate::status::{ApiError, FieldError, Subject};

/// Answers a review.
pub(crate) fn review(call: &Call) -> Result<Response, ApiError> {
    let kind = &call.entry.resource.gvk.kind;
    let mut review = call.decode(kind)?.value;
    check(kind, &review)?;
    let everything = json!(["*"]);
    let status = match kind.as_str() {
        "SelfSubjectRulesReview" => json!({
            "resourceRules": [{"verbs": everything, "apiGroups": everything, "resources": everything}],
            "nonResourceRules": [{"verbs": everything, "nonResourceURLs": everything}],
            "incomplete": false,
        }),
        "SelfSubjectReview" => json!({"userInfo": {"username": call.user.username, "groups": call.user.groups}}),
        "TokenReview" => {
            json!({"authenticated": true, "user": {"username": call.user.username, "groups": call.user.groups}})
        }
        _ => json!({"allowed": true}),
    };
    if let Some(map) = review.as_object_mut() {
        map.insert("apiVersion".to_owned(), json!(call.entry.api_version));
        map.insert("kind".to_owned(), json!(kind));
        map.entry("metadata").or_insert_with(|| Value::Object(serde_json::Map::new()));
        map.insert("status".to_owned(), status);
    }
    Ok(answer::json(201, &review))
}

/// Refuses questions about nothing.
fn check(kind: &str, review: &Value) -> Result<(), ApiError> {
    let has = |name: &str| review.pointer(&format!("/spec/{name}")).is_some_and(Value::is_object);
    if kind == "SelfSubjectRulesReview"
        && review.pointer("/spec/namespace").and_then(Value::as_str).is_none_or(str::is_empty)
    {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    if kind.ends_with("SubjectAccessReview") && has("resourceAttributes") == has("nonResourceAttributes") {
        let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        let value = review.pointer("/spec/resourceAttributes").unwrap_or(&Value::Null);
        let error = FieldError::invalid("spec.resourceAttributes", value, why);
        // The real server forgets the kind as well.
        let subject = Subject { group: "authorization.k8s.io", resource: "", kind: "", name: "" };
        return Err(ApiError::invalid(subject, &[error]));
    }
    Ok(())
}
