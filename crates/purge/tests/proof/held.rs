//! Content that is on its way to the medium at the moment when it is purged.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rustix::fs::syncfs;
use tacita_block::{BlockDevice, BlockNo, BlockRange, Geometry, MemoryDevice, Result};
use tacita_clock::System;
use tacita_devfiles::DeviceFiles;
use tacita_purge::faults::{Step, at_each_step};
use tacita_purge::{Removal, RemovalOptions, Verdict};
use tacita_testkit::loop_disk::LoopDisk;
use tacita_testkit::search::{holds, places};
use tacita_testkit::{MountGuard, skip_without, skip_without_fuse};
use tacita_vfs::Posix;
use tacita_vfs::fuse::mount;

use crate::acts::fill;
use crate::image::turn;

const LOST: &str = "LOST-Held-m-";

/// Nothing takes as long; who waits in vain is not to wait for ever.
const PATIENCE: Duration = Duration::from_mins(2);

/// A device that takes content at once, and answers when it is let go.
struct HeldDevice {
    medium: MemoryDevice,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum State {
    /// Nothing of it has come yet.
    Waits,
    /// It is on the medium, and nobody has been told.
    Holds,
    LetGo,
}

impl HeldDevice {
    fn become_state(&self, state: State) {
        *self.state.lock().unwrap() = state;
        self.changed.notify_all();
    }

    fn wait_while(&self, state: State) {
        let now = self.state.lock().unwrap();
        let waited = self.changed.wait_timeout_while(now, PATIENCE, |now| *now == state);
        assert_ne!(*waited.unwrap().0, state, "waited in vain");
    }
}

impl BlockDevice for HeldDevice {
    fn geometry(&self) -> Geometry {
        self.medium.geometry()
    }

    fn read(&self, at: BlockNo, buf: &mut [u8]) -> Result<()> {
        self.medium.read(at, buf)
    }

    fn write(&self, at: BlockNo, buf: &[u8]) -> Result<()> {
        self.medium.write(at, buf)?;
        if holds(buf, LOST) && *self.state.lock().unwrap() == State::Waits {
            self.become_state(State::Holds);
            self.wait_while(State::Holds);
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.medium.flush()
    }

    fn discard(&self, range: BlockRange) -> Result<()> {
        self.medium.discard(range)
    }
}

/// Purges a file whose content is in memory when it is looked for, and is being written back before it
/// is overwritten there.
fn purge_on_its_way(device: &Arc<HeldDevice>, path: &Path) -> Verdict {
    let folder = Arc::new(File::open(path.parent().unwrap()).unwrap());
    let (hooked, looks) = (Arc::clone(device), AtomicU32::new(0));
    let writer = Arc::new(Mutex::new(None));
    let started = Arc::clone(&writer);
    at_each_step(move |step| match (step, looks.load(Ordering::SeqCst)) {
        (Step::Looked, 0) => {
            looks.store(1, Ordering::SeqCst);
            let folder = Arc::clone(&folder);
            *started.lock().unwrap() = Some(std::thread::spawn(move || syncfs(&folder)));
            hooked.wait_while(State::Waits);
        }
        (Step::Looked, 1) => {
            looks.store(2, Ordering::SeqCst);
            hooked.become_state(State::LetGo);
        }
        _ => {}
    });
    let mut removal = Removal::new(RemovalOptions::default());
    removal.purge(path);
    device.become_state(State::LetGo);
    at_each_step(|_| ());
    let begun: Option<std::thread::JoinHandle<_>> = writer.lock().unwrap().take();
    begun.expect("it was looked for").join().unwrap().unwrap();
    removal.finish().remove(0)
}

#[test]
fn what_is_on_its_way_to_the_medium_is_overwritten_there() {
    let _turn = turn();
    let test = "what_is_on_its_way_to_the_medium_is_overwritten_there";
    let programs = ["losetup", "mkfs.ext4", "mount"];
    if skip_without_fuse(test) || skip_without(test, &programs) {
        return;
    }
    let (medium, changed) =
        (MemoryDevice::new(Geometry::within(48 << 20, 512).unwrap()), Condvar::new());
    let device = Arc::new(HeldDevice { medium, state: Mutex::new(State::LetGo), changed });
    let shown: Arc<dyn BlockDevice> = Arc::clone(&device) as _;
    let files = DeviceFiles::new([(OsString::from("disk"), shown)]).unwrap();
    let guard = MountGuard::new().unwrap();
    let posix = Arc::new(Posix::new(files, Arc::new(System)));
    let _mount = mount(posix, guard.path(), &DeviceFiles::mount_options()).unwrap();
    let place = tempfile::tempdir().unwrap();
    let at = place.path().join("at");
    let disk = match LoopDisk::new(&guard.join("disk"), at, &[], "noatime") {
        Ok(disk) => disk,
        Err(why) => {
            eprintln!("SKIPPED: {test}: {}", why.trim());
            return;
        }
    };
    device.become_state(State::Waits);
    let path = disk.at().join("file");
    fs::write(&path, fill(LOST, 64 << 10)).unwrap();
    let verdict = purge_on_its_way(&device, &path);
    disk.unmount();
    let left = places(&device.medium.snapshot(), LOST);
    assert_eq!(left, [0; 0], "{verdict:?}");
}
