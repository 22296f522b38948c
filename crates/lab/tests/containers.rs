//! What containers are told and what runs them, end to end in virtual time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{ConfigMap, ContainerStatus, Event, Pod};
use kai_clock::Clock;
use kai_lab::{
    cluster::{Lab, LabOptions},
    faults::{ApiEffect, ApiFault, NodeAction, Trigger},
    fleet::{Fleet, Span},
    programs::{ContainerStart, Programs, RunningProgram},
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::ServiceExt;

async fn lab(fleet: &str, programs: Option<Arc<dyn Programs>>) -> Lab {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let mut options = LabOptions::new(Fleet::parse(fleet).unwrap(), clock);
    options.programs = programs;
    let lab = Lab::start(options);
    lab.ready().await;
    lab
}

fn pods(lab: &Lab) -> Api<Pod> {
    Api::namespaced(lab.client(), "default")
}

async fn create(lab: &Lab, name: &str, node: &str, container: Value, spec: Value) {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"color": "green"}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "app:1"}]},
    });
    for (key, value) in container.as_object().unwrap() {
        object["spec"]["containers"][0][key] = value.clone();
    }
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    pods(lab).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

async fn fill(lab: &Lab, name: &str, data: Value) {
    let map: ConfigMap = serde_json::from_value(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}),
    )
    .unwrap();
    Api::namespaced(lab.client(), "default").create(&PostParams::default(), &map).await.unwrap();
}

async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    for _ in 0..20_000 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("waited in vain: {what}");
}

async fn status(lab: &Lab, name: &str, what: &str, wanted: impl Fn(&ContainerStatus) -> bool) -> ContainerStatus {
    let api = pods(lab);
    until(&format!("{name}: {what}"), || async {
        let found = api.get_opt(name).await.unwrap()?.status?.container_statuses?.into_iter().next()?;
        wanted(&found).then_some(found)
    })
    .await
}

fn waiting_for(status: &ContainerStatus) -> Option<(String, String)> {
    let waiting = status.state.as_ref()?.waiting.clone()?;
    Some((waiting.reason?, waiting.message.unwrap_or_default()))
}

fn is_running(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| state.running.is_some())
}

async fn gone(lab: &Lab, name: &str) {
    let api = pods(lab);
    until(&format!("{name} is gone"), || async { api.get_opt(name).await.unwrap().is_none().then_some(()) }).await;
}

