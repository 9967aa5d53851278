//! A device that writes down every request to the device beneath.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{BlockDevice, BlockNo, BlockRange, Extent, Geometry, Result};

/// What was asked of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// [`BlockDevice::read`]
    Read,
    /// [`BlockDevice::write`]
    Write,
    /// [`BlockDevice::flush`]; offset and length are 0.
    Flush,
    /// [`BlockDevice::discard`]
    Discard,
    /// [`BlockDevice::write_zeroes`]
    WriteZeroes,
}

/// One request, as an observer of the wire to the device sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Request {
    /// What was asked.
    pub kind: RequestKind,
    /// Bytes from the device start.
    pub offset: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// What was written, if data is recorded and this is a write.
    pub data: Option<Box<[u8]>>,
}

/// The requests so far, in the order in which the device got them; clones share one list.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Trace {
    /// A copy of the requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.lock().clone()
    }

    /// The requests so far; the list starts anew.
    pub fn take(&self) -> Vec<Request> {
        std::mem::take(&mut *self.lock())
    }

    /// How many requests of this kind there were.
    pub fn count(&self, kind: RequestKind) -> usize {
        self.lock().iter().filter(|r| r.kind == kind).count()
    }

    /// Bytes moved, discarded or zeroed by requests of this kind.
    pub fn total_bytes(&self, kind: RequestKind) -> u64 {
        let requests = self.lock();
        let matching = requests.iter().filter(|r| r.kind == kind);
        matching.map(|r| r.len_bytes).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Request>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Passes every request on and writes it down, refused ones too unless they are out of range.
/// Asking for extents moves nothing and is not written down.
///
/// Requests go to the device one at a time, so that the trace has the order of the device.
#[derive(Debug)]
pub struct TraceDevice<D> {
    inner: D,
    trace: Trace,
    keep_data: bool,
}

impl<D: BlockDevice> TraceDevice<D> {
    /// Records kinds, offsets and lengths.
    pub fn new(inner: D) -> Self {
        Self { inner, trace: Trace::default(), keep_data: false }
    }

    /// Records what is written, too.
    pub fn with_data(inner: D) -> Self {
        Self { keep_data: true, ..Self::new(inner) }
    }

    /// A handle on the requests, to keep when the device is handed away.
    pub fn trace(&self) -> Trace {
        self.trace.clone()
    }

    /// The device beneath.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    fn pass(
        &self,
        kind: RequestKind,
        bytes: std::ops::Range<u64>,
        data: Option<&[u8]>,
        request: impl FnOnce(&D) -> Result<()>,
    ) -> Result<()> {
        let mut requests = self.trace.lock();
        requests.push(Request {
            kind,
            offset: bytes.start,
            len_bytes: bytes.end - bytes.start,
            data: data.filter(|_| self.keep_data).map(Box::from),
        });
        request(&self.inner)
    }
}

impl<D: BlockDevice> BlockDevice for TraceDevice<D> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn rest(&self) -> Result<Vec<u8>> {
        self.inner.rest()
    }

    fn zero_rest(&self) -> Result<()> {
        self.inner.zero_rest()
    }

    fn read(&self, at: BlockNo, buf: &mut [u8]) -> Result<()> {
        let bytes = self.geometry().byte_range(at, buf.len())?;
        self.pass(RequestKind::Read, bytes, None, |d| d.read(at, buf))
    }

    fn write(&self, at: BlockNo, buf: &[u8]) -> Result<()> {
        let bytes = self.geometry().byte_range(at, buf.len())?;
        self.pass(RequestKind::Write, bytes, Some(buf), |d| d.write(at, buf))
    }

    fn flush(&self) -> Result<()> {
        self.pass(RequestKind::Flush, 0..0, None, BlockDevice::flush)
    }

    fn discard(&self, range: BlockRange) -> Result<()> {
        let bytes = self.geometry().byte_range_of(range)?;
        self.pass(RequestKind::Discard, bytes, None, |d| d.discard(range))
    }

    fn write_zeroes(&self, range: BlockRange) -> Result<()> {
        let bytes = self.geometry().byte_range_of(range)?;
        self.pass(RequestKind::WriteZeroes, bytes, None, |d| d.write_zeroes(range))
    }

    fn extent(&self, range: BlockRange) -> Result<Extent> {
        self.inner.extent(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryDevice, conformance};

    #[test]
    fn conforms() {
        conformance::check(|g| Box::new(TraceDevice::new(MemoryDevice::new(g))));
    }

    #[test]
    fn records_in_order() {
        let geometry = Geometry::within(1 << 16, 512).unwrap();
        let device = TraceDevice::with_data(MemoryDevice::new(geometry));
        let trace = device.trace();
        device.write(BlockNo(2), &[7; 1024]).unwrap();
        device.flush().unwrap();
        device.read(BlockNo(0), &mut [0; 512]).unwrap();
        let range = BlockRange { start: BlockNo(4), count: 3 };
        device.discard(range).unwrap();
        device.write_zeroes(range).unwrap();
        device.write(BlockNo(128), &[0; 512]).unwrap_err();
        let request = |kind, offset, len_bytes, data| Request { kind, offset, len_bytes, data };
        assert_eq!(trace.total_bytes(RequestKind::Write), 1024);
        assert_eq!(
            trace.take(),
            [
                request(RequestKind::Write, 1024, 1024, Some([7; 1024].into())),
                request(RequestKind::Flush, 0, 0, None),
                request(RequestKind::Read, 0, 512, None),
                request(RequestKind::Discard, 2048, 1536, None),
                request(RequestKind::WriteZeroes, 2048, 1536, None),
            ]
        );
        assert_eq!(trace.count(RequestKind::Write), 0);
    }
}
