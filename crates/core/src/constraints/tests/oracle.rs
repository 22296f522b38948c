//! The rules once more, slowly and on strings: what kube-scheduler would say about a pod, a node, and everybody else.

use std::collections::{BTreeMap, BTreeSet};

use crate::delta::{
    Constraints, Expression, HostPort, Node, Operator, Pod, PodTerm, Selector, SpreadConstraint, TaintEffect, Term,
    VolumeNeed, WhenUnsatisfiable,
};

/// A pod where it counts.
pub(super) struct Resident {
    pub(super) pod: Pod,
    pub(super) node: String,
    pub(super) leaves: bool,
}

/// Everything there is.
pub(super) struct Scene<'a> {
    pub(super) nodes: &'a [Node],
    pub(super) residents: &'a [Resident],
}

type Labels = BTreeMap<String, String>;

fn expression_holds(expression: &Expression, labels: &Labels) -> bool {
    let value = labels.get(&expression.key);
    let values = &expression.values;
    let number = |text: &String| text.parse::<i64>().ok();
    match expression.operator {
        Operator::In => value.is_some_and(|value| values.contains(value)),
        Operator::NotIn => !values.is_empty() && !value.is_some_and(|value| values.contains(value)),
        Operator::Exists => values.is_empty() && value.is_some(),
        Operator::DoesNotExist => values.is_empty() && value.is_none(),
        Operator::Gt | Operator::Lt if values.len() != 1 => false,
        Operator::Gt => value.and_then(number).zip(number(&values[0])).is_some_and(|(have, bound)| have > bound),
        Operator::Lt => value.and_then(number).zip(number(&values[0])).is_some_and(|(have, bound)| have < bound),
    }
}

fn term_holds(term: &Term, node: &Node) -> bool {
    let name = |expression: &Expression| match expression.operator {
        Operator::In => expression.values.contains(&node.name),
        Operator::NotIn => !expression.values.is_empty() && !expression.values.contains(&node.name),
        _ => false,
    };
    (!term.labels.is_empty() || !term.names.is_empty())
        && term.labels.iter().all(|expression| expression_holds(expression, &node.labels))
        && term.names.iter().all(name)
}

fn selects(selector: Option<&Selector>, labels: &Labels) -> bool {
    selector.is_some_and(|selector| selector.expressions.iter().all(|one| expression_holds(one, labels)))
}

fn speaks_of(term: &PodTerm, pod: &Pod) -> bool {
    term.namespaces.as_ref().is_none_or(|names| names.contains(&pod.namespace))
        && selects(term.selector.as_ref(), &pod.labels)
}

fn untolerated<'a>(constraints: &Constraints, node: &'a Node, soft: bool) -> Vec<&'a str> {
    let tolerated = |taint: &&crate::delta::Taint| {
        constraints.tolerations.iter().any(|one| {
            one.key.as_ref().is_none_or(|key| *key == taint.key)
                && one.value.as_ref().is_none_or(|value| *value == taint.value)
                && one.effect.is_none_or(|effect| effect == taint.effect)
        })
    };
    let taints = node.taints.iter().filter(|taint| (taint.effect == TaintEffect::PreferNoSchedule) == soft);
    taints.filter(|taint| !tolerated(taint)).map(|taint| taint.key.as_str()).collect()
}

fn wants_node(constraints: &Constraints, node: &Node) -> bool {
    let terms = constraints.node_affinity.as_deref().unwrap_or_default();
    constraints.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
        && (terms.is_empty() || terms.iter().any(|term| term_holds(term, node)))
}

/// What the node lacks, in a word.
pub(super) fn check_node(pod: &Pod, node: &Node) -> Option<String> {
    if let Some(key) = untolerated(&pod.constraints, node, false).first() {
        return Some(format!("taint {key}"));
    }
    if !wants_node(&pod.constraints, node) {
        return Some("node affinity".to_owned());
    }
    let unreachable = pod.constraints.volumes.iter().any(|need| {
        let (VolumeNeed::Bound { nodes, .. } | VolumeNeed::Unbound { nodes, .. }) = need;
        nodes.as_ref().is_some_and(|terms| !terms.iter().any(|term| term_holds(term, node)))
    });
    unreachable.then(|| "volume".to_owned())
}

