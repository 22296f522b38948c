//! Tests of the pod machine: lives as text, one line per change.

use std::{fmt::Write, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::*;
use crate::{
    fleet::{Delays, Span},
    seed::Seed,
};

fn delays() -> Delays {
    let seconds = |seconds| Span::fixed(Duration::from_secs(seconds));
    Delays {
        pull: seconds(0),
        start: seconds(1),
        ready: seconds(0),
        init: seconds(2),
        run: seconds(5),
        stop: seconds(3),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "a literal at every call")]
fn pod(spec: Value, annotations: Value) -> Pod {
    let mut spec = spec;
    if spec.get("containers").is_none() {
        spec["containers"] = json!([{"name": "main", "image": "app:1"}]);
    }
    let metadata = json!({"name": "p", "namespace": "ns", "uid": "u", "generation": 1, "annotations": annotations});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn machine(pod: &Pod) -> PodMachine {
    let plan = PodPlan::of(pod, &delays(), Seed(1)).unwrap();
    PodMachine::accept(plan, Seed(1), "172.18.0.2".into(), "10.64.0.5".into(), Timestamp::UNIX_EPOCH).0
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

/// Runs until nothing more is due or `until` seconds have passed; deletes at the given second with the given grace.
fn life(pod: &Pod, until: i64, delete: Option<(i64, u64)>) -> String {
    let mut machine = machine(pod);
    let mut story = format!("0 {}\n", machine.summary());
    let mut delete = delete;
    loop {
        let wake = machine.wake().map(Timestamp::as_second);
        let deletion = delete.map(|(time, _)| time);
        let Some(now) = [wake, deletion].into_iter().flatten().min().filter(|now| *now <= until) else { break };
        let before = machine.summary();
        if deletion == Some(now) {
            machine.delete(Duration::from_secs(delete.take().unwrap().1), at(now));
        }
        machine.step(at(now));
        if machine.summary() != before {
            writeln!(story, "{now} {}", machine.summary()).unwrap();
        }
    }
    story
}

#[test]
fn an_ordinary_pod_runs_for_ever() {
    assert_eq!(life(&pod(json!({}), json!({})), 10_000, None), "0 Pending 0/1\n1 Running 1/1\n");
}

#[test]
fn a_pod_that_never_restarts_ends_after_the_fleets_run_delay() {
    let pod = pod(json!({"restartPolicy": "Never"}), json!({}));
    assert_eq!(life(&pod, 100, None), "0 Pending 0/1\n1 Running 1/1\n6 Succeeded 0/1\n");
}

#[test]
fn annotations_set_delays_and_outcome() {
    let annotations = json!({"lab.kai/start-seconds": "4", "lab.kai/ready-seconds": "2", "lab.kai/run-seconds": "20",
        "lab.kai/exit-code": "3"});
    let pod = pod(json!({"restartPolicy": "Never"}), annotations);
    assert_eq!(life(&pod, 100, None), "0 Pending 0/1\n4 Running 0/1\n6 Running 1/1\n24 Failed 0/1\n");
}

#[test]
fn a_crash_loop_backs_off_as_the_kubelet_does() {
    let pod = pod(json!({}), json!({"lab.kai/exit-code": "1", "lab.kai/run-seconds": "1"}));
    insta::assert_snapshot!(life(&pod, 100, None), @r"
    0 Pending 0/1
    1 Running 1/1
    2 Running 1/1 restarts=1
    3 Running 0/1 restarts=1 CrashLoopBackOff
    13 Running 1/1 restarts=2
    14 Running 0/1 restarts=2 CrashLoopBackOff
    34 Running 1/1 restarts=3
    35 Running 0/1 restarts=3 CrashLoopBackOff
    75 Running 1/1 restarts=4
    76 Running 0/1 restarts=4 CrashLoopBackOff
    ");
}

#[test]
fn on_failure_restarts_failures_only() {
    let failing = pod(json!({"restartPolicy": "OnFailure"}), json!({"lab.kai/exit-code": "1"}));
    assert!(life(&failing, 12, None).contains("restarts=1"));
    let fine = pod(json!({"restartPolicy": "OnFailure"}), json!({}));
    assert!(life(&fine, 12, None).ends_with("6 Succeeded 0/1\n"));
}

#[test]
fn init_containers_run_in_order_and_sidecars_stay() {
    let spec = json!({
        "restartPolicy": "Never",
        "initContainers": [
            {"name": "one", "image": "i"},
            {"name": "proxy", "image": "s", "restartPolicy": "Always"},
            {"name": "two", "image": "i"},
        ],
    });
    insta::assert_snapshot!(life(&pod(spec, json!({})), 100, None), @r"
    0 Pending 0/2
    3 Pending 1/2
    5 Running 2/2
    10 Succeeded 0/2
    ");
}

#[test]
fn a_failing_init_container_fails_a_pod_that_never_restarts() {
    let spec = json!({"restartPolicy": "Never", "initContainers": [{"name": "one", "image": "i"}]});
    let life = life(&pod(spec, json!({"lab.kai/init-exit-code": "2"})), 100, None);
    assert_eq!(life, "0 Pending 0/1\n3 Failed 0/1\n");
}

#[test]
fn deletion_waits_for_the_container_but_not_beyond_the_grace_period() {
    let ordinary = pod(json!({}), json!({}));
    assert_eq!(
        life(&ordinary, 100, Some((10, 30))),
        "0 Pending 0/1\n1 Running 1/1\n10 Running 1/1 Terminating\n13 Failed 0/1\n"
    );
    assert!(life(&ordinary, 100, Some((10, 2))).ends_with("12 Failed 0/1\n"));
}

#[test]
fn a_second_deletion_can_only_shorten_the_time() {
    let mut machine = machine(&pod(json!({}), json!({"lab.kai/stop-seconds": "100"})));
    machine.step(at(1));
    machine.delete(Duration::from_secs(30), at(10));
    assert_eq!(machine.wake(), Some(at(40)));
    machine.delete(Duration::from_mins(1), at(11));
    assert_eq!(machine.wake(), Some(at(40)));
    machine.delete(Duration::from_secs(1), at(12));
    assert_eq!(machine.wake(), Some(at(13)));
    machine.step(at(13));
    assert!(machine.is_removable());
    let status = machine.status(at(13));
    assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["exitCode"], 137);
}

#[test]
fn a_pod_deleted_before_it_started_is_gone_at_once() {
    let mut machine = machine(&pod(json!({}), json!({})));
    assert_eq!(machine.delete(Duration::from_secs(30), at(0)), [Effect::Released]);
    assert!(machine.is_removable());
}

#[test]
fn the_active_deadline_fails_the_pod() {
    let pod = pod(json!({"activeDeadlineSeconds": 7}), json!({}));
    let life = life(&pod, 100, None);
    assert!(life.ends_with("7 Running 1/1 Terminating DeadlineExceeded\n10 Failed 0/1 DeadlineExceeded\n"), "{life}");
}

#[test]
fn readiness_gates_keep_the_pod_unready_until_others_say_so() {
    let mut machine = machine(&pod(json!({"readinessGates": [{"conditionType": "example.com/ok"}]}), json!({})));
    machine.step(at(1));
    let ready = |status: &Value| status["conditions"][2].clone();
    assert_eq!(ready(&machine.status(at(1)))["reason"], "ReadinessGatesNotReady");
    machine.set_gates([("example.com/ok".to_owned(), true)].into_iter());
    let status = machine.status(at(5));
    assert_eq!(
        (&ready(&status)["status"], &ready(&status)["lastTransitionTime"]),
        (&json!("True"), &json!("1970-01-01T00:00:05Z"))
    );
}

#[test]
fn statuses_are_what_a_kubelet_writes() {
    let mut machine = machine(&pod(json!({"restartPolicy": "Never"}), json!({})));
    let mut shape = |now: i64| {
        machine.step(at(now));
        let status = machine.status(at(now));
        serde_json::from_value::<k8s_openapi::api::core::v1::PodStatus>(status.clone()).unwrap();
        let conditions: Vec<String> = status["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| {
                format!(
                    "{}={}{}",
                    c["type"].as_str().unwrap(),
                    c["status"].as_str().unwrap(),
                    c["reason"].as_str().map(|r| format!("({r})")).unwrap_or_default()
                )
            })
            .collect();
        format!(
            "{} ip={} state={} {}",
            status["phase"],
            status["podIP"],
            status["containerStatuses"][0]["state"].as_object().unwrap().keys().next().unwrap(),
            conditions.join(" ")
        )
    };
    insta::assert_snapshot!([shape(0), shape(1), shape(6)].join("\n"), @r#"
    "Pending" ip=null state=waiting PodReadyToStartContainers=False Initialized=True Ready=False(ContainersNotReady) ContainersReady=False(ContainersNotReady)
    "Running" ip="10.64.0.5" state=running PodReadyToStartContainers=True Initialized=True Ready=True ContainersReady=True
    "Succeeded" ip="10.64.0.5" state=terminated PodReadyToStartContainers=False Initialized=True(PodCompleted) Ready=False(PodCompleted) ContainersReady=False(PodCompleted)
    "#);
}

#[test]
fn events_are_those_of_a_kubelet() {
    let mut machine = machine(&pod(json!({}), json!({})));
    let reasons: Vec<String> = machine
        .step(at(1))
        .into_iter()
        .chain(machine.delete(Duration::from_secs(30), at(5)))
        .filter_map(|effect| match effect {
            Effect::Event { reason, message, .. } => Some(format!("{reason}: {message}")),
            _ => None,
        })
        .collect();
    assert_eq!(
        reasons,
        [
            "Pulled: Container image \"app:1\" already present on machine",
            "Created: Created container: main",
            "Started: Started container main",
            "Killing: Stopping container main",
        ]
    );
}

#[test]
fn a_restarted_kubelet_goes_on_where_the_status_left_off() {
    let pod = pod(json!({"restartPolicy": "Never"}), json!({}));
    let mut before = machine(&pod);
    before.step(at(1));
    let status = serde_json::from_value(before.status(at(1))).unwrap();
    let plan = PodPlan::of(&pod, &delays(), Seed(1)).unwrap();
    let mut after = PodMachine::resume(plan, &status, Seed(1), "172.18.0.2".into(), "10.64.0.9".into(), at(4));
    assert_eq!(after.summary(), "Running 1/1");
    assert_eq!(after.status(at(4)), before.status(at(4)));
    assert_eq!(after.wake(), Some(at(6)));
    after.step(at(6));
    assert_eq!(after.phase(), Phase::Succeeded);
}

#[test]
fn zero_delays_do_not_spin() {
    let pod = pod(json!({}), json!({"lab.kai/run-seconds": "0", "lab.kai/start-seconds": "0"}));
    let mut machine = machine(&pod);
    machine.step(at(0));
    assert!(machine.wake().unwrap() > at(0) - SignedDuration::from_secs(1));
    assert!(machine.summary().contains("CrashLoopBackOff"));
}
