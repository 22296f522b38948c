//! Containers: what they are told, and the programs that run some of them.
//!
//! ```text
//!  Prepare -> ConfigMaps are read (only those the container names) -> environment -> prepared -> Started
//!                    ^                                                     |
//!                    '---- 2 s ---- CreateContainerConfigError <-- something is missing
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::AssertUnwindSafe,
};

use bytes::Bytes;
use futures::FutureExt;
use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::Value;
use tokio::{sync::mpsc, task::AbortHandle};
use tokio_util::sync::CancellationToken;

use super::{
    Kubelets,
    state::{Life, NodeState, PodEntry, PodKey},
    writes::{Failure, Purpose},
};
use crate::{
    environment::{self, ConfigMaps, Environment, Facts},
    logs::Logs,
    programs::{ContainerStart, HostMount, RunningProgram},
};

/// What is under way for the containers of a pod, by their index in the plan.
#[derive(Default)]
pub(super) struct ContainerWork {
    preparing: BTreeMap<usize, Preparing>,
    /// Started by the hook, before the container itself counts as started.
    ready: BTreeMap<usize, RunningProgram>,
    running: BTreeMap<usize, Program>,
    /// Programs that ended while the kubelet was off.
    ended: Vec<(usize, i32)>,
    /// Grows with each program, so that a late exit is not taken for that of the next one.
    programs: u64,
}

/// A container whose environment is being put together.
#[derive(Default)]
struct Preparing {
    unread: BTreeSet<String>,
    maps: ConfigMaps,
    trouble: Option<String>,
}

/// A program that runs as a container; it dies with this value.
struct Program {
    number: u64,
    stop: CancellationToken,
    task: AbortHandle,
}

impl Drop for Program {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The end of a program.
pub(super) struct ProgramExit {
    key: PodKey,
    uid: String,
    container: usize,
    number: u64,
    code: i32,
}

impl Kubelets {
    /// Begins to put together a container's environment; done at once if it needs nothing from the API.
    pub(super) fn prepare(&mut self, key: &PodKey, index: usize) {
        let Some(entry) = self.pods.get_mut(key) else { return };
        let Some(container) = container_of(entry, index) else { return };
        let names = environment::config_maps(container);
        let preparing = Preparing { unread: names.clone(), ..Preparing::default() };
        entry.work.preparing.insert(index, preparing);
        if names.is_empty() {
            self.complete(key, index);
            return;
        }
        let uid = entry.uid.clone();
        for name in names {
            let path = format!("/api/v1/namespaces/{}/configmaps/{name}", key.0);
            let purpose = Purpose::ReadConfigMap { key: key.clone(), uid: uid.clone(), container: index, name };
            self.writes.read(purpose, path);
        }
    }

    /// Containers that ran before this kubelet started keep what they were told; their programs start again, as the old ones
    /// ended with the old process.
    pub(super) fn reattach(&mut self, key: &PodKey, pod: &Pod) {
        let Some(entry) = self.pods.get_mut(key) else { return };
        let Life::Running(machine) = &entry.life else { return };
        let mut known = self.told.remove(&(key.clone(), entry.uid.clone())).unwrap_or_default();
        let plans = machine.plan().containers.iter().enumerate().filter(|(index, _)| machine.is_running(*index));
        let (mut reattached, mut prepared) = (Vec::new(), Vec::new());
        for (index, plan) in plans {
            match known.remove(&plan.name) {
                Some(told) if plan.prepare => reattached.push((index, told)),
                // Nobody in this process knows what it was told: the API may still say it.
                None if plan.prepare => prepared.push(index),
                told => {
                    let told = told.unwrap_or_else(|| from_devices(&self.nodes[entry.node], &entry.uid, &plan.name));
                    self.environments.lock().entry(key.clone()).or_default().insert(plan.name.clone(), told);
                }
            }
        }
        if !prepared.is_empty() || !reattached.is_empty() {
            entry.object = Some(Box::new(pod.clone()));
        }
        for (index, told) in reattached {
            self.start(key, index, told);
        }
        for index in prepared {
            self.prepare(key, index);
        }
    }

    /// A ConfigMap was read, or is not there.
    pub(super) fn on_config_map(
        &mut self,
        key: &PodKey,
        uid: &str,
        index: usize,
        name: String,
        answer: Result<Bytes, Failure>,
    ) {
        let Some(entry) = self.pods.get_mut(key).filter(|entry| entry.uid == uid) else { return };
        let Some(preparing) = entry.work.preparing.get_mut(&index) else { return };
        preparing.unread.remove(&name);
        match answer {
            Ok(body) => {
                let object: Value = serde_json::from_slice(&body).unwrap_or_default();
                let data = object["data"].as_object().into_iter().flatten();
                let data = data.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
                preparing.maps.insert(name, Some(data.collect()));
            }
            Err(failure) if failure.code == Some(404) => {
                preparing.maps.insert(name, None);
            }
            Err(failure) => {
                tracing::debug!(pod = key.1, config_map = name, message = failure.message, "ConfigMap not read");
                preparing.trouble =
                    Some("failed to sync configmap cache: timed out waiting for the condition".to_owned());
            }
        }
        if !preparing.unread.is_empty() {
            return;
        }
        if self.nodes[entry.node].is_on() {
            self.complete(key, index);
            self.settle(key);
        } else if let Life::Running(machine) = &mut entry.life {
            entry.work.preparing.remove(&index);
            machine.prepare_again(index);
        }
    }

