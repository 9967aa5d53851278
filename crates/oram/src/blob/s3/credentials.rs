//! Who asks for a bucket, and what becomes of credentials that end while a store is served.
//!
//! Those of roles are asked for by the library that makes requests, and asked for anew five minutes before
//! they end. If that fails the last ones are used for as long as the server accepts them. Those of a
//! profile are read again when the server no longer accepts them: whatever renews the file is then
//! followed.

use std::error::Error as StdError;
use std::fmt;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use object_store::CredentialProvider;
use object_store::aws::{
    AmazonS3Builder, AmazonS3ConfigKey as Setting, AwsCredential, AwsCredentialProvider,
};
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpService,
};
use tokio::time::{Instant, timeout};

use super::S3Access;
use super::http::{CONNECTING, Requests, Trouble, no_retries};
use super::profile::{FILE_LEN_MAX, Profile, ProfileFile, Profiles};
use crate::error::{Error, Kind, Result};

/// How long whoever gives credentials of a role may take. A machine that is no instance of a cloud has nobody
/// at the address of its metadata, and must not be kept waiting for that.
const ROLE_PATIENCE: Duration = Duration::from_secs(10);
const MACHINE_PATIENCE: Duration = Duration::from_secs(2);
const MACHINE_CONNECTING: Duration = Duration::from_secs(1);
/// After a failure the last credentials are used for so long, and after they were renewed no other ones are
/// looked for.
const REST: Duration = Duration::from_secs(10);
/// A file in which there is nothing.
const EMPTY_FILE: &str = "/dev/null";

/// Whose requests they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// Whoever has these, as long as they hold.
    Keys(Keys),
    /// Whoever the profile is of; these are its keys for now.
    Profile(ProfilePlace, Keys),
    /// Whoever is given credentials for a while.
    Role(Role),
}

/// What shows who asks.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// Who asks.
    pub key_id: String,
    /// What shows it.
    pub secret: String,
    /// What comes with credentials that end.
    pub session_token: Option<String>,
}

/// Where a profile is, in two files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProfilePlace {
    pub(super) credentials: Option<PathBuf>,
    pub(super) config: Option<PathBuf>,
    pub(super) name: String,
}

/// Who gives credentials.
#[derive(Clone, PartialEq, Eq)]
pub enum Role {
    /// Whoever runs the container, at a path of the address that is usual for it.
    Task {
        /// The path.
        path: String,
    },
    /// Whoever runs the container, at this URL.
    Container {
        /// The URL.
        url: String,
        /// A file of what is shown there.
        token_file: Option<PathBuf>,
        /// What is shown there, if there is no file.
        token: Option<String>,
    },
    /// A service of the cloud, to whoever has a token of somebody else whom it believes.
    WebIdentity {
        /// A file of the token.
        token_file: PathBuf,
        /// Which role is wanted.
        arn: String,
        /// What the service calls this session.
        session: String,
        /// URL of the service; `None`: Amazon's for the region.
        endpoint: Option<String>,
    },
    /// The cloud that this machine is an instance of.
    Machine {
        /// URL of the machine's metadata; `None`: the one that is usual for it.
        endpoint: Option<String>,
    },
}

/// The credentials with which an open store asks.
pub(super) struct Asking {
    credentials: Credentials,
    region: String,
    roots: Option<PathBuf>,
    now: Mutex<Now>,
}

/// What changes of them.
struct Now {
    /// Who gives them; `None` if nobody does.
    giver: Option<AwsCredentialProvider>,
    last: Option<Arc<AwsCredential>>,
    failed: Option<Instant>,
    renewed: Option<Instant>,
}

/// A role gives no credentials.
#[derive(Debug)]
pub(super) struct Unavailable {
    role: Role,
    trouble: Trouble,
}

/// Requests for credentials of a role.
#[derive(Clone)]
struct RoleRequests {
    requests: Requests,
    /// What they show, whatever the library has them show.
    token: Option<String>,
}

