//! From the derived schema to the published one.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::json;

/// What a quantity looks like, as in all CRDs made with Go tools.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// The one field that KAI lets be null.
const NULLABLE: &str = "minMember";

/// Changes a derived CRD into the one that is published.
pub(super) fn publish(crd: &mut CustomResourceDefinition) {
    for version in &mut crd.spec.versions {
        let Some(root) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) else {
            continue;
        };
        publish_node(root);
        let Some(spec) = root.properties.as_mut().and_then(|properties| properties.get_mut("spec")) else { continue };
        // An object without a spec is read as one with an empty spec, unless something in it is required.
        if spec.required.is_none() {
            spec.default = Some(JSON(json!({})));
            root.required = None;
        }
    }
}

/// Schemas are as deep as our types, so recursion is bounded.
fn publish_node(node: &mut JSONSchemaProps) {
    node.nullable = None;
    node.default = None;
    node.title = None;
    // Doc comments are wrapped for the source; paragraphs stay.
    if let Some(text) = node.description.as_mut().filter(|text| !text.contains("\n\n")) {
        *text = text.replace('\n', " ");
    }
    if node.x_kubernetes_int_or_string == Some(true) {
        let of_type = |type_: &str| JSONSchemaProps { type_: Some(type_.to_owned()), ..Default::default() };
        node.any_of = Some(vec![of_type("integer"), of_type("string")]);
        node.pattern = Some(QUANTITY.to_owned());
        return;
    }
    // Objects of which nothing is known hold anything: the parameters of device drivers.
    if node.type_.as_deref() == Some("object") && node.properties.is_none() && node.additional_properties.is_none() {
        node.x_kubernetes_preserve_unknown_fields = Some(true);
    }
    for (name, property) in node.properties.iter_mut().flatten() {
        publish_node(property);
        if name == NULLABLE {
            property.nullable = Some(true);
        }
    }
    match &mut node.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => publish_node(items),
        Some(JSONSchemaPropsOrArray::Schemas(all)) => all.iter_mut().for_each(publish_node),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut node.additional_properties {
        publish_node(values);
        if values.x_kubernetes_int_or_string == Some(true) {
            values.description = None;
        }
    }
}
