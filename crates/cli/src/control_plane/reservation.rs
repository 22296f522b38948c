//! The program of reservation pods on simulated nodes: the real one, against a fake NVML that shows what the container would see.
//!
//! What a container sees follows what was found on real machines. On ordinary machines the runtime class puts library and devices
//! in. On Tegra it does not: the library must be mounted and named, and devices are there only for a privileged container with
//! `/dev`. So a reservation pod that is made wrongly fails here as it fails there.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, OnceLock},
};

use anyhow::Context as _;
use kai_api::names::{namespaces, node_labels, objects, resources};
use kai_fake_nvml::{FakeDevice, VARIABLE, describe, describe_error};
use kai_gpu::{Devices, Gpu, Problem};
use kai_lab::programs::{ContainerStart, Output, Programs, RunningProgram};
use kube::Client;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, BufReader},
    process::Command,
};
use tokio_util::sync::CancellationToken;

/// Where Jetson boards keep the library.
const TEGRA_LIBRARIES: &str = "/usr/lib/aarch64-linux-gnu/nvidia";
/// How reservation pods are called, by us and by KAI.
const PREFIX: &str = "gpu-reservation-";

/// What NVML in a container would find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// No `libnvidia-ml.so.1`.
    NoLibrary,
    /// A library that reaches no driver.
    NoDriver,
    /// These devices.
    Devices(Vec<FakeDevice>),
}

/// Whether a container is that of a reservation pod.
fn is_reservation(start: &ContainerStart) -> bool {
    start.namespace == namespaces::RESERVATION && start.pod.starts_with(PREFIX)
}

/// What a container would see, by its own mounts, privileges and runtime class.
pub fn sight(start: &ContainerStart) -> Sight {
    let (library, driver) = if start.kernel.ends_with("-tegra") {
        let mounted = |path: &str| start.mounts.iter().find(|mount| mount.host_path == path);
        let named = |folder: &str| {
            let path = start.environment.get("LD_LIBRARY_PATH").map_or("", String::as_str);
            path.split(':').any(|part| part == folder)
        };
        let library = mounted(TEGRA_LIBRARIES).is_some_and(|mount| named(&mount.mount_path));
        let devices =
            start.mounts.iter().any(|mount| mount.host_path == "/dev" || mount.host_path.starts_with("/dev/nv"));
        (library, devices && start.privileged)
    } else {
        let class = start.runtime_class.as_deref() == Some(objects::NVIDIA_RUNTIME_CLASS);
        (class, class)
    };
    if !library {
        return Sight::NoLibrary;
    }
    if !driver {
        return Sight::NoDriver;
    }
    let given = start.devices.get(resources::NVIDIA_GPU).into_iter().flatten();
    let uuids: BTreeSet<&String> = given.map(|device| &device.uuid).collect();
    let label = |name: &str| start.node_labels.get(name).cloned();
    let name = label("nvidia.com/gpu.product").unwrap_or_else(|| "NVIDIA GPU".to_owned()).replace('-', " ");
    let memory_mib = label(node_labels::GPU_MEMORY).and_then(|text| text.parse().ok());
    let device = |uuid: &String| FakeDevice { uuid: uuid.clone(), name: name.clone(), memory_mib, mig: Vec::new() };
    Sight::Devices(uuids.into_iter().map(device).collect())
}

/// Runs the program as a child process, `kai resource-reservation`, against the fake library: for clusters in real time.
#[derive(Debug)]
pub struct ChildPrograms {
    program: PathBuf,
    kubeconfig: PathBuf,
    /// The folder with the library; it goes when this does.
    library: tempfile::TempDir,
}

impl ChildPrograms {
    /// Children find the API server through `kubeconfig`.
    pub fn new(kubeconfig: &Path) -> anyhow::Result<Self> {
        let library =
            tempfile::Builder::new().prefix("kai-nvml-").tempdir().context("make a folder for the library")?;
        kai_fake_nvml::write_to(library.path()).context("write the library")?;
        let program = std::env::current_exe().context("find this program")?;
        Ok(Self { program, kubeconfig: std::path::absolute(kubeconfig)?, library })
    }

    fn command(&self, start: &ContainerStart) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["resource-reservation", "--end-with-parent", "--log=info"]);
        command.env_clear().envs(&start.environment).env("KUBECONFIG", &self.kubeconfig);
        match sight(start) {
            Sight::NoLibrary => command.env_remove("LD_LIBRARY_PATH"),
            Sight::NoDriver => self.with_library(&mut command, &describe_error("driver-not-loaded")),
            Sight::Devices(seen) => self.with_library(&mut command, &describe(&seen)),
        };
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    fn with_library<'a>(&self, command: &'a mut Command, seen: &str) -> &'a mut Command {
        command.env("LD_LIBRARY_PATH", self.library.path()).env(VARIABLE, seen)
    }
}

impl Programs for ChildPrograms {
    fn start(&self, start: ContainerStart) -> Option<RunningProgram> {
        if !is_reservation(&start) {
            return None;
        }
        let command = self.command(&start);
        Some(RunningProgram::new(|output, stop| child(command, output, stop)))
    }
}

/// Exit code of a program that could not be started, as shells give it.
const CANNOT_START: i32 = 127;
/// Exit code of a program that a signal has ended.
const SIGNALLED: i32 = 143;

