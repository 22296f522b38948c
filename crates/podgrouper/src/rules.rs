//! What every kind of workload says in the same way: queue, priority, preemptibility, delays, topology, labels.
//!
//! The answers depend on the workload and on [`Rules`] alone. What is wrong but can be done without becomes a warning
//! of the group.

mod copied;
mod texts;

pub(crate) use self::copied::is_setting;

use kai_api::{
    Duration, Preemptibility, TopologyConstraint, group_name,
    names::{annotations, labels, objects},
};

use crate::{
    error::Trouble,
    owner::{Owner, Workload, entry},
    type_defaults::TypeDefaults,
    wanted::Wanted,
};

/// What the cluster knows and a workload refers to.
pub struct Rules<'a> {
    /// Label that names the queue.
    pub queue_label: &'a str,
    /// Label that names the node pool.
    pub node_pool_label: &'a str,
    /// Whether there is such a priority class.
    pub class_exists: &'a dyn Fn(&str) -> bool,
    /// Whether there is such a group in the namespace.
    pub group_exists: &'a dyn Fn(&str) -> bool,
    /// Whether groups that older versions made for single pods are kept.
    pub keep_legacy: bool,
    /// Priorities and preemptibility by kind.
    pub defaults: &'a TypeDefaults,
}

impl Rules<'_> {
    /// One group for the top of the workload, of which one pod is enough to start. `priority` is the class of such
    /// workloads.
    pub fn group(&self, workload: &Workload<'_>, priority: &str) -> Wanted {
        let top = workload.top;
        let mut warnings = Vec::new();
        let pod_labels = workload.pod.metadata.labels.as_ref();
        let mut labels = copied::labels(&top.labels);
        let mut annotations = copied::annotations(&top.annotations);
        annotations.insert(annotations::TOP_OWNER.to_owned(), texts::top_owner(top));
        if let Some(user) = entry(pod_labels, labels::USER) {
            labels.insert(labels::USER.to_owned(), user.to_owned());
            annotations.insert(labels::USER.to_owned(), user.to_owned());
        }
        Wanted {
            namespace: workload.namespace().to_owned(),
            name: group_name(&top.reference.name, &top.uid),
            owner: top.as_owner_reference(),
            labels,
            annotations,
            node_pool: entry(pod_labels, self.node_pool_label).map(str::to_owned),
            queue: self.queue(workload),
            priority_class: self.priority_class(workload, priority, &mut warnings),
            preemptibility: self.preemptibility(workload, &mut warnings),
            min_member: Some(1),
            min_sub_group: None,
            sub_groups: Vec::new(),
            topology: topology(workload, &mut warnings),
            preemption_delay: duration(workload, annotations::PREEMPTION_DELAY, Sign::NotNegative, &mut warnings),
            staleness_grace_period: duration(workload, annotations::STALENESS_GRACE_PERIOD, Sign::Any, &mut warnings),
            pod_sub_group: None,
            warnings,
        }
    }

    /// How many pods start together, if an owner says so.
    pub fn batch_min_member(&self, workload: &Workload<'_>) -> Result<Option<i32>, Trouble> {
        const KEY: &str = annotations::BATCH_MIN_MEMBER;
        let named = workload.from_top().find_map(|owner| Some((owner, entry(Some(&owner.annotations), KEY)?)));
        let Some((owner, text)) = named else { return Ok(None) };
        match text.trim().parse::<i32>() {
            Ok(count) if count >= 1 => Ok(Some(count)),
            _ => Err(Trouble::Input(format!(
                "{}: annotation {KEY} is `{}`, which is not a whole number of at least 1; \
                 its pods are not scheduled until it is corrected",
                owner.reference,
                texts::short(text)
            ))),
        }
    }

    /// Owners before the pod, the label before the project, else the default.
    fn queue(&self, workload: &Workload<'_>) -> String {
        let pod_labels = workload.pod.metadata.labels.as_ref();
        let look = |key: &str| {
            let above = workload.from_top().find_map(|owner| entry(Some(&owner.labels), key));
            above.or_else(|| entry(pod_labels, key))
        };
        if let Some(queue) = look(self.queue_label) {
            return queue.to_owned();
        }
        match (look(labels::PROJECT), entry(pod_labels, self.node_pool_label)) {
            (Some(project), Some(pool)) => format!("{project}-{pool}"),
            (Some(project), None) => project.to_owned(),
            (None, _) => objects::DEFAULT_QUEUE.to_owned(),
        }
    }

    fn priority_class(&self, workload: &Workload<'_>, fallback: &str, warnings: &mut Vec<String>) -> String {
        const KEY: &str = labels::PRIORITY_CLASS;
        let owners = workload
            .from_below()
            .filter_map(|owner| Some((format!("{}: label {KEY}", owner.reference), entry(Some(&owner.labels), KEY)?)));
        let metadata = &workload.pod.metadata;
        let pod =
            entry(metadata.labels.as_ref(), KEY).map(|class| (format!("{}: label {KEY}", name_of(workload)), class));
        let spec = workload.pod.spec.as_ref().and_then(|spec| spec.priority_class_name.as_deref());
        let spec = spec
            .filter(|class| !class.is_empty())
            .map(|class| (format!("{}: spec.priorityClassName", name_of(workload)), class));
        let kind = self.defaults.of(&workload.top.reference).and_then(|default| default.priority.as_deref());
        let kind = kind.map(|class| (format!("the default of kind {}", workload.top.reference.kind), class));
        for (place, class) in owners.chain(pod).chain(spec).chain(kind) {
            if (self.class_exists)(class) {
                return class.to_owned();
            }
            texts::once(
                warnings,
                format!(
                    "{place} names PriorityClass `{}`, which does not exist and is left out; \
                     create the class or correct the name",
                    texts::short(class)
                ),
            );
        }
        fallback.to_owned()
    }

    fn preemptibility(&self, workload: &Workload<'_>, warnings: &mut Vec<String>) -> Option<Preemptibility> {
        const KEY: &str = labels::PREEMPTIBILITY;
        let owners = workload
            .from_below()
            .filter_map(|owner| Some((owner.reference.to_string(), entry(Some(&owner.labels), KEY)?)));
        let pod = entry(workload.pod.metadata.labels.as_ref(), KEY).map(|value| (name_of(workload), value));
        for (place, value) in owners.chain(pod) {
            match value {
                "preemptible" => return Some(Preemptibility::Preemptible),
                "non-preemptible" => return Some(Preemptibility::NonPreemptible),
                other => texts::once(
                    warnings,
                    format!(
                        "{place}: label {KEY} is `{}` and is left out; use `preemptible` or `non-preemptible`",
                        texts::short(other)
                    ),
                ),
            }
        }
        self.defaults.of(&workload.top.reference).and_then(|default| default.preemptibility)
    }
}

