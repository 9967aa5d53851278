//! Requests to a server of buckets, and what it has against one.
//!
//! The library that makes requests keeps what a server answers in texts, in which there may be credentials
//! and what was signed with them. So refusals are read here, and nothing of them is kept but a
//! status and a word.

use std::error::Error as StdError;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::{ClientOptions, RetryConfig};
use tokio_rustls::rustls;

use super::credentials::Unavailable;
use crate::error::{Error, Kind, Result};
use crate::trust;

/// How long a server may take to be connected to.
pub(super) const CONNECTING: Duration = Duration::from_secs(10);
/// Characters of a word of the server's that are shown.
const WORD_LEN_MAX: usize = 64;

/// A request that the server does not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) status: u16,
    /// The server's word for it; empty if it has none.
    pub(super) code: String,
    /// The region that the bucket is in, if the server says that it is another one.
    pub(super) region: Option<String>,
    /// Whether there are other credentials since then.
    is_renewed: bool,
}

/// Why a request has not come about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The server refuses it.
    Refused(Refused),
    /// The way there and back failed; it may be done all the same. Whether it may go another time.
    Lost { why: String, is_passing: bool },
}

/// Makes the requests of a bucket.
#[derive(Debug, Clone)]
pub(super) struct Requests(reqwest::Client);

impl Requests {
    /// To servers that the file `roots` vouches for, or whom the system believes; unencrypted alone if they
    /// are `plain`.
    pub(super) fn new(roots: Option<&Path>, plain: bool, connecting: Duration) -> Result<Self> {
        // Nobody is believed where nothing is to be.
        let roots = match roots {
            _ if plain => rustls::RootCertStore::empty(),
            Some(file) => trust::of_file(file)?,
            None => trust::of_system()?,
        };
        let tls = rustls::ClientConfig::builder_with_provider(trust::provider())
            .with_safe_default_protocol_versions()
            .expect("ring has them")
            .with_root_certificates(roots)
            .with_no_client_auth();
        // What is signed is for one server: nobody is followed elsewhere.
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .https_only(!plain)
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(connecting)
            .no_proxy()
            .build();
        client.map(Self).map_err(|e| Error::new(Kind::Parameters, format!("HTTP: {e}")))
    }
}

impl HttpConnector for Requests {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Requests {
    async fn call(&self, request: HttpRequest) -> std::result::Result<HttpResponse, HttpError> {
        let answer = self.0.call(request).await?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status().as_u16();
        let region = answer.headers().get("x-amz-bucket-region");
        let region = region.and_then(|value| value.to_str().ok()).map(word);
        let body = answer.into_body().bytes().await.unwrap_or_default();
        let body = String::from_utf8_lossy(&body);
        let code = between(&body, "<Code>", "</Code>").map(word).unwrap_or_default();
        let region = region.or_else(|| between(&body, "<Region>", "</Region>").map(word));
        Err(HttpError::new(
            HttpErrorKind::Unknown,
            Refused { status, code, region, is_renewed: false },
        ))
    }
}

impl Refused {
    /// Whether there is no such thing, but a bucket.
    pub(super) fn is_absent(&self) -> bool {
        self.status == 404 && self.code != "NoSuchBucket"
    }

    /// Whether it is for who asks, and not for what is asked.
    fn is_of_credentials(&self) -> bool {
        let codes = [
            "InvalidAccessKeyId",
            "InvalidClientTokenId",
            "SignatureDoesNotMatch",
            "ExpiredToken",
            "InvalidToken",
            "AuthFailure",
        ];
        self.status == 401 || codes.contains(&self.code.as_str())
    }

    /// Whether it may go another time.
    fn is_passing(&self) -> bool {
        self.is_renewed
            || matches!(self.status, 408 | 409 | 429 | 500 | 502 | 503 | 504)
            || matches!(self.code.as_str(), "SlowDown" | "RequestTimeout" | "InternalError")
    }

    /// Whether there is no room left.
    fn is_of_room(&self) -> bool {
        self.status == 507 || matches!(self.code.as_str(), "QuotaExceeded" | "XMinioStorageFull")
    }

