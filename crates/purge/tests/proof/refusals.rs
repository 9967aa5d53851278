//! What is refused, and what lies outside and is never touched.

#![allow(clippy::disallowed_methods, reason = "other processes live in the time of the machine")]

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{
    FallocateFlags, IFlags, OFlags, XattrFlags, fallocate, ioctl_getflags, ioctl_setflags,
};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use tacita_purge::{
    Content, Kind, OnFailure, Overlay, OverlayOptions, Policy, Removal, RemovalOptions, parse_rules,
};
use tacita_testkit::{by_name, skip_without_fuse};
use tacita_vfs::{FileSystem, NewNode, Timestamp};

use crate::acts::fill;
use crate::image::{Fs, Image, turn};
use crate::overlay::{Mounted, options};
use tacita_testkit::system;

const LOST: &str = "LOST-Refusal-m-";

#[test]
fn unsuitable_and_busy_places_are_refused() {
    let _turn = turn();
    let test = "unsuitable_and_busy_places_are_refused";
    if let Some(image) = Image::new(test, Fs::Btrfs) {
        let refused = Overlay::open(&image.dir(), options("clear", false)).unwrap_err();
        assert_eq!(refused.kind(), Kind::Unsuitable);
        assert!(refused.to_string().contains("btrfs"), "{refused}");
        let anyway = OverlayOptions { anyway: true, ..options("clear", false) };
        drop(Overlay::open(&image.dir(), anyway).unwrap());
    }
    let Some(image) = Image::new(test, Fs::Ext4) else { return };
    let first = Overlay::open(&image.dir(), options("clear", false)).unwrap();
    let second = Overlay::open(&image.dir(), options("clear", false)).unwrap_err();
    assert_eq!(second.kind(), Kind::InUse);
    drop(first);
    drop(Overlay::open(&image.dir(), options("clear", false)).unwrap());
    let missing = Overlay::open(&image.dir().join("none"), options("clear", false)).unwrap_err();
    assert_eq!(missing.kind(), Kind::NotFound);
    // Somebody else's folder in the place of the spool.
    assert!(!image.dir().join(".tacita-purge").exists(), "nothing is left behind");
    symlink("/tmp", image.dir().join(".tacita-purge")).unwrap();
    assert!(Overlay::open(&image.dir(), options("clear", false)).is_err());
}

#[test]
fn the_spool_is_not_seen() {
    let _turn = turn();
    if skip_without_fuse("the_spool_is_not_seen") {
        return;
    }
    let Some(image) = Image::new("the_spool_is_not_seen", Fs::Ext4) else { return };
    let mounted = Mounted::new(&image, options("clear", true));
    let spool = mounted.dir.join(".tacita-purge");
    assert!(!spool.exists());
    assert!(fs::create_dir(&spool).is_err());
    fs::write(mounted.dir.join("a"), "a").unwrap();
    assert!(fs::rename(mounted.dir.join("a"), &spool).is_err());
    let listed = fs::read_dir(&mounted.dir).unwrap().map(|e| e.unwrap().file_name());
    let listed: Vec<_> = listed.collect();
    assert!(!listed.contains(&".tacita-purge".into()), "{listed:?}");
    assert_eq!(fs::metadata(&mounted.dir).unwrap().nlink(), 3, "lost+found and itself");
    mounted.end();
}

/// A damaged record must not keep anything from being purged.
#[test]
fn damaged_records_cost_nothing_but_time() {
    let _turn = turn();
    let test = "damaged_records_cost_nothing_but_time";
    let Some(image) = Image::new(test, Fs::Ext4) else { return };
    let spool = image.dir().join(".tacita-purge");
    fs::create_dir(&spool).unwrap();
    let private: fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(&spool, private).unwrap();
    for number in [5, 6, 7] {
        fs::write(spool.join(number.to_string()), fill(LOST, 20_000)).unwrap();
    }
    fs::create_dir(spool.join("8")).unwrap();
    symlink("/etc/passwd", spool.join("9")).unwrap();
    let outside = image.dir().join("outside");
    fs::write(&outside, fill("KEPT-Refusal-m-", 9000)).unwrap();
    fs::hard_link(&outside, spool.join("10")).unwrap();
    fs::write(spool.join("records"), fill("rubbish", 5000)).unwrap();
    image.remount();
    assert!(image.count(LOST) > 0);
    drop(Overlay::open(&image.dir(), options("e", false)).unwrap());
    assert!(!spool.exists(), "everything is gone");
    assert_eq!(fs::read(&outside).unwrap(), fill("KEPT-Refusal-m-", 9000), "it has another name");
    image.unmount();
    assert_eq!(image.count(LOST), 0);
}

