//! Where objects of a kind are served: a table for the usual ones, the server's own word for the others.

use std::{collections::BTreeMap, time::Duration};

use kube::{
    Client, Error,
    core::GroupVersionKind,
    discovery::{ApiResource, Scope, oneshot},
};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::owner::Reference;

/// Version and kind of what every cluster has, with the plural.
const USUAL: &[(&str, &str, &str)] = &[
    ("v1", "Pod", "pods"),
    ("apps/v1", "Deployment", "deployments"),
    ("apps/v1", "ReplicaSet", "replicasets"),
    ("apps/v1", "StatefulSet", "statefulsets"),
    ("apps/v1", "DaemonSet", "daemonsets"),
    ("batch/v1", "Job", "jobs"),
    ("batch/v1", "CronJob", "cronjobs"),
];
/// How long the server's word holds. Kinds that are missing may be installed any time.
const KNOWN: Duration = Duration::from_mins(10);
const MISSING: Duration = Duration::from_secs(15);

type Found = Option<(ApiResource, Scope)>;

/// What is known about kinds.
pub(crate) struct Resources {
    client: Client,
    found: Mutex<BTreeMap<(String, String), (Instant, Found)>>,
}

impl Resources {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, found: Mutex::default() }
    }

    /// Where objects like this one are, or nothing if the server does not know the kind.
    pub(crate) async fn find(&self, reference: &Reference) -> Result<Found, Error> {
        let kind = GroupVersionKind::gvk(reference.group(), reference.version(), &reference.kind);
        let usual =
            USUAL.iter().find(|(version, kind, _)| *version == reference.api_version && *kind == reference.kind);
        if let Some((_, _, plural)) = usual {
            return Ok(Some((ApiResource::from_gvk_with_plural(&kind, plural), Scope::Namespaced)));
        }
        let key = (reference.api_version.clone(), reference.kind.clone());
        if let Some((until, found)) = self.found.lock().get(&key)
            && *until > Instant::now()
        {
            return Ok(found.clone());
        }
        let found = match oneshot::pinned_kind(&self.client, &kind).await {
            Ok((resource, capabilities)) => Some((resource, capabilities.scope)),
            Err(Error::Api(status)) if status.is_not_found() => None,
            Err(Error::Discovery(_)) => None,
            Err(error) => return Err(error),
        };
        let until = Instant::now() + if found.is_some() { KNOWN } else { MISSING };
        self.found.lock().insert(key, (until, found.clone()));
        Ok(found)
    }
}
