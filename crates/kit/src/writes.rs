//! The few ways in which components write: with an owner's name, and deletes that cannot hit the wrong object.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::{Binding, Pod};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::{Request, Status, request},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    errors::{Class, classify},
    lean::Lean,
};

/// Merge-patches an object. `manager` is shown in its managed fields.
pub async fn merge<K>(api: &Api<K>, manager: &str, name: &str, patch: &Value) -> Result<K, kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let (parameters, patch) = (by(manager), Patch::Merge(patch));
    send(api, Request::new(api.resource_url()).patch(name, &parameters, &patch)).await
}

/// Merge-patches the status of an object.
pub async fn merge_status<K>(api: &Api<K>, manager: &str, name: &str, patch: &Value) -> Result<K, kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let (parameters, patch) = (by(manager), Patch::Merge(patch));
    send(api, Request::new(api.resource_url()).patch_subresource("status", name, &parameters, &patch)).await
}

/// Creates an object.
pub async fn create<K>(api: &Api<K>, manager: &str, object: &K) -> Result<K, kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Debug + Serialize,
{
    let parameters = PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
    let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
    send(api, Request::new(api.resource_url()).create(&parameters, body)).await
}

/// Binds a pod to a node. The server takes it once, and only for the uid that the binding names.
pub async fn bind(api: &Api<Pod>, binding: &Binding) -> Result<(), kube::Error> {
    let name = binding.metadata.name.as_deref().unwrap_or_default();
    api.create_subresource::<Binding, Status>("binding", name, &PostParams::default(), binding).await.map(drop)
}

fn by(manager: &str) -> PatchParams {
    PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() }
}

/// Sends a request whose answer is an object, which is read without its managed fields.
async fn send<K>(api: &Api<K>, request: Result<http::Request<Vec<u8>>, request::Error>) -> Result<K, kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let request = request.map_err(kube::Error::BuildRequest)?;
    api.clone().into_client().request::<Lean<K>>(request).await.map(|answer| answer.0)
}

/// Deletes exactly this object, by uid. True if it is gone or going, false if another one has its name by now.
pub async fn delete<K>(api: &Api<K>, object: &K, grace: Option<u32>) -> Result<bool, kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Debug + Serialize,
{
    let parameters = DeleteParams {
        grace_period_seconds: grace,
        preconditions: Some(Preconditions { uid: object.uid(), resource_version: None }),
        ..DeleteParams::default()
    };
    match api.delete(&object.name_any(), &parameters).await {
        Ok(_) => Ok(true),
        Err(error) => match classify(&error) {
            Class::Gone => Ok(true),
            // Another one has its name, or this one was being changed and the caller tries again.
            Class::Conflict => match api.get_metadata_opt(&object.name_any()).await? {
                Some(found) if found.metadata.uid == object.uid() => Err(error),
                Some(_) => Ok(false),
                None => Ok(true),
            },
            _ => Err(error),
        },
    }
}
