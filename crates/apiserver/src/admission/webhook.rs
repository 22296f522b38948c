//! Admission webhooks: who is asked, what they are told, and what their answer does.
//!
//! ```text
//!  configuration (parsed once per resourceVersion) -> selectors, rules, match conditions: is this webhook asked?
//!      -> review (AdmissionReview v1) -> caller (router in this process, or https) -> verdict: patch, refusal, warnings
//! ```
//!
//! Mutating webhooks are asked one after the other in the order of their configurations' names; validating ones all at once.
//! A *failure* is a call that gave no verdict: the failure policy decides about it. A refusal is final.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::join_all;
use serde_json::{Value, json};

use super::match_condition::{self, Verdict};
use super::{Attributes, ClusterReader};
use crate::random::Random;
use crate::status::ApiError;

mod caller;
mod configuration;
mod review;
#[cfg(test)]
mod tests;

use caller::Caller;
use configuration::{Configurations, Target, Webhook};

const MUTATING: &str = "mutatingwebhookconfigurations.admissionregistration.k8s.io";
const VALIDATING: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";

/// All that is needed to ask webhooks.
#[derive(Debug)]
pub(super) struct Webhooks {
    mutating: Configurations,
    validating: Configurations,
    programs: match_condition::Programs,
    caller: Caller,
    /// Where the uids of reviews come from.
    random: Random,
}

impl Webhooks {
    /// None yet; uids of reviews repeat with the seed.
    pub(super) fn new(seed: Option<u64>) -> Self {
        Self {
            random: Random::new(seed),
            mutating: Configurations::new(MUTATING),
            validating: Configurations::new(VALIDATING),
            programs: match_condition::Programs::default(),
            caller: Caller::default(),
        }
    }
}

/// Which mutating webhooks have to be asked again because somebody after them changed the object.
#[derive(Debug, Default)]
pub(super) struct MutatingPass {
    repeating: bool,
    changed: bool,
    /// Webhooks that want to know of later changes and were asked since the last one.
    asked: BTreeSet<String>,
    again: BTreeSet<String>,
}

impl MutatingPass {
    /// Whether a webhook changed the object, so that plugins and webhooks get a second look.
    pub(super) fn must_repeat(&self) -> bool {
        self.changed
    }

    /// Starts the second pass; `plugins_changed` tells whether the plugins made of the object something else.
    pub(super) fn begin_again(&mut self, plugins_changed: bool) {
        self.repeating = true;
        if plugins_changed {
            self.again.append(&mut self.asked);
        }
    }

    fn skips(&self, webhook: &Webhook) -> bool {
        self.repeating && !self.again.contains(&webhook.identity)
    }

    fn note(&mut self, webhook: &Webhook, changed: bool) {
        if changed {
            self.changed = true;
            self.again.append(&mut self.asked);
        }
        if webhook.reinvoke_if_needed {
            self.asked.insert(webhook.identity.clone());
        }
    }
}

/// Why a webhook let the request not pass.
enum Objection {
    /// There was no verdict.
    Failure(String),
    /// The verdict was no, or the request cannot be served.
    Refusal(ApiError),
}

/// What a webhook said that let the request pass.
struct Consent {
    patch: Option<json_patch::Patch>,
    warnings: Vec<String>,
}

impl Webhooks {
    pub(super) fn register_service(&self, namespace: &str, name: &str, router: axum::Router) {
        self.caller.register_service(namespace, name, router);
    }

    pub(super) fn forget_service(&self, namespace: &str, name: &str) {
        self.caller.forget_service(namespace, name);
    }

    /// Asks mutating webhooks and applies their patches.
    pub(super) async fn mutate(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        cluster: &dyn ClusterReader,
        pass: &mut MutatingPass,
        warnings: &mut Vec<String>,
    ) -> Result<(), ApiError> {
        let Some(webhooks) = self.relevant(&self.mutating, attributes, cluster) else { return Ok(()) };
        for webhook in webhooks.iter() {
            let Some(target) = webhook.target(attributes, Some(object), cluster)? else { continue };
            if pass.skips(webhook) {
                continue;
            }
            let mut changed = false;
            match self.ask(webhook, &target, attributes, Some(object), cluster, Mode::Mutating).await {
                Ok(consent) => {
                    warnings.extend(consent.warnings);
                    if let Some(patch) = consent.patch {
                        changed = apply(&patch, object)?;
                    }
                }
                Err(Objection::Failure(reason)) => webhook.settle(&reason)?,
                Err(Objection::Refusal(error)) => return Err(error),
            }
            pass.note(webhook, changed);
        }
        Ok(())
    }

