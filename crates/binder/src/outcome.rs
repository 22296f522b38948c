//! How an attempt ended, written where people and the scheduler read it: the request's status, the pod's condition, an event.
//!
//! A pod that is bound at the first attempt costs one write here.

use std::{collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use kai_api::{
    BindRequest, BindRequestStatus,
    names::{bind_phases, bind_steps, conditions},
};
use kai_kit::{
    Next,
    backoff::Backoff,
    errors::{Class, classify},
    events::Kind,
    writes,
};
use kube::{
    Api, Resource as _, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    failure::Failure,
    metrics::Metrics,
    world::{World, node_of, place},
};

/// Pauses after failures that may pass.
const TRANSIENT: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
/// How long a node that refused a pod is avoided.
const REFUSED: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_mins(10));
/// After this many failures that should have passed, another node is better.
const PATIENCE: i32 = 10;
/// On a request: refused attempts of earlier requests for the pod, by node, as the scheduler carries them on.
const ATTEMPTS: &str = "kai.scheduler/bind-attempts";

/// What is written after a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    failure: Failure,
    phase: &'static str,
    attempts: i32,
    next: Option<Timestamp>,
}

impl Verdict {
    /// Whether what the attempt left behind must go.
    pub(crate) fn is_final(&self) -> bool {
        self.phase == bind_phases::FAILED
    }
}

/// Writes how an attempt ended.
pub(crate) struct Outcome<'a> {
    world: &'a World,
    request: &'a BindRequest,
    status: BindRequestStatus,
    pod: Option<&'a Pod>,
    metrics: &'a Metrics,
}

impl<'a> Outcome<'a> {
    /// The writer for a request and its pod.
    pub(crate) fn new(world: &'a World, request: &'a BindRequest, pod: Option<&'a Pod>, metrics: &'a Metrics) -> Self {
        Self { world, request, status: request.status.clone().unwrap_or_default(), pod, metrics }
    }

    /// The pod is bound.
    pub(crate) async fn succeeded(&self) -> Result<Next, kube::Error> {
        let mut status = json!({"phase": bind_phases::SUCCEEDED, "step": bind_steps::BOUND});
        for (field, set) in [
            ("reason", self.status.reason.is_some()),
            ("errorClass", self.status.error_class.is_some()),
            ("nextRetry", self.status.next_retry.is_some()),
        ] {
            if set {
                status[field] = Value::Null;
            }
        }
        if let Some(pod) = self.pod
            && has_false_condition(pod)
        {
            self.write_condition(pod, "True", "Bound", "").await?;
        }
        // Told before the status is written: whoever dies in between tells it again, and the same words are one event.
        if let Some(pod) = self.pod {
            let text = format!("bound to node {}", node_of(self.request));
            self.world.process.events.tell(pod, Kind::Normal, "Bound", text);
        }
        self.write_status(status).await?;
        self.metrics.bound(self.request, self.world.process.now());
        Ok(Next::Done)
    }

    /// Reservations are waited for, of which so many have failed. Written once, and again when one more has failed: the next binder
    /// goes on counting from there.
    pub(crate) async fn reserves(&self, what: &str, failures: Option<(u32, String)>) -> Result<(), kube::Error> {
        let failures = failures.map(|(times, why)| (i32::try_from(times).unwrap_or(i32::MAX), why));
        match failures.filter(|(times, _)| *times > self.status.failed_reservations.unwrap_or(0)) {
            Some((times, why)) => self.waits(bind_steps::RESERVING, &why, json!({"failedReservations": times})).await,
            None => self.waits(bind_steps::RESERVING, what, json!({})).await,
        }
    }

    /// Volumes or claims are waited for. Written once, with since when: the next binder goes on waiting from there.
    pub(crate) async fn prepares(&self, what: &str) -> Result<(), kube::Error> {
        let fields = match self.status.waiting_since {
            Some(_) => json!({}),
            None => json!({"waitingSince": whole_seconds(self.world.process.now())}),
        };
        self.waits(bind_steps::PREPARING, what, fields).await
    }

