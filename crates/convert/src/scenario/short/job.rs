//! Jobs in a line: a PodGroup and its pods.
//!
//! Fields of pods may stand at the job, at a subgroup or in an entry of `each`; the narrowest wins. Lists and counts speak of the pods
//! of the level they stand at, so each level is first resolved for one pod, then the levels are laid over each other.

mod pod;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use kai_api::names::annotations;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use self::pod::{POD_FIELDS, ShortPod};
use crate::scenario::file::ScenarioError;

type Fields = Map<String, Value>;

/// A pod: its name, its subgroup and what is said of it.
type NamedPod<'a> = (String, Option<&'a str>, ShortPod);

const HINT: &str = "the format is in tests/scenarios/README.md";

/// The group of a job.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ShortGroup {
    name: String,
    queue: Option<String>,
    namespace: Option<String>,
    pods: Option<usize>,
    min: Option<i64>,
    priority: Option<i64>,
    preemptibility: Option<String>,
    topology: Option<ShortConstraint>,
    min_sub_group: Option<i64>,
    subgroups: Vec<Fields>,
    preemption_delay: Option<String>,
    staleness: Option<String>,
    started_ago: Option<String>,
    stale_for: Option<String>,
    foreign: bool,
    each: Vec<Fields>,
}

/// A subgroup of a job.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ShortSubGroup {
    name: String,
    parent: Option<String>,
    min: Option<i64>,
    min_sub_group: Option<i64>,
    topology: Option<ShortConstraint>,
    pods: Option<usize>,
    each: Vec<Fields>,
}

/// A topology constraint.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ShortConstraint {
    name: Option<String>,
    required: Option<String>,
    preferred: Option<String>,
}

impl ShortConstraint {
    fn object(&self) -> Value {
        let mut object = Map::new();
        for (field, value) in [
            ("topology", &self.name),
            ("requiredTopologyLevel", &self.required),
            ("preferredTopologyLevel", &self.preferred),
        ] {
            object.extend(value.as_ref().map(|value| (field.to_owned(), json!(value))));
        }
        Value::Object(object)
    }
}

/// The objects of all jobs; the last one is a minute old, each earlier one a minute older.
pub(super) fn objects(jobs: &[Fields], now: Timestamp, out: &mut Vec<Value>) -> Result<(), ScenarioError> {
    let mut classes = BTreeSet::new();
    for (index, job) in jobs.iter().enumerate() {
        let age = i64::try_from(jobs.len() - index).unwrap_or(1).saturating_mul(60);
        let place = format!("short.jobs[{index}]");
        Job::read(&place, job, now, age)?.write(&mut classes, out)?;
    }
    Ok(())
}

/// A job being made.
struct Job {
    place: String,
    group: ShortGroup,
    /// Its subgroups, each with its fields for pods.
    subgroups: Vec<(ShortSubGroup, Fields)>,
    /// Its own fields for pods.
    fields: Fields,
    namespace: String,
    now: Timestamp,
    age: i64,
}

impl Job {
    fn read(place: &str, written: &Fields, now: Timestamp, age: i64) -> Result<Self, ScenarioError> {
        let (fields, rest) = split(written);
        let group: ShortGroup = typed(place, rest)?;
        if group.name.is_empty() {
            return Err(ScenarioError::field(format!("{place}.name"), "is missing", "name the job"));
        }
        if group.queue.is_none() && !group.foreign {
            return Err(ScenarioError::field(format!("{place}.queue"), "is missing", "name the job's queue"));
        }
        let mut subgroups = Vec::new();
        for (index, written) in group.subgroups.iter().enumerate() {
            let (fields, rest) = split(written);
            subgroups.push((typed::<ShortSubGroup>(&format!("{place}.subgroups[{index}]"), rest)?, fields));
        }
        let namespace = group.namespace.clone().unwrap_or_else(|| "default".to_owned());
        Ok(Self { place: place.to_owned(), group, subgroups, fields, namespace, now, age })
    }

