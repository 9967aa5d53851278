//! DNEFS as people use it: the program, real mounts, raw dumps.

#![allow(clippy::disallowed_methods, reason = "other processes live in the time of the machine")]
#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

mod bench;
mod destroying;
mod disk;
mod failing;
mod limits;
mod memory;
mod programs;
mod reading;

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tacita_testkit::{MountGuard, skip_without_fuse};

use crate::bench::{Bench, Mounted, audit, fail, kill, status_of, succeed, tacita};

#[test]
fn what_was_deleted_is_gone_from_the_dump() {
    let test = "what_was_deleted_is_gone_from_the_dump";
    let mounted = Bench::mounted(test, &[], &["--purge-every", "0"]);
    let Some(Mounted { bench, volume, guard, dir }) = mounted else { return };
    let dir = dir.as_str();
    fs::write(guard.join("kept"), "kept").unwrap();
    fs::write(guard.join("secret"), "a secret".repeat(5000)).unwrap();
    succeed(&["sync", dir]);
    assert_eq!(status_of(dir)["facts"]["keys_to_purge"], 0);
    assert!(fail(5, &["dnefs", "info", &volume]).contains("is it mounted?"));
    succeed(&["umount", dir]);
    let before = bench.dump(&volume, "before");

    succeed(&["dnefs", "mount", &volume, dir]);
    assert_eq!(fs::read(guard.join("secret")).unwrap(), "a secret".repeat(5000).as_bytes());
    fs::remove_file(guard.join("secret")).unwrap();
    let report: serde_json::Value =
        serde_json::from_str(&succeed(&["dnefs", "purge", dir, "--json"])).unwrap();
    assert!(report["keys_destroyed"].as_u64() > Some(10), "{report}");
    let shown = succeed(&["dnefs", "receipt", dir, "--json"]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), report);
    succeed(&["umount", dir]);
    let all: Vec<serde_json::Value> =
        serde_json::from_str(&succeed(&["dnefs", "receipt", &volume, "--all", "--json"])).unwrap();
    let place = all.iter().position(|receipt| *receipt == report).unwrap();
    assert_eq!(all[place + 1]["previous"], report["receipt"], "the one of the unmount follows");
    assert!(succeed(&["dnefs", "receipt", &volume]).contains("complete           true"));
    let after = bench.dump(&volume, "after");

    let found = audit(0, &before, &after);
    assert!(found["holds"] == true && found["deleted"].as_u64() > Some(10), "{found}");
    assert!(found["receipts"] == all.len() && found["receipts_whole"] == true, "{found}");
    assert_eq!(found["last_epoch"], all.last().unwrap()["epoch"]);
    // Of what is in use every key is there: the dump of before judged by what came after.
    let both = bench.text("both");
    fs::write(&both, [fs::read(&before).unwrap(), fs::read(&after).unwrap()].concat()).unwrap();
    let found = audit(1, &before, &both);
    assert!(found["recoverable_count"].as_u64() > Some(10), "{found}");
    succeed(&["dnefs", "check", &volume]);
    assert!(!fs::read(&before).unwrap().windows(8).any(|window| window == b"a secret"));
}

#[test]
fn a_kill_leaves_what_was_synced_and_the_next_mount_purges() {
    let test = "a_kill_leaves_what_was_synced_and_the_next_mount_purges";
    let mounted =
        Bench::mounted(test, &["--cipher", "aes128-ctr", "--key", "16"], &["--purge-every", "0"]);
    let Some(Mounted { bench, volume, guard, dir }) = mounted else { return };
    let dir = dir.as_str();
    fs::write(guard.join("kept"), "kept".repeat(3000)).unwrap();
    fs::write(guard.join("secret"), "secret".repeat(3000)).unwrap();
    succeed(&["sync", dir]);
    bench.copy_at_rest(&volume, "copy");
    let before = bench.dump(&bench.text("copy"), "before");
    fs::remove_file(guard.join("secret")).unwrap();
    fs::File::open(guard.path()).unwrap().sync_all().unwrap();
    kill(dir);

    succeed(&["dnefs", "mount", &volume, dir]);
    assert_eq!(fs::read(guard.join("kept")).unwrap(), "kept".repeat(3000).as_bytes());
    assert!(!guard.join("secret").exists());
    succeed(&["umount", dir]);
    let after = bench.dump(&volume, "after");
    assert!(audit(0, &before, &after)["deleted"].as_u64() > Some(5));
    succeed(&["dnefs", "check", &volume]);
}

