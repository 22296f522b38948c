//! The sentences. Phrases that KAI's users search for are kept.

use jiff::Timestamp;
use kai_api::names::{labels, reasons, resources};
use kai_core::{
    amounts::{GPU, Resource, fixed, share},
    delta::Unavailable,
    ids::PodId,
    plan::{
        Cause, DeviceShortage, DomainRefusal, NodeRefusal, NodeRefusals, Overdraft, SubGroupShortage, VictimRefusal,
    },
    time::Time,
};

use super::Names;
use crate::{bind_request::Veto, policy::action_name};

/// What KAI says to a pod for which no node did.
const NO_NODE: &str = "no nodes with enough resources were found";
/// How many holders of a device are named.
const MOST_HOLDERS: usize = 8;

/// A cause as one sentence.
pub(super) fn cause(cause: &Cause, group: &str, names: &dyn Names) -> String {
    match cause {
        Cause::Victims { action, refused } => {
            let listed: Vec<String> =
                refused.iter().map(|(refusal, count)| format!("{count} {}", victim(*refusal))).collect();
            let what = if listed.is_empty() { "nobody may be evicted".to_owned() } else { listed.join(", ") };
            format!("{}: {what}", action_name(*action))
        }
        cause => errors(cause, group, names).join("; "),
    }
}

/// The errors that KAI would list for a cause.
pub(super) fn errors(cause: &Cause, group: &str, names: &dyn Names) -> Vec<String> {
    match cause {
        Cause::Invalid(what) | Cause::QueueUnusable(what) | Cause::TopologyUnknown(what) => vec![what.clone()],
        Cause::QueueMissing(queue) => vec![format!("Queue '{queue}' does not exist")],
        Cause::NotReady(shortages) => shortages.iter().map(not_ready).collect(),
        Cause::OverLimit(overdraft) => vec![over_limit(overdraft, names)],
        Cause::NonPreemptibleOverQuota(overdraft) => vec![over_quota(overdraft, names)],
        Cause::PreemptionDelayNotElapsed { until } => {
            vec![format!("Preemption delay has not elapsed: nobody is evicted for it until {}", moment(*until))]
        }
        Cause::Topology { subgroup, topology, level, domains } => {
            unsatisfied(subgroup, topology, level, domains, group, names)
        }
        Cause::Gang { subgroup, placed, needed, pod, nodes } => {
            let part = if named(subgroup) { format!(" in subgroup {subgroup}") } else { String::new() };
            vec![format!(
                "Resources were found for {placed} pods while {needed} are required for gang scheduling{part}. \
                 Additional pods cannot be scheduled due to: {}",
                pod_errors(*pod, nodes, names)
            )]
        }
        Cause::Pod { pod, nodes } => {
            vec![format!(
                "Resources were not found for pod {} due to: {}",
                names.pod_key(*pod),
                pod_errors(*pod, nodes, names)
            )]
        }
        Cause::Victims { .. } | Cause::SameAs(_) => Vec::new(),
    }
}

fn named(subgroup: &str) -> bool {
    !subgroup.is_empty() && subgroup != kai_api::names::objects::DEFAULT_POD_SET
}

fn not_ready(shortage: &SubGroupShortage) -> String {
    let part = if named(&shortage.subgroup) { format!(" of subgroup {}", shortage.subgroup) } else { String::new() };
    let gated = if shortage.gated > 0 { format!(", {} of them gated", shortage.gated) } else { String::new() };
    format!(
        "Job is not ready for scheduling. Waiting for {} pods{part}, currently {} existing{gated}",
        shortage.needed, shortage.existing
    )
}

/// A point in time as Kubernetes writes it.
pub(super) fn moment(time: Time) -> String {
    Timestamp::from_millisecond(time.0).map_or_else(|_| format!("{} ms", time.0), |timestamp| timestamp.to_string())
}

