//! Every pod runs as some service account: `default` unless it says otherwise. Token volumes are not mounted.

use serde_json::{Value, json};

use super::{Attributes, Operation, spec_of};

pub(super) fn mutate(attributes: &Attributes<'_>, object: &mut Value) {
    if attributes.operation != Operation::Create {
        return;
    }
    let Some(spec) = spec_of(object) else { return };
    let name = |field: &str| spec.get(field).and_then(Value::as_str).filter(|name| !name.is_empty());
    let chosen = name("serviceAccountName").or(name("serviceAccount")).unwrap_or("default").to_owned();
    // The old name of the field is kept in step for old clients.
    spec.insert("serviceAccount".to_owned(), json!(chosen));
    spec.insert("serviceAccountName".to_owned(), json!(chosen));
}
