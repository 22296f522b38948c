//! The numbers behind reasons, as JSON. GPUs are decimal numbers as text, so that nothing is lost on the way.

use kai_core::plan::{Cause, DomainRefusal, NodeRefusal, NodeRefusals, Overdraft};
use serde_json::{Value, json};

use super::{
    Names,
    phrase::{gpus, moment, node_refusal, resource_name, shown, unit, victim},
};
use crate::policy::action_name;

/// What a cause is made of.
pub(super) fn cause(cause: &Cause, names: &dyn Names) -> Value {
    match cause {
        Cause::Invalid(_) | Cause::QueueUnusable(_) | Cause::TopologyUnknown(_) => json!({}),
        Cause::QueueMissing(queue) => json!({"queue": queue}),
        Cause::NotReady(shortages) => {
            let one = |s: &kai_core::plan::SubGroupShortage| json!({"subgroup": s.subgroup, "needed": s.needed, "existing": s.existing, "gated": s.gated});
            json!({"subgroups": shortages.iter().map(one).collect::<Vec<_>>()})
        }
        Cause::OverLimit(overdraft) | Cause::NonPreemptibleOverQuota(overdraft) => over(overdraft, names),
        Cause::PreemptionDelayNotElapsed { until } => json!({"until": moment(*until)}),
        Cause::Topology { subgroup, topology, level, domains } => {
            let domains: Vec<Value> = domains.iter().map(|refusal| domain(refusal, names)).collect();
            json!({"subgroup": subgroup, "topology": topology, "level": level, "domains": domains})
        }
        Cause::Gang { subgroup, placed, needed, pod, nodes } => json!({
            "subgroup": subgroup, "placed": placed, "needed": needed, "pod": names.pod_key(*pod), "nodes": refusals(nodes, names),
        }),
        Cause::Pod { pod, nodes } => json!({"pod": names.pod_key(*pod), "nodes": refusals(nodes, names)}),
        Cause::Victims { action, refused } => {
            let refused: Vec<Value> =
                refused.iter().map(|(refusal, count)| json!({"reason": victim(*refusal), "count": count})).collect();
            json!({"action": action_name(*action), "refused": refused})
        }
        Cause::SameAs(group) => json!({"group": names.group_key(*group)}),
    }
}

fn over(overdraft: &Overdraft, names: &dyn Names) -> Value {
    json!({
        "queue": names.queue_name(overdraft.queue),
        "unit": unit(overdraft),
        "allowed": shown(overdraft, overdraft.allowed),
        "allocated": shown(overdraft, overdraft.allocated),
        "requested": shown(overdraft, overdraft.requested),
    })
}

fn domain(refusal: &DomainRefusal, names: &dyn Names) -> Value {
    let short = refusal.short.map(|resource| resource_name(resource, names));
    json!({"domain": refusal.domain, "pods": refusal.pods, "needed": refusal.needed, "short": short})
}

fn refusals(nodes: &NodeRefusals, names: &dyn Names) -> Value {
    let counts: Vec<Value> = nodes
        .counts
        .iter()
        .map(|(refusal, count)| {
            let mut entry = json!({"count": count, "reason": node_refusal(refusal, names)});
            match refusal {
                NodeRefusal::Short(resource, missing) => {
                    entry["resource"] = json!(resource_name(*resource, names));
                    entry["missing"] = json!(missing);
                }
                NodeRefusal::OverLimit(overdraft) | NodeRefusal::NonPreemptibleOverQuota(overdraft) => {
                    entry["quota"] = over(overdraft, names);
                }
                _ => {}
            }
            entry
        })
        .collect();
    let holders: Vec<Value> = nodes
        .holders
        .iter()
        .map(|holder| json!({"queue": names.queue_name(holder.queue), "gpus": gpus(holder.gpus)}))
        .collect();
    json!({"everywhere": nodes.everywhere, "counts": counts, "holders": holders})
}
