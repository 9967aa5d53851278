//! The worked example of docs/spec/hifs.md is what this program writes, to the byte.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use tacita_block::{Geometry, MemoryDevice};
use tacita_hifs::geometry::{Ids, Layout, Parameters, Times};
use tacita_hifs::{Hifs, OpenOptions, RootOwner, format};
use tacita_vfs::{FileSystem, FileType, NewNode, Stamps, Timestamp};

const SPEC: &str = include_str!("../../../docs/spec/hifs.md");
const LEN: u64 = 1 << 20;

/// The image that the document describes.
fn image() -> Vec<u8> {
    let parameters = Parameters {
        len_bytes: LEN,
        layout: Layout::D,
        ids: Ids::Path,
        times: Times::None,
        bucket_len_bytes: Some(4096),
        groups: Some(2),
        seed: std::array::from_fn(|i| u8::try_from(i).unwrap()),
    };
    let shape = Geometry { block_len_bytes: 4096, blocks: LEN / 4096 };
    let device = Arc::new(MemoryDevice::new(shape));
    format(device.clone(), &parameters, RootOwner::default(), &mut |_, _| {}).unwrap();
    let hifs = Hifs::open(device.clone(), OpenOptions::default()).unwrap();
    let new = NewNode {
        kind: FileType::File,
        perm: 0o644,
        uid: 1000,
        gid: 1000,
        rdev: 0,
        target: OsString::new(),
        now: Timestamp::default(),
    };
    let (node, _) = hifs.create(hifs.root(), OsStr::new("motto"), &new).unwrap();
    hifs.write(node, 0, "Tacita keeps silent.\n".repeat(12).as_bytes(), Stamps::NONE).unwrap();
    hifs.sync().unwrap();
    device.snapshot()
}

/// Offset and bytes of each line of the fenced blocks marked `hex`.
fn lines() -> Vec<(usize, Vec<u8>)> {
    let mut inside = false;
    let mut lines = Vec::new();
    for line in SPEC.lines() {
        match line {
            "```hex" => inside = true,
            "```" => inside = false,
            _ if inside => {
                let (offset, rest) = line.split_once(": ").unwrap();
                // Two blanks part the bytes from their text.
                let (bytes, _) = rest.split_once("  ").unwrap_or((rest, ""));
                let byte = |pair: &str| u8::from_str_radix(pair, 16).unwrap();
                let bytes = bytes.split(' ').map(byte).collect();
                lines.push((usize::from_str_radix(offset, 16).unwrap(), bytes));
            }
            _ => {}
        }
    }
    lines
}

#[test]
fn the_worked_example_is_what_is_written() {
    let image = image();
    let lines = lines();
    assert!(lines.len() > 30, "the document has lost its example");
    for (offset, bytes) in &lines {
        assert_eq!(bytes.len(), 16, "line {offset:06x}");
        assert_eq!(image[*offset..offset + 16], bytes[..], "line {offset:06x}");
    }
    // What the document calls zero is zero: outside the blocks that it names nothing is stored.
    let named = [0, 77, 78, 79, 80, 81, 94, 164, 255];
    for (number, block) in image.chunks_exact(4096).enumerate() {
        assert_eq!(block.iter().any(|&b| b != 0), named.contains(&number), "block {number}");
    }
    assert_eq!(image[..4096], image[255 * 4096..], "the copy of the superblock");
}
