//! Questions about access. In this cluster everybody may do everything.

use axum::response::Response;
use serde_json::{Value, json};

use crate::http::answer;
use crate::http::call::Call;
use crate::status::ApiError;

/// Answers a review.
pub(crate) fn review(call: &Call) -> Result<Response, ApiError> {
    let kind = &call.entry.resource.gvk.kind;
    let mut review = call.decode(kind)?.value;
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
