//! TLS in front of a server of buckets, as it stands before those that are not on this machine.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa};
use tacita_oram::Kind;
use tacita_oram::blob::{BlobStore, S3Access, S3Store, conformance};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ServerConfig, version};

use crate::certificates::issued;
use crate::{Bench, names, place};

/// The certificate of an issuer, in PEM, and what it vouches for: that a server is 127.0.0.1.
fn identity() -> (String, CertificateDer<'static>, PrivateKeyDer<'static>) {
    let mut issuer = CertificateParams::new(["issuer".to_owned()]).unwrap();
    issuer.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let here = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let (root, certificate, key) = issued(issuer, &here);
    (root.pem(), certificate.into(), PrivatePkcs8KeyDer::from(key.serialize_der()).into())
}

/// Ends TLS in front of `server`; its URL.
async fn secured(
    server: SocketAddr,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
) -> String {
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // Who believes nobody here ends it.
                let Ok(mut secret) = acceptor.accept(stream).await else { return };
                let mut plain = TcpStream::connect(server).await.unwrap();
                copy_bidirectional(&mut secret, &mut plain).await.ok();
            });
        }
    });
    format!("https://{address}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_conforms_by_https() {
    let Some(bench) = Bench::new("a_bucket_conforms_by_https") else { return };
    let (root, certificate, key) = identity();
    let files: Vec<PathBuf> =
        ["roots.pem", "others.pem"].map(|name| bench.folder.path().join(name)).into();
    std::fs::write(&files[0], root).unwrap();
    std::fs::write(&files[1], identity().0).unwrap();
    let endpoint = secured(bench.way.address(), certificate, key).await;
    let access = |roots: &PathBuf| S3Access {
        endpoint: Some(endpoint.clone()),
        roots: Some(roots.clone()),
        ..bench.access()
    };
    conformance::check(async || {
        Arc::new(S3Store::open(&place("store"), &access(&files[0])).await.unwrap())
            as Arc<dyn BlobStore>
    })
    .await;
    let error = S3Store::open(&place("store"), &access(&files[1])).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Storage);
    names(&error, &["the way to the server", "certificate"]);
}
