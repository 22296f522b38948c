//! Admission without a network: the embedded API server calls the router of the rules in this process.
//!
//! The webhook configurations are the same as on a real cluster; only the Service that they name is a router here, so neither TLS
//! nor certificates are needed.

use anyhow::Context as _;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use kai_admission::{Options, Place, Rules, configurations, registration::Names, router};
use kai_api::Queue;
use kai_apiserver::ApiServer;
use kai_kit::{Mirror, Process, Selection};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};

const CONDITION: &str = "webhooks";

/// Registers the rules with the server and keeps them there until the end of the process.
pub async fn run(process: Process, options: Options, server: &ApiServer) -> anyhow::Result<()> {
    process.health.not_ready(CONDITION, "not registered yet");
    let queues = Mirror::<Queue>::builder().start(&process, Selection::all(), &process.cancel);
    tokio::select! {
        () = queues.ready() => {}
        () = process.cancel.cancelled() => return Ok(()),
    }
    let settings = options.settings(&process.namespace);
    let rules = Rules::new(settings.clone()).with_queues(queues);
    let service = options.webhook_service.clone();
    server.admission().register_service(&process.namespace, &service, router(rules));
    let names = Names {
        mutating: options.mutating_webhook_configuration.clone(),
        validating: options.validating_webhook_configuration.clone(),
    };
    let place = Place::in_process(&process.namespace, &service);
    let (mutating, validating) = configurations(&settings, &names, &place);
    apply::<MutatingWebhookConfiguration>(&process, &mutating).await?;
    for configuration in &validating {
        apply::<ValidatingWebhookConfiguration>(&process, configuration).await?;
    }
    process.health.ready(CONDITION);
    process.cancel.cancelled().await;
    server.admission().forget_service(&process.namespace, &service);
    Ok(())
}

async fn apply<K>(process: &Process, object: &K) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let (name, parameters) = (object.name_any(), PatchParams::apply(process.component).force());
    let api: Api<K> = Api::all(process.client.clone());
    api.patch(&name, &parameters, &Patch::Apply(object)).await.with_context(|| format!("register `{name}`"))?;
    Ok(())
}
