//! Definitions a real server refuses: names, group, scope, versions, conversion, subresources, columns.
//!
//! Paths follow the real server, which moves what is the same in all versions (schema, subresources, columns) to the top of the
//! specification before it looks: errors of a definition with one version speak of `spec.validation.openAPIV3Schema`.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::{condition, flag, list, schema_rules, strings, text, versions};
use crate::status::FieldError;

const APPROVAL: &str = "api-approved.kubernetes.io";
const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

/// What is wrong with a definition (after `prepare`), or with its change from `old`.
pub fn validate(definition: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = definition.get("spec").unwrap_or(&Value::Null);
    let names = spec.get("names").unwrap_or(&Value::Null);
    let name = definition.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let group = text(spec, "group");
    if old.is_none() && name != format!("{}.{group}", text(names, "plural")) {
        errors.push(FieldError::invalid(
            "metadata.name",
            &Value::from(name),
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !SUBDOMAIN.is_match(&group) {
        errors.push(FieldError::invalid("spec.group", &Value::from(group.as_str()), SUBDOMAIN_RULE));
    } else if !group.contains('.') {
        let why = "should be a domain with at least one dot";
        errors.push(FieldError::invalid("spec.group", &Value::from(group.as_str()), why));
    }
    one_of(&mut errors, "spec.scope", &text(spec, "scope"), &["Cluster", "Namespaced"]);
    if flag(spec, "preserveUnknownFields") && !old.is_some_and(|old| flag(&old["spec"], "preserveUnknownFields")) {
        errors.push(FieldError::invalid(
            "spec.preserveUnknownFields",
            &Value::from(true),
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ));
    }
    versions_of(definition, &mut errors);
    for key in ["plural", "singular", "kind", "listKind"] {
        if text(names, key).is_empty() {
            errors.push(FieldError::required(format!("spec.names.{key}"), ""));
        }
    }
    check_names(names, &mut errors);
    conversion(spec, &mut errors);
    if let Some(old) = old {
        unchanged(definition, old, &mut errors);
    }
    stored_versions(definition, &mut errors);
    approval(definition, &group, old, &mut errors);
    errors
}

/// What the real server calls the place of a thing that each version states.
fn places<'a>(definition: &'a Value, key: &str, top: &str) -> Vec<(String, &'a Value, &'a Value)> {
    let all: Vec<&Value> = versions(definition).collect();
    let same = all.windows(2).all(|pair| pair[0].get(key) == pair[1].get(key));
    let stated = all.iter().enumerate().filter_map(|(index, version)| {
        let value = version.get(key).filter(|v| !v.is_null())?;
        let path = if same { format!("spec.{top}") } else { format!("spec.versions[{index}].{key}") };
        Some((path, value, *version))
    });
    if same { stated.take(1).collect() } else { stated.collect() }
}

fn versions_of(definition: &Value, errors: &mut Vec<FieldError>) {
    for (index, version) in versions(definition).enumerate() {
        if version.pointer("/schema/openAPIV3Schema").is_none_or(Value::is_null) {
            errors.push(FieldError::required(format!("spec.versions[{index}].schema.openAPIV3Schema"), ""));
        }
    }
    let mut seen = Vec::new();
    for (index, version) in versions(definition).enumerate() {
        let name = text(version, "name");
        label(errors, &format!("spec.versions[{index}].name"), &name);
        if version.get("deprecationWarning").is_some_and(|w| !w.is_null()) && !flag(version, "deprecated") {
            let path = format!("spec.versions[{index}].deprecationWarning");
            errors.push(FieldError::invalid(
                path,
                &version["deprecationWarning"],
                "can only be set for deprecated versions",
            ));
        }
        seen.push(name);
    }
    if let Some(first) = seen.first() {
        // The real server keeps the name of the first version a second time.
        label(errors, "spec.version", first);
    }
    let count = seen.len();
    seen.sort();
    seen.dedup();
    if seen.len() != count {
        errors.push(versions_error(definition, "must contain unique version names"));
    }
    if versions(definition).filter(|v| flag(v, "storage")).count() != 1 {
        errors.push(versions_error(definition, "must have exactly one version marked as storage version"));
    }
    for (path, value, version) in places(definition, "schema", "validation") {
        if let Some(schema) = value.get("openAPIV3Schema").filter(|s| !s.is_null()) {
            let has_status = version.pointer("/subresources/status").is_some_and(Value::is_object);
            errors.extend(schema_rules::check(schema, &format!("{path}.openAPIV3Schema"), has_status));
        }
    }
    for (path, value, _) in places(definition, "subresources", "subresources") {
        scale(value, &path, errors);
    }
    for (path, value, _) in places(definition, "additionalPrinterColumns", "additionalPrinterColumns") {
        for (index, column) in value.as_array().into_iter().flatten().enumerate() {
            check_column(column, &format!("{path}[{index}]"), errors);
        }
    }
    for (path, value, version) in places(definition, "selectableFields", "selectableFields") {
        selectable(value, version, &path, errors);
    }
}

/// An error about all versions, which are shown as the real server keeps them: without what is the same in all.
fn versions_error(definition: &Value, why: &str) -> FieldError {
    let shown: Vec<String> = versions(definition)
        .map(|version| {
            format!(
                "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":null,\"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}}",
                Value::from(text(version, "name")),
                flag(version, "served"),
                flag(version, "storage"),
                flag(version, "deprecated")
            )
        })
        .collect();
    FieldError {
        field: "spec.versions".to_owned(),
        reason: "FieldValueInvalid",
        message: format!("Invalid value: [{}]: {why}", shown.join(",")),
    }
}

fn scale(subresources: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(scale) = subresources.get("scale").filter(|s| s.is_object()) else { return };
    for (key, roots, required, why) in [
        ("specReplicasPath", [".spec.", ".spec."], true, "should be a json path under .spec"),
        ("statusReplicasPath", [".status.", ".status."], true, "should be a json path under .status"),
        ("labelSelectorPath", [".spec.", ".status."], false, "should be a json path under either .spec or .status"),
    ] {
        let (value, path) = (text(scale, key), format!("{path}.scale.{key}"));
        if value.is_empty() {
            if required {
                errors.push(FieldError::required(path, ""));
            }
        } else if !value.starts_with('.') {
            let why = "must be a simple json path starting with .";
            errors.push(FieldError::invalid(path, &Value::from(value), why));
        } else if !roots.iter().any(|root| value.starts_with(root)) {
            errors.push(FieldError::invalid(path, &Value::from(value), why));
        }
    }
}

fn check_column(column: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (kind, format, json_path) = (text(column, "type"), text(column, "format"), text(column, "jsonPath"));
    if text(column, "name").is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    }
    let types = format!("must be one of {}", COLUMN_TYPES.join(","));
    if kind.is_empty() {
        errors.push(FieldError::required(format!("{path}.type"), &types));
    } else if !COLUMN_TYPES.contains(&kind.as_str()) {
        errors.push(FieldError::invalid(format!("{path}.type"), &Value::from(kind), types));
    }
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format.as_str()) {
        let why = format!("must be one of {}", COLUMN_FORMATS.join(","));
        errors.push(FieldError::invalid(format!("{path}.format"), &Value::from(format), why));
    }
    if json_path.is_empty() {
        errors.push(FieldError::required(format!("{path}.JSONPath"), ""));
    } else if !json_path.starts_with('.') {
        let why = "must be a simple json path starting with .";
        errors.push(FieldError::invalid(format!("{path}.JSONPath"), &Value::from(json_path), why));
    }
}