/// What the nodes said to a pod.
fn pod_errors(pod: PodId, nodes: &NodeRefusals, names: &dyn Names) -> String {
    if let Some(everywhere) = &nodes.everywhere {
        return everywhere.clone();
    }
    let one = |(refusal, count): &(NodeRefusal, u32)| {
        let what = match refusal {
            NodeRefusal::Vetoed(node) => vetoed(node, names.veto(pod, node)),
            refusal => node_refusal(refusal, names),
        };
        let nearest = nodes.nearest.as_ref().filter(|_| *refusal == NodeRefusal::GpuMemoryShort);
        let nearest = nearest.map_or_else(String::new, |nearest| format!(": {}", shortage(nearest, names)));
        format!("{count} {what}{nearest}")
    };
    let mut lines: Vec<String> = nodes.counts.iter().map(one).collect();
    lines.sort();
    if lines.is_empty() { NO_NODE.to_owned() } else { format!("{NO_NODE}: {}.", lines.join(". \n")) }
}

/// A node that refused the pod before.
fn vetoed(node: &str, veto: Option<&Veto>) -> String {
    veto.map_or_else(
        || format!("node(s) refused the pod before: {node}"),
        |veto| {
            let reason = veto.reason.trim_end_matches('.');
            format!("node(s) refused the pod: {node}: {reason}, tried again at {}", moment(Time(veto.until)))
        },
    )
}

/// What a user can do about a cause, where that is plain.
pub(super) fn hint(cause: &Cause) -> Option<String> {
    match cause {
        Cause::QueueMissing(queue) => {
            Some(format!("create queue '{queue}', or name another one in the label {}", labels::QUEUE))
        }
        Cause::QueueUnusable(_) => Some(format!("name another queue in the label {}, or mend this one", labels::QUEUE)),
        _ => None,
    }
}

/// The device that came nearest, in numbers.
fn shortage(nearest: &DeviceShortage, names: &dyn Names) -> String {
    let unit = if nearest.memory.is_some() { " MiB" } else { "" };
    let shown = |units: u64| format!("{}{unit}", decimal(i128::from(units) / 1000, 3));
    let mut holders: Vec<&str> = nearest.holders.iter().map(|pod| names.pod_key(*pod)).collect();
    holders.sort_unstable();
    let more = holders.len().saturating_sub(MOST_HOLDERS);
    holders.truncate(MOST_HOLDERS);
    let by = match (holders.as_slice(), more) {
        ([], _) => String::new(),
        (listed, 0) => format!(" by {}", listed.join(", ")),
        (listed, more) => format!(" by {} and {more} more", listed.join(", ")),
    };
    format!(
        "the GPU with most room, on node {}, has {}, of which {} are held{by}, and {} were asked for",
        names.node_name(nearest.node),
        shown(nearest.capacity),
        shown(nearest.held),
        shown(nearest.asked),
    )
}

