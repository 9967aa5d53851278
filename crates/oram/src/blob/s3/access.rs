//! Where a bucket is, and by what its server knows whoever asks.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::credentials::{Credentials, Keys, ProfilePlace, Role};
use super::profile::{DEFAULT, Profile};
use crate::error::{Error, Kind, Result};

/// Region of a bucket where none is named.
const REGION: &str = "us-east-1";
/// What a session is called where that is not said.
const SESSION: &str = "tacita";
/// Hosts of which others do not read what goes there: this machine, and what runs its containers.
const OWN_HOSTS: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];
const CONTAINER_HOSTS: [&str; 3] = ["169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"];

/// The first of these variables that is set.
type First<'a> = dyn Fn(&[&str]) -> Option<String> + 'a;

/// A bucket, and what all names in it begin with: `s3://BUCKET[/PREFIX]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Place {
    pub(super) bucket: String,
    /// Without a slash at its end; empty for none.
    pub(super) prefix: String,
}

/// A server of buckets, and credentials for it.
#[derive(Clone, PartialEq, Eq)]
pub struct S3Access {
    /// Who asks.
    pub credentials: Credentials,
    /// Region of the bucket.
    pub region: String,
    /// URL of the server; `None`: Amazon's for the region. Requests go unencrypted only where it begins with
    /// `http://`.
    pub endpoint: Option<String>,
    /// A file of certificates that vouch for the server; `None`: whom the system believes.
    pub roots: Option<PathBuf>,
}

impl S3Access {
    /// As variables and files say that other programs for such servers go by: docs/cli.md has them all.
    /// A variable counts more than what a profile says. Credentials are those of the variables, else of the
    /// profile, else of a role: by a token, of the container, of the machine, in this order.
    ///
    /// # Errors
    /// [`Kind::Parameters`] if there are no credentials, or half of a pair, or what cannot be used here; if
    /// a file cannot be read or understood, or does not know the profile that is named; if an endpoint is
    /// no URL of HTTP.
    pub fn of_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let first = |names: &[&str]| {
            names.iter().find_map(|name| variable(name).filter(|value| !value.is_empty()))
        };
        let (place, profile) = profile_of(&first)?;
        let said = |key| profile.as_ref().and_then(|profile| profile.value(key)).map(str::to_owned);
        let credentials = credentials_of(&first, &place, profile.as_ref())?;
        let region = first(&["AWS_REGION", "AWS_DEFAULT_REGION"]).or_else(|| said("region"));
        let endpoint = first(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]);
        let named = profile.as_ref().and_then(Profile::endpoint).map(str::to_owned);
        let endpoint = endpoint.or(named);
        if endpoint.as_ref().is_some_and(|url| !is_endpoint(url)) {
            // It is not shown, for it may have a password.
            let what = "the endpoint is to be http://HOST[:PORT] or https://HOST[:PORT]: look at \
                        AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL and AWS_ENDPOINT, and endpoint_url \
                        of the profile";
            return Err(Error::new(Kind::Parameters, what));
        }
        let roots = first(&["AWS_CA_BUNDLE"]).or_else(|| said("ca_bundle"));
        Ok(Self {
            credentials,
            region: region.unwrap_or_else(|| REGION.into()),
            endpoint,
            roots: roots.map(|file| at_home(&file, &first)),
        })
    }

    /// Whether requests go unencrypted.
    pub(super) fn is_plain(&self) -> bool {
        self.endpoint.as_ref().is_some_and(|url| url.starts_with("http://"))
    }
}

/// Which profile there is to be, and what is said of it.
fn profile_of(first: &First<'_>) -> Result<(ProfilePlace, Option<Profile>)> {
    let profile = first(&["AWS_PROFILE"]);
    let file = |name: &str, usual: &str| -> Result<Option<PathBuf>> {
        let Some(named) = first(&[name]) else {
            let usual = first(&["HOME"]).map(|home| Path::new(&home).join(usual));
            // What cannot be reached is not there, unless somebody counts on it.
            return Ok(usual.filter(|path| profile.is_some() || std::fs::metadata(path).is_ok()));
        };
        let path = at_home(&named, first);
        if let Err(e) = std::fs::metadata(&path) {
            let what = format!("{}: {e}; it is named by {name}", path.display());
            return Err(Error::new(Kind::Parameters, what));
        }
        Ok(Some(path))
    };
    let place = ProfilePlace {
        credentials: file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials")?,
        config: file("AWS_CONFIG_FILE", ".aws/config")?,
        name: profile.clone().unwrap_or_else(|| DEFAULT.to_owned()),
    };
    let found = place.read()?;
    if profile.is_some() && found.is_none() {
        let what = "is in neither file: look at AWS_PROFILE. In the file of credentials it is \
                    [NAME], in the other one [profile NAME]";
        return Err(place.refused(what));
    }
    Ok((place, found))
}

