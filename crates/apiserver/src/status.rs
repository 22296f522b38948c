//! Every refusal the server can give, as a Kubernetes `Status` object.
//!
//! Constructors are named after the `reason` a client sees; messages follow the wording of a real API server, because users
//! grep for it and client libraries match on it.

use serde_json::{Value, json};

/// An error answer: HTTP code, machine-readable reason, message and details.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP status code, also in the body.
    pub code: u16,
    /// `metav1.StatusReason`, such as `NotFound`.
    pub reason: &'static str,
    /// What a person reads.
    pub message: String,
    /// `metav1.StatusDetails`, if any.
    pub details: Option<Value>,
}

/// One field that is wrong, as in `field.Error` of apimachinery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Path such as `spec.containers[0].name`.
    pub field: String,
    /// `metav1.CauseType`, such as `FieldValueRequired`.
    pub reason: &'static str,
    /// Message without the path, such as `Required value: must name a container`.
    pub message: String,
}

/// What kind of object and which one an error is about.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// API group, empty for core.
    pub group: &'a str,
    /// Plural resource name (`pods`); errors about validity use the kind instead.
    pub resource: &'a str,
    /// Kind (`Pod`).
    pub kind: &'a str,
    /// Object name; may be empty.
    pub name: &'a str,
}

impl Subject<'_> {
    fn qualified_resource(&self) -> String {
        if self.group.is_empty() { self.resource.to_owned() } else { format!("{}.{}", self.resource, self.group) }
    }

    fn qualified_kind(&self) -> String {
        if self.group.is_empty() { self.kind.to_owned() } else { format!("{}.{}", self.kind, self.group) }
    }

    fn details(&self, kind: &str) -> Value {
        let mut details = json!({ "kind": kind });
        if !self.group.is_empty() {
            details["group"] = json!(self.group);
        }
        if !self.name.is_empty() {
            details["name"] = json!(self.name);
        }
        details
    }
}

impl FieldError {
    /// A value that may not be what it is: `Invalid value: <value>: <why>`.
    pub fn invalid(field: impl Into<String>, value: &Value, why: impl std::fmt::Display) -> Self {
        Self { field: field.into(), reason: "FieldValueInvalid", message: format!("Invalid value: {value}: {why}") }
    }

    /// A value that must be there.
    pub fn required(field: impl Into<String>, why: &str) -> Self {
        let message = if why.is_empty() { "Required value".to_owned() } else { format!("Required value: {why}") };
        Self { field: field.into(), reason: "FieldValueRequired", message }
    }

    /// A field that may not be set or changed.
    pub fn forbidden(field: impl Into<String>, why: impl std::fmt::Display) -> Self {
        Self { field: field.into(), reason: "FieldValueForbidden", message: format!("Forbidden: {why}") }
    }

    /// A value outside an enumeration.
    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let list = supported.iter().map(|s| format!("\"{s}\"")).collect::<Vec<_>>().join(", ");
        Self {
            field: field.into(),
            reason: "FieldValueNotSupported",
            message: format!("Unsupported value: {value}: supported values: {list}"),
        }
    }

    /// A value that must be unique and is not.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self { field: field.into(), reason: "FieldValueDuplicate", message: format!("Duplicate value: {value}") }
    }

    /// A state that may not be, without a value worth showing: `Invalid value: <why>`.
    pub fn invalid_state(field: impl Into<String>, why: impl std::fmt::Display) -> Self {
        Self { field: field.into(), reason: "FieldValueInvalid", message: format!("Invalid value: {why}") }
    }

    /// A name that refers to nothing; `why` may be empty.
    pub fn not_found(field: impl Into<String>, value: &Value, why: &str) -> Self {
        let message = if why.is_empty() { format!("Not found: {value}") } else { format!("Not found: {value}: {why}") };
        Self { field: field.into(), reason: "FieldValueNotFound", message }
    }

    /// A value of more than `limit` bytes.
    pub fn too_long(field: impl Into<String>, limit: usize) -> Self {
        let message = format!("Too long: may not be more than {limit} bytes");
        Self { field: field.into(), reason: "FieldValueTooLong", message }
    }

    /// A list of more than `limit` elements.
    pub fn too_many(field: impl Into<String>, given: usize, limit: usize) -> Self {
        let message = format!("Too many: {given}: must have at most {limit} items");
        Self { field: field.into(), reason: "FieldValueTooMany", message }
    }
}

impl ApiError {
    /// An error with an explicit code and reason.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None }
    }

    /// 404 for an object.
    pub fn not_found(subject: Subject<'_>) -> Self {
        Self {
            details: Some(subject.details(subject.resource)),
            ..Self::new(404, "NotFound", format!("{} \"{}\" not found", subject.qualified_resource(), subject.name))
        }
    }

    /// 404 for a path or resource the server does not have.
    pub fn no_such_resource() -> Self {
        Self {
            details: Some(json!({})),
            ..Self::new(404, "NotFound", "the server could not find the requested resource")
        }
    }

    /// 409 on create.
    pub fn already_exists(subject: Subject<'_>) -> Self {
        Self {
            details: Some(subject.details(subject.resource)),
            ..Self::new(
                409,
                "AlreadyExists",
                format!("{} \"{}\" already exists", subject.qualified_resource(), subject.name),
            )
        }
    }

    /// 409 on update or delete.
    pub fn conflict(subject: Subject<'_>, why: impl std::fmt::Display) -> Self {
        Self {
            details: Some(subject.details(subject.resource)),
            ..Self::new(
                409,
                "Conflict",
                format!(
                    "Operation cannot be fulfilled on {} \"{}\": {why}",
                    subject.qualified_resource(),
                    subject.name
                ),
            )
        }
    }

    /// 422 with one cause per field.
    pub fn invalid(subject: Subject<'_>, errors: &[FieldError]) -> Self {
        let lines: Vec<String> = errors.iter().map(|e| format!("{}: {}", e.field, e.message)).collect();
        let text = match lines.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut details = subject.details(subject.kind);
        details["causes"] =
            errors.iter().map(|e| json!({"reason": e.reason, "message": e.message, "field": e.field})).collect();
        Self {
            details: Some(details),
            ..Self::new(422, "Invalid", format!("{} \"{}\" is invalid: {text}", subject.qualified_kind(), subject.name))
        }
    }

    /// 403.
    pub fn forbidden(subject: Subject<'_>, why: impl std::fmt::Display) -> Self {
        let who = subject.qualified_resource();
        let message = if subject.name.is_empty() {
            format!("{who} is forbidden: {why}")
        } else {
            format!("{who} \"{}\" is forbidden: {why}", subject.name)
        };
        Self { details: Some(subject.details(subject.resource)), ..Self::new(403, "Forbidden", message) }
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 405.
    pub fn method_not_supported(message: impl Into<String>) -> Self {
        Self::new(405, "MethodNotAllowed", message)
    }

    /// 406.
    pub fn not_acceptable(accepted: &[&str]) -> Self {
        Self::new(
            406,
            "NotAcceptable",
            format!("406: Not Acceptable\n\nAvailable representations: {}", accepted.join(", ")),
        )
    }

    /// 410: the resource version or continue token is no longer known.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 413.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// 415.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        Self::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {}",
                accepted.join(", ")
            ),
        )
    }

    /// 429, as a disruption budget answers an eviction.
    pub fn too_many_requests(message: impl Into<String>) -> Self {
        Self::new(429, "TooManyRequests", message)
    }

    /// 500.
    pub fn internal(message: impl std::fmt::Display) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {message}"))
    }

    /// The `Status` object a client reads.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }
}
