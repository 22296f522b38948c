//! What is decided about the reservations of a node.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::*;

fn holder(name: &str, group: &str, device: Option<&str>, age: i64) -> Holder {
    let created = Timestamp::from_second(1_000_000 - age).expect("a time").to_string();
    changed(
        name,
        group,
        json!({"metadata": {"creationTimestamp": created, "annotations": {"run.ai/reserve_for_gpu_index": device}}}),
    )
}

fn changed(name: &str, group: &str, change: Value) -> Holder {
    let mut object = json!({"metadata": {"name": name, "labels": {"runai-gpu-group": group}}, "spec": {"nodeName": "n", "containers": []}});
    for (field, value) in change.as_object().expect("an object") {
        for (key, inner) in value.as_object().expect("an object") {
            object[field][key] = inner.clone();
        }
    }
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        annotations.retain(|_, value| !value.is_null());
    }
    Holder::of(&Arc::new(serde_json::from_value::<Pod>(object).expect("a pod")))
}

fn sharer(group: &str, told: &str) -> Sharer {
    Sharer { pod: Key::new("team", "p"), group: group.to_owned(), told: Some(told.to_owned()), runs: true }
}

fn decide(holders: &[Holder], sharers: &[Sharer], wanted: &[&str], troubles: &[(&str, u32)]) -> Vec<Deed> {
    let now = Timestamp::from_second(1_000_000).expect("a time");
    let troubles = troubles.iter().map(|(group, times)| {
        ((*group).to_owned(), Trouble { times: *times, last: "no".to_owned(), not_before: None, replaced: None })
    });
    plan(&Scene {
        holders,
        sharers,
        wanted: &wanted.iter().map(|group| (*group).to_owned()).collect(),
        troubles: &troubles.collect(),
        node_exists: true,
        now,
    })
}

#[test]
fn a_group_that_is_wanted_gets_one_holder() {
    assert_eq!(decide(&[], &[], &["g"], &[]), [Deed::Create("g".into())]);
    assert_eq!(decide(&[holder("a", "g", None, 1)], &[], &["g"], &[]), []);
    assert_eq!(decide(&[], &[], &["g"], &[("g", LIMIT)]), []);
}

#[test]
fn a_holder_of_nobody_goes() {
    assert_eq!(decide(&[holder("a", "g", Some("GPU-1"), 1)], &[], &[], &[]), [Deed::Release("a".into())]);
    assert_eq!(decide(&[holder("a", "g", Some("GPU-1"), 1)], &[sharer("g", "GPU-1")], &[], &[]), []);
}

#[test]
fn of_two_holders_the_one_in_use_stays_else_the_older_one() {
    let two = [holder("a", "g", Some("GPU-1"), 1), holder("b", "g", Some("GPU-2"), 9)];
    assert_eq!(decide(&two, &[], &["g"], &[]), [Deed::Drop("a".into())]);
    assert_eq!(decide(&two, &[sharer("g", "GPU-1")], &[], &[]), [Deed::Drop("b".into())]);
    let both = [sharer("g", "GPU-1"), sharer("g", "GPU-2")];
    assert!(matches!(&decide(&two, &both, &[], &[])[..], [Deed::Close(group, _)] if group == "g"));
}

#[test]
fn two_groups_with_one_device_are_parted_unless_both_run() {
    let two = [holder("a", "g", Some("GPU-1"), 9), holder("b", "h", Some("GPU-1"), 1)];
    assert!(matches!(&decide(&two, &[], &["g", "h"], &[])[..], [Deed::Replace(name, _)] if name == "b"));
    let used = [sharer("h", "GPU-1")];
    assert!(matches!(&decide(&two, &used, &["g"], &[])[..], [Deed::Replace(name, _)] if name == "a"));
    let both = [sharer("g", "GPU-1"), sharer("h", "GPU-1")];
    assert!(matches!(&decide(&two, &both, &[], &[])[..], [Deed::Close(..), Deed::Close(..)]));
}

