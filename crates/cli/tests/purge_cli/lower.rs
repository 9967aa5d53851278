//! Lower folders and files that are not as they should be: every refusal has a cause, a remedy and
//! the exit code of docs/cli.md, and nothing is lost.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount_remount};
use serde_json::Value;
use tacita_testkit::strace::{Watched, cannot_trace};

use crate::image::{Image, assert_refused, code, json, said, system, tacita};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A file whose content is on the medium.
fn write(path: &Path, secret: &str) {
    fs::write(path, secret.repeat(500)).unwrap();
    fs::File::open(path).unwrap().sync_all().unwrap();
}

#[test]
fn a_read_only_folder_is_refused() {
    let Some(image) = Image::new("a_read_only_folder_is_refused") else { return };
    let path = image.lower().join("file");
    write(&path, "it stays; ");
    mount_remount(image.lower(), MountFlags::RDONLY, "").unwrap();
    assert_refused(&image.purge_mount(&[]), 7, "Read-only file system", "remount,rw");
    let refused = tacita(&["purge", "file", text(&path)]);
    assert_refused(&refused, 7, "1 of 1", "remount,rw");
    assert!(said(&refused).contains("Read-only file system"), "{}", said(&refused));
    let refused = tacita(&["purge", "probe", text(&image.lower())]);
    assert_refused(&refused, 7, "Read-only file system", "remount,rw");
    assert_eq!(fs::read_to_string(&path).unwrap(), "it stays; ".repeat(500));
}

#[test]
fn a_full_file_system_is_told_of() {
    let test = "a_full_file_system_is_told_of";
    let Some(image) = Image::of(test, "mkfs.ext4", &["-q", "-F", "-m", "0"], 32) else { return };
    let secret = "on a full file system; ";
    let path = image.lower().join("secret-file");
    write(&path, secret);
    fs::write(image.lower().join("filler"), vec![7; 64 << 20]).unwrap_err();
    // To the last block: a folder may need two, one for its name.
    let folders: Vec<_> = (0..100_000)
        .map(|number| image.lower().join(format!("folder-{number}")))
        .take_while(|dir| fs::create_dir(dir).is_ok())
        .collect();
    let mut filler = fs::File::options().append(true).open(image.lower().join("filler")).unwrap();
    while filler.write_all(&[7; 1024]).is_ok() && filler.sync_all().is_ok() {}
    drop(filler);
    assert_refused(&image.purge_mount(&[]), 6, "No space left", "free a few blocks");
    // A single file needs no room.
    let done = tacita(&["purge", "file", "--method", "d", text(&path)]);
    assert_eq!(code(&done), 0, "{}", said(&done));
    assert_eq!(image.count(secret) + image.count("secret-file"), 0);
    // Now there is room for a spool, and deleting needs no more of it.
    fs::remove_file(image.lower().join("filler")).unwrap();
    for dir in folders {
        fs::remove_dir(dir).unwrap();
    }
    write(&path, secret);
    let mounted = image.purge_mount(&["--method", "e"]);
    assert_eq!(code(&mounted), 0, "{}", said(&mounted));
    fs::write(image.upper().join("filler"), vec![7; 64 << 20]).unwrap_err();
    fs::remove_file(image.upper().join("secret-file")).unwrap();
    assert_eq!(code(&image.umount()), 0);
    assert_eq!(image.count(secret) + image.count("secret-file"), 0);
}

