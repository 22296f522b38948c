//! Schemas of Kubernetes' own types inside ours.
//!
//! Their descriptions are left out: with them the Config alone has 750 kB, and `kubectl apply` keeps a copy of what it applies in an
//! annotation of at most 256 KiB.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

/// The schema of a Kubernetes type, without descriptions.
pub(crate) fn kubernetes<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = T::json_schema(generator).to_value();
    remove_descriptions(&mut schema);
    Schema::try_from(schema).unwrap_or_default()
}

/// Schemas are as deep as the types of Kubernetes, so recursion is bounded.
fn remove_descriptions(node: &mut Value) {
    match node {
        Value::Object(fields) => {
            // A description is a string; a property of that name would be an object.
            fields.retain(|name, value| name != "description" || !value.is_string());
            fields.values_mut().for_each(remove_descriptions);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_descriptions),
        _ => {}
    }
}

/// A list of standard conditions, with the checks that Kubernetes documents; k8s-openapi's own schema has the types only.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "description": "One observation about the object.",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {
                    "type": "string",
                    "format": "date-time",
                    "description": "When the status last changed."
                },
                "message": { "type": "string", "maxLength": 32768, "description": "A sentence for people; may be empty." },
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                    "description": "Generation of the object that was looked at."
                },
                "reason": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                    "description": "One word for programs."
                },
                "status": { "type": "string", "enum": ["True", "False", "Unknown"], "description": "Whether it holds." },
                "type": {
                    "type": "string",
                    "maxLength": 316,
                    "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                    "description": "What is observed."
                }
            }
        }
    })
}