fn selectable(fields: &Value, version: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut seen = Vec::new();
    for (index, field) in fields.as_array().into_iter().flatten().enumerate() {
        let (json_path, place) = (text(field, "jsonPath"), format!("{path}[{index}].jsonPath"));
        if json_path.is_empty() {
            errors.push(FieldError::required(place, ""));
            continue;
        }
        let value = Value::from(json_path.as_str());
        let Some(names) = json_path.strip_prefix('.') else {
            let why = format!(
                "is an invalid path: expected [ or . but got: {}",
                json_path.split('.').next().unwrap_or_default()
            );
            errors.push(FieldError::invalid(place, &value, why));
            continue;
        };
        let schema = version.pointer("/schema/openAPIV3Schema");
        let target = names.split('.').fold(schema, |schema, name| schema?.get("properties")?.get(name));
        let Some(target) = target else {
            errors.push(FieldError::invalid(place, &value, "is an invalid path: does not refer to a valid field"));
            continue;
        };
        if names.starts_with("metadata") {
            errors.push(FieldError::invalid(place.clone(), &value, "must not point to fields in metadata"));
        }
        if !["string", "boolean", "integer"].contains(&text(target, "type").as_str()) {
            let why = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.push(FieldError::invalid(place.clone(), &value, why));
        }
        if seen.contains(&json_path) {
            errors.push(FieldError::duplicate(place, &value));
        }
        seen.push(json_path);
    }
    seen.sort();
    seen.dedup();
    if seen.len() > 8 {
        errors.push(FieldError {
            field: path.to_owned(),
            reason: "FieldValueTooMany",
            message: format!("Too many: {}: must have at most 8 items", seen.len()),
        });
    }
}