/// Whose requests they are.
fn credentials_of(
    first: &First<'_>,
    place: &ProfilePlace,
    profile: Option<&Profile>,
) -> Result<Credentials> {
    let (id, secret) = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY");
    let half = |there, missing| {
        let what = format!("{there} is set and {missing} is not: set both, or none");
        Err(Error::new(Kind::Parameters, what))
    };
    match (first(&[id]), first(&[secret])) {
        (Some(key_id), Some(secret)) => {
            let session_token = first(&["AWS_SESSION_TOKEN"]);
            return Ok(Credentials::Keys(Keys { key_id, secret, session_token }));
        }
        (Some(_), None) => return half(id, secret),
        (None, Some(_)) => return half(secret, id),
        (None, None) => {}
    }
    if let Some(profile) = profile
        && let Some(credentials) = credentials_of_profile(first, place, profile)?
    {
        return Ok(credentials);
    }
    role_of(first).map(Credentials::Role)
}

fn credentials_of_profile(
    first: &First<'_>,
    place: &ProfilePlace,
    profile: &Profile,
) -> Result<Option<Credentials>> {
    let value = |key| profile.value(key).map(str::to_owned);
    if let (Some(arn), Some(token_file)) = (value("role_arn"), value("web_identity_token_file")) {
        let session = value("role_session_name").unwrap_or_else(|| SESSION.to_owned());
        return web_identity(first, &token_file, arn, session).map(Some);
    }
    let is_role = profile.value("role_arn").is_some();
    if !is_role && let Some(keys) = place.keys(profile)? {
        place.warn_of_readers();
        return Ok(Some(Credentials::Profile(place.clone(), keys)));
    }
    let elsewhere = ["role_arn", "credential_process", "sso_session", "sso_start_url"];
    if let Some(key) = elsewhere.iter().find(|key| profile.value(key).is_some()) {
        let name = &place.name;
        let what = format!(
            "gets its credentials by {key}, which goes through another program: let that program put \
             them into variables, by `aws configure export-credentials --profile {name} --format env`"
        );
        return Err(place.refused(&what));
    }
    Ok(None)
}

/// The role that the variables tell of, or the machine's.
fn role_of(first: &First<'_>) -> Result<Role> {
    let refuse = |what: &str| Err(Error::new(Kind::Parameters, what.to_owned()));
    let (file, arn) = ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN");
    match (first(&[file]), first(&[arn])) {
        (Some(file), Some(arn)) => {
            let session = first(&["AWS_ROLE_SESSION_NAME"]).unwrap_or_else(|| SESSION.to_owned());
            let Credentials::Role(role) = web_identity(first, &file, arn, session)? else {
                unreachable!("it is a role");
            };
            return Ok(role);
        }
        (Some(_), None) => {
            return refuse("AWS_WEB_IDENTITY_TOKEN_FILE is set and AWS_ROLE_ARN is not: set both");
        }
        (None, _) => {}
    }
    if let Some(path) = first(&["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"]) {
        if !path.starts_with('/') {
            return refuse("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI is to begin with a slash");
        }
        return Ok(Role::Task { path });
    }
    if let Some(url) = first(&["AWS_CONTAINER_CREDENTIALS_FULL_URI"]) {
        if !is_closed_to_others(&url, &CONTAINER_HOSTS) {
            return refuse(
                "AWS_CONTAINER_CREDENTIALS_FULL_URI is to be https://..., or http:// of this machine \
                 or of one of the addresses that are usual for containers: credentials would be \
                 read by others",
            );
        }
        let token_file = first(&["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"]).map(PathBuf::from);
        let token = first(&["AWS_CONTAINER_AUTHORIZATION_TOKEN"]);
        return Ok(Role::Container { url, token_file, token });
    }
    if first(&["AWS_EC2_METADATA_DISABLED"]).is_some_and(|s| s.eq_ignore_ascii_case("true")) {
        return Err(super::credentials::none("AWS_EC2_METADATA_DISABLED says not to ask for it"));
    }
    let endpoint = first(&["AWS_EC2_METADATA_SERVICE_ENDPOINT"]);
    let endpoint = endpoint.map(|url| url.trim_end_matches('/').to_owned());
    if endpoint.as_ref().is_some_and(|url| !url.starts_with("http://") || !is_endpoint(url)) {
        return refuse("AWS_EC2_METADATA_SERVICE_ENDPOINT is to be http://HOST[:PORT]");
    }
    Ok(Role::Machine { endpoint })
}

