//! What administrators can set.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{ConfigMap, Namespace, Pod},
};
use kai_api::Preemptibility;
use kai_podgrouper::Options;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::harness::{Cluster, app, from, group, job, pod, until};

#[derive(clap::Parser)]
struct Command {
    #[command(flatten)]
    options: Options,
}

#[test]
fn the_defaults_of_the_flags_are_the_defaults() {
    let parsed = <Command as clap::Parser>::parse_from(["pod-grouper"]).options;
    assert_eq!(format!("{parsed:?}"), format!("{:?}", Options::default()));
    let parsed =
        <Command as clap::Parser>::parse_from(["pod-grouper", "--leader-elect", "--search-legacy-pg=false"]).options;
    assert!(parsed.leader_elect && !parsed.search_legacy_pg);
}

#[tokio::test(start_paused = true)]
async fn defaults_by_kind_come_from_a_config_map_and_change_with_it() {
    let mut cluster = Cluster::new("cpu").await;
    cluster.options.default_priorities_configmap_name = Some("defaults".to_owned());
    let maps: Api<ConfigMap> = Api::namespaced(cluster.lab.client(), "kai-scheduler");
    let types = r#"[{"typeName": "Job", "group": "batch", "priorityName": "build", "preemptibility": "preemptible"}]"#;
    let map = from(json!({"metadata": {"name": "defaults"}, "data": {"types": types}}));
    maps.create(&PostParams::default(), &map).await.unwrap();
    cluster.run();
    cluster.create::<Job>(job("train", 1, json!({}))).await;
    cluster.grouped(1).await;
    let spec = cluster.groups().await.remove(0).spec;
    assert_eq!(spec.priority_class_name.as_deref(), Some("build"));
    assert_eq!(spec.preemptibility, Some(Preemptibility::Preemptible));
    let patch = Patch::Merge(json!({"data": {"types": "[]"}}));
    maps.patch("defaults", &PatchParams::default(), &patch).await.unwrap();
    until("the fallback", || async {
        let spec = cluster.groups().await.remove(0).spec;
        (spec.priority_class_name.as_deref() == Some("train") && spec.preemptibility.is_none()).then_some(())
    })
    .await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn only_selected_namespaces_and_pods_are_grouped() {
    let mut cluster = Cluster::new("cpu").await;
    cluster.options.namespace_label_selector = "kai=on".to_owned();
    cluster.options.pod_label_selector = "tier=gpu".to_owned();
    cluster.run();
    let mut selected = pod("selected");
    selected["metadata"]["labels"] = json!({"tier": "gpu"});
    cluster.create::<Pod>(selected).await;
    cluster.create::<Pod>(pod("other")).await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(cluster.groups().await, Vec::new());
    let namespaces: Api<Namespace> = Api::all(cluster.lab.client());
    let patch = Patch::Merge(json!({"metadata": {"labels": {"kai": "on"}}}));
    namespaces.patch("default", &PatchParams::default(), &patch).await.unwrap();
    cluster.group_of("selected").await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(cluster.pods().await.iter().filter_map(group).count(), 1);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_other_schedulers_are_not_touched() {
    let cluster = Cluster::start().await;
    let mut theirs = pod("theirs");
    theirs["spec"]["schedulerName"] = json!("default-scheduler");
    cluster.create::<Pod>(theirs).await;
    cluster.create::<Pod>(pod("ours")).await;
    cluster.group_of("ours").await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(cluster.groups().await.len(), 1);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_cluster_costs_next_to_nothing() {
    let cluster = Cluster::start().await;
    cluster.create::<Deployment>(app("web", Some(20), json!({}))).await;
    cluster.create::<Job>(job("train", 20, json!({"kai.scheduler/batch-min-member": "20"}))).await;
    cluster.grouped(40).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let calls = |cluster: &Cluster| {
        let calls = cluster.calls();
        let asked = calls.iter().filter(|((verb, _), _)| verb != "watch" && verb != "list");
        asked.map(|(_, count)| count).sum::<u64>()
    };
    let before = calls(&cluster);
    tokio::time::sleep(Duration::from_hours(1)).await;
    let per_minute = (calls(&cluster) - before) / 60;
    assert!(per_minute <= 3, "{per_minute} calls a minute");
    cluster.end().await;
}
