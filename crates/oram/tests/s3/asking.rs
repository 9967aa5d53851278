//! Credentials that others give for a while, and that change while a bucket is used.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tacita_oram::anchor::MemoryAnchor;
use tacita_oram::blob::{BlobStore, Put, S3Access, S3Store};
use tacita_oram::client::{self, Access, Anchorage, Client, Connect, Patience, Surroundings};
use tacita_oram::geometry::Geometry;
use tacita_oram::link::Stream;
use tacita_oram::log_view::Outcome;
use tacita_oram::object::Object;
use tacita_oram::record::Operation;
use tacita_oram::server::{Limits, Server};
use tacita_oram::{Error, Kind};
use tacita_secret::Key;
use tokio::time::Instant;

use super::way::Mishap;
use super::{Bench, names, place};

/// How a test answers: by the head of a request, the status and the body.
type Answers = Box<dyn FnMut(&str) -> (u16, String) + Send>;

/// Who gives credentials, as long as the process lives.
struct Giver {
    address: SocketAddr,
    /// Heads of what was asked.
    asked: Arc<Mutex<Vec<String>>>,
    answers: Arc<Mutex<Answers>>,
}

impl Giver {
    fn new(answers: impl FnMut(&str) -> (u16, String) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let answers: Arc<Mutex<Answers>> = Arc::new(Mutex::new(Box::new(answers)));
        let (noted, answering) = (asked.clone(), answers.clone());
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (mut bytes, mut byte) = (Vec::new(), [0]);
                while !bytes.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1)
                {
                    bytes.push(byte[0]);
                }
                let head = String::from_utf8(bytes).unwrap();
                let (status, body) = answering.lock().unwrap()(&head);
                noted.lock().unwrap().push(head);
                let len = body.len();
                let head = format!(
                    "HTTP/1.1 {status} .\r\nContent-Length: {len}\r\nConnection: close\r\n"
                );
                let _ = stream.write_all(format!("{head}\r\n{body}").as_bytes());
            }
        });
        Self { address, asked, answers }
    }

    fn answer(&self, answers: impl FnMut(&str) -> (u16, String) + Send + 'static) {
        *self.answers.lock().unwrap() = Box::new(answers);
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// Credentials as services give them, until then.
fn given(key_id: &str, end: &str) -> String {
    format!(
        "{{\"AccessKeyId\":\"{key_id}\",\"SecretAccessKey\":\"hidden-secret\",\"Token\":\"hidden-token\",\
         \"Expiration\":\"{end}\"}}"
    )
}

const LONG: &str = "2099-01-01T00:00:00Z";
/// What has this end is to be replaced as soon as it is used.
const PAST: &str = "2001-01-01T00:00:00Z";

fn access(bench: &Bench, variables: &[(&str, &str)]) -> S3Access {
    let url = bench.way.url();
    S3Access::of_variables(|name| {
        let said =
            variables.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned());
        said.or_else(|| (name == "AWS_ENDPOINT_URL").then(|| url.clone()))
    })
    .unwrap()
}

