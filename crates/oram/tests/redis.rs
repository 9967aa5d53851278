//! The store in Redis, on servers that the tests start.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]
#![cfg(feature = "faults")]

#[path = "support/redis_server.rs"]
mod redis_server;

use std::sync::Arc;

use bytes::Bytes;
use tacita_oram::Kind;
use tacita_oram::blob::{BlobStore, Put, RedisStore, conformance};
use tacita_oram::object::Object;

use redis_server::{DURABLE, redis};

#[tokio::test(flavor = "multi_thread")]
async fn redis_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = redis(folder.path(), &DURABLE) else { return };
    // Another store on the same server is none of its business.
    let other = RedisStore::open(&server.url, "other").await.unwrap();
    other.put_if_absent(Object::Log { first: 9 }, Bytes::new()).await.unwrap();
    other.swap_root(None, Bytes::from_static(b"other")).await.unwrap();
    conformance::check(async || {
        Arc::new(RedisStore::open(&server.url, "store-1").await.unwrap()) as Arc<dyn BlobStore>
    })
    .await;
}

#[tokio::test]
async fn what_was_answered_outlives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = redis(folder.path(), &DURABLE) else { return };
    let store = RedisStore::open(&server.url, "s").await.unwrap();
    for first in 0..20 {
        let put = store.put_if_absent(Object::Log { first }, vec![1; 5000].into()).await.unwrap();
        assert_eq!(put, Put::Created);
    }
    drop(server);
    let down = store.len(Object::Log { first: 0 }).await.unwrap_err();
    assert_eq!(down.kind(), Kind::Storage);
    let _server = redis(folder.path(), &DURABLE).unwrap();
    // The same handle finds the server again.
    for first in 0..20 {
        assert_eq!(store.len(Object::Log { first }).await.unwrap(), Some(5000));
    }
}

/// What a server without memory has can be read.
#[tokio::test]
async fn a_server_without_memory_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = redis(folder.path(), &DURABLE) else { return };
    let store = RedisStore::open(&server.url, "s").await.unwrap();
    let [full, empty] = [0, 1].map(|first| Object::Log { first });
    store.put_if_absent(full, Bytes::from_static(b"content")).await.unwrap();
    store.put_if_absent(empty, Bytes::new()).await.unwrap();
    let client = redis::Client::open(server.url.as_str()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let limit = redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("1").to_owned();
    limit.query_async::<()>(&mut connection).await.unwrap();
    let more = store.put_if_absent(Object::Log { first: 2 }, Bytes::new()).await.unwrap_err();
    assert!(more.to_string().contains("maxmemory"), "{more}");
    assert_eq!(more.refusal().unwrap().kind(), std::io::ErrorKind::StorageFull);
    let none = std::slice::from_ref(&(0..0));
    let parts = store.get(full, &[0..7, 3..3, 4..6]).await.unwrap().unwrap();
    assert_eq!(parts, ["content", "", "en"]);
    assert_eq!(store.get(empty, none).await.unwrap().unwrap(), [""]);
    assert_eq!(store.get(Object::Log { first: 2 }, none).await.unwrap(), None);
    assert_eq!(store.len(full).await.unwrap(), Some(7));
    assert_eq!(store.len(Object::Log { first: 2 }).await.unwrap(), None);
}

#[tokio::test]
async fn servers_that_forget_are_refused() {
    for (settings, named) in [
        (&["--appendonly", "no"][..], "appendonly"),
        (&["--appendonly", "yes", "--appendfsync", "everysec"], "appendfsync"),
        (
            &[
                "--appendonly",
                "yes",
                "--appendfsync",
                "always",
                "--maxmemory-policy",
                "allkeys-lru",
            ],
            "maxmemory-policy",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let Some(server) = redis(folder.path(), settings) else { return };
        let error = RedisStore::open(&server.url, "s").await.unwrap_err();
        assert_eq!(error.kind(), Kind::Storage);
        assert!(error.to_string().contains(named), "{error}");
    }
}

#[tokio::test]
async fn no_server_and_no_name() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("unix:{}", folder.path().join("none").display());
    assert_eq!(RedisStore::open(&url, "s").await.unwrap_err().kind(), Kind::Storage);
    // Whoever types a path may mean one from here.
    let error = RedisStore::open("unix:no/socket", "s").await.unwrap_err();
    assert_eq!(error.kind(), Kind::Storage, "{error}");
    for (url, name) in [("mailto:x", "s"), (&url, ""), (&url, "A*")] {
        assert_eq!(RedisStore::open(url, name).await.unwrap_err().kind(), Kind::Parameters);
    }
}
