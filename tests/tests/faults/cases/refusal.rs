//! A bind that is always refused: a webhook says no to every binding onto one node.

use anyhow::{Result, ensure};
use axum::{Router, http::header::CONTENT_TYPE, routing::post};
use bytes::Bytes;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kai_api::names::objects;
use kai_cli::control_plane::Part;
use kube::Api;
use serde_json::{Value, json};

use super::{A_WHILE, at_rest};
use crate::{
    invariants::State,
    processes::Who,
    workloads::{self, Gpu},
    world::{World, fleet, in_virtual_time},
};

/// Lets nobody be bound to a node.
async fn forbid(world: &mut World, node: &'static str) -> Result<()> {
    let review = move |body: Bytes| async move {
        let review: Value = serde_json::from_slice(&body).unwrap_or_default();
        let request = &review["request"];
        let allowed = request["object"]["target"]["name"] != node;
        let response = json!({
            "uid": request["uid"], "allowed": allowed,
            "status": {"message": "this node is kept for others", "code": 403},
        });
        let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
        ([(CONTENT_TYPE, "application/json")], answer.to_string())
    };
    world.lab.server().admission().register_service("default", "guard", Router::new().route("/", post(review)));
    let configuration = json!({
        "metadata": {"name": "guard"},
        "webhooks": [{
            "name": "guard.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"service": {"namespace": "default", "name": "guard", "path": "/"}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}],
        }],
    });
    let api = Api::all(world.client.clone());
    world.create_in::<ValidatingWebhookConfiguration>(api, configuration).await?;
    Ok(())
}

#[test]
fn a_node_that_refuses_every_bind_is_avoided_and_the_other_is_used() {
    let outcome = in_virtual_time(async {
        let mut world = World::start(fleet("t4x4*2")?, |_| {}).await?;
        forbid(&mut world, "t4x4-0").await?;
        for number in 0..6 {
            workloads::pod(&mut world, &format!("pod-{number}"), &Gpu::part("0.5"), objects::DEFAULT_QUEUE).await?;
        }
        let facts = at_rest(&mut world).await?;
        ensure!(facts.count(State::Runs) == 6, "not all run: {}", facts.shown());
        ensure!(facts.pods.iter().all(|pod| pod.node.as_deref() == Some("t4x4-1")), "{}", facts.shown());
        world.end().await;
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn a_pod_that_is_refused_everywhere_waits_with_the_refusal_as_its_reason_and_never_in_a_hot_loop() {
    let outcome = in_virtual_time(async {
        let mut world = World::start(fleet("t4x4")?, |_| {}).await?;
        forbid(&mut world, "t4x4-0").await?;
        workloads::pod(&mut world, "refused", &Gpu::part("0.5"), objects::DEFAULT_QUEUE).await?;
        let mut most = 0;
        for _ in 0..60 {
            world.processes.arm(None);
            world.pass(A_WHILE).await;
            most = [Part::Scheduler, Part::Binder]
                .map(|part| world.processes.requests(Who::Part(part)))
                .into_iter()
                .max()
                .max(Some(most))
                .unwrap_or(most);
        }
        let quiet: u64 =
            [Part::Scheduler, Part::Binder].map(|part| world.processes.requests(Who::Part(part))).into_iter().sum();
        println!("at most {most} requests per minute, {quiet} in the last one");
        ensure!(most <= 120, "{most} requests in a minute");
        ensure!(quiet <= 40, "{quiet} requests in the sixtieth minute");
        let facts = crate::invariants::Facts::gather(&world).await?;
        let pod = facts.pods.iter().find(|pod| pod.name == "refused").expect("it was created");
        let why = pod.refusals.get("PodScheduled").or_else(|| pod.refusals.get("PodBound"));
        ensure!(why.is_some_and(|why| why.contains("this node is kept for others")), "it says {:?}", pod.refusals);
        let events = facts.events_about("refused");
        ensure!(
            events.iter().any(|text| text.contains("this node is kept for others") && text.contains("t4x4-0")),
            "the events are {events:?}"
        );
        ensure!(
            pod.groups.is_empty() && facts.maps.iter().all(|map| map.metadata.owner_references.is_none()),
            "{}",
            facts.shown()
        );
        world.end().await;
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}
