//! Which objects of a resource a list, watch or collection delete is about.

use crate::http::call::Call;
use crate::object::Object;
use crate::select::{FieldSelector, LabelSelector};
use crate::status::ApiError;
use crate::verbs::fields;

/// Namespace, name, label and field conditions.
#[derive(Debug)]
pub(crate) struct Selection {
    namespace: Option<String>,
    name: Option<String>,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selection {
    /// Reads path and query.
    pub fn of(call: &Call) -> Result<Self, ApiError> {
        let labels = LabelSelector::parse(call.query.text("labelSelector").unwrap_or_default())?;
        let fields = FieldSelector::parse(call.query.text("fieldSelector").unwrap_or_default())?;
        for requirement in fields.requirements() {
            if !fields::is_supported(&call.entry, &requirement.field) {
                return Err(ApiError::bad_request(format!("field label not supported: {}", requirement.field)));
            }
        }
        let namespace = call.path.namespace.clone().filter(|_| call.entry.is_namespaced());
        Ok(Self { namespace, name: call.path.name.clone(), labels, fields })
    }

    /// The namespace, if the selection is limited to one.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Whether every object of the namespace is selected.
    pub fn is_everything(&self) -> bool {
        self.name.is_none() && self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether an object is selected, its namespace included.
    pub fn matches(&self, object: &Object) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| object.key.namespace() == Some(namespace))
            && self.matches_within(object)
    }

    /// Whether an object of the right namespace is selected.
    pub fn matches_within(&self, object: &Object) -> bool {
        self.name.as_deref().is_none_or(|name| object.key.name() == name)
            && (self.labels.is_empty() || self.labels.matches(&object.facts.labels))
            && (self.fields.is_empty() || self.fields.matches(|field| Some(value(object, field))))
    }
}

/// A field by the name of either event group; a field the object does not have is empty.
fn value<'a>(object: &'a Object, field: &str) -> &'a str {
    let found = object.field(field).or_else(|| {
        let core = field.strip_prefix("regarding.").map(|rest| format!("involvedObject.{rest}"));
        let core = core.or_else(|| (field == "reportingController").then(|| "reportingComponent".to_owned()));
        core.and_then(|field| object.field(&field))
    });
    found.unwrap_or_default()
}
