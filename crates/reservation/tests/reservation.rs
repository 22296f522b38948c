//! The program against the embedded cluster: in process over devices of the test, and as a process of its own over the fake
//! library.

use std::{process::Stdio, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kai_clock::Clock;
use kai_fake_nvml::FakeDevice;
use kai_gpu::{Devices, Gpu, Problem, devices::Mig};
use kai_lab::{
    cluster::{Lab, LabOptions},
    faults::{ApiEffect, ApiFault, Trigger},
    fleet::Fleet,
};
use kai_reservation::{Error, Options, Progress, in_process};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const ANNOTATION: &str = "run.ai/reserve_for_gpu_index";

struct Driver(Mutex<Result<Vec<Gpu>, Problem>>);

impl Devices for Driver {
    fn list(&self) -> Result<Vec<Gpu>, Problem> {
        self.0.lock().clone()
    }
}

fn driver(uuids: &[&str]) -> Arc<Driver> {
    let gpu = |uuid: &&str| Gpu { uuid: (*uuid).to_owned(), ..Gpu::default() };
    Arc::new(Driver(Mutex::new(Ok(uuids.iter().map(gpu).collect()))))
}

async fn lab_with_pod(annotations: Value, clock: Clock) -> Lab {
    let lab = Lab::start(LabOptions::new(Fleet::parse("thor").unwrap(), clock));
    lab.ready().await;
    let pod = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "r", "annotations": annotations},
        "spec": {"nodeName": "thor-0", "containers": [{"name": "resource-reservation", "image": "kai"}]},
    }))
    .unwrap();
    pods(&lab).create(&PostParams::default(), &pod).await.unwrap();
    lab
}

fn virtual_clock() -> Clock {
    Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap())
}

fn pods(lab: &Lab) -> Api<Pod> {
    Api::namespaced(lab.client(), "default")
}

async fn annotated(lab: &Lab) -> Option<String> {
    pods(lab).get("r").await.unwrap().metadata.annotations?.get(ANNOTATION).cloned()
}

async fn annotate(lab: &Lab, value: Option<&str>) {
    let patch = json!({"metadata": {"annotations": {ANNOTATION: value}}});
    pods(lab).patch("r", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

fn options() -> Options {
    Options { pod_name: "r".to_owned(), pod_namespace: "default".to_owned() }
}

/// A program that is running, and what it says.
struct Running {
    lines: Arc<Mutex<Vec<String>>>,
    cancel: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), Error>>,
}

impl Running {
    fn start(devices: Arc<Driver>, client: Client) -> Self {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let heard = lines.clone();
        let cancel = CancellationToken::new();
        let voice = Arc::new(move |progress: &Progress| heard.lock().push(progress.to_string()));
        let program = in_process(devices).saying(voice);
        let task = tokio::spawn(program.run(options(), client, cancel.clone()));
        Self { lines, cancel, task }
    }

    fn said(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock())
    }

    async fn stop(self) -> Result<(), Error> {
        self.cancel.cancel();
        self.task.await.unwrap()
    }
}