/// Notes by which key everything is asked, and refuses one of them.
fn notes(bench: &Bench, refused: &'static str) -> Arc<Mutex<Vec<String>>> {
    let noted = Arc::new(Mutex::new(Vec::new()));
    let shared = noted.clone();
    bench.way.rule(move |head, _| {
        let (_, rest) = head.split_once("Credential=").unwrap();
        let key = rest.split_once('/').unwrap().0.to_owned();
        let is_refused = key == refused;
        shared.lock().unwrap().push(key);
        is_refused.then_some(Mishap::Answered(403, "ExpiredToken"))
    });
    noted
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_of_containers_and_machines_and_tokens() {
    let Some(bench) = Bench::new("roles_of_containers_and_machines_and_tokens") else { return };
    let noted = notes(&bench, "");
    let giver = Giver::new(|_| (200, given("CONTAINER", LONG)));
    let url = format!("http://{}/creds", giver.address);
    let uri = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", url.as_str());
    let file = bench.folder.path().join("token");
    std::fs::write(&file, "by-file").unwrap();
    let token_file = file.to_str().unwrap();
    for (more, header) in [
        (None, None),
        (Some(("AWS_CONTAINER_AUTHORIZATION_TOKEN", "by-variable")), Some("by-variable")),
        (Some(("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token_file)), Some("by-file")),
    ] {
        let variables: Vec<_> = [uri].into_iter().chain(more).collect();
        let access = access(&bench, &variables);
        S3Store::open(&place("a"), &access).await.unwrap();
        let asked = giver.asked().pop().unwrap().to_ascii_lowercase();
        let shown = asked.lines().find_map(|line| line.strip_prefix("authorization: "));
        assert_eq!(shown.map(str::trim), header);
        assert!(!format!("{access:?}").contains("by-"));
    }
    // An open store asks once, for they last.
    assert_eq!(giver.asked().len(), 3);

    giver.answer(|head| match head.split(' ').nth(1).unwrap() {
        "/latest/api/token" => (200, "of-the-session".into()),
        "/latest/meta-data/iam/security-credentials/" => (200, "its-role".into()),
        "/latest/meta-data/iam/security-credentials/its-role" => (200, given("MACHINE", LONG)),
        _ => (404, String::new()),
    });
    let url = format!("http://{}", giver.address);
    let machine = access(&bench, &[(MACHINE, &url)]);
    S3Store::open(&place("a"), &machine).await.unwrap();

    giver.answer(|_| {
        let xml = "AssumeRoleWithWebIdentity";
        let text = format!(
            "<{xml}Response><{xml}Result><Credentials><SessionToken>t</SessionToken>\
             <SecretAccessKey>s</SecretAccessKey><Expiration>{LONG}</Expiration>\
             <AccessKeyId>TOKEN</AccessKeyId></Credentials></{xml}Result></{xml}Response>"
        );
        (200, text)
    });
    let variables = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token_file),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r"),
        ("AWS_ENDPOINT_URL_STS", &url),
    ];
    S3Store::open(&place("a"), &access(&bench, &variables)).await.unwrap();
    let asked = giver.asked().pop().unwrap();
    assert!(asked.contains("WebIdentityToken=by-file") && asked.contains("role%2Fr"), "{asked}");
    let mut noted = noted.lock().unwrap().clone();
    noted.dedup();
    assert_eq!(noted, ["CONTAINER", "MACHINE", "TOKEN"]);
}

const MACHINE: &str = "AWS_EC2_METADATA_SERVICE_ENDPOINT";

#[tokio::test(flavor = "multi_thread")]
async fn who_gives_nothing_is_named_and_nothing_is_told() {
    let Some(bench) = Bench::new("who_gives_nothing_is_named_and_nothing_is_told") else { return };
    let giver = Giver::new(|_| (200, "{\"AccessKeyId\":\"hidden\",\"Token\":\"hidden".into()));
    let open = async |variables: &[(&str, &str)]| -> Error {
        let error = S3Store::open(&place("a"), &access(&bench, variables)).await.unwrap_err();
        assert!(!error.to_string().contains("hidden"), "{error}");
        error
    };
    let url = format!("http://{}/creds", giver.address);
    let uri = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", url.as_str());
    let error = open(&[uri]).await;
    assert_eq!(error.kind(), Kind::Storage);
    names(&error, &[uri.0, "makes no sense"]);
    giver.answer(|_| (403, "hidden".into()));
    names(&open(&[uri]).await, &[uri.0, "refused (403)"]);
    let token_file = ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/nowhere/token");
    names(&open(&[uri, token_file]).await, &["/nowhere/token", "No such file"]);
    // A machine without a role has no credentials at all.
    let endpoint = format!("http://{}", giver.address);
    giver.answer(|_| (404, "hidden".into()));
    let error = open(&[(MACHINE, &endpoint)]).await;
    assert_eq!(error.kind(), Kind::Parameters);
    names(&error, &["AWS_ACCESS_KEY_ID", "AWS_PROFILE", "refused (404)"]);
    // Nor has one where nobody is there, or nobody answers; that does not take long.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    // Others may be given any port that is free now, but never this one.
    let nobody = "127.0.0.1:1".parse().unwrap();
    for (address, word) in [(silent.local_addr().unwrap(), "in time"), (nobody, "refused")] {
        let begin = Instant::now();
        let url = format!("http://{address}");
        let error = open(&[(MACHINE, &url)]).await;
        assert_eq!(error.kind(), Kind::Parameters);
        names(&error, &["AWS_ACCESS_KEY_ID", word]);
        assert!(begin.elapsed() < Duration::from_mins(1), "it hangs");
    }
}

const LOG: Object = Object::Log { first: 7 };

/// Credentials of a role that are about to end are asked for anew; the last ones do while nobody gives any;
/// and what the server no longer accepts is asked for at once.
#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_end_are_followed_by_others() {
    let Some(bench) = Bench::new("credentials_that_end_are_followed_by_others") else { return };
    let noted = notes(&bench, "");
    let mut number = 0;
    let giver = Giver::new(move |_| {
        number += 1;
        (200, given(&format!("KEY{number}"), PAST))
    });
    let url = format!("http://{}/creds", giver.address);
    let access = access(&bench, &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", &url)]);
    let store = S3Store::open(&place("a"), &access).await.unwrap();
    let first = giver.asked().len();
    assert_eq!(store.put_if_absent(LOG, Bytes::new()).await.unwrap(), Put::Created);
    assert!(giver.asked().len() > first);
    let last = noted.lock().unwrap().pop().unwrap();
    assert_ne!(last, "KEY1");
    giver.answer(|_| (500, String::new()));
    assert_eq!(store.len(LOG).await.unwrap(), Some(0));
    assert_eq!(noted.lock().unwrap().pop().unwrap(), last);
    // The server accepts them no more, and there are others.
    giver.answer(|_| (200, given("OTHER", LONG)));
    let begin = Instant::now();
    bench.way.rule(move |head, _| {
        let is_ended = !head.contains("Credential=OTHER/");
        is_ended.then_some(Mishap::Answered(400, "ExpiredToken"))
    });
    assert_eq!(store.len(LOG).await.unwrap(), Some(0));
    assert!(begin.elapsed() < Duration::from_mins(1));
    // If there are none, it is said that there are none.
    giver.answer(|_| (403, String::new()));
    bench.way.rule(|_, _| Some(Mishap::Answered(403, "ExpiredToken")));
    names(&store.put_if_absent(LOG, Bytes::new()).await.unwrap_err(), &["ExpiredToken"]);
}

/// A way to a server in this process.
struct Within(Server);

#[async_trait]
impl Connect for Within {
    async fn connect(&self) -> tacita_oram::Result<Box<dyn Stream>> {
        let (near, far) = tokio::io::duplex(1 << 16);
        let server = self.0.clone();
        tokio::spawn(async move { server.serve(far).await });
        Ok(Box::new(near))
    }
}

fn profile(file: &Path, key_id: &str) {
    let text = format!("[p]\naws_access_key_id = {key_id}\naws_secret_access_key = s\n");
    std::fs::write(file, text).unwrap();
}

/// A store is served on while the file of its profile is renewed and the old key ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_is_served_on_with_a_renewed_profile() {
    let Some(bench) = Bench::new("a_store_is_served_on_with_a_renewed_profile") else { return };
    let file = bench.folder.path().join("credentials");
    profile(&file, "FIRST");
    let named = [("AWS_SHARED_CREDENTIALS_FILE", file.to_str().unwrap()), ("AWS_PROFILE", "p")];
    let access = access(&bench, &named);
    assert!(!format!("{access:?}").contains("FIRST"));
    let store = Arc::new(S3Store::open(&place("a"), &access).await.unwrap());
    let server = Server::open(store.clone(), Limits::default()).await.unwrap();
    let connect = Arc::new(Within(server));
    let geometry = Geometry::new(512, 16, 4, 100).unwrap().with_buckets(256).unwrap();
    let key = || Key::take(&mut [7; 32]);
    client::init(&*connect, &key(), geometry, [5; 16]).await.unwrap();
    let surroundings = Surroundings {
        connect,
        anchor: Anchorage::Own(Arc::new(MemoryAnchor::default())),
        random: Arc::new(tacita_secret::random::<16>),
        patience: Patience::default(),
        access: Access::Write,
        between: None,
    };
    let client = Client::open(&key(), surroundings).await.unwrap();
    let content = |n: u8| Bytes::from(vec![n; 512]);
    for n in 0..40 {
        client.query([n; 32], Operation::Write(content(n))).await.unwrap();
        if n == 20 {
            profile(&file, "SECOND");
            notes(&bench, "FIRST");
        }
    }
    for n in 0..40 {
        let found = client.query([n; 32], Operation::Read).await.unwrap();
        assert_eq!(found, Outcome::Was(Some(content(n))));
    }
    // A file that is gone, or half written, changes nothing.
    std::fs::write(&file, "[p]\naws_access_key_id = THI").unwrap();
    notes(&bench, "SECOND");
    names(&store.put_if_absent(LOG, Bytes::new()).await.unwrap_err(), &["profile", "ExpiredToken"]);
}
