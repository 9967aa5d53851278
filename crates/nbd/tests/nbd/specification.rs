//! The example of docs/spec/nbd.md, played.

use std::sync::Arc;

use tacita_nbd::Export;

use crate::client::Served;
use crate::devices::memory;

/// The lines of the example: whether the client speaks, and the bytes.
fn session() -> Vec<(bool, Vec<u8>)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/spec/nbd.md");
    let document = std::fs::read_to_string(path).unwrap();
    let (_, rest) = document.split_once("```session\n").unwrap();
    let (lines, _) = rest.split_once("```").unwrap();
    let line = |line: &str| {
        let (who, bytes) = line.split(';').next().unwrap().trim().split_once(' ').unwrap();
        assert!(who == "C" || who == "S", "{line}");
        let bytes = bytes.split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap());
        (who == "C", bytes.collect())
    };
    lines.lines().map(line).collect()
}

#[test]
fn the_example_is_what_happens() {
    let session = session();
    assert!(session.len() > 40);
    let served = Served::new(vec![Export::new("public", Arc::new(memory(1 << 20, 4096)))]);
    let mut client = served.connect();
    for (number, (by_client, bytes)) in session.iter().enumerate() {
        if *by_client {
            client.put(bytes);
        } else {
            assert_eq!(client.take(bytes.len()), *bytes, "line {number} of the example");
        }
    }
    assert!(client.is_closed());
}
