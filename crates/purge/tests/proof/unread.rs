//! A medium that does not give what lies in some places of it, for a moment or for ever: verdicts say no
//! more than what was seen, and nothing else waits for it.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{XattrFlags, lsetxattr};
use serde_json::Value;
use tacita_purge::faults::{Step, at_each_step, make_unreadable};
use tacita_purge::{Map, Overlay, Removal, RemovalOptions};
use tacita_testkit::{skip_without_fuse, system};

use crate::acts::fill;
use crate::image::{Fs, Image, turn};
use crate::overlay::{Mounted, options};

/// All of the device, and all but its superblock.
const PLACES: [std::ops::Range<u64>; 2] = [0..u64::MAX, 4096..u64::MAX];

const VALUE: &str = "LOST-Unread-m-";

/// The device is to be read again.
struct Readable;

impl Drop for Readable {
    fn drop(&mut self) {
        make_unreadable(0..0, 0);
    }
}

fn make(dir: &Path) {
    fs::create_dir(dir.join("folder")).unwrap();
    for number in 0..9 {
        let path = dir.join(format!("folder/secretname-Unread-{number}-"));
        fs::write(path, fill("LOST-Content-m-", 8 << 10)).unwrap();
    }
}

fn delete(dir: &Path, number: u64) {
    fs::remove_file(dir.join(format!("folder/secretname-Unread-{number}-"))).unwrap();
}

fn last(mounted: &Mounted) -> Value {
    mounted.overlay().status()["last"].as_array().unwrap().last().unwrap().clone()
}

#[test]
fn an_epoch_ends_where_the_device_cannot_be_read() {
    let _turn = turn();
    let test = "an_epoch_ends_where_the_device_cannot_be_read";
    if skip_without_fuse(test) {
        return;
    }
    let _readable = Readable;
    for places in PLACES {
        let Some(image) = Image::new(test, Fs::Ext4) else { return };
        make(&image.dir());
        image.remount();
        let mounted = Mounted::new(&image, options("clear", false));
        make_unreadable(places.clone(), u32::MAX);
        delete(&mounted.dir, 1);
        mounted.overlay().finish().unwrap();
        let verdict = last(&mounted);
        assert_eq!(verdict["content"], "verified in place", "{verdict:#}");
        assert_eq!(verdict["holds"], false, "{verdict:#}");
        for part in ["name", "journal"] {
            assert!(verdict[part]["left"].is_string(), "{verdict:#}");
        }
        make_unreadable(0..0, 0);
        delete(&mounted.dir, 2);
        mounted.overlay().finish().unwrap();
        assert_eq!(last(&mounted)["holds"], true, "{:#}", last(&mounted));
        // Only for a moment: the folder is looked at again at once.
        make_unreadable(4096..u64::MAX, 2);
        delete(&mounted.dir, 3);
        mounted.overlay().finish().unwrap();
        assert_eq!(last(&mounted)["holds"], true, "{:#}", last(&mounted));
        mounted.end();
        assert!(!image.dir().join(".tacita-purge").exists());
    }
}

#[test]
fn a_run_by_path_tells_of_all_where_the_device_cannot_be_read() {
    let _turn = turn();
    let test = "a_run_by_path_tells_of_all_where_the_device_cannot_be_read";
    let _readable = Readable;
    for places in PLACES {
        let Some(image) = Image::new(test, Fs::Ext4) else { return };
        make(&image.dir());
        image.remount();
        let mut removal = Removal::new(RemovalOptions::default());
        removal.purge(&image.dir().join("folder/secretname-Unread-1-")).unwrap();
        make_unreadable(places, u32::MAX);
        let verdicts = removal.finish().unwrap();
        make_unreadable(0..0, 0);
        let [verdict] = &verdicts[..] else { panic!("{verdicts:?}") };
        assert!(verdict.removed && !verdict.holds(), "{verdict:?}");
    }
}

/// A folder and a link with attributes, whose places have to be known before their values go.
#[test]
fn what_cannot_be_purged_yet_holds_nothing_else_up() {
    let _turn = turn();
    let test = "what_cannot_be_purged_yet_holds_nothing_else_up";
    if skip_without_fuse(test) {
        return;
    }
    let _readable = Readable;
    let Some(image) = Image::new(test, Fs::Ext4) else { return };
    make(&image.dir());
    let (removed, link) = (image.dir().join("removed"), image.dir().join("link"));
    fs::create_dir(&removed).unwrap();
    symlink("elsewhere", &link).unwrap();
    for (path, name) in [(&removed, "user.note"), (&link, "trusted.note")] {
        lsetxattr(path, name, &fill(VALUE, 1500), XattrFlags::empty()).unwrap();
    }
    image.remount();
    let mounted = Mounted::new(&image, options("clear", false));
    make_unreadable(0..u64::MAX, u32::MAX);
    fs::remove_dir(mounted.dir.join("removed")).unwrap();
    fs::remove_file(mounted.dir.join("link")).unwrap();
    delete(&mounted.dir, 1);
    assert!(mounted.overlay().finish().is_err(), "two are not purged");
    assert_eq!(last(&mounted)["content"], "verified in place", "the epoch of the others has ended");
    assert!(last(&mounted)["name"]["left"].is_string(), "{:#}", last(&mounted));
    assert!(mounted.overlay().finish().is_err(), "they are not forgotten");
    make_unreadable(0..0, 0);
    mounted.overlay().finish().unwrap();
    assert_eq!(mounted.overlay().status()["idle"], true);
    mounted.end();
    assert!(!image.dir().join(".tacita-purge").exists());
    image.unmount();
    assert_eq!(image.count(VALUE), 0);
    image.mount();
}
