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

fn expecting(name: &str, group: &str, device: Option<&str>, expects: &str) -> Holder {
    let annotations = json!({"run.ai/reserve_for_gpu_index": device, "kai.scheduler/reservation-expects": expects});
    changed(name, group, json!({"metadata": {"annotations": annotations}}))
}

#[test]
fn a_new_holder_must_get_the_device_that_its_pods_have() {
    let (first, pending) = (expecting("a", "g", Some("GPU-2"), "GPU-1"), expecting("b", "g", None, "GPU-1"));
    let users = [sharer("g", "GPU-1")];
    // The first keeps what it has, else the kubelet would give it again.
    assert_eq!(decide(std::slice::from_ref(&first), &users, &[], &[]), [Deed::Create("g".into())]);
    assert_eq!(decide(&[first.clone(), pending], &users, &[], &[]), []);
    let second = expecting("b", "g", Some("GPU-1"), "GPU-1");
    assert_eq!(decide(&[first.clone(), second], &users, &[], &[]), [Deed::Drop("a".into())]);
    let refused = changed("b", "g", json!({"status": {"phase": "Failed", "reason": "UnexpectedAdmissionError"}}));
    let again = decide(&[first.clone(), refused], &users, &[], &[]);
    assert!(matches!(&again[..], [Deed::Replace(name, _)] if name == "b"), "{again:?}");
    let other = expecting("b", "g", Some("GPU-3"), "GPU-1");
    let hopeless = decide(&[first, other], &users, &[], &[("g", RETRIES)]);
    assert!(matches!(&hopeless[..], [Deed::Close(..), Deed::Drop(name)] if name == "b"), "{hopeless:?}");
}

#[test]
fn holders_that_each_got_the_others_device_change_their_groups() {
    let users = [sharer("g", "GPU-1"), sharer("h", "GPU-2")];
    let [a, b] = [("a", "g", "GPU-2", "GPU-1"), ("b", "h", "GPU-1", "GPU-2")]
        .map(|(name, group, device, expects)| expecting(name, group, Some(device), expects));
    let moved = |name: &str, group: &str, device: &str| Deed::Move(name.into(), group.into(), device.into());
    let both = [moved("a", "h", "GPU-2"), moved("b", "g", "GPU-1")];
    assert_eq!(decide(&[a, b.clone()], &users, &[], &[]), both);
    // A crash between the two.
    let after = expecting("a", "h", Some("GPU-2"), "GPU-2");
    assert_eq!(decide(&[after.clone(), b], &users, &[], &[]), [moved("b", "g", "GPU-1")]);
    let done = [after, expecting("b", "g", Some("GPU-1"), "GPU-1")];
    assert_eq!(decide(&done, &users, &[], &[]), []);
}

/// Whatever device the kubelet gives to whom, holders that were lost come to hold what their pods run with, and nobody else holds more.
#[test]
fn lost_holders_get_their_devices_back_whatever_the_kubelet_gives() {
    for devices in 1..=4_usize {
        for choice in 0..24_usize {
            let names: Vec<String> = (0..devices).map(|number| format!("GPU-{number}")).collect();
            // Pods of groups run with every other device, and one new group is wanted where there is room for it.
            let users: Vec<Sharer> =
                names.iter().step_by(2).map(|device| sharer(&format!("g{device}"), device)).collect();
            let wanted: Vec<&str> = if devices > users.len() { vec!["new"] } else { vec![] };
            let mut holders: Vec<Holder> = Vec::new();
            let mut steps = 0;
            loop {
                let deeds = decide(&holders, &users, &wanted, &[]);
                if deeds.is_empty() {
                    break;
                }
                steps += 1;
                assert!(steps < 40, "{devices} devices, choice {choice}: no end, at last {deeds:?} with {holders:?}");
                for (number, deed) in deeds.into_iter().enumerate() {
                    match deed {
                        Deed::Create(group) => {
                            let free: Vec<&String> = names
                                .iter()
                                .filter(|device| holders.iter().all(|holder| holder.device.as_ref() != Some(device)))
                                .collect();
                            assert!(!free.is_empty(), "{devices} devices, choice {choice}: more holders than devices");
                            let device = free[(choice / (number + 1)) % free.len()].clone();
                            let expects =
                                users.iter().find(|user| user.group == group).and_then(|user| user.told.clone());
                            let name = format!("{group}-{steps}");
                            holders.push(match expects {
                                Some(expects) => expecting(&name, &group, Some(&device), &expects),
                                None => holder(&name, &group, Some(&device), 1),
                            });
                        }
                        Deed::Move(name, group, device) => {
                            holders.retain(|holder| holder.name != name);
                            holders.push(expecting(&name, &group, Some(&device), &device));
                        }
                        Deed::Drop(name) | Deed::Release(name) | Deed::Replace(name, _) => {
                            holders.retain(|holder| holder.name != name);
                        }
                        deed => panic!("{devices} devices, choice {choice}: {deed:?}"),
                    }
                }
            }
            for user in &users {
                let own: Vec<&Holder> = holders.iter().filter(|holder| holder.group == user.group).collect();
                assert!(matches!(own[..], [holder] if holder.device == user.told), "{own:?}");
            }
            assert_eq!(holders.len(), users.len() + wanted.len());
        }
    }
}

