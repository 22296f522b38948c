//! The certificates and keys of one control plane, made for one start and valid nowhere else.

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// A certificate authority that signs for the API server and its clients.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(super) certificate: String,
}

/// A certificate and its private key, both as PEM.
pub(super) struct Identity {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Authority {
    pub(super) fn create() -> Result<Self> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = name("kai-tests", None);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = parameters.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(parameters, key), certificate })
    }

    /// A certificate for a server that is reached by `names` (host names and addresses).
    pub(super) fn server(&self, names: &[&str]) -> Result<Identity> {
        let mut parameters = CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        parameters.distinguished_name = name("kube-apiserver", None);
        self.sign(parameters, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A certificate for a client that Kubernetes knows as `user` in `group`.
    pub(super) fn client(&self, user: &str, group: &str) -> Result<Identity> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = name(user, Some(group));
        self.sign(parameters, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn sign(&self, mut parameters: CertificateParams, purpose: ExtendedKeyUsagePurpose) -> Result<Identity> {
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![purpose];
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.issuer)?.pem();
        Ok(Identity { certificate, key: key.serialize_pem() })
    }
}

/// The key pair with which the cluster signs and checks service account tokens, as PEM: private, public.
pub(super) fn service_account_keys() -> Result<(String, String)> {
    let key = KeyPair::generate()?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

fn name(common: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name
}
