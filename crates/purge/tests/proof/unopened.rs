//! Attributes of links, pipes, sockets and devices, which are never opened: their values are gone from
//! the raw image all the same.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, XattrFlags, lremovexattr, lsetxattr, makedev, mknodat};
use serde_json::Value;
use tacita_purge::{Content, Overlay, Part, Removal, RemovalOptions, Verdict};
use tacita_testkit::skip_without_fuse;

use crate::acts::fill;
use crate::image::{Fs, Image, turn};
use crate::overlay::{Mounted, options};

const NAMES: [&str; 6] = ["short", "long", "pipe", "socket", "character", "block"];

/// Values that lie in the inode, and that do not fit there.
const LENS: [u64; 2] = [40, 1500];

fn mark(name: &str, len: u64) -> String {
    format!("LOST-Unopened{name}{len}-m-")
}

/// Nodes of all kinds, each with a value of `len` bytes.
fn make(dir: &Path, len: u64) -> Vec<PathBuf> {
    let paths = NAMES.map(|name| dir.join(format!("{name}-{len}")));
    symlink("elsewhere", &paths[0]).unwrap();
    symlink("elsewhere/".repeat(30), &paths[1]).unwrap();
    let kinds =
        [FileType::Fifo, FileType::Socket, FileType::CharacterDevice, FileType::BlockDevice];
    for (path, kind) in paths[2..].iter().zip(kinds) {
        mknodat(CWD, path, kind, Mode::RUSR, makedev(7, 200)).unwrap();
    }
    for (path, name) in paths.iter().zip(NAMES) {
        set(path, &mark(name, len), len);
    }
    paths.into()
}

fn set(path: &Path, mark: &str, len: u64) {
    lsetxattr(path, "trusted.note", &fill(mark, len), XattrFlags::empty()).unwrap();
}

fn purge(path: &Path) -> Vec<Verdict> {
    let mut removal = Removal::new(RemovalOptions { recursive: true, ..RemovalOptions::default() });
    removal.purge(path);
    removal.finish()
}

fn left(image: &Image) -> Vec<String> {
    image.unmount();
    let tally = image.tally();
    image.mount();
    let marks = LENS.iter().flat_map(|len| NAMES.map(|name| mark(name, *len)));
    marks.filter(|mark| tally.contains_key(mark)).collect()
}

#[test]
fn they_are_purged_by_path() {
    let _turn = turn();
    for fs in [Fs::Ext4, Fs::Ext4Plain, Fs::Ext2, Fs::Ext3] {
        let Some(image) = Image::new("they_are_purged_by_path", fs) else { continue };
        let folder = image.dir().join("folder");
        fs::create_dir(&folder).unwrap();
        for len in LENS {
            make(&folder, len);
        }
        image.remount();
        assert_eq!(left(&image).len(), 12, "{fs:?}");
        let verdicts = purge(&folder);
        assert_eq!(verdicts.len(), 13);
        for verdict in &verdicts {
            let name = verdict.path.as_ref().unwrap().file_name().unwrap().to_string_lossy();
            let has_long_target = name.starts_with("long");
            let expected = if name == "folder" { Part::None } else { Part::Done };
            assert_eq!(verdict.attributes, expected, "{fs:?}: {verdict:?}");
            assert_eq!(verdict.holds(), !has_long_target, "{fs:?}: {verdict:?}");
        }
        assert_eq!(left(&image), Vec::<String>::new(), "{fs:?}");
    }
}

/// What has another name keeps its attributes, and the verdict says so.
#[test]
fn another_name_keeps_them() {
    let _turn = turn();
    let Some(image) = Image::new("another_name_keeps_them", Fs::Ext4) else { return };
    let pipe = image.dir().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
    set(&pipe, &mark("pipe", 1500), 1500);
    fs::hard_link(&pipe, image.dir().join("second")).unwrap();
    let verdict = &purge(&pipe)[0];
    assert!(verdict.removed && matches!(verdict.attributes, Part::Left(_)), "{verdict:?}");
    assert_eq!(left(&image), [mark("pipe", 1500)]);
    let verdict = &purge(&image.dir().join("second"))[0];
    assert!(verdict.holds() && verdict.content == Content::NothingStored, "{verdict:?}");
    assert_eq!(left(&image), Vec::<String>::new());
}

/// What a mount does to them.
#[derive(Debug, Clone, Copy)]
enum Act {
    Unlink,
    /// A file is renamed over it.
    RenameOver,
    RemoveAttribute,
    ReplaceAttribute,
}

