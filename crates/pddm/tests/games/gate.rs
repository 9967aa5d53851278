//! Nobody waits for the other side. A device that lets nothing through for a while: whoever writes
//! publicly waits, with the head; who uses a hidden volume does not. A hidden request that is stopped
//! in the middle: who writes publicly does not wait.

use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

#[cfg(feature = "faults")]
use tacita_block::{Allocation, Extent};
use tacita_block::{
    BlockDevice, BlockNo, BlockRange, Fault as DeviceFault, FaultDevice, Geometry, Kind,
    MemoryDevice, Result,
};
#[cfg(feature = "faults")]
use tacita_pddm::Volume;
#[cfg(feature = "faults")]
use tacita_pddm::faults::{Fault, look_on, plant};
use tacita_testkit::Watchdog;

use crate::devices::{
    BLOCK, blocks, content, entropy, make, memory, open, parameters, shape, volume,
};

/// As long as nothing else can be the reason.
const LONG: Duration = Duration::from_mins(2);

struct Gate {
    inner: Arc<dyn BlockDevice>,
    /// Whether it is closed, and how many writes wait at it.
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Gate {
    fn new(inner: Arc<dyn BlockDevice>) -> Arc<Self> {
        Arc::new(Self { inner, state: Mutex::new((false, 0)), changed: Condvar::new() })
    }

    fn set(&self, closed: bool) {
        self.state.lock().unwrap().0 = closed;
        self.changed.notify_all();
    }

    fn await_waiting(&self) {
        let none = |state: &mut (bool, usize)| state.1 == 0;
        drop(self.changed.wait_while(self.state.lock().unwrap(), none).unwrap());
    }
}

impl BlockDevice for Gate {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, at: BlockNo, buf: &mut [u8]) -> Result<()> {
        self.inner.read(at, buf)
    }

    fn write(&self, at: BlockNo, buf: &[u8]) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        self.changed.notify_all();
        state = self.changed.wait_while(state, |state| state.0).unwrap();
        state.1 -= 1;
        drop(state);
        self.inner.write(at, buf)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn discard(&self, range: BlockRange) -> Result<()> {
        self.inner.discard(range)
    }
}

/// Whether all that a hidden volume is asked for is done while a public flush waits for the device.
fn hidden_goes_on<P>(prepare: impl FnOnce() -> P + Send, patience: Duration) -> bool {
    let gate = Gate::new(memory(blocks(60)));
    let device: Arc<dyn BlockDevice> = gate.clone();
    make(&device, &parameters(1), 1, entropy(1, 1));
    let session = open(&device, 1, entropy(2, 2));
    let (public, hidden) = (volume(&session, 0), volume(&session, 1));
    hidden.write(BlockNo(0), &content(0, 1)).unwrap();
    // It gets to the device, so that there is something to discard in the map, too.
    (0..9).for_each(|_| session.beat().unwrap());
    public.write(BlockNo(0), &content(0, 1)).unwrap();
    gate.set(true);
    std::thread::scope(|scope| {
        scope.spawn(|| public.flush().unwrap());
        gate.await_waiting();
        let (done, finished) = channel();
        scope.spawn(move || {
            let _planted = prepare();
            hidden.write(BlockNo(1), &content(1, 1)).unwrap();
            hidden.discard(BlockRange { start: BlockNo(0), count: 2 }).unwrap();
            hidden.write_zeroes(BlockRange { start: BlockNo(3), count: 5 }).unwrap();
            hidden.flush().unwrap();
            let mut read = vec![7; 2 * BLOCK];
            hidden.read(BlockNo(0), &mut read).unwrap();
            assert!(read.iter().all(|byte| *byte == 0));
            // Nobody listens any more where it had to wait.
            let _ = done.send(());
        });
        let went_on = finished.recv_timeout(patience).is_ok();
        gate.set(false);
        went_on
    })
}

