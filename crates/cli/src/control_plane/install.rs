//! What a cluster needs before the control plane can work: definitions, namespaces, service accounts, classes, queues, settings.
//!
//! Everything is applied, so installing twice is installing once. Queues, the shard and the configuration are only created: whoever
//! has changed them since keeps what they chose.

use anyhow::Context as _;
use k8s_openapi::{
    api::{
        core::v1::{Namespace, ServiceAccount},
        node::v1::RuntimeClass,
        scheduling::v1::PriorityClass,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kai_api::{
    Config, Queue, SchedulingShard,
    names::{namespaces, objects},
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{fmt::Debug, time::Duration};

use super::rbac;

/// The manager of what is installed, in managed fields.
const MANAGER: &str = "kai";
/// How long a server may take to serve a new definition.
const ESTABLISHING: Duration = Duration::from_secs(30);

/// The classes of KAI with their values. From `build` on, a workload is not preempted.
const PRIORITIES: [(&str, i32, &str); 4] = [
    (objects::PRIORITY_TRAIN, 50, "Training: may be preempted."),
    (objects::PRIORITY_BUILD_PREEMPTIBLE, 75, "Interactive work that may be preempted."),
    (objects::PRIORITY_BUILD, 100, "Interactive work: is not preempted."),
    (objects::PRIORITY_INFERENCE, 125, "Inference: is not preempted."),
];

/// Installs everything and returns the kinds that are served now.
pub async fn install(client: &Client) -> anyhow::Result<Vec<String>> {
    let kinds = definitions(client).await?;
    for name in [namespaces::KAI, namespaces::RESERVATION] {
        apply::<Namespace>(Api::all(client.clone()), json!({ "metadata": { "name": name } })).await?;
    }
    for (name, value, description) in PRIORITIES {
        let class = json!({ "metadata": { "name": name }, "value": value, "description": description });
        apply::<PriorityClass>(Api::all(client.clone()), class).await?;
    }
    let runtime = json!({ "metadata": { "name": objects::NVIDIA_RUNTIME_CLASS }, "handler": "nvidia" });
    apply::<RuntimeClass>(Api::all(client.clone()), runtime).await?;
    accounts(client).await?;
    defaults(client).await?;
    Ok(kinds)
}

/// The service accounts of all components and of reservation pods.
async fn accounts(client: &Client) -> anyhow::Result<()> {
    for account in rbac::accounts(namespaces::KAI) {
        let namespace = account.namespace().unwrap_or_default();
        apply::<ServiceAccount>(Api::namespaced(client.clone(), &namespace), serde_json::to_value(account)?).await?;
    }
    Ok(())
}

/// Our kinds; returns when the server has accepted them.
pub async fn definitions(client: &Client) -> anyhow::Result<Vec<String>> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut kinds = Vec::new();
    for definition in kai_api::crds() {
        let name = definition.name_any();
        api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&definition))
            .await
            .with_context(|| format!("install the definition `{name}`"))?;
        let established = kube::runtime::wait::conditions::is_crd_established();
        let waiting = kube::runtime::wait::await_condition(api.clone(), &name, established);
        tokio::time::timeout(ESTABLISHING, waiting)
            .await
            .with_context(|| format!("the server does not accept the definition `{name}`"))??;
        kinds.push(definition.spec.names.kind);
    }
    Ok(kinds)
}

/// Queues for pods that name none, one shard for all nodes, and a configuration that says nothing yet.
async fn defaults(client: &Client) -> anyhow::Result<()> {
    let without_limit = json!({ "quota": -1, "limit": -1, "overQuotaWeight": 1 });
    let resources = json!({ "gpu": without_limit, "cpu": without_limit, "memory": without_limit });
    let parent = json!({
        "metadata": { "name": objects::DEFAULT_PARENT_QUEUE },
        "spec": { "resources": resources },
    });
    let leaf = json!({
        "metadata": { "name": objects::DEFAULT_QUEUE },
        "spec": { "parentQueue": objects::DEFAULT_PARENT_QUEUE, "resources": resources },
    });
    create_if_missing::<Queue>(client, parent).await?;
    create_if_missing::<Queue>(client, leaf).await?;
    let shard = json!({ "metadata": { "name": objects::DEFAULT_SHARD }, "spec": {} });
    create_if_missing::<SchedulingShard>(client, shard).await?;
    create_if_missing::<Config>(client, json!({ "metadata": { "name": objects::CONFIG }, "spec": {} })).await
}

async fn create_if_missing<K>(client: &Client, value: Value) -> anyhow::Result<()>
where
    K: Resource<Scope = kube::core::ClusterResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned,
{
    let object: K = serde_json::from_value(value)?;
    let name = object.name_any();
    match Api::<K>::all(client.clone()).create(&PostParams::default(), &object).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => Err(error).with_context(|| format!("create {} `{name}`", K::kind(&()))),
    }
}

async fn apply<K>(api: Api<K>, mut value: Value) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    value["apiVersion"] = json!(K::api_version(&()));
    value["kind"] = json!(K::kind(&()));
    let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&value))
        .await
        .with_context(|| format!("install {} `{name}`", K::kind(&())))?;
    Ok(())
}
