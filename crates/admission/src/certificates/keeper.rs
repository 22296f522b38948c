//! The Secret with the certificates: whoever finds it missing makes it, whoever finds it due renews it, all use what it
//! says.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kai_api::names::webhooks;
use kai_kit::{Class, Process, classify, writes};
use kube::{Api, ResourceExt as _, api::PostParams};
use serde_json::json;

use super::{Error, Material, Times, renew};

const AUTHORITIES: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// How often a write that met another's is tried at once.
const TRIES: usize = 5;

/// Keeps the Secret.
pub struct Keeper {
    process: Process,
    api: Api<Secret>,
    names: Vec<String>,
    times: Times,
    /// What was last seen in the Secret: if somebody deletes it, it comes back as it was.
    held: Option<Material>,
}

impl Keeper {
    /// A keeper of certificates for these names.
    pub fn new(process: &Process, names: Vec<String>, times: Times) -> Self {
        let api = Api::namespaced(process.client.clone(), &process.namespace);
        Self { process: process.clone(), api, names, times, held: None }
    }

    /// Looks at the Secret, makes or renews what has to be, and says what is in it.
    pub async fn ensure(&mut self) -> Result<Material, Error> {
        let name = webhooks::ADMISSION_SECRET;
        let failed = |source| Error::Keep { name: name.to_owned(), source };
        for _ in 0..TRIES {
            let found = self.api.get_opt(name).await.map_err(failed)?;
            let current = found.as_ref().map_or_else(|| self.held.clone(), read);
            let renewed = renew(current.as_ref(), &self.names, self.process.now(), self.times)?;
            let written = match (&found, renewed.or_else(|| current.filter(|_| found.is_none()))) {
                (Some(secret), Some(material)) => self.patch(secret, &material).await,
                (None, Some(material)) => self.create(&material).await,
                (Some(secret), None) => Ok(read(secret)),
                (None, None) => Ok(None),
            };
            match written {
                Ok(Some(material)) => {
                    self.held = Some(material.clone());
                    return Ok(material);
                }
                Ok(None) => {}
                Err(error) if matches!(classify(&error), Class::Conflict | Class::Exists | Class::Gone) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(Error::Contended(name.to_owned()))
    }

    async fn create(&self, material: &Material) -> Result<Option<Material>, kube::Error> {
        let secret = Secret {
            metadata: ObjectMeta { name: Some(webhooks::ADMISSION_SECRET.to_owned()), ..ObjectMeta::default() },
            data: Some(data(material)),
            ..Secret::default()
        };
        let manager = Some(self.process.component.to_owned());
        let parameters = PostParams { field_manager: manager, ..PostParams::default() };
        self.api.create(&parameters, &secret).await.map(|secret| read(&secret))
    }

    /// Writes over the version that was read, so that of two replicas only one renews.
    async fn patch(&self, secret: &Secret, material: &Material) -> Result<Option<Material>, kube::Error> {
        let patch = json!({
            "metadata": {"resourceVersion": secret.resource_version(), "uid": secret.uid()},
            "data": data(material),
        });
        let written = writes::merge(&self.api, self.process.component, &secret.name_any(), &patch).await;
        written.map(|secret| read(&secret))
    }
}

fn data(material: &Material) -> BTreeMap<String, ByteString> {
    let entries = [
        (AUTHORITIES, &material.authorities),
        (AUTHORITY_KEY, &material.authority_key),
        (CERTIFICATE, &material.certificate),
        (KEY, &material.key),
    ];
    entries.map(|(name, text)| (name.to_owned(), ByteString(text.clone().into_bytes()))).into()
}

fn read(secret: &Secret) -> Option<Material> {
    let text = |name: &str| String::from_utf8(secret.data.as_ref()?.get(name)?.0.clone()).ok();
    Some(Material {
        authorities: text(AUTHORITIES)?,
        authority_key: text(AUTHORITY_KEY)?,
        certificate: text(CERTIFICATE)?,
        key: text(KEY)?,
    })
}
