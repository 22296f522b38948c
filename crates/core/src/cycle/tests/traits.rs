//! What sets groups and nodes of a random cluster apart: subgroups, domains, rules between pods, ports and MIG.

use proptest::prelude::*;

use super::world::World;
use crate::delta::{
    Expression, Gpus, HostPort, Level, MigStrategy, Operator, PodTerm, Selector, SubGroup, Topology, TopologyConstraint,
};

/// The profile of MIG nodes.
const PROFILE: &str = "nvidia.com/mig-1g.5gb";

/// What a group is made to be.
#[derive(Clone, Debug)]
struct Trait {
    parts: Parts,
    /// It must be in one rack.
    together: bool,
    /// Its label; pods avoid labels.
    label: u8,
    /// The label its pods avoid, and whether on the node or in the rack.
    avoids: Option<(u8, bool)>,
    port: bool,
    mig: bool,
}

/// How a group is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parts {
    One,
    /// Two subgroups, both needed.
    Two,
    /// Two subgroups, one needed.
    Either,
    /// One subgroup, and a set of two of which one is needed.
    Nested,
}

/// The traits of a cluster.
#[derive(Clone, Debug)]
pub struct Traits {
    groups: Vec<Trait>,
    racks: Vec<u8>,
    /// MIG slices of the last node, if it is a MIG node.
    slices: Option<i64>,
}

fn any_trait() -> impl Strategy<Value = Trait> {
    let parts =
        prop_oneof![3 => Just(Parts::One), 1 => Just(Parts::Two), 1 => Just(Parts::Either), 1 => Just(Parts::Nested)];
    let avoids = prop::option::weighted(0.3, (0..3_u8, any::<bool>()));
    let flags = (prop::bool::weighted(0.3), prop::bool::weighted(0.15), prop::bool::weighted(0.4));
    (parts, 0..3_u8, avoids, flags).prop_map(|(parts, label, avoids, (together, port, mig))| Trait {
        parts,
        together,
        label,
        avoids,
        port,
        mig,
    })
}

/// Random traits.
pub fn any_traits() -> impl Strategy<Value = Traits> {
    let slices = prop::option::weighted(0.3, 1..4_i64);
    let racks = prop::collection::vec(0..2_u8, 4);
    (prop::collection::vec(any_trait(), 10), racks, slices).prop_map(|(groups, racks, slices)| Traits {
        groups,
        racks,
        slices,
    })
}

impl Traits {
    /// Gives a cluster these traits. Pods that run keep their places: what they demand binds only those that come.
    pub fn give(&self, mut world: World) -> World {
        for (node, rack) in world.nodes.iter_mut().zip(&self.racks) {
            node.labels.insert("rack".to_owned(), format!("r{rack}"));
            node.labels.insert("host".to_owned(), node.name.clone());
        }
        let levels = vec![Level { label: "rack".to_owned(), alias: None }];
        world.topologies.push(Topology { name: "hall".to_owned(), levels });
        let mut left = self.divide_last_node(&mut world);
        for place in 0..world.groups.len().min(self.groups.len()) {
            self.dress(&mut world, place, &mut left);
        }
        world
    }

    /// Makes the last node a MIG node if nobody with other GPUs runs there; its name and its slices.
    fn divide_last_node(&self, world: &mut World) -> Option<(String, i64)> {
        let slices = self.slices.filter(|_| world.nodes.len() > 1)?;
        let node = world.nodes.last_mut()?;
        let taken = |pod: &crate::delta::Pod| pod.placement.as_ref().is_some_and(|at| at.node == node.name);
        if world.pods.iter().any(taken) {
            return None;
        }
        (node.gpus.count, node.gpus.mig) = (0, MigStrategy::Mixed);
        node.extended.insert(PROFILE.to_owned(), slices);
        Some((node.name.clone(), slices))
    }

    fn dress(&self, world: &mut World, place: usize, left: &mut Option<(String, i64)>) {
        let traits = &self.groups[place];
        let group = &mut world.groups[place];
        let (key, min) = (group.key.clone(), group.min_member.unwrap_or(1));
        let part = |name: &str, min: u32, parent: Option<&str>| SubGroup {
            name: name.to_owned(),
            parent: parent.map(str::to_owned),
            min_member: Some(min),
            min_sub_group: None,
            topology: None,
        };
        let halves = (min.div_ceil(2), min / 2);
        let names: &[&str] = match traits.parts {
            Parts::One => &[],
            Parts::Two | Parts::Either => {
                group.subgroups = vec![part("a", halves.0, None), part("b", halves.1, None)];
                group.min_sub_group = (traits.parts == Parts::Either).then_some(1);
                &["a", "b"]
            }
            Parts::Nested => {
                let set = SubGroup { min_member: None, min_sub_group: Some(1), ..part("s", 0, None) };
                group.subgroups =
                    vec![part("a", halves.0, None), set, part("b", 1, Some("s")), part("c", 1, Some("s"))];
                &["a", "b", "c"]
            }
        };
        if traits.together {
            let (topology, required) = ("hall".to_owned(), Some("rack".to_owned()));
            group.topology = Some(TopologyConstraint { topology, required, preferred: None });
        }
        let own = world.pods.iter_mut().filter(|pod| pod.group.as_deref() == Some(key.as_str()));
        let mut pods: Vec<&mut crate::delta::Pod> = own.collect();
        let waits = pods.iter().all(|pod| pod.placement.is_none());
        let count = i64::try_from(pods.len()).unwrap_or(0);
        let runs_on_slices = traits.mig && !waits && left.as_ref().is_some_and(|(_, slices)| *slices >= count);
        for (index, pod) in pods.iter_mut().enumerate() {
            pod.subgroup = (!names.is_empty()).then(|| names[index % names.len()].to_owned());
            pod.labels.insert("app".to_owned(), format!("l{}", traits.label));
            if let Some((label, near)) = traits.avoids {
                pod.constraints.pod_anti_affinity.push(away_from(label, if near { "host" } else { "rack" }));
            }
            if traits.port {
                pod.constraints.host_ports.push(HostPort { port: 80, protocol: String::new(), address: String::new() });
            }
            if traits.mig && (waits && left.is_some() || runs_on_slices) {
                pod.request.gpus = Gpus::None;
                pod.request.extended.insert(PROFILE.to_owned(), 1);
                pod.request.mig_share = 142_857;
            }
        }
        if let Some((name, slices)) = left.as_mut().filter(|_| runs_on_slices) {
            *slices -= count;
            for pod in pods {
                if let Some(placement) = &mut pod.placement {
                    (placement.node, placement.devices) = (name.clone(), Vec::new());
                }
            }
        }
    }
}

fn away_from(label: u8, topology_key: &str) -> PodTerm {
    let expression = Expression { key: "app".to_owned(), operator: Operator::In, values: vec![format!("l{label}")] };
    PodTerm {
        selector: Some(Selector { expressions: vec![expression] }),
        namespaces: None,
        topology_key: topology_key.to_owned(),
    }
}
