//! The store in a bucket, on servers that the tests start, and on a way to them on which things go wrong.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]
#![cfg(feature = "faults")]

mod asking;
#[path = "../support/certificates.rs"]
mod certificates;
mod secured;
mod way;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tacita_clock::{Clock, System};
use tacita_oram::blob::{
    BlobStore, Credentials, Keys, Put, S3Access, S3Place, S3Store, Swap, conformance,
};
use tacita_oram::object::Object;
use tacita_oram::{Error, Kind};
use tacita_testkit::s3_server::{BUCKET, KEY_ID, S3Server, SECRET};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::Instant;

use way::{Mishap, Way};

/// A server, and the way to it.
struct Bench {
    server: S3Server,
    way: Way,
    folder: TempDir,
}

impl Bench {
    fn new(test: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let server = S3Server::start(test, folder.path())?;
        let way = Way::to(server.address());
        Some(Self { server, way, folder })
    }

    fn access(&self) -> S3Access {
        self.access_of(KEY_ID, SECRET)
    }

    fn access_of(&self, key_id: &str, secret: &str) -> S3Access {
        S3Access {
            credentials: credentials(key_id, secret),
            region: "us-east-1".into(),
            endpoint: Some(self.way.url()),
            roots: None,
        }
    }

    async fn open(&self, prefix: &str) -> Result<S3Store, Error> {
        S3Store::open(&place(prefix), &self.access()).await
    }
}

fn credentials(key_id: &str, secret: &str) -> Credentials {
    let (key_id, secret, session_token) = (key_id.into(), secret.into(), None);
    Credentials::Keys(Keys { key_id, secret, session_token })
}

fn place(prefix: &str) -> S3Place {
    format!("s3://{BUCKET}/{prefix}").parse().unwrap()
}

/// An error that names all these words, and nothing that nobody else is to know.
#[track_caller]
fn names(error: &Error, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{word} is not in: {text}");
    }
    assert!(!text.contains(SECRET) && !text.contains(KEY_ID), "{text}");
}

fn is_put(head: &str) -> bool {
    head.starts_with("PUT ")
}

const LOG: Object = Object::Log { first: 7 };

