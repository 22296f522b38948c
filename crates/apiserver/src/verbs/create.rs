//! POST to a collection.

use axum::response::Response;

use crate::http::call::Call;
use crate::http::query::OptionsKind;
use crate::status::ApiError;
use crate::verbs::body;
use crate::verbs::write::{Intent, Ownership, store_new};

/// Creates the object in the body.
pub(crate) async fn create(call: &mut Call) -> Result<Response, ApiError> {
    let intent = Intent::of(call, OptionsKind::Create, None)?;
    let decoded = call.decode(&call.entry.resource.gvk.kind)?;
    let object = body::object(call, decoded, intent.validation)?;
    store_new(call, &intent, object, Ownership::Record).await?.answer(call, 201)
}
