//! The certificates by which the API server trusts this server: an own authority and a leaf signed by it, in a Secret
//! that all replicas share.
//!
//! ```text
//!  ca.crt   authorities, the signing one first; older ones stay until they run out, so that no leaf loses its trust
//!  ca.key   the key of the signing one
//!  tls.crt  the leaf          tls.key  its key
//! ```
//!
//! Leaf and authority are renewed after two thirds of their lives. A new authority signs nothing until API servers have
//! had time to hear of it. [`renew`] decides, from the material and the time alone; [`Keeper`] reads and writes the
//! Secret.

mod keeper;
mod sign;
#[cfg(test)]
mod tests;
mod validity;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::KeyPair;
use rustls::{
    RootCertStore,
    client::{verify_server_cert_signed_by_trust_anchor, verify_server_name},
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
    server::ParsedCertificate,
    sign::CertifiedKey,
};

pub use self::keeper::Keeper;
use self::validity::Validity;

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be made.
    #[error("make a certificate")]
    Make(#[source] rcgen::Error),
    /// The Secret cannot be read or written.
    #[error("keep the Secret `{name}`")]
    Keep {
        /// Its name.
        name: String,
        /// The server's answer.
        #[source]
        source: kube::Error,
    },
    /// Others write the Secret again and again.
    #[error("the Secret `{0}` changes too quickly")]
    Contended(String),
    /// What was made cannot be used.
    #[error("use the certificate")]
    Use(#[source] rustls::Error),
}

/// How long certificates live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// An authority.
    pub authority: Duration,
    /// A leaf.
    pub leaf: Duration,
    /// How long API servers may take to hear of a new authority.
    pub spread: Duration,
}

impl Default for Times {
    fn default() -> Self {
        const DAY: u64 = 24 * 60 * 60;
        Self {
            authority: Duration::from_secs(5 * 365 * DAY),
            leaf: Duration::from_secs(365 * DAY),
            spread: Duration::from_mins(10),
        }
    }
}

/// Authorities, leaf and keys, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Material {
    /// Authorities, the signing one first: the bundle of the webhook configurations.
    pub authorities: String,
    /// The key of the signing authority.
    pub authority_key: String,
    /// The leaf.
    pub certificate: String,
    /// The key of the leaf.
    pub key: String,
}

impl std::fmt::Debug for Material {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the keys.
        let Self { authorities, certificate, .. } = self;
        formatter
            .debug_struct("Material")
            .field("authorities", authorities)
            .field("certificate", certificate)
            .finish_non_exhaustive()
    }
}

impl Material {
    /// The leaf with its key, for a TLS server.
    pub fn certified_key(&self) -> Result<CertifiedKey, Error> {
        let chain = certificates(&self.certificate);
        let unreadable = |_| Error::Use(rustls::Error::General("the private key is not PEM".to_owned()));
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(unreadable)?;
        CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(Error::Use)
    }

    /// Whether a client that trusts the authorities takes the leaf for these names at this time.
    fn is_accepted(&self, names: &[String], now: Timestamp) -> bool {
        let check = || -> Option<()> {
            let key = self.certified_key().ok()?;
            let leaf = ParsedCertificate::try_from(key.cert.first()?).ok()?;
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates(&self.authorities));
            let now = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now.as_second()).ok()?));
            let algorithms = ring::default_provider().signature_verification_algorithms;
            verify_server_cert_signed_by_trust_anchor(&leaf, &roots, &[], now, algorithms.all).ok()?;
            names.iter().all(|name| is_for(&leaf, name)).then_some(())
        };
        check().is_some()
    }
}

fn is_for(leaf: &ParsedCertificate<'_>, name: &str) -> bool {
    ServerName::try_from(name).is_ok_and(|name| verify_server_name(leaf, &name).is_ok())
}

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok).collect()
}

/// What the material has to become, or nothing if it is good as it is.
pub fn renew(
    current: Option<&Material>,
    names: &[String],
    now: Timestamp,
    times: Times,
) -> Result<Option<Material>, Error> {
    let Some((current, signing)) = current.and_then(|current| Some((current, signing(current, now)?))) else {
        return fresh(names, now, times).map(Some);
    };
    let accepted = current.is_accepted(names, now);
    if due(signing, now) {
        let old = still_valid(&current.authorities, now);
        let mut next = fresh(names, now, times)?;
        next.authorities.extend(old);
        if accepted {
            next.certificate.clone_from(&current.certificate);
            next.key.clone_from(&current.key);
        }
        return Ok(Some(next));
    }
    let known = now.duration_since(signing.from) >= signed(times.spread) + sign::SKEW;
    let leaf = certificates(&current.certificate).first().and_then(|leaf| validity::of(leaf));
    let mut next = current.clone();
    if !accepted || (known && leaf.is_none_or(|leaf| due(leaf, now))) {
        (next.certificate, next.key) = sign::leaf(&current.authority_key, signing.until, names, now, times.leaf)?;
    }
    next.authorities = still_valid(&current.authorities, now).collect();
    Ok((next != *current).then_some(next))
}

fn fresh(names: &[String], now: Timestamp, times: Times) -> Result<Material, Error> {
    let (authorities, authority_key, until) = sign::authority(now, times.authority)?;
    let (certificate, key) = sign::leaf(&authority_key, until, names, now, times.leaf)?;
    Ok(Material { authorities, authority_key, certificate, key })
}

/// The life of the signing authority, if it is valid and its key is here.
fn signing(material: &Material, now: Timestamp) -> Option<Validity> {
    use rcgen::PublicKeyData as _;
    let all = certificates(&material.authorities);
    let authority = all.first()?;
    let key = KeyPair::from_pem(&material.authority_key).ok()?;
    let held = ParsedCertificate::try_from(authority).ok()?.subject_public_key_info();
    let validity = validity::of(authority)?;
    (held.as_ref() == key.subject_public_key_info() && validity.until > now).then_some(validity)
}

/// Whether two thirds of a life are over.
fn due(life: Validity, now: Timestamp) -> bool {
    let left = life.until.duration_since(now);
    left.saturating_mul(3) <= life.until.duration_since(life.from)
}

/// The authorities that have not run out, each in PEM.
fn still_valid(authorities: &str, now: Timestamp) -> impl Iterator<Item = String> {
    let valid = move |authority: &CertificateDer<'_>| validity::of(authority).is_some_and(|life| life.until > now);
    certificates(authorities).into_iter().filter(valid).map(|authority| sign::pem(&authority))
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}
