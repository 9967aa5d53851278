//! A file that is replaced is read whole by whoever opens it at that moment: the old or the new.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tacita_purge::{Overlay, OverlayOptions};
use tacita_testkit::{by_name, skip_without_fuse};
use tacita_vfs::{Exchange, FileSystem, Timestamp};

use crate::acts::fill;
use crate::image::{Fs, Image, all, turn};
use crate::overlay::{Mounted, options};

/// What a version of the file holds: no two are of one length.
fn content(version: u64) -> Vec<u8> {
    fill(&format!("KEPT-Version-{version}-"), 9000 + version * 37 % 20_000)
}

/// Reads a file, and its size as a program that trusts it does; `None` if there is none.
fn read(path: &Path) -> Option<(Vec<u8>, u64)> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return None,
        Err(e) => panic!("opening: {e}"),
    };
    let len = file.metadata().unwrap().len();
    let mut seen = Vec::new();
    file.read_to_end(&mut seen).unwrap();
    Some((seen, len))
}

/// How a file loses its name to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    RenameOver,
    UnlinkAndCreate,
    UnlinkAndRename,
    /// The old file has a second name for a moment, as programs that keep a copy do it.
    LinkedAside,
}

const WAYS: [Way; 4] =
    [Way::RenameOver, Way::UnlinkAndCreate, Way::UnlinkAndRename, Way::LinkedAside];

impl Way {
    fn replace(self, dir: &Path, version: u64) {
        let (conf, fresh, aside) = (dir.join("conf"), dir.join("fresh"), dir.join("aside"));
        match self {
            Self::RenameOver => {}
            Self::LinkedAside => fs::hard_link(&conf, &aside).unwrap(),
            _ => fs::remove_file(&conf).unwrap(),
        }
        let path = if self == Self::UnlinkAndCreate { &conf } else { &fresh };
        fs::write(path, content(version)).unwrap();
        File::open(path).unwrap().sync_all().unwrap();
        if self != Self::UnlinkAndCreate {
            fs::rename(&fresh, &conf).unwrap();
        }
        if self == Self::LinkedAside {
            fs::remove_file(aside).unwrap();
        }
    }

    /// Whether there is a file of that name at any moment.
    fn is_gapless(self) -> bool {
        matches!(self, Self::RenameOver | Self::LinkedAside)
    }
}

/// One writer, three readers, all as fast as they can.
fn race(way: Way, options: OverlayOptions) -> bool {
    let test = "readers_race_with_a_writer";
    let Some(image) = Image::new(test, Fs::Ext4) else { return false };
    fs::write(image.dir().join("conf"), content(0)).unwrap();
    image.remount();
    let what = format!("{way:?}, async {}, {}", options.asynchronous, options.passthrough);
    let mounted = Mounted::new(&image, options);
    let dir = mounted.dir.clone();
    let (stop, newest) = (AtomicBool::new(false), AtomicU64::new(0));
    let versions = if all() { 3000 } else { 20 };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    let oldest = newest.load(Ordering::Acquire).saturating_sub(1);
                    let seen = read(&dir.join("conf"));
                    let latest = newest.load(Ordering::Acquire) + 1;
                    match seen {
                        // A file that is written where it lies is seen in part.
                        _ if way == Way::UnlinkAndCreate => {
                            let (seen, _) = seen.unwrap_or_default();
                            let is_part = |v| content(v).starts_with(&seen);
                            assert!((oldest..=latest).any(is_part), "{what}: neither");
                        }
                        Some((seen, len)) => {
                            assert_eq!(seen.len() as u64, len, "{what}: its size is another's");
                            let is_whole = |v| content(v) == seen;
                            assert!((oldest..=latest).any(is_whole), "{what}: neither");
                        }
                        None => assert!(!way.is_gapless(), "{what}: it is always there"),
                    }
                }
            });
        }
        let writer = scope.spawn(|| {
            for version in 1..=versions {
                way.replace(&dir, version);
                newest.store(version, Ordering::Release);
            }
        });
        let written = writer.join();
        stop.store(true, Ordering::Release);
        written.unwrap();
    });
    mounted.end();
    image.unmount();
    true
}

#[test]
fn readers_race_with_a_writer() {
    let _turn = turn();
    if skip_without_fuse("readers_race_with_a_writer") {
        return;
    }
    for way in WAYS {
        for asynchronous in [false, true] {
            for passthrough in [true, false] {
                let options = OverlayOptions { passthrough, ..options("clear", asynchronous) };
                if !race(way, options) {
                    return;
                }
            }
        }
    }
}

