//! NUMA: what nodes report of their zones, what a kubelet would align of a pod, and where pods are said to be.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::core::v1 as k8s,
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use kai_core::delta::{Numa, NumaPolicy, NumaScope, NumaShare, NumaUnit, NumaZone};
use serde::{Deserialize, Serialize};

use crate::amount::{Round, amount};

/// `topology.node.k8s.io/v1alpha2 NodeResourceTopology`: the zones of the node of the same name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeResourceTopology {
    /// Its name is that of the node.
    pub metadata: ObjectMeta,
    /// The old way to say policy and scope, as one word.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub topology_policies: Vec<String>,
    /// Policy and scope of the kubelet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<Attribute>,
    /// The zones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<Zone>,
}

/// A setting of the kubelet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Attribute {
    /// Which one.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// One zone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Zone {
    /// Its name, ending in a number.
    pub name: String,
    /// `Node` for NUMA zones.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it has.
    pub resources: Vec<ZoneResource>,
}

/// What a zone has of one resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ZoneResource {
    /// Which one.
    pub name: String,
    /// All of it.
    pub capacity: Quantity,
    /// What pods may have.
    pub allocatable: Quantity,
    /// What is free.
    pub available: Quantity,
}

/// The zones of a node, with the names by which annotations call them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Zones {
    names: Vec<String>,
    numa: Numa,
}

impl Zones {
    /// Reads a report. Resources that cannot be read, or are to be ignored, are left out of it.
    pub(crate) fn of(object: &NodeResourceTopology, ignored: &BTreeSet<String>) -> Self {
        let mut zones: Vec<&Zone> =
            object.zones.iter().filter(|zone| zone.kind.is_empty() || zone.kind == "Node").collect();
        zones.sort_by_key(|zone| (trailing_number(&zone.name), zone.name.clone()));
        let (policy, scope) = policy_and_scope(object);
        let read = |resources: &[ZoneResource], which: fn(&ZoneResource) -> &Quantity| {
            let wanted = resources.iter().filter(|resource| !ignored.contains(&resource.name));
            let amounts = wanted.filter_map(|resource| {
                let read = amount("zones", &resource.name, which(resource), Round::Down).ok()?;
                Some((resource.name.clone(), read))
            });
            amounts.collect::<BTreeMap<_, _>>()
        };
        let converted = zones.iter().map(|zone| NumaZone {
            allocatable: read(&zone.resources, |resource| &resource.allocatable),
            available: read(&zone.resources, |resource| &resource.available),
        });
        Self {
            numa: Numa { policy, scope, zones: converted.collect() },
            names: zones.iter().map(|zone| zone.name.clone()).collect(),
        }
    }

    /// The zones for the core.
    pub(crate) fn numa(&self) -> Numa {
        self.numa.clone()
    }

    /// The names of the zones, by index.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }
}

/// What a pod has in one zone, by the zone's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ZoneShare {
    pub(crate) zone: String,
    pub(crate) amounts: BTreeMap<String, i64>,
}

/// Reads the list that the exporter and the binder write into annotations. What cannot be read is as if it were not there.
pub(crate) fn annotated_shares(text: Option<&String>) -> Vec<ZoneShare> {
    let entries: Vec<kai_api::NumaZonePlacement> =
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    shares(&entries)
}

/// Amounts by zone.
pub(crate) fn shares(entries: &[kai_api::NumaZonePlacement]) -> Vec<ZoneShare> {
    let one = |entry: &kai_api::NumaZonePlacement| {
        let amounts = entry.amount.iter().filter_map(|(resource, quantity)| {
            Some((resource.clone(), amount("amount", resource, quantity, Round::Up).ok()?))
        });
        ZoneShare { zone: entry.zone.clone(), amounts: amounts.collect() }
    };
    entries.iter().map(one).collect()
}

/// Shares by the index of their zone: by its name where the node reported zones, else by the number it ends in.
pub(crate) fn indexed(shares: &[ZoneShare], zones: Option<&Zones>) -> Vec<NumaShare> {
    let index = |zone: &str| {
        let named = zones.and_then(|zones| zones.names.iter().position(|name| name == zone));
        named.and_then(|index| u32::try_from(index).ok()).or_else(|| trailing_number(zone))
    };
    let read =
        shares.iter().filter_map(|share| Some(NumaShare { zone: index(&share.zone)?, amounts: share.amounts.clone() }));
    read.collect()
}