/// The status of a mount as soon as there is a verdict: the kernel tells of closing a little later.
fn status_with_verdict(upper: &Path) -> Value {
    let begin = Instant::now();
    loop {
        let status = json(&tacita(&["purge", "status", "--json", text(upper)]));
        if status["last"] != Value::Array(Vec::new()) {
            return status;
        }
        assert!(begin.elapsed() < Duration::from_mins(2), "no verdict: {status:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Detaches a file system from its device.
fn detach(image: &Image) -> bool {
    // Without putting the journal on the medium.
    system("xfs_io", &["-x", "-c", "shutdown", text(&image.lower())])
}

#[test]
fn a_device_that_vanishes_costs_an_error_and_no_purge() {
    let test = "a_device_that_vanishes_costs_an_error_and_no_purge";
    for manner in ["--epoch=3600", "--async"] {
        let Some(image) = Image::new(test) else { return };
        let secret = "purged after the device came back; ";
        let (one, two) = (image.lower().join("secret-one"), image.lower().join("secret-two"));
        write(&one, secret);
        write(&two, secret);
        assert!(image.count(secret) > 0);
        let report = image.folder.path().join("report");
        let mounted = image.purge_mount(&[manner, "--report", text(&report)]);
        assert_eq!(code(&mounted), 0, "{}", said(&mounted));
        let upper = image.upper();
        // Open, so that its name is gone, and on the medium, when the device goes.
        let held = fs::File::open(upper.join("secret-one")).unwrap();
        fs::remove_file(upper.join("secret-one")).unwrap();
        fs::File::open(image.lower()).unwrap().sync_all().unwrap();
        if !detach(&image) {
            eprintln!("SKIPPED: {test}: no python3, or no EXT4_IOC_SHUTDOWN");
            return;
        }
        drop(held);
        assert!(fs::remove_file(upper.join("secret-two")).is_err());
        let status = tacita(&["purge", "status", text(&upper), "--finish"]);
        assert_refused(&status, 4, "Input/output error", "spool");
        std::thread::sleep(Duration::from_millis(2500));
        // Tried again every second, and told of once.
        let told = fs::read_to_string(&report).unwrap();
        assert!(told.lines().count() <= 2, "{told}");
        let ended = image.umount();
        assert_eq!(code(&ended), 4, "{}", said(&ended));
        assert!(!said(&ended).contains("panicked"), "{}", said(&ended));
        assert!(image.count(secret) > 0, "nothing could be overwritten");
        let mounted = image.purge_mount(&[]);
        assert_eq!(code(&mounted), 0, "{}", said(&mounted));
        assert!(!image.upper().join("secret-one").exists());
        fs::remove_file(image.upper().join("secret-two")).unwrap();
        assert_eq!(code(&image.umount()), 0);
        assert_eq!(image.count(secret) + image.count("secret-"), 0, "{manner}");
    }
}

/// The kernel writes to a device that has been set read-only under a mount, but does not zero its journal:
/// `--finish` says so, no verdict holds before it can, and it is done when it can.
#[test]
fn a_device_that_was_set_read_only_is_told_of_until_it_is_not() {
    let test = "a_device_that_was_set_read_only_is_told_of_until_it_is_not";
    let Some(image) = Image::new(test) else { return };
    let (secret, upper) = ("gone when the device may be written; ", image.upper());
    write(&image.lower().join("secret-file"), secret);
    let mounted = image.purge_mount(&["--epoch=3600"]);
    assert_eq!(code(&mounted), 0, "{}", said(&mounted));
    fs::remove_file(upper.join("secret-file")).unwrap();
    let device =
        json(&tacita(&["purge", "probe", text(&image.lower()), "--json"]))["device"].clone();
    let set = |how: &str| assert!(system("blockdev", &[how, device.as_str().unwrap()]), "{how}");
    let finish = || tacita(&["purge", "status", text(&upper), "--finish"]);
    let holds = || {
        let status = json(&tacita(&["purge", "status", text(&upper), "--json"]));
        assert_eq!(status["last"][0]["content"], "verified in place", "{status:#}");
        (status["last"][0]["holds"] == true, status["epochs"].clone())
    };
    set("--setro");
    for _ in 0..2 {
        assert_refused(&finish(), 7, "erasing the journal: Operation not permitted", "--getro");
        assert_eq!(holds(), (false, 0.into()));
    }
    set("--setrw");
    let finished = finish();
    assert_eq!(code(&finished), 0, "{}", said(&finished));
    assert_eq!(holds(), (true, 1.into()));
    assert_eq!(code(&image.umount()), 0);
    assert_eq!(image.count(secret) + image.count("secret-file"), 0);
}

/// Each flush of the end of a mount fails, and all behind it: whoever unmounts is told, once, with what can be
/// done, and the next mount finishes what is left.
#[test]
fn an_end_that_fails_is_told_who_unmounts() {
    let test = "an_end_that_fails_is_told_who_unmounts";
    if cannot_trace(test) {
        return;
    }
    let mut failed = 0;
    for time in 1.. {
        let Some(image) = Image::new(test) else { return };
        let secret = "purged by the next mount; ";
        write(&image.lower().join("secret-file"), secret);
        let mounted = image.purge_mount(&["--epoch=3600"]);
        assert_eq!(code(&mounted), 0, "{}", said(&mounted));
        let upper = image.upper();
        fs::remove_file(upper.join("secret-file")).unwrap();
        let daemon = json(&tacita(&["status", text(&upper), "--json"]))["pid"].to_string();
        let failing = Watched::attach(&daemon, "fsync", &format!("error=EIO:when={time}+"));
        let ended = image.umount();
        drop(failing);
        if code(&ended) == 0 {
            break;
        }
        failed += 1;
        assert_refused(&ended, 4, "Input/output error", "");
        assert_refused(&image.umount(), 2, "nothing is mounted here", "tacita status");
        let mounted = image.purge_mount(&[]);
        assert_eq!(code(&mounted), 0, "{}", said(&mounted));
        assert_eq!(code(&image.umount()), 0);
        assert_eq!(image.count(secret) + image.count("secret-"), 0, "{time}");
    }
    assert!(failed > 0, "nothing is flushed at the end");
}

/// It is looked at again with the next epoch.
#[test]
fn a_folder_that_is_not_written_back_holds_nothing_else_up() {
    let test = "a_folder_that_is_not_written_back_holds_nothing_else_up";
    if cannot_trace(test) {
        return;
    }
    let Some(image) = Image::new(test) else { return };
    let (lower, upper) = (image.lower(), image.upper());
    for folder in ["failing", "other"] {
        fs::create_dir(lower.join(folder)).unwrap();
        write(&lower.join(folder).join("secret-file"), "it goes; ");
    }
    let mounted = image.purge_mount(&["--epoch=3600"]);
    assert_eq!(code(&mounted), 0, "{}", said(&mounted));
    let names = ["failing", "other"].map(|folder| upper.join(folder).join("secret-file"));
    for name in &names {
        fs::remove_file(name).unwrap();
    }
    let finish = || {
        let ended = tacita(&["purge", "status", text(&upper), "--finish", "--json"]);
        assert_eq!(code(&ended), 0, "{}", said(&ended));
        json(&ended)
    };
    let daemon = json(&tacita(&["status", text(&upper), "--json"]))["pid"].to_string();
    let failing = Watched::attach_at(
        &daemon,
        "fsync",
        "error=EIO",
        &lower.join("failing").canonicalize().unwrap(),
    );
    let status = finish();
    drop(failing);
    assert_eq!((&status["epochs"], &status["idle"]), (&1.into(), &false.into()), "{status:#}");
    let verdicts = status["last"].as_array().unwrap();
    let held: Vec<&Value> = verdicts.iter().filter(|verdict| verdict["holds"] == true).collect();
    assert_eq!((verdicts.len(), held.len()), (2, 1), "{status:#}");
    let status = finish();
    assert_eq!((&status["epochs"], &status["idle"]), (&2.into(), &true.into()), "{status:#}");
    assert_eq!(code(&image.umount()), 0);
    assert_eq!(image.count("secret-file"), 0);
    assert!(!lower.join(".tacita-purge").exists());
}

/// Another name may have room where the first one has none, be it the disk's end or a quota's.
#[test]
fn a_name_that_a_quota_refuses_is_not_the_last_that_is_tried() {
    let test = "a_name_that_a_quota_refuses_is_not_the_last_that_is_tried";
    if cannot_trace(test) {
        return;
    }
    let Some(image) = Image::new(test) else { return };
    let path = image.lower().join("file");
    for refusal in ["ENOSPC", "EDQUOT"] {
        write(&path, "it goes; ");
        let inject = format!("inject=renameat2:error={refusal}:when=1");
        let purged = Command::new("strace")
            .args(["-f", "-o", "/dev/null", "-e", "trace=renameat2", "-e", &inject])
            .args([env!("CARGO_BIN_EXE_tacita"), "purge", "file", text(&path)])
            .output()
            .unwrap();
        assert_eq!(code(&purged), 0, "{refusal}: {}", said(&purged));
        assert!(!path.exists(), "{refusal}");
    }
}

/// A mount under purge whose daemon can write no file longer than half a KiB.
fn mount_of_short_files(image: &Image) {
    let script = "ulimit -f 1; exec \"$0\" purge mount \"$1\" \"$2\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_tacita")]).arg(image.lower());
    assert_eq!(code(&command.arg(image.upper()).output().unwrap()), 0);
}

