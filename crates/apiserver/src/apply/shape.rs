//! How a value merges: as a whole, field by field, or element by element.
//!
//! A [`Kind`] is what is known of a value before looking at it: a schema node, or nothing. Without a schema the kind is
//! *deduced*: objects merge field by field, everything else as a whole. Below a whole value all is *untyped*.
//!
//! Typed objects of Kubernetes always have their struct fields, even when JSON omits them; [`Kind::zero`] tells which, because
//! such a field is never added or removed, only what is in it. The published schemas mark most of them with the default `{}`.

use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value};

use super::fields::{element_key, value_key};
use crate::patch::MAXIMUM_DEPTH;
use crate::schema::{ListType, MapType, Schema, Type};

const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Fields that are a time and no pointer to one, wherever they occur in Kubernetes; the published schemas do not tell these apart.
const ALWAYS_PRESENT_TIMES: [&str; 13] = [
    "creationTimestamp",
    "deprecatedFirstTimestamp",
    "deprecatedLastTimestamp",
    "eventTime",
    "finishedAt",
    "firstTimestamp",
    "lastHeartbeatTime",
    "lastObservedTime",
    "lastProbeTime",
    "lastTimestamp",
    "lastTransitionTime",
    "lastUpdateTime",
    "startedAt",
];

/// Whether an object is decoded into a typed struct by a real server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    BuiltIn,
    Custom,
}

/// What is known of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind<'a> {
    /// Described by a schema node.
    Known {
        /// The node, which may refer to a definition.
        node: &'a Schema,
        /// Where the root schema comes from.
        origin: Origin,
        /// An ancestor keeps unknown fields.
        open: bool,
    },
    /// Nothing known: objects merge by field.
    Deduced,
    /// Nothing known, part of a value that is one whole.
    Untyped,
}

/// How a value of some kind merges.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape<'a> {
    /// As a whole: scalars, atomic lists and objects.
    Whole,
    /// Field by field.
    Fields(Kind<'a>),
    /// A list whose elements are identified by their value.
    Set,
    /// A list whose elements are identified by some of their fields.
    Keyed {
        /// Names of those fields.
        keys: &'a [String],
        /// Kind of the elements.
        element: Kind<'a>,
    },
}

impl<'a> Kind<'a> {
    /// The kind of a whole object.
    pub(super) fn root(schema: Option<&'a Schema>) -> Self {
        match schema {
            None => Self::Deduced,
            Some(node) => {
                let resolved = node.resolved();
                // The definition of a custom resource says nothing about metadata but that it is an object.
                let custom = resolved.source.is_some()
                    || resolved.properties.get("metadata").is_none_or(|m| m.resolved().properties.is_empty());
                let origin = if custom { Origin::Custom } else { Origin::BuiltIn };
                Self::Known { node, origin, open: resolved.preserve_unknown_fields }
            }
        }
    }

    /// The kind of `metadata` of a whole object of this kind.
    pub(super) fn metadata(self) -> Self {
        match self {
            Self::Known { origin: Origin::Custom, .. } => {
                let known = crate::builtin::definitions().by_name.get(OBJECT_META);
                let node = known.map_or(&*OBJECT_META_CORE, |m| m.as_ref());
                Self::Known { node, origin: Origin::Custom, open: false }
            }
            other => other.field("metadata").0,
        }
    }

    /// The kind of a field, and whether the schema names it.
    pub(super) fn field(self, name: &str) -> (Self, bool) {
        match self {
            Self::Known { node, origin, open } => {
                let schema = node.resolved();
                let open = open || schema.preserve_unknown_fields;
                match (schema.properties.get(name), &schema.additional) {
                    (Some(child), _) => (Self::Known { node: child, origin, open }, true),
                    (None, Some(child)) => (Self::Known { node: child, origin, open }, false),
                    (None, None) => (Self::Deduced, false),
                }
            }
            Self::Deduced => (Self::Deduced, false),
            Self::Untyped => (Self::Untyped, false),
        }
    }

    /// The kind of list elements.
    pub(super) fn element(self) -> Self {
        match self {
            Self::Known { node, origin, open } => {
                node.element().map_or(Self::Untyped, |node| Self::Known { node, origin, open })
            }
            _ => Self::Untyped,
        }
    }