async fn log(lab: &Lab, node: &str, path: &str) -> String {
    let request = http::Request::get(format!("/containerLogs/default/{path}")).body(axum::body::Body::empty()).unwrap();
    let response = lab.kubelet_router(node).unwrap().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

fn from_map(name: &str, key: &str) -> Value {
    json!({"env": [{"name": key, "valueFrom": {"configMapKeyRef": {"name": name, "key": key}}}]})
}

#[tokio::test(start_paused = true)]
async fn a_container_waits_for_its_config_map_and_starts_when_it_is_there() {
    let lab = lab("thor", None).await;
    create(&lab, "shared", "thor-0", from_map("shared-gpu-0", "NVIDIA_VISIBLE_DEVICES"), json!({})).await;
    let waiting = status(&lab, "shared", "waits", |status| {
        waiting_for(status).is_some_and(|(reason, _)| reason == "CreateContainerConfigError")
    })
    .await;
    assert_eq!(waiting_for(&waiting).unwrap().1, "configmap \"shared-gpu-0\" not found");
    assert_eq!(pods(&lab).get("shared").await.unwrap().status.unwrap().phase.unwrap(), "Pending");
    assert_eq!(lab.environment_of("default", "shared", "main"), None);
    fill(&lab, "shared-gpu-0", json!({"OTHER": "x"})).await;
    status(&lab, "shared", "misses the key", |status| {
        waiting_for(status).is_some_and(|(_, text)| {
            text == "couldn't find key NVIDIA_VISIBLE_DEVICES in ConfigMap default/shared-gpu-0"
        })
    })
    .await;
    let maps = Api::<ConfigMap>::namespaced(lab.client(), "default");
    maps.delete("shared-gpu-0", &DeleteParams::default()).await.unwrap();
    fill(&lab, "shared-gpu-0", json!({"NVIDIA_VISIBLE_DEVICES": "0"})).await;
    let before = lab.clock().now();
    let running = status(&lab, "shared", "runs", is_running).await;
    assert!(lab.clock().now().duration_since(before).as_secs() <= 2);
    assert_eq!(running.restart_count, 0);
    assert_eq!(lab.environment_of("default", "shared", "main").unwrap()["NVIDIA_VISIBLE_DEVICES"], "0");
    assert!(log(&lab, "thor-0", "shared/main").await.contains("NVIDIA_VISIBLE_DEVICES=0\n"));
    let events = Api::<Event>::namespaced(lab.client(), "default").list(&ListParams::default()).await.unwrap();
    let failed = events.iter().find(|event| event.reason.as_deref() == Some("Failed")).unwrap();
    assert_eq!(failed.message.as_deref(), Some("Error: configmap \"shared-gpu-0\" not found"));
    pods(&lab).delete("shared", &DeleteParams::default()).await.unwrap();
    gone(&lab, "shared").await;
    assert_eq!(lab.environment_of("default", "shared", "main"), None);
    lab.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_pod_says_of_itself_is_resolved_and_optional_maps_are_not_waited_for() {
    let lab = lab("t4x4", None).await;
    let container = json!({
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
        "envFrom": [{"configMapRef": {"name": "nowhere", "optional": true}}],
        "env": [
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "COLOR", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['color']"}}},
            {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "WHO", "value": "$(POD)@$(ADDRESS)"},
        ],
    });
    create(&lab, "p", "t4x4-0", container, json!({})).await;
    status(&lab, "p", "runs", is_running).await;
    let address = pods(&lab).get("p").await.unwrap().status.unwrap().pod_ip.unwrap();
    let environment = lab.environment_of("default", "p", "main").unwrap();
    assert_eq!(environment["WHO"], format!("p@{address}"));
    assert_eq!(environment["COLOR"], "green");
    let devices = lab.devices_of("default", "p");
    assert_eq!(environment["NVIDIA_VISIBLE_DEVICES"], devices["main"]["nvidia.com/gpu"][0]);
    lab.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_config_map_that_cannot_be_read_is_tried_again() {
    let lab = lab("cpu", None).await;
    fill(&lab, "m", json!({"K": "v"})).await;
    let fault = |trigger| ApiFault {
        verb: Some("get".to_owned()),
        resource: Some("configmaps".to_owned()),
        trigger,
        effect: ApiEffect::Reset,
    };
    lab.faults().set(vec![fault(Trigger::Nth(1)), fault(Trigger::Nth(2))]);
    create(&lab, "p", "cpu-0", from_map("m", "K"), json!({})).await;
    status(&lab, "p", "runs", is_running).await;
    assert_eq!(lab.environment_of("default", "p", "main").unwrap()["K"], "v");
    assert_eq!(lab.faults().struck(), 2);
    lab.shutdown().await;
}

/// Runs containers of image `real:…`: prints, then ends with the code its arguments name, or runs until it is stopped.
#[derive(Default)]
struct Real {
    starts: Mutex<Vec<ContainerStart>>,
    stopped: Arc<AtomicUsize>,
}

impl Programs for Real {
    fn start(&self, start: ContainerStart) -> Option<RunningProgram> {
        if !start.image.starts_with("real:") {
            return None;
        }
        self.starts.lock().push(start.clone());
        let stopped = self.stopped.clone();
        Some(RunningProgram::new(move |output, stop| async move {
            output.line(format!("hello from {}", start.pod));
            tokio::time::sleep(Duration::from_secs(1)).await;
            if let Some(code) = start.args.first().and_then(|code| code.parse().ok()) {
                output.line("enough");
                return code;
            }
            stop.cancelled().await;
            stopped.fetch_add(1, Ordering::SeqCst);
            output.line("stopped");
            if start.args.first().is_some_and(|word| word == "stubborn") {
                std::future::pending::<()>().await;
            }
            0
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn a_program_gets_devices_and_environment_and_ends_when_its_pod_is_deleted() {
    let real = Arc::new(Real::default());
    let lab = lab("thor:replicas=4", Some(real.clone())).await;
    let container = json!({
        "image": "real:1", "command": ["kai", "$(X)"], "env": [{"name": "X", "value": "y"}],
        "resources": {"limits": {"nvidia.com/gpu": "1"}}, "securityContext": {"privileged": true},
        "volumeMounts": [{"name": "dev", "mountPath": "/dev"}],
    });
    let spec = json!({"volumes": [{"name": "dev", "hostPath": {"path": "/dev"}}]});
    create(&lab, "p", "thor-0", container, spec).await;
    status(&lab, "p", "runs", is_running).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(log(&lab, "thor-0", "p/main").await, "hello from p\n");
    let start = real.starts.lock()[0].clone();
    assert_eq!(
        (start.command.clone(), start.environment["X"].as_str(), start.privileged),
        (vec!["kai".to_owned(), "y".to_owned()], "y", true)
    );
    assert_eq!(start.devices["nvidia.com/gpu"][0].id, "tegra::0");
    let visible = start.visible_gpus();
    assert_eq!(visible.len(), 1);
    assert!(visible[0].uuid.starts_with("GPU-") && visible[0].visible_as == "0");
    assert_eq!(start.mounts[0].host_path, "/dev");
    let before = lab.clock().now();
    pods(&lab).delete("p", &DeleteParams::default()).await.unwrap();
    gone(&lab, "p").await;
    assert!(lab.clock().now().duration_since(before).as_secs() < 5);
    assert_eq!(real.stopped.load(Ordering::SeqCst), 1);
    lab.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_program_that_fails_is_started_again_with_back_off() {
    let real = Arc::new(Real::default());
    let lab = lab("cpu", Some(real.clone())).await;
    create(&lab, "p", "cpu-0", json!({"image": "real:1", "args": ["3"]}), json!({})).await;
    let crashed = status(&lab, "p", "crashes", |status| {
        waiting_for(status).is_some_and(|(reason, _)| reason == "CrashLoopBackOff")
    })
    .await;
    assert_eq!(crashed.last_state.unwrap().terminated.unwrap().exit_code, 3);
    status(&lab, "p", "restarts", |status| status.restart_count == 3).await;
    assert_eq!(real.starts.lock().len(), 4);
    assert_eq!(log(&lab, "cpu-0", "p/main?previous=true").await, "hello from p\nenough\n");
    create(&lab, "once", "cpu-0", json!({"image": "real:1", "args": ["0"]}), json!({"restartPolicy": "Never"})).await;
    let api = pods(&lab);
    until("once has succeeded", || async {
        (api.get("once").await.unwrap().status?.phase? == "Succeeded").then_some(())
    })
    .await;
    lab.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_program_that_does_not_end_is_killed_after_the_grace_period() {
    let real = Arc::new(Real::default());
    let lab = lab("cpu", Some(real.clone())).await;
    let spec = json!({"terminationGracePeriodSeconds": 7});
    create(&lab, "p", "cpu-0", json!({"image": "real:1", "args": ["stubborn"]}), spec).await;
    create(&lab, "simulated", "cpu-0", json!({}), json!({})).await;
    status(&lab, "p", "runs", is_running).await;
    status(&lab, "simulated", "runs", is_running).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = lab.clock().now();
    pods(&lab).delete("p", &DeleteParams::default()).await.unwrap();
    gone(&lab, "p").await;
    let took = lab.clock().now().duration_since(before).as_secs();
    assert!((7..9).contains(&took), "{took}");
    lab.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn programs_start_again_when_the_kubelets_do_but_their_containers_do_not() {
    let real = Arc::new(Real::default());
    let mut lab = lab("cpu", Some(real.clone())).await;
    fill(&lab, "m", json!({"K": "v"})).await;
    let mut container = from_map("m", "K");
    container["image"] = json!("real:1");
    create(&lab, "p", "cpu-0", container, json!({})).await;
    status(&lab, "p", "runs", is_running).await;
    lab.restart_kubelets().await;
    until("the program is back", || async { (real.starts.lock().len() == 2).then_some(()) }).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(status(&lab, "p", "runs", is_running).await.restart_count, 0);
    assert_eq!(lab.environment_of("default", "p", "main").unwrap()["K"], "v");
    pods(&lab).delete("p", &DeleteParams::default()).await.unwrap();
    gone(&lab, "p").await;
    lab.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_running_container_knows_what_it_was_told_whatever_its_config_map_says_when_kubelets_start_again() {
    let real = Arc::new(Real::default());
    let mut lab = lab("cpu", Some(real.clone())).await;
    fill(&lab, "m", json!({"K": "v"})).await;
    create(&lab, "p", "cpu-0", from_map("m", "K"), json!({})).await;
    status(&lab, "p", "runs", is_running).await;
    let maps = Api::<ConfigMap>::namespaced(lab.client(), "default");
    maps.delete("m", &DeleteParams::default()).await.unwrap();
    for _ in 0..2 {
        lab.restart_kubelets().await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(lab.environment_of("default", "p", "main").unwrap()["K"], "v");
        assert_eq!(status(&lab, "p", "runs", is_running).await.restart_count, 0);
    }
    lab.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_reboot_restarts_pods_and_refuses_those_whose_devices_have_other_names() {
    let real = Arc::new(Real::default());
    let lab = lab("t4x4,thor", Some(real.clone())).await;
    let gpu = json!({"image": "real:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}});
    create(&lab, "gpu", "t4x4-0", gpu.clone(), json!({})).await;
    create(&lab, "board", "thor-0", gpu.clone(), json!({})).await;
    create(&lab, "plain", "t4x4-0", json!({"image": "real:1"}), json!({})).await;
    create(&lab, "once", "t4x4-0", json!({}), json!({"restartPolicy": "Never"})).await;
    for pod in ["gpu", "board", "plain", "once"] {
        status(&lab, pod, "runs", is_running).await;
    }
    let uuid = |pod: &str| {
        let starts = real.starts.lock();
        starts.iter().rev().find(|start| start.pod == pod).unwrap().visible_gpus()[0].uuid.clone()
    };
    let (old_gpu, old_board) = (uuid("gpu"), uuid("board"));
    for node in ["t4x4-0", "thor-0"] {
        assert!(lab.inject(node, NodeAction::Reboot { down: Duration::from_secs(20), new_uuids: true }));
    }
    let plain = status(&lab, "plain", "restarts", |status| status.restart_count == 1 && is_running(status)).await;
    let ended = plain.last_state.unwrap().terminated.unwrap();
    assert_eq!((ended.exit_code, ended.reason.as_deref()), (255, Some("Unknown")));
    status(&lab, "board", "restarts", |status| status.restart_count == 1 && is_running(status)).await;
    assert_ne!(uuid("board"), old_board, "its device is called tegra, but NVML has a new name for it");
    let api = pods(&lab);
    let failed = |name: &'static str| {
        let api = api.clone();
        async move {
            until(&format!("{name} has failed"), || async {
                let status = api.get(name).await.unwrap().status?;
                (status.phase.as_deref() == Some("Failed")).then_some(status)
            })
            .await
        }
    };
    let refused = failed("gpu").await;
    assert_eq!(refused.reason.as_deref(), Some("UnexpectedAdmissionError"));
    assert_eq!(
        refused.message.as_deref(),
        Some(
            "Pod was rejected: Allocate failed due to previously allocated devices are no longer healthy; cannot \
             allocate unhealthy devices nvidia.com/gpu, which is unexpected"
        )
    );
    assert_eq!(refused.container_statuses, None);
    failed("once").await;
    assert!(lab.devices_of("default", "gpu").is_empty());
    create(
        &lab,
        "next",
        "t4x4-0",
        json!({"image": "real:1", "resources": {"limits": {"nvidia.com/gpu": "4"}}}),
        json!({}),
    )
    .await;
    status(&lab, "next", "runs", is_running).await;
    assert_ne!(uuid("next"), old_gpu);
    pods(&lab).delete("gpu", &DeleteParams::default()).await.unwrap();
    gone(&lab, "gpu").await;
    lab.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_deleted_while_it_waits_never_starts() {
    let real = Arc::new(Real::default());
    let lab = lab("cpu", Some(real.clone())).await;
    let delay = Span::fixed(Duration::from_secs(20));
    lab.faults().set(vec![ApiFault {
        verb: Some("get".to_owned()),
        resource: Some("configmaps".to_owned()),
        trigger: Trigger::Always,
        effect: ApiEffect::Delay(delay),
    }]);
    fill(&lab, "m", json!({"K": "v"})).await;
    let mut container = from_map("m", "K");
    container["image"] = json!("real:1");
    create(&lab, "p", "cpu-0", container, json!({})).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    pods(&lab).delete("p", &DeleteParams::default()).await.unwrap();
    gone(&lab, "p").await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!((lab.faults().struck(), real.starts.lock().len()), (1, 0));
    lab.shutdown().await;
}
