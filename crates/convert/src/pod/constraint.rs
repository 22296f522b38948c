//! Where a pod may be: selectors, affinity, tolerations, spread and ports, in the core's words.
//!
//! Terms that choose namespaces by label are kept apart, since namespaces come and go: see [`NamespaceTerm`].

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1 as k8s,
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
};
use kai_core::delta::{
    Constraints, Expression, HostPort, Operator, PodTerm, Selector, SpreadConstraint, Term, Toleration, Weighted,
    WhenUnsatisfiable,
};

use crate::node::effect;

/// Which list of a pod's constraints a term is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Affinity(usize),
    AntiAffinity(usize),
    Preferred(usize),
}

/// A term whose namespaces are chosen by label.
#[derive(Clone, Debug)]
pub(crate) struct NamespaceTerm {
    pub(crate) place: Place,
    pub(crate) selector: Selector,
}

impl NamespaceTerm {
    /// Adds the namespaces that match to the term's own.
    pub(crate) fn resolve(
        &self,
        constraints: &mut Constraints,
        namespaces: &BTreeMap<String, BTreeMap<String, String>>,
    ) {
        let term = match self.place {
            Place::Affinity(index) => constraints.pod_affinity.get_mut(index),
            Place::AntiAffinity(index) => constraints.pod_anti_affinity.get_mut(index),
            Place::Preferred(index) => constraints.preferred_pod_affinity.get_mut(index).map(|term| &mut term.item),
        };
        let Some(names) = term.and_then(|term| term.namespaces.as_mut()) else { return };
        let chosen = namespaces.iter().filter(|(_, labels)| selects(&self.selector, labels));
        names.extend(chosen.map(|(name, _)| name.clone()));
        names.sort();
        names.dedup();
    }
}

/// Whether a selector takes these labels.
pub(crate) fn selects(selector: &Selector, labels: &BTreeMap<String, String>) -> bool {
    selector.expressions.iter().all(|expression| {
        let value = labels.get(&expression.key);
        let listed = value.is_some_and(|value| expression.values.contains(value));
        let number = |text: Option<&String>| text.and_then(|text| text.parse::<i64>().ok());
        let compared = number(value).zip(number(expression.values.first()));
        match expression.operator {
            Operator::In => listed,
            Operator::NotIn => !listed,
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => compared.is_some_and(|(value, bound)| value > bound),
            Operator::Lt => compared.is_some_and(|(value, bound)| value < bound),
        }
    })
}

/// Everything the specification says about places, but for volumes.
pub(crate) fn constraints(
    spec: &k8s::PodSpec,
    namespace: &str,
    labels: &BTreeMap<String, String>,
) -> (Constraints, Vec<NamespaceTerm>) {
    let mut read = Constraints {
        node_selector: spec.node_selector.clone().unwrap_or_default(),
        tolerations: spec.tolerations.iter().flatten().filter_map(toleration).collect(),
        spread: spec.topology_spread_constraints.iter().flatten().map(|spread| even(spread, labels)).collect(),
        host_ports: host_ports(spec),
        ..Constraints::default()
    };
    let mut by_label = Vec::new();
    if let Some(affinity) = &spec.affinity {
        if let Some(nodes) = &affinity.node_affinity {
            let required = nodes.required_during_scheduling_ignored_during_execution.as_ref();
            read.node_affinity = required.map(|selector| terms(&selector.node_selector_terms));
            let preferred = nodes.preferred_during_scheduling_ignored_during_execution.iter().flatten();
            read.preferred_node_affinity =
                preferred.map(|term| Weighted { weight: term.weight, item: node_term(&term.preference) }).collect();
        }
        let mut one = |term: &k8s::PodAffinityTerm, place: Place| {
            let (term, selector) = pod_term(term, namespace);
            by_label.extend(selector.map(|selector| NamespaceTerm { place, selector }));
            term
        };
        let near = affinity.pod_affinity.as_ref();
        let far = affinity.pod_anti_affinity.as_ref();
        let required = near.and_then(|near| near.required_during_scheduling_ignored_during_execution.as_ref());
        for (index, term) in required.into_iter().flatten().enumerate() {
            read.pod_affinity.push(one(term, Place::Affinity(index)));
        }
        let required = far.and_then(|far| far.required_during_scheduling_ignored_during_execution.as_ref());
        for (index, term) in required.into_iter().flatten().enumerate() {
            read.pod_anti_affinity.push(one(term, Place::AntiAffinity(index)));
        }
        let preferred = near.and_then(|near| near.preferred_during_scheduling_ignored_during_execution.as_ref());
        let avoided = far.and_then(|far| far.preferred_during_scheduling_ignored_during_execution.as_ref());
        let preferred = preferred.into_iter().flatten().map(|term| (term, 1));
        for (term, sign) in preferred.chain(avoided.into_iter().flatten().map(|term| (term, -1))) {
            let place = Place::Preferred(read.preferred_pod_affinity.len());
            let item = one(&term.pod_affinity_term, place);
            read.preferred_pod_affinity.push(Weighted { weight: term.weight.saturating_mul(sign), item });
        }
    }
    (read, by_label)
}