#[test]
fn a_holder_that_the_kubelet_refused_is_replaced_until_that_is_hopeless() {
    let failed = changed("a", "g", json!({"status": {"phase": "Failed", "reason": "UnexpectedAdmissionError"}}));
    let first = decide(std::slice::from_ref(&failed), &[], &["g"], &[]);
    assert!(
        matches!(&first[..], [Deed::Replace(name, why)] if name == "a" && why.contains("UnexpectedAdmissionError"))
    );
    assert_eq!(decide(std::slice::from_ref(&failed), &[], &["g"], &[("g", LIMIT)]), []);
    assert_eq!(decide(&[failed], &[], &[], &[("g", LIMIT)]), [Deed::Release("a".into())]);
}

#[test]
fn a_new_holder_must_get_the_device_that_its_pods_have() {
    let annotations = json!({"run.ai/reserve_for_gpu_index": "GPU-2", "kai.scheduler/reservation-expects": "GPU-1"});
    let wrong = changed("a", "g", json!({"metadata": {"annotations": annotations}}));
    let users = [sharer("g", "GPU-1")];
    assert!(matches!(&decide(std::slice::from_ref(&wrong), &users, &[], &[])[..], [Deed::Replace(..)]));
    assert!(matches!(&decide(&[wrong], &users, &[], &[("g", 5)])[..], [Deed::Close(..)]));
}

#[test]
fn a_holder_that_restarted_is_asked_again_and_its_pods_are_told() {
    let restarted = |restarts: i32, annotations: Value| {
        let container = json!({"name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": restarts});
        changed(
            "a",
            "g",
            json!({"metadata": {"annotations": annotations}, "status": {"containerStatuses": [container]}}),
        )
    };
    let device = "run.ai/reserve_for_gpu_index";
    let users = [sharer("g", "GPU-1")];
    let before = restarted(1, json!({device: "GPU-1"}));
    assert_eq!(decide(std::slice::from_ref(&before), &users, &[], &[]), [Deed::Ask("a".into(), 1)]);
    assert_eq!(decide(&[before], &[], &["g"], &[]), [Deed::Note("a".into(), 1)]);
    let after = restarted(1, json!({device: "GPU-9", "kai.scheduler/reservation-restarts": "1"}));
    let retell = Deed::Retell(Key::new("team", "p"), "g".into(), "GPU-9".into());
    assert_eq!(decide(&[after], &users, &[], &[]), [retell]);
}

#[test]
fn a_group_of_which_nobody_runs_takes_the_device_that_it_gets() {
    let expecting = |name: &str| {
        let annotations =
            json!({"run.ai/reserve_for_gpu_index": "GPU-2", "kai.scheduler/reservation-expects": "GPU-1"});
        changed(name, "g", json!({"metadata": {"annotations": annotations}}))
    };
    let waits = Sharer { runs: false, ..sharer("g", "GPU-1") };
    let retold = Deed::Retell(waits.pod.clone(), "g".into(), "GPU-2".into());
    let expect = Deed::Expect("a".into(), "GPU-2".into());
    assert_eq!(decide(&[expecting("a")], std::slice::from_ref(&waits), &[], &[]), [retold, expect.clone()]);
    // A crash between the two: the rest follows, also when the container runs with the new device.
    assert_eq!(decide(&[expecting("a")], &[sharer("g", "GPU-2")], &[], &[]), [expect]);
    let runs = decide(&[expecting("a")], &[waits, sharer("g", "GPU-1")], &[], &[]);
    assert!(matches!(runs.as_slice(), [Deed::Replace(name, _)] if name == "a"), "{runs:?}");
}

#[test]
fn a_new_group_does_not_get_the_device_that_pods_of_another_group_use() {
    let new = holder("b", "h", Some("GPU-1"), 1);
    let deeds = decide(&[new], &[sharer("g", "GPU-1")], &["h"], &[("g", 0)]);
    let goes = |deed: &Deed| matches!(deed, Deed::Replace(name, text) if name == "b" && text.contains("which pods of group g use"));
    assert!(deeds.iter().any(goes) && deeds.contains(&Deed::Create("g".into())), "{deeds:?}");
}

#[test]
fn a_pod_that_was_left_out_when_its_group_got_another_device_is_told_too() {
    let holds = [holder("a", "g", Some("GPU-2"), 1)];
    let users = [sharer("g", "GPU-2"), Sharer { runs: false, ..sharer("g", "GPU-1") }];
    let retell = Deed::Retell(Key::new("team", "p"), "g".into(), "GPU-2".into());
    assert_eq!(decide(&holds, &users, &[], &[]), [retell]);
}
