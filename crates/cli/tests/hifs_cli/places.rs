//! What images lie on, and what is unpacked into: devices, files that cannot be written, full file systems.

use std::fs;
use std::path::Path;
use std::process::Command;

use tacita_testkit::strace::cannot_trace;
use tacita_testkit::system;
use tacita_testkit::{MountGuard, search, skip_without_fuse};

use crate::{Bench, expect, format, hifs, path};

/// What a device held behind an image that does not use it whole is gone, up to the last byte.
#[test]
fn a_format_overwrites_the_whole_device() {
    let test = "a_format_overwrites_the_whole_device";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("disk");
    fs::write(&file, vec![7; (4 << 20) + 3 * 512]).unwrap();
    let device = match system("losetup", &["--find", "--show", path(&file)]) {
        Ok(device) => device,
        Err(why) => {
            eprintln!("SKIPPED: {test}: no loop device here: {why}");
            return;
        }
    };
    let formatted = [&["--size", "2M"][..], &[]].map(|size| {
        let format = hifs(&[&["format", &device, "--force"], size].concat());
        let held = fs::read(&device).unwrap();
        let check = hifs(&["check", &device]);
        fs::write(&device, vec![7; held.len()]).unwrap();
        (format, held, check)
    });
    system("losetup", &["--detach", &device]).unwrap();
    for (format, held, check) in formatted {
        expect(0, &format);
        assert_eq!(held.len(), (4 << 20) + 3 * 512);
        assert!(!search::holds(&held, [7; 64]), "something of before is left");
        expect(0, &check);
    }
}

/// The kernel takes what is written to such a device, and loses it.
#[test]
fn a_read_only_device_is_mounted_read_only() {
    let test = "a_read_only_device_is_mounted_read_only";
    let Some(bench) = Bench::new(test) else { return };
    let image = format(bench.images.path(), "i.img", "4M");
    let device = match system("losetup", &["--find", "--show", path(&image)]) {
        Ok(device) => device,
        Err(why) => {
            eprintln!("SKIPPED: {test}: no loop device here: {why}");
            return;
        }
    };
    system("blockdev", &["--setro", &device]).unwrap();
    let refused = [
        hifs(&["mount", &device, bench.dir()]),
        hifs(&["format", &device, "--force"]),
        hifs(&["mount", &device, bench.dir(), "-o", "ro"]),
    ];
    let names = fs::read_dir(bench.dir()).map(Iterator::count);
    let umount = bench.umount();
    system("blockdev", &["--setrw", &device]).unwrap();
    let writable = hifs(&["mount", &device, bench.dir()]);
    let umount_writable = bench.umount();
    system("losetup", &["--detach", &device]).unwrap();
    let said = expect(4, &refused[0]);
    assert!(said.contains("read-only") && said.contains("`-o ro`"), "{said}");
    let said = expect(4, &refused[1]);
    assert!(said.contains("--setrw"), "{said}");
    expect(0, &refused[2]);
    assert_eq!(names.unwrap(), 0);
    expect(0, &umount);
    expect(0, &writable);
    expect(0, &umount_writable);
}

/// A file that cannot be written, though its user may write everything, can be mounted all the same.
#[test]
fn a_file_that_cannot_be_written_is_mounted_read_only() {
    let test = "a_file_that_cannot_be_written_is_mounted_read_only";
    let Some(bench) = Bench::new(test) else { return };
    let image = format(bench.images.path(), "i.img", "2M");
    if let Err(why) = system("chattr", &["+i", path(&image)]) {
        eprintln!("SKIPPED: {test}: no file can be made immutable here: {why}");
        return;
    }
    let refused = hifs(&["mount", path(&image), bench.dir()]);
    let mounted = hifs(&["mount", path(&image), bench.dir(), "-o", "ro"]);
    let umount = bench.umount();
    system("chattr", &["-i", path(&image)]).unwrap();
    let said = expect(4, &refused);
    assert!(said.contains("`-o ro`"), "{said}");
    expect(0, &mounted);
    expect(0, &umount);
}

/// Whoever may write only the beginning of an image would end in the middle of a commit.
#[test]
fn an_image_that_a_limit_cuts_short_is_not_begun() {
    let test = "an_image_that_a_limit_cuts_short_is_not_begun";
    let Some(bench) = Bench::new(test) else { return };
    let image = format(bench.images.path(), "i.img", "2M");
    let limited = |more: &[&str]| {
        let script = r#"ulimit -f 100; exec "$0" hifs mount "$@""#;
        let mut mount = Command::new("sh");
        mount.args(["-c", script, env!("CARGO_BIN_EXE_tacita"), path(&image), bench.dir()]);
        mount.args(more).output().unwrap()
    };
    let said = expect(4, &limited(&[]));
    assert!(said.contains("File too large") && said.contains("`ulimit -f`"), "{said}");
    expect(0, &limited(&["-o", "ro"]));
    expect(0, &bench.umount());
}

