//! Groups that are not there yet though it is known what they will be: those of pods without an owner.
//!
//! What is there counts before what is implied, but such a group is as old as its pod, whenever it is made: who came first stays first.

use k8s_openapi::api::core::v1::Pod;
use kai_core::delta::{Delta, PodGroup};

use super::Converter;
use crate::{group::GroupRecord, queue::key};

impl Converter {
    /// Takes what a pod says of its group.
    pub(super) fn imply(&mut self, pod: &str, object: &Pod, out: &mut Vec<Delta>) {
        let implied = self.implied_by(object).map(|group| (key(&group.metadata), GroupRecord::of(&group)));
        if implied.as_ref().map(|(group, _)| group) != self.implied_for.get(pod) {
            self.no_longer_imply(pod, out);
        }
        if let Some((group, record)) = implied.filter(|(group, record)| self.implied.get(group) != Some(record)) {
            self.implied_for.insert(pod.to_owned(), group.clone());
            self.implied.insert(group.clone(), record);
            out.extend(self.tell_group(&group));
        }
    }

    /// Forgets what a pod said of its group.
    pub(super) fn no_longer_imply(&mut self, pod: &str, out: &mut Vec<Delta>) {
        let Some(group) = self.implied_for.remove(pod) else { return };
        self.implied.remove(&group);
        if let Some(told) = self.tell_group(&group) {
            out.push(told);
        } else {
            self.notes.remove(&group);
            out.push(Delta::PodGroupGone(group));
        }
    }

    fn implied_by(&self, pod: &Pod) -> Option<kai_api::PodGroup> {
        let settings = &self.settings;
        let ours = pod.spec.as_ref()?.scheduler_name.as_ref() == Some(&settings.scheduler);
        let label = settings.pool.as_ref().map(|pool| pool.label.as_str());
        let implied =
            kai_api::implied_group(pod, &settings.queue_label, label).filter(|_| ours && settings.implied_groups)?;
        self.ours(&implied.metadata).then_some(implied)
    }

    /// A group as it is, or will be.
    pub(super) fn described(&self, group: &str) -> Option<PodGroup> {
        let real = self.groups.get(group).map(|record| record.resolve(&self.priorities));
        let implied = self.implied.get(group).map(|record| record.resolve(&self.priorities));
        match (real, implied) {
            (Some(real), Some(implied)) => Some(PodGroup { created: real.created.min(implied.created), ..real }),
            (real, implied) => real.or(implied),
        }
    }
}

#[cfg(test)]
mod tests {
    use kai_core::time::Time;
    use serde_json::{Value, json};

    use super::*;
    use crate::{Kind, Object, Settings};

    fn converter() -> Converter {
        Converter::new(Settings { implied_groups: true, ..Settings::default() })
    }

    fn apply(converter: &mut Converter, object: &Value) -> Vec<Delta> {
        converter.apply(&Object::read(object).expect("readable").expect("known"))
    }

    fn pod() -> Value {
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "team", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"kai.scheduler/queue": "q"}},
            "spec": {"schedulerName": "kai-scheduler", "containers": []}})
    }

    fn group() -> Value {
        json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
            "metadata": {"name": "pg-p-u", "namespace": "team", "creationTimestamp": "2026-01-01T00:01:00Z"},
            "spec": {"queue": "other", "minMember": 1}})
    }

    /// Queue and age of the group that was told, or that it is gone.
    fn told(deltas: &[Delta]) -> Vec<(String, Option<Time>)> {
        let one = |delta: &Delta| match delta {
            Delta::PodGroup(group) => Some((group.queue.clone(), Some(group.created))),
            Delta::PodGroupGone(group) => Some((group.clone(), None)),
            _ => None,
        };
        deltas.iter().filter_map(one).collect()
    }

    #[test]
    fn a_lone_pod_is_in_a_group_before_that_is_there_and_the_group_is_as_old_as_the_pod() {
        let born = Some(Time(1_767_225_600_000));
        let mut converter = converter();
        assert_eq!(told(&apply(&mut converter, &pod())), [("q".to_owned(), born)]);
        assert_eq!(told(&apply(&mut converter, &group())), [("other".to_owned(), born)]);
        assert_eq!(told(&converter.remove(Kind::PodGroup, "team", "pg-p-u")), [("q".to_owned(), born)]);
        assert_eq!(told(&converter.remove(Kind::Pod, "team", "p")), [("team/pg-p-u".to_owned(), None)]);
    }

    #[test]
    fn the_order_in_which_a_pod_and_its_group_are_told_does_not_matter() {
        let born = Some(Time(1_767_225_600_000));
        let mut converter = converter();
        apply(&mut converter, &group()).clear();
        assert_eq!(told(&apply(&mut converter, &pod())), [("other".to_owned(), born)]);
        let real = Some(Time(1_767_225_660_000));
        assert_eq!(told(&converter.remove(Kind::Pod, "team", "p")), [("other".to_owned(), real)]);
    }

    #[test]
    fn a_pod_that_moves_to_another_group_implies_none() {
        let mut converter = converter();
        apply(&mut converter, &pod()).clear();
        let mut other = pod();
        other["metadata"]["annotations"] = json!({"pod-group-name": "mine"});
        assert_eq!(told(&apply(&mut converter, &other)), [("team/pg-p-u".to_owned(), None)]);
    }

    #[test]
    fn pods_of_others_imply_nothing() {
        let mut other = pod();
        other["spec"]["schedulerName"] = json!("default-scheduler");
        assert_eq!(told(&apply(&mut converter(), &other)), []);
        assert_eq!(told(&apply(&mut Converter::new(Settings::default()), &pod())), []);
    }
}
