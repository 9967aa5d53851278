//! The worked example of docs/spec/oram-wire.md is what happens, to the byte.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

use std::sync::Arc;

use bytes::Bytes;
use tacita_oram::blob::{BlobStore, MemoryStore};
use tacita_oram::geometry::Geometry;
use tacita_oram::object::Object;
use tacita_oram::root::Root;
use tacita_oram::server::{Limits, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

const SPEC: &str = include_str!("../../../docs/spec/oram-wire.md");

/// The lines of the example: whether the client speaks, and the bytes.
fn session() -> Vec<(bool, Vec<u8>)> {
    let (_, rest) = SPEC.split_once("```session\n").unwrap();
    let (lines, _) = rest.split_once("```").unwrap();
    let byte = |text: &str| u8::from_str_radix(text, 16).unwrap();
    let bytes = |word: &str| match word.split_once('*') {
        Some((value, count)) => vec![byte(value); count.parse().unwrap()],
        None => vec![byte(word)],
    };
    let line = |line: &str| {
        let (who, rest) = line.split(';').next().unwrap().trim().split_once(' ').unwrap();
        assert!(who == "C" || who == "S", "{line}");
        (who == "C", rest.split(' ').flat_map(bytes).collect())
    };
    lines.lines().map(line).collect()
}

#[tokio::test]
async fn the_example_is_what_happens() {
    let store = Arc::new(MemoryStore::new());
    let geometry = Geometry::new(512, 16, 2, 100).unwrap();
    let root = Root { geometry, store_id: [7; 16], fence: 0, group: [0; 16] };
    let root = Bytes::copy_from_slice(&root.encode(&[0; 32]));
    store.put_if_absent(Object::Manifest { period: 0 }, Bytes::new()).await.unwrap();
    store.swap_root(None, root).await.unwrap();
    let server = Server::open(store, Limits::default()).await.unwrap();
    let (mut client, stream) = duplex(1 << 16);
    let session_task = tokio::spawn(async move { server.serve(stream).await });
    let session = session();
    assert!(session.len() > 40);
    for (number, (by_client, bytes)) in session.iter().enumerate() {
        if *by_client {
            client.write_all(bytes).await.unwrap();
        } else {
            let mut said = vec![0; bytes.len()];
            client.read_exact(&mut said).await.unwrap();
            assert_eq!(said, *bytes, "line {number} of the example");
        }
    }
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "the server has closed it");
    session_task.await.unwrap();
}
