//! What a schema in a definition may say: allowed keywords, list types, defaults that fit, CEL rules that compile.

use serde_json::Value;

use super::{flag, list, strings, structure, text};
use crate::schema::structural;
use crate::schema::{Purpose, Root, Schema, compile_error, uses_old_self};
use crate::status::FieldError;

const MAXIMUM_DEPTH: usize = 128;
const OBJECT_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];
const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
/// Keywords at the root that survive when `status` is validated on its own.
const AT_ROOT: [&str; 22] = [
    "description",
    "type",
    "format",
    "title",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "required",
    "items",
    "properties",
    "externalDocs",
    "example",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];

/// What is wrong with the schema of a version, at `path`.
pub(super) fn check(schema: &Value, path: &str, has_status: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if has_status {
        if text(schema, "type") != "object" && schema.get("type").is_some() {
            let why =
                "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
            errors.push(FieldError::invalid(format!("{path}.type"), &schema["type"], why));
        }
        if schema.as_object().into_iter().flatten().any(|(key, _)| !AT_ROOT.contains(&key.as_str())) {
            let why = "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the status subresource is enabled";
            errors.push(FieldError::invalid(path, schema, why));
        }
    }
    if flag(schema, "nullable") {
        errors.push(FieldError::forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
    }
    let structure = structure::check(schema, path);
    let structural = structure.is_empty();
    errors.extend(structure);
    let wrong_defaults = if structural { defaults(&Schema::parse(schema), path, 0) } else { Vec::new() };
    let rules = structural && wrong_defaults.is_empty();
    errors.extend(wrong_defaults);
    let mut walker = Walker { errors: Vec::new(), rule_errors: Vec::new(), rules };
    walker.node(schema, path, &Place { root: true, ..Place::default() }, 0);
    errors.extend(walker.errors);
    errors.extend(walker.rule_errors);
    errors
}

/// Defaults that their own schema would refuse.
fn defaults(schema: &Schema, path: &str, depth: usize) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if depth > MAXIMUM_DEPTH {
        return errors;
    }
    if let Some(default) = &schema.default {
        let place = format!("{path}.default");
        let mut pruned = serde_json::json!({ "default": default });
        let wrapper = Schema {
            kind: crate::schema::Type::Object,
            properties: [("default".to_owned(), std::sync::Arc::new(schema.clone()))].into(),
            ..Schema::default()
        };
        structural::prune(&wrapper, &mut pruned);
        if pruned["default"] != *default {
            errors.push(FieldError::invalid(place.clone(), default, "must not have unknown fields"));
        }
        for error in structural::validate(schema, default, None) {
            let field = match error.field.as_str() {
                "<nil>" => place.clone(),
                inner if inner.starts_with('[') => format!("{place}{inner}"),
                inner => format!("{place}.{inner}"),
            };
            errors.push(FieldError { field, ..error });
        }
    }
    for (name, child) in &schema.properties {
        errors.extend(defaults(child, &format!("{path}.properties[{name}]"), depth + 1));
    }
    if let Some(items) = &schema.items {
        errors.extend(defaults(items, &format!("{path}.items"), depth + 1));
    }
    errors
}

/// Where in a schema the walk is.
#[derive(Clone, Default)]
struct Place {
    root: bool,
    /// Below type or metadata of a whole object.
    inside_metadata: bool,
    /// Why a default may not be here.
    no_defaults: Option<String>,
    /// Path of the list above whose elements have no counterpart before an update.
    uncorrelated: Option<String>,
    /// Below `allOf`, `anyOf`, `oneOf` or `not`.
    nested: bool,
}

struct Walker {
    errors: Vec<FieldError>,
    rule_errors: Vec<FieldError>,
    rules: bool,
}