impl ProfilePlace {
    /// What the files say of the profile, if they do.
    ///
    /// # Errors
    /// [`Kind::Parameters`] if a file is there and cannot be read, or is none of profiles.
    pub(super) fn read(&self) -> Result<Option<Profile>> {
        let read = |path: &Option<PathBuf>, file| match path {
            Some(path) => read_file(path, file),
            None => Ok(Profiles::default()),
        };
        let credentials = read(&self.credentials, ProfileFile::Credentials)?;
        let config = read(&self.config, ProfileFile::Config)?;
        Ok(credentials.profile(&config, &self.name))
    }

    /// The keys that `profile` has, which is this one; `None` if it has none.
    ///
    /// # Errors
    /// [`Kind::Parameters`] if they are not whole.
    pub(super) fn keys(&self, profile: &Profile) -> Result<Option<Keys>> {
        let value = |key| profile.value(key);
        let is_word = |text: &str| text.bytes().all(|b| b.is_ascii_graphic());
        let half = |there: &str, missing: &str| {
            self.refused(&format!("has {there} and no {missing}: add the other half of the pair"))
        };
        let (id, secret) = ("aws_access_key_id", "aws_secret_access_key");
        let keys = match (value(id), value(secret)) {
            (None, None) => return Ok(None),
            (Some(_), None) => return Err(half(id, secret)),
            (None, Some(_)) => return Err(half(secret, id)),
            (Some(key_id), Some(secret)) => Keys {
                key_id: key_id.to_owned(),
                secret: secret.to_owned(),
                session_token: value("aws_session_token").map(str::to_owned),
            },
        };
        let token = keys.session_token.as_deref().unwrap_or_default();
        if ![&keys.key_id, &keys.secret, token].into_iter().all(is_word) {
            return Err(self.refused("has credentials with a space or a letter that none has"));
        }
        Ok(Some(keys))
    }

    /// An error in what the profile says.
    pub(super) fn refused(&self, what: &str) -> Error {
        let files = [&self.credentials, &self.config];
        let files: Vec<_> = files.into_iter().flatten().map(|p| p.display().to_string()).collect();
        let text = format!("the profile {} ({}) {what}", self.name, files.join(", "));
        Error::new(Kind::Parameters, text)
    }

    /// Says so if others can read the secrets.
    pub(super) fn warn_of_readers(&self) {
        let Some(file) = &self.credentials else { return };
        // A special file is no place where secrets lie.
        let is_open = |found: &std::fs::Metadata| found.is_file() && found.mode() & 0o077 != 0;
        if std::fs::metadata(file).is_ok_and(|found| is_open(&found)) {
            // What is logged names no files.
            ::log::warn!(
                "the file of credentials of buckets (AWS_SHARED_CREDENTIALS_FILE, or \
                 ~/.aws/credentials) can be read by others: chmod 600 it"
            );
        }
    }
}

fn read_file(path: &Path, file: ProfileFile) -> Result<Profiles> {
    let wrong = |what: &dyn fmt::Display| {
        Error::new(Kind::Parameters, format!("{}: {what}", path.display()))
    };
    let opened = match std::fs::File::open(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Profiles::default()),
        opened => opened.map_err(|e| wrong(&e))?,
    };
    let (mut bytes, max) = (Vec::new(), FILE_LEN_MAX as u64 + 1);
    opened.take(max).read_to_end(&mut bytes).map_err(|e| wrong(&e))?;
    Profiles::parse(&bytes, file).map_err(|e| wrong(&e))
}

impl Role {
    fn patience(&self) -> Duration {
        if matches!(self, Self::Machine { .. }) { MACHINE_PATIENCE } else { ROLE_PATIENCE }
    }

    fn token_file(&self) -> Option<&Path> {
        match self {
            Self::Container { token_file, .. } => token_file.as_deref(),
            Self::WebIdentity { token_file, .. } => Some(token_file),
            Self::Task { .. } | Self::Machine { .. } => None,
        }
    }

