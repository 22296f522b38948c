//! Every namespace has a service account `default`, as pods expect.

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::core::ObjectMeta;

use super::context::{Context, key_in};

/// Makes the default service account of a namespace if it is missing.
pub async fn reconcile(context: &mut Context, namespace: &str) -> Result<(), kube::Error> {
    let active = context
        .world
        .namespaces
        .get(&key_in("", namespace))
        .is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_none());
    if !active || context.world.service_accounts.get(&key_in(namespace, "default")).is_some() {
        return Ok(());
    }
    let account = ServiceAccount {
        metadata: ObjectMeta {
            name: Some("default".to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        ..ServiceAccount::default()
    };
    match context.create(&account).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() || status.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}
