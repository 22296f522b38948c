//! What is written of a group, and what of it is left alone.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kai_api::{Duration, PodGroupSpec, Preemptibility, TopologyConstraint};

use super::*;

const QUEUE: &str = labels::QUEUE;
const POOL: &str = labels::NODE_POOL;

fn wanted() -> Wanted {
    let text =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Wanted {
        namespace: "team".into(),
        name: "pg-train-1".into(),
        owner: OwnerReference {
            kind: "Job".into(),
            name: "train".into(),
            uid: "1".into(),
            ..OwnerReference::default()
        },
        labels: text(&[("app", "train"), (QUEUE, "a")]),
        annotations: text(&[(annotations::TOP_OWNER, "kind: Job\nname: train\n")]),
        node_pool: Some("gold".into()),
        queue: "a".into(),
        priority_class: "train".into(),
        preemptibility: None,
        min_member: Some(4),
        min_sub_group: None,
        sub_groups: Vec::new(),
        topology: None,
        preemption_delay: None,
        staleness_grace_period: None,
        pod_sub_group: None,
        warnings: Vec::new(),
    }
}

fn live() -> PodGroup {
    let mut group = wanted().to_pod_group(QUEUE, POOL);
    group.metadata.uid = Some("group".into());
    group
}

fn difference(live: &PodGroup, wanted: &Wanted) -> Option<Value> {
    group_patch(live, wanted, QUEUE, POOL)
}

#[test]
fn a_group_as_it_was_written_needs_no_patch() {
    assert_eq!(difference(&live(), &wanted()), None);
    assert_eq!(live().metadata.labels.unwrap()[POOL], "gold");
}

#[test]
fn what_others_set_stays() {
    let mut group = live();
    group.spec.mark_unschedulable = Some(false);
    group.spec.scheduling_backoff = Some(1);
    group.spec.topology_constraint = Some(TopologyConstraint { topology: Some("racks".into()), ..Default::default() });
    let labels = group.metadata.labels.as_mut().unwrap();
    labels.insert(POOL.into(), "silver".into());
    labels.insert("theirs".into(), "1".into());
    group.metadata.annotations.as_mut().unwrap().insert(annotations::LAST_START.into(), "now".into());
    assert_eq!(difference(&group, &wanted()), None);
    group.metadata.labels.as_mut().unwrap().remove(POOL);
    assert_eq!(difference(&group, &wanted()), None);
}

#[test]
fn only_what_is_different_is_patched_and_only_on_this_object() {
    let mut wish = wanted();
    wish.min_member = Some(5);
    wish.preemption_delay = Some(Duration::from_seconds(30));
    wish.labels.insert("app".into(), "other".into());
    let patch = difference(&live(), &wish).unwrap();
    let expected = json!({
        "metadata": {"uid": "group", "labels": {"app": "other"}},
        "spec": {"minMember": 5, "preemptionDelay": "30s"},
    });
    assert_eq!(patch, expected);
}

#[test]
fn what_the_workload_no_longer_says_is_taken_back() {
    let mut group = live();
    group.spec.preemptibility = Some(Preemptibility::NonPreemptible);
    group.spec.topology_constraint = Some(TopologyConstraint {
        topology: Some("racks".into()),
        required_topology_level: Some("rack".into()),
        preferred_topology_level: None,
    });
    let mut wish = wanted();
    wish.topology = Some(TopologyConstraint {
        topology: Some("racks".into()),
        required_topology_level: None,
        preferred_topology_level: Some("rack".into()),
    });
    let patch = difference(&group, &wish).unwrap();
    assert_eq!(patch["spec"]["preemptibility"], Value::Null);
    let level = &patch["spec"]["topologyConstraint"];
    assert_eq!((&level["requiredTopologyLevel"], &level["preferredTopologyLevel"]), (&Value::Null, &json!("rack")));
}

#[test]
fn subgroups_and_members_are_never_both_asked_for() {
    let mut wish = wanted();
    wish.min_sub_group = Some(2);
    let patch = difference(&live(), &wish).unwrap();
    assert_eq!(patch["spec"], json!({"minMember": null, "minSubGroup": 2}));
}

#[test]
fn a_queue_follows_its_workload_unless_it_was_set_by_hand() {
    let mut wish = wanted();
    wish.queue = "b".into();
    let moved = difference(&live(), &wish).unwrap();
    assert_eq!(moved["spec"]["queue"], "b");
    assert_eq!(moved["metadata"]["labels"][QUEUE], "b");
    assert_eq!(moved["metadata"]["annotations"][QUEUE_WRITTEN], "b");
    let mut by_hand = live();
    by_hand.spec.queue = Some("c".into());
    assert_eq!(difference(&by_hand, &wish), None);
}

#[test]
fn a_group_that_kai_wrote_keeps_its_queue_and_follows_from_then_on() {
    let mut group = live();
    let notes = group.metadata.annotations.as_mut().unwrap();
    notes.remove(QUEUE_WRITTEN);
    notes.insert(annotations::TOP_OWNER.into(), "name: \"train\"\nkind: Job\n".into());
    let noted = json!({"metadata": {"uid": "group", "annotations": {QUEUE_WRITTEN: "a"}}});
    assert_eq!(difference(&group, &wanted()), Some(noted));
    group.spec.queue = Some("elsewhere".into());
    assert_eq!(difference(&group, &wanted()), None);
}

#[test]
fn a_group_gets_a_missing_owner_besides_those_it_has() {
    let mut group = live();
    let other = OwnerReference { uid: "2".into(), ..OwnerReference::default() };
    group.metadata.owner_references = Some(vec![other]);
    let patch = difference(&group, &wanted()).unwrap();
    let uids: Vec<&Value> =
        patch["metadata"]["ownerReferences"].as_array().unwrap().iter().map(|owner| &owner["uid"]).collect();
    assert_eq!(uids, ["2", "1"]);
}

#[test]
fn a_pod_is_told_its_group_and_loses_a_part_that_is_not_there() {
    let pod = |notes: Value, tags: Value| -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p", "uid": "pod", "annotations": notes, "labels": tags}}))
            .unwrap()
    };
    let fresh = pod_patch(&pod(json!({}), json!({})), &wanted()).unwrap();
    assert_eq!(fresh, json!({"metadata": {"uid": "pod", "annotations": {"pod-group-name": "pg-train-1"}}}));
    let told = json!({"pod-group-name": "pg-train-1"});
    assert_eq!(pod_patch(&pod(told.clone(), json!({})), &wanted()), None);
    let stale = pod_patch(&pod(told, json!({labels::SUBGROUP: "workers"})), &wanted()).unwrap();
    assert_eq!(stale, json!({"metadata": {"uid": "pod", "labels": {labels::SUBGROUP: null}}}));
}

#[test]
fn a_group_without_a_queue_gets_one() {
    let group = PodGroup {
        metadata: ObjectMeta { uid: Some("group".into()), ..ObjectMeta::default() },
        spec: PodGroupSpec::default(),
        status: None,
    };
    assert_eq!(difference(&group, &wanted()).unwrap()["spec"]["queue"], "a");
}