    /// Asks validating webhooks; the first objection in their order counts.
    pub(super) async fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
        cluster: &dyn ClusterReader,
    ) -> Result<Vec<String>, ApiError> {
        let Some(webhooks) = self.relevant(&self.validating, attributes, cluster) else { return Ok(Vec::new()) };
        let mut asked = Vec::new();
        for webhook in webhooks.iter() {
            if let Some(target) = webhook.target(attributes, object, cluster)? {
                asked.push((webhook, target));
            }
        }
        let calls = asked
            .iter()
            .map(|(webhook, target)| self.ask(webhook, target, attributes, object, cluster, Mode::Validating));
        let verdicts = join_all(calls).await;
        let mut warnings = Vec::new();
        let mut outcome = Ok(());
        for ((webhook, _), verdict) in asked.iter().zip(verdicts) {
            let settled = match verdict {
                Ok(consent) => {
                    warnings.extend(consent.warnings);
                    Ok(())
                }
                Err(Objection::Failure(reason)) => webhook.settle(&reason),
                Err(Objection::Refusal(error)) => Err(error),
            };
            outcome = outcome.and(settled);
        }
        outcome.map(|()| warnings)
    }

    /// The configured webhooks; none for the configurations themselves, so that a broken one can always be repaired.
    fn relevant(
        &self,
        configurations: &Configurations,
        attributes: &Attributes<'_>,
        cluster: &dyn ClusterReader,
    ) -> Option<Arc<Vec<Webhook>>> {
        let webhooks = configurations.current(cluster, &self.programs)?;
        let exempt = attributes.resource.gvk.group == "admissionregistration.k8s.io";
        (!exempt && !webhooks.is_empty()).then_some(webhooks)
    }

    async fn ask(
        &self,
        webhook: &Webhook,
        target: &Target<'_>,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
        cluster: &dyn ClusterReader,
        mode: Mode,
    ) -> Result<Consent, Objection> {
        if attributes.dry_run && !webhook.allows_dry_run {
            let message = format!("admission webhook \"{}\" does not support dry run", webhook.name);
            return Err(Objection::Refusal(ApiError::bad_request(message)));
        }
        let version = webhook.review_version.ok_or_else(|| {
            let why = "could not create admission objects: webhook does not accept known AdmissionReview versions \
                       (v1, v1beta1)";
            Objection::Failure(why.to_owned())
        })?;
        let review = review::Review::new(self.random.uid(), version, attributes, target, object);
        let body = serde_json::to_vec(&review)
            .map_err(|error| Objection::Failure(format!("could not create admission objects: {error}")))?;
        let answer = self.caller.call(&webhook.client, webhook.timeout, body, cluster).await;
        let answer = answer.map_err(|error| Objection::Failure(format!("failed to call webhook: {error}")))?;
        let verdict = review::read(&answer, &review, mode == Mode::Mutating).map_err(Objection::Failure)?;
        if !verdict.allowed {
            return Err(Objection::Refusal(review::refusal(&webhook.name, &verdict.status)));
        }
        let patch = verdict.patch.map(|patch| serde_json::from_slice::<json_patch::Patch>(&patch)).transpose();
        let patch = patch
            .map_err(|error| Objection::Failure(format!("received undecodable patch in webhook response: {error}")))?;
        Ok(Consent { patch, warnings: verdict.warnings })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Mutating,
    Validating,
}

impl Webhook {
    /// What this webhook is to be asked about; `None` when it does not care for the request.
    fn target<'a>(
        &self,
        attributes: &Attributes<'a>,
        object: Option<&Value>,
        cluster: &dyn ClusterReader,
    ) -> Result<Option<Target<'a>>, ApiError> {
        // Cheapest first. Errors of selectors count only for webhooks whose rules match, as in a real server.
        let Some(target) = self.matching_rule(attributes, cluster) else { return Ok(None) };
        if !self.selects_namespace(attributes, object, cluster)? || !self.selects_object(attributes, object)? {
            return Ok(None);
        }
        let verdict = match_condition::evaluate(&self.conditions, object, attributes.old, |only| {
            review::request_for_conditions(attributes, &target, only)
        });
        match verdict {
            Verdict::Matches => Ok(Some(target)),
            Verdict::Skips => Ok(None),
            Verdict::Fails(_) if self.ignores_failures => Ok(None),
            Verdict::Fails(why) => Err(ApiError::forbidden(attributes.resource.subject(attributes.name), why)),
        }
    }

    /// Decides about a call that gave no verdict.
    fn settle(&self, reason: &str) -> Result<(), ApiError> {
        let message = format!("failed calling webhook \"{}\": {reason}", self.name);
        if self.ignores_failures {
            tracing::warn!(webhook = self.name, reason, "failed calling webhook, failing open");
            return Ok(());
        }
        let mut error = ApiError::internal(&message);
        error.details = Some(json!({"causes": [{"message": message}]}));
        Err(error)
    }
}

/// Applies a patch; whether the object is another one now.
fn apply(patch: &json_patch::Patch, object: &mut Value) -> Result<bool, ApiError> {
    let mut patched = object.clone();
    json_patch::patch(&mut patched, patch).map_err(ApiError::internal)?;
    if !patched.is_object() {
        return Err(ApiError::internal("a webhook replaced the object by something that is none"));
    }
    // The webhook may have seen another version of the object; the request's own is stored.
    for field in ["apiVersion", "kind"] {
        patched[field] = object.get(field).cloned().unwrap_or_default();
    }
    let changed = patched != *object;
    *object = patched;
    Ok(changed)
}