    /// Everything was read: the container starts, or waits with the reason why it cannot.
    fn complete(&mut self, key: &PodKey, index: usize) {
        let now = self.clock.now();
        let Some(entry) = self.pods.get_mut(key) else { return };
        let Some(preparing) = entry.work.preparing.remove(&index) else { return };
        let (Some(object), Some(container)) = (&entry.object, container_of(entry, index)) else { return };
        let Life::Running(machine) = &entry.life else { return };
        if !machine.is_active() {
            // It was told to end while its ConfigMaps were read.
            return;
        }
        let node = &self.nodes[entry.node];
        let from_devices = from_devices(node, &entry.uid, &container.name);
        let facts = Facts {
            pod: object,
            host_address: machine.host_address(),
            pod_address: machine.pod_address(),
            from_devices: &from_devices,
        };
        let resolved = match preparing.trouble {
            Some(trouble) => Err(trouble),
            None => environment::resolve(container, facts, &preparing.maps),
        };
        let environment = resolved.map_err(|message| ("CreateContainerConfigError", message)).and_then(|environment| {
            let start = container_start(node, object, container, environment);
            match start.unknown_gpu() {
                Some(gpu) => {
                    Err(("RunContainerError", format!("nvidia-container-cli: device error: {gpu}: unknown device")))
                }
                None => Ok(start.environment),
            }
        });
        match environment {
            Ok(environment) => self.start(key, index, environment),
            Err((reason, message)) => {
                let Some(Life::Running(machine)) = self.pods.get_mut(key).map(|entry| &mut entry.life) else { return };
                let effects = machine.refuse_start(index, reason, message, now);
                self.act(key, effects);
            }
        }
    }

    /// Starts a container with its environment, or only its program if it was found running.
    fn start(&mut self, key: &PodKey, index: usize, environment: Environment) {
        let Some(entry) = self.pods.get_mut(key) else { return };
        let (Some(object), Some(container)) = (&entry.object, container_of(entry, index)) else { return };
        let name = container.name.clone();
        let start = container_start(&self.nodes[entry.node], object, container, environment.clone());
        let Life::Running(machine) = &mut entry.life else { return };
        let program = self.programs.as_ref().and_then(|programs| programs.start(start));
        let was_running = machine.is_running(index);
        machine.prepared(index, program.is_some());
        self.environments.lock().entry(key.clone()).or_default().insert(name, environment);
        if let (Some(program), Some(entry)) = (program, self.pods.get_mut(key)) {
            entry.work.ready.insert(index, program);
            if was_running {
                self.on_started(key, index);
            }
        }
    }

    /// A container has started: its log begins, and its program if it has one.
    pub(super) fn on_started(&mut self, key: &PodKey, index: usize) {
        let Some(entry) = self.pods.get_mut(key) else { return };
        let Life::Running(machine) = &entry.life else { return };
        let Some(plan) = machine.plan().containers.get(index) else { return };
        let name = plan.name.clone();
        let node = &self.nodes[entry.node];
        let place = Place { node: node.spec.name.clone(), key: key.clone(), container: name.clone() };
        place.begin(&self.logs);
        if let Some(program) = entry.work.ready.remove(&index) {
            entry.work.programs += 1;
            let number = entry.work.programs;
            let exit = ProgramExit { key: key.clone(), uid: entry.uid.clone(), container: index, number, code: 0 };
            let program = run(program, place, self.logs.clone(), exit, self.exits.clone());
            entry.work.running.insert(index, program);
            return;
        }
        let mut environments = self.environments.lock();
        let told = environments.entry(key.clone()).or_default();
        if !plan.prepare {
            told.insert(name.clone(), from_devices(node, &entry.uid, &name));
        }
        let (namespace, pod) = key;
        place.print(&self.logs, format!("container {name} of pod {namespace}/{pod} started on node {}", place.node));
        if let Some(visible) = told.get(&name).and_then(|environment| environment.get("NVIDIA_VISIBLE_DEVICES")) {
            place.print(&self.logs, format!("NVIDIA_VISIBLE_DEVICES={visible}"));
        }
    }

    /// A container has ended; a program that still runs is killed.
    pub(super) fn on_exited(&mut self, key: &PodKey, index: usize, code: i32) {
        let Some(entry) = self.pods.get_mut(key) else { return };
        let Life::Running(machine) = &entry.life else { return };
        let Some(plan) = machine.plan().containers.get(index) else { return };
        let node = self.nodes[entry.node].spec.name.clone();
        let place = Place { node, key: key.clone(), container: plan.name.clone() };
        let of_program = entry.work.programs > 0;
        entry.work.running.remove(&index);
        if !of_program {
            place.print(&self.logs, format!("container {} exits with code {code}", plan.name));
        }
        self.logs.end(&place.node, &key.0, &key.1, &place.container);
    }

