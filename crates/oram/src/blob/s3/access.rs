//! Where a bucket is, and by what its server knows whoever asks.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::{Error, Kind, Result};

/// Region of a bucket where none is named.
const REGION: &str = "us-east-1";

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
    pub key_id: String,
    /// What shows it.
    pub secret: String,
    /// What comes with credentials that end.
    pub session_token: Option<String>,
    /// Region of the bucket.
    pub region: String,
    /// URL of the server; `None`: Amazon's for the region. Requests go unencrypted only where it begins with
    /// `http://`.
    pub endpoint: Option<String>,
    /// A file of certificates that vouch for the server; `None`: whom the system believes.
    pub roots: Option<PathBuf>,
}

impl S3Access {
    /// As the variables say that other programs for such servers go by: `AWS_ACCESS_KEY_ID`,
    /// `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION` or `AWS_DEFAULT_REGION`,
    /// `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL` or `AWS_ENDPOINT`, `AWS_CA_BUNDLE`.
    ///
    /// # Errors
    /// [`Kind::Parameters`] if there are no credentials, or the endpoint is no URL of HTTP.
    pub fn of_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let first = |names: &[&str]| {
            names.iter().find_map(|name| variable(name).filter(|value| !value.is_empty()))
        };
        let (Some(key_id), Some(secret)) =
            (first(&["AWS_ACCESS_KEY_ID"]), first(&["AWS_SECRET_ACCESS_KEY"]))
        else {
            let what = "there are no credentials for the bucket: set AWS_ACCESS_KEY_ID and \
                        AWS_SECRET_ACCESS_KEY";
            return Err(Error::new(Kind::Parameters, what));
        };
        let endpoint = first(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]);
        if endpoint.as_ref().is_some_and(|url| !is_endpoint(url)) {
            // It is not shown, for it may have a password.
            let what = "the endpoint is to be http://HOST[:PORT] or https://HOST[:PORT]: look at \
                        AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL and AWS_ENDPOINT";
            return Err(Error::new(Kind::Parameters, what));
        }
        Ok(Self {
            key_id,
            secret,
            session_token: first(&["AWS_SESSION_TOKEN"]),
            region: first(&["AWS_REGION", "AWS_DEFAULT_REGION"]).unwrap_or_else(|| REGION.into()),
            endpoint,
            roots: first(&["AWS_CA_BUNDLE"]).map(PathBuf::from),
        })
    }

    /// Whether requests go unencrypted.
    pub(super) fn is_plain(&self) -> bool {
        self.endpoint.as_ref().is_some_and(|url| url.starts_with("http://"))
    }
}

impl fmt::Debug for S3Access {
    /// Without credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Access")
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
        assert!(!full.is_plain() && full.session_token.is_some());
        assert!(!format!("{full:?}").contains("hidden"));
    }

    #[test]
    fn what_is_missing_is_named_and_no_secret_is_told() {
        for variables in [
            &[][..],
            &[("AWS_ACCESS_KEY_ID", "id")],
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
