//! Logs of a container, asked of the node that runs it.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, Request, header};
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

use crate::http::answer;
use crate::http::call::Call;
use crate::status::{ApiError, FieldError, Subject};

/// Options that travel on to the node.
const PASSED_ON: [&str; 8] =
    ["follow", "previous", "timestamps", "sinceSeconds", "sinceTime", "tailLines", "limitBytes", "stream"];

/// Streams the log of a container of the pod in the path.
pub(crate) async fn log(call: &Call) -> Result<Response, ApiError> {
    let pod = call.stored()?.value();
    check_options(call)?;
    let container = container(call, &pod)?;
    let node = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
    if node.is_empty() {
        return Ok(answer::text(200, ""));
    }
    check_started(call, &pod, &container)?;
    let proxy = call.core.node_proxy.read().clone();
    let namespace = call.namespace().unwrap_or_default();
    let path = format!("/containerLogs/{namespace}/{}/{container}", call.name());
    let Some(router) = proxy.and_then(|proxy| proxy(node)) else {
        let why = format!("Get \"https://{node}:10250{path}\": dial tcp: lookup {node}: no such host");
        return Err(ApiError::new(500, "", why));
    };
    let query: Vec<String> =
        PASSED_ON.iter().filter_map(|name| Some(format!("{name}={}", encode(call.query.text(name)?)))).collect();
    let uri = if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) };
    let request = Request::get(uri).body(Body::empty()).map_err(ApiError::internal)?;
    let response = router.oneshot(request).await.map_err(ApiError::internal)?;
    if response.status().is_success() {
        let mut response = response;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        return Ok(response);
    }
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let text = String::from_utf8_lossy(&body).trim().to_owned();
    let reason = match code {
        404 => "NotFound",
        400 => "BadRequest",
        _ => "InternalError",
    };
    Err(ApiError::new(code, reason, text))
}

/// 422 for numbers that make no sense.
fn check_options(call: &Call) -> Result<(), ApiError> {
    let mut errors = Vec::new();
    for (name, least, why) in [
        ("tailLines", 0, "must be greater than or equal to 0"),
        ("limitBytes", 1, "must be greater than 0"),
        ("sinceSeconds", 1, "must be greater than 0"),
    ] {
        if let Some(number) = call.query.text(name).and_then(|text| text.parse::<i64>().ok())
            && number < least
        {
            errors.push(FieldError::invalid(name, &Value::from(number), why));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    let subject = Subject { group: "", resource: "pods", kind: "PodLogOptions", name: call.name() };
    Err(ApiError::invalid(subject, &errors))
}

/// The container that is meant.
fn container(call: &Call, pod: &Value) -> Result<String, ApiError> {
    let names = |list: &str| -> Vec<&str> {
        let list = pod.pointer(&format!("/spec/{list}")).and_then(Value::as_array);
        list.map(|l| l.iter().filter_map(|c| c["name"].as_str()).collect()).unwrap_or_default()
    };
    let all = [names("initContainers"), names("containers"), names("ephemeralContainers")].concat();
    match (call.query.text("container"), names("containers").as_slice()) {
        (Some(name), _) if all.contains(&name) => Ok(name.to_owned()),
        (Some(name), _) => Err(ApiError::bad_request(format!("container {name} is not valid for pod {}", call.name()))),
        (None, [only]) => Ok((*only).to_owned()),
        (None, _) => Err(ApiError::bad_request(format!(
            "a container name must be specified for pod {}, choose one of: [{}]",
            call.name(),
            all.join(" ")
        ))),
    }
}

/// Refuses, as a kubelet does, the log of a container that never ran.
fn check_started(call: &Call, pod: &Value, container: &str) -> Result<(), ApiError> {
    let statuses = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    let status = statuses
        .iter()
        .filter_map(|list| pod.pointer(&format!("/status/{list}")).and_then(Value::as_array))
        .flatten()
        .find(|status| status["name"] == container);
    let refuse = |why: String| Err(ApiError::bad_request(why));
    let state = |path: &str| status.and_then(|status| status.pointer(path)).filter(|state| state.is_object());
    let pod = call.name();
    if call.query.flag("previous") {
        return match state("/lastState/terminated") {
            Some(_) => Ok(()),
            None => refuse(format!("previous terminated container \"{container}\" in pod \"{pod}\" not found")),
        };
    }
    if state("/state/running").or(state("/state/terminated")).or(state("/lastState/terminated")).is_some() {
        return Ok(());
    }
    let reason = state("/state/waiting").and_then(|waiting| waiting["reason"].as_str()).unwrap_or("ContainerCreating");
    refuse(format!("container \"{container}\" in pod \"{pod}\" is waiting to start: {reason}"))
}

fn encode(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    text.bytes().map(|byte| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}
