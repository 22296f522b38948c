//! PUT of an object or of its status.

use axum::response::Response;
use serde_json::{Value, json};

use crate::http::call::Call;
use crate::http::query::OptionsKind;
use crate::registry::Entry;
use crate::status::{ApiError, FieldError};
use crate::verbs::body;
use crate::verbs::write::{Intent, Ownership, Written, metadata_of, store_new, store_over, text};

/// Resources that a PUT may create, as in the real server.
const CREATED_BY_PUT: [&str; 10] = [
    "clusterrolebindings.rbac.authorization.k8s.io",
    "clusterroles.rbac.authorization.k8s.io",
    "endpoints",
    "events",
    "leases.coordination.k8s.io",
    "limitranges",
    "rolebindings.rbac.authorization.k8s.io",
    "roles.rbac.authorization.k8s.io",
    "runtimeclasses.node.k8s.io",
    "services",
];

/// Resources whose PUT must name the resource version it is based on; custom resources are of this kind too.
const CONDITIONAL: [&str; 9] = [
    "csidrivers.storage.k8s.io",
    "csinodes.storage.k8s.io",
    "csistoragecapacities.storage.k8s.io",
    "leases.coordination.k8s.io",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
    "poddisruptionbudgets.policy",
    "runtimeclasses.node.k8s.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io",
    "volumeattachments.storage.k8s.io",
];

/// Replaces the object in the path, or the part of it that `subresource` is about.
pub(crate) async fn update(call: &mut Call, subresource: Option<&'static str>) -> Result<Response, ApiError> {
    let intent = Intent::of(call, OptionsKind::Update, subresource)?;
    let decoded = call.decode(&call.entry.resource.gvk.kind)?;
    let object = body::object(call, decoded, intent.validation)?;
    check_name(call, &object)?;
    replace(call, &intent, &object).await
}

/// Stores `object` over what is there, whoever else writes, unless it names a resource version.
pub(crate) async fn replace(call: &mut Call, intent: &Intent, object: &Value) -> Result<Response, ApiError> {
    let unconditional = matches!(text(object, "resourceVersion"), "" | "0");
    loop {
        let storage = std::sync::Arc::clone(&call.entry.storage);
        let Some(old) = call.core.store.get(&storage.key, &call.key()) else {
            if intent.subresource.is_none() && is_created_by_put(call, object) {
                let mut object = object.clone();
                metadata_of(&mut object).remove("resourceVersion");
                return store_new(call, intent, object, Ownership::Record).await?.answer(call, 201);
            }
            return Err(ApiError::not_found(call.subject()));
        };
        if unconditional && must_be_conditional(&call.entry) {
            let error = FieldError::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
            return Err(ApiError::invalid(call.subject(), &[error]));
        }
        let old_value = call.entry.served(&old);
        match store_over(call, intent, &old, &old_value, object.clone(), Ownership::Record).await? {
            Written::Overtaken if unconditional => {}
            written => return written.answer(call, 200),
        }
    }
}

fn is_created_by_put(call: &Call, object: &Value) -> bool {
    text(object, "uid").is_empty() && CREATED_BY_PUT.contains(&&*call.entry.storage.key)
}

fn must_be_conditional(entry: &Entry) -> bool {
    !entry.is_builtin() || CONDITIONAL.contains(&&*entry.storage.key)
}

/// The object must be the one the URL names.
pub(crate) fn check_name(call: &Call, object: &Value) -> Result<(), ApiError> {
    let (name, wanted) = (text(object, "name"), call.name());
    if name.is_empty() {
        let why = format!("the name of the object ({wanted} based on URL) was undeterminable: name must be provided");
        return Err(ApiError::bad_request(why));
    }
    if name != wanted {
        let why = format!("the name of the object ({name}) does not match the name on the URL ({wanted})");
        return Err(ApiError::bad_request(why));
    }
    let (namespace, wanted) = (text(object, "namespace"), call.namespace().unwrap_or_default());
    if !wanted.is_empty() && !namespace.is_empty() && namespace != wanted {
        let why =
            format!("the namespace of the object ({namespace}) does not match the namespace on the request ({wanted})");
        return Err(ApiError::bad_request(why));
    }
    Ok(())
}
