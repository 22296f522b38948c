//! One cycle: decide, put the decisions into the model, begin to write them, say why the rest waits.

mod explain;
mod told;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kai_convert::{GroupNote, decision};
use kai_core::{
    plan::{Cause, Plan},
    time::Time,
};
use kai_kit::events::Kind;
use tokio::time::Instant;

use self::told::Told;
use crate::{
    bind_note::BindNote,
    isolate,
    metrics::{Watched, milliseconds},
    scheduler::{CYCLE, Scheduler},
    status::Target,
    write::{bind, evict, note},
};

/// After a failure that no group is to blame for, nothing is decided for so long.
const REST: Duration = Duration::from_secs(30);

impl Scheduler {
    /// Runs a cycle.
    pub(crate) fn cycle(&mut self) {
        let begun = Instant::now();
        *self.cycle_began.lock() = Some(begun);
        let first_change = self.close_window();
        let now = self.now();
        let deltas = self.model.converter.tell_time(now);
        self.model.feed(deltas);
        if let Some(deltas) = self.model.kept.take()
            && !self.isolate(&deltas, now)
        {
            return;
        }
        self.drop_requests();
        let before: Vec<_> = self.model.cluster.queues.iter().map(|queue| queue.sum.allocated).collect();
        self.model.cluster.settle();
        let mut watched = Watched::new();
        let watch = &mut |step, plan: &Plan| watched.see(step, plan);
        let plan = match isolate::plan(self.planner, &mut self.model.cluster, now, &self.policy, watch) {
            Ok(plan) => plan,
            Err(failure) => {
                tracing::error!(failure, "deciding failed: everything is read again to find out why");
                self.metrics.panics.inc();
                self.begin_again();
                return;
            }
        };
        self.metrics.decide.observe(milliseconds(begun.elapsed()));
        self.metrics.count(&plan, &watched, &self.model, &self.pool());
        self.model.record(now, &self.policy, &plan);
        let decided = Instant::now();
        let mut told = Told::of(&plan, &self.model, &before);
        let waiting = !plan.reasons.is_empty() || !told.pipelined.is_empty();
        let delays = delays(&plan);
        self.carry_out(&mut told, now);
        self.drop_spent(now);
        self.say(&told);
        self.model.changed = false;
        self.plan_next(waiting, delays, now);
        self.metrics.close.set(milliseconds(decided.elapsed()));
        self.metrics.cycle.set(milliseconds(first_change.unwrap_or(begun).elapsed()));
        *self.cycle_began.lock() = None;
        self.process.health.ready(CYCLE);
    }

    /// Finds the groups with which deciding fails; whether deciding works without them.
    fn isolate(&mut self, deltas: &[kai_core::delta::Delta], now: Time) -> bool {
        match isolate::isolate(self.planner, deltas, now, &self.policy) {
            Ok(found) => {
                self.model.cluster = found.cluster;
                for (group, quarantine) in found.culprits {
                    tracing::error!(group, what = quarantine.what, "left out");
                    if let Some(reference) = self.model.notes.group_reference(&group) {
                        let text = quarantine.what.clone();
                        self.process.events.tell_of(reference, Kind::Warning, "InternalError", text, BTreeMap::new());
                    }
                    self.model.quarantine.insert(group, quarantine);
                }
                true
            }
            Err(failure) => {
                tracing::error!(failure, "deciding fails whoever is left out");
                self.process.health.not_ready(CYCLE, failure);
                self.begin_again();
                self.rest(REST);
                false
            }
        }
    }

    /// BindRequests to nodes that are gone lead nowhere.
    fn drop_requests(&mut self) {
        let pool = self.settings_pool();
        let mut lost = Vec::new();
        for key in &self.model.binds.open {
            let Some(note) = self.model.binds.known.get(key) else { continue };
            let node = self.model.cluster.node(&note.node);
            let exists =
                node.and_then(|node| self.model.cluster.nodes.get(node.index())).is_some_and(|node| node.exists);
            let waits = self.model.notes.pods.get(key.as_str()).is_some_and(|pod| pod.waits);
            let ours = note.pool == pool && !self.model.binds.unconfirmed.contains_key(key);
            if !exists && waits && ours && !note.uid.is_empty() && !self.model.binds.dropping.contains(&note.uid) {
                lost.push((key.clone(), note.uid.clone()));
            }
        }
        for (key, uid) in lost {
            self.model.binds.dropping.insert(uid.clone());
            self.writer.begin(move |around| bind::drop_request(around, key, uid));
        }
    }

    /// BindRequests that failed, of pods that could be tried again by now and found no place: the next attempt needs a new one anyway.
    fn drop_spent(&mut self, now: Time) {
        let pool = self.settings_pool();
        let binds = &self.model.binds;
        let ours = |(key, note): &(&String, &BindNote)| {
            let waits = self.model.notes.pods.get(key.as_str()).is_some_and(|pod| pod.waits);
            waits && note.pool == pool && !note.uid.is_empty() && !binds.dropping.contains(&note.uid)
        };
        let spent: Vec<(String, String)> =
            binds.spent(now).filter(ours).map(|(key, note)| (key.clone(), note.uid.clone())).collect();
        for (key, uid) in spent {
            self.model.binds.dropping.insert(uid.clone());
            self.writer.begin(move |around| bind::drop_request(around, key, uid));
        }
    }

