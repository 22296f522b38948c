//! Conflicts: fields that an apply would take from other managers, and how a client is told.

use serde_json::{Value, json};

use super::fields::{Fields, intersection, subtract};
use super::managed::{Entry, Managed, Operation};
use super::path::paths;
use crate::patch::go_quote;
use crate::status::ApiError;

/// Fields of others that an apply would change.
#[derive(Debug, Default)]
pub(super) struct Conflicts {
    by_entry: Vec<(Entry, Fields)>,
}

impl Conflicts {
    /// What `taken` has of the fields of others, sorted by manager.
    pub(super) fn between(managed: &Managed, taken: &Fields) -> Self {
        let mut by_entry: Vec<(Entry, Fields)> = managed
            .entries
            .iter()
            .map(|entry| (entry.clone(), intersection(&entry.fields, taken)))
            .filter(|(_, fields)| !fields.is_empty())
            .collect();
        by_entry.sort_by(|(a, _), (b, _)| a.identifier().cmp(&b.identifier()));
        Self { by_entry }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_entry.is_empty()
    }

    /// The conflicts that are not allowed.
    pub(super) fn without(mut self, allowed: &Fields) -> Self {
        for (_, fields) in &mut self.by_entry {
            subtract(fields, allowed);
        }
        self.by_entry.retain(|(_, fields)| !fields.is_empty());
        self
    }

    /// The 409 of an apply without force.
    pub(super) fn into_error(self) -> ApiError {
        let named: Vec<(String, Vec<String>)> =
            self.by_entry.iter().map(|(entry, fields)| (manager_text(entry), paths(fields))).collect();
        let causes: Vec<Value> = named
            .iter()
            .flat_map(|(manager, paths)| paths.iter().map(move |path| (manager, path)))
            .map(|(manager, path)| {
                json!({"reason": "FieldManagerConflict", "message": format!("conflict with {manager}"), "field": path})
            })
            .collect();
        let message = match named.as_slice() {
            [(manager, paths)] if paths.len() == 1 => {
                format!("Apply failed with 1 conflict: conflict with {manager}: {}", paths.concat())
            }
            many => {
                let lines: Vec<String> = many
                    .iter()
                    .flat_map(|(manager, paths)| {
                        std::iter::once(format!("conflicts with {manager}:"))
                            .chain(paths.iter().map(|path| format!("- {path}")))
                    })
                    .collect();
                format!("Apply failed with {} conflicts: {}", causes.len(), lines.join("\n"))
            }
        };
        ApiError { details: Some(json!({ "causes": causes })), ..ApiError::new(409, "Conflict", message) }
    }
}

fn manager_text(entry: &Entry) -> String {
    let mut text = go_quote(&entry.manager);
    if !entry.subresource.is_empty() {
        text.push_str(" with subresource ");
        text.push_str(&go_quote(&entry.subresource));
    }
    if entry.operation == Operation::Update {
        text.push_str(" using ");
        text.push_str(&entry.api_version);
    }
    text
}
