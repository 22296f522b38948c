//! One request to a resource, read as far as every verb needs it.

use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, header};
use serde_json::{Value, json};

use super::answer;
use super::decode::{self, Decoded, Format};
use super::negotiation::{Form, include_object};
use super::path::ResourcePath;
use super::query::{OptionsKind, Query};
use crate::admission::UserInfo;
use crate::object::{Key, Object};
use crate::registry::Entry;
use crate::resource::Scope;
use crate::server::Core;
use crate::status::{ApiError, Subject};
use crate::table;

/// One request to a resource.
pub(crate) struct Call {
    /// The server.
    pub core: Arc<Core>,
    /// The resource.
    pub entry: Arc<Entry>,
    /// The parsed path.
    pub path: ResourcePath,
    /// The query parameters.
    pub query: Query,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// The form of the answer.
    pub form: Form,
    /// Who asks.
    pub user: UserInfo,
    /// Collected for the `Warning` headers.
    pub warnings: Vec<String>,
}

impl Call {
    /// The namespace in the path.
    pub fn namespace(&self) -> Option<&str> {
        self.path.namespace.as_deref()
    }

    /// The name in the path, empty for a collection.
    pub fn name(&self) -> &str {
        self.path.name.as_deref().unwrap_or_default()
    }

    /// The key of the object in the path.
    pub fn key(&self) -> Key {
        self.key_of(self.name())
    }

    /// The key of another object in the same namespace.
    pub fn key_of(&self, name: &str) -> Key {
        match self.entry.resource.scope {
            Scope::Cluster => Key::new(None, name),
            Scope::Namespaced => Key::new(Some(self.namespace().unwrap_or_default()), name),
        }
    }

    /// The key of a pod in the namespace of the path.
    pub fn pod_key(&self, name: &str) -> Key {
        Key::new(Some(self.namespace().unwrap_or_default()), name)
    }

    /// The subject of errors about the object in the path.
    pub fn subject(&self) -> Subject<'_> {
        self.entry.resource.subject(self.name())
    }

    /// The stored object in the path, or 404.
    pub fn stored(&self) -> Result<Arc<Object>, ApiError> {
        let object = self.core.store.get(&self.entry.storage.key, &self.key());
        object.ok_or_else(|| ApiError::not_found(self.subject()))
    }

    /// A header as text.
    pub fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The media type of the body, without parameters.
    pub fn media_type(&self) -> &str {
        self.header(header::CONTENT_TYPE).and_then(|text| text.split(';').next()).unwrap_or_default().trim()
    }

    /// Who writes: `fieldManager`, else the program named in `User-Agent`.
    pub fn manager(&self, options: OptionsKind) -> Result<String, ApiError> {
        if let Some(manager) = self.query.field_manager(options)? {
            return Ok(manager.to_owned());
        }
        let agent = self.header(header::USER_AGENT).unwrap_or_default();
        let program = agent.split('/').next().unwrap_or_default();
        let program: String = program.chars().filter(|c| !c.is_control()).take(128).collect();
        Ok(if program.is_empty() { "unknown".to_owned() } else { program })
    }

    /// The body as an object of `kind`.
    pub fn decode(&self, kind: &str) -> Result<Decoded, ApiError> {
        let format: Format = decode::format(self.header(header::CONTENT_TYPE))?;
        decode::decode(format, &self.body, kind)
    }

    /// Answers with a stored object in the negotiated form.
    pub fn answer(&self, code: u16, object: &Object) -> Result<Response, ApiError> {
        match self.form {
            Form::Object => Ok(answer::json_bytes(code, self.entry.served_bytes(object))),
            _ => self.answer_value(code, &self.entry.served(object)),
        }
    }

    /// Answers with an object that is not stored, such as the result of a dry run.
    pub fn answer_value(&self, code: u16, value: &Value) -> Result<Response, ApiError> {
        let value = match self.form {
            Form::Object => return Ok(answer::json(code, value)),
            Form::Partial => partial(value),
            Form::Table => {
                let metadata = json!({
                    "resourceVersion": value.pointer("/metadata/resourceVersion").cloned().unwrap_or(json!(""))
                });
                self.table(&[value], metadata)?
            }
            Form::AggregatedDiscovery => return Err(not_acceptable()),
        };
        Ok(answer::json(code, &value))
    }

    /// Objects as a table.
    pub fn table(&self, objects: &[&Value], metadata: Value) -> Result<Value, ApiError> {
        let include = include_object(self.query.text("includeObject"))?;
        Ok(table::render(&self.entry.resource, objects, metadata, include, self.core.clock.now()))
    }
}

/// 406 for a form that only discovery has.
pub(crate) fn not_acceptable() -> ApiError {
    ApiError::not_acceptable(&["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"])
}

/// An object as `PartialObjectMetadata`.
pub(crate) fn partial(value: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": value.get("metadata").cloned().unwrap_or_default(),
    })
}