/// While names are purged by number, somebody swaps folders for links to the outside.
#[test]
fn nothing_outside_is_touched() {
    let _turn = turn();
    let Some(image) = Image::new("nothing_outside_is_touched", Fs::Ext4) else { return };
    let outside = tempfile::tempdir().unwrap();
    let precious: Vec<_> = (0..200).map(|n| outside.path().join(format!("f{n}"))).collect();
    for path in &precious {
        fs::write(path, "precious").unwrap();
    }
    let dir = image.dir();
    let (inner, aside, link) = (dir.join("inner"), dir.join("aside"), dir.join("link"));
    fs::create_dir(&inner).unwrap();
    for number in 0..200 {
        fs::write(inner.join(format!("f{number}")), "deleted").unwrap();
    }
    symlink(outside.path(), &link).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = fs::rename(&inner, &aside).and_then(|()| fs::rename(&link, &inner));
                let _ = fs::rename(&inner, &link).and_then(|()| fs::rename(&aside, &inner));
            }
        });
        let overlay = Overlay::open(&dir, options("clear", false)).unwrap();
        let (root, now) = (overlay.root(), Timestamp::default());
        for number in 0..200 {
            let name = std::ffi::OsString::from(format!("f{number}"));
            // By a fresh look at the folder each time, as a kernel without a cache would.
            let Ok((folder, _)) = overlay.lookup(root, "inner".as_ref()) else { continue };
            let _ = overlay.change(
                folder,
                &tacita_vfs::Change { perm: Some(0o755), ..tacita_vfs::Change::default() },
            );
            if by_name::remove(&overlay, folder, &name, now).is_ok() {
                let _ = overlay.sync();
            }
            let new = NewNode::new(tacita_vfs::FileType::File, 0o600, now);
            let _ = overlay.create(folder, format!("new{number}").as_ref(), &new);
        }
        stop.store(true, Ordering::Relaxed);
    });
    for path in &precious {
        assert_eq!(fs::read_to_string(path).unwrap(), "precious");
    }
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 200, "nothing was made there");
}

#[test]
fn policies_decide() {
    let _turn = turn();
    if skip_without_fuse("policies_decide") {
        return;
    }
    let Some(image) = Image::new("policies_decide", Fs::Ext4) else { return };
    let marked = image.dir().join("marked");
    fs::create_dir(&marked).unwrap();
    if let Err(why) = system("chattr", &["+s", marked.to_str().unwrap()]) {
        eprintln!("SKIPPED: policies_decide: {why}");
        return;
    }
    let policy = Policy {
        marked_only: true,
        rules: parse_rules("*.key e\n/big/** 100K.. zero\n").unwrap(),
        ..Policy::default()
    };
    let mounted = Mounted::new(&image, OverlayOptions { policy, ..options("clear", false) });
    let dir = &mounted.dir;
    fs::create_dir(dir.join("big")).unwrap();
    let files = [
        ("plain", 9000, false),
        ("marked/by-its-folder", 9000, true),
        ("a.key", 9000, true),
        ("big/small", 9000, false),
        ("big/large", 200_000, true),
        ("by-attribute", 9000, true),
        ("off.key", 9000, false),
    ];
    for (name, len, _) in files {
        fs::write(dir.join(name), fill(&format!("LOST-{name}-"), len)).unwrap();
        File::open(dir.join(name)).unwrap().sync_all().unwrap();
    }
    let set = |name: &str, value: &str| {
        let path = dir.join(name);
        rustix::fs::setxattr(path, "user.purge", value.as_bytes(), XattrFlags::empty()).unwrap();
    };
    set("by-attribute", "d");
    set("off.key", "off");
    // What no policy names is still there for whoever searches; so no journal may hold it.
    for (name, ..) in files {
        fs::remove_file(dir.join(name)).unwrap();
    }
    mounted.end();
    image.unmount();
    for (name, _, purged) in files {
        assert_eq!(image.count(&format!("LOST-{name}-")) == 0, purged, "{name}");
    }
}

