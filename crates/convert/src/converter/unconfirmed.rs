//! What was decided or written but is not seen in objects yet, and what decisions need to know to become objects.

use kai_core::{
    delta::{Delta, PodGroup},
    time::Time,
};

use super::{Converter, PodRecord};
use crate::{bind_request::Veto, group::GroupRecord};

/// What was written on a group, though its object may not show it yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupNote {
    /// When its pods last started.
    Started(Time),
    /// When its pods were last evicted.
    Evicted(Time),
    /// Since when it is below its minimum; `None`: it no longer is.
    Stale(Option<Time>),
}

impl GroupNote {
    fn same_field(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

impl Converter {
    /// The claims of a pod that waits: their names in the pod, and `namespace/name`.
    #[must_use]
    pub fn claims_of(&self, uid: &str) -> Vec<(String, String)> {
        let record = self.uids.get(uid).and_then(|pod| self.pods.get(pod));
        let Some(PodRecord::Open(draft)) = record else { return Vec::new() };
        draft.claims.iter().filter_map(|claim| Some((claim.name.clone(), claim.key.clone()?))).collect()
    }

    /// The name of a request of a claim, by its place.
    #[must_use]
    pub fn claim_request(&self, claim: &str, place: u32) -> String {
        self.devices.request_name(claim, place).unwrap_or_default().to_owned()
    }

    /// The device class that serves an extended resource.
    #[must_use]
    pub fn class_serving(&self, resource: &str) -> Option<&str> {
        self.devices.class_serving(resource)
    }

    /// The label of objects of this scheduler's node pool, if they have one.
    #[must_use]
    pub fn pool_label(&self) -> Option<(String, String)> {
        let pool = self.settings.pool.as_ref()?;
        Some((pool.label.clone(), pool.value.clone()?))
    }

    /// The vetoes that hold for a pod.
    pub fn vetoes(&self, uid: &str) -> impl Iterator<Item = &Veto> {
        let bind = self.uids.get(uid).and_then(|pod| self.binds.get(self.bind_of.get(pod)?));
        let owned = bind.filter(|bind| bind.owner.as_deref().is_none_or(|owner| owner == uid));
        owned.into_iter().flat_map(|bind| &bind.vetoes).filter(|veto| veto.holds(self.now))
    }

    /// When the next veto ends.
    #[must_use]
    pub fn next_veto_end(&self) -> Option<Time> {
        self.veto_ends.first().map(|(end, _)| *end)
    }

    /// Takes the time: vetoes that ended no longer hold.
    #[must_use]
    pub fn tell_time(&mut self, now: Time) -> Vec<Delta> {
        let mut out = Vec::new();
        self.now = self.now.max(now);
        while let Some((end, _)) = self.veto_ends.first()
            && *end <= now
            && let Some((_, pod)) = self.veto_ends.pop_first()
        {
            self.tell_bound(&pod, &mut out);
        }
        out
    }

    /// Takes the news that the deletion of a pod was asked for. Its object will say so later.
    #[must_use]
    pub fn pod_leaves(&mut self, uid: &str, since: Time) -> Vec<Delta> {
        if !self.uids.contains_key(uid) {
            return Vec::new();
        }
        self.leaving.insert(uid.to_owned(), since);
        vec![Delta::PodLeaves { uid: uid.to_owned(), since }]
    }

    /// Takes the news that a pod is not deleted after all. Its object must be applied next.
    pub fn pod_stays(&mut self, uid: &str) {
        self.leaving.remove(uid);
    }

    /// Takes the news that something was written on a group. Its object will say so later.
    #[must_use]
    pub fn group_noted(&mut self, group: &str, note: GroupNote) -> Vec<Delta> {
        if !self.groups.contains_key(group) && !self.implied.contains_key(group) {
            return Vec::new();
        }
        let notes = self.notes.entry(group.to_owned()).or_default();
        notes.retain(|known| !known.same_field(note));
        notes.push(note);
        self.tell_group(group).into_iter().collect()
    }

    /// Takes the news that something could not be written on a group.
    #[must_use]
    pub fn group_not_noted(&mut self, group: &str, note: GroupNote) -> Vec<Delta> {
        if let Some(notes) = self.notes.get_mut(group) {
            notes.retain(|known| *known != note);
            if notes.is_empty() {
                self.notes.remove(group);
            }
        }
        self.tell_group(group).into_iter().collect()
    }

    pub(super) fn tell_group(&self, group: &str) -> Option<Delta> {
        let notes = self.notes.get(group).map(Vec::as_slice).unwrap_or_default();
        Some(Delta::PodGroup(Box::new(noted(self.described(group)?, notes))))
    }

    /// Forgets what was written on a group once its object shows it.
    pub(super) fn confirm_notes(&mut self, group: &str, record: &GroupRecord) {
        let Some(notes) = self.notes.get_mut(group) else { return };
        let shown = record.resolve(&self.priorities);
        notes.retain(|note| match note {
            GroupNote::Started(at) => shown.last_start.is_none_or(|shown| shown < *at),
            GroupNote::Evicted(at) => shown.last_eviction.is_none_or(|shown| shown < *at),
            GroupNote::Stale(since) => shown.stale_since != *since,
        });
        if notes.is_empty() {
            self.notes.remove(group);
        }
    }
}

/// A group with what was written on it since its object was seen.
fn noted(mut group: PodGroup, notes: &[GroupNote]) -> PodGroup {
    for note in notes {
        match *note {
            GroupNote::Started(at) => group.last_start = Some(at),
            GroupNote::Evicted(at) => group.last_eviction = Some(at),
            GroupNote::Stale(since) => group.stale_since = since,
        }
    }
    group
}

#[cfg(test)]
mod tests {
    use kai_core::delta::Delta;
    use serde_json::{Value, json};

    use super::*;
    use crate::{Object, Settings};

    fn apply(converter: &mut Converter, object: Value) -> Vec<Delta> {
        converter.apply(&Object::read(&object).expect("readable").expect("known"))
    }

    fn group(notes: Value) -> Value {
        json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": "team", "annotations": notes}, "spec": {"queue": "q"}})
    }

    fn last_start(deltas: &[Delta]) -> Option<Time> {
        deltas.iter().find_map(|delta| match delta {
            Delta::PodGroup(group) => group.last_start,
            _ => None,
        })
    }

    #[test]
    fn what_was_written_on_a_group_counts_until_its_object_shows_it_or_the_write_failed() {
        let mut converter = Converter::new(Settings::default());
        apply(&mut converter, group(json!({})));
        let note = GroupNote::Started(Time(1_767_268_800_000));
        assert_eq!(last_start(&converter.group_noted("team/g", note)), Some(Time(1_767_268_800_000)));
        assert_eq!(last_start(&apply(&mut converter, group(json!({})))), Some(Time(1_767_268_800_000)));
        assert_eq!(last_start(&converter.group_not_noted("team/g", note)), None);
        converter.group_noted("team/g", note).clear();
        let shown = json!({"kai.scheduler/last-start-timestamp": "2026-01-01T12:00:00Z"});
        apply(&mut converter, group(shown));
        assert_eq!(last_start(&apply(&mut converter, group(json!({})))), None);
    }

    #[test]
    fn a_pod_whose_deletion_was_asked_for_leaves_whatever_its_object_still_says() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "team", "uid": "u"},
            "spec": {"schedulerName": "kai-scheduler", "nodeName": "n", "containers": []}, "status": {"phase": "Running"}});
        let deleted = |deltas: &[Delta]| {
            deltas.iter().find_map(|delta| match delta {
                Delta::Pod(pod) => Some(pod.deleted),
                _ => None,
            })
        };
        let mut converter = Converter::new(Settings::default());
        apply(&mut converter, pod.clone());
        assert_eq!(converter.pod_leaves("u", Time(5)), [Delta::PodLeaves { uid: "u".to_owned(), since: Time(5) }]);
        assert_eq!(deleted(&apply(&mut converter, pod.clone())), Some(Some(Time(5))));
        converter.pod_stays("u");
        assert_eq!(deleted(&apply(&mut converter, pod)), Some(None));
    }

    #[test]
    fn a_veto_holds_until_its_time() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "team", "uid": "u"},
            "spec": {"schedulerName": "kai-scheduler", "containers": []}});
        let request = json!({"apiVersion": "scheduling.run.ai/v1alpha2", "kind": "BindRequest",
            "metadata": {"name": "p", "namespace": "team"}, "spec": {"podName": "p", "selectedNode": "n"},
            "status": {"phase": "Failed", "errorClass": "Refused", "reason": "no", "nextRetry": "1970-01-01T00:00:10Z"}});
        let vetoed = |deltas: &[Delta]| {
            deltas.iter().find_map(|delta| match delta {
                Delta::Pod(pod) => Some(pod.constraints.vetoed.clone()),
                _ => None,
            })
        };
        let mut converter = Converter::new(Settings::default());
        apply(&mut converter, pod);
        assert_eq!(vetoed(&apply(&mut converter, request)), Some(vec!["n".to_owned()]));
        assert_eq!(converter.next_veto_end(), Some(Time(10_000)));
        assert_eq!(converter.tell_time(Time(9_999)), []);
        assert_eq!(vetoed(&converter.tell_time(Time(10_000))), Some(Vec::new()));
        assert_eq!((converter.vetoes("u").count(), converter.next_veto_end()), (0, None));
    }
}