#[test]
fn what_is_sensitive_is_purged_before_rm_returns() {
    let test = "what_is_sensitive_is_purged_before_rm_returns";
    let mounted = Bench::mounted(test, &[], &["--purge-every", "0"]);
    let Some(Mounted { bench, volume, guard, dir }) = mounted else { return };
    let dir = dir.as_str();
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let folder = format!("{dir}/folder");
    fs::create_dir(&folder).unwrap();
    run("setfattr", &["-n", "user.dnefs.sensitive", "-v", "1", &folder]);
    for name in ["one", "two", "open"] {
        fs::write(guard.join("folder").join(name), "secret".repeat(5000)).unwrap();
    }
    let shown = run("getfattr", &["-n", "user.dnefs.sensitive", &format!("{folder}/one")]);
    assert!(shown.contains("=\"1\""), "{shown}");
    succeed(&["sync", dir]);
    // While it is mounted, what is on the medium is read from copies of it.
    let dump = |name: &str| {
        bench.copy_at_rest(&volume, "copy");
        bench.dump(&bench.text("copy"), name)
    };
    let held_open = fs::File::open(guard.join("folder/open")).unwrap();
    let before = dump("before");
    for ways in [&["rm", "folder/one"][..], &["truncate", "-s", "0", "folder/two"]] {
        let paths: Vec<_> = ways.iter().map(|part| part.replace("folder", &folder)).collect();
        run(&paths[0], &paths[1..].iter().map(String::as_str).collect::<Vec<_>>());
        let found = audit(0, &before, &dump("after"));
        assert!(found["holds"] == true && found["deleted"].as_u64() > Some(7), "{ways:?}: {found}");
    }
    fs::remove_file(guard.join("folder/open")).unwrap();
    let left = status_of(dir);
    assert_eq!(left["facts"]["keys_to_purge"], 0);
    drop(held_open);
    let deadline = 600;
    let purged = (0..deadline).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        status_of(dir)["facts"]["nodes"].as_u64() < left["facts"]["nodes"].as_u64()
            && status_of(dir)["facts"]["keys_to_purge"] == 0
    });
    assert!(purged, "what was open went when it was closed");
    assert_eq!(audit(0, &before, &dump("after"))["holds"], true);
    succeed(&["umount", dir]);
    succeed(&["dnefs", "check", &volume]);
}

/// What else changes of a file is told by its ctime, and so are the marks of `chattr`.
#[test]
fn marks_of_chattr_change_ctime() {
    let test = "marks_of_chattr_change_ctime";
    let Some(Mounted { guard, dir, .. }) = Bench::mounted(test, &[], &[]) else { return };
    let file = guard.join("file");
    fs::write(&file, "content").unwrap();
    let times = || {
        let meta = fs::metadata(&file).unwrap();
        ((meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec()))
    };
    let (written, before) = times();
    assert!(Command::new("chattr").arg("+d").arg(&file).status().unwrap().success());
    let (mtime, ctime) = times();
    assert!(mtime == written && ctime > before, "{ctime:?} is not after {before:?}");
    succeed(&["umount", &dir]);
}

