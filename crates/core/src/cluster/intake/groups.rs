//! PodGroups come, change and go.

use std::collections::BTreeMap;

use smallvec::smallvec;

use crate::{
    cluster::{
        Cluster,
        group::{Child, Group, PodSet, RareGroup, SubGroupSet, Tree},
        push_frugally,
        status::Status,
    },
    delta::{self, SubGroup},
    ids::{GroupId, PodId},
};

/// No tree of subgroups is nested deeper.
const DEEPEST: usize = 32;

impl Cluster {
    /// The group of a key, made if only its name is known.
    pub(super) fn group_named(&mut self, key: &str) -> GroupId {
        if let Some(group) = self.group(key) {
            return group;
        }
        let empty = self.words.intern("");
        let fresh = Group::unknown(key.into(), empty);
        let group = if let Some(group) = self.free_groups.pop() {
            self.groups[group.index()] = fresh;
            group
        } else {
            push_frugally(&mut self.groups, fresh);
            GroupId::of(self.groups.len() - 1)
        };
        self.group_ids.insert(key, group.0, |id| &self.groups[id as usize].key);
        group
    }

    pub(super) fn describe_group(&mut self, described: &delta::PodGroup) {
        let id = self.group_named(&described.key);
        let pods = self.lift_group(id);
        let queue = self.queue_named(&described.queue);
        let (podsets, tree, trouble) = self.build_tree(described);
        let rare = RareGroup {
            preemption_delay: described.preemption_delay,
            staleness_grace: described.staleness_grace,
            last_eviction: described.last_eviction,
            stale_since: described.stale_since,
            invalid: described.invalid.clone().or(trouble),
        };
        let queue_name = self.words.intern(&described.queue);
        let group = &mut self.groups[id.index()];
        group.exists = true;
        group.queue_name = queue_name;
        group.queue = Some(queue);
        group.created = described.created;
        group.priority = described.priority;
        group.preemptible = described.preemptible;
        group.last_start = described.last_start;
        group.rare = (rare != RareGroup::default()).then(|| Box::new(rare));
        group.podsets = podsets;
        group.tree = tree;
        self.lower_group(id, &pods);
    }

    pub(super) fn forget_group(&mut self, key: &str) {
        let Some(id) = self.group(key) else { return };
        let pods = self.lift_group(id);
        let empty = self.words.intern("");
        self.groups[id.index()] = Group::unknown(key.into(), empty);
        self.lower_group(id, &pods);
        self.release_group(id);
    }

    /// Frees the entry of a group that nothing names any more.
    pub(super) fn release_group(&mut self, id: GroupId) {
        let group = &self.groups[id.index()];
        if !group.exists && group.strays.is_empty() && group.podsets.is_empty() {
            self.group_ids.remove(&group.key, |id| &self.groups[id as usize].key);
            self.suspects.remove(&id);
            self.troubled.remove(&id);
            self.free_groups.push(id);
        }
    }

    /// Takes a group and all its pods out of all ledgers, before the group changes.
    fn lift_group(&mut self, id: GroupId) -> Vec<PodId> {
        let group = &mut self.groups[id.index()];
        let mut pods: Vec<PodId> = std::mem::take(&mut group.strays);
        pods.extend(group.podsets.iter().flat_map(|podset| podset.pods.iter().copied()));
        for pod in &pods {
            self.enter(*pod, -1);
        }
        self.unlist_group(id);
        pods
    }

    /// Enters them again, each in the podset it names.
    fn lower_group(&mut self, id: GroupId, pods: &[PodId]) {
        for pod in pods {
            self.join_podset(id, *pod);
            self.enter(*pod, 1);
        }
        self.list_group(id);
    }

    /// Puts a pod into the podset it names, or among the strays.
    pub(super) fn join_podset(&mut self, id: GroupId, pod: PodId) {
        let named = self.pods[pod.index()].rare.as_ref().and_then(|rare| rare.subgroup);
        let group = &mut self.groups[id.index()];
        let only = group.podsets.len() == 1 && self.words.text(group.podsets[0].name).is_empty();
        let place = match named {
            None if only => Some(0),
            None => group.podsets.iter().position(|podset| self.words.text(podset.name) == "default"),
            // Without subgroups the only podset also goes by the name of `default`.
            Some(name) if only => (self.words.text(name) == "default").then_some(0),
            Some(name) => group.podsets.iter().position(|podset| podset.name == name),
        };
        let place = place.filter(|_| group.exists);
        match place {
            Some(place) => group.podsets[place].pods.push(pod),
            None => group.strays.push(pod),
        }
        self.pods[pod.index()].podset = place.and_then(|place| u16::try_from(place).ok()).unwrap_or(u16::MAX);
    }

    /// Enters a group in the lists of its queue, or takes it out, by what its pods do now.
    pub(super) fn list_group(&mut self, id: GroupId) {
        self.unlist_group(id);
        let group = &self.groups[id.index()];
        let waiting = group.count(Status::Pending) > 0 || group.count(Status::Gated) > 0;
        let running = group.active_allocated() > 0;
        let active = group.podsets.iter().any(|podset| podset.active() > 0);
        let short = group.podsets.iter().any(|podset| podset.active() < podset.min);
        let troubled = group.exists && (!group.strays.is_empty() || group.rare().invalid.is_some());
        if (active && short) || group.rare().stale_since.is_some() {
            self.suspects.insert(id);
        }
        if troubled {
            self.troubled.insert(id);
        }
        let Some(queue) = group.queue.filter(|_| waiting || running) else { return };
        let (group, queue) = (&mut self.groups[id.index()], &mut self.queues[queue.index()]);
        if waiting {
            group.waiting_place = u32::try_from(queue.waiting_groups.len()).unwrap_or(u32::MAX);
            queue.waiting_groups.push(id);
        }
        if running {
            group.running_place = u32::try_from(queue.running_groups.len()).unwrap_or(u32::MAX);
            queue.running_groups.push(id);
        }
        queue.groups_version += 1;
    }