impl Walker {
    fn node(&mut self, schema: &Value, path: &str, place: &Place, depth: usize) {
        let Some(node) = schema.as_object().filter(|_| depth < MAXIMUM_DEPTH) else { return };
        let before = self.errors.len();
        self.keywords(schema, path, place);
        let properties = node.get("properties").and_then(Value::as_object);
        if let Some(additional) = node.get("additionalProperties").filter(|a| !a.is_null()) {
            if properties.is_some_and(|p| !p.is_empty()) && *additional != Value::Bool(true) {
                let why = "additionalProperties and properties are mutual exclusive";
                self.errors.push(FieldError::forbidden(format!("{path}.additionalProperties"), why));
            }
            let mut inner = Place { root: false, ..place.clone() };
            if place.inside_metadata {
                inner.no_defaults = Some("inside additionalProperties applying to object metadata".to_owned());
            }
            self.node(additional, &format!("{path}.additionalProperties"), &inner, depth + 1);
        }
        for (name, child) in properties.into_iter().flatten() {
            let mut inner = Place { root: false, ..place.clone() };
            if (place.root || flag(schema, "x-kubernetes-embedded-resource")) && OBJECT_FIELDS.contains(&name.as_str())
            {
                inner.inside_metadata = true;
                if place.root {
                    inner.no_defaults = Some(format!("in top-level {name}"));
                }
            }
            self.node(child, &format!("{path}.properties[{name}]"), &inner, depth + 1);
        }
        let nested = Place { root: false, nested: true, ..place.clone() };
        if let Some(not) = node.get("not") {
            self.node(not, &format!("{path}.not"), &nested, depth + 1);
        }
        for key in ["allOf", "oneOf", "anyOf"] {
            for (index, child) in list(schema, key).enumerate() {
                self.node(child, &format!("{path}.{key}[{index}]"), &nested, depth + 1);
            }
        }
        if let Some(items) = node.get("items") {
            let mut inner = Place { root: false, ..place.clone() };
            if text(schema, "x-kubernetes-list-type") != "map" && inner.uncorrelated.is_none() {
                inner.uncorrelated = Some(path.to_owned());
            }
            self.node(items, &format!("{path}.items"), &inner, depth + 1);
        }
        self.list_type(schema, path);
        self.rules(schema, path, place, before);
    }

