//! What happens at which time, on a simulated clock: the ends of epochs, and method f.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tacita_clock::{Clock, Simulated, System};
use tacita_purge::{Overlay, OverlayOptions};
use tacita_vfs::Posix;
use tacita_vfs::posix::Caller;

use crate::image::{Fs, Image, turn};
use crate::overlay::options;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

/// A clock that begins at the time of the machine, by which the kernel stamps births.
fn simulated() -> Arc<Simulated> {
    Arc::new(Simulated::at(System.wall()))
}

fn open(lower: &Path, options: OverlayOptions, clock: &Arc<Simulated>) -> Posix<Overlay> {
    let options = OverlayOptions { clock: Arc::<Simulated>::clone(clock), ..options };
    Posix::new(Overlay::open(lower, options).unwrap(), Arc::<Simulated>::clone(clock))
}

fn unlink(posix: &Posix<Overlay>, name: &str) {
    posix.unlink(Caller::default(), posix.root(), name.as_ref()).unwrap();
}

fn number(posix: &Posix<Overlay>, key: &str) -> u64 {
    posix.file_system().status()[key].as_u64().unwrap()
}

#[test]
fn names_are_cleared_when_their_epoch_ends() {
    let _turn = turn();
    let test = "names_are_cleared_when_their_epoch_ends";
    let Some(image) = Image::new(test, Fs::Ext4) else { return };
    for name in ["one", "two"] {
        fs::write(image.dir().join(name), b"content").unwrap();
    }
    image.remount();
    let (clock, options) = (simulated(), options("clear", true));
    let posix = open(&image.dir(), OverlayOptions { epoch: 10 * MINUTE, ..options }, &clock);
    // The thread that purges is the one that waits for the clock.
    for (name, epochs) in [("one", 1), ("two", 2)] {
        unlink(&posix, name);
        clock.advance_among(1, 5 * SECOND);
        assert_eq!((number(&posix, "files"), number(&posix, "epochs")), (epochs, epochs - 1));
        clock.advance_among(1, 9 * MINUTE);
        assert_eq!(number(&posix, "epochs"), epochs - 1, "its time has not come");
        clock.advance_among(1, MINUTE);
        clock.await_waiters(1);
        assert_eq!(number(&posix, "epochs"), epochs);
        assert!(posix.file_system().status()["idle"].as_bool().unwrap());
        clock.advance_among(1, 20 * MINUTE);
        assert_eq!(number(&posix, "epochs"), epochs, "nothing has been lost since");
    }
    drop(posix);
    image.unmount();
}

/// An epoch lasts as long as it lasts, whatever the time of day is set to meanwhile.
#[test]
fn setting_the_clock_neither_ends_an_epoch_nor_puts_it_off() {
    let _turn = turn();
    let test = "setting_the_clock_neither_ends_an_epoch_nor_puts_it_off";
    let Some(image) = Image::new(test, Fs::Ext4) else { return };
    for name in ["back", "forth"] {
        fs::write(image.dir().join(name), b"content").unwrap();
    }
    image.remount();
    let (clock, options) = (simulated(), options("clear", true));
    let posix = open(&image.dir(), OverlayOptions { epoch: 10 * MINUTE, ..options }, &clock);
    let day = Duration::from_hours(24);
    for (name, epochs) in [("back", 1), ("forth", 2)] {
        unlink(&posix, name);
        clock.advance_among(1, 5 * SECOND);
        let now = clock.wall();
        clock.set_wall(if name == "back" { now - day } else { now + day });
        clock.advance_among(1, 9 * MINUTE);
        assert_eq!(number(&posix, "epochs"), epochs - 1, "{name}: its time has not come");
        clock.advance_among(1, MINUTE);
        clock.await_waiters(1);
        assert_eq!(number(&posix, "epochs"), epochs, "{name}");
        assert!(posix.file_system().status()["idle"].as_bool().unwrap(), "{name}");
    }
    drop(posix);
    image.unmount();
}

/// Whatever the lifetime of a file and however often it is mounted anew meanwhile.
#[test]
fn method_f_holds_files_for_as_long_as_they_lived() {
    let _turn = turn();
    let test = "method_f_holds_files_for_as_long_as_they_lived";
    for inodes in ["128", "256"] {
        let Some(image) = Image::with(test, Fs::Ext4, &["-I", inodes]) else { return };
        let clock = simulated();
        let path = image.dir().join("file");
        fs::write(&path, b"content").unwrap();
        // Where births are not kept this is the birth. To purge a file is not to read it.
        let earlier = clock.wall() - 10 * MINUTE;
        let times = fs::FileTimes::new().set_accessed(earlier).set_modified(earlier);
        fs::File::open(&path).unwrap().set_times(times).unwrap();
        image.remount();
        let facts = fs::metadata(&path).unwrap();
        let accessed =
            || SystemTime::UNIX_EPOCH + Duration::from_secs(facts.atime().unsigned_abs());
        let born = facts.created().unwrap_or_else(|_| accessed());
        clock.advance(60 * MINUTE);
        let died = clock.wall();
        let posix = open(&image.dir(), options("f", false), &clock);
        unlink(&posix, "file");
        let state = |posix: &Posix<Overlay>| {
            posix.file_system().finish().unwrap();
            (number(posix, "in_use_or_held"), number(posix, "files"))
        };
        assert_eq!(state(&posix), (1, 0), "it is held");
        drop(posix);
        let end = died + died.duration_since(born).unwrap();
        let almost = end - 2 * SECOND;
        clock.advance(almost.duration_since(clock.wall()).unwrap());
        let posix = open(&image.dir(), options("f", false), &clock);
        assert_eq!(state(&posix), (1, 0), "it is still held");
        clock.advance(4 * SECOND);
        assert_eq!(state(&posix), (0, 1), "it has had its time");
        drop(posix);
        assert!(!image.dir().join(".tacita-purge").exists());
        image.unmount();
    }
}
