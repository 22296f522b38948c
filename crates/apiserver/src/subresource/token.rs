//! Tokens of service accounts. Nobody checks them here; they only have the right shape.

use axum::response::Response;
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::http::answer;
use crate::http::call::Call;
use crate::server::second_text;
use crate::status::ApiError;

/// Answers a `TokenRequest`.
pub(crate) fn token(call: &Call) -> Result<Response, ApiError> {
    call.stored()?;
    let mut request = call.decode("TokenRequest")?.value;
    let seconds = request.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(3600);
    let now = call.core.clock.now();
    let expires = now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(now);
    if let Some(map) = request.as_object_mut() {
        map.insert("apiVersion".to_owned(), json!("authentication.k8s.io/v1"));
        map.insert("kind".to_owned(), json!("TokenRequest"));
        map.insert("metadata".to_owned(), json!({"name": call.name(), "namespace": call.namespace()}));
        let status = json!({"token": call.core.random.uid(), "expirationTimestamp": second_text(expires)});
        map.insert("status".to_owned(), status);
    }
    Ok(answer::json(201, &request))
}
