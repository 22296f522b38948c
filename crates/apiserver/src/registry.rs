//! Which resources are served right now: the built-in ones and those of every established CustomResourceDefinition.
//!
//! A registry never changes; a definition that comes or goes makes a new one, which is swapped in as a whole. Requests keep the
//! one they began with. All versions of a resource share one storage key and are kept in one stored version.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;

use crate::object::{Key, Object};
use crate::resource::{Gvk, Origin, Resource, Scope};
use crate::store::Snapshot;
use crate::{builtin, crd, event_conversion, openapi};

/// Where the objects of a resource are kept, in which version.
#[derive(Debug)]
pub struct Storage {
    /// Name of the table.
    pub key: Arc<str>,
    /// Group, version and kind of the stored JSON.
    pub gvk: Gvk,
    /// `apiVersion` of the stored JSON.
    pub api_version: String,
    /// Whether objects live in namespaces.
    pub scope: Scope,
}

/// How the stored form becomes the served one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Conversion {
    /// They are the same.
    None,
    /// Only `apiVersion` differs.
    Version,
    /// `events.k8s.io` over core events.
    Events,
}

/// One served resource with its storage.
#[derive(Debug)]
pub struct Entry {
    /// Names, verbs, schema.
    pub resource: Arc<Resource>,
    /// Where the objects are.
    pub storage: Arc<Storage>,
    /// `apiVersion` as served.
    pub api_version: String,
    conversion: Conversion,
}

impl Entry {
    /// The JSON of a stored object in the served version.
    pub fn served_bytes(&self, object: &Object) -> Bytes {
        match self.conversion {
            Conversion::None => object.bytes().clone(),
            Conversion::Version => object.bytes_as(&self.api_version),
            Conversion::Events => {
                serde_json::to_vec(&self.served(object)).map_or_else(|_| object.bytes().clone(), Bytes::from)
            }
        }
    }

    /// Whether stored JSON can be sent as it is, without type, in a list of this resource.
    pub fn lists_members(&self) -> bool {
        self.is_builtin() && self.conversion != Conversion::Events
    }

    /// A stored object, parsed, in the served version.
    pub fn served(&self, object: &Object) -> Value {
        let mut value = object.value();
        self.to_served(&mut value);
        value
    }

    /// Turns the stored form into the served one.
    pub fn to_served(&self, value: &mut Value) {
        match self.conversion {
            Conversion::None => {}
            Conversion::Version => set(value, "apiVersion", &self.api_version),
            Conversion::Events => event_conversion::to_events_group(value),
        }
    }

    /// The stored form of an object in the served one.
    pub fn stored<'a>(&self, value: &'a Value) -> Cow<'a, Value> {
        let mut stored = Cow::Borrowed(value);
        match self.conversion {
            Conversion::None => {}
            Conversion::Version => set(stored.to_mut(), "apiVersion", &self.storage.api_version),
            Conversion::Events => event_conversion::to_core_group(stored.to_mut()),
        }
        stored
    }

    /// Whether this is a kind of Kubernetes itself.
    pub fn is_builtin(&self) -> bool {
        matches!(self.resource.origin, Origin::BuiltIn)
    }

    /// Whether objects live in namespaces.
    pub fn is_namespaced(&self) -> bool {
        self.storage.scope == Scope::Namespaced
    }
}

fn set(value: &mut Value, name: &str, text: &str) {
    if let Some(map) = value.as_object_mut() {
        map.insert(name.to_owned(), Value::from(text));
    }
}

/// Everything that is served.
#[derive(Debug, Default)]
pub struct Registry {
    resources: Vec<Arc<Resource>>,
    entries: HashMap<String, Arc<Entry>>,
    by_kind: HashMap<(String, String), Arc<Entry>>,
    by_storage: BTreeMap<Arc<str>, Arc<Entry>>,
    groups: BTreeMap<String, GroupOrigin>,
    definitions: BTreeMap<Key, Definition>,
    documents: OnceLock<parking_lot::Mutex<BTreeMap<String, Bytes>>>,
}

/// What a CustomResourceDefinition at one revision defines.
#[derive(Clone, Debug)]
struct Definition {
    revision: u64,
    served: Vec<Arc<Resource>>,
    /// The version objects are stored in.
    stored: Option<String>,
}

