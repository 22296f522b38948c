//! A PodGroup with its pods: the tree of subgroups, and when enough of it is there.

use std::collections::{BTreeMap, BTreeSet};

use kai_core::delta::{Pod, PodGroup, SubGroup, TopologyConstraint};

use super::{Facts, is_ours};

/// No tree is nested deeper.
const DEEPEST: usize = 32;

/// A PodGroup with its pods.
#[derive(Debug)]
pub struct Gang<'a> {
    /// The group.
    pub group: &'a PodGroup,
    /// The leaves of the tree.
    pub podsets: Vec<PodSet<'a>>,
    /// The tree; `None`: it makes no sense, and the group cannot be scheduled.
    pub root: Option<Part<'a>>,
}

/// A leaf of the tree.
#[derive(Debug)]
pub struct PodSet<'a> {
    /// Its name; empty for the only one of a group without subgroups.
    pub name: &'a str,
    /// Pods that must run together.
    pub min: usize,
    /// Its pods.
    pub pods: Vec<&'a Pod>,
}

/// A part of the tree.
#[derive(Debug)]
pub struct Part<'a> {
    /// Its name.
    pub name: &'a str,
    /// Where it must or should be.
    pub topology: Option<&'a TopologyConstraint>,
    /// What it consists of.
    pub content: Content<'a>,
}

/// What a part of the tree consists of.
#[derive(Debug)]
pub enum Content<'a> {
    /// Pods: the place in [`Gang::podsets`].
    PodSet(usize),
    /// Other parts, of which so many must be there; `None`: all.
    Parts(Vec<Part<'a>>, Option<u32>),
}

impl Part<'_> {
    /// Whether enough of it is there, given the number of pods in each podset.
    #[must_use]
    pub fn is_satisfied(&self, podsets: &[PodSet<'_>], counts: &[usize]) -> bool {
        match &self.content {
            Content::PodSet(place) => counts[*place] >= podsets[*place].min,
            Content::Parts(parts, min) => {
                let needed = min.map_or(parts.len(), |min| min as usize);
                parts.iter().filter(|part| part.is_satisfied(podsets, counts)).count() >= needed
            }
        }
    }

    /// The podsets below it.
    #[must_use]
    pub fn podsets(&self) -> Vec<usize> {
        match &self.content {
            Content::PodSet(place) => vec![*place],
            Content::Parts(parts, _) => parts.iter().flat_map(Part::podsets).collect(),
        }
    }

    /// It and everything below it.
    #[must_use]
    pub fn all(&self) -> Vec<&Self> {
        let mut all = vec![self];
        if let Content::Parts(parts, _) = &self.content {
            all.extend(parts.iter().flat_map(Part::all));
        }
        all
    }
}

impl Gang<'_> {
    /// Whether it can be scheduled at all, as far as it is concerned.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.root.is_some() && self.group.invalid.is_none()
    }

    /// Counts the pods of each podset that a question is true for.
    pub fn count(&self, mut question: impl FnMut(&Pod) -> bool) -> Vec<usize> {
        self.podsets.iter().map(|podset| podset.pods.iter().filter(|pod| question(pod)).count()).collect()
    }

    /// Whether the whole gang is satisfied by so many pods in each podset.
    #[must_use]
    pub fn is_satisfied(&self, counts: &[usize]) -> bool {
        self.root.as_ref().is_some_and(|root| root.is_satisfied(&self.podsets, counts))
    }
}

impl Facts {
    /// All groups with their pods. Pods that name a subgroup which does not exist belong to none.
    #[must_use]
    pub fn gangs(&self) -> BTreeMap<&str, Gang<'_>> {
        let mut gangs: BTreeMap<&str, Gang<'_>> =
            self.groups.iter().map(|(key, group)| (key.as_str(), gang_of(group))).collect();
        for pod in self.pods.values().filter(|pod| is_ours(pod)) {
            let Some(gang) = pod.group.as_deref().and_then(|key| gangs.get_mut(key)) else { continue };
            let plain = gang.group.subgroups.is_empty();
            let named = match pod.subgroup.as_deref() {
                None | Some("default") if plain => "",
                None => "default",
                Some("") if plain => continue,
                Some(name) => name,
            };
            if let Some(podset) = gang.podsets.iter_mut().find(|podset| podset.name == named) {
                podset.pods.push(pod);
            }
        }
        gangs
    }
}

fn gang_of(group: &PodGroup) -> Gang<'_> {
    let mut podsets = Vec::new();
    let root = if group.subgroups.is_empty() {
        podsets.push(PodSet { name: "", min: group.min_member.unwrap_or(1) as usize, pods: Vec::new() });
        Some(Part { name: "", topology: group.topology.as_ref(), content: Content::PodSet(0) })
    } else if is_tree(&group.subgroups) {
        let parts = parts_of(&group.subgroups, None, &mut podsets);
        let content = Content::Parts(parts, group.min_sub_group);
        Some(Part { name: "", topology: group.topology.as_ref(), content })
    } else {
        None
    };
    Gang { group, podsets, root }
}

fn parts_of<'a>(subgroups: &'a [SubGroup], parent: Option<&str>, podsets: &mut Vec<PodSet<'a>>) -> Vec<Part<'a>> {
    let mut parts = Vec::new();
    for part in subgroups.iter().filter(|part| parent_of(part).as_deref() == parent) {
        let is_set = subgroups.iter().any(|child| parent_of(child).as_deref() == Some(&part.name));
        let content = if is_set {
            Content::Parts(parts_of(subgroups, Some(&part.name), podsets), part.min_sub_group)
        } else {
            podsets.push(PodSet { name: &part.name, min: part.min_member.unwrap_or(0) as usize, pods: Vec::new() });
            Content::PodSet(podsets.len() - 1)
        };
        parts.push(Part { name: &part.name, topology: part.topology.as_ref(), content });
    }
    parts
}

/// Names of parents are looked up in lower case.
fn parent_of(subgroup: &SubGroup) -> Option<String> {
    subgroup.parent.as_ref().map(|parent| parent.to_lowercase())
}

/// Whether names differ and every way up ends at the group.
fn is_tree(subgroups: &[SubGroup]) -> bool {
    let names: BTreeSet<&str> = subgroups.iter().map(|subgroup| subgroup.name.as_str()).collect();
    let parents: BTreeMap<&str, Option<String>> =
        subgroups.iter().map(|subgroup| (subgroup.name.as_str(), parent_of(subgroup))).collect();
    let ends = |subgroup: &SubGroup| {
        let mut current = parent_of(subgroup);
        for _ in 0..DEEPEST {
            let Some(parent) = current.take() else { return true };
            let Some(next) = parents.get(parent.as_str()) else { return false };
            current.clone_from(next);
        }
        current.is_none()
    };
    names.len() == subgroups.len() && subgroups.iter().all(ends)
}