#[test]
fn shared_files_go_and_are_told_of() {
    let _turn = turn();
    let test = "shared_files_go_and_are_told_of";
    if skip_without_fuse(test) {
        return;
    }
    for on_failure in [OnFailure::Fail, OnFailure::Warn] {
        let Some(image) = Image::new(test, Fs::Xfs) else { return };
        let (one, two) = (image.dir().join("one"), image.dir().join("two"));
        fs::write(&one, fill(LOST, 100_000)).unwrap();
        let cloned =
            system("cp", &["--reflink=always", one.to_str().unwrap(), two.to_str().unwrap()]);
        if let Err(why) = cloned {
            eprintln!("SKIPPED: {test}: {why}");
            return;
        }
        image.remount();
        let policy = Policy { on_failure, ..Policy::default() };
        let mounted = Mounted::new(&image, OverlayOptions { policy, ..options("clear", false) });
        let deleted = fs::remove_file(mounted.dir.join("one"));
        mounted.overlay().finish().unwrap();
        let three = image.dir().join("three");
        system("cp", &["--reflink=always", two.to_str().unwrap(), three.to_str().unwrap()])
            .unwrap();
        let truncated =
            OpenOptions::new().write(true).open(mounted.dir.join("two")).unwrap().set_len(9);
        if on_failure == OnFailure::Fail {
            assert!(truncated.is_err(), "{truncated:?}");
            assert_eq!(fs::read(mounted.dir.join("two")).unwrap(), fill(LOST, 100_000));
        }
        deleted.unwrap();
        mounted.overlay().finish().unwrap();
        let status = mounted.overlay().status();
        let last = status["last"].as_array().unwrap();
        let told = last.iter().find(|verdict| verdict["content"] == "shared").unwrap();
        assert_eq!((&told["removed"], &told["holds"]), (&true.into(), &false.into()), "{told}");
        mounted.end();
    }
}

/// Whoever deletes all files that share blocks has none of them left, whether one after the other or
/// together.
#[test]
fn shared_blocks_are_purged_with_the_last_file() {
    let _turn = turn();
    let test = "shared_blocks_are_purged_with_the_last_file";
    if skip_without_fuse(test) {
        return;
    }
    for asynchronous in [None, Some(false), Some(true)] {
        let Some(image) = Image::new(test, Fs::Xfs) else { return };
        let names = ["one", "two", "three"];
        let paths = names.map(|name| image.dir().join(name).to_str().unwrap().to_owned());
        fs::write(&paths[0], fill(LOST, 100_000)).unwrap();
        for path in &paths[1..] {
            if let Err(why) = system("cp", &["--reflink=always", &paths[0], path]) {
                eprintln!("SKIPPED: {test}: {why}");
                return;
            }
        }
        image.remount();
        assert!(image.count(LOST) > 0);
        if let Some(asynchronous) = asynchronous {
            let mounted = Mounted::new(&image, options("d", asynchronous));
            for name in names {
                fs::remove_file(mounted.dir.join(name)).unwrap();
            }
            mounted.overlay().finish().unwrap();
            let status = mounted.overlay().status();
            assert_eq!((&status["verified"], &status["not_in_place"]), (&1.into(), &2.into()));
            mounted.end();
        } else {
            let anyway = RemovalOptions { anyway: true, ..RemovalOptions::default() };
            let mut removal = Removal::new(anyway);
            for path in &paths {
                removal.purge(Path::new(path));
            }
            let told = removal.finish().pop().unwrap();
            assert!(matches!(told.content, Content::Verified(_)), "{told:?}");
        }
        image.unmount();
        assert_eq!(image.count(LOST), 0, "{asynchronous:?}");
    }
}

