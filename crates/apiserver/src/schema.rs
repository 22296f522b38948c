//! Structural schemas: what the server knows about the shape of an object.
//!
//! One model serves built-in kinds (from the OpenAPI document of Kubernetes, embedded) and custom ones (from their definition).
//! Four questions are asked of it: which fields exist (pruning, strict validation), which values are allowed (validation, CEL),
//! what a missing field means (defaulting), and how lists merge (strategic patch, server-side apply).

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

mod cel;
mod cel_check;
mod cel_value;
pub mod constraints;
mod format;
mod parse;
pub mod structural;
mod types;

pub use self::cel::{Programs, Purpose, compile_error, uses_old_self};
pub use self::cel_value::Root;
use self::constraints::Constraints;

/// How two versions of a list are merged (`x-kubernetes-list-type`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// Replaced as a whole.
    #[default]
    Atomic,
    /// A set of scalars.
    Set,
    /// Objects identified by these keys.
    Map(Vec<String>),
}

/// How an object is merged (`x-kubernetes-map-type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapType {
    /// Field by field.
    #[default]
    Granular,
    /// Replaced as a whole.
    Atomic,
}

/// `x-kubernetes-patch-strategy` and merge key, for strategic merge patch of built-in kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// Lists are merged by key instead of replaced.
    pub merge: bool,
    /// Keys not named in `$retainKeys` are dropped.
    pub retain_keys: bool,
    /// The key that identifies an element.
    pub merge_key: Option<String>,
}

/// The JSON type of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Type {
    /// No type stated: anything goes.
    #[default]
    Any,
    /// `object`.
    Object,
    /// `array`.
    Array,
    /// `string`.
    String,
    /// `integer`.
    Integer,
    /// `number`.
    Number,
    /// `boolean`.
    Boolean,
    /// `x-kubernetes-int-or-string`, also quantities.
    IntOrString,
}

/// One `x-kubernetes-validations` entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// CEL expression.
    pub rule: String,
    /// Message when it is false.
    pub message: Option<String>,
    /// CEL expression that gives the message.
    pub message_expression: Option<String>,
    /// `FieldValueInvalid` unless stated.
    pub reason: Option<String>,
    /// Path appended to the field in the error.
    pub field_path: Option<String>,
    /// Whether the rule runs when there is no old value.
    pub optional_old_self: bool,
}

/// A schema node. Children are shared; recursion goes through `Definitions` by name.
#[expect(clippy::struct_excessive_bools, reason = "each is a keyword of OpenAPI")]
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// JSON type.
    pub kind: Type,
    /// OpenAPI format.
    pub format: Option<String>,
    /// Help text for `kubectl explain`.
    pub description: Option<String>,
    /// Known fields.
    pub properties: BTreeMap<String, Arc<Schema>>,
    /// Schema of all other fields, if there may be any.
    pub additional: Option<Arc<Schema>>,
    /// Schema of list elements.
    pub items: Option<Arc<Schema>>,
    /// Names that must be there.
    pub required: Vec<String>,
    /// Value taken when the field is missing.
    pub default: Option<Value>,
    /// `null` is a value, not an absence.
    pub nullable: bool,
    /// Unknown fields are kept.
    pub preserve_unknown_fields: bool,
    /// The value is a whole Kubernetes object.
    pub embedded_resource: bool,
    /// How lists merge.
    pub list_type: ListType,
    /// How objects merge.
    pub map_type: MapType,
    /// Strategic merge patch facts.
    pub patch: PatchStrategy,
    /// Allowed values; empty means any.
    pub enumeration: Vec<Value>,
    /// CEL rules.
    pub rules: Vec<Rule>,
    /// What values are allowed beyond their type (`minimum`, `maxLength`, `pattern`, `allOf`, …); `None` when there are no limits.
    pub constraints: Option<Arc<Constraints>>,
    /// The CEL rules compiled, at their first use.
    pub programs: Programs,
    /// Whether this node or any below it has CEL rules.
    pub has_rules: bool,
    /// Name of a shared definition this node stands for (`$ref`). Of the other fields only those that may be stated beside a
    /// reference are then set: description, default, nullable, map type and patch strategy.
    pub reference: Option<String>,
    /// The OpenAPI source of this node when it is the root of a custom resource's schema, for CEL and for publishing.
    pub source: Option<Arc<Value>>,
}

/// Shared definitions of the built-in kinds, by OpenAPI name (`io.k8s.api.core.v1.Pod`).
#[derive(Debug, Default)]
pub struct Definitions {
    /// Name to schema.
    pub by_name: LazySchemas,
}

/// A map from name to schema whose values are made when they are first asked for.
#[derive(Debug)]
pub struct LazySchemas {
    cells: BTreeMap<String, OnceLock<Arc<Schema>>>,
    make: fn(&str) -> Schema,
}

impl Default for LazySchemas {
    fn default() -> Self {
        Self { cells: BTreeMap::new(), make: |_| Schema::default() }
    }
}

impl LazySchemas {
    /// The schema of this name, if there is one.
    pub fn get(&self, name: &str) -> Option<&Arc<Schema>> {
        self.cells.get(name).map(|cell| cell.get_or_init(|| Arc::new((self.make)(name))))
    }

    /// All names in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.cells.keys().map(String::as_str)
    }
}

impl Definitions {
    /// Definitions of these names, made by `make` when they are first asked for.
    pub fn lazy(names: impl Iterator<Item = String>, make: fn(&str) -> Schema) -> Self {
        Self { by_name: LazySchemas { cells: names.map(|name| (name, OnceLock::new())).collect(), make } }
    }
}

impl Schema {
    /// A node that stands for a shared definition.
    pub fn reference_to(name: &str) -> Self {
        Self { reference: Some(name.to_owned()), ..Self::default() }
    }

    /// The node itself, or the built-in definition it refers to.
    pub fn resolved(&self) -> &Self {
        match &self.reference {
            // Definitions are never references themselves, so one step is enough and a loop impossible.
            Some(name) => crate::builtin::definitions().by_name.get(name).map_or(self, Arc::as_ref),
            None => self,
        }
    }

    /// Schema of the field `name`, if such a field may exist.
    pub fn field(&self, name: &str) -> Option<&Self> {
        let schema = self.resolved();
        schema.properties.get(name).or(schema.additional.as_ref()).map(Arc::as_ref)
    }

    /// Schema of list elements.
    pub fn element(&self) -> Option<&Self> {
        self.resolved().items.as_deref()
    }
}