async fn child(mut command: Command, output: Output, stop: CancellationToken) -> i32 {
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            output.line(format!("cannot start: {error}"));
            return CANNOT_START;
        }
    };
    let printing = [child.stdout.take().map(boxed), child.stderr.take().map(boxed)];
    let printing =
        futures::future::join_all(printing.into_iter().flatten().map(|stream| print(stream, output.clone())));
    let waiting = async {
        tokio::select! {
            status = child.wait() => return status,
            () = stop.cancelled() => {}
        }
        let id = child.id().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(id) = id {
            // It may have ended by itself just now.
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
        child.wait().await
    };
    let (_, status) = tokio::join!(printing, waiting);
    status.ok().and_then(|status| status.code()).unwrap_or(SIGNALLED)
}

fn boxed(stream: impl AsyncRead + Send + Unpin + 'static) -> Box<dyn AsyncRead + Send + Unpin> {
    Box::new(stream)
}

async fn print(stream: Box<dyn AsyncRead + Send + Unpin>, output: Output) {
    let mut lines = BufReader::new(stream).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        output.line(line);
    }
}

/// Runs the same program in this process, for virtual time and for many pods.
#[derive(Default)]
pub struct InProcessPrograms {
    client: OnceLock<Client>,
}

impl InProcessPrograms {
    /// Lets programs reach the API server. What starts earlier fails and is started again by its kubelet.
    pub fn connect(&self, client: Client) {
        // A second client would be one for the same server.
        let _ = self.client.set(client);
    }
}

impl Programs for InProcessPrograms {
    fn start(&self, start: ContainerStart) -> Option<RunningProgram> {
        if !is_reservation(&start) {
            return None;
        }
        let client = self.client.get().cloned();
        Some(RunningProgram::new(move |output, stop| in_process(client, start, output, stop)))
    }
}

/// What a container sees, as the program asks for it.
impl Devices for Sight {
    fn list(&self) -> Result<Vec<Gpu>, Problem> {
        match self {
            Self::NoLibrary => Err(Problem::LibraryNotFound { detail: "no such file".to_owned() }),
            Self::NoDriver => Err(Problem::DriverNotLoaded),
            Self::Devices(seen) => {
                let gpu = |device: &FakeDevice| Gpu {
                    uuid: device.uuid.clone(),
                    name: device.name.clone(),
                    memory: device.memory_mib.map(|memory| memory << 20),
                    ..Gpu::default()
                };
                Ok(seen.iter().map(gpu).collect())
            }
        }
    }
}

async fn in_process(client: Option<Client>, start: ContainerStart, output: Output, stop: CancellationToken) -> i32 {
    let Some(client) = client else {
        output.line("there is no API server yet");
        return 1;
    };
    let told = |name: &str| start.environment.get(name).cloned().unwrap_or_default();
    let options = kai_reservation::Options { pod_name: told("POD_NAME"), pod_namespace: told("POD_NAMESPACE") };
    let lines = output.clone();
    let program = kai_reservation::in_process(Arc::new(sight(&start)));
    let program = program.saying(Arc::new(move |progress| lines.line(progress.to_string())));
    match program.run(options, client, stop).await {
        Ok(()) => 0,
        Err(error) => {
            output.line(format!("error: {error}"));
            1
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kai_lab::programs::{GivenDevice, HostMount};

    use super::*;

    fn start(kernel: &str) -> ContainerStart {
        let device = GivenDevice { id: "GPU-1::0".into(), uuid: "GPU-1".into(), visible_as: "GPU-1".into() };
        ContainerStart {
            node: "node".into(),
            node_labels: BTreeMap::from([("nvidia.com/gpu.memory".into(), "15360".into())]),
            kernel: kernel.into(),
            namespace: namespaces::RESERVATION.into(),
            pod: "gpu-reservation-0".into(),
            uid: "1".into(),
            container: "main".into(),
            image: String::new(),
            command: Vec::new(),
            args: Vec::new(),
            environment: BTreeMap::new(),
            devices: BTreeMap::from([(resources::NVIDIA_GPU.into(), vec![device.clone(), device])]),
            node_devices: BTreeMap::new(),
            mounts: Vec::new(),
            privileged: false,
            runtime_class: Some("nvidia".into()),
        }
    }

    fn mount(path: &str) -> HostMount {
        HostMount { host_path: path.into(), mount_path: path.into(), read_only: true }
    }

    #[test]
    fn on_ordinary_machines_the_runtime_class_shows_the_device_once() {
        let Sight::Devices(seen) = sight(&start("6.8.0-generic")) else { panic!("it sees nothing") };
        let uuids: Vec<&str> = seen.iter().map(|device| device.uuid.as_str()).collect();
        assert_eq!((uuids, seen[0].memory_mib), (vec!["GPU-1"], Some(15_360)));
        let bare = ContainerStart { runtime_class: None, ..start("6.8.0-generic") };
        assert_eq!(sight(&bare), Sight::NoLibrary);
    }

    #[test]
    fn on_tegra_each_missing_part_is_missed() {
        let mut container = start("6.8.12-tegra");
        assert_eq!(sight(&container), Sight::NoLibrary);
        container.mounts.push(mount(TEGRA_LIBRARIES));
        assert_eq!(sight(&container), Sight::NoLibrary, "nobody looks into that folder by itself");
        container.environment.insert("LD_LIBRARY_PATH".into(), TEGRA_LIBRARIES.into());
        assert_eq!(sight(&container), Sight::NoDriver);
        container.mounts.push(mount("/dev"));
        assert_eq!(sight(&container), Sight::NoDriver);
        container.privileged = true;
        assert!(matches!(sight(&container), Sight::Devices(seen) if seen.len() == 1));
    }
}