/// A write fails while so many more units are on their way behind it: how many are said to be
/// written, in all and in the last minute, before and after.
fn failure(behind: u64) -> [(u64, u64); 2] {
    let inner = Arc::new(FaultDevice::new(shape(blocks(60))));
    let gate = Gate::new(inner.clone());
    let device: Arc<dyn BlockDevice> = gate.clone();
    make(&device, &parameters(1), 1, entropy(1, 1));
    let session = open(&device, 1, entropy(2, 2));
    let public = volume(&session, 0);
    (0..9).for_each(|_| session.beat().unwrap());
    let said = || (session.written_units(), session.units_last_minute());
    let before = said();
    inner.restart_recording();
    inner.inject(DeviceFault::FailWrite { write: 0, kind: Kind::Io });
    gate.set(true);
    let mut id = 0;
    for unit in 1..=1 + behind {
        while session.written_units() < before.0 + unit {
            public.write(BlockNo(id), &content(id, 1)).unwrap();
            id += 1;
        }
        gate.await_waiting();
    }
    gate.set(false);
    public.flush().unwrap_err();
    [before, said()]
}

/// How far the writer had come is a matter of time, and public commands tell nothing of it.
#[test]
fn units_behind_a_failed_write_are_not_counted() {
    for behind in 0..3 {
        let [before, after] = failure(behind);
        assert_eq!(before, after, "{behind} units behind it");
    }
}

#[test]
fn hidden_requests_do_not_wait_for_the_head() {
    assert!(hidden_goes_on(|| (), LONG));
}

#[cfg(feature = "faults")]
#[test]
fn a_discard_that_waits_for_the_head_is_noticed() {
    let prepare = || plant(Fault::DiscardAtHead);
    assert!(!hidden_goes_on(prepare, Duration::from_secs(1)));
}

/// What a hidden volume is asked for.
#[cfg(feature = "faults")]
type Asked = fn(&Volume);

/// Whether public writes get to the device while a hidden request is stopped where it looks at a block.
#[cfg(feature = "faults")]
fn public_goes_on<P>(
    prepare: impl FnOnce() -> P + Send,
    (at, asked): (u32, Asked),
    patience: Duration,
) -> bool {
    let device: Arc<dyn BlockDevice> = memory(blocks(300));
    make(&device, &parameters(1), 1, entropy(1, 1));
    let session = open(&device, 1, entropy(2, 2));
    let (public, hidden) = (volume(&session, 0), volume(&session, 1));
    // All that waits gets to the device, so that the map is looked at to its end.
    hidden.write(BlockNo(9), &content(9, 1)).unwrap();
    (0..9).for_each(|_| session.beat().unwrap());
    let (stop, stopped) = channel();
    let (release, released) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _planted = prepare();
            look_on(move |id| {
                if id == at {
                    stop.send(()).unwrap();
                    released.recv().unwrap();
                }
            });
            asked(&hidden);
        });
        stopped.recv().unwrap();
        let (done, finished) = channel();
        scope.spawn(move || {
            for id in 0..40 {
                public.write(BlockNo(id), &content(id, 1)).unwrap();
            }
            public.flush().unwrap();
            // Nobody listens any more where it had to wait.
            let _ = done.send(());
        });
        let went_on = finished.recv_timeout(patience).is_ok();
        release.send(()).unwrap();
        went_on
    })
}

#[cfg(feature = "faults")]
fn discards(hidden: &Volume) {
    hidden.discard(BlockRange { start: BlockNo(0), count: 10 }).unwrap();
    let mut read = vec![7; BLOCK];
    hidden.read(BlockNo(9), &mut read).unwrap();
    assert!(read.iter().all(|byte| *byte == 0));
}

#[cfg(feature = "faults")]
fn reads(hidden: &Volume) {
    let mut read = vec![7; 300 * BLOCK];
    hidden.read(BlockNo(0), &mut read).unwrap();
    assert_eq!(read[9 * BLOCK..10 * BLOCK], content(9, 1));
    assert!(read[10 * BLOCK..].iter().all(|byte| *byte == 0));
}