/// Which values are left in the raw image, and the verdicts.
fn act(act: Act) -> Option<(Vec<String>, Vec<Value>)> {
    let image = Image::new("attributes_of_what_is_never_opened", Fs::Ext4)?;
    let paths: Vec<PathBuf> = LENS.into_iter().flat_map(|len| make(&image.dir(), len)).collect();
    image.remount();
    let mounted = Mounted::new(&image, options("clear", false));
    for path in &paths {
        let path = mounted.dir.join(path.file_name().unwrap());
        match act {
            Act::Unlink => fs::remove_file(&path).unwrap(),
            Act::RenameOver => {
                let new = mounted.dir.join("new");
                fs::write(&new, "new").unwrap();
                fs::rename(&new, &path).unwrap();
                assert_eq!(fs::read_to_string(&path).unwrap(), "new");
            }
            Act::RemoveAttribute => lremovexattr(&path, "trusted.note").unwrap(),
            Act::ReplaceAttribute => set(&path, "KEPT-Unopened-m-", 30),
        }
    }
    mounted.overlay().finish().unwrap();
    let status = mounted.overlay().status();
    mounted.end();
    assert!(!image.dir().join(".tacita-purge").exists(), "{act:?}");
    Some((left(&image), status["last"].as_array().unwrap().clone()))
}

#[test]
fn they_are_purged_under_a_mount() {
    let _turn = turn();
    if skip_without_fuse("they_are_purged_under_a_mount") {
        return;
    }
    for (acted, judged) in [
        (Act::Unlink, 12),
        (Act::RenameOver, 12),
        (Act::RemoveAttribute, 0),
        (Act::ReplaceAttribute, 0),
    ] {
        let Some((left, verdicts)) = act(acted) else { return };
        assert_eq!(left, Vec::<String>::new(), "{acted:?}");
        assert_eq!(verdicts.len(), judged, "{acted:?}: {verdicts:#?}");
        for verdict in &verdicts {
            assert_eq!(verdict["attributes"], "done", "{acted:?}: {verdict:#}");
            let has_long_target = verdict["content"] == "not in place";
            assert_eq!(verdict["holds"], !has_long_target, "{acted:?}: {verdict:#}");
        }
        let long = verdicts.iter().filter(|verdict| verdict["content"] == "not in place").count();
        assert_eq!(long, judged / 6, "{acted:?}");
    }
}

/// As after a crash: what waits in the spool.
#[test]
fn they_are_purged_by_the_next_mount() {
    let _turn = turn();
    let Some(image) = Image::new("they_are_purged_by_the_next_mount", Fs::Ext4) else { return };
    let spool = image.dir().join(".tacita-purge");
    fs::create_dir(&spool).unwrap();
    fs::set_permissions(&spool, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let mut inodes = Vec::new();
    for (number, path) in make(&image.dir(), 1500).iter().enumerate() {
        fs::rename(path, spool.join(number.to_string())).unwrap();
        inodes.push(fs::symlink_metadata(spool.join(number.to_string())).unwrap().ino());
    }
    image.remount();
    let overlay = Overlay::open(&image.dir(), options("clear", false)).unwrap();
    let status = overlay.status();
    drop(overlay);
    let verdicts = status["last"].as_array().unwrap();
    let told: Vec<u64> = verdicts.iter().map(|v| v["inode"].as_u64().unwrap()).collect();
    assert_eq!(told, inodes, "{verdicts:#?}");
    assert!(verdicts.iter().all(|verdict| verdict["attributes"] == "done"), "{verdicts:#?}");
    assert!(!spool.exists());
    assert_eq!(left(&image), Vec::<String>::new());
}

#[cfg(feature = "faults")]
#[test]
fn attributes_that_are_not_erased_are_caught() {
    use tacita_purge::faults::{Fault, plant};
    let _turn = turn();
    if skip_without_fuse("attributes_that_are_not_erased_are_caught") {
        return;
    }
    for (fault, acted) in [
        (Fault::AttributesUnhooked, Act::Unlink),
        (Fault::ReplaceUnhooked, Act::RenameOver),
        (Fault::RemoveAttributeUnhooked, Act::RemoveAttribute),
        (Fault::SetAttributeUnhooked, Act::ReplaceAttribute),
    ] {
        plant(&[fault]);
        let seen = act(acted);
        plant(&[]);
        let Some((left, _)) = seen else { return };
        assert!(!left.is_empty(), "{fault:?} is not caught");
    }
}
