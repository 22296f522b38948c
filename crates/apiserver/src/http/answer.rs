//! Answers: JSON bodies with their code, errors as `Status`, warnings as headers.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde_json::Value;

use crate::status::ApiError;

/// A JSON answer from bytes.
pub fn json_bytes(code: u16, bytes: impl Into<Body>) -> Response {
    let mut response = Response::new(bytes.into());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A JSON answer from a value.
pub fn json(code: u16, value: &Value) -> Response {
    json_bytes(code, Bytes::from(serde_json::to_vec(value).unwrap_or_default()))
}

/// An error as a `Status`.
pub fn error(error: &ApiError) -> Response {
    let mut status = error.to_status();
    if error.reason.is_empty()
        && let Some(map) = status.as_object_mut()
    {
        map.remove("reason");
    }
    let mut response = json(error.code, &status);
    let retry = error.details.as_ref().and_then(|d| d.get("retryAfterSeconds")).and_then(Value::as_i64);
    if let Some(seconds) = retry.filter(|seconds| *seconds > 0) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// The `Status` that says something was done.
pub fn success(code: u16) -> Response {
    let status =
        serde_json::json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code});
    json(code, &status)
}

/// Plain text.
pub fn text(code: u16, text: impl Into<Body>) -> Response {
    let mut response = Response::new(text.into());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// 404 for a resource that is not served: a `Status` in the groups of Kubernetes, plain text elsewhere.
pub fn unknown_resource(in_builtin_group: bool) -> Response {
    if in_builtin_group { error(&ApiError::no_such_resource()) } else { text(404, "404 page not found\n") }
}

/// Adds warnings for kubectl to print.
pub fn warn(response: &mut Response, warnings: &[String]) {
    for warning in warnings {
        // Quoted as RFC 7234 wants it; JSON's escapes are the same for what can occur here.
        let text: String = warning.chars().filter(|c| !c.is_control()).collect();
        if let Ok(value) = HeaderValue::from_str(&format!("299 - {}", Value::from(text))) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}