fn check_names(names: &Value, errors: &mut Vec<FieldError>) {
    for key in ["plural", "singular"] {
        let name = text(names, key);
        if !name.is_empty() {
            label(errors, &format!("spec.names.{key}"), &name);
        }
    }
    for key in ["kind", "listKind"] {
        let name = text(names, key);
        if !name.is_empty() && !is_label(&name.to_lowercase()) {
            let why = format!("may have mixed case, but should otherwise match: {LABEL_RULE}");
            errors.push(FieldError::invalid(format!("spec.names.{key}"), &Value::from(name), why));
        }
    }
    for (index, name) in strings(names, "shortNames").iter().enumerate() {
        label(errors, &format!("spec.names.shortNames[{index}]"), name);
    }
    let (kind, list_kind) = (text(names, "kind"), text(names, "listKind"));
    if !kind.is_empty() && kind == list_kind {
        let why = "kind and listKind may not be the same";
        errors.push(FieldError::invalid("spec.names.listKind", &Value::from(list_kind), why));
    }
    for (index, name) in strings(names, "categories").iter().enumerate() {
        label(errors, &format!("spec.names.categories[{index}]"), name);
    }
}

fn conversion(spec: &Value, errors: &mut Vec<FieldError>) {
    let Some(conversion) = spec.get("conversion").filter(|c| c.is_object()) else { return };
    let strategy = text(conversion, "strategy");
    one_of(errors, "spec.conversion.strategy", &strategy, &["None", "Webhook"]);
    let client = conversion.pointer("/webhook/clientConfig").filter(|c| c.is_object());
    let reviews: Vec<&Value> =
        conversion.get("webhook").map(|w| list(w, "conversionReviewVersions").collect()).unwrap_or_default();
    let (client_path, reviews_path) =
        ("spec.conversion.webhookClientConfig", "spec.conversion.conversionReviewVersions");
    if strategy == "Webhook" {
        match client {
            None => errors.push(FieldError::required(client_path, "required when strategy is set to Webhook")),
            Some(client) if client.get("url").is_some() == client.get("service").is_some() => {
                errors.push(FieldError::required(client_path, "exactly one of url or service is required"));
            }
            Some(_) => {}
        }
        if reviews.is_empty() {
            errors.push(FieldError::required(reviews_path, ""));
        } else if !reviews.iter().any(|v| *v == "v1" || *v == "v1beta1") {
            let all = Value::Array(reviews.into_iter().cloned().collect());
            errors.push(FieldError::invalid(reviews_path, &all, "must include at least one of v1, v1beta1"));
        }
    } else {
        let why = "should not be set when strategy is not set to Webhook";
        if client.is_some() {
            errors.push(FieldError::forbidden(client_path, why));
        }
        if !reviews.is_empty() {
            errors.push(FieldError::forbidden(reviews_path, why));
        }
    }
}