/// What cannot be purged has lost its name, which the kernel does not think after an error.
#[test]
fn a_name_that_is_gone_is_free_though_its_file_is_kept() {
    let test = "a_name_that_is_gone_is_free_though_its_file_is_kept";
    let Some(image) = Image::new(test) else { return };
    for name in ["removed", "replaced"] {
        write(&image.lower().join(name), "it is longer than that; ");
    }
    fs::write(image.lower().join("short"), "short").unwrap();
    mount_of_short_files(&image);
    let [removed, replaced, short] =
        ["removed", "replaced", "short"].map(|name| image.upper().join(name));
    assert!(fs::read(&removed).unwrap().len() == fs::read(&replaced).unwrap().len());
    assert_eq!(fs::read_to_string(&short).unwrap(), "short");
    fs::remove_file(&removed).unwrap_err();
    fs::rename(&short, &replaced).unwrap_err();
    let start = Instant::now();
    while removed.exists() || short.exists() || fs::metadata(&replaced).unwrap().len() > 5 {
        assert!(start.elapsed() < Duration::from_mins(2), "the kernel is not told");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(fs::read_to_string(&replaced).unwrap(), "short");
    for free in [&removed, &short] {
        fs::write(free, "anew").unwrap();
        assert_eq!(fs::read_to_string(free).unwrap(), "anew");
    }
    assert_refused(&image.umount(), 4, "File too large", "`ulimit -f`");
    assert_eq!(fs::read_to_string(image.lower().join("removed")).unwrap(), "anew");
}

/// Of such names the kernel is told as soon as nobody changes their folder, and whoever does is answered meanwhile.
#[test]
fn names_that_are_gone_hold_up_nobody_who_changes_their_folder() {
    let test = "names_that_are_gone_hold_up_nobody_who_changes_their_folder";
    let Some(image) = Image::new(test) else { return };
    let folder = image.lower().join("folder");
    fs::create_dir(&folder).unwrap();
    let names = || (0..60).map(|n| format!("file-{n}"));
    for name in names() {
        fs::write(folder.join(name), [1; 2000]).unwrap();
    }
    mount_of_short_files(&image);
    let folder = image.upper().join("folder");
    let removing = {
        let files: Vec<PathBuf> = names().map(|name| folder.join(name)).collect();
        std::thread::spawn(move || {
            for file in files {
                fs::remove_file(file).unwrap_err();
            }
        })
    };
    while !removing.is_finished() {
        for flag in ["+d", "-d"] {
            let done = Command::new("chattr").arg(flag).arg(&folder).status();
            assert!(done.unwrap().success());
        }
    }
    removing.join().unwrap();
    assert_refused(&image.umount(), 4, "File too large", "`ulimit -f`");
}

/// The image is truncated under the mounted file system, whose blocks then read as zeros or fail.
#[test]
fn an_image_that_is_truncated_ends_nothing_but_the_work_on_it() {
    let test = "an_image_that_is_truncated_ends_nothing_but_the_work_on_it";
    let Some(image) = Image::new(test) else { return };
    for number in 0..20 {
        write(&image.lower().join(format!("file-{number}")), "lost with its device; ");
    }
    let mounted = image.purge_mount(&["--method", "d"]);
    assert_eq!(code(&mounted), 0, "{}", said(&mounted));
    let upper = image.upper();
    fs::File::options().write(true).open(image.path()).unwrap().set_len(1 << 20).unwrap();
    // What is cached would not notice; where this may not be set, less is asked of the program.
    let _ = fs::write("/proc/sys/vm/drop_caches", "3");
    for number in 0..20 {
        let _ = fs::remove_file(upper.join(format!("file-{number}")));
        let _ = fs::write(upper.join(format!("new-{number}")), "x");
    }
    // The daemon lives, and says what it knows.
    let status = tacita(&["purge", "status", text(&upper), "--json"]);
    assert_eq!(code(&status), 0, "{}", said(&status));
    let ended = image.umount();
    assert!([0, 4].contains(&code(&ended)), "{}", said(&ended));
    assert!(!said(&ended).contains("panicked"), "{}", said(&ended));
}

#[test]
fn what_chattr_protects_stays_and_says_why() {
    let test = "what_chattr_protects_stays_and_says_why";
    let Some(image) = Image::new(test) else { return };
    let lower = image.lower();
    for name in ["immutable", "append", "folder/inner", "victim", "new"] {
        let path = lower.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write(&path, "protected; ");
    }
    let protected = [("+i", "immutable"), ("+a", "append"), ("+i", "victim"), ("+i", "folder")];
    if !protected.iter().all(|(mark, name)| system("chattr", &[mark, text(&lower.join(name))])) {
        eprintln!("SKIPPED: {test}: no chattr");
        return;
    }
    let kept = [
        ("immutable", "it is immutable"),
        ("append", "it is append-only"),
        ("folder/inner", "its folder is immutable"),
    ];
    for (name, why) in kept {
        let refused = tacita(&["purge", "file", text(&lower.join(name))]);
        assert_refused(&refused, 1, "1 of 1", "the verdict names");
        assert!(said(&refused).contains(why), "{}", said(&refused));
    }
    for policy in ["fail", "warn"] {
        let mounted = image.purge_mount(&["--on-failure", policy]);
        assert_eq!(code(&mounted), 0, "{}", said(&mounted));
        let upper = image.upper();
        for (name, _) in kept {
            let error = fs::remove_file(upper.join(name)).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{name}");
        }
        fs::rename(upper.join("new"), upper.join("victim")).unwrap_err();
        let appended = fs::File::options().append(true).open(upper.join("append"));
        std::io::Write::write_all(&mut appended.unwrap(), b"more").unwrap();
        let status = tacita(&["purge", "status", text(&upper)]);
        for (_, why) in kept {
            assert!(said(&status).contains(why), "{}", said(&status));
        }
        assert_eq!(code(&image.umount()), 0);
        assert!(!lower.join(".tacita-purge").exists(), "nothing waits in the spool");
        for name in ["immutable", "folder/inner", "victim"] {
            let content = fs::read_to_string(lower.join(name)).unwrap();
            assert_eq!(content, "protected; ".repeat(500), "{name}");
        }
    }
    for (mark, name) in protected {
        let off = mark.replace('+', "-");
        assert!(system("chattr", &[&off, text(&lower.join(name))]));
    }
    // `chattr -a` opened the way to what was appended, too.
    let done = tacita(&["purge", "file", "-r", "--json", text(&lower.join("append"))]);
    assert_eq!(code(&done), 0, "{}", said(&done));
}

#[test]
fn a_swap_file_in_use_stays_and_says_why() {
    let test = "a_swap_file_in_use_stays_and_says_why";
    let Some(image) = Image::new(test) else { return };
    let swap = image.lower().join("swap file");
    let victim = image.lower().join("new");
    fs::write(&swap, vec![0; 1 << 20]).unwrap();
    fs::write(&victim, "x").unwrap();
    let open: fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&swap, open).unwrap();
    if !system("mkswap", &[text(&swap)]) || !system("swapon", &[text(&swap)]) {
        eprintln!("SKIPPED: {test}: no swap files here");
        return;
    }
    let refused = tacita(&["purge", "file", text(&swap)]);
    let mut told = Vec::new();
    for policy in ["fail", "warn"] {
        let mounted = image.purge_mount(&["--on-failure", policy]);
        let upper = image.upper();
        let removed = fs::remove_file(upper.join("swap file"));
        let replaced = fs::rename(upper.join("new"), upper.join("swap file"));
        let status = tacita(&["purge", "status", text(&upper)]);
        let ended = image.umount();
        told.push((code(&mounted), removed, replaced, said(&status), code(&ended)));
    }
    // Before anything can fail: nobody could clear it away otherwise.
    assert!(system("swapoff", &[text(&swap)]));
    assert_refused(&refused, 1, "1 of 1", "the verdict names");
    assert!(said(&refused).contains("swapoff"), "{}", said(&refused));
    for (mounted, removed, replaced, status, ended) in told {
        assert_eq!((mounted, ended), (0, 0), "{status}");
        assert!(removed.is_err() && replaced.is_err(), "{removed:?}, {replaced:?}");
        assert!(status.contains("the kernel swaps to it"), "{status}");
    }
    assert!(swap.exists() && victim.exists());
    assert!(!image.lower().join(".tacita-purge").exists(), "nothing waits in the spool");
    let done = tacita(&["purge", "file", text(&swap)]);
    assert_eq!(code(&done), 0, "{}", said(&done));
}

