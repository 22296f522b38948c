//! etcd, kube-apiserver and kube-controller-manager in a temporary folder.
//!
//! ```text
//! etcd  <-- kube-apiserver <-- kube-controller-manager        (own account: system:kube-controller-manager)
//!                          <-- tests, kubectl                 (token of system:masters, or of any user a test asks for)
//!                          <-- kubelet of tier 3              (token of system:node:<name>, restricted to its own objects)
//! ```
//!
//! There is no scheduler: pods name their node, or the test brings a scheduler.

use std::{
    ffi::OsString,
    net::TcpListener,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{
    Api, Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use tokio::sync::OnceCell;
use uuid::Uuid;

use super::certificates::{Authority, service_account_keys};
use crate::{
    process::{Folder, Process},
    programs::Programs,
    wait,
};

const START: Duration = Duration::from_secs(90);

/// The name that the node of tier 3 has, known to the API server from its start.
pub const NODE_NAME: &str = "real-node";

static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();

/// A running control plane; dropping it ends its processes and removes its folder.
#[derive(Debug)]
pub struct ControlPlane {
    // In the order in which they are ended.
    controller_manager: Process,
    api_server: Process,
    etcd: Process,
    programs: Programs,
    url: String,
    token: String,
    kubeconfig: PathBuf,
    kubelet_kubeconfig: PathBuf,
    authority: PathBuf,
    folder: Folder,
}

impl ControlPlane {
    /// The one control plane that all tests of a test binary share. It ends with the process.
    pub async fn shared() -> Result<&'static Self> {
        SHARED.get_or_try_init(Self::start).await
    }

    /// Starts a control plane and waits until it answers and its controllers work.
    pub async fn start() -> Result<Self> {
        // A free port can be taken by someone else before the program listens on it: then another try finds others.
        let mut attempts = 0;
        loop {
            attempts += 1;
            match Self::try_start().await {
                Err(error) if attempts < 3 && format!("{error:#}").contains("address already in use") => {}
                result => return result,
            }
        }
    }

    async fn try_start() -> Result<Self> {
        let programs = Programs::find()?;
        let folder = Folder::create("control-plane")?;
        let etcd_url = format!("http://127.0.0.1:{}", free_port()?);
        let mut etcd = start_etcd(&programs, &folder, &etcd_url)?;
        let credentials = Credentials::write(&folder)?;
        let port = free_port()?;
        let url = format!("https://127.0.0.1:{port}");
        let mut api_server = start_api_server(&programs, &folder, &credentials, &etcd_url, port)?;

        let authority = folder.path().join("ca.crt");
        let kubeconfig_for =
            |name: &str, token: &str| folder.write(&format!("{name}.kubeconfig"), kubeconfig(&url, &authority, token));
        let kubeconfig = kubeconfig_for("admin", &credentials.admin)?;
        let kubelet_kubeconfig = kubeconfig_for("kubelet", &credentials.kubelet)?;
        let manager_kubeconfig = kubeconfig_for("controller-manager", &credentials.controller_manager)?;

        let client = client_from(&kubeconfig).await?;
        wait::until("the API server to be ready", START, async || {
            etcd.check()?;
            api_server.check()?;
            let request = http::Request::get("/readyz").body(Vec::new())?;
            Ok(client.request_text(request).await.ok().filter(|answer| answer == "ok"))
        })
        .await?;

        let mut controller_manager = start_controller_manager(&programs, &folder, &manager_kubeconfig)?;
        let accounts: Api<ServiceAccount> = Api::namespaced(client, "default");
        wait::until("the controllers to work (service account `default`)", START, async || {
            controller_manager.check()?;
            Ok(accounts.get_opt("default").await?)
        })
        .await?;
        let token = credentials.admin;
        Ok(Self {
            controller_manager,
            api_server,
            etcd,
            programs,
            url,
            token,
            kubeconfig,
            kubelet_kubeconfig,
            authority,
            folder,
        })
    }

    /// A client with all rights that never retries by itself. Each call makes a new one, for the calling runtime.
    pub async fn client(&self) -> Result<Client> {
        client_from(&self.kubeconfig).await
    }

    /// A client with the rights of `user` in `groups`, and no others.
    pub async fn client_as(&self, user: &str, groups: &[&str]) -> Result<Client> {
        let mut config = config_from(&self.kubeconfig).await?;
        config.auth_info.impersonate = Some(user.into());
        config.auth_info.impersonate_groups = Some(groups.iter().map(ToString::to_string).collect());
        Ok(Client::try_from(config)?)
    }

    /// A client that shows this token, such as that of a service account.
    pub async fn client_with_token(&self, token: &str) -> Result<Client> {
        let mut config = config_from(&self.kubeconfig).await?;
        config.auth_info.token = Some(token.to_owned().into());
        Ok(Client::try_from(config)?)
    }

    /// The API server's address, such as `https://127.0.0.1:6443`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The bearer token of the administrator.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// A kubeconfig file of the administrator.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The file with the certificate that signed the API server's, as PEM.
    pub fn certificate_authority(&self) -> &Path {
        &self.authority
    }

    /// The programs that this control plane runs, and kubectl of the same version.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// The folder with everything, logs included.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Fails with the end of its log if one of the processes has ended.
    pub fn check(&mut self) -> Result<()> {
        self.etcd.check()?;
        self.api_server.check()?;
        self.controller_manager.check()
    }

    pub(super) fn kubelet_kubeconfig(&self) -> &Path {
        &self.kubelet_kubeconfig
    }
}

/// The tokens that were written to the API server's token file, with the certificates beside it.
struct Credentials {
    admin: String,
    controller_manager: String,
    kubelet: String,
}

impl Credentials {
    fn write(folder: &Folder) -> Result<Self> {
        let authority = Authority::create()?;
        folder.write("ca.crt", &authority.certificate)?;
        let server = authority.server(&["127.0.0.1", "localhost", "kubernetes.default.svc", "10.0.0.1"])?;
        folder.write("server.crt", server.certificate)?;
        folder.write("server.key", server.key)?;
        let kubelet_client = authority.client("kube-apiserver-kubelet-client", "system:masters")?;
        folder.write("kubelet-client.crt", kubelet_client.certificate)?;
        folder.write("kubelet-client.key", kubelet_client.key)?;
        let (private, public) = service_account_keys()?;
        folder.write("service-account.key", private)?;
        folder.write("service-account.pub", public)?;

        let token = || Uuid::new_v4().simple().to_string();
        let credentials = Self { admin: token(), controller_manager: token(), kubelet: token() };
        let Self { admin, controller_manager, kubelet } = &credentials;
        let tokens = format!(
            "{admin},admin,admin,\"system:masters\"\n\
             {controller_manager},system:kube-controller-manager,controller-manager,\"\"\n\
             {kubelet},system:node:{NODE_NAME},kubelet,\"system:nodes\"\n"
        );
        folder.write("tokens.csv", tokens)?;
        Ok(credentials)
    }
}

fn start_etcd(programs: &Programs, folder: &Folder, url: &str) -> Result<Process> {
    let peer = format!("http://127.0.0.1:{}", free_port()?);
    let mut arguments = Arguments::default();
    arguments.add("data-dir", folder.path().join("etcd"));
    arguments.add("listen-client-urls", url).add("advertise-client-urls", url);
    arguments.add("listen-peer-urls", &peer).add("initial-advertise-peer-urls", &peer);
    arguments.add("initial-cluster", format!("default={peer}"));
    // Nothing here survives the test, so nothing needs to survive a power cut.
    arguments.add("unsafe-no-fsync", "true").add("log-level", "warn");
    Process::start("etcd", &programs.path("etcd"), &arguments.0, folder.path())
}

fn start_api_server(
    programs: &Programs,
    folder: &Folder,
    credentials: &Credentials,
    etcd_url: &str,
    port: u16,
) -> Result<Process> {
    debug_assert!(!credentials.admin.is_empty(), "the token file is written before the server reads it");
    let file = |name: &str| folder.path().join(name);
    let mut arguments = Arguments::default();
    arguments.add("etcd-servers", etcd_url);
    arguments.add("bind-address", "127.0.0.1").add("secure-port", port.to_string());
    arguments.add("cert-dir", file("apiserver"));
    arguments.add("tls-cert-file", file("server.crt")).add("tls-private-key-file", file("server.key"));
    arguments.add("client-ca-file", file("ca.crt")).add("token-auth-file", file("tokens.csv"));
    arguments.add("service-account-issuer", "https://kubernetes.default.svc");
    arguments.add("service-account-key-file", file("service-account.pub"));
    arguments.add("service-account-signing-key-file", file("service-account.key"));
    arguments.add("kubelet-client-certificate", file("kubelet-client.crt"));
    arguments.add("kubelet-client-key", file("kubelet-client.key"));
    arguments.add("kubelet-preferred-address-types", "InternalIP");
    arguments.add("authorization-mode", "Node,RBAC").add("enable-admission-plugins", "NodeRestriction");
    arguments.add("service-cluster-ip-range", "10.0.0.0/24").add("allow-privileged", "true");
    Process::start("kube-apiserver", &programs.path("kube-apiserver"), &arguments.0, folder.path())
}

fn start_controller_manager(programs: &Programs, folder: &Folder, kubeconfig: &Path) -> Result<Process> {
    let mut arguments = Arguments::default();
    arguments.add("kubeconfig", kubeconfig).add("use-service-account-credentials", "true");
    arguments.add("service-account-private-key-file", folder.path().join("service-account.key"));
    arguments.add("root-ca-file", folder.path().join("ca.crt"));
    // One manager, nobody to ask it anything over HTTP, and tests that should not wait for its rate limit.
    arguments.add("leader-elect", "false").add("secure-port", "0");
    arguments.add("kube-api-qps", "500").add("kube-api-burst", "1000");
    let program = programs.path("kube-controller-manager");
    Process::start("kube-controller-manager", &program, &arguments.0, folder.path())
}

/// Flags of the form `--name=value`.
#[derive(Default)]
pub(super) struct Arguments(pub(super) Vec<OsString>);

impl Arguments {
    pub(super) fn add(&mut self, name: &str, value: impl Into<OsString>) -> &mut Self {
        let mut argument = OsString::from(format!("--{name}="));
        argument.push(value.into());
        self.0.push(argument);
        self
    }
}

fn kubeconfig(url: &str, authority: &Path, token: &str) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "real", "cluster": {"server": url, "certificate-authority": authority}}],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [{"name": "real", "context": {"cluster": "real", "user": "user"}}],
        "current-context": "real",
    })
    .to_string()
}

async fn client_from(kubeconfig: &Path) -> Result<Client> {
    Ok(Client::try_from(config_from(kubeconfig).await?)?)
}

async fn config_from(kubeconfig: &Path) -> Result<Config> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    // A retry that nobody asked for would hide the answer that a test is about.
    config.default_retry = false;
    // The machine's proxy is for the internet, not for loopback.
    config.proxy_url = None;
    Ok(config)
}

/// A port that nobody listens on now.
pub(crate) fn free_port() -> Result<u16> {
    let port = TcpListener::bind("127.0.0.1:0").context("find a free port")?.local_addr()?.port();
    if port == 0 {
        bail!("the operating system gave port 0");
    }
    Ok(port)
}
