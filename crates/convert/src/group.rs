//! PodGroups: their tree, their timers, and a priority that depends on PriorityClasses.

use std::collections::{BTreeMap, BTreeSet};

use kai_api::{Preemptibility, defaults, names::annotations};
use kai_core::delta::{PodGroup, SubGroup, TopologyConstraint};

use crate::{
    amount::{annotated, created, span, wrong},
    queue::key,
};

/// What is kept of a PodGroup: everything but its priority, which can change without it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GroupRecord {
    group: PodGroup,
    class: Option<String>,
    preemptibility: Option<Preemptibility>,
}

/// The priorities that classes stand for.
#[derive(Clone, Debug, Default)]
pub struct Priorities {
    values: BTreeMap<String, i32>,
    /// Classes that hold for workloads that name none; the highest value counts, as in Kubernetes.
    defaults: BTreeSet<String>,
}

impl Priorities {
    /// Takes a class.
    pub fn insert(&mut self, name: String, value: i32, default: bool) {
        if default {
            self.defaults.insert(name.clone());
        } else {
            self.defaults.remove(&name);
        }
        self.values.insert(name, value);
    }

    /// Forgets a class.
    pub fn remove(&mut self, name: &str) {
        self.values.remove(name);
        self.defaults.remove(name);
    }

    /// The value of a class, else of the default one, else KAI's.
    #[must_use]
    pub fn of(&self, class: Option<&str>) -> i32 {
        let named = class.and_then(|class| self.values.get(class));
        let default = || self.defaults.iter().filter_map(|name| self.values.get(name)).max();
        named.or_else(default).copied().unwrap_or(defaults::POD_GROUP_PRIORITY)
    }

    /// Whether a group may be stopped for others: what it says itself, else what its priority means.
    #[must_use]
    pub fn preemptible(&self, spec: &kai_api::PodGroupSpec) -> bool {
        let class = spec.priority_class_name.as_deref().filter(|class| !class.is_empty());
        preemptible(spec.preemptibility, self.of(class))
    }
}

impl GroupRecord {
    /// Reads the object.
    pub(crate) fn of(object: &kai_api::PodGroup) -> Self {
        let spec = &object.spec;
        let note = |name: &str| object.metadata.annotations.as_ref().and_then(|all| all.get(name));
        let known: BTreeSet<&str> = spec.sub_groups.iter().map(|sub| sub.name.as_str()).collect();
        let group = PodGroup {
            key: key(&object.metadata),
            queue: spec.queue.clone().unwrap_or_default(),
            created: created(object.metadata.creation_timestamp.as_ref()),
            priority: defaults::POD_GROUP_PRIORITY,
            preemptible: true,
            min_member: count(spec.min_member),
            min_sub_group: count(spec.min_sub_group),
            topology: constraint(spec.topology_constraint.as_ref()),
            subgroups: spec.sub_groups.iter().map(|sub| subgroup(sub, &known)).collect(),
            preemption_delay: spec.preemption_delay.map(span),
            staleness_grace: spec.staleness_grace_period.map(span),
            last_start: annotated(note(annotations::LAST_START)),
            last_eviction: annotated(note(annotations::LAST_EVICTION)),
            stale_since: annotated(note(annotations::STALE_SINCE)),
            invalid: check(spec).err(),
        };
        let class = spec.priority_class_name.clone().filter(|class| !class.is_empty());
        Self { group, class, preemptibility: spec.preemptibility }
    }

    /// The group as it is with these priorities.
    pub(crate) fn resolve(&self, priorities: &Priorities) -> PodGroup {
        let priority = priorities.of(self.class.as_deref());
        let preemptible = preemptible(self.preemptibility, priority);
        PodGroup { priority, preemptible, ..self.group.clone() }
    }
}

fn preemptible(said: Option<Preemptibility>, priority: i32) -> bool {
    match said {
        Some(said) => said == Preemptibility::Preemptible,
        None => priority < defaults::NON_PREEMPTIBLE_PRIORITY,
    }
}

fn subgroup(sub: &kai_api::SubGroup, known: &BTreeSet<&str>) -> SubGroup {
    // KAI looks parents up in lower case, whatever the object says.
    let parent = sub.parent.clone().filter(|parent| !parent.is_empty());
    let parent = parent.map(|parent| if known.contains(parent.as_str()) { parent } else { parent.to_lowercase() });
    SubGroup {
        name: sub.name.clone(),
        parent,
        min_member: count(sub.min_member),
        min_sub_group: count(sub.min_sub_group),
        topology: constraint(sub.topology_constraint.as_ref()),
    }
}

/// A constraint without a topology says nothing.
fn constraint(given: Option<&kai_api::TopologyConstraint>) -> Option<TopologyConstraint> {
    let given = given?;
    let filled = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    Some(TopologyConstraint {
        topology: filled(&given.topology)?,
        required: filled(&given.required_topology_level),
        preferred: filled(&given.preferred_topology_level),
    })
}

fn count(number: Option<i32>) -> Option<u32> {
    number.map(|number| u32::try_from(number).unwrap_or(0))
}

