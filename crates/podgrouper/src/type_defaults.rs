//! Priorities and preemptibility by kind of workload, from a ConfigMap of the administrator.
//!
//! Its key `types` holds a JSON list of `{typeName, group, priorityName, preemptibility}`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kai_api::Preemptibility;
use serde::Deserialize;

use crate::owner::Reference;

const KEY: &str = "types";

/// What workloads of a kind have if they do not say otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TypeDefault {
    /// Priority class.
    pub priority: Option<String>,
    /// Whether they may be stopped.
    pub preemptibility: Option<Preemptibility>,
}

/// Defaults by kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TypeDefaults {
    /// By `Kind.group`, or `Kind` for all groups.
    by_kind: BTreeMap<String, TypeDefault>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    type_name: String,
    #[serde(default)]
    group: String,
    #[serde(default)]
    priority_name: String,
    #[serde(default)]
    preemptibility: String,
}

impl TypeDefaults {
    /// Reads a ConfigMap. What cannot be understood is left out and told.
    pub fn read(map: &ConfigMap) -> (Self, Vec<String>) {
        let name = map.metadata.name.as_deref().unwrap_or_default();
        let Some(text) = map.data.as_ref().and_then(|data| data.get(KEY)) else {
            return (Self::default(), vec![format!("ConfigMap `{name}` has no key `{KEY}`; no defaults are used")]);
        };
        let rows: Vec<Row> = match serde_json::from_str(text) {
            Ok(rows) => rows,
            Err(error) => {
                let hint = "write a list of {typeName, group, priorityName, preemptibility}";
                let warning = format!("ConfigMap `{name}`, key `{KEY}`: {error}; no defaults are used; {hint}");
                return (Self::default(), vec![warning]);
            }
        };
        let mut warnings = Vec::new();
        let mut by_kind = BTreeMap::new();
        for row in rows {
            let preemptibility = match row.preemptibility.as_str() {
                "" => None,
                "preemptible" => Some(Preemptibility::Preemptible),
                "non-preemptible" => Some(Preemptibility::NonPreemptible),
                other => {
                    warnings.push(format!(
                        "ConfigMap `{name}`, key `{KEY}`, type {}: preemptibility is `{other}` and is left out; \
                         use `preemptible` or `non-preemptible`",
                        row.type_name
                    ));
                    None
                }
            };
            let priority = Some(row.priority_name).filter(|class| !class.is_empty());
            let key = if row.group.is_empty() { row.type_name } else { format!("{}.{}", row.type_name, row.group) };
            by_kind.insert(key, TypeDefault { priority, preemptibility });
        }
        (Self { by_kind }, warnings)
    }

    /// What holds for the kind of an object.
    pub fn of(&self, reference: &Reference) -> Option<&TypeDefault> {
        let exact = self.by_kind.get(&format!("{}.{}", reference.kind, reference.group()));
        exact.or_else(|| self.by_kind.get(&reference.kind))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(types: &str) -> ConfigMap {
        serde_json::from_value(json!({"metadata": {"name": "defaults"}, "data": {"types": types}})).unwrap()
    }

    #[test]
    fn the_exact_kind_counts_before_the_kind_of_any_group() {
        let (defaults, warnings) = TypeDefaults::read(&map(r#"[{"typeName": "Job", "priorityName": "low"},
                {"typeName": "Job", "group": "batch", "priorityName": "high", "preemptibility": "non-preemptible"}]"#));
        assert_eq!(warnings, Vec::<String>::new());
        let of = |api_version: &str| {
            let reference = Reference { api_version: api_version.into(), kind: "Job".into(), name: "a".into() };
            defaults.of(&reference).and_then(|default| default.priority.clone())
        };
        assert_eq!(of("batch/v1").as_deref(), Some("high"));
        assert_eq!(of("other/v1").as_deref(), Some("low"));
    }

    #[test]
    fn bad_defaults_are_told_and_left_out() {
        let (defaults, warnings) = TypeDefaults::read(&map("{"));
        assert_eq!(defaults, TypeDefaults::default());
        assert!(warnings[0].starts_with("ConfigMap `defaults`, key `types`: "), "{warnings:?}");
        let (_, warnings) = TypeDefaults::read(&map(r#"[{"typeName": "Job", "preemptibility": "maybe"}]"#));
        assert!(warnings[0].contains("`maybe`"), "{warnings:?}");
    }
}