/// Terms of a node selector.
pub(crate) fn terms(terms: &[k8s::NodeSelectorTerm]) -> Vec<Term> {
    terms.iter().map(node_term).collect()
}

fn node_term(term: &k8s::NodeSelectorTerm) -> Term {
    let read = |all: &Option<Vec<k8s::NodeSelectorRequirement>>| {
        let all = all.iter().flatten();
        let read = all.map(|one| expression(&one.key, &one.operator, one.values.as_deref().unwrap_or_default()));
        read.collect::<Vec<_>>()
    };
    Term { labels: read(&term.match_expressions), names: read(&term.match_fields) }
}

/// One requirement. An operator that does not exist takes nothing: `In` without values.
fn expression(key: &str, operator: &str, values: &[String]) -> Expression {
    let known = match operator {
        "In" => Some(Operator::In),
        "NotIn" => Some(Operator::NotIn),
        "Exists" => Some(Operator::Exists),
        "DoesNotExist" => Some(Operator::DoesNotExist),
        "Gt" => Some(Operator::Gt),
        "Lt" => Some(Operator::Lt),
        _ => None,
    };
    let values = if known.is_some() { values.to_vec() } else { Vec::new() };
    Expression { key: key.to_owned(), operator: known.unwrap_or(Operator::In), values }
}

/// A label selector.
pub(crate) fn selector(given: &LabelSelector) -> Selector {
    let labels = given.match_labels.iter().flatten();
    let equal = labels.map(|(key, value)| expression(key, "In", std::slice::from_ref(value)));
    let rest = given.match_expressions.iter().flatten();
    let rest = rest.map(|one: &LabelSelectorRequirement| {
        expression(&one.key, &one.operator, one.values.as_deref().unwrap_or_default())
    });
    Selector { expressions: equal.chain(rest).collect() }
}

/// A term about pods, and the selector of its namespaces if it has one that does not take all.
fn pod_term(term: &k8s::PodAffinityTerm, own: &str) -> (PodTerm, Option<Selector>) {
    let mut namespaces = term.namespaces.clone().unwrap_or_default();
    let chosen = term.namespace_selector.as_ref().map(selector);
    if namespaces.is_empty() && chosen.is_none() {
        namespaces.push(own.to_owned());
    }
    namespaces.sort();
    let all = chosen.as_ref().is_some_and(|chosen| chosen.expressions.is_empty());
    let read = PodTerm {
        selector: term.label_selector.as_ref().map(selector),
        namespaces: (!all).then_some(namespaces),
        topology_key: term.topology_key.clone(),
    };
    (read, chosen.filter(|_| !all))
}

fn toleration(given: &k8s::Toleration) -> Option<Toleration> {
    let filled = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let any_value = given.operator.as_deref() == Some("Exists");
    let effect = match filled(&given.effect) {
        Some(name) => Some(effect(&name)?),
        None => None,
    };
    Some(Toleration {
        key: filled(&given.key),
        value: (!any_value).then(|| given.value.clone().unwrap_or_default()),
        effect,
    })
}

fn even(given: &k8s::TopologySpreadConstraint, labels: &BTreeMap<String, String>) -> SpreadConstraint {
    let mut chosen = given.label_selector.as_ref().map(selector);
    if let Some(chosen) = &mut chosen {
        let same = given.match_label_keys.iter().flatten().filter_map(|key| labels.get_key_value(key));
        chosen.expressions.extend(same.map(|(key, value)| expression(key, "In", std::slice::from_ref(value))));
    }
    let honored = |policy: &Option<String>, default: bool| policy.as_deref().map_or(default, |p| p == "Honor");
    SpreadConstraint {
        max_skew: u32::try_from(given.max_skew).unwrap_or(1).max(1),
        topology_key: given.topology_key.clone(),
        when_unsatisfiable: match given.when_unsatisfiable.as_str() {
            "ScheduleAnyway" => WhenUnsatisfiable::ScheduleAnyway,
            _ => WhenUnsatisfiable::DoNotSchedule,
        },
        selector: chosen,
        min_domains: given.min_domains.and_then(|count| u32::try_from(count).ok()),
        honor_node_affinity: honored(&given.node_affinity_policy, true),
        honor_taints: honored(&given.node_taints_policy, false),
    }
}