/// What admission would refuse.
fn check(spec: &kai_api::PodGroupSpec) -> Result<(), String> {
    let negative = |field: &str, number: Option<i32>| match number {
        Some(number) if number < 0 => Err(wrong(field, format_args!("{number} is negative"), "write 0 or more")),
        _ => Ok(()),
    };
    negative("spec.minMember", spec.min_member)?;
    negative("spec.minSubGroup", spec.min_sub_group)?;
    if spec.min_member.is_some() && spec.min_sub_group.is_some() {
        return Err(wrong("spec.minSubGroup", "excludes `minMember`", "set one of them"));
    }
    let mut parents: BTreeMap<&str, Option<String>> = BTreeMap::new();
    let known: BTreeSet<&str> = spec.sub_groups.iter().map(|sub| sub.name.as_str()).collect();
    for (index, sub) in spec.sub_groups.iter().enumerate() {
        let field = |name: &str| format!("spec.subGroups[{index}].{name}");
        negative(&field("minMember"), sub.min_member)?;
        negative(&field("minSubGroup"), sub.min_sub_group)?;
        let read = subgroup(sub, &known);
        if let Some(parent) = &read.parent
            && !known.contains(parent.as_str())
        {
            let what = format_args!("no subgroup is called `{parent}`");
            return Err(wrong(field("parent"), what, "name one of the group's subgroups, or leave it out"));
        }
        if parents.insert(&sub.name, read.parent).is_some() {
            let what = format_args!("`{}` is there twice", sub.name);
            return Err(wrong(field("name"), what, "give each subgroup a name of its own"));
        }
    }
    for (index, sub) in spec.sub_groups.iter().enumerate() {
        let mut above = parents.get(sub.name.as_str()).cloned().flatten();
        let mut steps = 0;
        while let Some(parent) = above {
            steps += 1;
            if steps > parents.len() {
                let what = format_args!("`{}` is below itself", sub.name);
                return Err(wrong(format!("spec.subGroups[{index}].parent"), what, "let one of them have no parent"));
            }
            above = parents.get(parent.as_str()).cloned().flatten();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use kai_core::time::{Span, Time};
    use serde_json::{Value, json};

    use super::*;

    fn read(spec: Value) -> GroupRecord {
        let metadata = json!({"name": "g", "namespace": "team", "creationTimestamp": "2026-01-01T00:00:01Z",
            "annotations": {"kai.scheduler/last-start-timestamp": "2026-01-01T00:00:02Z", "kai.scheduler/stale-podgroup-timestamp": "soon"}});
        let object =
            json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": metadata, "spec": spec});
        GroupRecord::of(&serde_json::from_value(object).expect("a group"))
    }

    fn invalid(spec: Value) -> String {
        read(spec).group.invalid.expect("something is wrong")
    }

    #[test]
    fn priority_is_that_of_the_class_else_of_the_default_class_else_50() {
        let mut priorities = Priorities::default();
        let group = read(json!({"queue": "q", "priorityClassName": "build"}));
        assert_eq!(group.resolve(&priorities).priority, 50);
        priorities.insert("usual".to_owned(), 60, true);
        assert_eq!(group.resolve(&priorities).priority, 60);
        priorities.insert("build".to_owned(), 100, false);
        let resolved = group.resolve(&priorities);
        assert_eq!((resolved.priority, resolved.preemptible), (100, false));
        priorities.remove("usual");
        assert_eq!(read(json!({})).resolve(&priorities).priority, 50);
    }

    #[test]
    fn a_group_that_says_whether_it_is_preemptible_is_believed() {
        let mut priorities = Priorities::default();
        priorities.insert("build".to_owned(), 100, false);
        let group = read(json!({"priorityClassName": "build", "preemptibility": "preemptible"}));
        assert!(group.resolve(&priorities).preemptible);
        assert!(!read(json!({"preemptibility": "non-preemptible"})).resolve(&priorities).preemptible);
    }

    #[test]
    fn times_and_spans_arrive_and_unreadable_ones_are_left_out() {
        let group = read(json!({"preemptionDelay": "5m", "stalenessGracePeriod": "-1s"})).group;
        assert_eq!(group.preemption_delay, Some(Span(300_000)));
        assert_eq!(group.staleness_grace, Some(Span(-1000)));
        assert_eq!(group.last_start, Some(Time(group.created.0 + 1000)));
        assert_eq!(group.stale_since, None);
        assert_eq!((group.key.as_str(), group.invalid), ("team/g", None));
    }

    #[test]
    fn a_constraint_counts_only_with_a_topology_and_parents_are_found_in_lower_case() {
        let group = read(json!({"topologyConstraint": {"requiredTopologyLevel": "rack"}, "subGroups": [
            {"name": "a"}, {"name": "b", "parent": "A", "topologyConstraint": {"topology": "t", "preferredTopologyLevel": "rack"}}]}));
        let group = group.group;
        assert_eq!((group.topology, group.invalid), (None, None));
        assert_eq!(group.subgroups[1].parent.as_deref(), Some("a"));
        assert_eq!(group.subgroups[1].topology.as_ref().map(|t| t.topology.as_str()), Some("t"));
    }

    #[test]
    fn trees_that_cannot_be_are_refused_by_field() {
        assert!(invalid(json!({"subGroups": [{"name": "a", "parent": "x"}]})).contains("spec.subGroups[0].parent"));
        assert!(invalid(json!({"subGroups": [{"name": "a"}, {"name": "a"}]})).contains("twice"));
        let cycle = json!({"subGroups": [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]});
        assert!(invalid(cycle).contains("below itself"));
        assert!(invalid(json!({"minMember": 1, "minSubGroup": 1})).contains("excludes"));
        assert!(invalid(json!({"minMember": -1})).contains("spec.minMember"));
    }
}