    /// The library's provider for it, with nothing kept yet.
    fn giver(&self, region: &str, roots: Option<&Path>) -> Result<AwsCredentialProvider> {
        let (mut plain, mut connecting, mut shown) = (true, CONNECTING, None);
        // Of a bucket that nobody asks for: the library tells by it who gives credentials.
        let mut builder = AmazonS3Builder::new().with_bucket_name("bucket").with_region(region);
        let mut set = |setting: Setting, value: &str| {
            builder = std::mem::take(&mut builder).with_config(setting, value);
        };
        let text = |path: &Path| path.to_string_lossy().into_owned();
        match self {
            Self::Task { path } => set(Setting::ContainerCredentialsRelativeUri, path),
            Self::Container { url, token_file, token } => {
                plain = url.starts_with("http://");
                set(Setting::ContainerCredentialsFullUri, url);
                let file = token_file.as_deref().unwrap_or(Path::new(EMPTY_FILE));
                set(Setting::ContainerAuthorizationTokenFile, &text(file));
                if token_file.is_none() {
                    shown = Some(token.clone().unwrap_or_default());
                }
            }
            Self::WebIdentity { token_file, arn, session, endpoint } => {
                plain = endpoint.as_ref().is_some_and(|url| url.starts_with("http://"));
                set(Setting::WebIdentityTokenFile, &text(token_file));
                set(Setting::RoleArn, arn);
                set(Setting::RoleSessionName, session);
                if let Some(url) = endpoint {
                    set(Setting::StsEndpoint, url);
                }
            }
            Self::Machine { endpoint } => {
                connecting = MACHINE_CONNECTING;
                if let Some(url) = endpoint {
                    set(Setting::MetadataEndpoint, url);
                }
            }
        }
        let requests = Requests::new(roots, plain, connecting)?;
        let requests = RoleRequests { requests, token: shown };
        let built = builder.with_http_connector(requests).with_retry(no_retries()).build();
        let wrong = |_| Error::new(Kind::Parameters, format!("{self}: it makes no requests"));
        Ok(built.map_err(wrong)?.credentials().clone())
    }
}

impl Asking {
    pub(super) fn new(access: &S3Access) -> Result<Self> {
        let S3Access { credentials, region, roots, .. } = access.clone();
        let (giver, last) = match &credentials {
            Credentials::Keys(keys) | Credentials::Profile(_, keys) => {
                (None, Some(Arc::new(keys.credential())))
            }
            Credentials::Role(role) => (Some(role.giver(&region, roots.as_deref())?), None),
        };
        let now = Mutex::new(Now { giver, last, failed: None, renewed: None });
        Ok(Self { credentials, region, roots, now })
    }

    /// Whether this machine has a role, if that is all that there may be.
    ///
    /// # Errors
    /// [`Kind::Parameters`] if it has none.
    pub(super) async fn try_machine(&self) -> Result<()> {
        let Credentials::Role(Role::Machine { .. }) = self.credentials else { return Ok(()) };
        let Err(error) = self.get_credential().await else { return Ok(()) };
        let trouble = match Trouble::of(&error) {
            Trouble::Lost { why, .. } => why,
            trouble @ Trouble::Refused(_) => trouble.to_string(),
        };
        Err(none(&trouble))
    }

