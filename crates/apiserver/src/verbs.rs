//! What can be done to resources, one file per verb.
//!
//! Reads take a snapshot and never wait. Writes are optimistic: they read, compute without the lock, and store against the revision
//! they read, again if somebody was faster and the client did not insist on a revision.

pub mod body;
pub mod create;
pub mod delete;
pub mod delete_collection;
pub mod fields;
pub mod get;
pub mod list;
pub mod patch;
pub mod selection;
pub mod update;
pub mod watch;
pub mod write;

use axum::response::Response;
use http::Method;

use crate::http::answer;
use crate::http::call::Call;
use crate::status::ApiError;
use crate::subresource;

/// Carries out a request; errors of the verb become answers, so that they carry warnings too.
pub(crate) async fn dispatch(mut call: Call, method: &Method) -> Result<Response, ApiError> {
    let outcome = match call.path.subresource.clone() {
        Some(name) => subresource::dispatch(&mut call, &name, method).await,
        None => resource(&mut call, method).await,
    };
    let mut response = outcome.unwrap_or_else(|error| answer::error(&error));
    answer::warn(&mut response, &call.warnings);
    Ok(response)
}

async fn resource(call: &mut Call, method: &Method) -> Result<Response, ApiError> {
    let named = call.path.name.is_some();
    let watches = call.path.watch || call.query.flag("watch");
    let verb = match (method.as_str(), named) {
        ("GET", _) if watches => "watch",
        ("GET", true) => "get",
        ("GET", false) => "list",
        ("POST", false) => "create",
        ("PUT", true) => "update",
        ("PATCH", true) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => return Err(not_allowed()),
    };
    let namespace_missing = call.entry.is_namespaced() && call.namespace().is_none();
    let served = call.entry.resource.verbs.iter().any(|served| served == verb);
    if !served || (namespace_missing && !matches!(verb, "list" | "watch")) {
        return Err(not_allowed());
    }
    match verb {
        "watch" => watch::watch(call),
        "get" => get::get(call),
        "list" => list::list(call),
        "create" => match subresource::virtual_resource(call).await {
            Some(outcome) => outcome,
            None => create::create(call).await,
        },
        "update" => update::update(call, None).await,
        "patch" => patch::patch(call, None).await,
        "delete" => delete::delete(call).await,
        _ => delete_collection::delete_collection(call).await,
    }
}

/// 405 as a real server words it.
pub(crate) fn not_allowed() -> ApiError {
    ApiError {
        details: Some(serde_json::json!({})),
        ..ApiError::method_not_supported("the server does not allow this method on the requested resource")
    }
}
