//! Admission: what happens to an object between decoding and storing.
//!
//! ```text
//!  mutate:   namespace life cycle -> limit ranges -> service account -> priority -> tolerations -> runtime class -> webhooks
//!            (a webhook that changed the object: once more, for those who ask for it)
//!  validate: priority -> runtime class -> limit ranges -> webhooks, all at once
//! ```
//!
//! Plugins see the cluster through [`ClusterReader`] and never write to it. The order and the wording of refusals are those
//! of a real API server with its default plugins; `ValidatingAdmissionPolicy` is not evaluated.

use std::sync::Arc;

use serde_json::Value;

use crate::resource::Resource;
use crate::status::ApiError;

mod default_tolerations;
mod limit_ranger;
mod match_condition;
mod namespace_lifecycle;
mod priority;
mod quantity;
mod runtime_class;
mod service_account;
#[cfg(test)]
mod tests;
mod webhook;

/// What plugins may know of the cluster.
pub trait ClusterReader: Send + Sync {
    /// An object by the storage key of its resource (`pods`, `priorityclasses.scheduling.k8s.io`).
    fn get(&self, storage_key: &str, namespace: Option<&str>, name: &str) -> Option<Arc<Value>>;
    /// All objects of a resource, of one namespace or of all.
    fn list(&self, storage_key: &str, namespace: Option<&str>) -> Vec<Arc<Value>>;
}

/// What is being done to the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// POST.
    Create,
    /// PUT and PATCH of what exists.
    Update,
    /// DELETE.
    Delete,
    /// A request that is passed on, such as `exec`.
    Connect,
}

impl Operation {
    /// The word webhooks know it by.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// Name of the user.
    pub username: String,
    /// Groups of the user.
    pub groups: Vec<String>,
}

/// A request as admission sees it; the object itself goes beside it, because it changes on the way.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// The resource asked for.
    pub resource: &'a Resource,
    /// The subresource, if any.
    pub subresource: Option<&'a str>,
    /// The namespace of the request; none for cluster-wide resources, Namespace included.
    pub namespace: Option<&'a str>,
    /// The object's name; empty while it is still to be generated.
    pub name: &'a str,
    /// What is being done.
    pub operation: Operation,
    /// The object before the request, if there was one.
    pub old: Option<&'a Value>,
    /// `CreateOptions`, `UpdateOptions`, `PatchOptions` or `DeleteOptions`.
    pub options: &'a Value,
    /// Nothing will be stored.
    pub dry_run: bool,
    /// Who asks.
    pub user: &'a UserInfo,
}

impl Attributes<'_> {
    /// Whether the request is about objects of this resource themselves, not about a subresource.
    fn is_about(&self, group: &str, plural: &str) -> bool {
        self.subresource.is_none() && self.resource.plural == plural && self.resource.gvk.group == group
    }

    /// 403 in the name of the object, or of what its name will begin with.
    fn forbidden(&self, object: Option<&Value>, why: impl std::fmt::Display) -> ApiError {
        let metadata = object.and_then(|object| object.get("metadata"));
        let text = |field| metadata.and_then(|metadata| metadata.get(field)).and_then(Value::as_str);
        let candidates = [Some(self.name), text("name"), text("generateName"), Some("Unknown!")];
        let name = candidates.into_iter().flatten().find(|name| !name.is_empty()).unwrap_or_default();
        ApiError::forbidden(self.resource.subject(name), why)
    }
}

/// The chain of plugins and webhooks.
#[derive(Debug)]
pub struct Admission {
    webhooks: webhook::Webhooks,
}

impl Admission {
    /// A chain without webhook services. With a seed, what webhooks are asked repeats from run to run.
    pub fn new(seed: Option<u64>) -> Self {
        Self { webhooks: webhook::Webhooks::new(seed) }
    }

    /// Makes a router the backend of a Service, for webhooks whose `clientConfig` names that service.
    pub fn register_service(&self, namespace: &str, name: &str, router: axum::Router) {
        self.webhooks.register_service(namespace, name, router);
    }

    /// Takes away what [`Admission::register_service`] has put there; calls fail as those of a Service without endpoints.
    pub fn forget_service(&self, namespace: &str, name: &str) {
        self.webhooks.forget_service(namespace, name);
    }

    /// Lets plugins and mutating webhooks change the object; returns warnings for the client.
    ///
    /// Called for `Create`, `Update` and `Connect`. What a webhook wrote is neither defaulted nor pruned here.
    pub async fn mutate(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        cluster: &dyn ClusterReader,
    ) -> Result<Vec<String>, ApiError> {
        namespace_lifecycle::check(attributes, Some(object), cluster)?;
        run_mutating_plugins(attributes, object, cluster)?;
        let mut pass = webhook::MutatingPass::default();
        let mut warnings = Vec::new();
        self.webhooks.mutate(attributes, object, cluster, &mut pass, &mut warnings).await?;
        if pass.must_repeat() {
            let before = object.clone();
            run_mutating_plugins(attributes, object, cluster)?;
            pass.begin_again(*object != before);
            self.webhooks.mutate(attributes, object, cluster, &mut pass, &mut warnings).await?;
        }
        Ok(warnings)
    }

    /// Lets plugins and validating webhooks refuse the request; returns warnings for the client.
    ///
    /// `object` is none for `Delete`; what is to be deleted is then in [`Attributes::old`].
    pub async fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
        cluster: &dyn ClusterReader,
    ) -> Result<Vec<String>, ApiError> {
        if attributes.operation == Operation::Delete {
            namespace_lifecycle::check(attributes, None, cluster)?;
        }
        if let Some(object) = object {
            priority::validate(attributes, object, cluster)?;
            runtime_class::validate(attributes, object, cluster)?;
            limit_ranger::validate(attributes, object, cluster)?;
        }
        self.webhooks.validate(attributes, object, cluster).await
    }
}

fn run_mutating_plugins(
    attributes: &Attributes<'_>,
    object: &mut Value,
    cluster: &dyn ClusterReader,
) -> Result<(), ApiError> {
    if !attributes.is_about("", "pods") {
        return Ok(());
    }
    limit_ranger::mutate(attributes, object, cluster);
    service_account::mutate(attributes, object);
    priority::mutate(attributes, object, cluster)?;
    default_tolerations::mutate(attributes, object);
    runtime_class::mutate(attributes, object, cluster)
}

/// `object.spec` to write to; `None` when somebody sent something else in its place.
fn spec_of(object: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    object.as_object_mut()?.entry("spec").or_insert_with(|| Value::Object(serde_json::Map::new())).as_object_mut()
}