    /// Asks a program to end.
    pub(super) fn stop_program(&mut self, key: &PodKey, index: usize) {
        if let Some(program) = self.pods.get(key).and_then(|entry| entry.work.running.get(&index)) {
            program.stop.cancel();
        }
    }

    /// A program has ended.
    pub(super) fn on_program_exit(&mut self, exit: &ProgramExit) {
        let Some(entry) = self.pods.get_mut(&exit.key).filter(|entry| entry.uid == exit.uid) else { return };
        if entry.work.running.get(&exit.container).is_none_or(|program| program.number != exit.number) {
            return;
        }
        entry.work.running.remove(&exit.container);
        entry.work.ended.push((exit.container, exit.code));
        if self.nodes[entry.node].is_on() {
            self.settle(&exit.key);
        }
    }

    /// Tells the machine of programs that have ended.
    pub(super) fn apply_exits(&mut self, key: &PodKey) {
        let now = self.clock.now();
        let Some(entry) = self.pods.get_mut(key) else { return };
        for (index, code) in std::mem::take(&mut entry.work.ended) {
            let Some(Life::Running(machine)) = self.pods.get_mut(key).map(|entry| &mut entry.life) else { return };
            let effects = machine.exited(index, code, now);
            self.act(key, effects);
        }
    }
}

/// Where a container's lines go.
struct Place {
    node: String,
    key: PodKey,
    container: String,
}

impl Place {
    fn begin(&self, logs: &Logs) {
        logs.begin(&self.node, &self.key.0, &self.key.1, &self.container);
    }

    fn print(&self, logs: &Logs, line: String) {
        logs.print(&self.node, &self.key.0, &self.key.1, &self.container, line);
    }
}

/// Lets a program run beside the loop: its lines go to the log, its end to the loop.
fn run(
    program: RunningProgram,
    place: Place,
    logs: Logs,
    mut exit: ProgramExit,
    exits: mpsc::UnboundedSender<ProgramExit>,
) -> Program {
    let RunningProgram { mut lines, exit: end, stop } = program;
    let number = exit.number;
    let task = tokio::spawn(async move {
        let mut end = AssertUnwindSafe(end).catch_unwind();
        let code = loop {
            tokio::select! {
                biased;
                Some(line) = lines.recv() => place.print(&logs, line),
                code = &mut end => break code,
            }
        };
        while let Ok(line) = lines.try_recv() {
            place.print(&logs, line);
        }
        exit.code = code.unwrap_or_else(|_| {
            place.print(&logs, "the program panicked".to_owned());
            101
        });
        // The loop may have ended before its programs.
        let _ = exits.send(exit);
    });
    Program { number, stop, task: task.abort_handle() }
}

/// The container of a pod that a plan's index means.
fn container_of(entry: &PodEntry, index: usize) -> Option<&Container> {
    let Life::Running(machine) = &entry.life else { return None };
    let name = &machine.plan().containers.get(index)?.name;
    let spec = entry.object.as_ref()?.spec.as_ref()?;
    let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    containers.find(|container| container.name == *name)
}

/// What the device plugin has the kubelet set.
fn from_devices(node: &NodeState, uid: &str, container: &str) -> Environment {
    let devices = node.devices.held_by(uid).and_then(|devices| devices.get(container));
    let visible = devices.map(|devices| ("NVIDIA_VISIBLE_DEVICES".to_owned(), node.devices.visible(devices)));
    visible.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

fn container_start(node: &NodeState, pod: &Pod, container: &Container, environment: Environment) -> ContainerStart {
    let spec = pod.spec.as_ref();
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let devices = node.devices.held_by(&uid).and_then(|devices| devices.get(&container.name));
    let expanded = |words: &Option<Vec<String>>| {
        words.iter().flatten().map(|word| environment::expand(word, &environment)).collect::<Vec<String>>()
    };
    let volumes = || spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let mounts = container.volume_mounts.iter().flatten().filter_map(|mount| {
        let volume = volumes().find(|volume| volume.name == mount.name)?;
        Some(HostMount {
            host_path: volume.host_path.as_ref()?.path.clone(),
            mount_path: mount.mount_path.clone(),
            read_only: mount.read_only.unwrap_or(false),
        })
    });
    ContainerStart {
        node: node.spec.name.clone(),
        node_labels: node.labels.clone(),
        kernel: node.spec.shape.kernel.to_owned(),
        namespace: pod.metadata.namespace.clone().unwrap_or_default(),
        pod: pod.metadata.name.clone().unwrap_or_default(),
        container: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        command: expanded(&container.command),
        args: expanded(&container.args),
        devices: devices.map(|devices| node.devices.given(devices)).unwrap_or_default(),
        node_devices: node.devices.physical(),
        mounts: mounts.collect(),
        privileged: container.security_context.as_ref().and_then(|context| context.privileged).unwrap_or(false),
        runtime_class: spec.and_then(|spec| spec.runtime_class_name.clone()),
        uid,
        environment,
    }
}