    /// How `value` merges when it is of this kind. `null` takes the shape that its type would have.
    pub(super) fn shape(self, value: &Value) -> Shape<'a> {
        let node = match self {
            Self::Deduced if matches!(value, Value::Object(_) | Value::Null) => return Shape::Fields(self),
            Self::Deduced | Self::Untyped => return Shape::Whole,
            Self::Known { node, .. } => node,
        };
        if matches!(node.reference.as_deref(), Some(RAW_EXTENSION | QUANTITY)) {
            return Shape::Whole;
        }
        let schema = node.resolved();
        match (schema.kind, value) {
            (Type::Object | Type::Any, Value::Object(_) | Value::Null) => {
                if node.map_type == MapType::Atomic || schema.map_type == MapType::Atomic {
                    Shape::Whole
                } else {
                    Shape::Fields(self)
                }
            }
            (Type::Array | Type::Any, Value::Array(_)) | (Type::Array, Value::Null) => {
                let list_type = if node.list_type == ListType::Atomic { &schema.list_type } else { &node.list_type };
                match list_type {
                    ListType::Atomic => Shape::Whole,
                    ListType::Set => Shape::Set,
                    ListType::Map(keys) => Shape::Keyed { keys, element: self.element() },
                }
            }
            _ => Shape::Whole,
        }
    }

    /// The fields that every typed object of this kind has, and what they are when JSON omits them.
    pub(super) fn struct_fields(self) -> impl Iterator<Item = (&'a str, &'static Value)> {
        let properties = match self {
            Self::Known { node, origin: Origin::BuiltIn, .. } => Some(&node.resolved().properties),
            _ => None,
        };
        properties.into_iter().flatten().filter_map(|(name, node)| Some((name.as_str(), empty_struct(name, node)?)))
    }

    /// What a typed object has in the field `name` of this kind when JSON omits it: a struct, or the zero of a required field.
    pub(super) fn zero(self, name: &str) -> Option<&'static Value> {
        static TEXT: LazyLock<Value> = LazyLock::new(|| Value::String(String::new()));
        static ZERO: LazyLock<Value> = LazyLock::new(|| Value::from(0));
        let Self::Known { node, origin: Origin::BuiltIn, .. } = self else { return None };
        let schema = node.resolved();
        let child = schema.properties.get(name)?;
        if let Some(empty) = empty_struct(name, child) {
            return Some(empty);
        }
        if !schema.required.iter().any(|r| r == name) {
            return None;
        }
        match child.resolved().kind {
            Type::String => Some(&TEXT),
            Type::Integer | Type::Number => Some(&ZERO),
            Type::Boolean => Some(&Value::Bool(false)),
            Type::Any | Type::IntOrString => None,
            Type::Array | Type::Object => Some(&Value::Null),
        }
    }

    /// The step to an element of a keyed list, or why there is none.
    pub(super) fn element_key(self, keys: &[String], element: &Value) -> Result<String, String> {
        let fields = match element {
            Value::Object(fields) => fields,
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        let find = |name: &str| match fields.get(name) {
            Some(value) => Some(value),
            None => match self.field(name).0 {
                Kind::Known { node, .. } => node.default.as_ref(),
                _ => None,
            },
        };
        if let [name] = keys {
            if let Some(value) = find(name) {
                return Ok(element_key(std::iter::once((name.as_str(), value))));
            }
        } else {
            let mut found: Vec<(&str, &Value)> =
                keys.iter().filter_map(|name| Some((name.as_str(), find(name)?))).collect();
            found.sort_unstable_by_key(|(name, _)| *name);
            if !found.is_empty() {
                return Ok(element_key(found.into_iter()));
            }
        }
        let names = keys.iter().map(|k| format!("{k:?}")).collect::<Vec<_>>().join(" ");
        Err(format!(
            "associative list with keys has an element that omits all key fields [{names}] (and doesn't have default values for any key fields)"
        ))
    }
}

/// What a field of struct type is when it is empty; `None` when the field is of another type and so may be missing.
fn empty_struct(name: &str, node: &Schema) -> Option<&'static Value> {
    let is_struct = node.default.as_ref().and_then(Value::as_object).is_some_and(Map::is_empty);
    if is_struct && node.resolved().kind == Type::Object {
        return Some(empty_object());
    }
    let may_be_time = name.ends_with("Time") || name.ends_with("Timestamp") || name.ends_with("At");
    if may_be_time && ALWAYS_PRESENT_TIMES.contains(&name) { Some(&Value::Null) } else { None }
}

/// The step to an element of a set, or why there is none.
pub(super) fn set_key(element: &Value) -> Result<String, String> {
    match element {
        Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
        Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
        Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
        scalar => Ok(value_key(scalar)),
    }
}

impl Shape<'_> {
    /// Whether both are the same way to merge.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// The parts of `ObjectMeta` that do not merge by field, for servers without built-in definitions.
static OBJECT_META_CORE: LazyLock<Schema> = LazyLock::new(|| {
    let text = Arc::new(Schema { kind: Type::String, ..Schema::default() });
    let object = Schema { kind: Type::Object, ..Schema::default() };
    let texts = Schema { additional: Some(text.clone()), ..object.clone() };
    let list = |items: Arc<Schema>, list_type: ListType| {
        Arc::new(Schema { kind: Type::Array, items: Some(items), list_type, ..Schema::default() })
    };
    let properties = [
        ("labels", Arc::new(texts.clone())),
        ("annotations", Arc::new(texts)),
        ("finalizers", list(text, ListType::Set)),
        (
            "ownerReferences",
            list(
                Arc::new(Schema { map_type: MapType::Atomic, ..object.clone() }),
                ListType::Map(vec!["uid".to_owned()]),
            ),
        ),
    ];
    Schema {
        preserve_unknown_fields: true,
        properties: properties.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect(),
        ..object
    }
});

/// Drops `null` fields wherever the shape is known; values that are one whole keep theirs.
pub(super) fn drop_nulls(kind: Kind<'_>, value: &mut Value, depth: usize) {
    let Kind::Known { node, .. } = kind else { return };
    if depth > MAXIMUM_DEPTH {
        return;
    }
    let free_form = node.resolved().properties.is_empty() && node.resolved().additional.is_none();
    match value {
        Value::Object(fields) if !free_form => {
            fields.retain(|_, value| !value.is_null());
            for (name, value) in fields.iter_mut() {
                drop_nulls(kind.field(name).0, value, depth + 1);
            }
        }
        Value::Array(items) => {
            let element = kind.element();
            for item in items {
                drop_nulls(element, item, depth + 1);
            }
        }
        _ => {}
    }
}

/// An object without fields.
pub(super) fn empty_object() -> &'static Value {
    static EMPTY: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));
    &EMPTY
}

/// No fields.
pub(super) fn no_fields() -> &'static Map<String, Value> {
    static EMPTY: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
    &EMPTY
}

/// Equality of values in which numbers are numbers: 1 is 1.0.
pub(super) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(a), Value::Number(b)) => a == b || (a.is_f64() != b.is_f64() && a.as_f64() == b.as_f64()),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((k, a), (l, b))| k == l && same(a, b))
        }
        _ => left == right,
    }
}
