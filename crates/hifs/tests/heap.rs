//! What a mounted image takes in memory, in bytes that the allocator has given.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]
#![allow(unsafe_code, reason = "an allocator is")]

use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tacita_block::{Geometry, MemoryDevice};
use tacita_hifs::geometry::{Ids, Layout, Parameters, Times};
use tacita_hifs::{Hifs, OpenOptions, RootOwner, format};
use tacita_vfs::{FileSystem, FileType, NewNode, Stamps, Timestamp};

/// The system's allocator, counted.
struct Counted;

static LIVE: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);
static GIVEN: AtomicU64 = AtomicU64::new(0);

// SAFETY: every request is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, memory: Memory) -> *mut u8 {
        let live = LIVE.fetch_add(memory.size() as u64, Ordering::Relaxed) + memory.size() as u64;
        PEAK.fetch_max(live, Ordering::Relaxed);
        CALLS.fetch_add(1, Ordering::Relaxed);
        GIVEN.fetch_add(memory.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.alloc(memory) }
    }

    unsafe fn dealloc(&self, at: *mut u8, memory: Memory) {
        LIVE.fetch_sub(memory.size() as u64, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, memory) }
    }
}

#[global_allocator]
static COUNTED: Counted = Counted;

/// An empty image.
fn device(bucket_len_bytes: Option<u32>) -> Arc<MemoryDevice> {
    let parameters = Parameters {
        len_bytes: 2 << 30,
        layout: Layout::D,
        ids: Ids::Path,
        times: Times::None,
        bucket_len_bytes,
        groups: None,
        seed: [7; 32],
    };
    let shape = Geometry { block_len_bytes: 4096, blocks: parameters.len_bytes / 4096 };
    let device = Arc::new(MemoryDevice::new(shape));
    format(device.clone(), &parameters, RootOwner::default(), &mut |_, _| {}).unwrap();
    device
}

fn new(kind: FileType) -> NewNode {
    NewNode {
        kind,
        perm: 0o644,
        uid: 1000,
        gid: 1000,
        rdev: 0,
        target: "".into(),
        now: Timestamp::default(),
    }
}

/// An image with files of `len` bytes in folders of a thousand.
fn image(count: u32, len: usize) -> Arc<MemoryDevice> {
    let device = device(None);
    let hifs = Hifs::open(device.clone(), OpenOptions::default()).unwrap();
    let mut dir = hifs.root();
    let mut content = vec![7; len];
    for n in 0..count {
        if n % 1000 == 0 {
            let name = format!("folder {n}");
            dir = hifs.create(hifs.root(), name.as_ref(), &new(FileType::Directory)).unwrap().0;
        }
        let name = format!("file {n:08}");
        let (file, _) = hifs.create(dir, name.as_ref(), &new(FileType::File)).unwrap();
        if len > 0 {
            content[..4].copy_from_slice(&n.to_le_bytes());
            hifs.write(file, 0, &content, Stamps::NONE).unwrap();
        }
    }
    hifs.sync().unwrap();
    device
}

/// What opening costs: bytes that stay, bytes at most meanwhile, allocations.
fn opened(count: u32, len: usize) -> [u64; 3] {
    let device = image(count, len);
    let (live, calls) = (LIVE.load(Ordering::Relaxed), CALLS.load(Ordering::Relaxed));
    PEAK.store(live, Ordering::Relaxed);
    let hifs = Hifs::open(device, OpenOptions::default()).unwrap();
    let cost = [(&LIVE, live), (&PEAK, live), (&CALLS, calls)]
        .map(|(counter, before)| counter.load(Ordering::Relaxed) - before);
    drop(hifs);
    let [stay, peak, calls] = cost.map(|cost| cost / u64::from(count));
    eprintln!(
        "{count} files of {len} bytes: {stay} bytes a file stay, {peak} at most, {calls} allocations"
    );
    cost
}

/// Bytes that are given for overwriting a block of a file of so many blocks, and its commit.
fn overwritten(blocks: u64) -> u64 {
    let hifs = Hifs::open(device(Some(4096)), OpenOptions::default()).unwrap();
    let (file, _) = hifs.create(hifs.root(), "file".as_ref(), &new(FileType::File)).unwrap();
    for block in 0..blocks {
        hifs.write(file, block * 4096, &[1 + (block % 200) as u8; 4096], Stamps::NONE).unwrap();
    }
    hifs.sync().unwrap();
    let before = GIVEN.load(Ordering::Relaxed);
    hifs.write(file, 4096, &[255; 4096], Stamps::NONE).unwrap();
    hifs.sync().unwrap();
    GIVEN.load(Ordering::Relaxed) - before
}

/// What is counted is the process's, so there is one test.
#[test]
fn what_things_take() {
    a_block_of_a_large_file();
    a_file_in_memory();
}

/// A commit does not look through a large file of which little changes.
fn a_block_of_a_large_file() {
    let [small, large] = [64, 32768].map(overwritten);
    eprintln!("a block overwritten, in a file of 64: {small} bytes given, of 32,768: {large}");
    assert!(large < small + 4096, "{small}, {large}");
}

/// Memory and the work of opening are so much a file, however many there are.
fn a_file_in_memory() {
    for len in [0, 1000] {
        let [small, large] = [20_000, 40_000].map(|count| opened(count, len));
        for (few, many) in small.into_iter().zip(large) {
            assert!(many <= few * 2 + few / 10, "{few} for half as many, {many}");
        }
        let [stay, peak, calls] = large.map(|cost| cost / 40_000);
        assert!(stay <= 500 && peak <= 600 && calls <= 6, "{stay}, {peak}, {calls}");
    }
}