/// A file that is moved is one of its length, whatever a rule asks for: its old name goes.
#[test]
fn rules_of_length_count_for_what_is_moved() {
    let _turn = turn();
    let test = "rules_of_length_count_for_what_is_moved";
    if skip_without_fuse(test) {
        return;
    }
    let Some(image) = Image::new(test, Fs::Ext4) else { return };
    let rules = parse_rules("* 0..4096 off").unwrap();
    let policy = Policy { rules, ..Policy::default() };
    let mounted = Mounted::new(&image, OverlayOptions { policy, ..options("clear", false) });
    let from = mounted.dir.join("secretname-Moved-");
    fs::write(&from, fill("KEPT-Moved-", 10_000)).unwrap();
    File::open(&mounted.dir).unwrap().sync_all().unwrap();
    fs::rename(&from, mounted.dir.join("file")).unwrap();
    mounted.end();
    image.unmount();
    assert_eq!(image.count("secretname-Moved-"), 0);
}

/// A full file system: purging in place needs no room.
#[test]
fn a_full_file_system_can_be_purged() {
    let _turn = turn();
    if skip_without_fuse("a_full_file_system_can_be_purged") {
        return;
    }
    let Some(image) = Image::new("a_full_file_system_can_be_purged", Fs::Ext4) else { return };
    let mounted = Mounted::new(&image, options("e", false));
    let victim = mounted.dir.join("victim");
    fs::write(&victim, fill(LOST, 2 << 20)).unwrap();
    File::open(&victim).unwrap().sync_all().unwrap();
    let full = fs::write(mounted.dir.join("filler"), vec![7; 64 << 20]);
    assert_eq!(full.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    fs::remove_file(&victim).unwrap();
    assert_eq!(mounted.overlay().status()["verified"], 0, "e does not read back");
    assert_eq!(mounted.overlay().status()["in_place"], 1);
    mounted.end();
    image.unmount();
    assert_eq!(image.count(LOST), 0);
}

/// In the background too: where the spool has no room for another name, what is in it goes first.
#[test]
fn a_full_file_system_can_be_emptied_in_the_background() {
    let _turn = turn();
    let test = "a_full_file_system_can_be_emptied_in_the_background";
    if skip_without_fuse(test) {
        return;
    }
    let Some(image) = Image::new(test, Fs::Ext4) else { return };
    let mounted = Mounted::new(&image, options("e", true));
    // More names than the one block of a fresh spool holds.
    let path = |number: u64| mounted.dir.join(format!("file-{number}"));
    for number in 0..1500 {
        fs::write(path(number), "x").unwrap();
    }
    // To the last block, which only root may have, of the lower file system itself.
    let filler = File::create(image.dir().join("filler")).unwrap();
    while std::io::Write::write(&mut &filler, &[7; 4096]).is_ok() {}
    filler.sync_all().unwrap();
    for number in 0..1500 {
        fs::remove_file(path(number)).unwrap();
    }
    mounted.end();
}

/// What never reached the device costs no write.
#[test]
fn temporary_files_cost_no_write() {
    let _turn = turn();
    if skip_without_fuse("temporary_files_cost_no_write") {
        return;
    }
    let Some(image) = Image::new("temporary_files_cost_no_write", Fs::Ext4) else { return };
    let mounted = Mounted::new(&image, options("e", true));
    for number in 0..50 {
        let path = mounted.dir.join(format!("temporary-{number}"));
        fs::write(&path, fill(LOST, 100_000)).unwrap();
        fs::remove_file(&path).unwrap();
    }
    mounted.overlay().finish().unwrap();
    let status = mounted.overlay().status();
    assert_eq!(status["files"], 50, "{status:#}");
    assert_eq!(status["bytes_overwritten"], 0, "{status:#}");
    assert_eq!(status["never_stored"], 50, "{status:#}");
    mounted.end();
    image.unmount();
    assert_eq!(image.count(LOST), 0);
}

/// Maps a file, closes and unlinks it, waits for a line, and writes into the mapping.
const MAPPER: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int count, char **arguments) {
    int file = open(arguments[1], O_RDWR);
    char *map = mmap(0, 20000, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map == MAP_FAILED || close(file) || unlink(arguments[1])) return 1;
    puts("unlinked"); fflush(stdout); getchar();
    if (memcmp(map, "LOST", 4)) return 2;
    memcpy(map + 100, "LOST-Late-m-000", 15);
    return msync(map, 20000, MS_SYNC);
}
"#;