/// The pod in the same words as an owner.
fn name_of(workload: &Workload<'_>) -> String {
    format!("Pod `{}`", workload.pod.metadata.name.as_deref().unwrap_or_default())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    Any,
    NotNegative,
}

/// From the owners, the top first, else from the pod.
fn duration(workload: &Workload<'_>, key: &str, sign: Sign, warnings: &mut Vec<String>) -> Option<Duration> {
    let owners = workload
        .from_top()
        .filter_map(|owner| Some((owner.reference.to_string(), entry(Some(&owner.annotations), key)?)));
    let pod = entry(workload.pod.metadata.annotations.as_ref(), key).map(|value| (name_of(workload), value));
    for (place, text) in owners.chain(pod) {
        let problem = match text.parse::<Duration>() {
            Ok(duration) if sign == Sign::NotNegative && duration.is_negative() => "is negative",
            Ok(duration) => return Some(duration),
            Err(_) => "is not a duration",
        };
        let text = texts::short(text);
        texts::once(
            warnings,
            format!(
                "{place}: annotation {key} `{text}` {problem} and is left out; write it like `30s`, `5m` or `1h30m`"
            ),
        );
    }
    None
}

/// All three from the first owner that has one of them.
fn topology(workload: &Workload<'_>, warnings: &mut Vec<String>) -> Option<TopologyConstraint> {
    let read = |owner: &Owner, key| entry(Some(&owner.annotations), key).map(str::to_owned);
    let (owner, constraint) = workload.from_top().find_map(|owner| {
        let constraint = TopologyConstraint {
            topology: read(owner, annotations::TOPOLOGY),
            required_topology_level: read(owner, annotations::TOPOLOGY_REQUIRED),
            preferred_topology_level: read(owner, annotations::TOPOLOGY_PREFERRED),
        };
        (constraint != TopologyConstraint::default()).then_some((owner, constraint))
    })?;
    if constraint.topology.is_none() {
        warnings.push(format!(
            "{}: annotations {} and {} have no effect without {}, which names a Topology",
            owner.reference,
            annotations::TOPOLOGY_REQUIRED,
            annotations::TOPOLOGY_PREFERRED,
            annotations::TOPOLOGY
        ));
        return None;
    }
    Some(constraint)
}