/// What is refused, with the reason, and what is degraded: an honest verdict, and the way to what
/// helps instead.
#[test]
fn unsuitable_places_are_refused_and_point_elsewhere() {
    let test = "unsuitable_places_are_refused_and_point_elsewhere";
    let refused = |dir: &Path, upper: &Path, name: &str, told: &str| {
        let suits = tacita(&["purge", "probe", text(dir)]);
        assert_refused(&suits, 7, name, "destroy");
        assert_eq!(json(&tacita(&["purge", "probe", "--json", text(dir)]))["suits"], false);
        assert_refused(&tacita(&["purge", "mount", text(dir), text(upper)]), 7, name, "destroy");
        let path = dir.join("file");
        write(&path, "not overwritten; ");
        assert_refused(&tacita(&["purge", "file", text(&path)]), 7, "1 of 1", "destroy");
        assert_eq!(fs::read_to_string(&path).unwrap(), "not overwritten; ".repeat(500));
        let done = tacita(&["purge", "file", "--json", "--anyway", text(&path)]);
        assert_eq!((code(&done), &json(&done)["content"]), (1, &told.into()), "{}", said(&done));
        let mounted = tacita(&["purge", "mount", text(dir), text(upper), "--anyway"]);
        assert_eq!(code(&mounted), 0, "{}", said(&mounted));
        write(&upper.join("file"), "by a mount; ");
        fs::remove_file(upper.join("file")).unwrap();
        let status = status_with_verdict(upper);
        assert_eq!(status["last"][0]["content"], told, "{status:#}");
        assert_eq!(status["last"][0]["holds"], false, "{status:#}");
        assert_eq!(code(&tacita(&["umount", text(upper)])), 0);
    };
    let Some(image) = Image::new(test) else { return };
    let (lower, upper) = (image.lower(), image.upper());
    let memory = image.folder.path().join("memory");
    fs::create_dir(&memory).unwrap();
    if system("mount", &["-t", "tmpfs", "tmpfs", text(&memory)]) {
        refused(&memory, &upper, "tmpfs", "not in place");
        assert!(system("umount", &[text(&memory)]));
    } else {
        eprintln!("SKIPPED: {test}: no tmpfs");
    }
    let layers = ["one", "two", "work"].map(|name| lower.join(name));
    for dir in &layers {
        fs::create_dir(dir).unwrap();
    }
    let [one, two, work] = layers.each_ref().map(|dir| text(dir));
    let options = format!("lowerdir={one},upperdir={two},workdir={work}");
    if system("mount", &["-t", "overlay", "-o", &options, "overlay", text(&memory)]) {
        refused(&memory, &upper, "overlay", "overwritten, place not proven");
        assert!(system("umount", &[text(&memory)]));
    } else {
        eprintln!("SKIPPED: {test}: no overlay file system");
    }
    if let Some(image) = Image::of(test, "mkfs.btrfs", &["-q", "-f"], 128) {
        refused(&image.lower(), &image.upper(), "btrfs", "not in place");
    }
}