fn trailing_number(name: &str) -> Option<u32> {
    let digits = name.len() - name.bytes().rev().take_while(u8::is_ascii_digit).count();
    name.get(digits..).and_then(|text| text.parse().ok())
}

fn policy_and_scope(object: &NodeResourceTopology) -> (NumaPolicy, NumaScope) {
    let old = object.topology_policies.first().map_or("", String::as_str);
    let mut found = match old {
        "SingleNUMANodeContainerLevel" => (NumaPolicy::SingleNumaNode, NumaScope::Container),
        "SingleNUMANodePodLevel" => (NumaPolicy::SingleNumaNode, NumaScope::Pod),
        "Restricted" | "RestrictedContainerLevel" => (NumaPolicy::Restricted, NumaScope::Container),
        "RestrictedPodLevel" => (NumaPolicy::Restricted, NumaScope::Pod),
        "BestEffort" | "BestEffortContainerLevel" => (NumaPolicy::BestEffort, NumaScope::Container),
        "BestEffortPodLevel" => (NumaPolicy::BestEffort, NumaScope::Pod),
        _ => (NumaPolicy::None, NumaScope::Container),
    };
    for attribute in &object.attributes {
        match (attribute.name.as_str(), attribute.value.as_str()) {
            ("topologyManagerPolicy", "single-numa-node") => found.0 = NumaPolicy::SingleNumaNode,
            ("topologyManagerPolicy", "restricted") => found.0 = NumaPolicy::Restricted,
            ("topologyManagerPolicy", "best-effort") => found.0 = NumaPolicy::BestEffort,
            ("topologyManagerPolicy", _) => found.0 = NumaPolicy::None,
            ("topologyManagerScope", "pod") => found.1 = NumaScope::Pod,
            ("topologyManagerScope", _) => found.1 = NumaScope::Container,
            _ => {}
        }
    }
    found
}

/// Whether a kubelet gives a pod exclusive CPUs and memory.
pub(crate) fn guaranteed(pod: &k8s::Pod) -> bool {
    if let Some(class) = pod.status.as_ref().and_then(|status| status.qos_class.as_deref()) {
        return class == "Guaranteed";
    }
    let Some(spec) = &pod.spec else { return false };
    let all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mut containers = all.peekable();
    containers.peek().is_some()
        && containers.all(|container| {
            let Some(resources) = &container.resources else { return false };
            let limits = resources.limits.clone().unwrap_or_default();
            let requests = resources.requests.as_ref();
            ["cpu", "memory"].iter().all(|name| {
                let limit = limits.get(*name);
                limit.is_some() && requests.and_then(|all| all.get(*name)).is_none_or(|request| Some(request) == limit)
            })
        })
}

/// The amounts of one container that a kubelet would align: devices always, the rest only for guaranteed pods, CPUs only in whole
/// numbers.
pub(crate) fn aligned(requests: &BTreeMap<&str, i64>, guaranteed: bool) -> BTreeMap<String, i64> {
    let counts = |resource: &str, amount: i64| match resource {
        _ if amount <= 0 => false,
        "cpu" => guaranteed && amount % 1000 == 0,
        "memory" => guaranteed,
        "ephemeral-storage" => false,
        _ if resource.starts_with("hugepages-") => guaranteed,
        _ => true,
    };
    requests
        .iter()
        .filter(|(resource, amount)| counts(resource, **amount))
        .map(|(r, a)| ((*r).to_owned(), *a))
        .collect()
}

