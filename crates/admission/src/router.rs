//! The paths by which an API server asks, each with its rules.
//!
//! A body that is no review is answered 400 with a sentence. A defect in a rule is a 500 of that one request: the API
//! server's failure policy decides about it, and the next request is answered as if nothing had been.

use std::{future::Future, panic::AssertUnwindSafe};

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use futures::FutureExt as _;
use kai_kit::work::panic_text;

use crate::{
    pod, pod_group, queue,
    review::{self, Request, Verdict},
    rules::Rules,
    topology,
};

/// Paths of the rules.
pub mod paths {
    /// Completes pods.
    pub const MUTATE_POD: &str = "/mutate--v1-pod";
    /// Judges pods.
    pub const VALIDATE_POD: &str = "/validate--v1-pod";
    /// Judges topologies.
    pub const VALIDATE_TOPOLOGY: &str = "/validate-topology";
    /// Judges queues.
    pub const VALIDATE_QUEUE: &str = "/validate-scheduling-run-ai-v2-queue";
    /// Judges groups.
    pub const VALIDATE_POD_GROUP: &str = "/validate-scheduling-run-ai-v2alpha2-podgroup";
}

/// Two objects of the largest size that a server stores, and what is around them.
const BODY_LIMIT: usize = 8 << 20;

/// The rules over HTTP.
pub fn router(rules: Rules) -> Router {
    Router::new()
        .route(paths::MUTATE_POD, post(mutate_pod))
        .route(paths::VALIDATE_POD, post(validate_pod))
        .route(paths::VALIDATE_TOPOLOGY, post(validate_topology))
        .route(paths::VALIDATE_QUEUE, post(validate_queue))
        .route(paths::VALIDATE_POD_GROUP, post(validate_pod_group))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(rules)
}

async fn mutate_pod(State(rules): State<Rules>, body: Bytes) -> Response {
    answer(&rules, paths::MUTATE_POD, &body, async |request| pod::mutate(&rules.settings, request)).await
}

async fn validate_pod(State(rules): State<Rules>, body: Bytes) -> Response {
    answer(&rules, paths::VALIDATE_POD, &body, async |request| pod::validate(&rules.settings, request)).await
}

async fn validate_topology(State(rules): State<Rules>, body: Bytes) -> Response {
    answer(&rules, paths::VALIDATE_TOPOLOGY, &body, async |request| topology::validate(request)).await
}

async fn validate_queue(State(rules): State<Rules>, body: Bytes) -> Response {
    answer(&rules, paths::VALIDATE_QUEUE, &body, async |request| queue::validate(rules.queues(), request).await).await
}

async fn validate_pod_group(State(rules): State<Rules>, body: Bytes) -> Response {
    answer(&rules, paths::VALIDATE_POD_GROUP, &body, async |request| pod_group::validate(request)).await
}

/// Answers a review by a rule, whatever happens to the rule.
async fn answer(
    rules: &Rules,
    path: &'static str,
    body: &[u8],
    rule: impl AsyncFnOnce(&Request) -> Verdict,
) -> Response {
    let request = match review::read(body) {
        Ok(request) => request,
        Err(sentence) => {
            rules.reviews().count(path, "unreadable");
            return (StatusCode::BAD_REQUEST, sentence).into_response();
        }
    };
    let verdict = match catch(rule(&request)).await {
        Ok(verdict) => verdict,
        Err(defect) => {
            rules.reviews().count(path, "defect");
            tracing::error!(uid = request.uid, defect, "a rule failed");
            return (StatusCode::INTERNAL_SERVER_ERROR, defect).into_response();
        }
    };
    let ending = match &verdict {
        Ok(consent) if consent.patch.is_some() => "changed",
        Ok(_) => "allowed",
        Err(refusal) => {
            tracing::debug!(uid = request.uid, reason = refusal.message, "refused");
            "refused"
        }
    };
    rules.reviews().count(path, ending);
    match review::write(&request.uid, verdict) {
        Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn catch<T>(work: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(|panic| panic_text(panic.as_ref()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::review::Consent;

    async fn text(response: Response) -> (u16, String) {
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), BODY_LIMIT).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    fn question() -> Vec<u8> {
        let request = json!({"uid": "u", "operation": "CREATE", "object": {}});
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        review.to_string().into_bytes()
    }

    #[tokio::test]
    async fn a_body_that_is_no_review_is_answered_with_a_sentence() {
        let other = json!({"apiVersion": "v1", "kind": "Pod", "request": null}).to_string();
        let empty = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}).to_string();
        for (body, expected) in [
            ("hello", "the body is not an AdmissionReview of admission.k8s.io/v1: "),
            (other.as_str(), "the body is a `Pod` of `v1`, not an AdmissionReview"),
            (empty.as_str(), "the AdmissionReview has no `request`"),
        ] {
            let (status, said) =
                text(answer(&Rules::default(), "/", body.as_bytes(), async |_| Ok(Consent::default())).await).await;
            assert_eq!(status, 400);
            assert!(said.starts_with(expected), "{said}");
        }
    }

    #[tokio::test]
    async fn a_defect_of_a_rule_is_an_error_of_that_request_only() {
        let metrics = kai_kit::Metrics::default();
        let rules = Rules::default().counted_in(&metrics);
        let question = question();
        let broken = answer(&rules, "/a", &question, async |_| panic!("no such container"));
        let (status, said) = text(broken.await).await;
        assert_eq!((status, said.as_str()), (500, "a defect of kai: no such container"));
        let (status, said) = text(answer(&rules, "/a", &question, async |_| Ok(Consent::default())).await).await;
        assert!(metrics.text().contains("kai_admission_reviews_total{path=\"/a\",verdict=\"defect\"} 1"));
        assert_eq!(status, 200);
        assert!(said.contains("\"allowed\":true"), "{said}");
    }

    #[tokio::test]
    async fn an_object_that_is_no_pod_is_refused_with_its_field() {
        let pod = json!({"spec": {"schedulerName": "kai-scheduler", "containers": 7}});
        let request = json!({"uid": "u", "operation": "CREATE", "object": pod});
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        let body = Bytes::from(review.to_string());
        let (status, said) = text(validate_pod(State(Rules::default()), body).await).await;
        assert_eq!(status, 200);
        assert!(said.contains("\"code\":400") && said.contains("`request.object` cannot be read"), "{said}");
    }
}