/// Why a node does not do.
#[must_use]
pub fn node_refusal(refusal: &NodeRefusal, names: &dyn Names) -> String {
    let short = |what: &str| format!("node(s) didn't have enough resources: {what}");
    match refusal {
        NodeRefusal::Short(Resource::Fixed(place), _) if usize::from(*place) == fixed::PODS => slots(),
        NodeRefusal::Short(resource, _) => {
            let what = resource_name(*resource, names);
            what.strip_prefix(resources::MIG_PREFIX)
                .map_or_else(|| short(&what), |_| format!("node(s) didn't have enough of mig profile: {what}"))
        }
        NodeRefusal::GpuMemoryShort => short("GPU memory"),
        NodeRefusal::PodSlots => slots(),
        NodeRefusal::Unavailable(why) => unavailable(why),
        NodeRefusal::NodeAffinity => "node(s) didn't match Pod's node affinity/selector".to_owned(),
        NodeRefusal::Taint(key) => format!("node(s) had untolerated taint {{{}}}", names.word(*key)),
        NodeRefusal::PodAffinity => "node(s) didn't match pod affinity rules".to_owned(),
        NodeRefusal::PodAntiAffinity => "node(s) didn't match pod anti-affinity rules".to_owned(),
        NodeRefusal::ExistingAntiAffinity => "node(s) didn't satisfy existing pods anti-affinity rules".to_owned(),
        NodeRefusal::Spread => "node(s) didn't match pod topology spread constraints".to_owned(),
        NodeRefusal::HostPort => "node(s) didn't have free ports for the requested pod ports".to_owned(),
        NodeRefusal::Volume(what) => format!("node(s) had a volume conflict: {what}"),
        NodeRefusal::GpuMemoryUnknown => "node(s) don't tell the memory of their GPUs".to_owned(),
        NodeRefusal::NotShareable => "node(s) have GPUs of a DRA driver, which cannot be shared".to_owned(),
        NodeRefusal::Mig(what) => format!("node(s) don't suit the pod's MIG request: {what}"),
        NodeRefusal::Claims(what) => format!("node(s) cannot allocate the pod's resource claims: {what}"),
        NodeRefusal::Numa => "node(s) cannot align the pod to their NUMA zones".to_owned(),
        NodeRefusal::Vetoed(node) => vetoed(node, None),
        NodeRefusal::OverLimit(overdraft) => capacity(reasons::OVER_LIMIT, &over_limit(overdraft, names)),
        NodeRefusal::NonPreemptibleOverQuota(overdraft) => {
            capacity(reasons::NON_PREEMPTIBLE_OVER_QUOTA, &over_quota(overdraft, names))
        }
    }
}

fn slots() -> String {
    "node(s) pod number exceeded".to_owned()
}

fn capacity(code: &str, details: &str) -> String {
    format!("node does not have enough capacity. Reason: {code}, Details: {details}")
}

fn unavailable(why: &Unavailable) -> String {
    match why {
        Unavailable::Unschedulable => "node(s) were unschedulable".to_owned(),
        Unavailable::NotReady => "node(s) were not ready".to_owned(),
        Unavailable::MemoryPressure => "node(s) had memory pressure".to_owned(),
        Unavailable::DiskPressure => "node(s) had disk pressure".to_owned(),
        Unavailable::PidPressure => "node(s) had pid pressure".to_owned(),
        Unavailable::NetworkUnavailable => "node(s) had no network".to_owned(),
        Unavailable::Invalid(what) => format!("node(s) cannot be read: {what}"),
    }
}

/// A resource as people call it.
pub(super) fn resource_name(resource: Resource, names: &dyn Names) -> String {
    match resource {
        Resource::Extended(word) => names.word(word).to_owned(),
        Resource::Fixed(place) => match usize::from(place) {
            fixed::CPU => "CPU cores",
            fixed::MEMORY => "memory",
            fixed::GPU => "GPUs",
            fixed::PODS => "pods",
            _ => "ephemeral-storage",
        }
        .to_owned(),
    }
}

fn unsatisfied(
    subgroup: &str,
    topology: &str,
    level: &str,
    domains: &[DomainRefusal],
    group: &str,
    names: &dyn Names,
) -> Vec<String> {
    let part = if named(subgroup) { format!(", subgroup <{subgroup}>") } else { String::new() };
    let summary = format!("topology {topology}, requirement {level} couldn't be satisfied for job <{group}>{part}");
    if domains.is_empty() {
        return vec![format!("{summary}: not enough resources in the cluster to allocate the job")];
    }
    let one = |refusal: &DomainRefusal| {
        let domain = &refusal.domain;
        match (refusal.pods, refusal.short) {
            (Some(pods), _) => {
                format!("<{domain}>: node-group {domain} can allocate only {pods} of {} required pods", refusal.needed)
            }
            (None, Some(short)) => {
                format!("<{domain}>: node-group {domain} does not have enough {}", resource_name(short, names))
            }
            (None, None) => format!("<{domain}>: node-group {domain} cannot take {} pods", refusal.needed),
        }
    };
    domains.iter().map(one).chain([summary]).collect()
}

