//! GET of one object.

use axum::response::Response;

use crate::http::call::Call;
use crate::status::ApiError;

/// Answers with the object in the path.
pub(crate) fn get(call: &Call) -> Result<Response, ApiError> {
    let object = call.stored()?;
    call.answer(200, &object)
}
