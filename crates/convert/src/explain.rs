//! Reasons and evictions in KAI's words, and as JSON for programs. Nothing is guessed here: everything comes from the plan.
//!
//! A waiting group has one message, as KAI writes it into conditions and events, and a list of reasons with their codes and numbers.
//! What was refused of victims is in the list only: KAI never says it.

mod details;
mod eviction;
mod phrase;

use std::{collections::BTreeMap, fmt::Write as _};

use kai_api::names::reasons;
use kai_core::{
    Cluster,
    ids::{ClaimId, GroupId, NodeId, PodId, QueueId, Word},
    plan::{Cause, GroupRefusal, Verdict},
};
use serde::Serialize;
use serde_json::Value;

use crate::{bind_request::Veto, converter::Converter};

pub use self::{eviction::eviction, phrase::node_refusal};

/// The headline of a group with several errors.
const SEVERAL: &str = "Unable to schedule podgroup";
/// How many groups are followed that were refused like another one.
const LONGEST_CHAIN: usize = 8;

/// The names behind ids.
pub trait Names {
    /// The uid of a pod.
    fn pod_uid(&self, pod: PodId) -> &str;
    /// `namespace/name` of a group.
    fn group_key(&self, group: GroupId) -> &str;
    /// The name of a queue.
    fn queue_name(&self, queue: QueueId) -> &str;
    /// What people call a queue; its name where it says nothing else.
    fn queue_title(&self, queue: QueueId) -> &str {
        self.queue_name(queue)
    }
    /// The name of a node.
    fn node_name(&self, node: NodeId) -> &str;
    /// A word.
    fn word(&self, word: Word) -> &str;
    /// `namespace/name` of a claim.
    fn claim_key(&self, claim: ClaimId) -> &str;
    /// `namespace/name` of a pod where that is known, else its uid.
    fn pod_key(&self, pod: PodId) -> &str {
        self.pod_uid(pod)
    }
    /// Why a node refused a pod and when it is tried again, where that is known.
    fn veto(&self, _pod: PodId, _node: &str) -> Option<&Veto> {
        None
    }
    /// What a queue had of GPUs when it was decided, where that is known.
    fn queue_use(&self, _queue: QueueId) -> Option<QueueUse> {
        None
    }
}

/// What a queue has of GPUs, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueUse {
    /// What its pods hold.
    pub allocated: i128,
    /// What it is guaranteed; `None`: unlimited.
    pub quota: Option<i64>,
    /// What it should have at most while others want more.
    pub fair_share: i128,
}

/// The names of a cluster, with pods by their own names instead of their uids.
#[derive(Clone, Copy, Debug)]
pub struct ClusterNames<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// Who knows the names of pods.
    pub converter: &'a Converter,
}

impl Names for ClusterNames<'_> {
    fn pod_uid(&self, pod: PodId) -> &str {
        self.cluster.pod_uid(pod)
    }
    fn group_key(&self, group: GroupId) -> &str {
        self.cluster.group_key(group)
    }
    fn queue_name(&self, queue: QueueId) -> &str {
        self.cluster.queue_name(queue)
    }
    fn queue_title(&self, queue: QueueId) -> &str {
        let name = self.cluster.queue_name(queue);
        self.converter.queue_title(name).unwrap_or(name)
    }
    fn node_name(&self, node: NodeId) -> &str {
        self.cluster.node_name(node)
    }
    fn word(&self, word: Word) -> &str {
        self.cluster.word(word)
    }
    fn claim_key(&self, claim: ClaimId) -> &str {
        self.cluster.claim_key(claim)
    }
    fn pod_key(&self, pod: PodId) -> &str {
        let uid = self.cluster.pod_uid(pod);
        self.converter.pod_key(uid).unwrap_or(uid)
    }
    fn veto(&self, pod: PodId, node: &str) -> Option<&Veto> {
        self.converter.vetoes(self.cluster.pod_uid(pod)).find(|veto| veto.node == node)
    }
}

/// Why a group waits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// `namespace/name` of the group.
    pub group: String,
    /// Everything as one text, as KAI writes it.
    pub message: String,
    /// Each reason.
    pub reasons: Vec<Reason>,
    /// What to do about it, where that is plain. KAI says nothing of the kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// One reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reason {
    /// One word for programs: KAI's where it has one.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// The numbers behind it.
    pub details: Value,
}

