//! From OpenAPI (version 3, as Kubernetes and CustomResourceDefinitions write it) to [`Schema`].
//!
//! Reading never fails: what a definition may not say is refused before, by `crd::validate`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::constraints::Constraints;
use super::{ListType, MapType, PatchStrategy, Rule, Schema, Type};

/// Deeper nodes accept anything; no JSON document that the server reads is nested so far.
const MAXIMUM_DEPTH: usize = 128;

impl Schema {
    /// Reads a node of an OpenAPI document and everything below it.
    pub fn parse(source: &Value) -> Self {
        parse(source, 0)
    }

    /// As [`Schema::parse`], for the root of a custom resource: keeps the source for publishing.
    pub fn parse_root(source: &Value) -> Self {
        Self { source: Some(Arc::new(source.clone())), ..Self::parse(source) }
    }
}

fn parse(source: &Value, depth: usize) -> Schema {
    let Some(node) = source.as_object().filter(|_| depth < MAXIMUM_DEPTH) else {
        return Schema { preserve_unknown_fields: true, ..Schema::default() };
    };
    let flag = |key: &str| node.get(key).and_then(Value::as_bool).unwrap_or_default();
    let child = |value: &Value| Arc::new(parse(value, depth + 1));
    let reference = reference(node);
    let mut schema = Schema {
        kind: kind(node),
        format: text(node, "format"),
        description: text(node, "description"),
        default: node.get("default").cloned(),
        nullable: flag("nullable"),
        preserve_unknown_fields: flag("x-kubernetes-preserve-unknown-fields"),
        embedded_resource: flag("x-kubernetes-embedded-resource"),
        list_type: list_type(node),
        map_type: match node.get("x-kubernetes-map-type").and_then(Value::as_str) {
            Some("atomic") => MapType::Atomic,
            _ => MapType::Granular,
        },
        patch: patch_strategy(node),
        ..Schema::default()
    };
    if reference.is_some() {
        schema.reference = reference;
        return schema;
    }
    schema.properties = match node.get("properties").and_then(Value::as_object) {
        Some(properties) => properties.iter().map(|(name, value)| (name.clone(), child(value))).collect(),
        None => BTreeMap::new(),
    };
    schema.additional = match node.get("additionalProperties") {
        // Any value, but nothing is known of the fields of objects: those are pruned.
        Some(Value::Bool(true)) => Some(Arc::new(Schema { nullable: true, ..Schema::default() })),
        Some(value @ Value::Object(_)) => Some(child(value)),
        _ => None,
    };
    schema.items = node.get("items").filter(|v| v.is_object()).map(child);
    schema.required = strings(node, "required");
    schema.enumeration = node.get("enum").and_then(Value::as_array).cloned().unwrap_or_default();
    schema.rules =
        node.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten().map(rule).collect();
    schema.constraints = Constraints::parse(node, &|value| parse(value, depth + 1)).map(Arc::new);
    schema.has_rules = has_rules(&schema);
    schema
}

/// `$ref`, alone or as the only member of `allOf` (OpenAPI 3.0 allows no siblings of `$ref`).
fn reference(node: &Map<String, Value>) -> Option<String> {
    let target = match (node.get("$ref"), node.get("allOf").and_then(Value::as_array).map(Vec::as_slice)) {
        (Some(target), _) => target,
        (None, Some([only])) => only.get("$ref")?,
        _ => return None,
    };
    target.as_str()?.rsplit('/').next().map(str::to_owned)
}

fn kind(node: &Map<String, Value>) -> Type {
    let int_or_string = node.get("x-kubernetes-int-or-string").and_then(Value::as_bool).unwrap_or_default();
    if int_or_string || node.get("format").and_then(Value::as_str) == Some("int-or-string") {
        return Type::IntOrString;
    }
    match node.get("type").and_then(Value::as_str) {
        Some("object") => Type::Object,
        Some("array") => Type::Array,
        Some("string") => Type::String,
        Some("integer") => Type::Integer,
        Some("number") => Type::Number,
        Some("boolean") => Type::Boolean,
        _ => Type::Any,
    }
}

fn list_type(node: &Map<String, Value>) -> ListType {
    match node.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(strings(node, "x-kubernetes-list-map-keys")),
        _ => ListType::Atomic,
    }
}

fn patch_strategy(node: &Map<String, Value>) -> PatchStrategy {
    let strategies = node.get("x-kubernetes-patch-strategy").and_then(Value::as_str).unwrap_or_default();
    PatchStrategy {
        merge: strategies.split(',').any(|s| s == "merge"),
        retain_keys: strategies.split(',').any(|s| s == "retainKeys"),
        merge_key: text(node, "x-kubernetes-patch-merge-key"),
    }
}

fn rule(source: &Value) -> Rule {
    let empty = Map::new();
    let node = source.as_object().unwrap_or(&empty);
    Rule {
        rule: text(node, "rule").unwrap_or_default(),
        message: text(node, "message").filter(|m| !m.is_empty()),
        message_expression: text(node, "messageExpression").filter(|m| !m.is_empty()),
        reason: text(node, "reason"),
        field_path: text(node, "fieldPath").filter(|p| !p.is_empty()),
        optional_old_self: node.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or_default(),
    }
}

fn has_rules(schema: &Schema) -> bool {
    let children = schema.properties.values().chain(&schema.additional).chain(&schema.items);
    let branches = schema.constraints.iter().flat_map(|c| &c.all_of);
    !schema.rules.is_empty() || children.into_iter().any(|c| c.has_rules) || branches.into_iter().any(|b| b.has_rules)
}

fn text(node: &Map<String, Value>, key: &str) -> Option<String> {
    node.get(key).and_then(Value::as_str).map(str::to_owned)
}

fn strings(node: &Map<String, Value>, key: &str) -> Vec<String> {
    let list = node.get(key).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}
