//! What work costs, in bytes that reach the device or come from it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tacita_block::{
    BlockDevice, BlockNo, BlockRange, Geometry, MemoryDevice, RequestKind, Trace, TraceDevice,
};
use tacita_hifs::geometry::{Layout, Parameters};
use tacita_hifs::{Hifs, RootOwner, format};
use tacita_testkit::by_name;
use tacita_vfs::{FileSystem, FileType, Stamps};

use crate::images::{NOW, new, open, parameters};

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

/// Of what goes nothing is read whose end is known by the size of its file: a block of each file where
/// it has more, and none where it has one.
#[test]
fn deleting_reads_little() {
    for (len, wanted) in [(4096, 0), (10_000, 1)] {
        let (hifs, trace) = large();
        let count = 2000;
        let names: Vec<String> = (0..count).map(|n| format!("file {n}")).collect();
        for name in &names {
            let (file, _) = hifs.create(hifs.root(), name.as_ref(), &new(FileType::File)).unwrap();
            hifs.write(file, 0, &vec![7; len], Stamps::NONE).unwrap();
        }
        hifs.sync().unwrap();
        trace.take();
        for name in &names {
            let file = by_name::remove(&hifs, hifs.root(), name.as_ref(), NOW).unwrap();
            hifs.forget(file);
        }
        hifs.sync().unwrap();
        let read = trace.total_bytes(RequestKind::Read);
        eprintln!("{count} files of {len} bytes deleted: {} KB read", read / 1000);
        // Beside that maps and pages are compared.
        assert!(read <= (wanted * count + 1000) * 4096, "{read} bytes");
    }
}

/// Another name of a file, or one name less, costs the same however many there are, also where each
/// time another is the least path: what the file's id changes is written once a commit.
#[test]
fn names_of_one_file() {
    let (hifs, trace) = large();
    let root = hifs.root();
    let (file, _) = hifs.create(root, "z".as_ref(), &new(FileType::File)).unwrap();
    hifs.sync().unwrap();
    let count = 8000;
    let name = |n: u32| format!("a name of the file {n:06}");
    let cost = |what: &str, work: &dyn Fn()| {
        trace.take();
        work();
        hifs.sync().unwrap();
        let (written, flushes) =
            (trace.total_bytes(RequestKind::Write), trace.count(RequestKind::Flush));
        eprintln!("{what} {count} names: {} KB written, {flushes} flushes", written / 1000);
        assert!(flushes <= 3 && written < 2 << 20, "{what}: {flushes} flushes, {written} bytes");
    };
    cost("the least first,", &|| {
        for n in 0..count {
            hifs.link(file, root, name(n).as_ref(), NOW).unwrap();
        }
    });
    cost("removed, the least first,", &|| {
        for n in 0..count {
            by_name::remove(&hifs, root, name(n).as_ref(), NOW).unwrap();
        }
    });
    cost("the least last,", &|| {
        for n in (0..count).rev() {
            hifs.link(file, root, name(n).as_ref(), NOW).unwrap();
        }
    });
    cost("removed, the least last,", &|| {
        for n in (0..count).rev() {
            by_name::remove(&hifs, root, name(n).as_ref(), NOW).unwrap();
        }
    });
}

/// A device that knows which blocks it was told of before they were read.
struct Told {
    inner: Arc<MemoryDevice>,
    ahead: Mutex<HashSet<u64>>,
    /// Blocks read, those of them that it had not been told of, and requests for them.
    read: [AtomicU64; 3],
}

impl BlockDevice for Told {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, at: BlockNo, buf: &mut [u8]) -> tacita_block::Result<()> {
        let told = self.ahead.lock().unwrap();
        let count = buf.len() as u64 / 4096;
        let untold = (at.0..at.0 + count).filter(|block| !told.contains(block)).count();
        for (counter, more) in self.read.iter().zip([count, untold as u64, 1]) {
            counter.fetch_add(more, Ordering::Relaxed);
        }
        self.inner.read(at, buf)
    }

    fn will_read(&self, range: BlockRange) {
        self.ahead.lock().unwrap().extend(range.start.0..range.start.0 + range.count);
    }

    fn write(&self, at: BlockNo, buf: &[u8]) -> tacita_block::Result<()> {
        self.inner.write(at, buf)
    }

    fn flush(&self) -> tacita_block::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, range: BlockRange) -> tacita_block::Result<()> {
        self.inner.discard(range)
    }

    fn write_zeroes(&self, range: BlockRange) -> tacita_block::Result<()> {
        self.inner.write_zeroes(range)
    }
}

