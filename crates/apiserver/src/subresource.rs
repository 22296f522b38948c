//! Subresources, one file each, and the resources that are only questions (access reviews).

use axum::response::Response;
use http::Method;

use crate::http::answer;
use crate::http::call::Call;
use crate::status::ApiError;
use crate::verbs::{get, not_allowed, patch, update};

/// Carries out a request to the subresource `name`.
pub(crate) async fn dispatch(call: &mut Call, name: &str, method: &Method) -> Result<Response, ApiError> {
    let verb = match method.as_str() {
        "GET" | "HEAD" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => return Err(not_allowed()),
    };
    let Some(subresource) = call.entry.resource.subresources.iter().find(|subresource| subresource.name == name) else {
        return Ok(answer::unknown_resource(call.entry.is_builtin()));
    };
    if !subresource.verbs.iter().any(|served| served == verb) {
        return Err(not_allowed());
    }
    match (name, verb) {
        ("status", "get") => get::get(call),
        ("status", "update") => update::update(call, Some("status")).await,
        ("status", "patch") => patch::patch(call, Some("status")).await,
        _ => Ok(answer::unknown_resource(call.entry.is_builtin())),
    }
}

/// Answers a POST to a resource that stores nothing; `None` if this is not one.
pub(crate) async fn virtual_resource(_call: &mut Call) -> Option<Result<Response, ApiError>> {
    None
}