    async fn waits(&self, step: &'static str, what: &str, mut status: Value) -> Result<(), kube::Error> {
        let known = self.status.step.as_deref() == Some(step) && self.status.error_class.is_none();
        if known && status == json!({}) {
            return Ok(());
        }
        status["phase"] = json!(bind_phases::PENDING);
        status["step"] = json!(step);
        status["reason"] = json!(what);
        if self.status.error_class.is_some() {
            status["errorClass"] = Value::Null;
            status["nextRetry"] = Value::Null;
        }
        self.write_status(status).await
    }

    /// What follows from a failure.
    pub(crate) fn judge(&self, failure: Failure) -> Verdict {
        let now = self.world.process.now();
        let earlier = self.status.failed_attempts.unwrap_or_else(|| carried_on(self.request));
        judge(failure, earlier, self.request.spec.backoff_limit, now)
    }

    /// An attempt failed, and what it left behind is gone where it must be.
    pub(crate) async fn failed(&self, verdict: Verdict) -> Result<Next, kube::Error> {
        let Verdict { failure, phase, attempts, next } = verdict;
        self.metrics.failed(failure.class());
        let mut status = json!({
            "phase": phase,
            "reason": failure.text(),
            "failedAttempts": attempts,
            "errorClass": failure.class(),
            "nextRetry": next.map(whole_seconds),
        });
        for (field, set) in [
            ("step", self.status.step.is_some()),
            ("waitingSince", self.status.waiting_since.is_some()),
            ("failedReservations", self.status.failed_reservations.is_some()),
        ] {
            if set && phase == bind_phases::FAILED {
                status[field] = Value::Null;
            }
        }
        if let Some(pod) = self.pod
            && place(pod).is_none()
        {
            self.write_condition(pod, "False", "BindingError", failure.text()).await?;
        }
        if let Some(pod) = self.pod {
            let when = match next {
                Some(time) if phase == bind_phases::FAILED => {
                    format!("; node {} is avoided until {}", node_of(self.request), whole_seconds(time))
                }
                _ => String::new(),
            };
            let text = format!("{}{when}", failure.text());
            // Told first: once the status says that it failed, nobody looks at it again.
            let events = &self.world.process.events;
            events.tell_first(pod.object_ref(&()), Kind::Warning, "BindingError", text, BTreeMap::new()).await;
        }
        self.write_status(status).await?;
        let again =
            phase == bind_phases::PENDING || self.request.spec.backoff_limit.is_some_and(|limit| attempts < limit);
        let pause = next.and_then(|time| Duration::try_from(time.duration_since(self.world.process.now())).ok());
        Ok(match pause {
            Some(pause) if again => Next::After(pause),
            _ => Next::Done,
        })
    }