async fn wait(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn the_only_device_is_written_onto_the_own_pod() {
    let lab = lab_with_pod(json!({}), virtual_clock()).await;
    let running = Running::start(driver(&["GPU-1"]), lab.client());
    wait(5).await;
    assert_eq!(annotated(&lab).await.as_deref(), Some("GPU-1"));
    assert_eq!(
        running.said(),
        [
            "Looking for GPU device id for pod",
            "Found 1 GPU devices",
            "Found GPU device deviceId=\"GPU-1\"",
            "Pod was updated with GPU device UUID",
        ]
    );
    wait(3600).await;
    assert!(running.said().is_empty(), "an hour of idling says nothing");
    assert_eq!(running.stop().await, Ok(()));
    lab.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_annotation_that_was_taken_away_or_changed_is_mended() {
    let lab = lab_with_pod(json!({}), virtual_clock()).await;
    let running = Running::start(driver(&["GPU-1"]), lab.client());
    wait(5).await;
    running.said();
    annotate(&lab, None).await;
    wait(200).await;
    assert_eq!(annotated(&lab).await.as_deref(), Some("GPU-1"));
    assert_eq!(running.said()[0], "Pod has lost its GPU device UUID; writing it again");
    annotate(&lab, Some("GPU-other")).await;
    wait(200).await;
    assert_eq!(annotated(&lab).await.as_deref(), Some("GPU-1"));
    running.stop().await.unwrap();
    lab.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_annotation_that_is_there_stays_even_if_the_driver_is_silent_but_not_if_it_contradicts() {
    let lab = lab_with_pod(json!({ANNOTATION: "GPU-1"}), virtual_clock()).await;
    let silent = Arc::new(Driver(Mutex::new(Err(Problem::DriverNotLoaded))));
    let running = Running::start(silent, lab.client());
    wait(5).await;
    assert!(
        running.said().last().unwrap().starts_with("Pod keeps GPU device UUID deviceId=\"GPU-1\" unchecked: driver")
    );
    running.stop().await.unwrap();
    let running = Running::start(driver(&["GPU-1"]), lab.client());
    wait(5).await;
    assert_eq!(running.said().last().unwrap(), "Pod already has GPU device UUID deviceId=\"GPU-1\"");
    running.stop().await.unwrap();
    // The board came back from a reboot and its device has another name.
    let running = Running::start(driver(&["GPU-2"]), lab.client());
    wait(5).await;
    assert_eq!(annotated(&lab).await.as_deref(), Some("GPU-2"));
    running.stop().await.unwrap();
    lab.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn no_device_two_devices_and_a_mig_instance_are_refused_with_a_remedy() {
    let lab = lab_with_pod(json!({}), virtual_clock()).await;
    let mig = Gpu { uuid: "GPU-1".to_owned(), mig: Mig::On(vec!["MIG-7".to_owned()]), ..Gpu::default() };
    let cases = [
        (driver(&[]), "found 0 GPU devices (none) instead of exactly 1: "),
        (driver(&["GPU-1", "GPU-2"]), "found 2 GPU devices (GPU-1, GPU-2) instead of exactly 1: "),
        (Arc::new(Driver(Mutex::new(Ok(vec![mig])))), "the only device is MIG instance MIG-7 of GPU GPU-1: "),
        (Arc::new(Driver(Mutex::new(Err(Problem::DriverNotLoaded)))), "driver not loaded: "),
    ];
    for (driver, words) in cases {
        let error = Running::start(driver, lab.client()).task.await.unwrap().unwrap_err().to_string();
        assert!(error.starts_with(words), "{error}");
    }
    assert_eq!(annotated(&lab).await, None);
    let error = in_process(driver(&["GPU-1"]))
        .run(Options::default(), lab.client(), CancellationToken::new())
        .await
        .unwrap_err();
    assert!(error.to_string().starts_with("POD_NAME is not set: "), "{error}");
    lab.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn errors_of_the_api_are_waited_out() {
    let fault = |verb: &str, nth: u64, effect: ApiEffect| ApiFault {
        verb: Some(verb.to_owned()),
        resource: Some("pods".to_owned()),
        trigger: Trigger::Nth(nth),
        effect,
    };
    for effect in [ApiEffect::Error(503), ApiEffect::Error(403), ApiEffect::Reset, ApiEffect::LostAnswer] {
        let lab = lab_with_pod(json!({}), virtual_clock()).await;
        lab.faults().set(vec![fault("get", 1, effect), fault("patch", 1, effect), fault("patch", 2, effect)]);
        let running = Running::start(driver(&["GPU-1"]), lab.faulty_client());
        wait(30).await;
        assert_eq!(annotated(&lab).await.as_deref(), Some("GPU-1"), "{effect:?}");
        let said = running.said();
        assert!(said.iter().any(|line| line.contains("Cannot get pod default/r: ")), "{said:?}");
        assert_eq!(running.stop().await, Ok(()));
        lab.shutdown().await;
    }
}

#[tokio::test]
#[ignore = "run by the next test as a process of its own"]
async fn as_a_process() {
    let url = std::env::var("API").unwrap().parse().unwrap();
    let client = Client::try_from(kube::Config::new(url)).unwrap();
    let options = Options {
        pod_name: std::env::var("POD_NAME").unwrap(),
        pod_namespace: std::env::var("POD_NAMESPACE").unwrap(),
    };
    kai_reservation::run(options, client, CancellationToken::new()).await.unwrap();
}

#[tokio::test]
async fn a_process_with_the_fake_library_finds_the_device_of_its_container() {
    let lab = lab_with_pod(json!({}), Clock::real()).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = lab.router();
    let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let folder = tempfile::tempdir().unwrap();
    kai_fake_nvml::write_to(folder.path()).unwrap();
    let devices = kai_fake_nvml::describe(&["GPU-1", "GPU-2"].map(|uuid| FakeDevice {
        uuid: uuid.to_owned(),
        name: "NVIDIA Thor".to_owned(),
        ..FakeDevice::default()
    }));
    let mut child = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "as_a_process"])
        .envs([("API", url.as_str()), ("POD_NAME", "r"), ("POD_NAMESPACE", "default")])
        .envs([(kai_fake_nvml::VARIABLE, devices.as_str()), ("NVIDIA_VISIBLE_DEVICES", "GPU-2")])
        .env("LD_LIBRARY_PATH", folder.path())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    for _ in 0..600 {
        if annotated(&lab).await.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(annotated(&lab).await.as_deref(), Some("GPU-2"));
    assert!(child.try_wait().unwrap().is_none(), "it idles");
    child.kill().await.unwrap();
    server.abort();
    lab.shutdown().await;
}
