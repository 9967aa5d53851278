//! Folders that are there: what is unpacked into them, and what of them is packed.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{XattrFlags, getxattr, setxattr};
use tacita_testkit::strace::cannot_trace;
use tacita_testkit::{copy_program, skip_without};

use crate::{NOBODY, expect, hifs, path};

/// A folder that all may come to, with a program that all may start.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        allow(dir.path(), 0o755);
        copy_program(env!("CARGO_BIN_EXE_tacita"), dir.path().join("tacita"));
        Self { dir }
    }

    fn folder(&self, name: &str, mode: u32) -> PathBuf {
        let folder = self.dir.path().join(name);
        fs::create_dir(&folder).unwrap();
        allow(&folder, mode);
        folder
    }

    /// An image of a folder with an attribute, a time and permissions, and of what is in it.
    fn image(&self, mode: u32) -> PathBuf {
        let (folder, image) = (self.folder("files", 0o700), self.dir.path().join("i.img"));
        fs::create_dir(folder.join("within")).unwrap();
        fs::write(folder.join("within/file"), "content").unwrap();
        allow(&folder.join("within"), 0o555);
        setxattr(&folder, "user.of", b"the folder", XattrFlags::empty()).unwrap();
        allow(&folder, mode);
        let times = fs::FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_hours(1));
        fs::File::open(&folder).unwrap().set_times(times).unwrap();
        let shape = ["--times", "full", "--size", "16M"];
        expect(0, &hifs(&[&["pack", path(&folder), path(&image)], &shape[..]].concat()));
        allow(&folder, 0o700);
        allow(&folder.join("within"), 0o700);
        allow(&image, 0o644);
        image
    }

    /// The command that unpacks, as another user.
    fn unpack_as_nobody(&self, image: &Path, out: &Path) -> Command {
        let mut unpack = Command::new(self.dir.path().join("tacita"));
        unpack.args(["hifs", "unpack", path(image), path(out)]).stdin(Stdio::null());
        unpack.uid(NOBODY).gid(NOBODY).current_dir("/");
        unpack
    }
}

fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn names(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

fn is_root(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("SKIPPED: {test}: only root can be somebody else");
    }
    is_root
}

/// What is known of a folder: its permissions, its time, an attribute, how many names it has.
fn known(folder: &Path) -> (u32, i64, Vec<u8>, usize) {
    let meta = fs::metadata(folder).unwrap();
    let mut value = [0; 64];
    let len = getxattr(folder, "user.of", &mut value[..]).unwrap_or(0);
    (meta.mode() & 0o7777, meta.mtime(), value[..len].to_vec(), names(folder))
}

#[test]
fn a_folder_that_is_there_gets_what_a_new_one_has() {
    let place = Place::new();
    let image = place.image(0o550);
    let (new, there) = (place.dir.path().join("new"), place.folder("there", 0o755));
    for out in [&new, &there] {
        expect(0, &hifs(&["unpack", path(&image), path(out)]));
    }
    let want = (0o550, 3600, b"the folder".to_vec(), 1);
    assert_eq!(known(&new), want);
    assert_eq!(known(&there), want);
    if !is_root("a_folder_that_is_there_gets_what_a_new_one_has") {
        return;
    }
    // He may not put anything into it or take anything out of it when all is done, nor out of what is in it.
    let own = place.folder("own", 0o755);
    chown(&own, Some(NOBODY), Some(NOBODY)).unwrap();
    expect(0, &place.unpack_as_nobody(&image, &own).output().unwrap());
    assert_eq!(known(&own), want);
    assert_eq!(known(&own.join("within")).0, 0o555);
}

#[test]
fn a_folder_of_somebody_else_stays_as_it_is() {
    let test = "a_folder_of_somebody_else_stays_as_it_is";
    if !is_root(test) {
        return;
    }
    let place = Place::new();
    let (image, out) = (place.image(0o755), place.folder("out", 0o777));
    let before = known(&out);
    let said = expect(4, &place.unpack_as_nobody(&image, &out).output().unwrap());
    assert!(said.contains("out: "), "{said}");
    assert_eq!(known(&out), before);
}

/// By way of a link it would hold what it held before.
#[test]
fn an_image_within_the_folder_is_refused_by_any_name() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, link) = (dir.path().join("folder"), dir.path().join("link"));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("inner"), "what was there").unwrap();
    std::os::unix::fs::symlink(folder.join("inner"), &link).unwrap();
    let said = expect(2, &hifs(&["pack", path(&folder), path(&link), "--force"]));
    assert!(said.contains("outside of it"), "{said}");
    assert_eq!(fs::read(folder.join("inner")).unwrap(), b"what was there");
    assert_eq!(names(&folder), 1);
    let test = "an_image_within_the_folder_is_refused_by_any_name (mounted twice)";
    if !is_root(test) || skip_without(test, &["unshare", "mount"]) {
        return;
    }
    fs::remove_file(&link).unwrap();
    fs::create_dir(&link).unwrap();
    let twice = r#"mount --bind "$1" "$2" && exec "$0" hifs pack "$1" "$2/i.img""#;
    let mut pack = Command::new("unshare");
    pack.args(["--mount", "sh", "-c", twice, env!("CARGO_BIN_EXE_tacita")]).args([&folder, &link]);
    let said = expect(2, &pack.output().unwrap());
    assert!(said.contains("outside of it"), "{said}");
    assert_eq!(names(&folder), 1);
}