/// The units of a pod: the pod as one, and each container. Ordinary init containers must fit alone.
pub(crate) fn units(
    containers: &[BTreeMap<&str, i64>],
    sidecars: &[BTreeMap<&str, i64>],
    init: &[BTreeMap<&str, i64>],
    guaranteed: bool,
) -> Vec<NumaUnit> {
    let together: Vec<_> = containers.iter().chain(sidecars).map(|all| aligned(all, guaranteed)).collect();
    let alone: Vec<_> = init.iter().map(|all| aligned(all, guaranteed)).collect();
    let mut whole: BTreeMap<String, i64> = BTreeMap::new();
    for (resource, amount) in together.iter().flatten() {
        let sum = whole.entry(resource.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
    for (resource, amount) in alone.iter().flatten() {
        let peak = whole.entry(resource.clone()).or_default();
        *peak = (*peak).max(*amount);
    }
    if whole.is_empty() {
        return Vec::new();
    }
    let unit = |whole_pod, init, amounts| NumaUnit { whole_pod, init, amounts };
    let mut units = vec![unit(true, false, whole)];
    units.extend(alone.into_iter().filter(|all| !all.is_empty()).map(|all| unit(false, true, all)));
    units.extend(together.into_iter().filter(|all| !all.is_empty()).map(|all| unit(false, false, all)));
    units
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn amounts<T: From<&'static str> + Ord>(entries: &[(&'static str, i64)]) -> BTreeMap<T, i64> {
        entries.iter().map(|(name, amount)| ((*name).into(), *amount)).collect()
    }

    fn report() -> NodeResourceTopology {
        let zone = |name: &str, cpus: &str| {
            let cpu = json!({"name": "cpu", "capacity": "8", "allocatable": cpus, "available": "1"});
            let gpu = json!({"name": "nvidia.com/gpu", "capacity": "2", "allocatable": "2", "available": "2"});
            json!({"name": name, "type": "Node", "resources": [cpu, gpu]})
        };
        serde_json::from_value(json!({
            "metadata": {"name": "n"},
            "attributes": [{"name": "topologyManagerPolicy", "value": "restricted"}, {"name": "topologyManagerScope", "value": "pod"}],
            "zones": [zone("node-10", "6"), zone("node-2", "4")]
        }))
        .expect("a report")
    }

    #[test]
    fn zones_are_in_the_order_of_their_numbers() {
        let zones = Zones::of(&report(), &BTreeSet::from(["nvidia.com/gpu".to_owned()]));
        assert_eq!(zones.names(), ["node-2", "node-10"]);
        assert_eq!(zones.numa.zones[0].allocatable, amounts(&[("cpu", 4000)]));
        assert_eq!(zones.numa.zones[1].available, amounts(&[("cpu", 1000)]));
        assert_eq!((zones.numa.policy, zones.numa.scope), (NumaPolicy::Restricted, NumaScope::Pod));
    }

    #[test]
    fn shares_are_found_by_the_name_of_their_zone() {
        let text = r#"[{"zone":"node-10","amount":{"cpu":"3"}}]"#.to_owned();
        let shares = annotated_shares(Some(&text));
        let zones = Zones::of(&report(), &BTreeSet::new());
        assert_eq!(indexed(&shares, Some(&zones)), [NumaShare { zone: 1, amounts: amounts(&[("cpu", 3000)]) }]);
        assert_eq!(indexed(&shares, None)[0].zone, 10);
        assert!(annotated_shares(Some(&"nonsense".to_owned())).is_empty());
    }

    #[test]
    fn devices_count_for_everyone_the_rest_for_guaranteed_pods() {
        let asked = amounts(&[("cpu", 2000), ("memory", 5), ("nvidia.com/gpu", 1), ("ephemeral-storage", 9)]);
        assert_eq!(aligned(&asked, false), amounts(&[("nvidia.com/gpu", 1)]));
        assert_eq!(aligned(&asked, true), amounts(&[("cpu", 2000), ("memory", 5), ("nvidia.com/gpu", 1)]));
        assert_eq!(aligned(&amounts(&[("cpu", 1500)]), true), BTreeMap::new());
    }

    #[test]
    fn a_pod_is_one_unit_and_each_container_is_one() {
        let units =
            units(&[amounts(&[("cpu", 2000)])], &[amounts(&[("cpu", 1000)])], &[amounts(&[("cpu", 4000)])], true);
        assert_eq!(units.len(), 4);
        assert_eq!((units[0].whole_pod, units[0].amounts.clone()), (true, amounts(&[("cpu", 4000)])));
        assert!(units[1].init && !units[2].init && !units[3].init);
    }

    #[test]
    fn old_words_for_the_policy_are_understood() {
        let object = NodeResourceTopology {
            topology_policies: vec!["SingleNUMANodePodLevel".to_owned()],
            ..NodeResourceTopology::default()
        };
        assert_eq!(policy_and_scope(&object), (NumaPolicy::SingleNumaNode, NumaScope::Pod));
    }
}
