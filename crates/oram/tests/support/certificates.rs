//! Certificates that one vouches for.

use rcgen::{Certificate, CertificateParams, Issuer, KeyPair};

/// The certificate of an issuer, and one that it vouches for, with its key.
pub(crate) fn issued(
    issuer: CertificateParams,
    params: &CertificateParams,
) -> (Certificate, Certificate, KeyPair) {
    let (issuer_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let root = issuer.self_signed(&issuer_key).unwrap();
    let certificate = params.signed_by(&key, &Issuer::new(issuer, issuer_key)).unwrap();
    (root, certificate, key)
}
