//! Subresources, one file each, and the resources that are only questions (access reviews).

mod binding;
mod eviction;
mod log;
mod review;
mod scale;
mod token;

use axum::response::Response;
use http::Method;
use serde_json::Value;

use crate::admission::{Attributes, Operation};
use crate::http::answer;
use crate::http::call::Call;
use crate::http::query::{DryRun, OptionsKind};
use crate::status::ApiError;
use crate::verbs::{get, not_allowed, patch, update};

/// Carries out a request to the subresource `name`.
pub(crate) async fn dispatch(call: &mut Call, name: &str, method: &Method) -> Result<Response, ApiError> {
    let verb = match method.as_str() {
        "GET" => "get",
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
    let plural = call.entry.resource.plural.clone();
    // A name with a life of its own, because intents keep it.
    let part = match name {
        "status" => Some("status"),
        "ephemeralcontainers" => Some("ephemeralcontainers"),
        "resize" => Some("resize"),
        "finalize" => Some("finalize"),
        _ => None,
    };
    match (plural.as_str(), name, verb) {
        (_, "scale", _) => scale::scale(call, verb).await,
        (_, _, "get") if part.is_some() => get::get(call),
        (_, _, "update") if part.is_some() => update::update(call, part).await,
        (_, _, "patch") if part.is_some() => patch::patch(call, part).await,
        ("pods", "binding", "create") => binding::bind(call).await,
        ("pods", "eviction", "create") => eviction::evict(call).await,
        ("pods", "log", "get") => log::log(call).await,
        ("serviceaccounts", "token", "create") => token::token(call),
        _ => Ok(answer::unknown_resource(call.entry.is_builtin())),
    }
}

/// Answers a POST to a resource that stores nothing; `None` if this is not one.
pub(crate) async fn virtual_resource(call: &mut Call) -> Option<Result<Response, ApiError>> {
    let resource = &call.entry.resource;
    match (resource.gvk.group.as_str(), resource.plural.as_str()) {
        ("", "bindings") => Some(binding::bind(call).await),
        ("authorization.k8s.io" | "authentication.k8s.io", _) => Some(review::review(call)),
        _ => None,
    }
}

/// Asks admission about an object that is created through a subresource.
async fn admit(call: &mut Call, subresource: &str, object: &mut Value, dry_run: DryRun) -> Result<(), ApiError> {
    let options = call.query.options(OptionsKind::Create);
    let attributes = Attributes {
        resource: &call.entry.resource,
        subresource: Some(subresource).filter(|name| !name.is_empty()),
        namespace: call.namespace(),
        name: call.name(),
        operation: Operation::Create,
        old: None,
        options: &options,
        dry_run: dry_run == DryRun::Yes,
        user: &call.user,
    };
    let mut warnings = call.core.admission.mutate(&attributes, object, &*call.core).await?;
    warnings.extend(call.core.admission.validate(&attributes, Some(object), &*call.core).await?);
    call.warnings.extend(warnings);
    Ok(())
}
