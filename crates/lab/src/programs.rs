//! Containers that are run by real programs instead of sleeping ones.
//!
//! Whoever starts nodes may give them [`Programs`]. It is asked at every container start; if it answers, its program is the
//! container: its lines are the log, its exit code ends the container, and the restart policy starts it again. The lab itself
//! knows no program.

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::environment::Environment;

/// Knows which containers are run by real programs.
pub trait Programs: Send + Sync {
    /// The program of a container that starts now; nothing if it is to be simulated.
    fn start(&self, start: ContainerStart) -> Option<RunningProgram>;
}

/// A container that is about to start, as its runtime sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerStart {
    /// Name of the node.
    pub node: String,
    /// Labels of the node, as the API has them.
    pub node_labels: BTreeMap<String, String>,
    /// `nodeInfo.kernelVersion` of the node.
    pub kernel: String,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Uid of the pod.
    pub uid: String,
    /// Name of the container.
    pub container: String,
    /// Image as written.
    pub image: String,
    /// Entry point, `$(NAME)` expanded; empty means the image's own.
    pub command: Vec<String>,
    /// Arguments, `$(NAME)` expanded.
    pub args: Vec<String>,
    /// What the container is told.
    pub environment: Environment,
    /// What the device plugins gave it, by resource.
    pub devices: BTreeMap<String, Vec<GivenDevice>>,
    /// All physical devices of the node, by resource.
    pub node_devices: BTreeMap<String, Vec<GivenDevice>>,
    /// Its mounts of the node's file system.
    pub mounts: Vec<HostMount>,
    /// Whether it may do anything, devices included.
    pub privileged: bool,
    /// `runtimeClassName` of the pod.
    pub runtime_class: Option<String>,
}

/// A device as a container gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenDevice {
    /// The plugin's name for it, such as `GPU-…`, `GPU-…::3` or `tegra::0`.
    pub id: String,
    /// What NVML calls it, such as `GPU-…` or `MIG-…`.
    pub uuid: String,
    /// What `NVIDIA_VISIBLE_DEVICES` calls it.
    pub visible_as: String,
}

/// A folder or file of the node that a container sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMount {
    /// Where on the node.
    pub host_path: String,
    /// Where in the container.
    pub mount_path: String,
    /// Whether it cannot be written to.
    pub read_only: bool,
}

impl ContainerStart {
    /// The GPUs the NVIDIA runtime would put into the container, by `NVIDIA_VISIBLE_DEVICES`: `all`, names or indices of the
    /// node's devices; nothing, `void` or `none` for no GPU. Each physical device at most once, in the order of the hardware.
    pub fn visible_gpus(&self) -> Vec<GivenDevice> {
        let wanted = self.environment.get("NVIDIA_VISIBLE_DEVICES").map_or("", |text| text.trim());
        let wanted: Vec<&str> =
            wanted.split(',').map(|name| name.rsplit_once("gpu=").map_or(name, |(_, id)| id)).collect();
        let all = wanted.contains(&"all");
        let devices = self.node_devices.values().flatten().enumerate();
        let chosen = devices.filter(|(index, device)| {
            let names = [device.uuid.as_str(), device.visible_as.as_str(), device.id.as_str()];
            all || wanted.iter().any(|name| names.contains(name) || *name == index.to_string())
        });
        chosen.map(|(_, device)| device.clone()).collect()
    }

    /// A GPU that the container is told by UUID and the machine does not have: the NVIDIA runtime does not start such a container.
    pub fn unknown_gpu(&self) -> Option<&str> {
        let told = self.environment.get("NVIDIA_VISIBLE_DEVICES")?;
        let names = told.split(',').map(|name| name.rsplit_once("gpu=").map_or(name, |(_, id)| id));
        let mut devices = self.node_devices.values().flatten().peekable();
        // Machines without GPUs have another runtime, which does not care.
        devices.peek()?;
        let known: Vec<&str> = devices.map(|device| device.uuid.as_str()).collect();
        names.into_iter().find(|name| name.starts_with("GPU-") && !known.contains(name))
    }
}

/// Exit code of a program that was killed.
const SIGKILLED: i32 = 137;

/// A program that has been started.
pub struct RunningProgram {
    pub(crate) lines: mpsc::UnboundedReceiver<String>,
    pub(crate) exit: BoxFuture<'static, i32>,
    pub(crate) stop: CancellationToken,
}

/// Where a program prints.
#[derive(Clone, Debug)]
pub struct Output(mpsc::UnboundedSender<String>);

impl Output {
    /// Prints a line to the container's log.
    pub fn line(&self, line: impl Into<String>) {
        // A container that is gone has no log.
        let _ = self.0.send(line.into());
    }
}

impl RunningProgram {
    /// A program as a future. It prints to [`Output`], should end soon after the token fires (SIGTERM) and yields its exit code;
    /// it is dropped when the grace period is over (SIGKILL).
    pub fn new<F>(program: impl FnOnce(Output, CancellationToken) -> F) -> Self
    where
        F: Future<Output = i32> + Send + 'static,
    {
        let (sender, lines) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        let exit = program(Output(sender), stop.clone());
        Self { lines, exit: Box::pin(exit), stop }
    }

    /// The same program, which also ends at once, without a goodbye, when `killed` fires.
    #[must_use]
    pub fn killed_by(self, killed: CancellationToken) -> Self {
        let exit = self.exit;
        let either = async move {
            tokio::select! {
                biased;
                () = killed.cancelled() => SIGKILLED,
                code = exit => code,
            }
        };
        Self { lines: self.lines, exit: Box::pin(either), stop: self.stop }
    }
}

impl std::fmt::Debug for RunningProgram {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RunningProgram").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(told: &str, devices: &[&str]) -> ContainerStart {
        let device = |name: &&str| GivenDevice { id: (*name).into(), uuid: (*name).into(), visible_as: (*name).into() };
        ContainerStart {
            node: "node".into(),
            node_labels: BTreeMap::new(),
            kernel: String::new(),
            namespace: "default".into(),
            pod: "pod".into(),
            uid: "1".into(),
            container: "main".into(),
            image: String::new(),
            command: Vec::new(),
            args: Vec::new(),
            environment: BTreeMap::from([("NVIDIA_VISIBLE_DEVICES".into(), told.into())]),
            devices: BTreeMap::new(),
            node_devices: BTreeMap::from([("nvidia.com/gpu".into(), devices.iter().map(device).collect())]),
            mounts: Vec::new(),
            privileged: false,
            runtime_class: None,
        }
    }

    #[test]
    fn a_container_that_is_told_a_gpu_of_another_machine_does_not_start() {
        assert_eq!(start("GPU-1,GPU-2", &["GPU-1", "GPU-3"]).unknown_gpu(), Some("GPU-2"));
        assert_eq!(start("k8s.device-plugin.nvidia.com/gpu=GPU-2", &["GPU-1"]).unknown_gpu(), Some("GPU-2"));
        for fine in ["GPU-1", "0", "all", "void", ""] {
            assert_eq!(start(fine, &["GPU-1"]).unknown_gpu(), None, "{fine}");
        }
        assert_eq!(start("GPU-1", &[]).unknown_gpu(), None, "without GPUs nobody looks");
    }
}
