//! ControllerRevision: the template history of stateful and daemon sets, as `kubectl rollout history` reads it.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::ResourceExt;
use serde_json::json;

use super::context::{Context, key_in};
use super::pod_template::{controller_reference, template_hash};
use super::world::Watched;

/// The label on pods that names the revision they were made from.
pub const REVISION_LABEL: &str = "controller-revision-hash";

/// The revision of `template` under `owner`: its name, and the history (oldest first). Made if it is not there yet.
pub async fn ensure<K: Watched>(
    context: &mut Context,
    owner: &K,
    template: &PodTemplateSpec,
    labels: BTreeMap<String, String>,
) -> Result<Revision, kube::Error> {
    let uid = owner.uid().unwrap_or_default();
    let namespace = owner.namespace().unwrap_or_default();
    let hash = template_hash(template, 0);
    let name = format!("{}-{hash}", owner.name_any());
    let history = |context: &Context| {
        let mut history = context.world.revisions.controlled_by(&uid);
        history.sort_by_key(|revision| (revision.revision, revision.name_any()));
        history
    };
    let known = history(context);
    let newest = known.last().map_or(0, |revision| revision.revision);
    match context.world.revisions.get(&key_in(&namespace, &name)).cloned() {
        Some(existing) if existing.revision < newest => {
            // A rollback: the old template is the newest again.
            context.patch(existing.as_ref(), &json!({ "revision": newest + 1 })).await?;
        }
        Some(_) => {}
        None => {
            let mut labels = labels;
            labels.insert(REVISION_LABEL.to_owned(), hash.clone());
            let mut body = json!({ "spec": { "template": template } });
            body["spec"]["template"]["$patch"] = json!("replace");
            let revision = ControllerRevision {
                metadata: ObjectMeta {
                    name: Some(name.clone()),
                    namespace: Some(namespace),
                    labels: Some(labels),
                    owner_references: controller_reference(owner).map(|reference| vec![reference]),
                    ..ObjectMeta::default()
                },
                data: Some(RawExtension(body)),
                revision: newest + 1,
            };
            match context.create(&revision).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(Revision { name, hash, history: history(context) })
}

/// What [`ensure`] found or made.
pub struct Revision {
    /// Name of the ControllerRevision, as in a StatefulSet's status.
    pub name: String,
    /// Hash part of the name, as a DaemonSet's pods carry it.
    pub hash: String,
    /// All revisions, oldest first.
    pub history: Vec<Arc<ControllerRevision>>,
}

/// Deletes revisions beyond `limit` that no pod uses.
pub async fn trim(
    context: &mut Context,
    revision: &Revision,
    in_use: &[String],
    limit: Option<i32>,
) -> Result<(), kube::Error> {
    let keep = usize::try_from(limit.unwrap_or(10)).unwrap_or(0);
    let idle: Vec<Arc<ControllerRevision>> = revision
        .history
        .iter()
        .filter(|old| {
            old.name_any() != revision.name
                && !in_use.iter().any(|used| old.name_any() == *used || old.name_any().ends_with(&format!("-{used}")))
        })
        .cloned()
        .collect();
    let surplus = idle.len().saturating_sub(keep);
    for old in idle.into_iter().take(surplus) {
        context.delete(old.as_ref()).await?;
    }
    Ok(())
}