/// A device that does not rotate: served, and every verdict tells of it.
#[test]
fn flash_is_told_of_everywhere() {
    let test = "flash_is_told_of_everywhere";
    let Some(image) = Image::new(test) else { return };
    let device = json(&tacita(&["purge", "probe", "--json", text(&image.lower())]));
    let device = device["device"].as_str().unwrap().trim_start_matches("/dev/").to_owned();
    let rotates = format!("/sys/block/{device}/queue/rotational");
    if fs::write(&rotates, "0").is_err() {
        eprintln!("SKIPPED: {test}: {rotates} cannot be written");
        return;
    }
    let suits = tacita(&["purge", "probe", text(&image.lower())]);
    assert_refused(&suits, 7, "does not rotate", "destroy");
    let mounted = image.purge_mount(&[]);
    assert_eq!(code(&mounted), 0, "{}", said(&mounted));
    assert!(said(&mounted).contains("destroy"), "{}", said(&mounted));
    write(&image.upper().join("file"), "overwritten at least; ");
    fs::remove_file(image.upper().join("file")).unwrap();
    let status = status_with_verdict(&image.upper());
    let verdict = &status["last"][0];
    assert_eq!(
        (&status["flash"], &verdict["content"]),
        (&true.into(), &"verified in place".into())
    );
    assert!(verdict["risks"][0].as_str().unwrap().contains("destroy"), "{verdict}");
    assert_eq!(code(&image.umount()), 0);
    fs::write(&rotates, "1").unwrap();
    let suits = tacita(&["purge", "probe", text(&image.lower())]);
    assert_eq!(code(&suits), 0, "{}", said(&suits));
}