fn web_identity(
    first: &First<'_>,
    file: &str,
    arn: String,
    session: String,
) -> Result<Credentials> {
    let endpoint = first(&["AWS_ENDPOINT_URL_STS"]);
    if endpoint.as_ref().is_some_and(|url| !is_closed_to_others(url, &[])) {
        let what = "AWS_ENDPOINT_URL_STS is to be https://..., or http:// of this machine: the token \
                    would be read by others";
        return Err(Error::new(Kind::Parameters, what));
    }
    let token_file = at_home(file, first);
    Ok(Credentials::Role(Role::WebIdentity { token_file, arn, session, endpoint }))
}

/// The path, at home if it says so.
fn at_home(path: &str, first: &First<'_>) -> PathBuf {
    match (path.strip_prefix("~/"), first(&["HOME"])) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => path.into(),
    }
}

/// Whether what goes to this URL is encrypted, or stays on this machine or at `hosts`.
fn is_closed_to_others(url: &str, hosts: &[&str]) -> bool {
    if url.starts_with("https://") {
        return true;
    }
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => authority,
    };
    OWN_HOSTS.contains(&host) || hosts.contains(&host)
}

impl fmt::Debug for S3Access {
    /// Without credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Access")
            .field("credentials", &self.credentials)
            .field("region", &self.region)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

/// `http://` or `https://`, a host, perhaps a port, and nothing else.
fn is_endpoint(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")) else {
        return false;
    };
    let host = rest.strip_suffix('/').unwrap_or(rest);
    let is_host =
        |b: u8| matches!(b, b'.' | b'-' | b':' | b'[' | b']') || b.is_ascii_alphanumeric();
    !host.is_empty() && host.bytes().all(is_host)
}

impl FromStr for S3Place {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refuse = |what: &str| Err(Error::new(Kind::Parameters, format!("{text}: {what}")));
        let Some(rest) = text.strip_prefix("s3://") else {
            return refuse("a bucket is s3://BUCKET or s3://BUCKET/PREFIX");
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        let is_plain = |b: u8| matches!(b, b'-' | b'_' | b'.') || b.is_ascii_alphanumeric();
        let is_segment = |s: &str| !matches!(s, "" | "." | "..") && s.bytes().all(is_plain);
        if !(3..=63).contains(&bucket.len()) || !is_segment(bucket) {
            return refuse("a bucket's name has 3 to 63 letters, digits, '-', '.' and '_'");
        }
        if prefix.len() > 512 || !(prefix.is_empty() || prefix.split('/').all(is_segment)) {
            return refuse(
                "a prefix consists of letters, digits, '-', '.' and '_', with '/' between",
            );
        }
        Ok(Self { bucket: bucket.into(), prefix: prefix.into() })
    }
}