/// There is no size to choose where files are unpacked, only room to be made.
#[test]
fn unpacking_into_a_full_file_system_says_what_to_do() {
    let test = "unpacking_into_a_full_file_system_says_what_to_do";
    if skip_without_fuse(test) {
        return;
    }
    let files = tempfile::tempdir().unwrap();
    let (folder, image) = (files.path().join("folder"), files.path().join("i.img"));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("file"), vec![7; 2 << 20]).unwrap();
    expect(0, &hifs(&["pack", path(&folder), path(&image)]));
    let small = MountGuard::new().unwrap();
    let mount = ["-t", "tmpfs", "-o", "size=1M", "none", path(small.path())];
    if let Err(why) = system("mount", &mount) {
        eprintln!("SKIPPED: {test}: no tmpfs can be mounted here: {why}");
        return;
    }
    let out = small.join("out");
    let full = hifs(&["unpack", path(&image), path(&out)]);
    let left = fs::read_dir(small.path()).unwrap().count();
    system("umount", &[path(small.path())]).unwrap();
    let said = expect(6, &full);
    assert!(said.contains("make room there") && !said.contains("--size"), "{said}");
    assert_eq!(left, 0, "nothing of it is left");
}

/// Root can set an empty list of capabilities; nobody can read it.
#[test]
fn a_list_of_capabilities_that_is_none_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let [tree, image, out] = ["tree", "i.img", "out"].map(|name| folder.path().join(name));
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "content").unwrap();
    let (name, none) = ("security.capability", rustix::fs::XattrFlags::empty());
    let set = rustix::fs::setxattr(tree.join("file"), name, &[], none);
    let mut value = [0; 64];
    if set.is_err() || rustix::fs::getxattr(tree.join("file"), name, &mut value[..]).is_ok() {
        eprintln!("SKIPPED: a_list_of_capabilities_that_is_none_is_left_out: there is none here");
        return;
    }
    let packed = hifs(&["pack", path(&tree), path(&image), "--json"]);
    expect(0, &packed);
    let facts: serde_json::Value = serde_json::from_slice(&packed.stdout).unwrap();
    assert_eq!((&facts["attributes_left_out"], &facts["bytes"]), (&1.into(), &7.into()));
    expect(0, &hifs(&["unpack", path(&image), path(&out)]));
    assert_eq!(fs::read(out.join("file")).unwrap(), b"content");
}

fn names(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

/// Killed as it takes the other image's place: that is as it was, and what is left beside it goes with the
/// same command.
#[test]
fn what_a_killed_format_has_left_goes_with_the_next_one() {
    let test = "what_a_killed_format_has_left_goes_with_the_next_one";
    if cannot_trace(test) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = format(folder.path(), "i.img", "4M");
    let before = fs::read(&image).unwrap();
    let again = ["format", path(&image), "--size", "2M", "--force"];
    let calls = "?rename,?renameat,?renameat2";
    let mut killed = Command::new("strace");
    killed.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={calls}")]);
    killed.args([
        "-e",
        &format!("inject={calls}:signal=KILL"),
        env!("CARGO_BIN_EXE_tacita"),
        "hifs",
    ]);
    assert!(!killed.args(again).output().unwrap().status.success());
    assert!(fs::read(&image).unwrap() == before, "it has changed");
    assert_eq!(names(folder.path()), 2, "it was not killed where something is left");
    expect(0, &hifs(&again));
    assert_eq!(names(folder.path()), 1);
    assert_eq!(fs::metadata(&image).unwrap().len(), 2 << 20);
}

/// The last that can fail is the flush of the folder: the new image has its name by then, and what it has
/// replaced is as it was, for after a loss of power the name may be that one's again.
#[test]
fn an_image_whose_name_may_not_last_is_said_to_be_there() {
    if cannot_trace("an_image_whose_name_may_not_last_is_said_to_be_there") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("i.img");
    for (arguments, replaces) in
        [(&["--size", "2M"][..], false), (&["--size", "4M", "--force"], true)]
    {
        // The first flush is that of the content.
        let mut failing = Command::new("strace");
        failing.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync"]);
        failing.args(["-e", "inject=fsync:error=EIO:when=2", env!("CARGO_BIN_EXE_tacita")]);
        let done = failing.args(["hifs", "format", path(&image)]).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(4), "{said}");
        assert!(said.contains("the new file is there") && !said.contains("cannot make"), "{said}");
        assert_eq!(said.contains("has not been overwritten"), replaces, "{said}");
        let len = if replaces { 4 << 20 } else { 2 << 20 };
        assert_eq!(fs::metadata(&image).unwrap().len(), len);
        expect(0, &hifs(&["check", path(&image)]));
    }
}
