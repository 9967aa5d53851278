//! Images of which something cannot be read.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tacita_testkit::strace::{Watched, cannot_trace};
use tacita_testkit::{MountGuard, skip_without_fuse};

use crate::{expect, hifs, path};

/// The program, of whose calls on a file some fail.
fn failing(file: &Path, inject: &str, arguments: &[&str]) -> Output {
    let call = inject.split(':').next().unwrap();
    let mut failing = Command::new("strace");
    failing.args(["-f", "-qq", "-o", "/dev/null", "-P", path(file)]);
    failing.args(["-e", &format!("trace={call}"), "-e", &format!("inject={inject}")]);
    failing.arg(env!("CARGO_BIN_EXE_tacita")).args(arguments).output().unwrap()
}

/// Each read fails once, and that of the first block alone, too: what it takes is told.
#[test]
fn unpacking_takes_what_can_be_read_and_tells_the_rest() {
    if cannot_trace("unpacking_takes_what_can_be_read_and_tells_the_rest") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (folder, image) = (at("folder"), at("i.img"));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a"), vec![1; 40_000]).unwrap();
    fs::write(folder.join("b"), vec![2; 40_000]).unwrap();
    expect(0, &hifs(&["pack", path(&folder), path(&image)]));
    let mut lost = [0, 0];
    for read in 1.. {
        let out = at(&format!("out {read}"));
        let inject = format!("pread64:error=EIO:when={read}..{}", read + 1);
        let done = failing(&image, &inject, &["hifs", "unpack", path(&image), path(&out)]);
        let said = String::from_utf8_lossy(&done.stderr);
        if done.status.success() && said.is_empty() {
            break;
        }
        assert!(read < 50, "there is no end");
        if !said.contains("zeros stand for them") {
            continue;
        }
        let said = expect(4, &done);
        assert!(said.contains("4096 bytes could not be read"), "{said}");
        let zeros = |name: &str| {
            let found = fs::read(out.join(name)).unwrap();
            assert_eq!(found.len(), 40_000);
            found.into_iter().filter(|byte| *byte == 0).count()
        };
        let is_told = ["a", "b"].map(|name| said.contains(path(&out.join(name))));
        assert_eq!([zeros("a") == 4096, zeros("b") == 4096], is_told, "{said}");
        assert_eq!(zeros("a") + zeros("b"), 4096);
        lost[usize::from(is_told[1])] += 1;
    }
    assert!(lost[0] > 0 && lost[1] > 0, "{lost:?}");
}

/// A descriptor, a map or a page among what cannot be read: that is a finding, as a block of content is.
#[test]
fn a_check_goes_on_behind_what_cannot_be_read() {
    if cannot_trace("a_check_goes_on_behind_what_cannot_be_read") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (folder, image) = (dir.path().join("folder"), dir.path().join("i.img"));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a"), vec![1; 40_000]).unwrap();
    expect(0, &hifs(&["pack", path(&folder), path(&image), "--size", "2M"]));
    let failing = |read: u32, call: &str, arguments: &[&str]| {
        let inject = format!("{call}:error=EIO:when={read}..{}", read + 1);
        failing(&image, &inject, arguments)
    };
    let (mut refused, mut found) = (0, 0);
    for read in 1..20 {
        // Not even what opens the image goes on.
        let out = dir.path().join(format!("out {read}"));
        let unpacked = failing(read, "pread64", &["hifs", "unpack", path(&image), path(&out)]);
        refused += u32::from(unpacked.status.code() == Some(4) && !out.exists());
        let checked = failing(read, "pread64", &["hifs", "check", path(&image)]);
        if !checked.status.success() {
            expect(1, &checked);
            assert!(String::from_utf8_lossy(&checked.stdout).contains("cannot read"));
            found += 1;
        }
    }
    assert!(refused > 5 && found >= refused, "{refused} refused, {found} found");
}

#[test]
fn an_image_is_known_by_the_copy_of_its_superblock_where_the_first_cannot_be_read() {
    if cannot_trace("an_image_is_known_by_the_copy_of_its_superblock") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (image, other) = (dir.path().join("i.img"), dir.path().join("other"));
    expect(0, &hifs(&["format", path(&image), "--size", "2M"]));
    expect(0, &failing(&image, "read:error=EIO", &["check", path(&image)]));
    fs::write(&other, vec![3; 9000]).unwrap();
    let said = expect(4, &failing(&other, "read:error=EIO", &["check", path(&other)]));
    assert!(said.contains("Input/output error"), "{said}");
    // Where nothing can be read it is the disk that is told of.
    let said = expect(4, &failing(&image, "pread64:error=EIO", &["hifs", "check", path(&image)]));
    assert!(said.contains("Input/output error"), "{said}");
}

/// What has to move and cannot be read keeps all from being written; nothing is lost by an unmount that tells so.
#[test]
fn what_waits_for_a_file_that_cannot_be_read_is_not_lost_by_unmounting() {
    const TEST: &str = "what_waits_for_a_file_that_cannot_be_read_is_not_lost_by_unmounting";
    if cannot_trace(TEST) || skip_without_fuse(TEST) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (image, guard) = (dir.path().join("i.img"), MountGuard::new().unwrap());
    let tacita = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_tacita")).args(arguments).output().unwrap()
    };
    let at = path(guard.path());
    // In layout b nearly every new file moves others.
    expect(0, &hifs(&["format", path(&image), "--size", "4M", "--layout", "b", "--bucket", "4K"]));
    expect(0, &hifs(&["mount", path(&image), at, "--commit-every", "0"]));
    for n in 0..40 {
        fs::write(guard.join(n.to_string()), vec![n; 20_000]).unwrap();
    }
    expect(0, &tacita(&["sync", at]));
    let status =
        || -> Value { serde_json::from_slice(&tacita(&["status", at, "--json"]).stdout).unwrap() };
    assert_eq!(status()["facts"]["in_the_way"], Value::Array(Vec::new()));
    let daemon = status()["pid"].to_string();
    let failing = Watched::attach(&daemon, "pread64", "error=EIO");
    for n in 40..44 {
        fs::write(guard.join(n.to_string()), vec![n; 20_000]).unwrap();
    }
    for command in ["sync", "umount"] {
        let said = expect(4, &tacita(&[command, at]));
        assert!(said.contains("have to move") && said.contains("deleted"), "{command}: {said}");
    }
    let said = expect(4, &tacita(&["umount", at]));
    assert!(said.contains("still mounted"), "{said}");
    let files = status()["facts"]["in_the_way"].clone();
    assert!(!files.as_array().unwrap().is_empty(), "{files}");
    drop(failing);
    expect(0, &tacita(&["umount", at]));
    expect(0, &hifs(&["check", path(&image)]));
    expect(0, &hifs(&["mount", path(&image), at]));
    for n in 0..44 {
        assert!(fs::read(guard.join(n.to_string())).unwrap() == vec![n; 20_000], "{n}");
    }
    expect(0, &tacita(&["umount", at]));
}