    /// Looks for other credentials, for what was asked at `begun` was refused because of those that there
    /// were; whether there may be some since then.
    pub(super) fn renew(&self, begun: Instant) -> bool {
        let mut now = self.now();
        if let Some(renewed) = now.renewed {
            if renewed > begun {
                return true;
            }
            if renewed.elapsed() < REST {
                return false;
            }
        }
        let found = match &self.credentials {
            Credentials::Keys(_) => return false,
            Credentials::Profile(place, _) => {
                // A file that is being written is read another time.
                let read = place.read().ok().flatten();
                let keys = read.and_then(|profile| place.keys(&profile).ok().flatten());
                let found = keys.map(|keys| Arc::new(keys.credential()));
                found
                    .filter(|found| now.last.as_ref() != Some(found))
                    .map(|found| (None, Some(found)))
            }
            Credentials::Role(role) => role
                .giver(&self.region, self.roots.as_deref())
                .ok()
                .map(|giver| (Some(giver), None)),
        };
        let Some((giver, last)) = found else { return false };
        *now = Now { giver, last, failed: None, renewed: Some(Instant::now()) };
        true
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        // Each change is whole before anything can fail.
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl CredentialProvider for Asking {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let giver = {
            let now = self.now();
            let is_resting = now.failed.is_some_and(|failed| failed.elapsed() < REST);
            match (&now.last, &now.giver) {
                (Some(last), None) => return Ok(last.clone()),
                (Some(last), _) if is_resting => return Ok(last.clone()),
                (_, giver) => giver.clone(),
            }
        };
        let (Some(giver), Credentials::Role(role)) = (giver, &self.credentials) else {
            unreachable!("what nobody gives is there from the beginning");
        };
        let trouble = match timeout(role.patience(), giver.get_credential()).await {
            Ok(Ok(credential)) => {
                let mut now = self.now();
                // Another one may have taken its place meanwhile.
                if now.giver.as_ref().is_some_and(|now| Arc::ptr_eq(now, &giver)) {
                    (now.last, now.failed) = (Some(credential.clone()), None);
                }
                return Ok(credential);
            }
            Ok(Err(error)) => trouble_of(role, &error),
            Err(_) => Trouble::Lost { why: "no answer in time".to_owned(), is_passing: true },
        };
        let mut now = self.now();
        now.failed = Some(Instant::now());
        if let Some(last) = &now.last {
            return Ok(last.clone());
        }
        let source = Box::new(Unavailable { role: role.clone(), trouble });
        Err(object_store::Error::Generic { store: "credentials", source })
    }
}

/// What is wrong, and nothing of what was answered: that may be credentials.
fn trouble_of(role: &Role, error: &object_store::Error) -> Trouble {
    if let Some(file) = role.token_file()
        && let Err(e) = std::fs::read_to_string(file)
    {
        return Trouble::Lost { why: format!("{}: {e}", file.display()), is_passing: false };
    }
    let mut next = Some(error as &(dyn StdError + 'static));
    while let Some(error) = next {
        if error.downcast_ref::<HttpError>().is_some_and(|e| e.kind() == HttpErrorKind::Decode) {
            return Trouble::Lost { why: "the answer makes no sense".into(), is_passing: true };
        }
        next = error.source();
    }
    Trouble::of(error)
}

/// There is nothing to ask with; `machine` says why the machine's role is none, if it was asked for.
pub(super) fn none(machine: &str) -> Error {
    let text = format!(
        "there are no credentials for the bucket: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or \
         AWS_PROFILE to a profile that has them, or give this machine a role ({machine})"
    );
    Error::new(Kind::Parameters, text)
}

impl Keys {
    fn credential(&self) -> AwsCredential {
        AwsCredential {
            key_id: self.key_id.clone(),
            secret_key: self.secret.clone(),
            token: self.session_token.clone(),
        }
    }
}

impl Unavailable {
    pub(super) fn is_passing(&self) -> bool {
        self.trouble.is_passing()
    }
}

impl HttpConnector for RoleRequests {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for RoleRequests {
    async fn call(&self, mut request: HttpRequest) -> std::result::Result<HttpResponse, HttpError> {
        if let Some(token) = &self.token {
            request.headers_mut().remove("authorization");
            if !token.is_empty() {
                let value = token.parse().map_err(|e| HttpError::new(HttpErrorKind::Unknown, e))?;
                request.headers_mut().insert("authorization", value);
            }
        }
        self.requests.call(request).await
    }
}

impl fmt::Debug for Asking {
    /// Without credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking").field("credentials", &self.credentials).finish_non_exhaustive()
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl fmt::Debug for Role {
    /// Without what is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Task { .. } => "Task",
            Self::Container { .. } => "Container",
            Self::WebIdentity { .. } => "WebIdentity",
            Self::Machine { .. } => "Machine",
        })
    }
}

impl fmt::Debug for RoleRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoleRequests").finish_non_exhaustive()
    }
}

impl fmt::Display for Role {
    /// By the variable that it comes from; a URL may have a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Task { .. } => {
                "credentials of the container (AWS_CONTAINER_CREDENTIALS_RELATIVE_URI)"
            }
            Self::Container { .. } => {
                "credentials of the container (AWS_CONTAINER_CREDENTIALS_FULL_URI)"
            }
            Self::WebIdentity { .. } => {
                "credentials for the token (AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN)"
            }
            Self::Machine { .. } => "credentials of this machine's role",
        })
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { role, trouble } = self;
        match trouble {
            // The remedies are those of a bucket's requests.
            Trouble::Refused(refused) => write!(f, "{role}: refused ({})", refused.status),
            Trouble::Lost { why, .. } => write!(f, "{role}: {why}"),
        }
    }
}

impl StdError for Unavailable {}
