//! A real kubelet on a real containerd, joined to a real control plane; only the GPU has to be fake.
//!
//! The node runs in a process and a mount namespace of its own (`node.sh`): ending its first process ends containerd, kubelet and
//! every container, and takes all mounts and pod networks along, whatever state they were in. What is left are the containers'
//! control groups and one folder; both are removed on drop, or by a waiting shell should this process be killed. Images are
//! made here ([`crate::oci_image`]), because no registry can be relied on.

use std::{
    fs, io,
    net::{IpAddr, UdpSocket},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use serde_json::json;
use uuid::Uuid;

use super::control_plane::{Arguments, ControlPlane, NODE_NAME, free_port};
use crate::{
    oci_image::Image,
    process::{Folder, Process},
    programs::{Programs, on_path},
    wait,
};

/// The image that pods of the tests run: busybox with all its commands.
pub const IMAGE: &str = "kai.test/busybox:1";
const PAUSE_IMAGE: &str = "kai.test/pause:1";
const START: Duration = Duration::from_mins(2);
const CNI_FOLDERS: [&str; 2] = ["/usr/lib/cni", "/opt/cni/bin"];
/// Where containerd 1 and 2 keep one folder for each running container, below the node's folder.
const TASKS: &str = "containerd/state/io.containerd.runtime.v2.task/k8s.io";
const NODE_SCRIPT: &str = include_str!("node.sh");

/// A running node; dropping it ends everything on it.
#[derive(Debug)]
pub struct RealNode {
    // In the order in which they are ended.
    process: Process,
    groups: ControlGroups,
    folder: Folder,
    control_plane: ControlPlane,
}

impl RealNode {
    /// What this machine lacks for a node, with the remedy; none if a node can be started.
    pub fn missing() -> Option<String> {
        if let Err(error) = Programs::find() {
            return Some(format!("{error:#}"));
        }
        if !rustix::process::geteuid().is_root() {
            return Some("a real node needs root".into());
        }
        let programs = ["containerd", "ctr", "runc", "busybox", "unshare", "setpriv"];
        let absent: Vec<_> = programs.into_iter().filter(|name| on_path(name).is_none()).collect();
        if !absent.is_empty() {
            return Some(format!(
                "{} not found\nhint: on Debian `apt-get install containerd runc busybox-static util-linux`",
                absent.join(", ")
            ));
        }
        if cni_folder().is_none() {
            let folders = CNI_FOLDERS.join(" and ");
            return Some(format!(
                "no CNI plugins in {folders}\nhint: on Debian `apt-get install containernetworking-plugins`"
            ));
        }
        None
    }

    /// Starts a control plane and a node, and waits until the node is ready.
    pub async fn start() -> Result<Self> {
        if let Some(missing) = Self::missing() {
            bail!("{missing}");
        }
        let control_plane = ControlPlane::start().await?;
        let folder = Folder::create("node")?;
        let groups = ControlGroups { tasks: folder.path().join(TASKS) };
        if folder.path().starts_with("/run") || folder.path().starts_with("/var/lib") {
            bail!("a node hides `{}`\nhint: set TMPDIR to another folder", folder.path().display());
        }
        write_containerd_config(&folder)?;
        let arguments = kubelet_arguments(&folder, &control_plane)?;
        let process = start_process(&folder, &control_plane, arguments)?;
        let mut node = Self { process, groups, folder, control_plane };
        node.import_base_images().await?;
        node.wait_until_ready().await?;
        Ok(node)
    }

    /// The control plane that the node belongs to.
    pub fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// The folder with everything of the node, logs included.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Gives the node an image to run; pods name it as the image does, with `imagePullPolicy: Never` or `IfNotPresent`.
    pub fn import(&self, image: &Image) -> Result<()> {
        let archive = self.folder.path().join(format!("{}.tar", Uuid::new_v4().simple()));
        image.write_archive(&archive)?;
        let ctr = on_path("ctr").context("`ctr` is not on the PATH")?;
        let mut command = Command::new(ctr);
        command.arg("--address").arg(self.socket()).args(["--namespace", "k8s.io", "images", "import"]);
        let output = command.args(["--snapshotter", "native"]).arg(&archive).output().context("run `ctr`")?;
        fs::remove_file(&archive)?;
        if !output.status.success() {
            bail!("import image `{}`: {}", image.name(), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }

    /// What a container wrote, read from the node's log folder as a log collector would.
    pub fn log(&self, pod: &Pod, container: &str) -> Result<String> {
        let uid = pod.uid().context("the pod has no uid")?;
        let pod_folder = format!("{}_{}_{uid}", pod.namespace().unwrap_or_default(), pod.name_any());
        let path = self.logs().join(pod_folder).join(container).join("0.log");
        let text = fs::read_to_string(&path).with_context(|| format!("read `{}`", path.display()))?;
        // Each line is: time, stream, F(ull) or P(artial), the text.
        let lines = text.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap_or_default());
        Ok(lines.collect::<Vec<_>>().join("\n"))
    }

    /// Deletes all pods as a drain would, then ends the node. Dropping does the same without asking the pods first.
    pub async fn stop(mut self) -> Result<()> {
        self.process.check()?;
        let client = self.control_plane.client().await?;
        delete_pods(client).await?;
        self.process.stop(Duration::ZERO);
        self.groups.remove()
    }

    async fn import_base_images(&mut self) -> Result<()> {
        let socket = self.socket();
        let process = &mut self.process;
        wait::until("containerd to listen", START, async || {
            process.check()?;
            Ok(socket.exists().then_some(()))
        })
        .await?;
        for image in [busybox(IMAGE, &["/bin/sh"])?, busybox(PAUSE_IMAGE, &["/bin/sleep", "2147483647"])?] {
            self.import(&image)?;
        }
        self.folder.write("images-are-there", "").map(drop)
    }

    async fn wait_until_ready(&mut self) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.control_plane.client().await?);
        let process = &mut self.process;
        let ready = wait::until("the node to be ready", START, async || {
            process.check()?;
            Ok(nodes.get_opt(NODE_NAME).await?.filter(is_ready))
        });
        ready.await.map(drop).with_context(|| format!("kubelet's last words:\n{}", self.process.log_tail(20)))
    }

    fn socket(&self) -> PathBuf {
        socket(&self.folder)
    }

    fn logs(&self) -> PathBuf {
        self.folder.path().join("logs")
    }
}

