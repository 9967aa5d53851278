//! What the kernel does past the mount is seen in it: times of files that are written by a mapping, and
//! of those whose flags change.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use rustix::time::{ClockId, clock_gettime};
use tacita_clock::{Clock, System};
use tacita_testkit::{skip_without, skip_without_fuse};

use crate::image::{Fs, Image, turn};
use crate::overlay::{Mounted, options};

/// Maps a file, asks for its times, and writes by the mapping; by a program of its own, so that the tests
/// need no unsafe code. What it was told before and after.
fn write_by_a_mapping(path: &Path) -> [i128; 2] {
    let script = "import mmap, os, sys, time\n\
        with open(sys.argv[1], 'r+b') as file:\n    \
            mapping = mmap.mmap(file.fileno(), 0)\n    \
            before = os.stat(sys.argv[1]).st_mtime_ns\n    \
            # The kernel stamps by this clock, which goes on in steps.\n    \
            while time.clock_gettime_ns(5) <= before: time.sleep(0.001)\n    \
            mapping[0:4] = b'done'\n    \
            mapping.flush()\n    \
            print(before, os.stat(sys.argv[1]).st_mtime_ns)\n";
    let output = Command::new("python3").args(["-c", script]).arg(path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let times: Vec<i128> = said.split_whitespace().map(|time| time.parse().unwrap()).collect();
    times.try_into().unwrap()
}

fn changed(facts: &Metadata) -> (i64, i64) {
    (facts.ctime(), facts.ctime_nsec())
}

/// Waits until the kernel would stamp another time: its clock for that goes on in steps.
fn await_stamp(facts: &Metadata) {
    let stamp = || {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        (now.tv_sec, now.tv_nsec)
    };
    while stamp() <= changed(facts) {
        System.wait(Duration::from_millis(1));
    }
}

#[test]
fn times_that_change_past_the_mount_are_seen() {
    let _turn = turn();
    let test = "times_that_change_past_the_mount_are_seen";
    if skip_without_fuse(test) || skip_without(test, &["python3"]) {
        return;
    }
    let Some(image) = Image::new(test, Fs::Ext4) else { return };
    fs::write(image.dir().join("old"), [0; 4096]).unwrap();
    let mounted = Mounted::new(&image, options("clear", true));
    fs::write(mounted.dir.join("new"), [0; 4096]).unwrap();
    for name in ["old", "new"] {
        let path = mounted.dir.join(name);
        let [before, after] = write_by_a_mapping(&path);
        assert!(after > before, "{name}: the mapping was written to at {before}");
        let facts = fs::metadata(&path).unwrap();
        let last = i128::from(facts.mtime()) * 1_000_000_000 + i128::from(facts.mtime_nsec());
        assert_eq!(last, after, "{name}");
        await_stamp(&facts);
        let file = File::open(&path).unwrap();
        let flags = ioctl_getflags(&file).unwrap();
        ioctl_setflags(&file, flags | IFlags::NODUMP).unwrap();
        let later = fs::metadata(&path).unwrap();
        assert!(changed(&later) > changed(&facts), "{name}: its flags were set");
    }
    mounted.end();
    image.unmount();
}