/// A mapping outlives its file descriptor, its name, and with passthrough even the kernel's word
/// that the file is closed.
#[test]
fn a_mapped_file_waits_for_its_last_user() {
    let _turn = turn();
    let test = "a_mapped_file_waits_for_its_last_user";
    if skip_without_fuse(test) {
        return;
    }
    let Some(image) = Image::new(test, Fs::Ext4) else { return };
    let mounted = Mounted::new(&image, options("clear", false));
    let path = mounted.dir.join("mapped");
    fs::write(&path, fill(LOST, 20_000)).unwrap();
    let (source, program) =
        (image.mount_dir().with_extension("c"), image.mount_dir().join("../map"));
    fs::write(&source, MAPPER).unwrap();
    let built = system("cc", &["-o", program.to_str().unwrap(), source.to_str().unwrap()]);
    if let Err(why) = built {
        eprintln!("SKIPPED: {test}: {why}");
        return;
    }
    let mut child = std::process::Command::new(&program)
        .arg(&path)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    let status = mounted.overlay().status();
    assert_eq!(status["files"], 0, "it is still in use: {status:#}");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    mounted.overlay().finish().unwrap();
    assert_eq!(mounted.overlay().status()["files"], 1);
    mounted.end();
    image.unmount();
    assert_eq!(image.count(LOST) + image.count("LOST-Late-m-"), 0);
}

/// A file that may only be appended to, as protected logs are.
#[test]
fn what_may_only_grow_only_grows() {
    let _turn = turn();
    let test = "what_may_only_grow_only_grows";
    if skip_without_fuse(test) || !rustix::process::geteuid().is_root() {
        return;
    }
    let Some(image) = Image::new(test, Fs::Ext4) else { return };
    for passthrough in [true, false] {
        let options = OverlayOptions { passthrough, ..options("clear", false) };
        let mounted = Mounted::new(&image, options);
        let path = mounted.dir.join(format!("log-{passthrough}"));
        fs::write(&path, "one ").unwrap();
        let mark = |append_only| {
            let file = File::open(&path).unwrap();
            let mut flags = ioctl_getflags(&file).unwrap();
            flags.set(IFlags::APPEND, append_only);
            ioctl_setflags(&file, flags).unwrap();
        };
        mark(true);
        let open = |append, truncate| {
            OpenOptions::new().read(true).write(true).append(append).truncate(truncate).open(&path)
        };
        for (append, truncate) in [(false, false), (false, true)] {
            let refused = open(append, truncate).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EPERM), "{append}, {truncate}");
        }
        let log = open(true, false).unwrap();
        log.write_all_at(b"two ", 0).unwrap();
        // Of no use to who takes it back.
        let flags = rustix::fs::fcntl_getfl(&log).unwrap();
        rustix::fs::fcntl_setfl(&log, flags - OFlags::APPEND).unwrap();
        log.write_all_at(b"three", 0).unwrap();
        // Nor is it changed by a mapping, of which only the kernel would know.
        let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // JUSTIFICATION: there is no safe mapping of a file.
        // SAFETY: the kernel chooses where, and nothing is read or written there.
        #[allow(unsafe_code)]
        let mapped = unsafe { mmap(std::ptr::null_mut(), 4096, access, kind, &log, 0) };
        assert_eq!(mapped.unwrap_err(), Errno::NODEV, "{passthrough}");
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        for flags in [hole, FallocateFlags::ZERO_RANGE] {
            assert_eq!(fallocate(&log, flags, 0, 4), Err(Errno::PERM), "{passthrough}");
        }
        let below = image.dir().join(path.file_name().unwrap());
        for path in [&path, &below] {
            assert_eq!(fs::read_to_string(path).unwrap(), "one two three", "{passthrough}");
        }
        drop(log);
        assert!(fs::remove_file(&path).is_err());
        mark(false);
        open(false, false).unwrap().write_all_at(b"1", 0).unwrap();
        fs::remove_file(&path).unwrap();
        mounted.end();
    }
    image.unmount();
}
