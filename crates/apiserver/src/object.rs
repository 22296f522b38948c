//! An object as the store keeps it: its JSON once, and the few facts the server itself asks for.
//!
//! The JSON is laid out so that the three parts that differ between answers can be exchanged by copying bytes instead of
//! parsing: `apiVersion` comes first (versions of a custom resource), `kind` second (both are left out of the items of a list),
//! and `metadata.resourceVersion` ends the metadata (it is known only under the store's lock).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::{Map, Value};

/// Where an object is within its resource: `namespace/name`, or `name` when it has no namespace.
///
/// Keys order as in etcd, so that lists come in the same order as from a real server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// The key of an object.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        match namespace {
            Some(namespace) => Self(format!("{namespace}/{name}").into()),
            None => Self(name.into()),
        }
    }

    /// A key from its printed form, as a continue token carries it.
    pub fn from_text(text: &str) -> Self {
        Self(text.into())
    }

    /// The printed form.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The namespace, if the object has one.
    pub fn namespace(&self) -> Option<&str> {
        self.0.split_once('/').map(|(namespace, _)| namespace)
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&*self.0, |(_, name)| name)
    }
}

/// An object's identity over its whole life. Owner references may carry text that is no UUID; such an owner never exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(u128);

impl Uid {
    /// Reads the canonical form.
    pub fn parse(text: &str) -> Option<Self> {
        uuid::Uuid::parse_str(text).ok().map(|uuid| Self(uuid.as_u128()))
    }
}

/// One entry of `metadata.ownerReferences`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Identity; `None` if the text is no UUID.
    pub uid: Option<Uid>,
    /// `apiVersion` of the owner.
    pub api_version: String,
    /// Kind of the owner.
    pub kind: String,
    /// Name of the owner.
    pub name: String,
    /// Whether a foreground deletion of the owner waits for this object.
    pub blocks: bool,
}