    /// What can be done about it.
    fn remedy(&self) -> String {
        let elsewhere = || match &self.region {
            Some(region) => format!("the bucket is in region {region}: set AWS_REGION to it"),
            None => "the bucket is in another region: set AWS_REGION to it".to_owned(),
        };
        let said = match (self.status, self.code.as_str()) {
            (_, "NoSuchBucket") => "there is no such bucket: make it first",
            (
                _,
                "PermanentRedirect"
                | "AuthorizationHeaderMalformed"
                | "TemporaryRedirect"
                | "IllegalLocationConstraintException",
            )
            | (301 | 307 | 308, _) => return elsewhere(),
            _ if self.is_of_credentials() => {
                "the credentials are not accepted: look at AWS_ACCESS_KEY_ID, \
                 AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or at the profile or role that they \
                 come from"
            }
            (_, "RequestTimeTooSkewed") => "this machine's clock is not right",
            (403, _) => {
                "these credentials may not do it: a store needs s3:ListBucket, s3:GetObject, \
                 s3:PutObject and s3:DeleteObject"
            }
            (501, _) => "the server does not know how: no store can be kept there",
            _ if self.is_of_room() => "there is no room left",
            (429 | 503, _) | (_, "SlowDown") => "it is asked for too much at once",
            _ => "",
        };
        said.to_owned()
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server refuses it ({}", self.status)?;
        let gap = if self.code.is_empty() { "" } else { " " };
        write!(f, "{gap}{})", self.code)?;
        let remedy = self.remedy();
        if remedy.is_empty() { Ok(()) } else { write!(f, "; {remedy}") }
    }
}

impl StdError for Refused {}

impl Trouble {
    /// What lies beneath an error of the library, and nothing else of it.
    pub(super) fn of(error: &object_store::Error) -> Self {
        let (mut next, mut why, mut is_passing) =
            (Some(error as &(dyn StdError + 'static)), "", false);
        let mut texts = Vec::new();
        while let Some(error) = next {
            if let Some(refused) = error.downcast_ref::<Refused>() {
                return Self::Refused(refused.clone());
            }
            if let Some(unavailable) = error.downcast_ref::<Unavailable>() {
                let (why, is_passing) = (unavailable.to_string(), unavailable.is_passing());
                return Self::Lost { why, is_passing };
            }
            if error.is::<HttpError>() {
                (why, is_passing) = ("the way to the server", true);
            } else if !why.is_empty() {
                texts.push(error.to_string());
            }
            if let Some(io) = error.downcast_ref::<std::io::Error>()
                && io.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>()).is_some()
            {
                is_passing = false;
            }
            next = error.source();
        }
        if why.is_empty() {
            // Of what the server has answered, not of the way there.
            let why = "the server answers what makes no sense".to_owned();
            return Self::Lost { why, is_passing: false };
        }
        // Each says what the one before has said, and more.
        let cause = texts.pop().unwrap_or_default();
        Self::Lost { why: format!("{why}: {cause}"), is_passing }
    }

    /// Whether it is refused for what is there, or for somebody who does something with it right now.
    pub(super) fn is_conflict(&self) -> bool {
        // A condition on what is not there does not hold, which some servers call absent.
        matches!(self, Self::Refused(r) if matches!(r.status, 304 | 409 | 412) || r.is_absent())
    }

    /// Whether it may be for who asks, and not for what is asked: there is no word in an answer without a
    /// body.
    pub(super) fn may_be_of_credentials(&self) -> bool {
        let Self::Refused(refused) = self else { return false };
        let is_wordless = refused.code.is_empty() && matches!(refused.status, 400 | 403);
        is_wordless || refused.is_of_credentials()
    }

    /// The same, now that there are other credentials.
    pub(super) fn renewed(self) -> Self {
        match self {
            Self::Refused(refused) => Self::Refused(Refused { is_renewed: true, ..refused }),
            lost @ Self::Lost { .. } => lost,
        }
    }

    /// Whether there is no room left.
    pub(super) fn is_of_room(&self) -> bool {
        matches!(self, Self::Refused(refused) if refused.is_of_room())
    }

    /// Whether it may go another time.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Refused(refused) => refused.is_passing(),
            Self::Lost { is_passing, .. } => *is_passing,
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => refused.fmt(f),
            Self::Lost { why, .. } => f.write_str(why),
        }
    }
}

/// Each request once.
pub(super) fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

fn between<'a>(text: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(begin)?;
    Some(rest.split_once(end)?.0)
}

/// What of a server's word can be shown.
fn word(text: &str) -> String {
    let is_shown = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    text.chars().filter(is_shown).take(WORD_LEN_MAX).collect()
}
