//! Whether a pod may be on a node: node selector, required node affinity, tolerations.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration};

/// Whether the node's labels satisfy the pod's node selector and required node affinity.
pub fn matches_node(spec: &PodSpec, node: &str, labels: &BTreeMap<String, String>) -> bool {
    let selected = spec.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
    selected
        && required.is_none_or(|terms| terms.node_selector_terms.iter().any(|term| term_matches(term, node, labels)))
}

/// The first `NoExecute` taint that the pod does not tolerate; the kubelet looks at no other effect.
pub fn untolerated_no_execute<'a>(taints: &'a [Taint], tolerations: &[Toleration]) -> Option<&'a Taint> {
    taints
        .iter()
        .filter(|taint| taint.effect == "NoExecute")
        .find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

/// Whether one toleration covers one taint.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    if (!effect.is_empty() && effect != taint.effect) || (!key.is_empty() && key != taint.key) {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or("Equal") {
        "Exists" => true,
        "" | "Equal" => {
            toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
                && !key.is_empty()
        }
        _ => false,
    }
}

/// A term without requirements matches nothing.
fn term_matches(term: &NodeSelectorTerm, node: &str, labels: &BTreeMap<String, String>) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    (!expressions.is_empty() || !fields.is_empty())
        && expressions.iter().all(|requirement| requirement_matches(requirement, labels.get(&requirement.key)))
        && fields.iter().all(|requirement| {
            let name = (requirement.key == "metadata.name").then(|| node.to_owned());
            requirement_matches(requirement, name.as_ref())
        })
}

fn requirement_matches(requirement: &NodeSelectorRequirement, value: Option<&String>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let compare = |wanted: fn(&i64, &i64) -> bool| {
        let (Some(value), [bound]) = (value, values) else { return false };
        matches!((value.parse(), bound.parse()), (Ok(value), Ok(bound)) if wanted(&value, &bound))
    };
    match requirement.operator.as_str() {
        "In" => value.is_some_and(|value| values.contains(value)),
        "NotIn" => value.is_none_or(|value| !values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(i64::gt),
        "Lt" => compare(i64::lt),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fits(spec: serde_json::Value) -> bool {
        let labels = BTreeMap::from([("zone".to_owned(), "a".to_owned()), ("gpus".to_owned(), "8".to_owned())]);
        let mut spec = spec;
        spec["containers"] = json!([]);
        matches_node(&serde_json::from_value(spec).unwrap(), "n1", &labels)
    }

    fn term(expression: &serde_json::Value) -> serde_json::Value {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}})
    }

    #[test]
    fn selectors_and_affinity_operators_match_as_in_kubernetes() {
        assert!(fits(json!({"nodeSelector": {"zone": "a"}})));
        assert!(!fits(json!({"nodeSelector": {"zone": "b"}})));
        assert!(fits(term(&json!({"key": "zone", "operator": "In", "values": ["b", "a"]}))));
        assert!(!fits(term(&json!({"key": "zone", "operator": "NotIn", "values": ["a"]}))));
        assert!(fits(term(&json!({"key": "rack", "operator": "NotIn", "values": ["a"]}))));
        assert!(fits(term(&json!({"key": "gpus", "operator": "Gt", "values": ["4"]}))));
        assert!(!fits(term(&json!({"key": "gpus", "operator": "Lt", "values": ["4"]}))));
        assert!(fits(term(&json!({"key": "rack", "operator": "DoesNotExist"}))));
        assert!(!fits(json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{}]}}}})));
    }

    #[test]
    fn only_no_execute_taints_matter_and_tolerations_cover_them() {
        let taint =
            |effect: &str| Taint { key: "k".into(), value: Some("v".into()), effect: effect.into(), time_added: None };
        let taints = [taint("NoSchedule"), taint("NoExecute")];
        assert_eq!(untolerated_no_execute(&taints, &[]).unwrap().effect, "NoExecute");
        let exists = Toleration { operator: Some("Exists".into()), ..Toleration::default() };
        assert!(untolerated_no_execute(&taints, &[exists]).is_none());
        let other = Toleration { key: Some("k".into()), value: Some("w".into()), ..Toleration::default() };
        assert!(untolerated_no_execute(&taints, &[other]).is_some());
    }
}