/// By the seam, as a kernel that has looked up a name and comes late: the name may be taken away
/// any number of times meanwhile, and what is read stays what it is as long as it is open.
#[test]
fn a_latecomer_is_served_what_the_name_stands_for() {
    let _turn = turn();
    let test = "a_latecomer_is_served_what_the_name_stands_for";
    let Some(image) = Image::new(test, Fs::Ext4) else { return };
    let name = |version: u64| format!("version-{version}");
    for version in 0..4 {
        fs::write(image.dir().join(name(version)), content(version)).unwrap();
    }
    image.remount();
    let overlay = Overlay::open(&image.dir(), options("clear", false)).unwrap();
    let (root, now) = (overlay.root(), Timestamp::default());
    let replace = |version: u64| {
        let (old, _) = overlay.lookup(root, name(0).as_ref()).unwrap();
        let (from, to) = (name(version), name(0));
        let names = ((root, OsStr::new(&from)), (root, OsStr::new(&to)));
        by_name::rename(&overlay, names.0, names.1, Exchange::No, now).unwrap();
        overlay.unlinked(old, &|| false).unwrap();
        old
    };
    let read = |node| {
        let mut seen = vec![0; 64 << 10];
        let len = overlay.read(node, 0, &mut seen).unwrap();
        assert_eq!(overlay.attr(node).unwrap().size, len as u64);
        seen.truncate(len);
        seen
    };
    let first = replace(1);
    let second = replace(2);
    for late in [first, second] {
        assert!(overlay.open(late, false).unwrap().stands_in);
        assert_eq!(read(late), content(2));
    }
    replace(3);
    assert_eq!(overlay.status()["files"], 2, "the third is open");
    for late in [first, second] {
        assert_eq!(read(late), content(2), "it is held");
        assert!(overlay.open(late, false).unwrap().stands_in);
        assert_eq!(read(late), content(2), "all handles share it");
        overlay.released(late);
        overlay.released(late);
    }
    assert_eq!(overlay.status()["files"], 3, "it is purged with the last handle");
    overlay.open(first, false).unwrap();
    assert_eq!(read(first), content(3));
    overlay.released(first);
    let last = by_name::remove(&overlay, root, name(0).as_ref(), now).unwrap();
    overlay.unlinked(last, &|| false).unwrap();
    for late in [first, second, last] {
        let refused = overlay.open(late, false).unwrap_err();
        assert_eq!(refused.kind(), tacita_vfs::Kind::NotFound, "as if it had come a moment later");
    }
}

/// Who may open a file need not be let in to the one that takes its name.
#[test]
fn a_latecomer_is_not_let_in_where_the_kernel_has_not_looked() {
    use std::os::unix::fs::PermissionsExt;
    let _turn = turn();
    let test = "a_latecomer_is_not_let_in_where_the_kernel_has_not_looked";
    let Some(image) = Image::new(test, Fs::Ext4) else { return };
    for (name, mode) in [("open", 0o644), ("private", 0o600)] {
        fs::write(image.dir().join(name), content(1)).unwrap();
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(image.dir().join(name), mode).unwrap();
    }
    let overlay = Overlay::open(&image.dir(), options("clear", false)).unwrap();
    let root = overlay.root();
    let (late, _) = overlay.lookup(root, "open".as_ref()).unwrap();
    let (from, to) = ((root, "private".as_ref()), (root, "open".as_ref()));
    by_name::rename(&overlay, from, to, Exchange::No, Timestamp::default()).unwrap();
    overlay.unlinked(late, &|| false).unwrap();
    let refused = overlay.open(late, false).unwrap_err();
    assert_eq!(refused.kind(), tacita_vfs::Kind::Stale, "the kernel looks again");
}

/// Whether all that open a file at any step of its purge read a version of it.
#[cfg(feature = "faults")]
fn at_each_step_of_a_purge(
    way: Way,
    options: OverlayOptions,
    faults: &[tacita_purge::faults::Fault],
) -> Option<bool> {
    use std::sync::{Arc, Mutex};
    use tacita_purge::faults::{Step, at_each_step, plant};
    let image = Image::new("a_file_is_opened_at_each_step_of_its_purge", Fs::Ext4)?;
    fs::write(image.dir().join("conf"), content(1)).unwrap();
    image.remount();
    let mounted = Mounted::new(&image, options);
    let path = mounted.dir.join("conf");
    // The kernel remembers the name from now on.
    assert_eq!(fs::metadata(&path).unwrap().len(), content(1).len() as u64);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (found, late) = (Arc::clone(&seen), path.clone());
    plant(faults);
    at_each_step(move |step| {
        if matches!(step, Step::Recorded | Step::Linked | Step::Spooled) {
            // Whoever opens it now is served the old file, and the purge waits.
            return;
        }
        if step == Step::Looked {
            // Nothing is overwritten yet: read now, it would be in the kernel's cache afterwards.
            return;
        }
        let late = late.clone();
        let read = std::thread::spawn(move || {
            let mut content = Vec::new();
            File::open(&late).and_then(|mut f| f.read_to_end(&mut content)).map(|_| content)
        });
        found.lock().unwrap().push((step, read.join().unwrap()));
    });
    way.replace(&mounted.dir, 2);
    at_each_step(|_| ());
    plant(&[]);
    mounted.end();
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    assert!(seen.len() > 3, "{} steps only", seen.len());
    let broken = seen.iter().filter(|(step, read)| {
        let is_whole = match read {
            Ok(read) => [content(1), content(2)].contains(read),
            Err(e) => e.kind() == ErrorKind::NotFound && !way.is_gapless(),
        };
        if !is_whole {
            let read = read.as_ref().map(|read| (read.len(), read.iter().all(|b| *b == 0)));
            eprintln!("{way:?}, {faults:?}, {step:?}: {read:?}");
        }
        !is_whole
    });
    Some(broken.count() == 0)
}

#[cfg(feature = "faults")]
#[test]
fn a_file_is_opened_at_each_step_of_its_purge() {
    use tacita_purge::faults::Fault;
    let _turn = turn();
    if skip_without_fuse("a_file_is_opened_at_each_step_of_its_purge") {
        return;
    }
    for way in [Way::RenameOver, Way::UnlinkAndRename, Way::LinkedAside] {
        for passthrough in [true, false] {
            let whole = |faults: &[Fault]| {
                let options = OverlayOptions { passthrough, ..options("clear", false) };
                at_each_step_of_a_purge(way, options, faults)
            };
            let Some(without) = whole(&[]) else { return };
            assert!(without, "{way:?}, passthrough {passthrough}");
            // The kernel knows of the new file by the time that the second name goes.
            let with = way != Way::LinkedAside && whole(&[Fault::LatecomersUnhooked]).unwrap();
            assert!(!with, "the fault is not caught: {way:?}, passthrough {passthrough}");
        }
    }
}