/// What lies beneath is found whatever its names are, and so it is if another mount has a name that is not
/// UTF-8.
#[test]
fn a_disk_of_any_name_is_seen_through() {
    let test = "a_disk_of_any_name_is_seen_through";
    let Some(image) = Image::new(test) else { return };
    let (lower, upper, below) = (image.lower(), image.upper(), image.folder.path().join("below"));
    let made = tacita(&["hifs", "format", text(&below), "--size", "48M"]);
    assert_eq!(code(&made), 0, "{}", said(&made));
    let odd = OsStr::from_bytes(b"d\xffisk \n");
    let (place, disk) = (image.folder.path().join(odd), upper.join(odd));
    fs::create_dir(&place).unwrap();
    let with = |words: &[&str], paths: &[&Path]| -> Vec<OsString> {
        words.iter().map(OsString::from).chain(paths.iter().map(OsString::from)).collect()
    };
    let facts = || json(&tacita(&["purge", "probe", "--json", text(&lower)]));
    assert!(system("mount", &with(&["-t", "tmpfs", "none"], &[&place])));
    assert_eq!(facts()["file_system"], "ext4");
    let mounted = tacita(&["hifs", "mount", text(&below), text(&upper)]);
    assert_eq!(code(&mounted), 0, "{}", said(&mounted));
    fs::File::create(&disk).unwrap().set_len(32 << 20).unwrap();
    assert!(system("mkfs.ext4", &with(&["-q", "-F"], &[&disk])));
    assert!(system("mount", &with(&["-o", "loop"], &[&disk, &lower])));
    let found = facts();
    tacita_testkit::unmount(&place);
    tacita_testkit::unmount(&lower);
    assert!(found["keeps_copies"].as_str().unwrap().contains("fuse.tacita-hifs"), "{found}");
    assert_eq!(code(&image.umount()), 0);
}

