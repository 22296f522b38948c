//! What the server says about itself: version, health, discovery, OpenAPI.

use axum::extract::Request;
use axum::response::Response;
use http::{Method, header};
use serde_json::{Value, json};

use super::answer;
use super::negotiation::{Form, negotiate};
use crate::discovery::{self, Root};
use crate::registry::Registry;
use crate::server::ApiServer;
use crate::status::ApiError;

/// Media type of the aggregated discovery document; clients tell by it that they got what they asked for.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Answers a path that names no resource.
pub fn serve(server: &ApiServer, segments: &[String], request: &Request) -> Response {
    let words: Vec<&str> = segments.iter().map(String::as_str).collect();
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let known = matches!(words.as_slice(), ["api" | "apis" | "version" | "healthz" | "openapi", ..]);
        let refused = ApiError::method_not_supported("the server does not allow this method on the requested resource");
        return if known { answer::error(&refused) } else { answer::text(404, "404 page not found\n") };
    }
    let registry = server.core().registry();
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    match words.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => answer::text(200, "ok"),
        ["version"] => answer::json(200, &version()),
        ["api"] => root(&registry, accept, Root::Api),
        ["apis"] => root(&registry, accept, Root::Apis),
        ["openapi", "v3", rest @ ..] => match registry.openapi(&rest.join("/")) {
            Some(document) => answer::json_bytes(200, document),
            None => answer::text(404, "404 page not found\n"),
        },
        ["openapi", "v2"] => old_openapi(accept),
        ["api", version] if registry.has_version("", version) => {
            answer::json(200, &discovery::api_resource_list("", version, registry.resources()))
        }
        ["apis", group] if registry.has_group(group) => {
            answer::json(200, &discovery::api_group(group, registry.resources()))
        }
        ["apis", group, version] if registry.has_version(group, version) => {
            answer::json(200, &discovery::api_resource_list(group, version, registry.resources()))
        }
        ["api", _] => answer::unknown_resource(true),
        ["apis", group, _] if registry.is_builtin_group(group) => answer::unknown_resource(true),
        [] => answer::json(200, &json!({"paths": paths(&registry)})),
        _ => answer::text(404, "404 page not found\n"),
    }
}

fn root(registry: &Registry, accept: Option<&str>, which: Root) -> Response {
    let resources = registry.resources();
    match negotiate(accept) {
        Ok(Form::AggregatedDiscovery) => {
            let mut response = answer::json(200, &discovery::aggregated(resources, which));
            response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(AGGREGATED));
            response
        }
        Ok(_) if which == Root::Api => answer::json(200, &discovery::api_versions(resources)),
        Ok(_) => answer::json(200, &discovery::api_group_list(resources)),
        Err(error) => answer::error(&error),
    }
}

/// OpenAPI v2 without definitions: kubectl falls back to it for kinds that v3 does not have, and takes a missing document for a
/// broken server. Everything there is to know stands in v3.
fn old_openapi(accept: Option<&str>) -> Response {
    // Asked for with an `@`, which no media type may have; answered without, as the real server does.
    const ASKED_FOR: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    if accept.is_some_and(|accept| accept.contains(ASKED_FOR)) {
        // Field 1 of the message, `swagger`: "2.0".
        let mut response = answer::json_bytes(200, b"\x0a\x032.0".as_slice());
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(PROTOBUF));
        return response;
    }
    answer::json(
        200,
        &json!({ "swagger": "2.0", "info": { "title": "Kubernetes", "version": "v1.34.4" }, "paths": {} }),
    )
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "34", "gitVersion": "v1.34.4", "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc", "platform": "linux/amd64",
    })
}

fn paths(registry: &Registry) -> Vec<String> {
    let mut paths = vec!["/api".to_owned(), "/apis".to_owned(), "/healthz".to_owned(), "/livez".to_owned()];
    paths.extend(["/openapi/v3", "/readyz", "/version"].map(str::to_owned));
    for resource in registry.resources() {
        let (group, version) = (&resource.gvk.group, &resource.gvk.version);
        if group.is_empty() {
            paths.push(format!("/api/{version}"));
        } else {
            paths.extend([format!("/apis/{group}"), format!("/apis/{group}/{version}")]);
        }
    }
    paths.sort();
    paths.dedup();
    paths
}