    fn keywords(&mut self, schema: &Value, path: &str, place: &Place) {
        let kind = text(schema, "type");
        if kind == "null" {
            let why = "type cannot be set to null, use nullable as an alternative";
            self.errors.push(FieldError::forbidden(format!("{path}.type"), why));
        } else if !kind.is_empty() && !TYPES.contains(&kind.as_str()) {
            self.errors.push(FieldError::not_supported(format!("{path}.type"), &Value::from(kind.as_str()), &TYPES));
        }
        if let Some(why) = &place.no_defaults
            && schema.get("default").is_some_and(|d| !d.is_null())
        {
            self.errors.push(FieldError::forbidden(format!("{path}.default"), format!("must not be set {why}")));
        }
        for key in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
            if schema.get(key).is_some_and(|v| !v.is_null()) {
                self.errors.push(FieldError::forbidden(format!("{path}.{key}"), format!("{key} is not supported")));
            }
        }
        if schema.get("items").is_some_and(Value::is_array) {
            let why = "items must be a schema object and not an array";
            self.errors.push(FieldError::forbidden(format!("{path}.items"), why));
        }
        if place.inside_metadata && flag(schema, "x-kubernetes-embedded-resource") {
            let why = "must not be used inside of resource meta";
            self.errors.push(FieldError::forbidden(format!("{path}.x-kubernetes-embedded-resource"), why));
        }
        if flag(schema, "uniqueItems") {
            let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.errors.push(FieldError::forbidden(format!("{path}.uniqueItems"), why));
        }
        if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
            let place = format!("{path}.x-kubernetes-preserve-unknown-fields");
            self.errors.push(FieldError::invalid(place, &Value::Bool(false), "must be true or undefined"));
        }
    }

    fn must_be(&mut self, schema: &Value, path: &str, expected: &str, keyword: &str) {
        let kind = text(schema, "type");
        let why = format!("must be {expected} if {keyword} is specified");
        if kind.is_empty() {
            self.errors.push(FieldError::required(format!("{path}.type"), &why));
        } else if kind != expected {
            self.errors.push(FieldError::invalid(format!("{path}.type"), &Value::from(kind), why));
        }
    }

    fn list_type(&mut self, schema: &Value, path: &str) {
        let at = |key: &str| format!("{path}.{key}");
        if let Some(map_type) = schema.get("x-kubernetes-map-type") {
            self.must_be(schema, path, "object", "x-kubernetes-map-type");
            if map_type != "atomic" && map_type != "granular" {
                let supported = ["atomic", "granular"];
                self.errors.push(FieldError::not_supported(at("x-kubernetes-map-type"), map_type, &supported));
            }
        }
        let keys = strings(schema, "x-kubernetes-list-map-keys");
        let Some(list_type) = schema.get("x-kubernetes-list-type") else {
            if !keys.is_empty() {
                let why = "must be map if x-kubernetes-list-map-keys is non-empty";
                self.errors.push(FieldError::required(at("x-kubernetes-list-type"), why));
            }
            return;
        };
        self.must_be(schema, path, "array", "x-kubernetes-list-type");
        let items = schema.get("items").unwrap_or(&Value::Null);
        if list_type == "set" {
            let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
            if text(items, "type") == "object" && text(items, "x-kubernetes-map-type") != "atomic" {
                let value = items.get("x-kubernetes-map-type").unwrap_or(&Value::Null);
                self.errors.push(FieldError::invalid(at("items.x-kubernetes-map-type"), value, why));
            }
            let inner = text(items, "x-kubernetes-list-type");
            if text(items, "type") == "array" && !inner.is_empty() && inner != "atomic" {
                self.errors.push(FieldError::invalid(at("items.x-kubernetes-list-type"), &Value::from(inner), why));
            }
        } else if list_type != "atomic" && list_type != "map" {
            let supported = ["atomic", "set", "map"];
            self.errors.push(FieldError::not_supported(at("x-kubernetes-list-type"), list_type, &supported));
        }
        if list_type != "map" && !keys.is_empty() {
            let why = "must be map if x-kubernetes-list-map-keys is non-empty";
            self.errors.push(FieldError::invalid(at("x-kubernetes-list-type"), list_type, why));
        }
        if (list_type == "map" || list_type == "set") && flag(items, "nullable") {
            let why =
                format!("cannot be nullable when x-kubernetes-list-type is {}", list_type.as_str().unwrap_or_default());
            self.errors.push(FieldError::forbidden(at("items.nullable"), why));
        }
        if list_type == "map" {
            self.list_map(schema, items, &keys, path);
        }
    }

    fn list_map(&mut self, schema: &Value, items: &Value, keys: &[String], path: &str) {
        let at = |key: &str| format!("{path}.{key}");
        if keys.is_empty() {
            let why = "must not be empty if x-kubernetes-list-type is map";
            self.errors.push(FieldError::required(at("x-kubernetes-list-map-keys"), why));
        }
        if items.is_null() {
            let why = "must have a schema if x-kubernetes-list-type is map";
            self.errors.push(FieldError::required(at("items"), why));
            return;
        }
        if text(items, "type") != "object" {
            let why = "must be object if parent array's x-kubernetes-list-type is map";
            self.errors.push(FieldError::invalid(at("items.type"), &Value::from(text(items, "type")), why));
            return;
        }
        let required = strings(items, "required");
        let all = schema.get("x-kubernetes-list-map-keys").unwrap_or(&Value::Null);
        for (index, key) in keys.iter().enumerate() {
            if keys.iter().take(index).any(|k| k == key) {
                let why = "must not contain duplicate entries";
                self.errors.push(FieldError::invalid(at("x-kubernetes-list-map-keys"), all, why));
            }
            let Some(property) = items.get("properties").and_then(|p| p.get(key)) else {
                let why = "entries must all be names of item properties";
                self.errors.push(FieldError::invalid(at("x-kubernetes-list-map-keys"), all, why));
                continue;
            };
            let place = at(&format!("items.properties[{key}]"));
            if ["array", "object"].contains(&text(property, "type").as_str()) {
                let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                self.errors.push(FieldError::invalid(format!("{place}.type"), &items["type"], why));
            }
            if !required.contains(key) && property.get("default").is_none_or(Value::is_null) {
                let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                self.errors.push(FieldError::required(format!("{place}.default"), why));
            }
            if flag(property, "nullable") {
                let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                self.errors.push(FieldError::forbidden(format!("{place}.nullable"), why));
            }
        }
    }

    /// CEL rules of a node. They are compiled only when the schema at and below the node is in order.
    fn rules(&mut self, schema: &Value, path: &str, place: &Place, before: usize) {
        let mut parsed: Option<Schema> = None;
        for (index, rule) in list(schema, "x-kubernetes-validations").enumerate() {
            let at = |key: &str| format!("{path}.x-kubernetes-validations[{index}].{key}");
            self.rule_texts(schema, rule, &at);
            if !self.rules || place.nested || self.errors.len() > before || text(rule, "rule").trim().is_empty() {
                continue;
            }
            let parsed = parsed.get_or_insert_with(|| Schema::parse(schema));
            let whole = place.root || flag(schema, "x-kubernetes-embedded-resource");
            let root = if whole { Root::Yes } else { Root::No };
            for (key, purpose) in [("rule", Purpose::Rule), ("messageExpression", Purpose::Message)] {
                let expression = text(rule, key);
                if !expression.is_empty()
                    && let Some(why) = compile_error(parsed, &expression, root, purpose)
                {
                    let message = format!("Invalid value: {}: {why}", go_rule(rule));
                    self.rule_errors.push(FieldError { field: at(key), reason: "FieldValueInvalid", message });
                }
            }
            if uses_old_self(&text(rule, "rule")) {
                if let Some(list) = &place.uncorrelated {
                    let why =
                        format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {list}");
                    self.rule_errors.push(FieldError::invalid(at("rule"), &rule["rule"], why));
                }
            } else if let Some(optional) = rule.get("optionalOldSelf").filter(|o| !o.is_null()) {
                let why = "may not be set if oldSelf is not used in rule";
                self.rule_errors.push(FieldError::invalid(at("optionalOldSelf"), optional, why));
            }
        }
    }

    fn rule_texts(&mut self, schema: &Value, rule: &Value, at: &dyn Fn(&str) -> String) {
        let (expression, message) = (text(rule, "rule"), text(rule, "message"));
        if expression.trim().is_empty() {
            self.errors.push(FieldError::required(at("rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            self.errors.push(FieldError::invalid(at("message"), &rule["message"], "must be non-empty if specified"));
        } else if message.trim().contains(['\n', '\r']) {
            self.errors.push(FieldError::invalid(at("message"), &rule["message"], "must not contain line breaks"));
        } else if expression.trim().contains(['\n', '\r']) && message.is_empty() {
            let why = "message must be specified if rule contains line breaks";
            self.errors.push(FieldError::required(at("message"), why));
        }
        if let Some(reason) = rule.get("reason").filter(|r| !r.is_null() && !REASONS.iter().any(|known| *r == known)) {
            self.errors.push(FieldError::not_supported(at("reason"), reason, &REASONS));
        }
        let field_path = text(rule, "fieldPath");
        if !field_path.is_empty() && !leads_somewhere(schema, &field_path) {
            self.errors.push(FieldError::invalid(at("fieldPath"), &rule["fieldPath"], "must be a valid path"));
        }
    }
}

/// Whether `.a.b['c']` names a field below a schema.
fn leads_somewhere(schema: &Value, path: &str) -> bool {
    let mut current = schema;
    let mut rest = path;
    while !rest.is_empty() {
        let name;
        if let Some(quoted) = rest.strip_prefix("['") {
            let Some((inner, more)) = quoted.split_once("']") else { return false };
            (name, rest) = (inner, more);
        } else if let Some(dotted) = rest.strip_prefix('.') {
            let end = dotted.find(['.', '[']).unwrap_or(dotted.len());
            (name, rest) = dotted.split_at(end);
        } else {
            return false;
        }
        let next = match current.get("properties").and_then(Value::as_object) {
            Some(properties) => properties.get(name),
            None => current.get("additionalProperties").filter(|a| a.is_object()),
        };
        match next {
            Some(next) => current = next,
            None => return false,
        }
    }
    true
}

/// A rule as Go prints the structure.
fn go_rule(rule: &Value) -> String {
    let quoted = |key: &str| Value::from(text(rule, key)).to_string();
    let or_null = |key: &str| rule.get(key).map_or_else(|| "null".to_owned(), Value::to_string);
    format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        quoted("rule"),
        quoted("message"),
        quoted("messageExpression"),
        or_null("reason"),
        quoted("fieldPath"),
        or_null("optionalOldSelf")
    )
    // Go's JSON writes these three so that they are safe inside HTML.
    .replace('<', "\\u003c")
    .replace('>', "\\u003e")
    .replace('&', "\\u0026")
}