#[cfg(feature = "faults")]
fn looks_at_extents(hidden: &Volume) {
    let extent = |start, count| hidden.extent(BlockRange { start: BlockNo(start), count }).unwrap();
    assert_eq!(extent(10, 500), Extent { count: 500, allocation: Allocation::Hole });
    assert_eq!(extent(0, 500), Extent { count: 9, allocation: Allocation::Hole });
    assert_eq!(extent(9, 500), Extent { count: 1, allocation: Allocation::Data });
}

#[cfg(feature = "faults")]
fn discards_what_waits(hidden: &Volume) {
    assert!(hidden.room_blocks() > 260, "{} have room", hidden.room_blocks());
    for id in 0..260 {
        hidden.write(BlockNo(id), &content(id, 1)).unwrap();
    }
    hidden.discard(BlockRange { start: BlockNo(0), count: 260 }).unwrap();
    for (first, count) in [(0, 256), (257, 3)] {
        let mut read = vec![7; count * BLOCK];
        hidden.read(BlockNo(first), &mut read).unwrap();
        assert!(read.iter().all(|byte| *byte == 0));
    }
}

/// What stops in its middle: a block that it looks at on its way.
#[cfg(feature = "faults")]
const STOPS: [(u32, Asked); 4] =
    [(5, discards), (256, discards_what_waits), (256, reads), (26, looks_at_extents)];

#[cfg(feature = "faults")]
#[test]
fn public_writes_do_not_wait_for_a_hidden_request() {
    for stop in STOPS {
        assert!(public_goes_on(|| (), stop, LONG), "stopped at {}", stop.0);
    }
}

#[cfg(feature = "faults")]
#[test]
fn a_hidden_request_that_keeps_its_lock_is_noticed() {
    let [discard, waiting, read, extents] = STOPS;
    for (fault, stop) in [
        (Fault::DiscardHoldsLock, discard),
        (Fault::DiscardHoldsLock, waiting),
        (Fault::ReadHoldsLock, read),
        (Fault::ReadHoldsLock, extents),
    ] {
        let prepare = move || plant(fault);
        assert!(!public_goes_on(prepare, stop, Duration::from_secs(1)), "{fault:?}");
    }
}

/// Writes of several blocks panic, which are those of units.
struct Panicking(Arc<MemoryDevice>);

impl BlockDevice for Panicking {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn read(&self, at: BlockNo, buf: &mut [u8]) -> Result<()> {
        self.0.read(at, buf)
    }

    fn write(&self, at: BlockNo, buf: &[u8]) -> Result<()> {
        self.0.write(at, buf)
    }

    fn write_gathered(&self, _at: BlockNo, _bufs: &[&[u8]]) -> Result<()> {
        panic!("a fault of the device, as it was to be");
    }

    fn flush(&self) -> Result<()> {
        self.0.flush()
    }

    fn discard(&self, range: BlockRange) -> Result<()> {
        self.0.discard(range)
    }
}

/// A panic of the thread that writes is a failure of the device to all who wait for it.
#[test]
fn nobody_waits_for_a_writer_that_has_panicked() {
    let _watchdog = Watchdog::start("nobody_waits_for_a_writer_that_has_panicked", LONG);
    let inner = memory(blocks(60));
    let device: Arc<dyn BlockDevice> = inner.clone();
    make(&device, &parameters(1), 1, entropy(1, 1));
    let device: Arc<dyn BlockDevice> = Arc::new(Panicking(inner));
    let session = open(&device, 1, entropy(2, 2));
    let (public, hidden) = (volume(&session, 0), volume(&session, 1));
    hidden.write(BlockNo(0), &content(0, 1)).unwrap();
    public.write(BlockNo(0), &content(0, 1)).unwrap();
    let said = public.flush().unwrap_err().to_string();
    assert!(said.contains("panicked"), "{said}");
    hidden.flush().unwrap_err();
    session.close().unwrap_err();
}