#[test]
fn nothing_outlives_an_ephemeral_mount() {
    let test = "nothing_outlives_an_ephemeral_mount";
    let mounted = Bench::mounted(test, &[], &[]);
    let Some(Mounted { bench, volume, guard, dir }) = mounted else { return };
    let dir = dir.as_str();
    fs::write(guard.join("kept"), "kept").unwrap();
    succeed(&["umount", dir]);
    let before = bench.dump(&volume, "before");

    let refused = fail(2, &["dnefs", "mount", &volume, dir, "--ephemeral"]);
    assert!(refused.contains("destroys") && refused.contains("--force"), "{refused}");
    fail(2, &["dnefs", "mount", &volume, dir, "--force"]);
    assert_eq!(fs::read(bench.dump(&volume, "same")).unwrap(), fs::read(&before).unwrap());
    // Where nothing can be mounted nothing is destroyed.
    let nowhere = bench.text("nowhere");
    fail(2, &["dnefs", "mount", &volume, &nowhere, "--ephemeral", "--force"]);
    // The kernel itself refuses the second.
    for option in ["no-such-option", "context=none"] {
        fail(2, &["dnefs", "mount", &volume, dir, "--ephemeral", "--force", "-o", option]);
    }
    // Its keys are sealed by nothing.
    fail(
        2,
        &["dnefs", "mount", &volume, dir, "--ephemeral", "--force", "--password-file", &nowhere],
    );
    succeed(&["dnefs", "check", &volume]);
    succeed(&["dnefs", "mount", &volume, dir, "--ephemeral", "--force"]);
    assert!(!guard.join("kept").exists());
    fs::write(guard.join("scratch"), "scratch".repeat(9000)).unwrap();
    succeed(&["sync", dir]);
    assert_eq!(fs::read(guard.join("scratch")).unwrap(), "scratch".repeat(9000).as_bytes());
    // Power is lost: whoever comes then has the flash alone.
    kill(dir);
    let found = audit(0, &before, &bench.dump(&volume, "after"));
    assert!(found["holds"] == true && found["deleted"].as_u64() > Some(12), "{found}");

    let refused = fail(2, &["dnefs", "mount", &volume, dir]);
    assert!(refused.contains("in memory only") && refused.contains("--ephemeral"), "{refused}");
    let info: serde_json::Value =
        serde_json::from_str(&succeed(&["dnefs", "info", &volume, "--json"])).unwrap();
    assert_eq!(info["ephemeral"], true);
    succeed(&["dnefs", "mount", &volume, dir, "--ephemeral"]);
    assert_eq!(fs::read_dir(guard.path()).unwrap().count(), 0);
    succeed(&["umount", dir]);
    succeed(&["dnefs", "format", &volume, "--size", "32M", "--force"]);
    succeed(&["dnefs", "check", &volume]);
}

#[test]
fn a_full_volume_deletes_purges_syncs_and_unmounts() {
    let test = "a_full_volume_deletes_purges_syncs_and_unmounts";
    let mounted = Bench::mounted(test, &["--size", "16M"], &[]);
    let Some(Mounted { bench: _bench, volume, guard, dir }) = mounted else { return };
    let dir = dir.as_str();
    let noise = tacita_testkit::history::Rng::new(1).bytes(200_000);
    let file = |number: usize| guard.join(format!("file {number}"));
    let until_full = |from: usize| {
        let is_full = |e: std::io::Error| assert_eq!(e.raw_os_error(), Some(28), "{e}");
        let written = |number: usize| -> std::io::Result<()> {
            let mut file = fs::File::create(file(number))?;
            std::io::Write::write_all(&mut file, &noise)?;
            file.sync_all()
        };
        (from..10_000).find(|number| written(*number).map_err(is_full).is_err()).unwrap()
    };
    let full = until_full(0);
    assert!(full > 20, "{full} files");
    succeed(&["sync", dir]);
    for round in 0..5 {
        // The file that did not fit may have been made.
        let _ = fs::remove_file(file(full));
        fs::remove_file(file(round)).unwrap();
        let receipt: serde_json::Value =
            serde_json::from_str(&succeed(&["dnefs", "purge", dir, "--json"])).unwrap();
        assert!(receipt["complete"] == true && receipt["keys_destroyed"].as_u64() > Some(40));
        assert_eq!(until_full(full), full + 1, "there is room for one again");
        fs::rename(file(full), file(round)).unwrap();
    }
    succeed(&["umount", dir]);
    succeed(&["dnefs", "check", &volume]);
    succeed(&["dnefs", "mount", &volume, dir]);
    assert!((0..full).all(|number| fs::read(file(number)).unwrap() == noise));
    succeed(&["umount", dir]);
}

