//! TLS 1.3 between clients and the server: what a server shows, whom a client believes, and handshakes.
//!
//! Nothing is resumed, and nothing is sent before the handshake ends: each connection is one of its own. A
//! client believes who the system believes, or a file of certificates. A certificate of that file itself
//! is believed whatever name it has, as long as it is of its time: who has its key is meant.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream as ClientStream;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::NoServerSessionStorage;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError,
    ServerConfig, SignatureScheme,
};
use tokio_rustls::server::TlsStream as ServerStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::error::{Error, Kind, Result};
use crate::trust::{self, refused};

/// What the two speak within, so that neither takes the other for something else.
const PROTOCOL: &[u8] = b"tacita-oram/1";
/// How long a server may take for the handshake.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a server shows to be believed.
#[derive(Clone)]
pub struct Identity(TlsAcceptor);

/// Whom a client believes that a server is the one that it says.
#[derive(Clone)]
pub struct Trust(TlsConnector);

impl Identity {
    /// Certificates and their private key, in PEM; the server's own certificate is the first.
    ///
    /// # Errors
    /// [`Kind::Parameters`] if a file cannot be read, has no such thing, or the two do not belong together.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self> {
        let chain = trust::certificates(certificate)?;
        let secret = PrivateKeyDer::from_pem_file(key).map_err(|e| refused(key, &e))?;
        let builder = ServerConfig::builder_with_provider(trust::provider())
            .with_protocol_versions(&[&TLS13])
            .expect("ring has it")
            .with_no_client_auth();
        let mut config = builder.with_single_cert(chain, secret).map_err(|e| match e {
            TlsError::InconsistentKeys(_) => {
                let what = format!("{} is not the key of {}", key.display(), certificate.display());
                Error::new(Kind::Parameters, what)
            }
            other => refused(certificate, &other),
        })?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self(Arc::new(config).into()))
    }

    /// Shakes hands with a client, however long it takes.
    pub(super) async fn accept(&self, stream: TcpStream) -> Result<ServerStream<TcpStream>> {
        let accepted = self.0.accept(stream).await;
        let stream =
            accepted.map_err(|e| Error::new(Kind::Unreachable, format!("TLS handshake: {e}")))?;
        if stream.get_ref().1.alpn_protocol() != Some(PROTOCOL) {
            return Err(Error::new(Kind::Protocol, "TLS handshake: another protocol"));
        }
        Ok(stream)
    }
}

impl Trust {
    /// Whom the certificates of a file stand for, and those certificates themselves; whom the system
    /// believes if there is none.
    ///
    /// # Errors
    /// [`Kind::Parameters`] if the file cannot be read or has no certificates, or the system has none.
    pub fn new(file: Option<&Path>) -> Result<Self> {
        let (roots, pinned) = match file {
            Some(file) => (trust::of_file(file)?, trust::certificates(file)?),
            None => (trust::of_system()?, Vec::new()),
        };
        let usual =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), trust::provider()).build();
        let usual = usual.map_err(|e| Error::new(Kind::Parameters, format!("TLS: {e}")))?;
        let mut config = ClientConfig::builder_with_provider(trust::provider())
            .with_protocol_versions(&[&TLS13])
            .expect("ring has it")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Verifier { usual, pinned }))
            .with_no_client_auth();
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.resumption = tokio_rustls::rustls::client::Resumption::disabled();
        Ok(Self(Arc::new(config).into()))
    }

    /// Shakes hands with the server at `place`, a host and a port.
    pub(super) async fn connect(
        &self,
        place: &str,
        stream: TcpStream,
    ) -> Result<ClientStream<TcpStream>> {
        let unreachable = |why: &str| Error::new(Kind::Unreachable, format!("tls:{place}: {why}"));
        let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host)
            .map_err(|_| unreachable("this is no name that a certificate could have"))?;
        let shaken = timeout(PATIENCE, self.0.connect(name, stream)).await;
        let stream = shaken
            .map_err(|_| unreachable("the server does not finish the TLS handshake: is it one?"))?
            .map_err(|e| Error::new(kind_of(&e), format!("tls:{place}: {}", said(&e))))?;
        if stream.get_ref().1.alpn_protocol() != Some(PROTOCOL) {
            return Err(unreachable("the server speaks another protocol within TLS"));
        }
        Ok(stream)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identity").finish_non_exhaustive()
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Trust").finish_non_exhaustive()
    }
}

/// What the TLS library says about a handshake.
fn cause(error: &std::io::Error) -> Option<&TlsError> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

fn kind_of(error: &std::io::Error) -> Kind {
    match cause(error) {
        Some(TlsError::InvalidCertificate(_)) => Kind::Untrusted,
        _ => Kind::Unreachable,
    }
}

/// What went wrong with a handshake, as whoever typed the address understands it.
fn said(error: &std::io::Error) -> String {
    let text = match cause(error) {
        Some(TlsError::InvalidMessage(_)) => {
            "there is no TLS at this port: is its address without tls:?"
        }
        Some(TlsError::InvalidCertificate(certificate)) => match certificate {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the server's certificate has expired"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the server's certificate is not valid yet: is the clock right?"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "the server's certificate is for another name"
            }
            CertificateError::UnknownIssuer => {
                "nobody who is believed vouches for the server's certificate: --tls-root names a \
                 file of it, or of who issued it"
            }
            other => return format!("the server's certificate is not accepted: {other}"),
        },
        Some(TlsError::AlertReceived(AlertDescription::NoApplicationProtocol)) => {
            "the server speaks another protocol within TLS"
        }
        Some(TlsError::AlertReceived(AlertDescription::ProtocolVersion)) => {
            "the server has no TLS 1.3"
        }
        None if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            "the server ends the TLS handshake: it has too many connections, or its address is \
             without tls:"
        }
        _ => return format!("TLS handshake: {error}"),
    };
    text.to_owned()
}

/// As usual, and certificates that are known besides.
#[derive(Debug)]
struct Verifier {
    usual: Arc<WebPkiServerVerifier>,
    pinned: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, TlsError> {
        match self.usual.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            Err(TlsError::InvalidCertificate(why)) => {
                // The dates are looked at before any of these is found.
                let (is_name, is_issuer) = (is_of_the_name(&why), is_of_the_issuer(&why));
                if (is_name || is_issuer) && self.pinned.contains(certificate) {
                    return Ok(ServerCertVerified::assertion());
                }
                Err(if is_issuer { CertificateError::UnknownIssuer } else { why }.into())
            }
            judged => judged,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, TlsError> {
        self.usual.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, TlsError> {
        self.usual.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}

/// Whether the certificate has another name.
fn is_of_the_name(why: &CertificateError) -> bool {
    let context = matches!(why, CertificateError::NotValidForNameContext { .. });
    context || matches!(why, CertificateError::NotValidForName)
}

/// Whether nobody who is believed has issued the certificate: nobody of that name, or of that name and with
/// another key; or it vouches for others and for itself, as those of `openssl req -x509` do.
fn is_of_the_issuer(why: &CertificateError) -> bool {
    match why {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => true,
        CertificateError::Other(other) => other.to_string() == "CaUsedAsEndEntity",
        _ => false,
    }
}
