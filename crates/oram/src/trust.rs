//! Whose certificates are believed, for everything that this crate reaches by TLS.
//!
//! All cryptography of TLS is ring's, as everywhere in the workspace.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

use crate::error::{Error, Kind, Result};

/// What computes everything.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Whom the system believes: its own store, or what `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
///
/// # Errors
/// [`Kind::Parameters`] if it believes nobody.
pub(crate) fn of_system() -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let what = "the system has no root certificates: install its package of them \
                    (ca-certificates), or name a file of one";
        return Err(Error::new(Kind::Parameters, what));
    }
    Ok(roots)
}

/// Whom the certificates of a file, in PEM, stand for.
///
/// # Errors
/// [`Kind::Parameters`] if the file cannot be read, or has no certificate that can vouch for others.
pub(crate) fn of_file(path: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|e| refused(path, &e))?;
    }
    Ok(roots)
}

/// All certificates of a file, in PEM, in their order.
///
/// # Errors
/// [`Kind::Parameters`] if the file cannot be read, or has none.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let found: Vec<_> = read.map_err(|e| refused(path, &e))?;
    if found.is_empty() {
        return Err(refused(path, &"there is no certificate in it"));
    }
    Ok(found)
}

/// A file that does not do.
pub(crate) fn refused(path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::new(Kind::Parameters, format!("{}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        for (text, word) in [
            (None, "No such file"),
            (Some(""), "no certificate"),
            (Some("-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----\n"), "file"),
            (Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "file"),
        ] {
            if let Some(text) = text {
                std::fs::write(&file, text).unwrap();
            }
            let error = of_file(&file).unwrap_err();
            assert_eq!(error.kind(), Kind::Parameters);
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}