#[test]
fn attributes_that_cannot_be_listed_are_not_left_out() {
    if cannot_trace("attributes_that_cannot_be_listed_are_not_left_out") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (folder, image) = (dir.path().join("folder"), dir.path().join("i.img"));
    fs::create_dir(&folder).unwrap();
    let pack = |error: &str| {
        let mut failing = Command::new("strace");
        failing.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=llistxattr"]);
        failing.args(["-e", &format!("inject=llistxattr:error={error}")]);
        failing.args([env!("CARGO_BIN_EXE_tacita"), "hifs", "pack", path(&folder), path(&image)]);
        failing.output().unwrap()
    };
    expect(4, &pack("EIO"));
    assert!(!image.exists());
    // There are none.
    expect(0, &pack("EOPNOTSUPP"));
}

/// Much of what a disk refuses is told by it when it has to write, after all has been taken.
#[test]
fn what_is_unpacked_is_on_the_medium_or_is_not_there() {
    if cannot_trace("what_is_unpacked_is_on_the_medium_or_is_not_there") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [folder, image, new, empty] =
        ["folder", "i.img", "new", "empty"].map(|n| dir.path().join(n));
    for dir in [&folder, &empty] {
        fs::create_dir(dir).unwrap();
    }
    fs::write(folder.join("file"), "content").unwrap();
    expect(0, &hifs(&["pack", path(&folder), path(&image)]));
    for (error, code) in [("EIO", 4), ("ENOSPC", 6)] {
        for out in [&new, &empty] {
            let mut failing = Command::new("strace");
            failing.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=syncfs"]);
            failing.args(["-e", &format!("inject=syncfs:error={error}")]);
            failing.args([env!("CARGO_BIN_EXE_tacita"), "hifs", "unpack", path(&image), path(out)]);
            let said = expect(code, &failing.output().unwrap());
            assert!(said.contains(path(out)), "{said}");
        }
        assert!(!new.exists());
        assert_eq!(names(&empty), 0);
        assert_eq!(names(dir.path()), 3, "hidden ones are taken away");
    }
    for out in [&new, &empty] {
        expect(0, &hifs(&["unpack", path(&image), path(out)]));
        assert_eq!(fs::read(out.join("file")).unwrap(), b"content");
    }
}

/// A folder of so many files with a long attribute each.
fn with_attributes(place: &Place, count: usize, len: usize) -> PathBuf {
    let folder = place.folder("attributes", 0o755);
    for number in 0..count {
        let file = folder.join(format!("file {number}"));
        fs::write(&file, "content").unwrap();
        setxattr(&file, "user.long", &vec![b'a'; len], XattrFlags::empty()).unwrap();
    }
    folder
}

#[test]
fn an_image_without_a_size_has_room_for_attributes_and_for_the_names_of_a_file() {
    let place = Place::new();
    let image = place.dir.path().join("i.img");
    let attributes = with_attributes(&place, 200, 3000);
    expect(0, &hifs(&["pack", path(&attributes), path(&image)]));
    let names = place.folder("names", 0o755);
    fs::write(names.join("first"), "content").unwrap();
    for number in 0..150 {
        fs::hard_link(names.join("first"), names.join(number.to_string())).unwrap();
    }
    expect(0, &hifs(&["pack", path(&names), path(&image), "--force"]));
    let said = expect(6, &hifs(&["pack", path(&names), path(&image), "--force", "--size", "16M"]));
    assert!(said.contains("Too many links") && said.contains("choose a larger --size"), "{said}");
}

#[test]
fn attributes_that_no_image_holds_are_told() {
    let place = Place::new();
    let image = place.dir.path().join("i.img");
    let folder = with_attributes(&place, 1, 3770);
    let said = expect(6, &hifs(&["pack", path(&folder), path(&image)]));
    let why = "no image holds more than 3764 bytes of extended attributes of a file";
    assert!(said.contains(why) && said.contains("setfattr -x"), "{said}");
    assert!(!image.exists());
}

#[test]
fn devices_that_may_not_be_made_are_told_and_keep_nothing_else_back() {
    if !is_root("devices_that_may_not_be_made_are_told_and_keep_nothing_else_back") {
        return;
    }
    let place = Place::new();
    let (folder, image) = (place.folder("files", 0o755), place.dir.path().join("i.img"));
    let device = folder.join("device");
    let (kind, mode) = (rustix::fs::FileType::BlockDevice, rustix::fs::Mode::from_raw_mode(0o600));
    rustix::fs::mknodat(rustix::fs::CWD, &device, kind, mode, rustix::fs::makedev(250, 7)).unwrap();
    fs::hard_link(&device, folder.join("its other name")).unwrap();
    fs::write(folder.join("file"), "content").unwrap();
    expect(0, &hifs(&["pack", path(&folder), path(&image), "--size", "16M"]));
    allow(&image, 0o644);
    let out = place.folder("all", 0o777).join("out");
    let unpacked = place.unpack_as_nobody(&image, &out).output().unwrap();
    let said = String::from_utf8_lossy(&unpacked.stderr).into_owned();
    assert_eq!(unpacked.status.code(), Some(7), "{said}");
    for name in ["device", "its other name"] {
        assert!(said.contains(&format!("out/{name}: a device")), "{said}");
    }
    assert!(said.contains("2 devices are left out") && said.contains("run it as root"), "{said}");
    assert_eq!(fs::read(out.join("file")).unwrap(), b"content");
    assert_eq!(names(&out), 1);
}