/// The disk that the volume's file is on is full: programs are told so, and nothing that was synced is lost.
#[test]
fn a_full_disk_below_is_told_and_loses_nothing() {
    let test = "a_full_disk_below_is_told_and_loses_nothing";
    let (bench, small, guard) =
        (Bench::new(test), tempfile::tempdir().unwrap(), MountGuard::new().unwrap());
    let tmpfs = ["-t", "tmpfs", "-o", "size=24M", "tmpfs"];
    let mounted = Command::new("mount").args(tmpfs).arg(small.path()).status();
    if skip_without_fuse(test) || !mounted.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: {test}: no mount of a tmpfs");
        return;
    }
    let volume = small.path().join("volume").to_str().unwrap().to_owned();
    let (dir, filler) = (guard.path().to_str().unwrap(), small.path().join("filler"));
    succeed(&["dnefs", "format", &volume, "--size", "32M"]);
    succeed(&["dnefs", "mount", &volume, dir]);
    let noise = tacita_testkit::history::Rng::new(1).bytes(5_000_000);
    let write = |name: &str| {
        let mut file = fs::File::create(guard.join(name))?;
        std::io::Write::write_all(&mut file, &noise)?;
        file.sync_all()
    };
    write("synced").unwrap();
    fs::write(&filler, vec![1; 24 << 20]).unwrap_err();
    for name in ["first", "second"] {
        assert_eq!(write(name).unwrap_err().raw_os_error(), Some(28));
    }
    assert!(fs::read(guard.join("synced")).unwrap() == noise);
    let said = failing::told_once(dir, "No space left on device");
    assert!(said.contains("make room") && said.contains("mount again"), "{said}");
    let said = fail(6, &["umount", dir]);
    assert!(said.contains("make room there, unmount, and mount again"), "{said}");
    fs::remove_file(&filler).unwrap();
    succeed(&["dnefs", "mount", &volume, dir]);
    assert!(fs::read(guard.join("synced")).unwrap() == noise);
    write("second").unwrap();
    succeed(&["umount", dir]);
    succeed(&["dnefs", "check", &volume]);
    drop(bench);
    assert!(Command::new("umount").arg(small.path()).status().unwrap().success());
}

#[test]
fn passwords_open_change_and_end_a_volume() {
    let bench = Bench::new("passwords_open_change_and_end_a_volume");
    let (one, two) = (bench.file("one", "one\n"), bench.file("two", "two\n"));
    let volume = bench.format(&["--password-file", &one]);
    let check = |code, password: &str| {
        let output = tacita(&["dnefs", "check", &volume, "--password-file", password]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
    };
    check(0, &one);
    check(3, &two);
    let change = ["dnefs", "passwd", &volume, "--password-file", &one, "--new-password-file", &two];
    succeed(&change);
    fail(3, &change);
    check(3, &one);
    check(0, &two);
    let dump = bench.dump(&volume, "dump");
    let pair = ["dnefs", "audit", "--before", &dump, "--after", &dump];
    fail(3, &pair);
    succeed(&[&pair[..], &["--password-file", &two]].concat());
    succeed(&["dnefs", "passwd", &volume, "--password-file", &two, "--remove"]);
    succeed(&["dnefs", "check", &volume]);
    assert!(fail(2, &["dnefs", "erase", &volume]).contains("--force"));
    succeed(&["dnefs", "erase", &volume, "--force"]);
    fail(4, &["dnefs", "check", &volume]);
    let erased = bench.dump(&volume, "erased");
    let said = fail(1, &["dnefs", "audit", "--before", &erased, "--after", &erased]);
    assert!(said.contains("no superblock"), "{said}");
}

#[test]
fn absurd_arguments_and_other_files_are_refused_and_change_nothing() {
    let bench = Bench::new("absurd_arguments_and_other_files_are_refused_and_change_nothing");
    let volume = bench.text("volume");
    let format = |code, more: &[&str]| {
        let all = [&["dnefs", "format", &volume], more].concat();
        let said = fail(code, &all);
        assert!(!bench.path("volume").exists(), "{more:?}");
        said
    };
    let said = format(2, &["--size", "1M"]);
    assert!(said.contains("18 are the fewest") && said.contains("by --size"), "{said}");
    format(2, &["--size", "0"]);
    format(2, &["--size", "32M", "--node-size", "1M"]);
    format(2, &["--size", "32M", "--node-size", "5000"]);
    format(2, &["--size", "32M", "--key", "24"]);
    format(2, &["--size", "32M", "--cipher", "aes128-ctr"]);
    format(2, &["--size", "32M", "--page-size", "100"]);
    let other = bench.file("other", &"something else".repeat(1000));
    for command in ["check", "info", "erase", "passwd"] {
        assert!(fail(4, &["dnefs", command, &other]).contains("other"));
    }
    assert!(fail(2, &["dnefs", "format", &other, "--size", "32M"]).contains("--force"));
    assert_eq!(fs::read(&other).unwrap(), "something else".repeat(1000).as_bytes());
    fail(4, &["dnefs", "info", &bench.text("nothing")]);
    format(2, &[]);
}

/// What comes while a volume is made is not replaced, however long its password took.
#[test]
fn what_has_come_since_a_format_began_stays() {
    let bench = Bench::new("what_has_come_since_a_format_began_stays");
    let volume = bench.text("volume");
    let mut format = Command::new(env!("CARGO_BIN_EXE_tacita"));
    format.args(["dnefs", "format", &volume, "--size", "32M", "--password-fd", "0"]);
    let mut format = format.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It has looked by now, or will find the file.
    std::thread::sleep(Duration::from_secs(2));
    fs::write(&volume, "came meanwhile").unwrap();
    std::io::Write::write_all(&mut format.stdin.take().unwrap(), b"open\n").unwrap();
    let output = format.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("--force"), "{said}");
    assert_eq!(fs::read(&volume).unwrap(), b"came meanwhile");
    assert_eq!(fs::read_dir(bench.path("")).unwrap().count(), 1);
    succeed(&["dnefs", "format", &volume, "--size", "32M", "--force"]);
    succeed(&["dnefs", "check", &volume]);
}

