//! What every case starts from: a server, a namespace of its own, and small objects to send.

use anyhow::Result;
use kai_tests::cluster::{Cluster, PATIENCE};
use kai_tests::harness::Tier;
use kai_tests::request::{Answer, PatchKind, Server};
use kai_tests::wait;
use serde_json::{Value, json};

/// A server with a fresh namespace.
pub struct Setting {
    /// Where requests go.
    pub server: Server,
    /// The case's own namespace.
    pub namespace: String,
}

impl Setting {
    /// Makes the namespace.
    pub async fn new(cluster: &Cluster) -> Result<Self> {
        let setting =
            Self { server: Server::new(cluster.client()), namespace: cluster.namespace("conformance").await? };
        if cluster.tier() != Tier::Embedded {
            // A controller puts a config map into every namespace; a case that watches must not see it come.
            wait::until("the namespace to be furnished", PATIENCE, async || {
                Ok((setting.server.get(&setting.core("configmaps/kube-root-ca.crt")).await?.status == 200)
                    .then_some(()))
            })
            .await?;
        }
        Ok(setting)
    }

    /// Path of a core resource in the case's namespace, such as `configmaps` or `configmaps/a`.
    pub fn core(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.namespace)
    }

    /// Path of a resource of a group (`apps/v1`) in the case's namespace.
    pub fn group(&self, group_version: &str, rest: &str) -> String {
        format!("/apis/{group_version}/namespaces/{}/{rest}", self.namespace)
    }

    /// Server-side apply by a manager; `path` has no query.
    pub async fn apply(&self, path: &str, manager: &str, body: &Value) -> Result<Answer> {
        self.server.patch(PatchKind::Apply, &format!("{path}?fieldManager={manager}"), body).await
    }

    /// Server-side apply that takes what others own.
    pub async fn force_apply(&self, path: &str, manager: &str, body: &Value) -> Result<Answer> {
        self.server.patch(PatchKind::Apply, &format!("{path}?fieldManager={manager}&force=true"), body).await
    }
}

/// A config map with one entry.
pub fn config_map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "key": "value" } })
}

/// A pod that names no node, so that nothing runs it.
pub fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": { "app": name } },
        "spec": { "containers": [{ "name": "main", "image": "example/image:1" }] },
    })
}

/// A deployment without replicas.
pub fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": {
            "replicas": 0,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "main", "image": "example/image:1" }] },
            },
        },
    })
}

/// Makes a [`kai_tests::harness::Case`] that gets a [`Setting`] instead of a cluster and runs on tiers 1 and 2.
#[macro_export]
macro_rules! conformance {
    ($($run:ident),* $(,)?) => {
        &[$(kai_tests::harness::Case {
            name: stringify!($run),
            tiers: kai_tests::harness::SIMULATED_NODES,
            run: |cluster| Box::pin(async move { $run(&$crate::setting::Setting::new(cluster).await?).await }),
        }),*]
    };
}