fn over_quota(overdraft: &Overdraft, names: &dyn Names) -> String {
    let unit = unit(overdraft);
    format!(
        "Non-preemptible workload is over quota. Workload requested {} {unit}, but {} quota is {} {unit}, while {} {unit} \
         are already allocated for non-preemptible pods. Use a preemptible workload to go over quota.",
        requested(overdraft),
        names.queue_title(overdraft.queue),
        shown(overdraft, overdraft.allowed),
        shown(overdraft, overdraft.allocated),
    )
}

fn over_limit(overdraft: &Overdraft, names: &dyn Names) -> String {
    let unit = unit(overdraft);
    format!(
        "Workload is over the limit of {}. Limit is {} {unit}, {} {unit} are allocated and the workload requested {} {unit}",
        names.queue_title(overdraft.queue),
        shown(overdraft, overdraft.allowed),
        shown(overdraft, overdraft.allocated),
        requested(overdraft),
    )
}

/// The unit in which people read a resource of queues.
pub(super) fn unit(overdraft: &Overdraft) -> &'static str {
    match usize::from(overdraft.resource) {
        share::CPU => "CPU cores",
        share::MEMORY => "GB memory",
        _ => "GPUs",
    }
}

/// How many of the core's units are one of people's.
fn scale(overdraft: &Overdraft) -> i128 {
    match usize::from(overdraft.resource) {
        share::CPU => 1000,
        share::MEMORY => 1_000_000_000,
        _ => i128::from(GPU),
    }
}

/// An amount in people's unit, with up to three decimals.
pub(super) fn shown(overdraft: &Overdraft, amount: i128) -> String {
    decimal(amount.saturating_mul(1000) / scale(overdraft), 3)
}

/// What was asked; parts of GPUs are rounded up to hundredths, so that too much never reads as just enough.
fn requested(overdraft: &Overdraft) -> String {
    if usize::from(overdraft.resource) != share::GPU {
        return shown(overdraft, overdraft.requested);
    }
    let hundredth = scale(overdraft) / 100;
    let whole = overdraft.requested / hundredth;
    decimal(whole.saturating_add(i128::from(overdraft.requested % hundredth > 0)), 2)
}

/// An integer in units of `10^-places`, without needless zeros.
fn decimal(amount: i128, places: u32) -> String {
    let one = 10_i128.pow(places);
    let sign = if amount < 0 { "-" } else { "" };
    let (whole, part) = (amount.unsigned_abs() / one.unsigned_abs(), amount.unsigned_abs() % one.unsigned_abs());
    let digits = format!("{part:0width$}", width = places as usize);
    let digits = digits.trim_end_matches('0');
    if digits.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{digits}") }
}

/// Millionths of a GPU for people.
pub(super) fn gpus(millionths: i128) -> String {
    decimal(millionths / 1000, 3)
}

/// What a candidate was refused for.
pub(super) fn victim(refusal: VictimRefusal) -> &'static str {
    match refusal {
        VictimRefusal::AboveFairShare => "the queue would exceed its fair share",
        VictimRefusal::AboveQuota => "the queue would exceed its quota with what cannot be evicted",
        VictimRefusal::TooLittleToTake => "all that may be taken is too little",
        VictimRefusal::NoCandidates => "nothing may be taken from anybody",
        VictimRefusal::QueueWithinShare => "its queue is within its share",
        VictimRefusal::MinRuntime => "it has not run for its minimum time",
        VictimRefusal::NoRoom => "taking it makes no room",
        VictimRefusal::Unfair => "taking it is unfair to its queue",
        VictimRefusal::NotMovable => "it fits nowhere else",
        VictimRefusal::TooManyMoves => "too many would have to move",
        VictimRefusal::NotPreemptible => "nobody is moved for what cannot be evicted itself",
        VictimRefusal::ClusterFull => "the cluster has too few free GPUs",
        VictimRefusal::NeverFits => "no node could ever hold it",
    }
}
