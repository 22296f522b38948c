//! Keeps the configurations as they should be, whoever changed them.

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use kai_kit::{Class, Process, classify, writes};
use kube::{Api, Resource, ResourceExt as _, api::PostParams};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;

/// Writes the configurations, whether they are there or not. The whole list of webhooks is ours: one left over from an
/// older installation would stop pods.
pub async fn register(
    process: &Process,
    (mutating, validating): &(MutatingWebhookConfiguration, Vec<ValidatingWebhookConfiguration>),
) -> Result<(), kube::Error> {
    let api = Api::all(process.client.clone());
    write(process, &api, mutating, json!({"webhooks": mutating.webhooks})).await?;
    let api = Api::all(process.client.clone());
    for configuration in validating {
        write(process, &api, configuration, json!({"webhooks": configuration.webhooks})).await?;
    }
    Ok(())
}

async fn write<K>(process: &Process, api: &Api<K>, wanted: &K, patch: serde_json::Value) -> Result<(), kube::Error>
where
    K: Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let name = wanted.name_any();
    match writes::merge(api, process.component, &name, &patch).await {
        Err(error) if classify(&error) == Class::Gone => {}
        other => return other.map(drop),
    }
    let parameters = PostParams { field_manager: Some(process.component.to_owned()), ..PostParams::default() };
    match api.create(&parameters, wanted).await {
        // Another replica was quicker; what it wrote is looked at again soon.
        Err(error) if classify(&error) == Class::Exists => Ok(()),
        other => other.map(drop),
    }
}