impl fmt::Display for S3Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}", self.bucket)?;
        if self.prefix.is_empty() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn access(variables: &[(&str, &str)]) -> Result<S3Access> {
        let all: HashMap<_, _> = variables.iter().copied().collect();
        S3Access::of_variables(|name| all.get(name).map(ToString::to_string))
    }

    #[test]
    fn buckets_are_read_as_they_are_shown() {
        for text in ["s3://bucket", "s3://my.bucket-1/a", "s3://bucket/a/B_2.c"] {
            assert_eq!(text.parse::<S3Place>().unwrap().to_string(), text);
        }
        assert_eq!("s3://bucket/a/".parse::<S3Place>().unwrap().to_string(), "s3://bucket/a");
        for text in [
            "s3://",
            "s3://ab",
            "s3:bucket",
            "s3://a b c",
            "s3://bucket//a",
            "s3://bucket/a/../b",
            "s3://bucket/a?b",
        ] {
            assert_eq!(text.parse::<S3Place>().unwrap_err().kind(), Kind::Parameters, "{text}");
        }
    }

    fn keys(access: &S3Access) -> Option<&Keys> {
        match &access.credentials {
            Credentials::Keys(keys) | Credentials::Profile(_, keys) => Some(keys),
            Credentials::Role(_) => None,
        }
    }

    fn role(variables: &[(&str, &str)]) -> Role {
        match access(variables).unwrap().credentials {
            Credentials::Role(role) => role,
            other => panic!("no role: {other:?}"),
        }
    }

    #[test]
    fn variables_are_as_usual() {
        let keys = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "hidden")];
        let plain = access(&keys).unwrap();
        assert_eq!((plain.region.as_str(), plain.endpoint.as_deref()), (REGION, None));
        let all = [
            &keys[..],
            &[
                ("AWS_DEFAULT_REGION", "eu-west-1"),
                ("AWS_ENDPOINT", "http://one:9000"),
                ("AWS_ENDPOINT_URL", "https://[::1]:9000/"),
                ("AWS_SESSION_TOKEN", "hidden too"),
            ],
        ]
        .concat();
        let full = access(&all).unwrap();
        assert_eq!(full.region, "eu-west-1");
        assert_eq!(full.endpoint.as_deref(), Some("https://[::1]:9000/"));
        assert!(!full.is_plain());
        assert!(self::keys(&full).unwrap().session_token.is_some());
        assert!(!format!("{full:?}").contains("hidden"));
    }

    /// Files of profiles, and the variables that name them.
    struct Files(tempfile::TempDir);

    impl Files {
        fn new(credentials: &str, config: &str) -> Self {
            let home = tempfile::tempdir().unwrap();
            std::fs::create_dir(home.path().join(".aws")).unwrap();
            std::fs::write(home.path().join(".aws/credentials"), credentials).unwrap();
            std::fs::write(home.path().join(".aws/config"), config).unwrap();
            Self(home)
        }

        fn access(&self, variables: &[(&str, &str)]) -> Result<S3Access> {
            access(&[&[("HOME", self.0.path().to_str().unwrap())], variables].concat())
        }

        /// An error that tells of this and of no secret.
        fn fails(&self, variables: &[(&str, &str)], word: &str) {
            let error = self.access(variables).unwrap_err();
            assert_eq!(error.kind(), Kind::Parameters);
            assert!(error.to_string().contains(word), "{word} is not in: {error}");
            assert!(!error.to_string().contains("hidden"), "{error}");
        }
    }

    #[test]
    fn profiles_say_what_variables_do_not() {
        let files = Files::new(
            "[default]\naws_access_key_id=A\naws_secret_access_key=hidden-a\n\
             [b]\naws_access_key_id=B\naws_secret_access_key=hidden-b\naws_session_token=hidden-t\n",
            "[default]\nregion=eu-west-1\nendpoint_url=http://one:1\nca_bundle=~/roots.pem\n\
             [profile b]\nregion=eu-west-2\n[profile c]\nregion = eu-west-3\n",
        );
        let found = files.access(&[]).unwrap();
        assert_eq!(keys(&found).unwrap().key_id, "A");
        assert_eq!(
            (found.region.as_str(), found.endpoint.as_deref()),
            ("eu-west-1", Some("http://one:1"))
        );
        assert_eq!(found.roots, Some(files.0.path().join("roots.pem")));
        assert!(!format!("{found:?}").contains("hidden"));
        let found = files.access(&[("AWS_PROFILE", "b"), ("AWS_REGION", "here")]).unwrap();
        assert_eq!(keys(&found).unwrap().session_token.as_deref(), Some("hidden-t"));
        assert_eq!((found.region.as_str(), found.endpoint), ("here", None));
        // Both have keys: variables are nearer.
        let own =
            [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "s"), ("AWS_PROFILE", "b")];
        let found = files.access(&own).unwrap();
        assert_eq!(
            (keys(&found).unwrap().key_id.as_str(), found.region.as_str()),
            ("id", "eu-west-2")
        );
        // One without keys leaves them to a role.
        let found = files.access(&[("AWS_PROFILE", "c")]).unwrap();
        assert_eq!(found.region, "eu-west-3");
        assert_eq!(found.credentials, Credentials::Role(Role::Machine { endpoint: None }));
        let elsewhere = files.0.path().join("elsewhere");
        std::fs::write(&elsewhere, "[default]\naws_access_key_id=E\naws_secret_access_key=s\n")
            .unwrap();
        let named = [("AWS_SHARED_CREDENTIALS_FILE", elsewhere.to_str().unwrap())];
        assert_eq!(keys(&files.access(&named).unwrap()).unwrap().key_id, "E");
    }

    #[test]
    fn profiles_that_do_not_do_are_named() {
        let files = Files::new(
            "[half]\naws_secret_access_key=hidden\n[id]\naws_access_key_id=hidden\n\
             [space]\naws_access_key_id=A\naws_secret_access_key=hid den\n\
             [url]\naws_access_key_id=A\naws_secret_access_key=hidden\n",
            "[profile url]\nendpoint_url=http://me:hidden@host\n\
             [profile sso]\nsso_start_url=https://hidden\n[profile run]\ncredential_process=hidden\n\
             [profile role]\nrole_arn=arn:hidden\nsource_profile=url\n",
        );
        for (name, word) in [
            ("half", "aws_access_key_id"),
            ("id", "aws_secret_access_key"),
            ("space", "with a space"),
            ("url", "endpoint_url"),
            ("sso", "export-credentials --profile sso"),
            ("run", "credential_process"),
            ("role", "role_arn"),
            ("nobody", "[profile NAME]"),
            ("nobody", ".aws/credentials"),
        ] {
            files.fails(&[("AWS_PROFILE", name)], word);
        }
        files.fails(&[("AWS_CONFIG_FILE", "/nowhere/config")], "/nowhere/config");
        let broken = Files::new("[default]\naws_secret_access_key hidden\n", "");
        broken.fails(&[], "line 2");
        broken.fails(&[], ".aws/credentials");
    }

    #[test]
    fn roles_come_last_and_in_order() {
        let token = [("AWS_WEB_IDENTITY_TOKEN_FILE", "/t"), ("AWS_ROLE_ARN", "arn")];
        let (arn, session, endpoint) = ("arn".into(), SESSION.into(), None);
        let token_file = "/t".into();
        let expected = Role::WebIdentity { token_file, arn, session, endpoint };
        let task = [("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/a")];
        assert_eq!(role(&[&token[..], &task].concat()), expected);
        let here = [("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://localhost:1/a")];
        assert_eq!(role(&[&task[..], &here].concat()), Role::Task { path: "/v2/a".into() });
        let machine = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:3/")];
        assert!(matches!(role(&[&here[..], &machine].concat()), Role::Container { .. }));
        let expected = Role::Machine { endpoint: Some("http://127.0.0.1:3".into()) };
        assert_eq!(role(&machine), expected);
        let files = Files::new(
            "",
            "[default]\nrole_arn=arn\nweb_identity_token_file=~/t\nrole_session_name=me\n",
        );
        let found = files.access(&[]).unwrap().credentials;
        let Credentials::Role(Role::WebIdentity { token_file, session, .. }) = found else {
            panic!("{found:?}");
        };
        assert_eq!((token_file, session.as_str()), (files.0.path().join("t"), "me"));
        for (variables, word) in [
            (&[("AWS_WEB_IDENTITY_TOKEN_FILE", "/t")][..], "AWS_ROLE_ARN"),
            (&[("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://host/a")], "read by others"),
            (
                &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://localhost@host/a")],
                "read by others",
            ),
            (&[("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "@host/a")], "slash"),
            (
                &[token[0], token[1], ("AWS_ENDPOINT_URL_STS", "http://host")],
                "AWS_ENDPOINT_URL_STS",
            ),
            (&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", "ftp://host")], "http://HOST"),
            (&[("AWS_EC2_METADATA_DISABLED", "True")], "AWS_PROFILE"),
        ] {
            let error = access(variables).unwrap_err();
            assert_eq!(error.kind(), Kind::Parameters);
            assert!(error.to_string().contains(word), "{word} is not in: {error}");
        }
    }

    #[test]
    fn what_is_missing_is_named_and_no_secret_is_told() {
        for variables in [
            &[("AWS_EC2_METADATA_DISABLED", "true")][..],
            &[("AWS_ACCESS_KEY_ID", "hidden")],
            &[("AWS_ACCESS_KEY_ID", ""), ("AWS_SECRET_ACCESS_KEY", "hidden")],
        ] {
            let error = access(variables).unwrap_err();
            assert!(error.to_string().contains("AWS_ACCESS_KEY_ID"), "{error}");
            assert!(!error.to_string().contains("hidden"), "{error}");
        }
        for url in
            ["host:9000", "ftp://host", "http://", "https://me:hidden@host", "http://host/path"]
        {
            let all = [
                ("AWS_ACCESS_KEY_ID", "id"),
                ("AWS_SECRET_ACCESS_KEY", "s"),
                ("AWS_ENDPOINT_URL", url),
            ];
            let error = access(&all).unwrap_err();
            assert!(error.to_string().contains("AWS_ENDPOINT_URL"), "{error}");
            assert!(!error.to_string().contains("hidden"), "{error}");
        }
    }
}