    fn write(&self, classes: &mut BTreeSet<i64>, out: &mut Vec<Value>) -> Result<(), ScenarioError> {
        let pods = self.pods()?;
        if !self.group.foreign {
            let priority = self.group.priority.unwrap_or(50);
            if classes.insert(priority) {
                out.push(json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                    "metadata": {"name": format!("p{priority}")}, "value": priority}));
            }
            let started = pods.iter().any(|(_, _, pod)| pod.is_on_a_node());
            out.push(self.group_object(priority, started)?);
        }
        for (name, subgroup, pod) in &pods {
            out.extend(pod.objects(&pod::Owner {
                name,
                namespace: &self.namespace,
                uid: self.uid(name),
                subgroup: *subgroup,
                group: (!self.group.foreign).then_some(self.group.name.as_str()),
                created: self.ago(self.age),
                terminating: self.ago(5),
                stuck: self.ago(600),
            }));
        }
        Ok(())
    }

    /// The pods: name, subgroup and what is said of each.
    fn pods(&self) -> Result<Vec<NamedPod<'_>>, ScenarioError> {
        let parents: BTreeSet<&str> = self.subgroups.iter().filter_map(|(sub, _)| sub.parent.as_deref()).collect();
        let own = match (self.group.pods, self.group.each.len()) {
            (Some(count), _) => count,
            (None, 0) => usize::from(self.subgroups.is_empty()),
            (None, each) => each,
        };
        let sizes: Vec<usize> = self
            .subgroups
            .iter()
            .map(|(sub, _)| match (sub.pods, sub.each.len()) {
                (Some(count), _) => count,
                (None, 0) => usize::from(!parents.contains(sub.name.as_str())),
                (None, each) => each,
            })
            .collect();
        let total = sizes.iter().copied().fold(own, usize::saturating_add);
        if total > 100_000 {
            return Err(ScenarioError::field(&self.place, format!("{total} pods"), "make it smaller"));
        }
        let mut pods = Vec::new();
        for index in 0..own {
            let mut fields = resolve(&self.fields, index, total);
            fields.extend(self.group.each.get(index).map(|each| resolve(each, 0, 1)).unwrap_or_default());
            let name = format!("{}-{index}", self.group.name);
            pods.push((name, None, typed(&self.place, fields)?));
        }
        for ((sub, written), size) in self.subgroups.iter().zip(&sizes) {
            for index in 0..*size {
                let mut fields = resolve(&self.fields, pods.len(), total);
                fields.extend(resolve(written, index, *size));
                fields.extend(sub.each.get(index).map(|each| resolve(each, 0, 1)).unwrap_or_default());
                let name = format!("{}-{}-{index}", self.group.name, sub.name);
                pods.push((name, Some(sub.name.as_str()), typed(&self.place, fields)?));
            }
        }
        Ok(pods)
    }

    fn group_object(&self, priority: i64, running: bool) -> Result<Value, ScenarioError> {
        let group = &self.group;
        let count = group.pods.unwrap_or(if group.each.is_empty() { 1 } else { group.each.len() });
        let min = group.min.map(|min| json!(min)).or_else(|| self.subgroups.is_empty().then(|| json!(count)));
        let subgroups: Vec<Value> = self.subgroups.iter().map(|(sub, _)| self.subgroup(sub)).collect();
        let mut spec = json!({"queue": group.queue, "priorityClassName": format!("p{priority}")});
        let flat_minimum = min.filter(|_| group.min_sub_group.is_none() || group.min.is_some());
        for (field, value) in [
            ("minMember", flat_minimum),
            ("minSubGroup", group.min_sub_group.map(|min| json!(min))),
            ("preemptibility", group.preemptibility.as_ref().map(|text| json!(text))),
            ("topologyConstraint", group.topology.as_ref().map(ShortConstraint::object)),
            ("preemptionDelay", group.preemption_delay.as_ref().map(|span| json!(span))),
            ("stalenessGracePeriod", group.staleness.as_ref().map(|span| json!(span))),
            ("subGroups", (!subgroups.is_empty()).then(|| json!(subgroups))),
        ] {
            if let Some(value) = value {
                spec[field] = value;
            }
        }
        let mut notes = BTreeMap::new();
        let usual = running.then(|| "60s".to_owned());
        if let Some(span) = group.started_ago.clone().or(usual) {
            notes.insert(annotations::LAST_START, self.since("startedAgo", &span)?);
        }
        if let Some(span) = &group.stale_for {
            notes.insert(annotations::STALE_SINCE, self.since("staleFor", span)?);
        }
        let metadata = json!({"name": group.name, "namespace": self.namespace, "uid": self.uid(&group.name),
            "creationTimestamp": self.ago(self.age), "annotations": notes});
        Ok(json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": metadata, "spec": spec}))
    }

    fn subgroup(&self, sub: &ShortSubGroup) -> Value {
        let parent = self.subgroups.iter().any(|(other, _)| other.parent.as_ref() == Some(&sub.name));
        let pods = sub.pods.unwrap_or(if sub.each.is_empty() { usize::from(!parent) } else { sub.each.len() });
        let min = sub.min.map(|min| json!(min)).or_else(|| (pods > 0).then(|| json!(pods)));
        let mut object = json!({"name": sub.name});
        for (field, value) in [
            ("parent", sub.parent.as_ref().map(|parent| json!(parent))),
            ("minMember", min),
            ("minSubGroup", sub.min_sub_group.map(|min| json!(min))),
            ("topologyConstraint", sub.topology.as_ref().map(ShortConstraint::object)),
        ] {
            if let Some(value) = value {
                object[field] = value;
            }
        }
        object
    }

    fn uid(&self, name: &str) -> String {
        if self.namespace == "default" { name.to_owned() } else { format!("{}-{name}", self.namespace) }
    }

    fn ago(&self, seconds: i64) -> String {
        self.now.checked_sub(SignedDuration::from_secs(seconds)).unwrap_or(self.now).to_string()
    }

    fn since(&self, field: &str, span: &str) -> Result<String, ScenarioError> {
        let read: Result<kai_api::Duration, _> = span.parse();
        let field = format!("{}.{field}", self.place);
        let span = read.map_err(|error| ScenarioError::field(field, error, "write e.g. `60s`"))?;
        let past = SignedDuration::from_nanos(span.nanoseconds());
        Ok(self.now.checked_sub(past).unwrap_or(self.now).to_string())
    }
}

/// The fields of pods, and the rest.
fn split(written: &Fields) -> (Fields, Fields) {
    written.clone().into_iter().partition(|(name, _)| POD_FIELDS.contains(&name.as_str()))
}

fn typed<T: for<'de> Deserialize<'de>>(place: &str, fields: Fields) -> Result<T, ScenarioError> {
    T::deserialize(Value::Object(fields)).map_err(|error| ScenarioError::field(place, error, HINT))
}

/// What fields say of one pod of `total`: the entry of a list, and whether a count takes it.
fn resolve(fields: &Fields, index: usize, total: usize) -> Fields {
    let mut resolved = Fields::new();
    for (name, value) in fields {
        let entry = match (name.as_str(), value) {
            ("running" | "taskPriority" | "groups", Value::Array(entries)) => {
                match entries.get(index).filter(|entry| !entry.is_null()) {
                    Some(entry) => entry.clone(),
                    None => continue,
                }
            }
            ("gated" | "succeeded" | "failed", Value::Number(count)) => {
                let count = count.as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
                Value::Bool(index >= total.saturating_sub(count))
            }
            (_, value) => value.clone(),
        };
        resolved.insert(name.clone(), entry);
    }
    resolved
}