    /// The value of the node pool's label on objects of this scheduler.
    fn settings_pool(&self) -> Option<String> {
        self.model.settings.pool.as_ref().and_then(|pool| pool.value.clone())
    }

    /// Puts decisions into the model, then begins to write them.
    fn carry_out(&mut self, told: &mut Told, now: Time) {
        let mut notes: BTreeMap<String, Vec<GroupNote>> = std::mem::take(&mut told.notes);
        for eviction in &told.evictions {
            self.model.evict(&eviction.uid, now);
            let entry = notes.entry(eviction.group.clone()).or_default();
            if !entry.contains(&GroupNote::Evicted(now)) {
                entry.push(GroupNote::Evicted(now));
            }
        }
        let crowded = match self.options.direct_binds_from {
            0 => false,
            least => self.pace.count(told.binds.len()) >= least,
        };
        for (key, mut request) in std::mem::take(&mut told.binds) {
            self.model.binds.hand_on(&key, &mut request.object, now.0);
            let failed = self.model.binds.known.get(&key).filter(|known| known.failed && !known.uid.is_empty());
            let previous = failed.map(|known| known.uid.clone());
            let Some(pod) = self.model.notes.pod_reference(&key) else { continue };
            let direct = self.direct(&key, &request).filter(|_| crowded);
            self.model.decide(&key, Arc::new(request.object.clone()));
            self.no_longer_waits(&key);
            if direct.is_some() {
                self.model.foretell(&key, &request.object);
            }
            let bind = bind::Bind { key, request, previous, direct, pod };
            let latency = self.metrics.bind.clone();
            self.writer.begin(move |around| async move {
                let begun = Instant::now();
                let outcome = bind::write(around, bind).await;
                latency.observe(milliseconds(begun.elapsed()));
                outcome
            });
        }
        for eviction in &told.evictions {
            let Some(pod) = self.model.notes.pod_reference(&eviction.pod) else { continue };
            let evict = evict::Evict {
                pod,
                group: self.model.notes.group_reference(&eviction.group),
                text: eviction.text.clone(),
                annotations: eviction.annotations.clone(),
            };
            self.writer.begin(move |around| evict::write(around, evict));
        }
        for (group, notes) in notes {
            if self.model.note(&group, &notes) {
                self.writer.begin_note(move |around| note::write(around, group, notes));
            }
        }
    }

    /// How a pod is bound whose binding is a matter of one write: nothing is prepared for it, and it was never refused.
    fn direct(&self, key: &str, request: &decision::Request) -> Option<bind::Direct> {
        let spec = &request.object.spec;
        let note = self.model.notes.pods.get(key).filter(|note| note.plain)?;
        let prepared = !spec.selected_gpu_groups.is_empty()
            || !spec.resource_claim_allocations.is_empty()
            || !request.extended.is_empty();
        if prepared || self.model.binds.known.contains_key(key) {
            return None;
        }
        // Beside shared GPUs the binder sees to it that a whole one is none of those.
        let node = self.model.cluster.node(spec.selected_node.as_deref()?)?;
        let beside = self.model.cluster.nodes.get(node.index()).is_none_or(|node| !node.shared.is_empty());
        if beside && spec.received_gpu.as_ref().is_some_and(|gpu| gpu.count.unwrap_or(0) > 0) {
            return None;
        }
        let group = note.group.as_ref().filter(|_| !note.tied).and_then(|group| group.split_once('/'));
        Some(bind::Direct { group: group.map(|(_, name)| name.to_owned()) })
    }

    /// What a pod that gets its place was about to be told of its waiting is not written any more.
    fn no_longer_waits(&mut self, key: &str) {
        let Some((key, _)) = self.model.notes.pods.get_key_value(key) else { return };
        let key = Arc::clone(key);
        if self.statuses.withdraw(&Target::Pod(Arc::clone(&key)))
            && let Some(note) = self.model.notes.pods.get_mut(&key)
        {
            note.told = 0;
        }
    }

    /// When time alone makes the next cycle worth while.
    fn plan_next(&mut self, waiting: bool, delays: Option<Time>, now: Time) {
        let cluster = &self.model.cluster;
        let aging = !cluster.suspects.is_empty() || !cluster.terminating.is_empty();
        if waiting || aging {
            self.look_again(self.setup.period);
        }
        for moment in [delays, self.model.converter.next_veto_end()].into_iter().flatten() {
            let pause = u64::try_from(moment.since(now).0).unwrap_or(0);
            self.look_again(Duration::from_millis(pause.max(1)));
        }
    }
}

/// When the first preemption delay ends.
fn delays(plan: &Plan) -> Option<Time> {
    let causes = plan.reasons.iter().flat_map(|refusal| &refusal.causes);
    let ends = causes.filter_map(|cause| match cause {
        Cause::PreemptionDelayNotElapsed { until } => Some(*until),
        _ => None,
    });
    ends.min()
}
