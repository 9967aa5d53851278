use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};

use super::*;
use crate::{Geometry, MemoryDevice, RequestKind, TraceDevice};

fn memory(len_bytes: u64, block_len_bytes: u32) -> MemoryDevice {
    MemoryDevice::new(Geometry::within(len_bytes, block_len_bytes).unwrap())
}

#[test]
fn whole_blocks_are_not_read_before_they_are_written() {
    let device = TraceDevice::new(memory(1 << 16, 4096));
    let trace = device.trace();
    let bytes = ByteDevice::new(device);
    bytes.write(4096, &[1; 8192]).unwrap();
    assert_eq!(trace.count(RequestKind::Read), 0);
    assert_eq!(trace.count(RequestKind::Write), 1);
    bytes.write(4000, &[2; 8192]).unwrap();
    assert_eq!(trace.count(RequestKind::Read), 2);
    assert_eq!(trace.count(RequestKind::Write), 4);
    bytes.write(5000, &[3; 10]).unwrap();
    assert_eq!(trace.total_bytes(RequestKind::Read), 3 * 4096);
}

#[test]
fn a_discard_leaves_neighbours_alone() {
    let bytes = ByteDevice::new(memory(1 << 16, 4096));
    bytes.write(0, &vec![7; 1 << 16]).unwrap();
    bytes.discard(100, 3900).unwrap();
    bytes.discard(4095, 8193).unwrap();
    let mut content = vec![0; 1 << 16];
    bytes.read(0, &mut content).unwrap();
    assert!(content[..4096].iter().chain(&content[12_288..]).all(|b| *b == 7));
    assert!(content[4096..12_288].iter().all(|b| *b == 0));
}

#[test]
fn extents_are_told_in_bytes() {
    let bytes = ByteDevice::new(memory(1 << 20, 4096));
    bytes.write(70_000, &[1]).unwrap();
    let hole = |len_bytes| ByteExtent { len_bytes, allocation: Allocation::Hole };
    let data = |len_bytes| ByteExtent { len_bytes, allocation: Allocation::Data };
    assert_eq!(bytes.extent(10, 1 << 19).unwrap(), hole(65_526));
    assert_eq!(bytes.extent(10, 5).unwrap(), hole(5));
    assert_eq!(bytes.extent(65_537, 1 << 19).unwrap(), data(65_535));
    assert_eq!(bytes.extent(1 << 20, 0).unwrap().len_bytes, 0);
    assert_eq!(bytes.extent(1 << 20, 1).unwrap_err().kind(), Kind::OutOfRange);
}

/// A device whose reads wait until the test lets them go.
struct Slow {
    inner: MemoryDevice,
    gate: Mutex<bool>,
    opened: Condvar,
    reads: AtomicU64,
}

impl BlockDevice for &Slow {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, at: BlockNo, buf: &mut [u8]) -> Result<()> {
        self.inner.read(at, buf)?;
        self.reads.fetch_add(1, Ordering::SeqCst);
        let open = self.gate.lock().unwrap();
        drop(self.opened.wait_while(open, |open| !*open).unwrap());
        Ok(())
    }

    fn write(&self, at: BlockNo, buf: &[u8]) -> Result<()> {
        self.inner.write(at, buf)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn discard(&self, range: BlockRange) -> Result<()> {
        self.inner.discard(range)
    }
}

#[test]
fn a_block_written_in_part_is_written_by_nobody_else_meanwhile() {
    let slow = Slow {
        inner: memory(1 << 16, 4096),
        gate: Mutex::new(false),
        opened: Condvar::new(),
        reads: AtomicU64::new(0),
    };
    let bytes = ByteDevice::new(&slow);
    std::thread::scope(|scope| {
        scope.spawn(|| bytes.write(0, &[1; 10]).unwrap());
        while slow.reads.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        // The old content has been read. Were it written back now, this would be lost.
        let whole = scope.spawn(|| bytes.write(0, &[2; 8192]).unwrap());
        // Others are not held up.
        bytes.write(8192, &[3; 4096]).unwrap();
        for _ in 0..10_000 {
            std::thread::yield_now();
        }
        let has_waited = !whole.is_finished();
        *slow.gate.lock().unwrap() = true;
        slow.opened.notify_all();
        assert!(has_waited);
    });
    let mut content = vec![0; 12_288];
    bytes.read(0, &mut content).unwrap();
    let mut expected = vec![2; 8192];
    expected.resize(12_288, 3);
    assert!(content == expected);
}
