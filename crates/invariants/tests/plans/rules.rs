//! Rules between pods for random clusters: keeping away, being near, even spread, ports of nodes, and slices of divided GPUs.
//!
//! Pods that run keep their places: a rule binds only those that come.

use kai_core::delta::{
    Delta, Expression, Gpus, HostPort, MigStrategy, Operator, Pod, PodTerm, Selector, SpreadConstraint,
    WhenUnsatisfiable,
};

const PROFILE: &str = "nvidia.com/mig-1g.10gb";

/// Imposes rules on the pods of groups, by the number of the group.
pub fn impose(rules: &[u8], deltas: &mut [Delta]) {
    if rules.is_empty() {
        return;
    }
    let placed = |name: &String| {
        let on = |delta: &Delta| matches!(delta, Delta::Pod(pod) if pod.placement.as_ref().is_some_and(|at| at.node == *name));
        deltas.iter().any(on)
    };
    let names = deltas.iter().filter_map(|delta| if let Delta::Node(node) = delta { Some(&node.name) } else { None });
    let empty: Vec<String> = names.filter(|name| !placed(name)).cloned().collect();
    for delta in deltas {
        match delta {
            Delta::Node(node) => {
                node.labels.insert("host".to_owned(), node.name.clone());
                if rules[7].is_multiple_of(2) && empty.first() == Some(&node.name) {
                    (node.gpus.count, node.gpus.mig) = (0, MigStrategy::Mixed);
                    node.extended.insert(PROFILE.to_owned(), 3);
                }
            }
            Delta::Pod(pod) => {
                let number = pod.group.as_ref().and_then(|key| key.rsplit('-').next()?.parse::<usize>().ok());
                if let Some(rule) = number.and_then(|number| rules.get(number)) {
                    bind(pod, *rule);
                }
            }
            _ => {}
        }
    }
}

fn bind(pod: &mut Pod, rule: u8) {
    let app = if rule.is_multiple_of(2) { "a" } else { "b" };
    pod.labels.insert("app".to_owned(), app.to_owned());
    match rule {
        0 | 1 => pod.constraints.pod_anti_affinity.push(term(app, "host")),
        2 => pod.constraints.pod_anti_affinity.push(term("a", "rack")),
        3 => pod.constraints.pod_anti_affinity.push(term("a", "zone")),
        4 => pod.constraints.pod_anti_affinity.push(term("b", "host")),
        5 => pod.constraints.host_ports.push(port("")),
        6 => pod.constraints.host_ports.push(port("10.0.0.1")),
        7 => pod.constraints.pod_affinity.push(term("b", "rack")),
        8 | 9 => pod.constraints.spread.push(spread(app, if rule == 8 { "host" } else { "rack" })),
        10 if pod.placement.is_none() => {
            pod.request.gpus = Gpus::None;
            pod.request.extended.insert(PROFILE.to_owned(), 1);
            pod.request.mig_share = 142_857;
        }
        _ => {}
    }
}

fn selector(app: &str) -> Selector {
    let values = vec![app.to_owned()];
    Selector { expressions: vec![Expression { key: "app".to_owned(), operator: Operator::In, values }] }
}

fn term(app: &str, topology_key: &str) -> PodTerm {
    PodTerm { selector: Some(selector(app)), namespaces: None, topology_key: topology_key.to_owned() }
}

fn port(address: &str) -> HostPort {
    HostPort { port: 80, protocol: "TCP".to_owned(), address: address.to_owned() }
}

fn spread(app: &str, topology_key: &str) -> SpreadConstraint {
    SpreadConstraint {
        max_skew: 1,
        topology_key: topology_key.to_owned(),
        when_unsatisfiable: WhenUnsatisfiable::DoNotSchedule,
        selector: Some(selector(app)),
        min_domains: None,
        honor_node_affinity: true,
        honor_taints: false,
    }
}