    /// Takes a group out of the lists of its queue.
    pub(super) fn unlist_group(&mut self, id: GroupId) {
        self.suspects.remove(&id);
        self.troubled.remove(&id);
        let group = &mut self.groups[id.index()];
        let Some(queue) = group.queue else { return };
        let queue = &mut self.queues[queue.index()];
        let waiting = std::mem::replace(&mut group.waiting_place, u32::MAX) as usize;
        let running = std::mem::replace(&mut group.running_place, u32::MAX) as usize;
        if waiting < queue.waiting_groups.len() {
            queue.waiting_groups.swap_remove(waiting);
            if let Some(moved) = queue.waiting_groups.get(waiting) {
                self.groups[moved.index()].waiting_place = u32::try_from(waiting).unwrap_or(u32::MAX);
            }
            queue.groups_version += 1;
        }
        if running < queue.running_groups.len() {
            queue.running_groups.swap_remove(running);
            if let Some(moved) = queue.running_groups.get(running) {
                self.groups[moved.index()].running_place = u32::try_from(running).unwrap_or(u32::MAX);
            }
            queue.groups_version += 1;
        }
    }

    /// The leaves and inner subgroups of a group, and what is wrong with them.
    fn build_tree(
        &mut self,
        group: &delta::PodGroup,
    ) -> (smallvec::SmallVec<[PodSet; 1]>, Option<Box<Tree>>, Option<String>) {
        let empty = self.words.intern("");
        if group.subgroups.is_empty() {
            let tree = group.topology.clone().map(|topology| {
                let root =
                    SubGroupSet { name: empty, children: vec![Child::PodSet(0)], min: None, topology: Some(topology) };
                Box::new(Tree { sets: vec![root], podset_topology: vec![None] })
            });
            return (smallvec![PodSet::new(empty, group.min_member.unwrap_or(1))], tree, None);
        }
        if let Some(trouble) = trouble_of(&group.subgroups) {
            return (smallvec![], None, Some(trouble));
        }
        let mut children: BTreeMap<String, Vec<&SubGroup>> = BTreeMap::new();
        for subgroup in &group.subgroups {
            let parent = subgroup.parent.as_deref().unwrap_or("").to_lowercase();
            children.entry(parent).or_default().push(subgroup);
        }
        let mut tree = Tree::default();
        let mut podsets = smallvec![];
        tree.sets.push(SubGroupSet {
            name: empty,
            children: Vec::new(),
            min: group.min_sub_group,
            topology: group.topology.clone(),
        });
        let mut open = vec![(0_u16, String::new())];
        while let Some((set, name)) = open.pop() {
            let mut parts = children.remove(&name).unwrap_or_default();
            parts.sort_by(|a, b| a.name.cmp(&b.name));
            for part in parts {
                let word = self.words.intern(&part.name);
                let child = if children.contains_key(&part.name.to_lowercase()) {
                    let index = u16::try_from(tree.sets.len()).unwrap_or(u16::MAX);
                    tree.sets.push(SubGroupSet {
                        name: word,
                        children: Vec::new(),
                        min: part.min_sub_group,
                        topology: part.topology.clone(),
                    });
                    open.push((index, part.name.to_lowercase()));
                    Child::Set(index)
                } else {
                    podsets.push(PodSet::new(word, part.min_member.unwrap_or(0)));
                    tree.podset_topology.push(part.topology.clone());
                    Child::PodSet(u16::try_from(podsets.len() - 1).unwrap_or(u16::MAX))
                };
                tree.sets[usize::from(set)].children.push(child);
            }
        }
        (podsets, Some(Box::new(tree)), None)
    }
}

/// What is wrong with a list of subgroups.
fn trouble_of(subgroups: &[SubGroup]) -> Option<String> {
    if subgroups.len() > usize::from(u16::MAX) {
        return Some(format!("spec.subGroups: {} are too many", subgroups.len()));
    }
    let mut parents: BTreeMap<&str, Option<String>> = BTreeMap::new();
    for subgroup in subgroups {
        if parents.insert(&subgroup.name, subgroup.parent.as_ref().map(|parent| parent.to_lowercase())).is_some() {
            return Some(format!("spec.subGroups: `{}` is there twice; names must differ", subgroup.name));
        }
    }
    for subgroup in subgroups {
        let mut current = subgroup.parent.as_ref().map(|parent| parent.to_lowercase());
        for depth in 0.. {
            let Some(parent) = current.clone() else { break };
            if depth >= DEEPEST {
                return Some(format!("spec.subGroups: `{}` is its own ancestor, or nested too deep", subgroup.name));
            }
            match parents.get(parent.as_str()) {
                Some(next) => current.clone_from(next),
                None => {
                    return Some(format!("spec.subGroups: parent `{parent}` of `{}` does not exist", subgroup.name));
                }
            }
        }
    }
    None
}
