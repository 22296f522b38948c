//! Rights that a component should have and does not: said in its log and in its readiness as soon as the API server refuses one, and
//! until the server says that it is granted.
//!
//! Whoever made the call gets the refusal as before. Only the component's own rights count: what it asks for on the chance that it
//! may, such as the owner of a pod of an unknown kind, is no fault of whoever installed it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use axum::{
    body::{Body, to_bytes},
    http::{Method, Response, StatusCode, Uri},
};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::{Api, Client, api::PostParams, core::Status};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{
    health::Health,
    rbac::{Call, Right},
};

/// How often the server is asked whether a right is there by now.
const ASK: Duration = Duration::from_secs(15);
/// Longer answers are no refusals of a right.
const LONGEST: usize = 64 * 1024;

/// Watches the answers that a component gets. Clones share what is missing.
#[derive(Clone)]
pub struct Refusals {
    rights: Arc<[Right]>,
    client: Client,
    health: Health,
    cancel: CancellationToken,
    missing: Arc<Mutex<BTreeSet<Call>>>,
}

impl Refusals {
    /// For a component with these rights. `client` asks whether they are there, until `cancel`.
    pub fn new(rights: Vec<Right>, client: Client, health: Health, cancel: CancellationToken) -> Self {
        Self { rights: rights.into(), client, health, cancel, missing: Arc::default() }
    }

    /// Looks at an answer and gives it on unchanged. What was asked is only looked at if it was refused.
    pub async fn look(&self, method: &Method, uri: &Uri, answer: Response<Body>) -> Response<Body> {
        if answer.status() != StatusCode::FORBIDDEN {
            return answer;
        }
        let Some(call) = Call::of(method, uri).filter(|call| self.rights.iter().any(|right| right.allows(call))) else {
            return answer;
        };
        let (parts, body) = answer.into_parts();
        let Ok(bytes) = to_bytes(body, LONGEST).await else {
            return Response::from_parts(parts, Body::empty());
        };
        if let Some(words) = refusal(&bytes) {
            self.note(call, &words);
        }
        Response::from_parts(parts, Body::from(bytes))
    }

    fn note(&self, call: Call, words: &str) {
        if !self.missing.lock().insert(call.clone()) {
            return;
        }
        let name = condition(&call);
        tracing::error!("{name} is missing: {words}; `kai rbac` prints the roles of each component");
        self.health.not_ready(&name, format!("{words}; `kai rbac` prints the roles of each component"));
        tokio::spawn(self.clone().wait_for(call, name));
    }

    /// Asks from time to time whether the right is there by now.
    async fn wait_for(self, call: Call, name: String) {
        let review = review(&call);
        let api: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        loop {
            tokio::select! {
                () = self.cancel.cancelled() => return,
                () = tokio::time::sleep(ASK) => {}
            }
            let answer = api.create(&PostParams::default(), &review).await;
            if answer.is_ok_and(|answer| answer.status.is_some_and(|status| status.allowed)) {
                self.missing.lock().remove(&call);
                self.health.ready(&name);
                tracing::info!("{name} is there");
                return;
            }
        }
    }
}

/// The name of the condition in readiness.
fn condition(call: &Call) -> String {
    let place = call.namespace.as_ref().map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default();
    let group = if call.group.is_empty() { String::new() } else { format!(".{}", call.group) };
    let (resource, subresource) = call.resource.split_once('/').unwrap_or((&call.resource, ""));
    let subresource = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
    format!("right to {} {resource}{group}{subresource}{place}", call.verb)
}

/// The server's words if they are about a right. Quotas, policies and namespaces that are going refuse with the same code.
fn refusal(bytes: &[u8]) -> Option<String> {
    let status: Status = serde_json::from_slice(bytes).ok()?;
    let about_a_right = status.message.contains(" cannot ") && status.message.contains("User \"");
    about_a_right.then_some(status.message)
}

fn review(call: &Call) -> SelfSubjectAccessReview {
    let (resource, subresource) = call.resource.split_once('/').unwrap_or((&call.resource, ""));
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let attributes = ResourceAttributes {
        group: Some(call.group.clone()),
        resource: Some(resource.to_owned()),
        subresource: some(subresource),
        namespace: call.namespace.clone(),
        verb: Some(call.verb.to_owned()),
        ..ResourceAttributes::default()
    };
    SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), non_resource_attributes: None },
        ..SelfSubjectAccessReview::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PATCH: &str = "/apis/scheduling.run.ai/v2alpha2/namespaces/team/podgroups/g/status";
    const WORDS: &str = "podgroups.scheduling.run.ai \"g\" is forbidden: User \"system:serviceaccount:kai:kai-scheduler\" cannot \
                         patch resource \"podgroups/status\" in API group \"scheduling.run.ai\" in the namespace \"team\"";

    fn answer(code: u16, message: &str) -> Response<Body> {
        let status =
            json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": message, "code": code});
        let mut answer = Response::new(Body::from(status.to_string().into_bytes()));
        *answer.status_mut() = StatusCode::from_u16(code).unwrap();
        answer
    }

    fn watched() -> (Refusals, Health) {
        let fleet = kai_lab::fleet::Fleet::parse("cpu").unwrap();
        let lab = kai_lab::cluster::Lab::start(kai_lab::cluster::LabOptions::new(fleet, kai_clock::Clock::real()));
        let health = Health::default();
        let rights = vec![Right::cluster("scheduling.run.ai", "podgroups/status", &["patch"], "test")];
        (Refusals::new(rights, lab.client(), health.clone(), CancellationToken::new()), health)
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_right_is_a_condition_of_readiness_until_it_is_granted() {
        let (refusals, health) = watched();
        let uri = Uri::from_static(PATCH);
        let passed = refusals.look(&Method::PATCH, &uri, answer(403, WORDS)).await;
        assert_eq!(passed.status(), StatusCode::FORBIDDEN);
        let body = to_bytes(passed.into_body(), LONGEST).await.unwrap();
        assert!(String::from_utf8_lossy(&body).contains("cannot patch"));
        let unmet = health.unmet();
        assert_eq!(unmet[0].0, "right to patch podgroups.scheduling.run.ai/status in namespace team");
        assert!(unmet[0].1.contains("kai-scheduler") && unmet[0].1.contains("kai rbac"), "{}", unmet[0].1);
        // This server grants everybody everything.
        tokio::time::sleep(ASK * 2).await;
        assert_eq!(health.unmet(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn other_refusals_are_nobodys_missing_right() {
        let (refusals, health) = watched();
        let quota = "pods \"p\" is forbidden: exceeded quota: small";
        refusals.look(&Method::PATCH, &Uri::from_static(PATCH), answer(403, quota)).await;
        // A right that the component does not claim.
        let elsewhere = Uri::from_static("/apis/example.org/v1/namespaces/team/widgets/w");
        refusals.look(&Method::GET, &elsewhere, answer(403, WORDS)).await;
        assert_eq!(health.unmet(), []);
    }
}