/// Things that name the stored objects stay as they are.
fn unchanged(definition: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let mut fixed = vec![("/spec/group", "spec.group"), ("/spec/names/plural", "spec.names.plural")];
    if condition(old, "Established") == Some("True") {
        fixed.splice(0..0, [("/spec/scope", "spec.scope"), ("/spec/names/kind", "spec.names.kind")]);
    }
    for (pointer, path) in fixed {
        if definition.pointer(pointer) != old.pointer(pointer) {
            let value = definition.pointer(pointer).unwrap_or(&Value::Null);
            errors.push(FieldError::invalid(path, value, "field is immutable"));
        }
    }
}

fn stored_versions(definition: &Value, errors: &mut Vec<FieldError>) {
    let status = definition.get("status").unwrap_or(&Value::Null);
    let stored = strings(status, "storedVersions");
    let all = Value::from(stored.clone());
    let path = "status.storedVersions";
    if stored.is_empty() {
        errors.push(FieldError::invalid(path, &Value::Null, "must have at least one stored version"));
        return;
    }
    let names: Vec<String> = versions(definition).map(|v| text(v, "name")).collect();
    for version in versions(definition).filter(|v| flag(v, "storage")) {
        let name = text(version, "name");
        // A change of the storage version is recorded by `establish`, which runs after this.
        if stored.iter().all(|s| !names.contains(s)) && !stored.contains(&name) {
            errors.push(FieldError::invalid(path, &all, format!("must have the storage version {name}")));
        }
    }
    for (index, name) in stored.iter().enumerate().filter(|(_, name)| !names.contains(name)) {
        let why = format!(
            "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
        );
        errors.push(FieldError::invalid(format!("{path}[{index}]"), &Value::from(name.as_str()), why));
    }
}

/// Groups of Kubernetes itself need the word of its community.
fn approval(definition: &Value, group: &str, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let protected = ["k8s.io", "kubernetes.io"].iter().any(|g| group == *g || group.ends_with(&format!(".{g}")));
    let annotation = definition.get("metadata").and_then(|m| m.get("annotations")).and_then(|a| a.get(APPROVAL));
    if !protected || old.is_some() {
        return;
    }
    let path = format!("metadata.annotations[{APPROVAL}]");
    match annotation.and_then(Value::as_str) {
        None | Some("") => errors.push(FieldError::required(
            path,
            &format!(
                "protected groups must have approval annotation \"{APPROVAL}\", see https://github.com/kubernetes/enhancements/pull/1111"
            ),
        )),
        Some(value) if value.starts_with("unapproved") || value.starts_with("https://") || value.starts_with("http://") => {}
        Some(value) => errors.push(FieldError::invalid(
            path,
            &Value::from(value),
            format!(
                "protected groups must have approval annotation \"{APPROVAL}\" with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111"
            ),
        )),
    }
}

fn one_of(errors: &mut Vec<FieldError>, path: &str, value: &str, accepted: &[&str]) {
    if value.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !accepted.contains(&value) {
        errors.push(FieldError::not_supported(path, &Value::from(value), accepted));
    }
}

fn label(errors: &mut Vec<FieldError>, path: &str, value: &str) {
    if !is_label(value) {
        let why = if value.len() > 63 { "must be no more than 63 bytes" } else { LABEL_RULE };
        errors.push(FieldError::invalid(path, &Value::from(value), why));
    }
}

fn is_label(value: &str) -> bool {
    value.len() <= 63 && LABEL.is_match(value)
}

static LABEL: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("^[a-z]([-a-z0-9]*[a-z0-9])?$").expect("a constant pattern, used by tests"));
static SUBDOMAIN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
        .expect("a constant pattern, used by tests")
});
const LABEL_RULE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN_RULE: &str = r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
