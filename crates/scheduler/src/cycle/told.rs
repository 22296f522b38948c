//! A plan with names instead of numbers: what is left to carry out and to say, independent of the cluster it was made in.

use std::collections::BTreeMap;

use kai_convert::{
    GroupNote, Veto, decision,
    explain::{self, ClusterNames, Explanation, Names, QueueUse},
};
use kai_core::{
    amounts::{Shares, share},
    ids::{ClaimId, GroupId, NodeId, PodId, QueueId, Word},
    plan::{Decision, Eviction, Plan, Verdict},
};

use crate::model::Model;

/// A pod that is to end.
pub(super) struct Victim {
    /// Its uid.
    pub(super) uid: String,
    /// `namespace/name`.
    pub(super) pod: String,
    /// `namespace/name` of its group.
    pub(super) group: String,
    /// Why.
    pub(super) text: String,
    /// Why, for programs.
    pub(super) annotations: BTreeMap<String, String>,
}

/// A plan in names.
pub(super) struct Told {
    /// Pods that get a place, by `namespace/name`, in order.
    pub(super) binds: Vec<(String, decision::Request)>,
    /// Pods that end, in order.
    pub(super) evictions: Vec<Victim>,
    /// What is to be noted on groups.
    pub(super) notes: BTreeMap<String, Vec<GroupNote>>,
    /// Pods that are promised a place, by `namespace/name`, and where.
    pub(super) pipelined: BTreeMap<String, String>,
    /// Why groups wait.
    pub(super) explanations: Vec<Explanation>,
    /// What is wrong with objects.
    pub(super) verdicts: Vec<Verdict>,
}

impl Told {
    /// Translates a plan. `before` is what queues held before the cycle.
    pub(super) fn of(plan: &Plan, model: &Model, before: &[Shares]) -> Self {
        let names = Numbers { names: ClusterNames { cluster: &model.cluster, converter: &model.converter }, before };
        let mut told = Self {
            binds: Vec::new(),
            evictions: Vec::new(),
            notes: BTreeMap::new(),
            pipelined: BTreeMap::new(),
            explanations: explain::explain(&plan.reasons, &names),
            verdicts: plan.verdicts.clone(),
        };
        for decision in &plan.decisions {
            match decision {
                Decision::Bind(placed) => {
                    if let Some(request) = decision::request(placed, &model.cluster, &model.converter) {
                        told.binds.push((names.pod_key(placed.pod).to_owned(), request));
                    }
                }
                Decision::Pipeline(placed) => {
                    let node = names.node_name(placed.node).to_owned();
                    told.pipelined.insert(names.pod_key(placed.pod).to_owned(), node);
                }
                Decision::Evict(eviction) => told.evictions.push(victim(eviction, &names)),
                Decision::Started { group, at } => told.note(&names, *group, GroupNote::Started(*at)),
                Decision::Stale { group, since } => told.note(&names, *group, GroupNote::Stale(*since)),
            }
        }
        told
    }

    fn note(&mut self, names: &dyn Names, group: GroupId, note: GroupNote) {
        self.notes.entry(names.group_key(group).to_owned()).or_default().push(note);
    }
}

fn victim(eviction: &Eviction, names: &dyn Names) -> Victim {
    let mut annotations = BTreeMap::new();
    let action = kai_convert::policy::action_name(eviction.action).to_owned();
    annotations.insert("kai.scheduler/eviction-action".to_owned(), action);
    if let Some(group) = eviction.heir.or(eviction.beneficiary) {
        annotations.insert("kai.scheduler/evicted-for".to_owned(), names.group_key(group).to_owned());
    }
    Victim {
        uid: names.pod_uid(eviction.pod).to_owned(),
        pod: names.pod_key(eviction.pod).to_owned(),
        group: names.group_key(eviction.group).to_owned(),
        text: explain::eviction(eviction, names),
        annotations,
    }
}

/// Names, with what queues held before the cycle.
struct Numbers<'a> {
    names: ClusterNames<'a>,
    before: &'a [Shares],
}

impl Names for Numbers<'_> {
    fn pod_uid(&self, pod: PodId) -> &str {
        self.names.pod_uid(pod)
    }
    fn group_key(&self, group: GroupId) -> &str {
        self.names.group_key(group)
    }
    fn queue_name(&self, queue: QueueId) -> &str {
        self.names.queue_name(queue)
    }
    fn queue_title(&self, queue: QueueId) -> &str {
        self.names.queue_title(queue)
    }
    fn node_name(&self, node: NodeId) -> &str {
        self.names.node_name(node)
    }
    fn word(&self, word: Word) -> &str {
        self.names.word(word)
    }
    fn claim_key(&self, claim: ClaimId) -> &str {
        self.names.claim_key(claim)
    }
    fn pod_key(&self, pod: PodId) -> &str {
        self.names.pod_key(pod)
    }
    fn veto(&self, pod: PodId, node: &str) -> Option<&Veto> {
        self.names.veto(pod, node)
    }
    fn queue_use(&self, queue: QueueId) -> Option<QueueUse> {
        let described = self.names.cluster.queues.get(queue.index())?;
        let gpus = |shares: &Shares| shares.0.get(share::GPU).copied().unwrap_or(0);
        Some(QueueUse {
            allocated: self.before.get(queue.index()).map_or(0, gpus),
            quota: described.quota.get(share::GPU).copied().flatten(),
            fair_share: gpus(&described.fair_share),
        })
    }
}
