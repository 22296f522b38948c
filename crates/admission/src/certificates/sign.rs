//! Making authorities and leaves.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::CertificateDer;

use super::{Error, signed};

/// How far clocks of API servers may be behind ours.
pub(super) const SKEW: SignedDuration = SignedDuration::from_mins(5);

/// A new authority: certificate and key in PEM, and when it runs out.
pub(super) fn authority(now: Timestamp, life: Duration) -> Result<(String, String, Timestamp), Error> {
    let until = now.saturating_add(signed(life)).unwrap_or(Timestamp::MAX);
    let key = KeyPair::generate().map_err(Error::Make)?;
    let certificate = described(now, until).self_signed(&key).map_err(Error::Make)?;
    Ok((pem(certificate.der()), key.serialize_pem(), until))
}

/// What every authority of ours is called and may do; with its key that is all that signing needs.
fn described(now: Timestamp, until: Timestamp) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, "kai-admission-authority");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_life(&mut parameters, now, until);
    parameters
}

/// A new leaf for these names: certificate and key in PEM. It does not outlive its authority.
pub(super) fn leaf(
    authority_key: &str,
    authority_until: Timestamp,
    names: &[String],
    now: Timestamp,
    life: Duration,
) -> Result<(String, String), Error> {
    let until = now.saturating_add(signed(life)).unwrap_or(Timestamp::MAX).min(authority_until);
    let authority_key = KeyPair::from_pem(authority_key).map_err(Error::Make)?;
    let issuer = Issuer::new(described(now, authority_until), authority_key);
    let mut parameters = CertificateParams::new(names).map_err(Error::Make)?;
    parameters.distinguished_name = DistinguishedName::new();
    if let Some(name) = names.first() {
        // A common name has at most 64 characters; clients look at the alternative names.
        let name: String = name.chars().take(64).collect();
        parameters.distinguished_name.push(DnType::CommonName, name);
    }
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    parameters.use_authority_key_identifier_extension = true;
    set_life(&mut parameters, now, until);
    let key = KeyPair::generate().map_err(Error::Make)?;
    let certificate = parameters.signed_by(&key, &issuer).map_err(Error::Make)?;
    Ok((pem(certificate.der()), key.serialize_pem()))
}

/// A certificate in PEM.
pub(super) fn pem(certificate: &CertificateDer<'_>) -> String {
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    let encoded = STANDARD.encode(certificate);
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

/// Seconds since 1970, for the dates of certificates.
fn seconds(time: Timestamp) -> Duration {
    Duration::from_secs(u64::try_from(time.as_second()).unwrap_or(0))
}

/// Lets a certificate begin a little before now, and end.
fn set_life(parameters: &mut CertificateParams, now: Timestamp, until: Timestamp) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    parameters.not_before = epoch + seconds(now.saturating_sub(SKEW).unwrap_or(now));
    parameters.not_after = epoch + seconds(until);
}
