//! Why a pod found no node, counted at the moment it did not.

use std::collections::BTreeMap;

use crate::{
    amounts::{Amounts, Resource, fixed, share},
    cycle::{
        Cycle,
        placement::{Mode, Scope},
        ranking::suits,
        tasks::{Step, Steps},
    },
    delta::Gpus,
    ids::{GroupId, NodeId, PodId},
    plan::{Cause, DeviceShortage, Holder, NodeRefusal, NodeRefusals},
};

/// How many holders of a short resource are named.
const HOLDERS: usize = 5;

/// Adds a run of equal refusals to the counts.
fn enter(counts: &mut BTreeMap<NodeRefusal, (u32, i64)>, run: Option<(NodeRefusal, u32, i64)>) {
    if let Some((refusal, count, missing)) = run {
        let entry = counts.entry(refusal).or_insert((0, i64::MAX));
        entry.0 += count;
        entry.1 = entry.1.min(missing);
    }
}

impl Cycle<'_> {
    /// The cause of a group's refusal: one of its pods found no place after `placed` others had.
    #[expect(clippy::too_many_arguments, reason = "a refusal tells all that was known when it happened")]
    pub(super) fn explain_pod(
        &mut self,
        group: GroupId,
        steps: &Steps,
        step: &Step,
        pod: PodId,
        placed: u32,
        scope: &Scope,
        mode: Mode,
    ) -> Cause {
        // Simulations only need to know that it failed.
        let nodes = if mode == Mode::Later { NodeRefusals::default() } else { self.explain_nodes(pod, scope) };
        let described = self.group(group);
        let Some(podset) = described.podsets.get(usize::from(step.podset)) else { return Cause::Pod { pod, nodes } };
        let gang = described.podsets.iter().any(|podset| podset.min > 1);
        let held = podset.active_allocated();
        if gang && held < podset.min {
            let needed = steps.iter().map(|step| step.pods.len()).sum::<usize>();
            let subgroup = self.cluster.word(podset.name).to_owned();
            let needed = u32::try_from(needed).unwrap_or(u32::MAX);
            return Cause::Gang { subgroup, placed, needed, pod, nodes };
        }
        Cause::Pod { pod, nodes }
    }

    /// What each node said to a pod.
    fn explain_nodes(&mut self, pod: PodId, scope: &Scope) -> NodeRefusals {
        self.ask_around(pod);
        let class = self.cluster.class_of(pod);
        let mut counts: BTreeMap<NodeRefusal, (u32, i64)> = BTreeMap::new();
        let mut nearest: Option<DeviceShortage> = None;
        let everywhere = class.constraints.everywhere().filter(|_| self.policy.plugins.predicates);
        let everywhere = everywhere
            .map(str::to_owned)
            .or_else(|| self.cluster.claims_refusal(pod).filter(|_| self.policy.plugins.dynamic_resources))
            .or_else(|| self.larger_than_any_node(pod));
        if everywhere.is_none() {
            let mut run: Option<(NodeRefusal, u32, i64)> = None;
            for index in 0..self.cluster.nodes.len() {
                let node = NodeId::of(index);
                if !self.cluster.nodes[index].exists || scope.nodes.as_ref().is_some_and(|nodes| !nodes.contains(node))
                {
                    continue;
                }
                let (refusal, missing) = match self.explain_node(pod, node) {
                    NodeRefusal::Short(resource, missing) => (NodeRefusal::Short(resource, 0), missing),
                    other => (other, 0),
                };
                if refusal == NodeRefusal::GpuMemoryShort {
                    self.note_nearest(pod, node, &mut nearest);
                }
                // Neighbours mostly say the same: only the first of a run is looked up.
                match &mut run {
                    Some((known, count, least)) if *known == refusal => {
                        *count += 1;
                        *least = (*least).min(missing);
                    }
                    _ => {
                        enter(&mut counts, run.replace((refusal, 1, missing)));
                    }
                }
            }
            enter(&mut counts, run);
        }
        let short_of_gpus = counts.keys().any(|refusal| {
            matches!(refusal, NodeRefusal::Short(Resource::Fixed(place), _) if usize::from(*place) == fixed::GPU)
                || *refusal == NodeRefusal::GpuMemoryShort
        });
        let mut counts: Vec<(NodeRefusal, u32)> = counts
            .into_iter()
            .map(|(refusal, (count, missing))| match refusal {
                NodeRefusal::Short(resource, _) => (NodeRefusal::Short(resource, missing), count),
                other => (other, count),
            })
            .collect();
        counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        self.plan.stats.nodes_examined += self.cluster.nodes.len() as u64;
        let holders = if short_of_gpus { self.holders() } else { Vec::new() };
        if let Some(nearest) = &mut nearest {
            nearest.holders = self.holders_of(nearest.node, nearest.device);
        }
        NodeRefusals { everywhere, counts, holders, nearest: nearest.map(Box::new) }
    }

    /// Keeps the device of a node that has most left, if that is more than was found so far.
    fn note_nearest(&self, pod: PodId, node: NodeId, nearest: &mut Option<DeviceShortage>) {
        let described = &self.cluster.nodes[node.index()];
        let Some(asked) = described.units_of(self.cluster.class_of(pod).gpus) else { return };
        let capacity = described.device_units();
        for device in &described.shared {
            let held = device.staying();
            // Compared as parts of their devices, which differ in size between nodes; then by name.
            let rank = |held: u64, capacity: u64, node, device| {
                let part = u128::from(held) * 1_000_000_000 / u128::from(capacity.max(1));
                (part, self.cluster.node_name(node), self.cluster.word(device))
            };
            let better = nearest.as_ref().is_none_or(|known| {
                rank(held, capacity, node, device.name) < rank(known.held, known.capacity, known.node, known.device)
            });
            if held > 0 && better {
                *nearest = Some(DeviceShortage {
                    node,
                    device: device.name,
                    memory: described.gpu_memory,
                    capacity,
                    held,
                    asked,
                    holders: Vec::new(),
                });
            }
        }
    }

    /// The pods that hold a part of a device or are promised one, by uid.
    fn holders_of(&self, node: NodeId, device: crate::ids::Word) -> Vec<PodId> {
        let holds = |pod: &PodId| {
            let place = &self.cluster.pods[pod.index()].place;
            place.devices.contains(&device) && place.status.is_active_allocated()
        };
        let mut pods: Vec<PodId> =
            self.cluster.nodes[node.index()].pods.iter().copied().filter(|pod| holds(pod)).collect();
        pods.sort_by(|a, b| self.cluster.pod_uid(*a).cmp(self.cluster.pod_uid(*b)));
        pods
    }

    /// What one node says to a pod that it did not take.
    fn explain_node(&self, pod: PodId, node: NodeId) -> NodeRefusal {
        let class = self.cluster.class_of(pod);
        let described = &self.cluster.nodes[node.index()];
        if let Err(refusal) = suits(self.cluster, class, described, self.policy) {
            return refusal;
        }
        if let Some((resource, missing)) = described.shortage(class) {
            return if resource == Resource::PODS {
                NodeRefusal::PodSlots
            } else {
                NodeRefusal::Short(resource, missing)
            };
        }
        if !described.fits_future(class) {
            let slots = described.future.fixed[fixed::PODS] < 2 && described.future.fixed[fixed::GPU] > 0;
            return if slots { NodeRefusal::PodSlots } else { NodeRefusal::GpuMemoryShort };
        }
        match self.check_around(pod, node) {
            Err(refusal) => refusal,
            Ok(()) => self.explain_detail(pod, node),
        }
    }

    /// The resource of which a pod asks more than any node has, as a sentence.
    fn larger_than_any_node(&mut self, pod: PodId) -> Option<String> {
        let class = self.cluster.class_of(pod);
        if !self.cluster.nodes.iter().any(|node| node.exists) {
            return None;
        }
        let largest = self.largest_node.get_or_insert_with(|| {
            let mut largest = Amounts::default();
            for node in self.cluster.nodes.iter().filter(|node| node.exists) {
                largest.widen(&node.total);
            }
            largest
        });
        let names = ["CPU cores", "memory", "GPUs", "pods", "ephemeral storage"];
        let fixed_places =
            (0..fixed::COUNT).map(|place| (names[place], Resource::Fixed(u8::try_from(place).unwrap_or(0))));
        let extended =
            class.amounts.extended.iter().map(|(word, _)| (self.cluster.word(*word), Resource::Extended(*word)));
        for (name, resource) in fixed_places.chain(extended) {
            let (wanted, most) = (class.amounts.of(resource), largest.of(resource));
            if wanted > most {
                return Some(if most == 0 {
                    format!("the workload requested {wanted} {name}, but none are available in the node pool")
                } else {
                    format!("the workload requested {wanted} {name}, but the maximum a single node offers is {most}")
                });
            }
        }
        let Gpus::Memory { mib, .. } = class.gpus else { return None };
        let known = self.cluster.nodes.iter().filter(|node| node.exists).filter_map(|node| node.gpu_memory);
        let most = known.max().filter(|most| mib > *most)?;
        Some(format!(
            "the pod asks for {mib} MiB of the memory of one GPU (gpu-memory), but the largest GPU has {most} MiB"
        ))
    }

    /// The queues that hold most GPUs.
    fn holders(&self) -> Vec<Holder> {
        let leaves = self.cluster.queues.iter().enumerate().filter(|(_, queue)| queue.children.is_empty());
        let mut holders: Vec<Holder> = leaves
            .map(|(index, queue)| Holder {
                queue: crate::ids::QueueId::of(index),
                gpus: queue.sum.allocated.0[share::GPU],
            })
            .filter(|holder| holder.gpus > 0)
            .collect();
        let name = |holder: &Holder| &self.cluster.queues[holder.queue.index()].name;
        holders.sort_by(|a, b| b.gpus.cmp(&a.gpus).then_with(|| name(a).cmp(name(b))));
        holders.truncate(HOLDERS);
        holders
    }
}
