//! Where two plans differ first, in words.

use std::fmt::Debug;

use kai_core::{
    Cluster,
    ids::{GroupId, NodeId, PodId},
    plan::{Decision, GroupRefusal, Plan},
    time::Time,
};

/// The first difference between a recorded plan and its replay.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    /// The cycle, counted from 1.
    pub cycle: u64,
    /// The time the core was told, in milliseconds since the Unix epoch.
    pub now: i64,
    /// Where in the plan, such as `decisions[3]`.
    pub place: String,
    /// What the trace has there; `None`: nothing.
    pub recorded: Option<String>,
    /// What came out now; `None`: nothing.
    pub replayed: Option<String>,
}

impl Difference {
    pub(crate) fn between(recorded: &Plan, replayed: &Plan, cluster: &Cluster) -> Self {
        let decision = |decision: &Decision| name_decision(decision, cluster);
        let reason = |reason: &GroupRefusal| format!("{}: {:?}", group(cluster, reason.group), reason.causes);
        first("decisions", &recorded.decisions, &replayed.decisions, decision)
            .or_else(|| first("reasons", &recorded.reasons, &replayed.reasons, reason))
            .or_else(|| first("verdicts", &recorded.verdicts, &replayed.verdicts, print))
            .or_else(|| first("stats", &[recorded.stats], &[replayed.stats], print))
            .unwrap_or_else(|| {
                // Different bytes of equal plans: the trace was not encoded by the recorder.
                Self { place: "encoding".to_owned(), ..Self::default() }
            })
    }

    pub(crate) fn at(self, cycle: u64, now: Time) -> Self {
        Self { cycle, now: now.0, ..self }
    }
}

/// The first place where two lists differ.
fn first<T: PartialEq>(name: &str, recorded: &[T], replayed: &[T], print: impl Fn(&T) -> String) -> Option<Difference> {
    let place = (0..recorded.len().max(replayed.len())).find(|place| recorded.get(*place) != replayed.get(*place))?;
    Some(Difference {
        place: format!("{name}[{place}]"),
        recorded: recorded.get(place).map(&print),
        replayed: replayed.get(place).map(&print),
        ..Difference::default()
    })
}

fn print(object: &impl Debug) -> String {
    format!("{object:?}")
}

fn name_decision(decision: &Decision, cluster: &Cluster) -> String {
    match decision {
        Decision::Bind(placed) | Decision::Pipeline(placed) => {
            let verb = if matches!(decision, Decision::Bind(_)) { "bind" } else { "pipeline" };
            let (pod, node) = (pod(cluster, placed.pod), node(cluster, placed.node));
            format!("{verb} pod `{pod}` to node `{node}`: {placed:?}")
        }
        Decision::Evict(eviction) => {
            let beneficiary = eviction.beneficiary.map_or("nobody", |beneficiary| group(cluster, beneficiary));
            let (pod, group) = (pod(cluster, eviction.pod), group(cluster, eviction.group));
            format!("evict pod `{pod}` of group `{group}` for `{beneficiary}`: {eviction:?}")
        }
        Decision::Started { group: started, at } => {
            format!("record that group `{}` started at {}", group(cluster, *started), at.0)
        }
        Decision::Stale { group: stale, since } => {
            format!("record that group `{}` is stale: {since:?}", group(cluster, *stale))
        }
    }
}

// The recorded plan may hold ids this cluster never gave out, so these look-ups cannot be the cluster's own.

fn pod(cluster: &Cluster, pod: PodId) -> &str {
    cluster.pods.get(pod.index()).map_or("unknown", |pod| &pod.uid)
}

fn node(cluster: &Cluster, node: NodeId) -> &str {
    cluster.nodes.get(node.index()).map_or("unknown", |node| &node.name)
}

fn group(cluster: &Cluster, group: GroupId) -> &str {
    cluster.groups.get(group.index()).map_or("unknown", |group| &group.key)
}