impl Scene<'_> {
    fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    fn value(&self, resident: &Resident, key: &str) -> Option<&String> {
        self.node(&resident.node)?.labels.get(key)
    }

    /// Residents in the node's domain of a key.
    fn around<'a>(&'a self, node: &'a Node, key: &'a str) -> impl Iterator<Item = &'a Resident> {
        let domain = node.labels.get(key);
        self.residents.iter().filter(move |one| domain.is_some() && self.value(one, key) == domain)
    }

    /// What stands against the pod on the node, in a word.
    pub(super) fn check_pods(&self, pod: &Pod, node: &Node) -> Option<&'static str> {
        let constraints = &pod.constraints;
        if self.residents.iter().filter(|one| one.node == node.name).any(|one| {
            let theirs = &one.pod.constraints.host_ports;
            theirs.iter().any(|taken| constraints.host_ports.iter().any(|port| ports_conflict(taken, port)))
        }) {
            return Some("port");
        }
        if !self.affinity_holds(pod, node) {
            return Some("affinity");
        }
        let terms = &constraints.pod_anti_affinity;
        if terms.iter().any(|term| self.around(node, &term.topology_key).any(|one| speaks_of(term, &one.pod))) {
            return Some("anti-affinity");
        }
        if self.residents.iter().any(|one| {
            let mut terms = one.pod.constraints.pod_anti_affinity.iter();
            terms.any(|term| {
                let theirs = self.value(one, &term.topology_key);
                speaks_of(term, pod) && theirs.is_some() && theirs == node.labels.get(&term.topology_key)
            })
        }) {
            return Some("existing anti-affinity");
        }
        let hard = constraints.spread.iter().filter(|one| one.when_unsatisfiable == WhenUnsatisfiable::DoNotSchedule);
        for constraint in hard {
            let Some(value) = node.labels.get(&constraint.topology_key) else { return Some("spread") };
            let domains = self.domains(pod, constraint);
            let few = (domains.len() as u64) < u64::from(constraint.min_domains.unwrap_or(1));
            let least = if few { 0 } else { domains.values().min().copied().unwrap_or(0) };
            let own = i64::from(selects(constraint.selector.as_ref(), &pod.labels));
            if domains.get(value.as_str()).copied().unwrap_or(0) + own - least > i64::from(constraint.max_skew) {
                return Some("spread");
            }
        }
        let exclusive = exclusive_claims(constraints);
        let held = self.residents.iter().any(|one| !exclusive.is_disjoint(&exclusive_claims(&one.pod.constraints)));
        held.then_some("volume")
    }

    fn affinity_holds(&self, pod: &Pod, node: &Node) -> bool {
        let terms = &pod.constraints.pod_affinity;
        let matches_all = |pod: &Pod| terms.iter().all(|term| speaks_of(term, pod));
        if terms.iter().any(|term| !node.labels.contains_key(&term.topology_key)) {
            return false;
        }
        let near = |term: &PodTerm| self.around(node, &term.topology_key).any(|one| matches_all(&one.pod));
        let somewhere = || {
            let placed = |one: &Resident| terms.iter().any(|term| self.value(one, &term.topology_key).is_some());
            self.residents.iter().any(|one| matches_all(&one.pod) && placed(one))
        };
        terms.iter().all(near) || (matches_all(pod) && !somewhere())
    }

    /// Pods that count in each domain of a spread constraint.
    fn domains(&self, pod: &Pod, constraint: &SpreadConstraint) -> BTreeMap<&str, i64> {
        let alike = |other: &&SpreadConstraint| other.when_unsatisfiable == constraint.when_unsatisfiable;
        let mut domains = BTreeMap::new();
        for node in self.nodes {
            let mut keys = pod.constraints.spread.iter().filter(alike).map(|other| &other.topology_key);
            if !keys.all(|key| node.labels.contains_key(key))
                || (constraint.honor_node_affinity && !wants_node(&pod.constraints, node))
                || (constraint.honor_taints && !untolerated(&pod.constraints, node, false).is_empty())
            {
                continue;
            }
            let counted = self.residents.iter().filter(|one| {
                one.node == node.name
                    && !one.leaves
                    && one.pod.namespace == pod.namespace
                    && constraint.selector.as_ref().is_some_and(|selector| !selector.expressions.is_empty())
                    && selects(constraint.selector.as_ref(), &one.pod.labels)
            });
            let count = i64::try_from(counted.count()).expect("few pods");
            *domains.entry(node.labels[&constraint.topology_key].as_str()).or_default() += count;
        }
        domains
    }

    /// How much better than others the node is.
    pub(super) fn preference(&self, pod: &Pod, node: &Node) -> i64 {
        let constraints = &pod.constraints;
        let mut score = 0;
        for wish in &constraints.preferred_pod_affinity {
            let pods = self.around(node, &wish.item.topology_key).filter(|one| speaks_of(&wish.item, &one.pod)).count();
            score += 1_000_000 * i64::from(wish.weight) * i64::try_from(pods).expect("few pods");
        }
        for one in self.residents {
            for wish in &one.pod.constraints.preferred_pod_affinity {
                let theirs = self.value(one, &wish.item.topology_key);
                let together = theirs.is_some() && theirs == node.labels.get(&wish.item.topology_key);
                if together && speaks_of(&wish.item, pod) {
                    score += 1_000_000 * i64::from(wish.weight);
                }
            }
        }
        let nodes = constraints.preferred_node_affinity.iter().filter(|wish| term_holds(&wish.item, node));
        score += nodes.map(|wish| 20 * i64::from(wish.weight)).sum::<i64>();
        score -= 2_000 * i64::try_from(untolerated(constraints, node, true).len()).expect("few taints");
        let soft = constraints.spread.iter().filter(|one| one.when_unsatisfiable == WhenUnsatisfiable::ScheduleAnyway);
        for constraint in soft {
            let domains = self.domains(pod, constraint);
            let crowd = match node.labels.get(&constraint.topology_key) {
                Some(value) => domains.get(value.as_str()).copied().unwrap_or(0),
                None => domains.values().max().map_or(0, |most| most + 1),
            };
            score -= 200 * crowd;
        }
        score
    }
}

fn ports_conflict(one: &HostPort, other: &HostPort) -> bool {
    let everywhere = |port: &HostPort| port.address.is_empty() || port.address == "0.0.0.0";
    one.port == other.port
        && one.protocol == other.protocol
        && (everywhere(one) || everywhere(other) || one.address == other.address)
}

fn exclusive_claims(constraints: &Constraints) -> BTreeSet<&str> {
    let exclusive = |need: &'_ VolumeNeed| matches!(need, VolumeNeed::Bound { exclusive: true, .. });
    let claims = constraints.volumes.iter().filter(|need| exclusive(need));
    claims.map(|(VolumeNeed::Bound { claim, .. } | VolumeNeed::Unbound { claim, .. })| claim.as_str()).collect()
}