    async fn write_status(&self, status: Value) -> Result<(), kube::Error> {
        let namespace = self.request.namespace().unwrap_or_default();
        let api = Api::<BindRequest>::namespaced(self.world.process.client.clone(), &namespace);
        let patch = json!({"metadata": {"uid": self.request.metadata.uid}, "status": status});
        let written = writes::merge_status(&api, self.world.process.component, &self.request.name_any(), &patch).await;
        match written {
            Ok(changed) => self.world.requests.saw(changed),
            // Withdrawn meanwhile: then there is nobody to tell. Replaced, and it is looked at again.
            Err(error) if classify(&error) == Class::Gone => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn write_condition(&self, pod: &Pod, status: &str, reason: &str, text: &str) -> Result<(), kube::Error> {
        let known = bound_condition(pod);
        let same =
            known.is_some_and(|known| known.status == status && known.message.as_deref().unwrap_or_default() == text);
        if same {
            return Ok(());
        }
        let moved = known.is_none_or(|known| known.status != status);
        let mut fields = json!({"type": conditions::POD_BOUND, "status": status, "reason": reason, "message": text});
        if moved {
            fields["lastTransitionTime"] = json!(whole_seconds(self.world.process.now()));
        }
        let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [fields]}});
        let manager = Some(self.world.process.component.to_owned());
        let parameters = PatchParams { field_manager: manager, ..PatchParams::default() };
        let api = self.world.pod_api(&pod.namespace().unwrap_or_default());
        match api.patch_status(&pod.name_any(), &parameters, &Patch::Strategic(&patch)).await {
            Ok(changed) => self.world.pods.saw(changed),
            Err(error) if classify(&error) == Class::Gone => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

fn judge(failure: Failure, earlier: i32, limit: Option<i32>, now: Timestamp) -> Verdict {
    let attempts = earlier.saturating_add(1);
    let after = |pauses: Backoff| {
        let pause = pauses.after(u32::try_from(attempts).unwrap_or(1));
        now.saturating_add(SignedDuration::try_from(pause).unwrap_or(SignedDuration::MAX)).ok()
    };
    match failure {
        Failure::Transient(text) | Failure::Waiting(text) => {
            if limit.map_or(attempts >= PATIENCE, |limit| attempts >= limit) {
                let failure = Failure::Refused(format!("{text} ({attempts} times)"));
                return Verdict { failure, phase: bind_phases::FAILED, attempts, next: after(REFUSED) };
            }
            let failure = Failure::Transient(text);
            Verdict { failure, phase: bind_phases::PENDING, attempts, next: after(TRANSIENT) }
        }
        Failure::Refused(_) => Verdict { failure, phase: bind_phases::FAILED, attempts, next: after(REFUSED) },
        // Never again, whatever the limit.
        Failure::Gone(_) => {
            let attempts = limit.map_or(attempts, |limit| attempts.max(limit));
            Verdict { failure, phase: bind_phases::FAILED, attempts, next: None }
        }
    }
}

/// How often earlier requests for the pod were refused by this node.
fn carried_on(request: &BindRequest) -> i32 {
    let counts =
        request.annotations().get(ATTEMPTS).and_then(|text| serde_json::from_str::<BTreeMap<String, i32>>(text).ok());
    counts.and_then(|counts| counts.get(node_of(request)).copied()).unwrap_or(0).max(0)
}

/// What a pod says of its binding.
pub(crate) fn bound_condition(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == conditions::POD_BOUND)
}

fn has_false_condition(pod: &Pod) -> bool {
    bound_condition(pod).is_some_and(|condition| condition.status == "False")
}

fn whole_seconds(time: Timestamp) -> String {
    // Rounded up, so that what is written is never earlier than what was meant.
    let second = time.as_second() + i64::from(time.subsec_nanosecond() > 0);
    Timestamp::from_second(second).unwrap_or(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(failure: Failure, earlier: i32, limit: Option<i32>) -> (&'static str, i32, Option<i64>) {
        let verdict = judge(failure, earlier, limit, Timestamp::UNIX_EPOCH);
        (verdict.phase, verdict.attempts, verdict.next.map(Timestamp::as_second))
    }

    #[test]
    fn refusals_are_avoided_longer_each_time() {
        let refused = || Failure::Refused("no".to_owned());
        let pauses: Vec<_> = [0, 1, 2, 20].map(|earlier| after(refused(), earlier, None).2).into();
        assert_eq!(pauses, [Some(10), Some(20), Some(40), Some(600)]);
    }

    #[test]
    fn what_may_pass_is_tried_again_but_not_for_ever() {
        let transient = || Failure::Transient("no".to_owned());
        assert_eq!(after(transient(), 0, None), ("Pending", 1, Some(1)));
        assert_eq!(after(transient(), 3, None), ("Pending", 4, Some(8)));
        assert_eq!(after(transient(), 9, None).0, "Failed");
        assert_eq!(after(transient(), 1, Some(2)).0, "Failed");
        assert_eq!(after(transient(), 0, Some(2)).0, "Pending");
    }

    #[test]
    fn what_is_gone_is_never_tried_again() {
        assert_eq!(after(Failure::Gone("no".to_owned()), 0, Some(5)), ("Failed", 5, None));
    }

    #[test]
    fn counts_of_earlier_requests_are_carried_on() {
        let object =
            json!({"metadata": {"annotations": {ATTEMPTS: "{\"n\": 3, \"m\": 1}"}}, "spec": {"selectedNode": "n"}});
        assert_eq!(carried_on(&serde_json::from_value(object).expect("a request")), 3);
    }
}