/// What is longer than the process may write is left as it is: overwriting it would end in the middle.
#[test]
fn a_limit_of_lengths_harms_no_file() {
    let Some(image) = Image::new("a_limit_of_lengths_harms_no_file") else { return };
    let [long, short] = ["long", "short"].map(|name| image.lower().join(name));
    let content = "all of it; ";
    write(&long, &content.repeat(10));
    fs::write(&short, content).unwrap();
    let run = |path: &Path| {
        let limited = r#"ulimit -f 40; exec "$0" purge file "$1""#;
        let words = ["-c", limited, env!("CARGO_BIN_EXE_tacita"), text(path)];
        Command::new("sh").args(words).output().unwrap()
    };
    let refused = run(&long);
    assert_refused(&refused, 1, "1 of 1", "verdict");
    assert!(said(&refused).contains("`ulimit -f`"), "{}", said(&refused));
    assert_eq!(fs::read_to_string(&long).unwrap(), content.repeat(5000));
    let done = run(&short);
    assert_eq!(code(&done), 0, "{}", said(&done));
}

#[test]
fn methods_that_nobody_knows_are_refused() {
    let Some(image) = Image::new("methods_that_nobody_knows_are_refused") else { return };
    for method in ["shred", "custom:", "custom:5", "custom:V", ""] {
        let refused = image.purge_mount(&["--method", method]);
        assert_eq!(code(&refused), 2, "{method}: {}", said(&refused));
        assert!(said(&refused).contains("--method"), "{method}: {}", said(&refused));
    }
    let file = image.lower().join("file");
    write(&file, "held by a mount only; ");
    let refused = tacita(&["purge", "file", "--method", "f", text(&file)]);
    assert_refused(&refused, 2, "1 of 1", "--help");
    assert!(said(&refused).contains("it needs a mount") && file.exists(), "{}", said(&refused));
}

