//! DELETE of a collection: every selected object as if it were deleted by name.

use std::sync::Arc;

use axum::response::Response;
use serde_json::Value;

use crate::http::answer;
use crate::http::call::Call;
use crate::object::Object;
use crate::status::ApiError;
use crate::verbs::delete::{DeleteOptions, Deleted, admit, delete_object};
use crate::verbs::list::list_value;
use crate::verbs::selection::Selection;

/// Deletes the selected objects and answers with their list.
pub(crate) async fn delete_collection(call: &mut Call) -> Result<Response, ApiError> {
    let options = DeleteOptions::of(call)?;
    let selection = Selection::of(call)?;
    let entry = Arc::clone(&call.entry);
    let (snapshot, _) = call.core.store.snapshot(&entry.storage.key);
    let selected: Vec<Arc<Object>> = snapshot.values().filter(|object| selection.matches(object)).cloned().collect();
    let mut items: Vec<Value> = Vec::with_capacity(selected.len());
    for object in selected {
        admit(call, &object, &options).await?;
        match delete_object(&call.core, &entry, &object.key, &options) {
            Ok(Deleted::Gone(object) | Deleted::Marked(object)) => items.push(entry.served(&object)),
            Ok(Deleted::Rehearsed(value)) => items.push(value),
            // Somebody else deleted it: that is what was wanted.
            Err(error) if error.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(answer::json(200, &list_value(&entry, call.core.store.revision(), &items)))
}