/// Whether a node says that it can run pods.
pub fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Deletes every namespace that is not Kubernetes' own, so that no controller makes new pods, and what pods there are then.
async fn delete_pods(client: Client) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for namespace in namespaces.list(&ListParams::default()).await? {
        let name = namespace.name_any();
        let is_going = namespace.metadata.deletion_timestamp.is_some();
        if name != "default" && !name.starts_with("kube-") && !is_going {
            missing_is_fine(namespaces.delete(&name, &DeleteParams::default()).await)?;
        }
    }
    let all: Api<Pod> = Api::all(client.clone());
    for pod in all.list(&ListParams::default()).await? {
        let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
        missing_is_fine(pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(1)).await)?;
    }
    wait::until("all pods to be gone", Duration::from_mins(1), async || {
        Ok(all.list(&ListParams::default()).await?.items.is_empty().then_some(()))
    })
    .await
}

fn missing_is_fine<T>(result: kube::Result<T>) -> kube::Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        result => result.map(drop),
    }
}

fn start_process(folder: &Folder, control_plane: &ControlPlane, kubelet: Arguments) -> Result<Process> {
    let script = folder.write("node.sh", NODE_SCRIPT)?;
    let unshare = on_path("unshare").context("`unshare` is not on the PATH")?;
    let flags = ["--mount", "--propagation", "slave", "--pid", "--fork", "--kill-child", "--mount-proc", "sh"];
    let mut arguments: Vec<_> = flags.map(Into::into).into();
    arguments.extend([script.into(), folder.path().into(), control_plane.programs().path("kubelet").into()]);
    arguments.extend(kubelet.0);
    Process::start("node", &unshare, &arguments, folder.path())
}

fn write_containerd_config(folder: &Folder) -> Result<()> {
    let path = |name: &str| folder.path().join(name).display().to_string();
    let bin = cni_folder().context("no CNI plugins")?;
    // `native` copies instead of overlaying: it works on any file system, and our images are two megabytes.
    // `restrict_oom_score_adj`: root in a container often may not lower its score, and every pod would fail on that.
    let config = format!(
        r#"version = 2
root = "{root}"
state = "{state}"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE_IMAGE}"
restrict_oom_score_adj = true
disable_tcp_service = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{bin}"
conf_dir = "{network}"
"#,
        root = path("containerd/root"),
        state = path("containerd/state"),
        socket = socket(folder).display(),
        bin = bin.display(),
        network = path("network"),
    );
    folder.write("containerd.toml", config)?;
    fs::create_dir(folder.path().join("network"))?;
    // Routes to pods are the machine's: nodes of two test runs at a time need two ranges of addresses.
    let range = Uuid::new_v4().into_bytes()[0];
    let network = json!({
        "cniVersion": "0.4.0",
        "name": "kai",
        "plugins": [{
            "type": "ptp",
            "ipam": {
                "type": "host-local",
                "dataDir": path("addresses"),
                "ranges": [[{"subnet": format!("10.213.{range}.0/24")}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    });
    folder.write("network/10-kai.conflist", network.to_string()).map(drop)
}

fn kubelet_arguments(folder: &Folder, control_plane: &ControlPlane) -> Result<Arguments> {
    let path = |name: &str| folder.path().join(name);
    let address = machine_address()?;
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": format!("unix://{}", socket(folder).display()),
        "podLogsDir": path("logs"),
        "resolvConf": folder.write("resolv.conf", "nameserver 127.0.0.1\n")?,
        "address": address,
        "port": free_port()?,
        "healthzPort": 0,
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": control_plane.certificate_authority()},
        },
        "authorization": {"mode": "Webhook"},
        // The machine may have cgroup v1, swap and a full disk, and is not ours to reserve parts of.
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "failSwapOn": false,
        "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1Mi", "imagefs.available": "1Mi"},
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": false,
    });
    let mut arguments = Arguments::default();
    arguments.add("config", folder.write("kubelet.json", config.to_string())?);
    arguments.add("kubeconfig", control_plane.kubelet_kubeconfig()).add("root-dir", path("kubelet"));
    arguments.add("cert-dir", path("kubelet-certificates"));
    arguments.add("hostname-override", NODE_NAME).add("node-ip", address.to_string());
    Ok(arguments)
}

