//! The store in Redis, on servers that the tests start.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]
#![cfg(feature = "faults")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use tacita_oram::Kind;
use tacita_oram::blob::{BlobStore, Put, RedisStore, conformance};
use tacita_oram::object::Object;

/// A server with its data in a folder, listening there; killed when dropped.
struct Redis {
    process: Child,
    url: String,
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// `None` where there is no such program.
fn redis(folder: &Path, settings: &[&str]) -> Option<Redis> {
    let socket = folder.join("socket");
    let started = Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--daemonize", "no", "--unixsocket"])
        .arg(&socket)
        .arg("--dir")
        .arg(folder)
        .args(settings)
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut process) = started else {
        eprintln!("SKIPPED: the store in Redis: there is no redis-server");
        return None;
    };
    let said = BufReader::new(process.stdout.take().unwrap());
    let mut lines = said.lines();
    assert!(lines.any(|line| line.unwrap().contains("eady to accept connections")));
    // What it says further is read, so that it can say it.
    std::thread::spawn(move || lines.count());
    Some(Redis { process, url: format!("unix:{}", socket.display()) })
}

const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

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
    for (url, name) in [("mailto:x", "s"), (&url, ""), (&url, "A*")] {
        assert_eq!(RedisStore::open(url, name).await.unwrap_err().kind(), Kind::Parameters);
    }
}
