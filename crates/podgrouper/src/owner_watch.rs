//! Changes of owners: the metadata of the usual top owners is watched, so that a label or annotation counts at once
//! and owners need not be read again and again. Nothing is kept but what the pods here belong to.

use std::{fmt::Debug, sync::Arc};

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, StatefulSet},
    batch::v1::{CronJob, Job},
};
use kai_kit::{
    Lean, Process,
    watch::{self, News},
};
use kube::{Api, Resource, core::PartialObjectMeta, runtime::watcher};
use tokio_util::sync::CancellationToken;

use crate::{owner::Reference, walk::Owners};

/// Whether changes of an object are told.
pub(crate) fn is_watched(reference: &Reference) -> bool {
    matches!(
        (reference.api_version.as_str(), reference.kind.as_str()),
        ("apps/v1", "Deployment" | "StatefulSet" | "DaemonSet") | ("batch/v1", "Job" | "CronJob")
    )
}

/// Watches in the background until cancelled.
pub(crate) fn start(process: &Process, owners: &Arc<Owners>, cancel: &CancellationToken) {
    follow::<Deployment>(process, owners, cancel);
    follow::<StatefulSet>(process, owners, cancel);
    follow::<DaemonSet>(process, owners, cancel);
    follow::<Job>(process, owners, cancel);
    follow::<CronJob>(process, owners, cancel);
}

fn follow<K>(process: &Process, owners: &Arc<Owners>, cancel: &CancellationToken)
where
    K: Resource<DynamicType = ()> + Clone + Debug + Send + 'static,
{
    let api: Api<Lean<PartialObjectMeta<K>>> = Api::all(process.client.clone());
    let name = format!("watch of {}", K::plural(&()));
    let owners = Arc::clone(owners);
    let tell = move |news: News<Arc<PartialObjectMeta<K>>>| match news {
        News::Begin | News::Complete => {}
        News::Listed(object) | News::Applied(object) => {
            owners.changed(&K::api_version(&()), &K::kind(&()), &object.metadata);
        }
        News::Deleted(object) => owners.gone(&K::api_version(&()), &K::kind(&()), &object.metadata),
    };
    tokio::spawn(watch::run(api, watcher::Config::default(), name, process.health.clone(), cancel.clone(), tell));
}
