//! Devices that let a test look inside.

use std::sync::{Arc, Condvar, Mutex};

use tacita_block::{BlockDevice, BlockNo, BlockRange, Geometry, MemoryDevice, Result};

pub(crate) fn memory(len_bytes: u64, block_len_bytes: u32) -> MemoryDevice {
    MemoryDevice::new(Geometry::within(len_bytes, block_len_bytes).unwrap())
}

/// Reads of block 0 and flushes wait until the gate is opened.
#[derive(Clone)]
pub(crate) struct GatedDevice(Arc<Inner>);

struct Inner {
    device: MemoryDevice,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    open: bool,
    waiting: usize,
}

impl GatedDevice {
    pub(crate) fn new(device: MemoryDevice) -> Self {
        Self(Arc::new(Inner { device, state: Mutex::default(), changed: Condvar::new() }))
    }

    pub(crate) fn open(&self) {
        self.0.state.lock().unwrap().open = true;
        self.0.changed.notify_all();
    }

    /// Waits until so many requests wait at the gate.
    pub(crate) fn await_waiting(&self, count: usize) {
        let state = self.0.state.lock().unwrap();
        drop(self.0.changed.wait_while(state, |state| state.waiting < count).unwrap());
    }

    /// How many requests have come to the gate.
    pub(crate) fn waited(&self) -> usize {
        self.0.state.lock().unwrap().waiting
    }

    fn pass(&self) {
        let mut state = self.0.state.lock().unwrap();
        state.waiting += 1;
        self.0.changed.notify_all();
        drop(self.0.changed.wait_while(state, |state| !state.open).unwrap());
    }
}

impl BlockDevice for GatedDevice {
    fn geometry(&self) -> Geometry {
        self.0.device.geometry()
    }

    fn read(&self, at: BlockNo, buf: &mut [u8]) -> Result<()> {
        if at == BlockNo(0) {
            self.pass();
        }
        self.0.device.read(at, buf)
    }

    fn write(&self, at: BlockNo, buf: &[u8]) -> Result<()> {
        self.0.device.write(at, buf)
    }

    fn flush(&self) -> Result<()> {
        self.pass();
        self.0.device.flush()
    }

    fn discard(&self, range: BlockRange) -> Result<()> {
        self.0.device.discard(range)
    }
}

/// Reads panic.
pub(crate) struct PanickingDevice(pub(crate) MemoryDevice);

impl BlockDevice for PanickingDevice {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn read(&self, _at: BlockNo, _buf: &mut [u8]) -> Result<()> {
        panic!("a fault of the device, as it was to be");
    }

    fn write(&self, at: BlockNo, buf: &[u8]) -> Result<()> {
        self.0.write(at, buf)
    }

    fn flush(&self) -> Result<()> {
        self.0.flush()
    }

    fn discard(&self, range: BlockRange) -> Result<()> {
        self.0.discard(range)
    }
}