/// It is not the disk's fault, whose log says nothing of it.
#[test]
fn limits_of_this_process_are_named() {
    let Some(image) = Image::new("limits_of_this_process_are_named") else { return };
    let path = image.lower().join("file");
    let limited = |limit: &str, word: &str, path: &Path| {
        let script = format!("ulimit {limit}; exec \"$0\" purge {word} \"$1\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_tacita")]).arg(path).output().unwrap()
    };
    fs::write(&path, "content; ".repeat(1000)).unwrap();
    let kept = (4..=32).map_while(|count| {
        let done = limited(&format!("-n {count}"), "file", &path);
        path.exists().then(|| {
            assert_eq!(code(&done), 7, "{count}: {}", said(&done));
            assert!(said(&done).contains("`ulimit -n`"), "{count}: {}", said(&done));
        })
    });
    assert!(kept.count() > 2);
    // Told once, whatever it is that cannot be opened.
    let refused = (4..=64).map_while(|count| {
        let script = format!("ulimit -n {count}; exec \"$0\" purge mount \"$1\" \"$2\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_tacita")]).arg(image.lower());
        let done = command.arg(image.upper()).output().unwrap();
        (code(&done) != 0).then(|| {
            assert_eq!(code(&done), 7, "{count}: {}", said(&done));
            assert!(said(&done).contains("`ulimit -n`"), "{count}: {}", said(&done));
            assert_eq!(said(&done).lines().count(), 2, "{count}: {}", said(&done));
        })
    });
    assert!(refused.count() > 2);
    assert_eq!(code(&image.umount()), 0);
    // Nothing is said to be purged that is longer than files may be.
    write(&image.lower().join("long"), "it is longer than that; ");
    let script = "ulimit -f 1; exec \"$0\" purge mount \"$1\" \"$2\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_tacita")]).arg(image.lower());
    assert_eq!(code(&command.arg(image.upper()).output().unwrap()), 0);
    assert!(fs::remove_file(image.upper().join("long")).is_err());
    let status = json(&tacita(&["purge", "status", text(&image.upper()), "--json"]));
    assert_eq!((&status["kept"], &status["verified"]), (&1.into(), &0.into()), "{status:#}");
    let synced = tacita(&["sync", text(&image.upper())]);
    assert_refused(&synced, 4, "File too large", "`ulimit -f`");
    assert_refused(&image.umount(), 4, "File too large", "`ulimit -f`");
    let probed = limited("-f 0", "probe", &image.lower());
    assert_eq!(code(&probed), 4, "{}", said(&probed));
    assert!(said(&probed).contains("`ulimit -f`"), "{}", said(&probed));
}
