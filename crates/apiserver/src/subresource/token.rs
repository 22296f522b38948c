//! Tokens of service accounts. Nobody checks them here; they only have the right shape.

use axum::response::Response;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::http::answer;
use crate::http::call::Call;
use crate::server::second_text;
use crate::status::{ApiError, FieldError, Subject};

/// Seconds; the real server gives no shorter-lived ones.
const SHORTEST: i64 = 600;

/// Answers a `TokenRequest`.
pub(crate) fn token(call: &Call) -> Result<Response, ApiError> {
    call.stored()?;
    let mut request = call.decode("TokenRequest")?.value;
    let seconds = request.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(3600);
    if seconds < SHORTEST {
        let why = "may not specify a duration less than 10 minutes";
        let error = FieldError::invalid("spec.expirationSeconds", &json!(seconds), why);
        let group = "authentication.k8s.io";
        let subject = Subject { group, resource: "tokenrequests", kind: "TokenRequest", name: call.name() };
        return Err(ApiError::invalid(subject, &[error]));
    }
    let now = call.core.clock.now();
    let expires = now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(now);
    if let Some(map) = request.as_object_mut() {
        map.insert("apiVersion".to_owned(), json!("authentication.k8s.io/v1"));
        map.insert("kind".to_owned(), json!("TokenRequest"));
        map.insert("metadata".to_owned(), json!({"name": call.name(), "namespace": call.namespace()}));
        let status = json!({"token": encoded(call, now, expires), "expirationTimestamp": second_text(expires)});
        map.insert("status".to_owned(), status);
    }
    Ok(answer::json(201, &request))
}

/// Header, claims and signature of a JWT; with nobody to check it, the signature is a random number.
fn encoded(call: &Call, now: Timestamp, expires: Timestamp) -> String {
    let namespace = call.namespace().unwrap_or_default();
    let header = json!({"alg": "ES256"});
    let claims = json!({
        "iss": "https://kubernetes.default.svc", "sub": format!("system:serviceaccount:{namespace}:{}", call.name()),
        "iat": now.as_second(), "exp": expires.as_second(),
    });
    let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
    format!("{header}.{claims}.{}", URL_SAFE_NO_PAD.encode(call.core.random.uid()))
}