fn host_ports(spec: &k8s::PodSpec) -> Vec<HostPort> {
    let host_network = spec.host_network.unwrap_or(false);
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    let read = ports.filter_map(|port| {
        // On the host's network every port is the host's; the API server writes it so.
        let number = port.host_port.filter(|number| *number > 0);
        let number = number.or(host_network.then_some(port.container_port))?;
        Some(HostPort {
            port: u16::try_from(number).ok().filter(|number| *number > 0)?,
            protocol: port.protocol.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| "TCP".to_owned()),
            address: port.host_ip.clone().unwrap_or_default(),
        })
    });
    read.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(mut spec: Value) -> (Constraints, Vec<NamespaceTerm>) {
        if spec.get("containers").is_none() {
            spec["containers"] = json!([]);
        }
        let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
        constraints(&serde_json::from_value(spec).expect("a specification"), "team", &labels)
    }

    #[test]
    fn node_affinity_keeps_labels_and_names_apart() {
        let (read, _) = read(json!({"nodeSelector": {"a": "b"}, "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "k", "operator": "Gt", "values": ["3"]}],
                 "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}, {}]},
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 7, "preference": {"matchExpressions": [{"key": "k", "operator": "Exists"}]}}]}}}));
        let terms = read.node_affinity.expect("required");
        assert_eq!((terms[0].labels[0].operator, terms[0].names[0].values.len()), (Operator::Gt, 1));
        assert_eq!(terms[1], Term::default());
        assert_eq!(read.preferred_node_affinity[0].weight, 7);
        assert_eq!(read.node_selector.len(), 1);
    }

    #[test]
    fn terms_about_pods_count_in_their_own_namespace_unless_told_otherwise() {
        let term = |extra: Value| {
            let mut term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}});
            term.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
            term
        };
        let (mut read, by_label) = read(json!({"affinity": {
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                term(json!({})), term(json!({"namespaceSelector": {}})), term(json!({"namespaceSelector": {"matchLabels": {"tier": "gold"}}}))]},
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": term(json!({"namespaces": ["other"]}))}]}}}));
        assert_eq!(read.pod_affinity[0].namespaces, Some(vec!["team".to_owned()]));
        assert_eq!(read.pod_affinity[1].namespaces, None);
        assert_eq!(read.preferred_pod_affinity[0].weight, -5);
        let namespaces = BTreeMap::from([
            ("a".to_owned(), BTreeMap::from([("tier".to_owned(), "gold".to_owned())])),
            ("b".to_owned(), BTreeMap::new()),
        ]);
        assert_eq!(by_label.len(), 1);
        by_label[0].resolve(&mut read, &namespaces);
        assert_eq!(read.pod_affinity[2].namespaces, Some(vec!["a".to_owned()]));
    }

    #[test]
    fn tolerations_without_a_key_take_every_taint() {
        let (read, _) =
            read(json!({"tolerations": [{"operator": "Exists"}, {"key": "k", "value": "v", "effect": "NoSchedule"}]}));
        assert_eq!(read.tolerations[0], Toleration { key: None, value: None, effect: None });
        assert_eq!(read.tolerations[1].value.as_deref(), Some("v"));
    }

    #[test]
    fn spread_counts_pods_with_equal_labels_and_honors_affinity() {
        let (read, _) = read(
            json!({"topologySpreadConstraints": [{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {}, "matchLabelKeys": ["app", "absent"], "minDomains": 3}]}),
        );
        let spread = &read.spread[0];
        assert_eq!((spread.max_skew, spread.min_domains), (2, Some(3)));
        assert!(spread.honor_node_affinity && !spread.honor_taints);
        assert_eq!(spread.selector.as_ref().map(|selector| selector.expressions.len()), Some(1));
    }

    #[test]
    fn ports_of_the_host_are_taken() {
        let (read, _) = read(
            json!({"containers": [{"name": "c", "ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 8081}]}]}),
        );
        assert_eq!(read.host_ports, [HostPort { port: 8081, protocol: "TCP".to_owned(), address: String::new() }]);
    }
}