impl Explanation {
    /// Everything that is said, with all codes: for people who ask twice.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = self.message.trim_start_matches('\n').to_owned();
        for reason in &self.reasons {
            let _ = write!(text, "\n{}: {}", reason.reason, reason.message);
        }
        text
    }
}

/// Explains all groups of a plan.
#[must_use]
pub fn explain(refusals: &[GroupRefusal], names: &dyn Names) -> Vec<Explanation> {
    let by_group: BTreeMap<GroupId, &GroupRefusal> = refusals.iter().map(|refusal| (refusal.group, refusal)).collect();
    refusals.iter().map(|refusal| explain_group(refusal, &by_group, names)).collect()
}

/// A verdict as a sentence.
#[must_use]
pub fn verdict(verdict: &Verdict) -> String {
    format!("{} {}: {}", verdict.kind, verdict.name, verdict.what)
}

fn explain_group(refusal: &GroupRefusal, others: &BTreeMap<GroupId, &GroupRefusal>, names: &dyn Names) -> Explanation {
    let group = names.group_key(refusal.group).to_owned();
    let causes = followed(refusal, others);
    let mut errors: Vec<(&'static str, String)> = Vec::new();
    let mut found = Vec::new();
    for cause in &causes {
        let message = phrase::cause(cause, &group, names);
        found.push(Reason { reason: code(cause).to_owned(), message, details: details::cause(cause, names) });
        errors.extend(phrase::errors(cause, &group, names).into_iter().map(|message| (code(cause), message)));
    }
    let hint = causes.iter().find_map(|cause| phrase::hint(cause));
    Explanation { message: compact(&errors), group, reasons: found, hint }
}

/// The causes of a group; those of another group where that was refused for the same.
fn followed<'a>(refusal: &'a GroupRefusal, others: &BTreeMap<GroupId, &'a GroupRefusal>) -> Vec<&'a Cause> {
    let mut causes: Vec<&Cause> = Vec::new();
    let mut next = Some(refusal);
    for _ in 0..LONGEST_CHAIN {
        let Some(current) = next.take() else { break };
        for cause in &current.causes {
            match cause {
                Cause::SameAs(other) => next = others.get(other).copied(),
                cause => causes.push(cause),
            }
        }
    }
    causes
}

/// One text of all errors: a headline, then each message once with the number of times, in the order of the alphabet.
fn compact(errors: &[(&'static str, String)]) -> String {
    let mut counted: BTreeMap<&str, u32> = BTreeMap::new();
    for (_, message) in errors {
        *counted.entry(message).or_default() += 1;
    }
    let headline = match errors {
        [(code, _)] => code,
        _ => SEVERAL,
    };
    let lines: Vec<String> = counted
        .into_iter()
        .map(|(message, count)| if count > 1 { format!("{count} {message}") } else { message.to_owned() })
        .collect();
    if lines.is_empty() { format!("\n{headline}.") } else { format!("\n{headline}.\n{}.", lines.join(".\n")) }
}

/// The code of a cause.
fn code(cause: &Cause) -> &'static str {
    match cause {
        Cause::Invalid(_) => "Invalid",
        Cause::QueueMissing(_) => reasons::QUEUE_DOES_NOT_EXIST,
        Cause::QueueUnusable(_) => "QueueUnusable",
        Cause::NotReady(_) => "NotReady",
        Cause::OverLimit(_) => reasons::OVER_LIMIT,
        Cause::NonPreemptibleOverQuota(_) => reasons::NON_PREEMPTIBLE_OVER_QUOTA,
        Cause::PreemptionDelayNotElapsed { .. } => reasons::PREEMPTION_DELAY_NOT_ELAPSED,
        Cause::TopologyUnknown(_)
        | Cause::Topology { .. }
        | Cause::Gang { .. }
        | Cause::Pod { .. }
        | Cause::SameAs(_) => reasons::POD_SCHEDULING_ERRORS,
        Cause::Victims { .. } => "NoVictims",
    }
}

#[cfg(test)]
mod tests;
