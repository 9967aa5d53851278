//! What a read costs beside what it asks for, as the kernel counts what this process has fetched:
//! one test, for the count is the process's.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

use std::fs::File;
use std::path::Path;

use rustix::fs::Advice;
use tacita_block::{Access, BlockDevice, BlockNo, BlockRange, FileDevice, FileOptions};

const BLOCKS: u64 = 4096;

/// Bytes that this process has had fetched from a disk.
fn fetched() -> Option<u64> {
    let counts = std::fs::read_to_string("/proc/self/io").ok()?;
    counts.lines().find_map(|line| line.strip_prefix("read_bytes: "))?.parse().ok()
}

/// What single blocks in no order have fetched, with the cache emptied before.
fn fetched_by_single_blocks(path: &Path, random: bool) -> Option<u64> {
    rustix::fs::fadvise(File::open(path).unwrap(), 0, None, Advice::DontNeed).unwrap();
    let device = FileOptions::new(4096).random(random).open(path, Access::ReadOnly).unwrap();
    let before = fetched()?;
    let mut block = [0; 4096];
    for n in 0..40 {
        device.read(BlockNo(n * 1777 % BLOCKS), &mut block).unwrap();
    }
    Some(fetched()? - before)
}

#[test]
fn random_reads_fetch_what_they_ask_for() {
    // Not in a file system of memory, as temporary folders may be.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("image");
    let device = FileDevice::create(&path, BLOCKS * 4096, 4096).unwrap();
    device.write(BlockNo(0), &vec![7; 4096 * 4096]).unwrap();
    device.flush().unwrap();
    drop(device);
    let wanted = 40 * 4096;
    let (plain, random) =
        [false, true].map(|random| fetched_by_single_blocks(&path, random)).into();
    eprintln!("{wanted} bytes asked for, fetched {plain:?} and, in no order, {random:?}");
    if plain.is_none_or(|plain| plain < wanted) {
        eprintln!(
            "SKIPPED: random_reads_fetch_what_they_ask_for: the cache cannot be emptied here"
        );
        return;
    }
    assert_eq!(random, Some(wanted));
    // What is told is fetched once.
    let device = FileOptions::new(4096).random(true).open(&path, Access::ReadOnly).unwrap();
    rustix::fs::fadvise(File::open(&path).unwrap(), 0, None, Advice::DontNeed).unwrap();
    let before = fetched().unwrap();
    device.will_read(BlockRange { start: BlockNo(64), count: 64 });
    for at in 64..128 {
        device.read(BlockNo(at), &mut [0; 4096]).unwrap();
    }
    assert_eq!(fetched().unwrap() - before, 64 * 4096);
}
