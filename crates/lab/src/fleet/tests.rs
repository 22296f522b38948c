//! Tests of fleet input.

use super::*;

fn names(fleet: &Fleet) -> Vec<&str> {
    fleet.nodes.iter().map(|node| node.name.as_str()).collect()
}

#[test]
fn preset_lists_expand_to_numbered_nodes() {
    let fleet = Fleet::parse("dgx-h100,thor:replicas=4*2, cpu:name=login,thor").unwrap();
    assert_eq!(names(&fleet), ["dgx-h100-0", "thor-0", "thor-1", "login-0", "thor-2"]);
    assert_eq!(fleet.nodes[1].replicas, Replicas(4));
    assert_eq!(fleet.nodes[4].replicas, Replicas(1));
}

#[test]
fn end_to_end_preset_is_seven_nodes() {
    let fleet = Fleet::parse("kai-e2e").unwrap();
    assert_eq!(fleet.nodes.len(), 7);
    assert_eq!(fleet.nodes[6].name, "kai-e2e-6");
}

#[test]
fn unknown_preset_lists_the_known_ones() {
    let error = Fleet::parse("thor,dgx-h200").unwrap_err().to_string();
    assert_eq!(
        error,
        "fleet `thor,dgx-h200`: `dgx-h200`: preset `dgx-h200` is unknown\n\
         hint: known presets are thor, orin, dgx-h100, a100-mig, t4x4, cpu, kai-e2e"
    );
}

#[test]
fn nodes_can_be_without_a_label_of_their_preset() {
    let fleet = Fleet::parse("thor:replicas=100:without=gpu.count,thor").unwrap();
    assert!(!fleet.nodes[0].shape.labels.contains_key("nvidia.com/gpu.count"));
    assert!(fleet.nodes[1].shape.labels.contains_key("nvidia.com/gpu.count"));
    let error = Fleet::parse("cpu:without=gpu.count").unwrap_err().to_string();
    assert!(error.contains("preset `cpu` has no label `gpu.count`"), "{error}");
}

#[test]
fn bad_lists_are_refused() {
    for bad in ["", ",", "thor*0", "thor*x", "thor:replicas=0", "thor:foo=1", "thor:name=Bad", "cpu*99999", "thor,x*2"]
    {
        assert!(Fleet::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn file_sets_labels_taints_resources_delays_and_faults() {
    let fleet = Fleet::from_yaml(
        "test",
        r#"
seed: 7
heartbeat: 20s
delays: {start: 1s..2s}
nodes:
- preset: thor
  count: 2
  name: edge
  replicas: 4
  labels: {site: north, primary: true}
  taints: [{key: edge, value: "yes", effect: NoSchedule}]
  resources: {cpu: 8, example.com/fpga: "2"}
  delays: {run: 30s}
- preset: cpu
faults:
  api:
  - {verb: patch, resource: pods, probability: 0.5, effect: error, status: 503}
  nodes:
  - {at: 10m, node: edge-1, do: device-unhealthy}
"#,
    )
    .unwrap();
    assert_eq!(names(&fleet), ["edge-0", "edge-1", "cpu-0"]);
    let edge = &fleet.nodes[0];
    assert_eq!(fleet.seed, Seed(7));
    assert_eq!(edge.heartbeat, Duration::from_secs(20));
    assert_eq!(edge.labels["primary"], "true");
    assert_eq!(edge.resources["cpu"], "8");
    assert_eq!(edge.delays.run, Span::fixed(Duration::from_secs(30)));
    assert_eq!(edge.delays.start, Span { from: Duration::from_secs(1), to: Duration::from_secs(2) });
    assert_eq!(edge.taints[0].effect, "NoSchedule");
    assert_eq!((fleet.api_faults.len(), fleet.node_faults.len()), (1, 1));
}

#[test]
fn bad_files_name_file_field_and_remedy() {
    let cases = [
        ("nodes: [{preset: thor, cuont: 3}]", "content"),
        ("nodes: []", "nodes"),
        ("nodes: [{preset: thorr}]", "nodes[0]"),
        ("nodes: [{preset: cpu}, {preset: thor, replicas: 0}]", "nodes[1].replicas"),
        ("nodes: [{preset: cpu, delays: {run: soon}}]", "nodes[0].delays.run"),
        ("nodes: [{preset: cpu, resources: {cpu: lots}}]", "nodes[0].resources.cpu"),
        ("nodes: [{preset: cpu, taints: [{key: a, effect: Never}]}]", "nodes[0].taints[0].effect"),
        ("nodes: [{preset: cpu}]\nheartbeat: 0s", "heartbeat"),
        ("nodes: [{preset: cpu}]\nfaults: {api: [{effect: error}]}", "faults.api[0]"),
        ("nodes: [{preset: cpu}]\nfaults: {nodes: [{at: 1m, node: cpu-7, do: stop}]}", "faults.nodes[0].node"),
        (
            "nodes: [{preset: cpu}]\nfaults: {nodes: [{at: 1m, node: cpu-0, do: device-unhealthy}]}",
            "faults.nodes[0].device",
        ),
        ("{{{{", "content"),
    ];
    for (text, field) in cases {
        let error = Fleet::from_yaml("fleet file `f.yaml`", text).unwrap_err();
        assert_eq!(error.field, field, "{text}: {error}");
        assert!(error.to_string().starts_with("fleet file `f.yaml`: "), "{error}");
        assert!(!error.hint.is_empty());
    }
    let missing = Fleet::load("./no/such/fleet.yaml").unwrap_err();
    assert!(missing.to_string().contains("no/such/fleet.yaml"));
}
