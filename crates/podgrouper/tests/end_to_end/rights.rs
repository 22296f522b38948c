//! The rights are what is called, neither more nor less.

use std::collections::BTreeSet;

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, StatefulSet},
    batch::v1::{CronJob, Job},
    core::v1::Pod,
};
use kai_kit::rbac::Scope;
use kai_lab::faults::{ApiEffect, Trigger};
use serde_json::json;

use crate::harness::{Cluster, app, job, pod, spec, until};

#[tokio::test(start_paused = true)]
async fn every_call_has_a_right_and_every_right_is_used() {
    let mut cluster = Cluster::new("cpu").await;
    cluster.options.leader_elect = true;
    let rights = cluster.options.rights("kai-scheduler");
    cluster.fail("create", "podgroups", Trigger::Nth(1), ApiEffect::LostAnswer);
    cluster.run();
    cluster.create::<Deployment>(app("web", Some(1), json!({}))).await;
    cluster.create::<StatefulSet>(app("store", Some(1), json!({}))).await;
    cluster.create::<DaemonSet>(app("agent", None, json!({}))).await;
    cluster.create::<Job>(job("train", 2, json!({"kai.scheduler/batch-min-member": "3"}))).await;
    cluster
        .create::<CronJob>(json!({
            "metadata": {"name": "often", "namespace": "default"},
            "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": spec()}}}},
        }))
        .await;
    let driver: Pod = cluster.create(pod("driver")).await;
    let mut executor = pod("executor");
    executor["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": driver.metadata.uid}]);
    cluster.create::<Pod>(executor).await;
    until("a run", || async {
        let groups = cluster.groups().await;
        groups
            .iter()
            .any(|group| group.metadata.name.as_deref().is_some_and(|name| name.starts_with("pg-often-")))
            .then_some(())
    })
    .await;
    cluster.patch::<Job>("train", json!({"metadata": {"labels": {"kai.scheduler/queue": "team-b"}}})).await;
    until("a move", || async { (cluster.called("patch", "podgroups") > 0).then_some(()) }).await;
    tokio::time::sleep(std::time::Duration::from_mins(11)).await;

    let called: BTreeSet<(String, String)> =
        cluster.calls().into_keys().filter(|(_, resource)| !resource.is_empty()).collect();
    let granted: BTreeSet<(String, String)> = rights
        .iter()
        .flat_map(|right| right.verbs.iter().map(|verb| ((*verb).to_owned(), right.resource.to_owned())))
        .collect();
    assert_eq!(called.difference(&granted).collect::<Vec<_>>(), Vec::<&(String, String)>::new());
    assert_eq!(granted.difference(&called).collect::<Vec<_>>(), Vec::<&(String, String)>::new());
    let leases = rights.iter().find(|right| right.resource == "leases").unwrap();
    assert_eq!(leases.scope, Scope::Namespace("kai-scheduler".to_owned()));
    cluster.end().await;
}