/// The address by which this machine would reach another one; a kubelet takes no loopback address. Nothing is sent.
fn machine_address() -> Result<IpAddr> {
    let find = || -> io::Result<IpAddr> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect("192.0.2.1:9")?;
        Ok(socket.local_addr()?.ip())
    };
    find().context("find this machine's address\nhint: a real node needs a default route")
}

fn busybox(name: &str, entrypoint: &[&str]) -> Result<Image> {
    let program = on_path("busybox").context("`busybox` is not on the PATH")?;
    let commands = Command::new(&program).arg("--list").output().context("run `busybox --list`")?;
    let mut image = Image::new(name, entrypoint);
    image.add_file("/bin/busybox", 0o755, fs::read(&program)?);
    for command in String::from_utf8_lossy(&commands.stdout).lines().filter(|command| *command != "busybox") {
        image.add_link(&format!("/bin/{command}"), "busybox");
    }
    image.add_folder("/tmp").add_file("/etc/passwd", 0o644, "root:x:0:0:root:/:/bin/sh\n");
    Ok(image)
}

fn cni_folder() -> Option<PathBuf> {
    let has_plugins =
        |folder: &PathBuf| ["ptp", "host-local", "loopback"].iter().all(|name| folder.join(name).is_file());
    CNI_FOLDERS.map(PathBuf::from).into_iter().find(has_plugins)
}

fn socket(folder: &Folder) -> PathBuf {
    folder.path().join("containerd.sock")
}

/// The control groups of one node's containers, in every hierarchy of the machine; removed on drop.
///
/// runc removes those of containers that end in an orderly way. What is left belongs to the tasks that containerd still had when
/// the node was ended, and their ids are the names of the folders in its state.
#[derive(Debug)]
struct ControlGroups {
    tasks: PathBuf,
}

impl ControlGroups {
    /// The group that containerd's containers are in, once for each hierarchy. Others' containers may be there as well.
    fn parents() -> Vec<PathBuf> {
        let root = Path::new("/sys/fs/cgroup");
        folders_in(root).chain([root.into()]).map(|hierarchy| hierarchy.join("k8s.io")).collect()
    }

    fn existing(&self) -> Vec<PathBuf> {
        let parents = Self::parents();
        let ids = folders_in(&self.tasks).filter_map(|task| task.file_name().map(PathBuf::from));
        let groups = ids.flat_map(|id| parents.iter().map(move |parent| parent.join(&id)));
        groups.filter(|path| path.is_dir()).collect()
    }

    fn remove(&self) -> Result<()> {
        // A group can be removed when the kernel has let go of its last process, shortly after that was ended.
        for _ in 0..100 {
            self.existing().iter().for_each(|group| remove_groups(group, 8));
            if self.existing().is_empty() {
                // Only an empty group can be removed.
                for parent in Self::parents() {
                    drop(fs::remove_dir(parent));
                }
                return Ok(());
            }
            thread::sleep(Duration::from_millis(50));
        }
        bail!("control groups are left: {:?}", self.existing())
    }
}

impl Drop for ControlGroups {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            eprintln!("warning: {error:#}");
        }
    }
}

fn remove_groups(group: &Path, depth: u32) {
    if depth > 0 {
        folders_in(group).for_each(|inner| remove_groups(&inner, depth - 1));
    }
    // A busy group is tried again by the caller.
    drop(fs::remove_dir(group));
}

fn folders_in(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir())
}
