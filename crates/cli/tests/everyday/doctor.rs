//! `tacita doctor`, on this machine.

use std::fs;
use std::process::Command;

use tacita_testkit::{MountGuard, Watchdog, skip_without_fuse};

use super::{TIME_MAX, expect, json, tacita, text};

#[test]
fn the_doctor_looks_around() {
    let test = "the_doctor_looks_around";
    if skip_without_fuse(test) {
        return;
    }
    let _watchdog = Watchdog::start(test, TIME_MAX);
    let (guard, folder) = (MountGuard::new().unwrap(), tempfile::tempdir().unwrap());
    let image = folder.path().join("i").canonicalize().unwrap_or(folder.path().join("i"));
    expect(0, &["hifs", "format", text(&image), "--size", "4M"]);
    expect(0, &["hifs", "mount", text(&image), text(guard.path())]);
    fs::create_dir_all(guard.path().join(".Trash-1000/files/letter")).unwrap();
    let output = tacita(&["doctor", text(guard.path()), "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let facts = json(std::str::from_utf8(&output.stdout).unwrap());
    // It is the image that lies somewhere, and what is mounted in which trash is.
    assert_eq!(facts["medium"], text(&image.canonicalize().unwrap()));
    let findings = facts["findings"].as_array().unwrap();
    let trash = findings.iter().find(|finding| finding["what"] == "trash").unwrap();
    assert_eq!(trash["leaks"], true, "{trash}");
    assert!(trash["seen"].as_str().unwrap().contains(".Trash-1000"), "{trash}");
    assert!(
        findings.iter().all(|finding| (finding["leaks"] == true) == finding["remedy"].is_string())
    );
    expect(0, &["umount", text(guard.path())]);
    expect(2, &["doctor", text(&folder.path().join("none"))]);
    let told = String::from_utf8(tacita(&["doctor", text(&image)]).stdout).unwrap();
    assert!(told.contains("swap: ") && told.contains(" that could not be looked at"), "{told}");
    assert!(told.contains("[ok  ] holes: "), "{told}");
    // A copy with holes gets its room as it is written, so that the file system around it tells of the past.
    let copy = folder.path().join("c");
    let copied = Command::new("cp").arg("--sparse=always").args([&image, &copy]).status().unwrap();
    assert!(copied.success());
    let told = String::from_utf8(tacita(&["doctor", text(&copy)]).stdout).unwrap();
    assert!(told.contains("[LEAK] holes: "), "{told}");
}

#[test]
fn the_doctor_looks_below_a_loop_device() {
    let test = "the_doctor_looks_below_a_loop_device";
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: {test}: only root can make a loop device");
        return;
    }
    let _watchdog = Watchdog::start(test, TIME_MAX);
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("i");
    expect(0, &["hifs", "format", text(&image), "--size", "4M"]);
    let said = |args: &[&str]| {
        let output = Command::new("losetup").args(args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let device = said(&["--find", "--show", text(&image)]);
    let told = tacita(&["doctor", &device]);
    said(&["--detach", &device]);
    let told = String::from_utf8(told.stdout).unwrap();
    for what in ["file system", "discards", "journal", "access times", "holes"] {
        let below = format!("] {what}: below {device}: ");
        let is_told = told.contains(&below) || what == "holes" && told.contains("] holes: ");
        assert!(is_told, "{what}: {told}");
    }
}