impl Definition {
    fn of(object: &Object) -> Self {
        let value = object.shared_value();
        let versions = value.pointer("/spec/versions").and_then(Value::as_array);
        let stored = versions
            .and_then(|versions| versions.iter().find(|version| version.get("storage") == Some(&Value::Bool(true))))
            .and_then(|version| version.get("name"))
            .and_then(Value::as_str);
        Self {
            revision: object.revision,
            served: crd::resources(&value).into_iter().map(Arc::new).collect(),
            stored: stored.map(str::to_owned),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupOrigin {
    BuiltIn,
    Custom,
}

impl Registry {
    /// The built-in resources and those of `definitions`. What `previous` made of a definition that did not change is taken over, so
    /// that its schema is parsed and its rules are compiled once.
    pub fn new(previous: &Self, definitions: &Snapshot) -> Self {
        let mut registry = Self::default();
        for resource in builtin::resources() {
            registry.add_builtin(Arc::clone(resource));
        }
        for (key, object) in definitions {
            let known = previous.definitions.get(key).filter(|known| known.revision == object.revision);
            let definition = known.cloned().unwrap_or_else(|| Definition::of(object));
            registry.add_definition(&definition);
            registry.definitions.insert(key.clone(), definition);
        }
        registry
    }

    fn add_builtin(&mut self, resource: Arc<Resource>) {
        let (gvk, conversion) = match (resource.gvk.group.as_str(), resource.plural.as_str()) {
            ("events.k8s.io", "events") => (Gvk::new("", "v1", "Event"), Conversion::Events),
            ("autoscaling", "horizontalpodautoscalers") if resource.gvk.version != "v2" => {
                (Gvk::new("autoscaling", "v2", &resource.gvk.kind), Conversion::Version)
            }
            _ => (resource.gvk.clone(), Conversion::None),
        };
        let key = if conversion == Conversion::Events { "events".to_owned() } else { resource.storage_key() };
        let storage = Storage { key: key.into(), api_version: gvk.api_version(), gvk, scope: resource.scope };
        self.groups.insert(group_version(&resource.gvk), GroupOrigin::BuiltIn);
        self.add(resource, &Arc::new(storage), conversion);
    }

    fn add_definition(&mut self, definition: &Definition) {
        let Some(first) = definition.served.first() else { return };
        let gvk = Gvk {
            version: definition.stored.clone().unwrap_or_else(|| first.gvk.version.clone()),
            ..first.gvk.clone()
        };
        let storage = Arc::new(Storage {
            key: first.storage_key().into(),
            api_version: gvk.api_version(),
            gvk,
            scope: first.scope,
        });
        for resource in &definition.served {
            let conversion =
                if resource.gvk.version == storage.gvk.version { Conversion::None } else { Conversion::Version };
            self.groups.entry(group_version(&resource.gvk)).or_insert(GroupOrigin::Custom);
            self.add(Arc::clone(resource), &storage, conversion);
        }
    }

    fn add(&mut self, resource: Arc<Resource>, storage: &Arc<Storage>, conversion: Conversion) {
        let gvk = &resource.gvk;
        let entry = Arc::new(Entry {
            api_version: gvk.api_version(),
            resource: Arc::clone(&resource),
            storage: Arc::clone(storage),
            conversion,
        });
        let path = path_of(&gvk.group, &gvk.version, &resource.plural);
        let stores_objects = resource.verbs.iter().any(|verb| verb == "get");
        if stores_objects {
            if conversion != Conversion::Events {
                self.by_kind.entry((gvk.group.clone(), gvk.kind.clone())).or_insert_with(|| Arc::clone(&entry));
            }
            let known = self.by_storage.entry(Arc::clone(&storage.key)).or_insert_with(|| Arc::clone(&entry));
            if conversion == Conversion::None {
                *known = Arc::clone(&entry);
            }
        }
        self.entries.insert(path, entry);
        self.resources.push(resource);
    }

    /// Every served resource, for discovery.
    pub fn resources(&self) -> &[Arc<Resource>] {
        &self.resources
    }

    /// The resource at `group`, `version`, `plural`.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Entry>> {
        self.entries.get(&path_of(group, version, plural))
    }

    /// The resource of a kind, in any version that is served.
    pub fn find_kind(&self, group: &str, kind: &str) -> Option<&Arc<Entry>> {
        self.by_kind.get(&(group.to_owned(), kind.to_owned()))
    }

    /// The resource of a storage key, in the stored version if that is served.
    pub fn find_storage(&self, key: &str) -> Option<&Arc<Entry>> {
        self.by_storage.get(key)
    }

    /// Whether `group/version` is one of Kubernetes itself. A real server answers unknown resources there with a `Status`, elsewhere
    /// with plain text.
    pub fn is_builtin_version(&self, group: &str, version: &str) -> bool {
        self.groups.get(&format!("{group}/{version}")) == Some(&GroupOrigin::BuiltIn)
    }

    /// Whether anything is served at `group/version`.
    pub fn has_version(&self, group: &str, version: &str) -> bool {
        self.groups.contains_key(&format!("{group}/{version}"))
    }

    /// Whether Kubernetes itself serves something in the group.
    pub fn is_builtin_group(&self, group: &str) -> bool {
        self.resources.iter().any(|r| r.gvk.group == group && matches!(r.origin, Origin::BuiltIn))
    }

    /// Whether anything is served in the group.
    pub fn has_group(&self, group: &str) -> bool {
        self.resources.iter().any(|r| r.gvk.group == group)
    }

    /// The OpenAPI v3 document at `path` (`""` is the index), built when first asked for.
    pub fn openapi(&self, path: &str) -> Option<Bytes> {
        let cache = self.documents.get_or_init(parking_lot::Mutex::default);
        if let Some(document) = cache.lock().get(path) {
            return Some(document.clone());
        }
        let document =
            if path.is_empty() { openapi::index(&self.resources) } else { openapi::document(path, &self.resources)? };
        let document = Bytes::from(serde_json::to_vec(&document).ok()?);
        cache.lock().insert(path.to_owned(), document.clone());
        Some(document)
    }
}

fn group_version(gvk: &Gvk) -> String {
    format!("{}/{}", gvk.group, gvk.version)
}

fn path_of(group: &str, version: &str, plural: &str) -> String {
    format!("{group}/{version}/{plural}")
}
