//! Saying why: conditions and events of groups and pods that wait, and of objects that are wrong. What was said already is not said
//! again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kai_api::{
    SchedulingCondition, UnschedulableExplanation,
    names::{conditions, reasons},
};
use kai_convert::explain::Explanation;
use kai_core::plan::Verdict;
use kai_kit::events::Kind;

use super::told::Told;
use crate::{
    fingerprint,
    notes::{condition_print, reference},
    scheduler::Scheduler,
    status::{Target, Wanted},
};

/// Stands for a group that was told that it waits no longer.
const CLEARED: u64 = 1;

impl Scheduler {
    /// Says why groups and pods wait, and that others no longer do.
    pub(super) fn say(&mut self, told: &Told) {
        let mut waiting: BTreeSet<&str> = BTreeSet::new();
        for explanation in &told.explanations {
            waiting.insert(&explanation.group);
            self.say_group(explanation);
        }
        self.clear_groups(&waiting);
        for (pod, node) in &told.pipelined {
            let text = format!("Pod {pod} will be placed on node {node} when what is being released there is free");
            if self.pipelined.get(pod) != Some(node)
                && let Some(about) = self.model.notes.pod_reference(pod)
            {
                self.process.events.tell_of(about, Kind::Normal, "Pipelined", text.clone(), BTreeMap::new());
            }
            self.say_pod(pod, &text.into(), Tell::Quietly);
        }
        self.pipelined.clone_from(&told.pipelined);
        self.say_verdicts(&told.verdicts);
    }

    fn say_group(&mut self, explanation: &Explanation) {
        let mut text = sentence(&explanation.message);
        if let Some(hint) = &explanation.hint {
            text = format!("{} (hint: {hint})", text.trim_end_matches('.'));
        }
        let pool = self.pool();
        let Some((key, record)) = self.model.notes.groups.get_key_value(explanation.group.as_str()) else { return };
        let (key, mark) = (Arc::clone(key), record.mark);
        let pods: Vec<Arc<str>> = record.pods.iter().cloned().collect();
        let unconfirmed = &self.model.binds.unconfirmed;
        let placed = |pod: &Arc<str>| {
            let waits = self.model.notes.pods.get(pod).is_some_and(|note| note.waits);
            !waits || unconfirmed.contains_key(&**pod) || self.model.binds.open.contains(&**pod)
        };
        let active = pods.iter().any(placed);
        let prefix = if record.gives_up { format!("Node-Pool '{pool}': ") } else { String::new() };
        let condition = SchedulingCondition {
            type_: Some(conditions::UNSCHEDULABLE_ON_NODE_POOL.to_owned()),
            node_pool: Some(pool.to_string()),
            reason: Some(reasons::UNSCHEDULABLE.to_owned()),
            message: Some(format!("{prefix}{text}")),
            reasons: explanation.reasons.iter().map(explained).collect(),
            status: Some("True".to_owned()),
            ..SchedulingCondition::default()
        };
        let print = fingerprint::of(&format!("{:?}", (&condition.message, &condition.reasons))).max(CLEARED + 1);
        if record.told != print && record.exists {
            let shown = record.conditions.iter().find(|shown| shown.node_pool == condition.node_pool);
            let same = shown.is_some_and(|shown| {
                (&shown.type_, &shown.reason, &shown.message, &shown.status)
                    == (&condition.type_, &condition.reason, &condition.message, &condition.status)
            });
            if !same && !active {
                self.write_conditions(&key, Some(condition));
            }
            if !same && let Some(about) = self.model.notes.group_reference(&key) {
                let reason = if explanation.reasons.iter().any(|reason| reason.reason == "NotReady") {
                    "NotReady"
                } else {
                    reasons::UNSCHEDULABLE
                };
                self.process.events.tell_of(about, Kind::Normal, reason, text.clone(), BTreeMap::new());
            }
            if let Some(record) = self.model.notes.groups.get_mut(&key) {
                record.told = print;
            }
            self.model.notes.explained.insert(key);
        }
        let text: Arc<str> = text.into();
        if mark {
            for pod in pods {
                self.say_pod(&pod, &text, Tell::WithEvent);
            }
        }
    }