#[test]
fn trouble_is_forgotten_when_the_holder_is_as_it_should_be() {
    let right = [expecting("a", "g", Some("GPU-1"), "GPU-1")];
    let users = [sharer("g", "GPU-1")];
    assert_eq!(decide(&right, &users, &["g"], &[("g", u32::MAX / 2)]), [Deed::Settle("g".into())]);
    let unknown = [expecting("a", "g", None, "GPU-1")];
    assert_eq!(decide(&unknown, &users, &["g"], &[("g", 1)]), []);
}

#[test]
fn holders_of_running_pods_stay_while_the_object_of_their_node_is_gone() {
    let holders = [holder("a", "g", Some("GPU-1"), 1), holder("b", "h", Some("GPU-2"), 1)];
    let (users, wanted) = ([sharer("g", "GPU-1")], BTreeSet::from(["h".to_owned()]));
    let deeds = plan(&Scene {
        holders: &holders,
        sharers: &users,
        wanted: &wanted,
        troubles: &BTreeMap::new(),
        node_exists: false,
        now: Timestamp::from_second(1_000_000).expect("a time"),
    });
    assert_eq!(deeds, [Deed::Release("b".into())]);
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
    let expecting = |name: &str| expecting(name, "g", Some("GPU-2"), "GPU-1");
    let waits = Sharer { runs: false, ..sharer("g", "GPU-1") };
    let retold = Deed::Retell(waits.pod.clone(), "g".into(), "GPU-2".into());
    let expect = Deed::Expect("a".into(), "GPU-2".into());
    assert_eq!(decide(&[expecting("a")], std::slice::from_ref(&waits), &[], &[]), [retold, expect.clone()]);
    // A crash between the two: the rest follows, also when the container runs with the new device.
    assert_eq!(decide(&[expecting("a")], &[sharer("g", "GPU-2")], &[], &[]), [expect]);
    let runs = decide(&[expecting("a")], &[waits, sharer("g", "GPU-1")], &[], &[]);
    assert_eq!(runs, [Deed::Create("g".into())]);
}

#[test]
fn a_new_group_does_not_get_the_device_that_pods_of_another_group_use() {
    let new = holder("b", "h", Some("GPU-1"), 1);
    let deeds = decide(std::slice::from_ref(&new), &[sharer("g", "GPU-1")], &["h"], &[("g", 0)]);
    assert_eq!(deeds, [Deed::Move("b".into(), "g".into(), "GPU-1".into())]);
    // Where the other group has a holder of its own, time being sliced, the new one goes.
    let both = [new, holder("a", "g", Some("GPU-1"), 1)];
    let deeds = decide(&both, &[sharer("g", "GPU-1")], &["h"], &[]);
    assert!(deeds.iter().all(|deed| matches!(deed, Deed::Replace(name, _) if name == "b")), "{deeds:?}");
}

#[test]
fn a_pod_that_was_left_out_when_its_group_got_another_device_is_told_too() {
    let holds = [holder("a", "g", Some("GPU-2"), 1)];
    let users = [sharer("g", "GPU-2"), Sharer { runs: false, ..sharer("g", "GPU-1") }];
    let retell = Deed::Retell(Key::new("team", "p"), "g".into(), "GPU-2".into());
    assert_eq!(decide(&holds, &users, &[], &[]), [retell]);
}
