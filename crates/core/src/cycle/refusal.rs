//! Why a pod found no node, counted at the moment it did not.

use std::collections::BTreeMap;

use crate::{
    amounts::{Amounts, Resource, fixed, share},
    cycle::{
        Cycle,
        objections::{Answer, Objections},
        placement::{Mode, Scope},
        tasks::{Step, Steps},
    },
    delta::Gpus,
    ids::{ClassId, GroupId, NodeId, PodId},
    plan::{Cause, DeviceShortage, Holder, NodeRefusal, NodeRefusals},
};

/// How many holders of a short resource are named.
const HOLDERS: usize = 5;

/// For so many classes the answers of all nodes are kept between cycles.
const MOST_OBJECTIONS: usize = 128;

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
            let class = self.cluster.pods[pod.index()].class;
            let objections = self.take_objections(class);
            let mut told: Vec<(u32, i64)> = vec![(0, i64::MAX); objections.kinds().len()];
            let by_device = objections.kinds().iter().position(|kind| *kind == NodeRefusal::GpuMemoryShort);
            for (node, answer) in objections.answers() {
                if scope.nodes.as_ref().is_some_and(|nodes| !nodes.contains(node)) {
                    continue;
                }
                match answer {
                    Answer::Absent => {}
                    Answer::Nothing => {
                        let refusal = match self.check_around(pod, node) {
                            Err(refusal) => refusal,
                            Ok(()) => self.explain_detail(pod, node),
                        };
                        if refusal == NodeRefusal::GpuMemoryShort {
                            self.note_nearest(pod, node, &mut nearest);
                        }
                        counts.entry(refusal).or_insert((0, 0)).0 += 1;
                    }
                    Answer::Refusal(kind, missing) => {
                        let entry = &mut told[kind as usize];
                        *entry = (entry.0 + 1, entry.1.min(missing));
                        if Some(kind as usize) == by_device {
                            self.note_nearest(pod, node, &mut nearest);
                        }
                    }
                }
            }
            for (kind, (count, missing)) in objections.kinds().iter().zip(told).filter(|(_, (count, _))| *count > 0) {
                let entry = counts.entry(kind.clone()).or_insert((0, i64::MAX));
                *entry = (entry.0 + count, entry.1.min(missing));
            }
            self.keep_objections(class, objections);
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

    /// What each node has against a class for itself, as things are.
    fn take_objections(&mut self, class: ClassId) -> Objections {
        let known = self.cluster.memory.objections.remove(&class);
        let mut objections = known.unwrap_or_else(|| Objections::new(class));
        objections.refresh(self.cluster, self.policy);
        objections
    }

    /// Keeps them for the next cycle, unless there are too many.
    fn keep_objections(&mut self, class: ClassId, objections: Objections) {
        let kept = &mut self.cluster.memory.objections;
        if kept.len() >= MOST_OBJECTIONS {
            kept.clear();
        }
        kept.insert(class, objections);
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
        let mut extended: Vec<(&str, Resource)> = class
            .amounts
            .extended
            .iter()
            .map(|(word, _)| (self.cluster.word(*word), Resource::Extended(*word)))
            .collect();
        extended.sort_unstable_by_key(|(name, _)| *name);
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