async fn whole(store: &S3Store, object: Object) -> Bytes {
    let len = store.len(object).await.unwrap().unwrap();
    store.get(object, std::slice::from_ref(&(0..len))).await.unwrap().unwrap().remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_conforms() {
    let Some(bench) = Bench::new("a_bucket_conforms") else { return };
    // Another store in the same bucket is none of its business, though its name begins alike.
    let other = bench.open("store-12").await.unwrap();
    other.put_if_absent(Object::Log { first: 9 }, Bytes::new()).await.unwrap();
    other.swap_root(None, Bytes::from_static(b"other")).await.unwrap();
    conformance::check(async || {
        Arc::new(bench.open("store-1").await.unwrap()) as Arc<dyn BlobStore>
    })
    .await;
    let mut left = other.list("").await.unwrap();
    assert_eq!(left.pop(), Some(Object::Log { first: 9 }));
    assert_eq!((left.len(), other.root().await.unwrap()), (0, Some(Bytes::from_static(b"other"))));
}

/// Every request fails twice before it is done: nobody notices.
#[tokio::test(flavor = "multi_thread")]
async fn what_fails_for_a_while_is_tried_again() {
    let Some(bench) = Bench::new("what_fails_for_a_while_is_tried_again") else { return };
    let troubles = [
        Mishap::Answered(503, "SlowDown"),
        Mishap::Answered(500, "InternalError"),
        Mishap::Answered(400, "RequestTimeout"),
        Mishap::Answered(429, ""),
    ];
    bench.way.rule(move |head, number| {
        // There is no word in an answer without a body, so the status has to do.
        let which = if head.starts_with("HEAD ") { 0 } else { number % 4 };
        (number % 3 != 2).then(|| troubles[which])
    });
    let store = bench.open("a").await.unwrap();
    let bytes = Bytes::from_static(b"a record");
    assert_eq!(store.put_if_absent(LOG, bytes.clone()).await.unwrap(), Put::Created);
    assert_eq!(store.put_if_absent(LOG, Bytes::new()).await.unwrap(), Put::Exists);
    assert_eq!(whole(&store, LOG).await, bytes);
    assert_eq!(store.list("log/").await.unwrap(), [LOG]);
    assert_eq!(store.swap_root(None, bytes.clone()).await.unwrap(), Swap::Swapped);
    assert_eq!(store.root().await.unwrap(), Some(bytes));
    store.delete(LOG).await.unwrap();
    assert_eq!(store.len(LOG).await.unwrap(), None);
}

/// The last of them is answered after more time than a request has that is the only one.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_one_after_the_other_is_waited_for() {
    let test = "a_server_that_does_one_after_the_other_is_waited_for";
    let Some(bench) = Bench::new(test) else { return };
    let store = Arc::new(bench.open("a").await.unwrap());
    // One goes through at a time.
    bench.way.rule(|_, _| {
        System.wait(Duration::from_millis(1500));
        None
    });
    let (begun, before) = (Instant::now(), bench.way.came());
    let mut asked = JoinSet::new();
    for first in 0..16 {
        let store = store.clone();
        asked.spawn(async move { store.len(Object::Log { first }).await });
        // They come to it as they were asked: patience is with what was asked before.
        while bench.way.came() <= before + first {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    for answer in asked.join_all().await {
        assert_eq!(answer.unwrap(), None);
    }
    assert!(begun.elapsed() > Duration::from_secs(23), "{:?}", begun.elapsed());
}

/// Whoever is not told what came of a put is told when the next one finds it.
#[tokio::test(flavor = "multi_thread")]
async fn puts_without_an_answer_are_told_apart() {
    let Some(bench) = Bench::new("puts_without_an_answer_are_told_apart") else { return };
    let (store, other) = (bench.open("a").await.unwrap(), bench.open("a").await.unwrap());
    let bytes = Bytes::from_static(b"the same bytes");
    for (first, mishap) in (1..).zip([
        Mishap::AnswerLost,
        Mishap::DoneAnd(503, "SlowDown"),
        Mishap::DoneAnd(500, "InternalError"),
        Mishap::Answered(409, "ConditionalRequestConflict"),
    ]) {
        let object = Object::Log { first };
        bench.way.rule(move |head, number| (is_put(head) && number == 0).then_some(mishap));
        let put = store.put_if_absent(object, bytes.clone()).await.unwrap();
        assert_eq!(put, Put::Created, "{mishap:?}");
        // Others that put the same have not created it.
        assert_eq!(other.put_if_absent(object, bytes.clone()).await.unwrap(), Put::Exists);
        // Nor has who was not told that it was refused.
        bench.way.rule(move |head, number| (is_put(head) && number == 0).then_some(mishap));
        assert_eq!(other.put_if_absent(object, bytes.clone()).await.unwrap(), Put::Exists);
    }
}

/// The same for the root: two who want the same root are told apart, for both would hold it for theirs.
#[tokio::test(flavor = "multi_thread")]
async fn swaps_without_an_answer_are_told_apart() {
    let Some(bench) = Bench::new("swaps_without_an_answer_are_told_apart") else { return };
    let (store, other) = (bench.open("a").await.unwrap(), bench.open("a").await.unwrap());
    let mut now = None;
    for (round, mishap) in (1_u8..).zip([
        Mishap::AnswerLost,
        Mishap::DoneAnd(503, "SlowDown"),
        Mishap::Answered(409, "ConditionalRequestConflict"),
    ]) {
        let new = Bytes::from(vec![round; 128]);
        let mut is_first = true;
        bench
            .way
            .rule(move |head, _| (is_put(head) && std::mem::take(&mut is_first)).then_some(mishap));
        assert_eq!(store.swap_root(now.clone(), new.clone()).await.unwrap(), Swap::Swapped);
        let late = other.swap_root(now, new.clone()).await.unwrap();
        assert_eq!(late, Swap::Differs(Some(new.clone())), "{mishap:?}");
        now = Some(new);
    }
    assert_eq!(other.root().await.unwrap(), now);
}

/// A server that takes what it has to refuse is found out before anything is kept there.
#[tokio::test(flavor = "multi_thread")]
async fn servers_without_conditions_are_refused() {
    let Some(bench) = Bench::new("servers_without_conditions_are_refused") else { return };
    for (header, word) in [("if-none-match:", "If-None-Match"), ("if-match:", "If-Match")] {
        bench.way.rule(move |head, _| {
            head.to_ascii_lowercase().contains(header).then_some(Mishap::ConditionIgnored)
        });
        let error = bench.open("a").await.unwrap_err();
        assert_eq!(error.kind(), Kind::Storage);
        names(&error, &[word, "s3://bucket/a"]);
    }
    bench.way.rule(|head, _| {
        head.to_ascii_lowercase()
            .contains("if-none-match:")
            .then_some(Mishap::Answered(501, "NotImplemented"))
    });
    names(&bench.open("a").await.unwrap_err(), &["501", "NotImplemented", "no store can be kept"]);
    // The probe leaves nothing behind.
    bench.way.rule(|_, _| None);
    let plain = S3Store::open(&"s3://bucket".parse().unwrap(), &bench.access()).await.unwrap();
    assert_eq!(plain.list("").await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_named_with_a_remedy() {
    let Some(bench) = Bench::new("refusals_are_named_with_a_remedy") else { return };
    for (mishap, words) in [
        (Mishap::Answered(403, "AccessDenied"), &["write", "AccessDenied", "s3:PutObject"][..]),
        (Mishap::Answered(403, "InvalidAccessKeyId"), &["AWS_ACCESS_KEY_ID"]),
        (Mishap::Answered(403, "SignatureDoesNotMatch"), &["AWS_SECRET_ACCESS_KEY"]),
        (Mishap::Answered(400, "ExpiredToken"), &["AWS_SESSION_TOKEN"]),
        (Mishap::Answered(403, "RequestTimeTooSkewed"), &["clock"]),
        (Mishap::Answered(404, "NoSuchBucket"), &["no such bucket"]),
        (Mishap::Elsewhere("eu-west-1"), &["eu-west-1", "AWS_REGION"]),
        (Mishap::Answered(507, "XMinioStorageFull"), &["no room"]),
        (Mishap::Answered(503, "SlowDown"), &["SlowDown", "too much"]),
    ] {
        // Reading goes: a bucket that can be read only is one of them.
        bench.way.rule(move |head, _| is_put(head).then_some(mishap));
        let error = bench.open("a").await.unwrap_err();
        assert_eq!(error.kind(), Kind::Storage);
        names(&error, words);
        let is_full = matches!(mishap, Mishap::Answered(507, _));
        assert_eq!(error.refusal().is_some(), is_full, "{error}");
        let is_passing = mishap == Mishap::Answered(503, "SlowDown");
        assert_eq!(bench.way.count() > 4, is_passing, "{mishap:?}: {}", bench.way.count());
    }
    bench.way.rule(|_, _| None);
    let nowhere = S3Store::open(&"s3://no-such-bucket".parse().unwrap(), &bench.access()).await;
    names(&nowhere.unwrap_err(), &["s3://no-such-bucket", "no such bucket", "make it"]);
    if !bench.server.is_strict() {
        eprintln!("SKIPPED: refusals_are_named_with_a_remedy: moto looks at no credentials");
        return;
    }
    let access = bench.access_of(KEY_ID, "another");
    let error = S3Store::open(&place("a"), &access).await.unwrap_err();
    names(&error, &["SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY"]);
    assert!(!error.to_string().contains("another"), "{error}");
    let access = bench.access_of("nobody", SECRET);
    names(&S3Store::open(&place("a"), &access).await.unwrap_err(), &["InvalidAccessKeyId"]);
}

#[tokio::test]
async fn no_server_and_nobody_who_vouches_for_it() {
    let nowhere = |endpoint: &str, roots| S3Access {
        credentials: credentials(KEY_ID, SECRET),
        region: "us-east-1".into(),
        endpoint: Some(endpoint.into()),
        roots,
    };
    // Others may be given any port that is free now, but never this one.
    let access = nowhere("http://127.0.0.1:1", None);
    let error = S3Store::open(&place("a"), &access).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Storage);
    names(&error, &["the way to the server", "refused"]);
    assert!(!format!("{access:?} {error:?}").contains(SECRET));
    let roots = Some("/nowhere/roots.pem".into());
    let error =
        S3Store::open(&place("a"), &nowhere("https://127.0.0.1:1", roots)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Parameters);
    names(&error, &["/nowhere/roots.pem"]);
}

/// What was answered is there after a kill, and the same handle finds the server again.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_outlives_a_kill() {
    let Some(mut bench) = Bench::new("what_was_answered_outlives_a_kill") else { return };
    if !bench.server.is_durable() {
        eprintln!("SKIPPED: what_was_answered_outlives_a_kill: moto keeps everything in memory");
        return;
    }
    let store = Arc::new(bench.open("s").await.unwrap());
    let mut puts = JoinSet::new();
    for first in 0..48 {
        let store = store.clone();
        puts.spawn(async move {
            let put = store.put_if_absent(Object::Log { first }, vec![1; 5000].into()).await;
            put.map(|put| (first, put))
        });
    }
    // In the middle of them.
    let mut answered = Vec::new();
    while answered.len() < 12 {
        answered.push(puts.join_next().await.unwrap().unwrap().unwrap());
    }
    bench.server.kill();
    bench.server.begin();
    // Those under way come again as long as they may; who is refused may ask once more.
    while let Some(put) = puts.join_next().await {
        if let Ok(put) = put.unwrap() {
            answered.push(put);
        }
    }
    for (first, put) in answered {
        assert_eq!(put, Put::Created);
        assert_eq!(whole(&store, Object::Log { first }).await, vec![1; 5000]);
    }
}

/// More names than a server tells at once.
#[tokio::test(flavor = "multi_thread")]
async fn long_lists_come_in_pages() {
    let Some(bench) = Bench::new("long_lists_come_in_pages") else { return };
    let store = Arc::new(bench.open("s").await.unwrap());
    let mut puts = JoinSet::new();
    for worker in 0..6 {
        let store = store.clone();
        puts.spawn(async move {
            for first in (worker..1020).step_by(6) {
                let put = store.put_if_absent(Object::Log { first }, Bytes::new()).await;
                assert_eq!(put.unwrap(), Put::Created);
            }
        });
    }
    puts.join_all().await;
    bench.way.rule(|_, _| None);
    let mut names = store.list("log/").await.unwrap();
    assert_eq!(bench.way.count(), 2);
    names.sort_unstable();
    assert!(names.into_iter().eq((0..1020).map(|first| Object::Log { first })));
    assert_eq!(store.list("log/00000000000003f").await.unwrap().len(), 12);
}
