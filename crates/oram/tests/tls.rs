//! TLS between clients and the server: who is believed, and what becomes of those who speak otherwise.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

#[path = "support/certificates.rs"]
mod certificates;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use tacita_oram::blob::MemoryStore;
use tacita_oram::link::{Address, Connection, Identity, Options, Remote};
use tacita_oram::server::{Limits, Server};
use tacita_oram::wire::{Answer, Request};
use tacita_oram::{Error, Kind};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

use certificates::issued;

/// Certificates and keys in files.
struct Files {
    folder: TempDir,
}

/// How a certificate is made.
#[derive(Clone, Copy)]
struct Form {
    name: &'static str,
    year: i32,
    vouches: bool,
}

const HERE: Form = Form { name: "127.0.0.1", year: 4000, vouches: false };

impl Form {
    fn params(self) -> CertificateParams {
        let mut params = CertificateParams::new([self.name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(1999, 1, 1);
        params.not_after = rcgen::date_time_ymd(self.year, 1, 1);
        if self.vouches {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        params
    }
}

impl Files {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Certificate and key, which this certificate vouches for itself.
    fn own(&self, name: &str, form: Form) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let certificate = form.params().self_signed(&key).unwrap();
        self.write(name, &certificate.pem(), &key)
    }

    /// Certificate and key, and the certificate that vouches for them.
    fn issued(&self, name: &str, form: Form) -> (PathBuf, PathBuf, PathBuf) {
        let issuer = Form { name: "issuer", vouches: true, ..HERE }.params();
        let (root, certificate, key) = issued(issuer, &form.params());
        let (pem, secret) = self.write(name, &certificate.pem(), &key);
        let roots = self.path(&format!("{name}.root"));
        std::fs::write(&roots, root.pem()).unwrap();
        (pem, secret, roots)
    }

    fn write(&self, name: &str, certificate: &str, key: &KeyPair) -> (PathBuf, PathBuf) {
        let (pem, secret) = (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        std::fs::write(&pem, certificate).unwrap();
        std::fs::write(&secret, key.serialize_pem()).unwrap();
        (pem, secret)
    }
}

/// A server in memory that listens at a port of its own.
async fn serving(address: &str, identity: Option<&Identity>, limits: Limits) -> (Server, Address) {
    let server = Server::open(Arc::new(MemoryStore::new()), limits).await.unwrap();
    let listener = address.parse::<Address>().unwrap().listen(identity).await.unwrap();
    let at = listener.address().unwrap();
    let listening = server.clone();
    tokio::spawn(async move { listening.listen(listener).await });
    (server, at)
}

async fn serving_tls(files: &(PathBuf, PathBuf)) -> Address {
    let identity = Identity::read(&files.0, &files.1).unwrap();
    serving("tls:127.0.0.1:0", Some(&identity), Limits::default()).await.1
}

/// Says hello, and asks for something.
async fn asked(address: &Address, roots: Option<&Path>) -> Result<Answer, Error> {
    let stream = Remote::new(address.clone(), roots)?.connect().await?;
    let (connection, _) = Connection::open(stream, Options::default(), drop).await?;
    connection.call(Request::Root).await
}

#[track_caller]
fn is_refused(asked: Result<Answer, Error>, word: &str) {
    let error = asked.unwrap_err();
    assert!(error.to_string().contains(word), "{word} is not in: {error}");
}

/// Whoever is asked there is not believed: that is no matter of whether anybody is there.
#[track_caller]
fn is_untrusted(asked: Result<Answer, Error>, word: &str) {
    assert_eq!(asked.as_ref().unwrap_err().kind(), Kind::Untrusted);
    is_refused(asked, word);
}

#[tokio::test]
async fn who_vouches_for_a_server_is_believed() {
    let files = Files::new();
    let elsewhere = Form { name: "elsewhere.example", ..HERE };
    for (name, form) in [
        ("plain", HERE),
        // It is the very certificate: its name does not matter, nor what it may do.
        ("name", elsewhere),
        ("vouching", Form { vouches: true, ..HERE }),
        ("all", Form { vouches: true, ..elsewhere }),
    ] {
        let own = files.own(name, form);
        let at = serving_tls(&own).await;
        let answer = asked(&at, Some(&own.0)).await.unwrap();
        assert_eq!(answer, Answer::Root(bytes::Bytes::new()), "{name}");
    }
    let (pem, key, roots) = files.issued("issued", HERE);
    let at = serving_tls(&(pem.clone(), key)).await;
    asked(&at, Some(&roots)).await.unwrap();
    // The certificate alone, without who issued it.
    asked(&at, Some(&pem)).await.unwrap();
}

#[tokio::test]
async fn nobody_else_is_believed() {
    let files = Files::new();
    let own = files.own("own", HERE);
    let at = serving_tls(&own).await;
    let other = files.own("other", HERE);
    is_untrusted(asked(&at, Some(&other.0)).await, "--tls-root");
    let vouching = files.own("vouching", Form { vouches: true, ..HERE });
    is_untrusted(asked(&serving_tls(&vouching).await, Some(&own.0)).await, "--tls-root");
    // Whom the system believes, if it believes anybody.
    is_untrusted(asked(&at, None).await, "certificate");
    let Address::Tls(place) = &at else { panic!("it listens with TLS") };
    is_refused(asked(&Address::Tcp(place.clone()), Some(&own.0)).await, "tls:HOST:PORT alone");

    let elsewhere = Form { name: "elsewhere.example", ..HERE };
    let (pem, key, roots) = files.issued("elsewhere", elsewhere);
    let at = serving_tls(&(pem, key)).await;
    is_untrusted(asked(&at, Some(&roots)).await, "another name");
    for (name, form) in [
        ("old", Form { year: 2001, ..HERE }),
        ("old-vouching", Form { year: 2001, vouches: true, ..HERE }),
    ] {
        let old = files.own(name, form);
        let at = serving_tls(&old).await;
        is_untrusted(asked(&at, Some(&old.0)).await, "has expired");
    }
    let (pem, key, roots) = files.issued("old-issued", Form { year: 2001, ..HERE });
    let at = serving_tls(&(pem.clone(), key)).await;
    for file in [roots, pem] {
        is_untrusted(asked(&at, Some(&file)).await, "has expired");
    }
}

/// A certificate that somebody else shows, who has not its key.
#[tokio::test]
async fn a_certificate_without_its_key_is_of_no_use() {
    let files = Files::new();
    let (own, other) = (files.own("own", HERE), files.own("other", HERE));
    let error = Identity::read(&own.0, &other.1).unwrap_err();
    assert_eq!(error.kind(), Kind::Parameters);
    assert!(error.to_string().contains("is not the key of"), "{error}");
    let nowhere = files.path("nowhere");
    for (pem, key, named) in [
        (&nowhere, &own.1, &nowhere),
        (&own.0, &nowhere, &nowhere),
        (&own.0, &own.0, &own.0),
        (&own.1, &own.1, &own.1),
    ] {
        let error = Identity::read(pem, key).unwrap_err();
        assert_eq!(error.kind(), Kind::Parameters);
        assert!(error.to_string().contains(named.to_str().unwrap()), "{error}");
    }
}

/// Whoever speaks otherwise than the other side is told so, and nobody waits.
#[tokio::test]
async fn those_who_speak_otherwise_are_told() {
    let files = Files::new();
    let own = files.own("own", HERE);
    let Address::Tls(place) = serving_tls(&own).await else { panic!("it listens with TLS") };
    is_refused(asked(&Address::Tcp(place), None).await, "its address is tls:HOST:PORT");
    let (server, plain) = serving("127.0.0.1:0", None, Limits::default()).await;
    let Address::Tcp(place) = &plain else { panic!("it listens without TLS") };
    is_refused(asked(&Address::Tls(place.clone()), Some(&own.0)).await, "without tls:");
    asked(&plain, None).await.unwrap();
    assert_eq!(server.metrics().handshakes_failed.get(), 0);
}

/// Other protocols within TLS, or none that is named.
#[tokio::test]
async fn other_protocols_within_tls_are_refused() {
    let files = Files::new();
    let own = files.own("own", HERE);
    let identity = Identity::read(&own.0, &own.1).unwrap();
    let (server, at) = serving("tls:127.0.0.1:0", Some(&identity), Limits::default()).await;
    let Address::Tls(place) = &at else { panic!("it listens with TLS") };
    let mut roots = RootCertStore::empty();
    roots.add(PemObject::from_pem_file(&own.0).unwrap()).unwrap();
    for protocols in [vec![], vec![b"h2".to_vec()]] {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let mut config = builder
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots.clone())
            .with_no_client_auth();
        config.alpn_protocols = protocols.clone();
        let stream = TcpStream::connect(place).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let shaken = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        let Ok(mut stream) = shaken else {
            assert!(!protocols.is_empty());
            continue;
        };
        assert!(protocols.is_empty());
        // The server hangs up without a word.
        assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0);
    }
    asked(&at, Some(&own.0)).await.unwrap();
    assert_eq!(server.metrics().handshakes_failed.get(), 2);
}

/// Who does not finish a handshake has its place no longer than a handshake may take.
#[tokio::test(start_paused = true)]
async fn slow_handshakes_are_cut() {
    let files = Files::new();
    let own = files.own("own", HERE);
    let identity = Identity::read(&own.0, &own.1).unwrap();
    let limits = Limits { connections_max: 1, ..Limits::default() };
    let (server, at) = serving("tls:127.0.0.1:0", Some(&identity), limits).await;
    let Address::Tls(place) = &at else { panic!("it listens with TLS") };
    let begun = Instant::now();
    let mut slow = TcpStream::connect(place).await.unwrap();
    // The beginning of a greeting, byte by byte.
    for byte in [22, 3, 1, 2, 0, 1] {
        let _ = slow.write_all(&[byte]).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    // The only place is taken.
    let mut second = TcpStream::connect(place).await.unwrap();
    assert_eq!(second.read(&mut [0]).await.unwrap_or(0), 0);
    assert_eq!(server.metrics().connections_refused.get(), 1);
    while slow.read(&mut [0]).await.unwrap_or(0) > 0 {}
    assert!(begun.elapsed() <= limits.handshake + Duration::from_secs(1), "{:?}", begun.elapsed());
    tokio::time::resume();
    while server.metrics().handshakes_failed.get() == 0 {
        tokio::task::yield_now().await;
    }
    // The place is free as soon as its task has ended.
    while asked(&at, Some(&own.0)).await.is_err() {}
}

/// A client does not wait for ever for a server that says nothing.
#[tokio::test(start_paused = true)]
async fn silent_servers_are_left() {
    let files = Files::new();
    let own = files.own("own", HERE);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = Address::Tls(listener.local_addr().unwrap().to_string());
    is_refused(asked(&at, Some(&own.0)).await, "does not finish the TLS handshake");
}
