//! Whole units are read to, and written from, the beginnings of pages: to places a few bytes behind one
//! some processors copy many times as slowly.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tacita_block::{
    self as block, AlignedBuf, BlockDevice, BlockNo, BlockRange, Geometry, MemoryDevice,
};
use tacita_pddm::Level;

use crate::devices::{BLOCK, blocks, entropy, make, memory, open, parameters};

struct Watched {
    inner: Arc<MemoryDevice>,
    units: AtomicUsize,
    /// Of these, those that begin elsewhere: said in the end, for who writes is not to panic.
    elsewhere: AtomicUsize,
}

impl Watched {
    fn watch(&self, buf: &[u8]) {
        if buf.len() == 8 * BLOCK {
            self.units.fetch_add(1, Ordering::Relaxed);
            let elsewhere = usize::from(!AlignedBuf::is_aligned(buf));
            self.elsewhere.fetch_add(elsewhere, Ordering::Relaxed);
        }
    }
}

impl BlockDevice for Watched {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, at: BlockNo, buf: &mut [u8]) -> block::Result<()> {
        self.watch(buf);
        self.inner.read(at, buf)
    }

    fn write(&self, at: BlockNo, buf: &[u8]) -> block::Result<()> {
        self.inner.write(at, buf)
    }

    fn write_gathered(&self, at: BlockNo, bufs: &[&[u8]]) -> block::Result<()> {
        bufs.iter().for_each(|buf| self.watch(buf));
        self.inner.write_gathered(at, bufs)
    }

    fn flush(&self) -> block::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, range: BlockRange) -> block::Result<()> {
        self.inner.discard(range)
    }
}

#[test]
fn units_begin_with_pages_in_memory() {
    let (units, elsewhere) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let watched = Arc::new(Watched { inner: memory(blocks(64)), units, elsewhere });
    let device: Arc<dyn BlockDevice> = Arc::clone(&watched) as _;
    make(&device, &parameters(1), 1, entropy(1, 2));
    let session = open(&device, 1, entropy(3, 4));
    let public = session.volume(Level::PUBLIC).unwrap();
    // Three times around, so that the tail is read.
    for round in 0..3u8 {
        for at in 0..public.geometry().blocks {
            public.write(BlockNo(at), &[round; BLOCK]).unwrap();
        }
    }
    public.flush().unwrap();
    let seen = watched.units.load(Ordering::Relaxed);
    let written = usize::try_from(session.written_units()).unwrap();
    assert_eq!(watched.elsewhere.load(Ordering::Relaxed), 0, "of {seen} units");
    assert!(seen > written && written > 64, "{seen} of {written}");
}
