//! What work costs, in bytes that reach the device.

use std::sync::Arc;

use tacita_block::{Geometry, MemoryDevice, RequestKind, Trace, TraceDevice};
use tacita_hifs::geometry::{Layout, Parameters};
use tacita_hifs::{Hifs, RootOwner, format};
use tacita_vfs::{FileSystem, FileType, Stamps};

use crate::images::{new, open, parameters};

/// A new image of 1 GiB as `format` makes it, and what its device is asked.
fn large() -> (Hifs, Trace) {
    let parameters = Parameters {
        len_bytes: 1 << 30,
        bucket_len_bytes: None,
        groups: None,
        ..parameters(Layout::D)
    };
    let shape = Geometry { block_len_bytes: 4096, blocks: parameters.len_bytes / 4096 };
    let device = Arc::new(MemoryDevice::new(shape));
    format(device.clone(), &parameters, RootOwner::default(), &mut |_, _| {}).unwrap();
    let device = Arc::new(TraceDevice::new(device));
    let trace = device.trace();
    let hifs = open(device);
    trace.take();
    (hifs, trace)
}

/// Makes files of `len` bytes in one folder, each different, with a commit after every so many.
/// Returns the bytes written.
fn make_files(count: u32, len: usize, every: u32) -> u64 {
    let (hifs, trace) = large();
    let mut content = vec![7; len];
    for n in 0..count {
        let name = format!("file {n}");
        let (file, _) = hifs.create(hifs.root(), name.as_ref(), &new(FileType::File)).unwrap();
        if len > 0 {
            content[..4].copy_from_slice(&n.to_le_bytes());
            hifs.write(file, 0, &content, Stamps::NONE).unwrap();
        }
        if (n + 1) % every == 0 {
            hifs.sync().unwrap();
        }
    }
    hifs.sync().unwrap();
    let written = trace.total_bytes(RequestKind::Write);
    eprintln!(
        "{count} files of {len} bytes, a commit after {every}: {} KB written, {} flushes",
        written / 1000,
        trace.count(RequestKind::Flush)
    );
    written
}

/// A mount commits every five seconds: as often as here if 5,000 files a second are made.
#[test]
fn empty_files_in_one_folder() {
    let written = make_files(100_000, 0, 25_000);
    assert!(written <= 100 << 20, "{written} bytes");
}

/// Content is written once, and what is beside it in a block takes no room in the journal.
#[test]
fn short_files_in_one_folder() {
    let (count, len) = (30_000, 1000);
    let written = make_files(count, len, 25_000);
    assert!(written <= 8 * u64::from(count) * len as u64, "{written} bytes");
}