/// A file that is read in a row is told of ahead, wherever its pieces lie; single blocks bring
/// nothing else along.
#[test]
fn reads_ahead_what_is_read_in_a_row() {
    let inner = crate::images::fresh(&Parameters { len_bytes: 16 << 20, ..parameters(Layout::D) });
    let (ahead, read) = (Mutex::default(), [const { AtomicU64::new(0) }; 3]);
    let device = Arc::new(Told { inner, ahead, read });
    let hifs = open(device.clone());
    // 127 blocks: seven pieces, none of which lies behind another but by chance.
    let len = 127 * 4096;
    let (file, _) = hifs.create(hifs.root(), "file".as_ref(), &new(FileType::File)).unwrap();
    hifs.write(file, 0, &vec![7; len], Stamps::NONE).unwrap();
    hifs.sync().unwrap();
    drop(hifs);
    let read = |request: usize, order: &dyn Fn(u64) -> u64| {
        let hifs = open(device.clone());
        let (file, _) = hifs.lookup(hifs.root(), "file".as_ref()).unwrap();
        device.ahead.lock().unwrap().clear();
        device.read.iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
        let requests = len.div_ceil(request) as u64;
        for n in 0..requests {
            let mut buffer = vec![0; request];
            hifs.read(file, order(n) % requests * request as u64, &mut buffer).unwrap();
        }
        let told = device.ahead.lock().unwrap().len() as u64;
        [told, device.read[0].load(Ordering::Relaxed), device.read[1].load(Ordering::Relaxed)]
    };
    for request in [4 << 10, 16 << 10, 128 << 10] {
        let first = request as u64 / 4096;
        assert_eq!(read(request, &|n| n), [127 - first, 127, first], "requests of {request}");
    }
    // In no order, and never from the beginning on.
    assert_eq!(read(4096, &|n| 1 + (n * 55 + 60) % 126), [0, 127, 127]);
}

/// Files that are read in the order of their names are told of before they begin, from the third on, and in
/// the next folder from the second.
#[test]
fn reads_ahead_over_files() {
    let inner = crate::images::fresh(&Parameters { len_bytes: 16 << 20, ..parameters(Layout::D) });
    let (ahead, read) = (Mutex::default(), [const { AtomicU64::new(0) }; 3]);
    let device = Arc::new(Told { inner, ahead, read });
    let names: Vec<_> =
        (0..32).map(|n| (format!("folder {}", n / 16), format!("file {n:02}"))).collect();
    let (blocks, content) = (16, vec![7; 16 * 4096]);
    let hifs = open(device.clone());
    for (folder, file) in &names {
        let dir = match hifs.lookup(hifs.root(), folder.as_ref()) {
            Ok((dir, _)) => dir,
            Err(_) => {
                hifs.create(hifs.root(), folder.as_ref(), &new(FileType::Directory)).unwrap().0
            }
        };
        let (file, _) = hifs.create(dir, file.as_ref(), &new(FileType::File)).unwrap();
        hifs.write(file, 0, &content, Stamps::NONE).unwrap();
    }
    hifs.sync().unwrap();
    drop(hifs);
    let untold = |order: &dyn Fn(usize) -> usize| {
        let hifs = open(device.clone());
        device.ahead.lock().unwrap().clear();
        device.read.iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
        for (folder, file) in (0..names.len()).map(|n| &names[order(n) % names.len()]) {
            let (dir, _) = hifs.lookup(hifs.root(), folder.as_ref()).unwrap();
            let (file, _) = hifs.lookup(dir, file.as_ref()).unwrap();
            hifs.read(file, 0, &mut content.clone()).unwrap();
        }
        let told = device.ahead.lock().unwrap().len() as u64;
        (told / blocks, device.read[1].load(Ordering::Relaxed) / blocks)
    };
    assert_eq!(untold(&|n| n), (29, 3));
    let (told, _) = untold(&|n| n * 7);
    assert!(told <= 8, "{told} files were told of without cause");
}

/// What makes room for new files is told of before it is read, and moves by many cells at once.
#[test]
fn what_moves_is_told_ahead() {
    let parameters = Parameters {
        len_bytes: 128 << 20,
        bucket_len_bytes: None,
        groups: None,
        ..parameters(Layout::D)
    };
    let inner = crate::images::fresh(&parameters);
    let (ahead, read) = (Mutex::default(), [const { AtomicU64::new(0) }; 3]);
    let told = Arc::new(Told { inner, ahead, read });
    let hifs = open(told.clone());
    let make = |folder: &str, files: u32| {
        let root = hifs.root();
        let (dir, _) = hifs.create(root, folder.as_ref(), &new(FileType::Directory)).unwrap();
        for n in 0..files {
            let name = format!("file {n}");
            let (file, _) = hifs.create(dir, name.as_ref(), &new(FileType::File)).unwrap();
            let content = u64::from(n).to_le_bytes().repeat(64 << 10);
            hifs.write(file, 0, &content, Stamps::NONE).unwrap();
        }
        hifs.sync().unwrap();
    };
    for folder in 0..8 {
        make(&format!("folder {folder}"), 16);
    }
    told.ahead.lock().unwrap().clear();
    told.read.iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
    make("new", 16);
    let [read, untold, requests] = [0, 1, 2].map(|n| told.read[n].load(Ordering::Relaxed));
    eprintln!("8 MiB new: {read} blocks read, {untold} untold, by {requests} requests");
    assert!(read > 1000, "hardly anything moves: {read} blocks");
    assert!(untold <= 200, "{untold} blocks come as a surprise");
    assert!(requests <= 500, "{requests} requests for {read} blocks");
}
