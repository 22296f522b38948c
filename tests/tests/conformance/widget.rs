//! The custom kind that cases define: `Widget`, in a group that is named after the case's namespace.

use anyhow::Result;
use kai_tests::request::Answer;
use kai_tests::{cluster::PATIENCE, wait};
use serde_json::{Value, json};

use crate::setting::Setting;

/// Properties of a `spec` that has something of everything.
pub fn properties() -> Value {
    json!({
        "size": { "type": "integer", "minimum": 1, "maximum": 10 },
        "mode": { "type": "string", "enum": ["a", "b"], "default": "a" },
        "name": { "type": "string", "pattern": "^[a-z]+$", "maxLength": 5 },
        "port": { "x-kubernetes-int-or-string": true },
        "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
        "maybe": { "type": "string", "nullable": true },
        "sure": { "type": "string", "default": "yes" },
        "tags": { "type": "object", "additionalProperties": { "type": "integer" } },
        "items": {
            "type": "array", "maxItems": 3, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
            "items": {
                "type": "object", "required": ["id"],
                "properties": { "id": { "type": "string" }, "value": { "type": "integer" } },
            },
        },
        "set": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
        "template": {
            "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
        },
        "when": { "type": "string", "format": "date-time" },
        "replicas": { "type": "integer" },
    })
}

/// A schema whose `spec` has these properties, of which `size` is required.
pub fn sized(properties: &Value) -> Value {
    json!({ "type": "object", "properties": {
        "spec": { "type": "object", "required": ["size"], "properties": properties },
        "status": { "type": "object", "properties": {
            "phase": { "type": "string" }, "replicas": { "type": "integer" }, "selector": { "type": "string" },
        } },
    } })
}

/// A kind `Widget` in a group of the case's own.
pub struct Kind {
    /// The group, such as `conformance-7.example.com`.
    pub group: String,
    /// The definition, to be changed before it is served.
    pub definition: Value,
}

impl Kind {
    /// A namespaced kind with one version, `v1`.
    pub fn new(s: &Setting, schema: &Value) -> Self {
        let group = format!("{}.example.com", s.namespace);
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("widgets.{group}") },
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": { "plural": "widgets", "kind": "Widget" },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }],
            },
        });
        Self { group, definition }
    }

    /// Sets a field of the first version.
    pub fn with(mut self, field: &str, value: Value) -> Self {
        self.definition["spec"]["versions"][0][field] = value;
        self
    }

    /// Creates the definition and waits until its objects are served.
    pub async fn serve(self, s: &Setting) -> Result<Self> {
        s.server.post(DEFINITIONS, &self.definition).await?.expect(201)?;
        wait::until("the definition to be established", PATIENCE, async || {
            let definition = s.server.get(&self.definition_path()).await?.expect(200)?;
            Ok(condition(&definition, "Established").is_some_and(|found| found["status"] == "True").then_some(()))
        })
        .await?;
        wait::until("its objects to be served", PATIENCE, async || {
            let list = s.server.get(&format!("/apis/{}/v1/widgets", self.group)).await?;
            Ok((list.status == 200).then_some(()))
        })
        .await?;
        Ok(self)
    }

    /// Path of the definition.
    pub fn definition_path(&self) -> String {
        format!("{DEFINITIONS}/widgets.{}", self.group)
    }

    /// Path of the objects in the case's namespace.
    pub fn path(&self, s: &Setting) -> String {
        s.group(&format!("{}/v1", self.group), "widgets")
    }

    /// A widget with this `spec`.
    pub fn object(&self, name: &str, spec: &Value) -> Value {
        json!({
            "apiVersion": format!("{}/v1", self.group), "kind": "Widget", "metadata": { "name": name }, "spec": spec,
        })
    }

    /// POST of a widget named `a` with this `spec`.
    pub async fn create(&self, s: &Setting, spec: Value) -> Result<Answer> {
        s.server.post(&self.path(s), &self.object("a", &spec)).await
    }
}

/// Where definitions live.
pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The condition of this type.
pub fn condition<'answer>(answer: &'answer Answer, kind: &str) -> Option<&'answer Value> {
    answer.json["status"]["conditions"].as_array().into_iter().flatten().find(|condition| condition["type"] == kind)
}

/// A kind with something of everything, and the status subresource.
pub async fn widgets(s: &Setting) -> Result<Kind> {
    Kind::new(s, &sized(&properties())).with("subresources", json!({ "status": {} })).serve(s).await
}