/// What the server needs to know about an object without reading its JSON.
#[derive(Debug)]
pub struct Facts {
    /// Identity.
    pub uid: Uid,
    /// Labels, for selectors.
    pub labels: BTreeMap<String, String>,
    /// Selectable fields besides name and namespace.
    pub fields: Vec<(Cow<'static, str>, String)>,
    /// Owners, for garbage collection.
    pub owners: Vec<Owner>,
    /// Finalizers.
    pub finalizers: Vec<String>,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
}

impl Facts {
    /// Reads the facts of a complete object.
    pub fn of(object: &Value, fields: Vec<(Cow<'static, str>, String)>) -> Self {
        let metadata = object.get("metadata");
        let texts = |name: &str| -> Vec<String> {
            let list = metadata.and_then(|m| m.get(name)).and_then(Value::as_array);
            list.map(|l| l.iter().filter_map(Value::as_str).map(str::to_owned).collect()).unwrap_or_default()
        };
        let labels = metadata.and_then(|m| m.get("labels")).and_then(Value::as_object);
        let owners = metadata.and_then(|m| m.get("ownerReferences")).and_then(Value::as_array);
        Self {
            uid: metadata.and_then(|m| m.get("uid")).and_then(Value::as_str).and_then(Uid::parse).unwrap_or(Uid(0)),
            labels: labels
                .map(|l| l.iter().filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect())
                .unwrap_or_default(),
            fields,
            owners: owners.map(|o| o.iter().map(Owner::of).collect()).unwrap_or_default(),
            finalizers: texts("finalizers"),
            deleting: metadata.and_then(|m| m.get("deletionTimestamp")).is_some_and(|t| !t.is_null()),
        }
    }
}

impl Owner {
    fn of(reference: &Value) -> Self {
        let text = |name: &str| reference.get(name).and_then(Value::as_str).unwrap_or_default();
        Self {
            uid: Uid::parse(text("uid")),
            api_version: text("apiVersion").to_owned(),
            kind: text("kind").to_owned(),
            name: text("name").to_owned(),
            blocks: reference.get("blockOwnerDeletion").and_then(Value::as_bool).unwrap_or(false),
        }
    }
}

/// An object ready to be stored: everything but its resource version.
#[derive(Debug)]
pub struct Draft {
    head: Vec<u8>,
    tail: Vec<u8>,
    layout: Layout,
    facts: Arc<Facts>,
}

#[derive(Clone, Debug)]
struct Layout {
    api_version: Range<usize>,
    metadata_at: usize,
    revision: Range<usize>,
}

impl Draft {
    /// Encodes an object. `fields` are its selectable fields.
    pub fn new(object: &Value, fields: Vec<(Cow<'static, str>, String)>) -> Self {
        let facts = Arc::new(Facts::of(object, fields));
        let empty = Map::new();
        let root = object.as_object().unwrap_or(&empty);
        let metadata = root.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
        let mut head = Vec::with_capacity(1024);
        head.extend_from_slice(b"{\"apiVersion\":");
        let start = head.len();
        write(&mut head, root.get("apiVersion").unwrap_or(&Value::Null));
        let api_version = start..head.len();
        head.extend_from_slice(b",\"kind\":");
        write(&mut head, root.get("kind").unwrap_or(&Value::Null));
        head.push(b',');
        let metadata_at = head.len();
        head.extend_from_slice(b"\"metadata\":{");
        for (name, value) in metadata.iter().filter(|(name, _)| *name != "resourceVersion") {
            write_entry(&mut head, name, value);
            head.push(b',');
        }
        head.extend_from_slice(b"\"resourceVersion\":\"");
        let at = head.len();
        let mut tail = Vec::with_capacity(2048);
        tail.extend_from_slice(b"\"}");
        for (name, value) in
            root.iter().filter(|(name, _)| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata"))
        {
            tail.push(b',');
            write_entry(&mut tail, name, value);
        }
        tail.push(b'}');
        Self { head, tail, layout: Layout { api_version, metadata_at, revision: at..at }, facts }
    }

    /// The object under its key at a revision.
    pub fn at(self, key: Key, revision: u64) -> Object {
        let digits = revision.to_string();
        let at = self.layout.revision.start;
        let mut bytes = Vec::with_capacity(self.head.len() + digits.len() + self.tail.len());
        bytes.extend_from_slice(&self.head);
        bytes.extend_from_slice(digits.as_bytes());
        bytes.extend_from_slice(&self.tail);
        let layout = Layout { revision: at..at + digits.len(), ..self.layout };
        Object { key, bytes: bytes.into(), revision, facts: self.facts, layout, parsed: OnceLock::new() }
    }
}

fn write(buffer: &mut Vec<u8>, value: &Value) {
    serde_json::to_writer(buffer, value).expect("writing a JSON value to memory cannot fail");
}

fn write_entry(buffer: &mut Vec<u8>, name: &str, value: &Value) {
    serde_json::to_writer(&mut *buffer, name).expect("writing a string to memory cannot fail");
    buffer.push(b':');
    write(buffer, value);
}

/// A stored object at one revision. Shared by the store, its history and every answer.
#[derive(Debug)]
pub struct Object {
    /// Where it is.
    pub key: Key,
    /// Revision of the last write, its `resourceVersion`.
    pub revision: u64,
    /// What the server knows of it.
    pub facts: Arc<Facts>,
    bytes: Bytes,
    layout: Layout,
    parsed: OnceLock<Arc<Value>>,
}

impl Object {
    /// The JSON in the stored version.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The JSON without its braces and without `apiVersion` and `kind`, as the items of a typed list are written.
    pub fn members(&self) -> &[u8] {
        self.bytes.get(self.layout.metadata_at..).unwrap_or_default()
    }

    /// The JSON with another `apiVersion`.
    pub fn bytes_as(&self, api_version: &str) -> Bytes {
        let Range { start, end } = self.layout.api_version;
        let mut bytes = Vec::with_capacity(self.bytes.len() + api_version.len());
        bytes.extend_from_slice(self.bytes.get(..start).unwrap_or_default());
        write(&mut bytes, &Value::from(api_version));
        bytes.extend_from_slice(self.bytes.get(end..).unwrap_or_default());
        bytes.into()
    }

    /// The same object with another resource version, as it is announced when it is deleted.
    pub fn at(&self, revision: u64) -> Self {
        let digits = revision.to_string();
        let Range { start, end } = self.layout.revision;
        let mut bytes = Vec::with_capacity(self.bytes.len() + digits.len());
        bytes.extend_from_slice(self.bytes.get(..start).unwrap_or_default());
        bytes.extend_from_slice(digits.as_bytes());
        bytes.extend_from_slice(self.bytes.get(end..).unwrap_or_default());
        Self {
            key: self.key.clone(),
            revision,
            facts: Arc::clone(&self.facts),
            bytes: bytes.into(),
            layout: Layout { revision: start..start + digits.len(), ..self.layout.clone() },
            parsed: OnceLock::new(),
        }
    }

    /// The parsed JSON, freshly, to be changed.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_default()
    }

    /// The parsed JSON, kept: for the few objects that every request asks about (namespaces, priority classes, webhooks).
    pub fn shared_value(&self) -> Arc<Value> {
        Arc::clone(self.parsed.get_or_init(|| Arc::new(self.value())))
    }

    /// A selectable field, including name and namespace.
    pub fn field(&self, name: &str) -> Option<&str> {
        match name {
            "metadata.name" => Some(self.key.name()),
            "metadata.namespace" => Some(self.key.namespace().unwrap_or_default()),
            _ => self.facts.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Object {
        let object = json!({"kind": "Pod", "apiVersion": "v1", "spec": {"nodeName": "n"}, "metadata": {
            "name": "a", "namespace": "x", "resourceVersion": "7", "labels": {"app": "a"},
            "uid": "00000000-0000-4000-8000-000000000001"}});
        Draft::new(&object, vec![("spec.nodeName".into(), "n".into())]).at(Key::new(Some("x"), "a"), 41)
    }

    #[test]
    fn stored_json_carries_the_revision_of_its_write() {
        let pod = pod();
        assert_eq!(pod.value()["metadata"]["resourceVersion"], "41");
        assert_eq!(pod.at(1234).value()["metadata"]["resourceVersion"], "1234");
        assert_eq!(pod.at(1234).at(5).value()["metadata"]["resourceVersion"], "5");
    }

    #[test]
    fn another_version_changes_nothing_but_the_api_version() {
        let pod = pod();
        let mut expected = pod.value();
        expected["apiVersion"] = json!("example.com/v2");
        assert_eq!(serde_json::from_slice::<Value>(&pod.bytes_as("example.com/v2")).unwrap(), expected);
    }

    #[test]
    fn members_are_the_object_without_type() {
        let text = format!("{{{}", std::str::from_utf8(pod().members()).unwrap());
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["spec"]["nodeName"], "n");
        assert!(value.get("kind").is_none() && value.get("apiVersion").is_none());
    }

    #[test]
    fn keys_order_as_in_etcd() {
        assert!(Key::new(Some("a-b"), "z") < Key::new(Some("a"), "a"));
        assert_eq!(Key::new(Some("a"), "n").namespace(), Some("a"));
        assert_eq!(Key::new(None, "n").name(), "n");
    }
}