/// Devices that are volumes of UBI come in the kernel lab, `crates/dnefs/lab`.
#[test]
fn what_is_no_device_of_ubi_is_refused_and_left_as_it_is() {
    for command in ["check", "info", "erase", "passwd", "format"] {
        let said = fail(4, &["dnefs", command, "/dev/ubi77_7"]);
        assert!(said.contains("no such device") && said.contains("ubiattach"), "{said}");
        assert!(fail(4, &["dnefs", command, "/dev/null"]).contains("no volume of UBI"));
    }
    let said = fail(2, &["dnefs", "format", "/dev/null", "--size", "32M", "--force"]);
    assert!(said.contains("its own size"), "{said}");
    fail(2, &["dnefs", "format", "/dev/null", "--pages-per-block", "64", "--force"]);
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    assert!(!Path::new("/dev/ubi77_7").exists());
}

/// `pjdfstest` and `fsx`, with the same lists of reasons as the file system in memory.
#[test]
fn conformance_suites_pass() {
    let test = "conformance_suites_pass of dnefs";
    if skip_without_fuse(test) {
        return;
    }
    let bench = Bench::new(test);
    let guard = MountGuard::new().unwrap();
    let dir = guard.path().to_str().unwrap();
    let volume = bench.text("volume");
    succeed(&["dnefs", "format", &volume, "--size", "128M"]);
    // The users that cases switch to have to get there.
    let above = guard.path().parent().unwrap();
    fs::set_permissions(above, fs::Permissions::from_mode(0o755)).unwrap();
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/conformance");
    let home = std::env::var_os("CARGO_HOME").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cargo"),
        PathBuf::from,
    );
    let suites: [(&str, &[&str]); 2] = [("pjdfstest", &[]), ("fsx", &["5000", "13"])];
    for (tool, after) in suites {
        if !home.join("bin").join(tool).exists() || fs::metadata("/root/.").is_err() {
            eprintln!("SKIPPED: {test}: {tool} is not installed, or not root");
            continue;
        }
        succeed(&[
            "dnefs",
            "mount",
            &volume,
            dir,
            "--purge-every",
            "1",
            "-o",
            "allow_other,dev,suid",
        ]);
        let script = scripts.join(format!("{tool}.sh"));
        let output = Command::new(script).arg(guard.path()).args(after).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        succeed(&["umount", dir]);
        assert!(output.status.success(), "{tool}: {said}");
        succeed(&["dnefs", "check", &volume]);
    }
}