    /// Writes the conditions of a group: those of other node pools as they are, and this pool's last.
    fn write_conditions(&self, key: &Arc<str>, condition: Option<SchedulingCondition>) {
        let Some(record) = self.model.notes.groups.get(key) else { return };
        let pool = self.pool();
        let mut all: Vec<SchedulingCondition> =
            record.conditions.iter().filter(|shown| shown.node_pool.as_deref() != Some(&pool)).cloned().collect();
        let cause = condition
            .as_ref()
            .map_or(0, |condition| fingerprint::without_numbers(condition.message.as_deref().unwrap_or_default()));
        if let Some(mut condition) = condition {
            let known =
                record.conditions.iter().filter_map(|shown| shown.transition_id.as_deref()?.parse::<u64>().ok());
            condition.transition_id = Some(known.max().map_or(0, |last| last + 1).to_string());
            condition.last_transition_time = Some(Time(self.process.now()));
            all.push(condition);
        }
        self.statuses.set(Target::Group(Arc::clone(key)), Wanted::Conditions(all), cause);
    }

    /// Groups of which every pod has its place no longer show why they waited. While a pod is being bound they do: it may fail.
    fn clear_groups(&mut self, waiting: &BTreeSet<&str>) {
        let pool = self.pool();
        let mut cleared = Vec::new();
        for key in self.model.notes.explained.iter().filter(|key| !waiting.contains(&***key)) {
            let Some(record) = self.model.notes.groups.get(key) else { continue };
            let waits = |pod: &Arc<str>| self.model.notes.pods.get(pod).is_some_and(|note| note.waits);
            if !record.pods.iter().any(waits) {
                let shown = record.conditions.iter().any(|shown| shown.node_pool.as_deref() == Some(&pool));
                cleared.push((Arc::clone(key), shown, record.told));
            }
        }
        for (key, shown, told) in cleared {
            if told != CLEARED && (shown || told > CLEARED) {
                self.write_conditions(&key, None);
            }
            if !shown {
                self.model.notes.explained.remove(&key);
            }
            if let Some(record) = self.model.notes.groups.get_mut(&key) {
                record.told = if shown { CLEARED } else { 0 };
            }
        }
    }

    /// Says why a pod waits, if it does.
    fn say_pod(&mut self, key: &str, text: &Arc<str>, tell: Tell) {
        let being_bound = self.model.binds.unconfirmed.contains_key(key) || self.model.binds.open.contains(key);
        let Some((key, note)) = self.model.notes.pods.get_key_value(key) else { return };
        let print = condition_print("False", reasons::UNSCHEDULABLE, text);
        let shown = if note.told == 0 { note.seen } else { note.told };
        if !note.waits || being_bound || shown == print {
            return;
        }
        let (key, uid) = (Arc::clone(key), Arc::clone(&note.uid));
        let cause = fingerprint::without_numbers(text);
        let wanted = Wanted::Waits { uid, message: Arc::clone(text), event: tell == Tell::WithEvent };
        self.statuses.set(Target::Pod(Arc::clone(&key)), wanted, cause);
        if let Some(note) = self.model.notes.pods.get_mut(&key) {
            note.told = print;
        }
    }

    /// Says what is wrong with objects, once.
    fn say_verdicts(&mut self, verdicts: &[Verdict]) {
        for verdict in verdicts {
            let what = &verdict.what;
            if verdict.kind == "pod" {
                let key = self.model.converter.pod_key(&verdict.name).map(str::to_owned);
                if let Some(key) = key {
                    self.say_pod(&key, &format!("pod {key}: {what}").into(), Tell::WithEvent);
                }
                continue;
            }
            if self.verdicts.binary_search(verdict).is_ok() {
                continue;
            }
            let (api_version, kind) = match verdict.kind.as_str() {
                "node" => ("v1", "Node"),
                "queue" => ("scheduling.run.ai/v2", "Queue"),
                "topology" => ("kai.scheduler/v1alpha1", "Topology"),
                "claim" => ("resource.k8s.io/v1", "ResourceClaim"),
                // Groups are told why they wait.
                _ => continue,
            };
            // Events about nodes carry the name as uid, as those of the kubelet do.
            let about = reference(api_version, kind, &verdict.name, &verdict.name);
            let text = format!("{} {}: {what}", verdict.kind, verdict.name);
            self.process.events.tell_of(about, Kind::Warning, "Invalid", text, BTreeMap::new());
        }
        if self.verdicts != verdicts {
            self.verdicts = verdicts.to_vec();
        }
    }
}

/// Whether an event is told with a condition.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tell {
    WithEvent,
    Quietly,
}

/// An explanation on one line.
fn sentence(message: &str) -> String {
    let lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    let joined: Vec<&str> = lines.collect();
    let text = joined.join(" ");
    text.strip_suffix("..").map_or_else(|| text.clone(), |short| format!("{short}."))
}

fn explained(reason: &kai_convert::explain::Reason) -> UnschedulableExplanation {
    UnschedulableExplanation {
        reason: Some(reason.reason.clone()),
        message: Some(reason.message.clone()),
        details: None,
    }
}
