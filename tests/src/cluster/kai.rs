//! The control plane on a cluster: in process on tier 1; on tier 2 each component with nothing but its own service account.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kai_api::names::namespaces;
use kai_cli::control_plane::{
    ControlPlane, Part, Settings, install,
    rbac::{Grants, Holder, grants},
    reservation::InProcessPrograms,
};
use kai_clock::Clock;
use kai_kit::rbac::Right;
use kai_lab::cluster::Lab;
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{sync::Mutex, time::timeout};

use crate::{calls::Calls, real};

/// How long the control plane may take to be ready.
const START: Duration = Duration::from_mins(1);
/// Longer than any suite.
const TOKEN_SECONDS: i64 = 4 * 3600;

/// Who the components are on a cluster that has been made ready for them.
pub(super) struct Accounts {
    clients: BTreeMap<Holder, Client>,
    calls: Calls,
    clock: Clock,
    settings: Settings,
}

impl Accounts {
    /// On the embedded cluster, where nobody is asked who they are.
    pub(super) async fn embedded(lab: &Lab) -> Result<Self> {
        install::install(&lab.client()).await?;
        let clients = Holder::ALL.into_iter().map(|holder| (holder, lab.client())).collect();
        let mut settings = Settings::new(namespaces::KAI);
        settings.elect_leaders(true);
        settings.embedded = Some(lab.server().clone());
        Ok(Self { clients, calls: Calls::default(), clock: lab.clock(), settings })
    }

    /// On a real control plane: each component with its own account, and admission over TLS.
    pub(super) async fn real(server: &real::ControlPlane) -> Result<Self> {
        let admin = server.client().await?;
        install::install(&admin).await?;
        let mut clients = BTreeMap::new();
        for holder in Holder::ALL {
            grant(&admin, holder, &holder.rights(namespaces::KAI)).await?;
            let token = token(&admin, holder).await?;
            clients.insert(holder, server.client_with_token(&token).await?);
        }
        let mut settings = Settings::new(namespaces::KAI);
        settings.elect_leaders(true);
        settings.serve_admission_on_loopback(real::free_port()?);
        Ok(Self { clients, calls: Calls::default(), clock: Clock::real(), settings })
    }

    fn recorded(&self, holder: Holder) -> Result<Client> {
        let client = self.clients.get(&holder).context("everybody has a client")?;
        Ok(self.calls.record(holder, client.clone()))
    }

    /// Lets the programs of reservation pods reach the API server.
    pub(super) fn connect(&self, programs: &InProcessPrograms) -> Result<()> {
        programs.connect(self.recorded(Holder::Reservation)?);
        Ok(())
    }

    /// Starts the control plane and waits until it is ready.
    pub(super) async fn start(self) -> Result<Kai> {
        let mut clients = BTreeMap::new();
        for part in Part::ALL {
            clients.insert(part, self.recorded(Holder::Part(part))?);
        }
        let client_for = move |part: Part| clients[&part].clone();
        let mut control_plane = ControlPlane::start(&Part::ALL, client_for, self.clock, self.settings);
        match timeout(START, control_plane.ready()).await {
            Ok(ready) => ready?,
            Err(_) => anyhow::bail!("the control plane is not ready: {}", control_plane.unmet().join("; ")),
        }
        Ok(Kai { control_plane: Mutex::new(control_plane), calls: self.calls, clients: self.clients })
    }
}

/// A running control plane.
pub struct Kai {
    control_plane: Mutex<ControlPlane>,
    /// What its components have asked of the API server.
    pub calls: Calls,
    /// The client of each component, with the rights it has now.
    clients: BTreeMap<Holder, Client>,
}

impl Kai {
    /// A client with exactly the rights of a component.
    pub fn client_of(&self, holder: Holder) -> Result<Client> {
        self.clients.get(&holder).cloned().context("everybody has a client")
    }

    /// Kills a part and starts it again, as a new process.
    pub async fn restart(&self, part: Part) {
        self.control_plane.lock().await.start_part(part);
    }

    /// What the parts say that they lack.
    pub async fn unmet(&self) -> Vec<String> {
        self.control_plane.lock().await.unmet()
    }

    /// Waits until all parts are ready.
    pub async fn ready(&self) -> Result<()> {
        timeout(START, self.control_plane.lock().await.ready()).await.context("the control plane is not ready")?
    }

    pub(super) async fn stop(self) {
        self.control_plane.into_inner().shutdown().await;
    }
}

/// Gives a component exactly these of its rights, and takes the others away.
pub async fn grant(admin: &Client, holder: Holder, rights: &[Right]) -> Result<()> {
    let Grants { cluster, mut namespaced, .. } = grants(holder, namespaces::KAI, rights);
    // A role of which nothing is left must still be emptied.
    let all = grants(holder, namespaces::KAI, &holder.rights(namespaces::KAI));
    for (mut role, binding) in all.namespaced {
        if !namespaced.iter().any(|(kept, _)| kept.namespace() == role.namespace()) {
            role.rules = Some(Vec::new());
            namespaced.push((role, binding));
        }
    }
    if let Some((role, binding)) = cluster {
        apply(Api::all(admin.clone()), &role).await?;
        apply(Api::all(admin.clone()), &binding).await?;
    }
    for (role, binding) in namespaced {
        let namespace = role.namespace().unwrap_or_default();
        apply(Api::namespaced(admin.clone(), &namespace), &role).await?;
        apply(Api::namespaced(admin.clone(), &namespace), &binding).await?;
    }
    Ok(())
}

async fn apply<K>(api: Api<K>, object: &K) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let name = object.name_any();
    let parameters = PatchParams::apply("kai-tests").force();
    api.patch(&name, &parameters, &Patch::Apply(object)).await.with_context(|| format!("grant `{name}`"))?;
    Ok(())
}

async fn token(admin: &Client, holder: Holder) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), holder.namespace(namespaces::KAI));
    let request = TokenRequest {
        spec: TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() },
        ..TokenRequest::default()
    };
    let answer = accounts.create_token_request(&holder.account(), &PostParams::default(), &request).await?;
    Ok(answer.status.context("the server gave no token")?.token)
}
