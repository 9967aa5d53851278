//! The POSIX rules, directly over the file system in memory.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use tacita_clock::Simulated;
use tacita_testkit::MemoryFs;
use tacita_vfs::posix::{Caller, OpenMode, RenameMode, SetAttr, SetTime, WriteMode};
use tacita_vfs::{Attr, FileType, Kind, NodeId, Posix, Reserve, Result, Timestamp, XattrMode};

/// Processes outside our view: nobody looks up the groups of one of this machine.
const ROOT_USER: Caller = Caller { uid: 0, gid: 0, pid: 0, umask: 0o022 };
const USER: Caller = Caller { uid: 1000, gid: 100, pid: 0, umask: 0o022 };
const OTHER: Caller = Caller { uid: 2000, gid: 200, pid: 0, umask: 0o022 };
const READ_WRITE: OpenMode = OpenMode { read: true, write: true, append: false, truncate: false };

type Fs = Posix<MemoryFs>;

fn new_fs() -> Fs {
    Posix::new(
        MemoryFs::default(),
        Arc::new(Simulated::ticking(UNIX_EPOCH, Duration::from_secs(1))),
    )
}

fn name(text: &str) -> &OsStr {
    OsStr::new(text)
}

fn file(fs: &Fs, caller: Caller, dir: NodeId, at: &str, mode: u32) -> NodeId {
    let kind = (FileType::File, mode);
    fs.mknod(caller, dir, name(at), kind, 0).unwrap().0
}

fn dir(fs: &Fs, caller: Caller, parent: NodeId, at: &str, mode: u32) -> NodeId {
    fs.mkdir(caller, parent, name(at), mode).unwrap().0
}

fn rename(fs: &Fs, from: (NodeId, &str), to: (NodeId, &str), mode: RenameMode) -> Result<()> {
    let from = (from.0, name(from.1));
    let to = (to.0, name(to.1));
    fs.rename(ROOT_USER, from, to, mode).map(drop)
}

#[track_caller]
fn fails<T>(result: Result<T>, kind: Kind) {
    match result {
        Ok(_) => panic!("expected {kind:?}, but it worked"),
        Err(e) => assert_eq!(e.kind(), kind),
    }
}

#[test]
fn names_are_checked() {
    let fs = new_fs();
    let root = fs.root();
    let long = OsStr::from_bytes(&[b'n'; 256]);
    fails(fs.mkdir(USER, root, long, 0o755), Kind::NameTooLong);
    fails(fs.lookup(root, long), Kind::NameTooLong);
    fails(fs.mkdir(USER, root, name("."), 0o755), Kind::Invalid);
    fails(fs.rmdir(USER, root, name("..")), Kind::NotEmpty);
    let target = OsStr::from_bytes(&[b't'; 4096]);
    fails(fs.symlink(USER, root, name("s"), target), Kind::NameTooLong);
    fails(fs.symlink(USER, root, name("s"), name("")), Kind::NotFound);
}

#[test]
fn new_nodes_follow_umask_and_set_gid_directories() {
    let fs = new_fs();
    let root = fs.root();
    let (_, attr) = fs.mkdir(USER, root, name("d"), 0o777).unwrap();
    assert_eq!((attr.perm, attr.uid, attr.gid), (0o755, 1000, 100));
    let shared = dir(&fs, ROOT_USER, root, "shared", 0o777);
    let set = SetAttr { perm: Some(0o2777), gid: Some(777), ..SetAttr::default() };
    fs.change(ROOT_USER, shared, &set).unwrap();
    let (_, sub) = fs.mkdir(USER, shared, name("sub"), 0o777).unwrap();
    assert_eq!((sub.perm, sub.gid), (0o2755, 777));
    let in_shared = fs.attr(file(&fs, USER, shared, "f", 0o666)).unwrap();
    assert_eq!((in_shared.perm, in_shared.gid), (0o644, 777));
    let (_, link) = fs.symlink(USER, root, name("l"), name("x")).unwrap();
    assert_eq!(link.perm, 0o777);
}

#[test]
fn rename_replaces_only_its_like() {
    let fs = new_fs();
    let root = fs.root();
    let f = file(&fs, USER, root, "f", 0o644);
    let d = dir(&fs, USER, root, "d", 0o755);
    let full = dir(&fs, USER, root, "full", 0o755);
    file(&fs, USER, full, "x", 0o644);
    let plain = RenameMode::Replace;
    fails(rename(&fs, (root, "f"), (root, "d"), plain), Kind::IsDirectory);
    fails(rename(&fs, (root, "d"), (root, "f"), plain), Kind::NotDirectory);
    fails(rename(&fs, (root, "d"), (root, "full"), plain), Kind::NotEmpty);
    fails(rename(&fs, (root, "full"), (root, "no"), RenameMode::Exchange), Kind::NotFound);
    fails(rename(&fs, (root, "f"), (root, "d"), RenameMode::NoReplace), Kind::Exists);
    rename(&fs, (root, "full"), (root, "d"), plain).unwrap();
    assert_eq!(fs.lookup(root, name("d")).unwrap().0, full);
    fails(fs.lookup(root, name("full")), Kind::NotFound);
    assert_eq!(fs.attr(d).unwrap().nlink, 0);
    fs.link(f, root, name("g")).unwrap();
    rename(&fs, (root, "f"), (root, "g"), plain).unwrap();
    assert_eq!(fs.attr(f).unwrap().nlink, 2, "two names of one node stay as they are");
}

#[test]
fn a_directory_cannot_move_beneath_itself() {
    let fs = new_fs();
    let root = fs.root();
    let a = dir(&fs, USER, root, "a", 0o755);
    let b = dir(&fs, USER, a, "b", 0o755);
    let c = dir(&fs, USER, b, "c", 0o755);
    let plain = RenameMode::Replace;
    fails(rename(&fs, (root, "a"), (c, "a"), plain), Kind::Invalid);
    fails(rename(&fs, (root, "a"), (a, "x"), plain), Kind::Invalid);
    fails(rename(&fs, (root, "a"), (b, "c"), RenameMode::Exchange), Kind::Invalid);
    fails(rename(&fs, (b, "c"), (root, "a"), RenameMode::Exchange), Kind::Invalid);
    fails(rename(&fs, (b, "c"), (root, "a"), plain), Kind::NotEmpty);
    rename(&fs, (b, "c"), (root, "c"), plain).unwrap();
    assert_eq!(fs.lookup(c, name("..")).unwrap().0, root);
    assert_eq!(fs.attr(root).unwrap().nlink, 4);
    assert_eq!(fs.attr(b).unwrap().nlink, 2);
}

#[test]
fn exchange_trades_any_two() {
    let fs = new_fs();
    let root = fs.root();
    let f = file(&fs, USER, root, "f", 0o644);
    let d = dir(&fs, USER, root, "d", 0o755);
    let sub = dir(&fs, USER, d, "sub", 0o755);
    rename(&fs, (root, "f"), (d, "sub"), RenameMode::Exchange).unwrap();
    assert_eq!(fs.lookup(root, name("f")).unwrap().0, sub);
    assert_eq!(fs.lookup(d, name("sub")).unwrap().0, f);
    assert_eq!(fs.attr(d).unwrap().nlink, 2);
    assert_eq!(fs.attr(sub).unwrap().nlink, 2);
    assert_eq!(fs.attr(f).unwrap().nlink, 1);
}

#[test]
fn sticky_directories_protect_names() {
    let fs = new_fs();
    let tmp = dir(&fs, ROOT_USER, fs.root(), "tmp", 0o777);
    let sticky = SetAttr { perm: Some(0o1777), ..SetAttr::default() };
    fs.change(ROOT_USER, tmp, &sticky).unwrap();
    file(&fs, USER, tmp, "mine", 0o644);
    file(&fs, OTHER, tmp, "theirs", 0o644);
    dir(&fs, USER, tmp, "dir", 0o755);
    fails(fs.unlink(OTHER, tmp, name("mine")), Kind::NotPermitted);
    fails(fs.rmdir(OTHER, tmp, name("dir")), Kind::NotPermitted);
    let take = |caller, from: &str, to: &str| {
        let from = (tmp, name(from));
        fs.rename(caller, from, (tmp, name(to)), RenameMode::Replace)
    };
    fails(take(OTHER, "mine", "stolen"), Kind::NotPermitted);
    fails(take(OTHER, "theirs", "mine"), Kind::NotPermitted);
    fs.unlink(USER, tmp, name("mine")).unwrap();
    fs.unlink(ROOT_USER, tmp, name("theirs")).unwrap();
}

#[test]
fn names_go_by_the_right_call() {
    let fs = new_fs();
    let root = fs.root();
    let f = file(&fs, USER, root, "f", 0o644);
    let d = dir(&fs, USER, root, "d", 0o755);
    file(&fs, USER, d, "x", 0o644);
    fails(fs.unlink(USER, root, name("d")), Kind::IsDirectory);
    fails(fs.rmdir(USER, root, name("f")), Kind::NotDirectory);
    fails(fs.rmdir(USER, root, name("d")), Kind::NotEmpty);
    fails(fs.link(d, root, name("e")), Kind::NotPermitted);
    fs.unlink(USER, root, name("f")).unwrap();
    fails(fs.link(f, root, name("f")), Kind::NotFound);
    fs.unlink(USER, d, name("x")).unwrap();
    fs.rmdir(USER, root, name("d")).unwrap();
    fails(fs.mkdir(USER, d, name("in-removed"), 0o755), Kind::NotFound);
}

#[test]
fn nameless_nodes_live_until_the_last_reference() {
    let fs = new_fs();
    let root = fs.root();
    let f = file(&fs, USER, root, "f", 0o644);
    let (handle, _) = fs.open(USER, f, READ_WRITE).unwrap();
    fs.write(handle, 0, b"secret", WriteMode::Program(USER)).unwrap();
    fs.unlink(USER, root, name("f")).unwrap();
    let mut buf = [0; 6];
    assert_eq!(fs.read(handle, 0, &mut buf).unwrap(), 6);
    fs.forget(f, 1);
    assert_eq!(fs.file_system().node_count(), 2);
    fs.release(handle).unwrap();
    assert_eq!(fs.file_system().node_count(), 1);
    fails(fs.read(handle, 0, &mut buf), Kind::BadHandle);

    let a = file(&fs, USER, root, "a", 0o644);
    let b = file(&fs, USER, root, "b", 0o644);
    fs.forget(b, 1);
    rename(&fs, (root, "a"), (root, "b"), RenameMode::Replace).unwrap();
    assert_eq!(fs.file_system().node_count(), 2, "nobody referred to the replaced one");
    fs.unlink(USER, root, name("b")).unwrap();
    fs.forget_all();
    assert_eq!(fs.file_system().node_count(), 1);
    fails(fs.attr(a), Kind::Stale);
}

#[test]
fn set_id_bits_fall() {
    let fs = new_fs();
    let root = fs.root();
    let f = file(&fs, USER, root, "f", 0o755);
    let arm = |perm| {
        let set = SetAttr { perm: Some(perm), ..SetAttr::default() };
        fs.change(USER, f, &set).unwrap();
    };
    let perm = || fs.attr(f).unwrap().perm;
    let (handle, _) = fs.open(USER, f, READ_WRITE).unwrap();
    arm(0o6755);
    fs.write(handle, 0, b"x", WriteMode::Privileged).unwrap();
    assert_eq!(perm(), 0o6755);
    fs.write(handle, 0, b"x", WriteMode::Program(USER)).unwrap();
    assert_eq!(perm(), 0o755);
    arm(0o6745);
    fs.write(handle, 0, b"x", WriteMode::Program(USER)).unwrap();
    assert_eq!(perm(), 0o2745, "without group execution it is no set-gid");
    // As on ext4 of kernel 6.18: outside the group it falls all the same, whoever has opened it.
    let (member, outside) = (Caller { gid: USER.gid, ..OTHER }, Caller { gid: OTHER.gid, ..USER });
    fs.write(handle, 0, b"x", WriteMode::Program(member)).unwrap();
    assert_eq!(perm(), 0o2745);
    for caller in [OTHER, outside] {
        arm(0o2745);
        fs.write(handle, 0, b"", WriteMode::Program(caller)).unwrap();
        assert_eq!(perm(), 0o2745, "nothing was written");
        fs.write(handle, 0, b"x", WriteMode::Program(caller)).unwrap();
        assert_eq!(perm(), 0o745);
        arm(0o2745);
        fs.reserve(caller, handle, 0..10, Reserve::Punch).unwrap();
        assert_eq!(perm(), 0o745);
        arm(0o2745);
        fs.copy_range(caller, (handle, 0), (handle, 5), 5).unwrap();
        assert_eq!(perm(), 0o745);
    }
    arm(0o6755);
    let truncate = SetAttr { size: Some(0), ..SetAttr::default() };
    fs.change(ROOT_USER, f, &truncate).unwrap();
    assert_eq!(perm(), 0o6755);
    fs.change(USER, f, &truncate).unwrap();
    assert_eq!(perm(), 0o755);
    arm(0o6755);
    let own = SetAttr { uid: Some(1000), ..SetAttr::default() };
    fs.change(ROOT_USER, f, &own).unwrap();
    assert_eq!(perm(), 0o755, "also when root changes the owner");
    arm(0o4755);
    fs.change(USER, f, &SetAttr::default()).unwrap();
    assert_eq!(perm(), 0o755);
}

/// A file of [`USER`]'s with these bits, and what is left of them after a `chown` to nobody.
fn bits_after_chown_to_nobody(fs: &Fs, caller: Caller, perm: u16) -> Result<u16> {
    let root = fs.root();
    let f = fs
        .lookup(root, name("f"))
        .map_or_else(|_| file(fs, USER, root, "f", 0o755), |(node, _)| node);
    fs.change(USER, f, &SetAttr { perm: Some(perm), ..SetAttr::default() }).unwrap();
    fs.change(caller, f, &SetAttr::default()).map(|attr| attr.perm)
}

/// The kernel decides by what it is shown, which may be another owner and another group.
#[test]
fn set_id_bits_are_given_by_whose_they_are() {
    let fs = new_fs();
    let root = fs.root();
    let f = file(&fs, USER, root, "f", 0o755);
    let given = |caller, perm| fs.perm_to_give(caller, f, perm).unwrap();
    let (member, outside) = (Caller { gid: USER.gid, ..OTHER }, Caller { gid: OTHER.gid, ..USER });
    for (caller, left) in
        [(ROOT_USER, 0o6755), (USER, 0o6755), (member, 0o2755), (outside, 0o4755), (OTHER, 0o755)]
    {
        assert_eq!(given(caller, 0o6755), left, "{caller:?}");
        assert_eq!(given(caller, 0o1755), 0o1755);
    }
    let (dir, _) = fs.mkdir(USER, root, name("d"), 0o777).unwrap();
    let made = |caller, mode| fs.mode_to_give(caller, dir, mode).unwrap();
    assert_eq!(made(OTHER, 0o6755), 0o6755, "it gets the caller's own group");
    fs.change(USER, dir, &SetAttr { perm: Some(0o2777), ..SetAttr::default() }).unwrap();
    for (caller, left) in [(ROOT_USER, 0o6755), (USER, 0o6755), (member, 0o6755), (OTHER, 0o4755)] {
        assert_eq!(made(caller, 0o6755), left, "{caller:?}");
        assert_eq!(made(caller, 0o2745), 0o2745, "without group execution it is no set-gid");
    }
}

/// As on ext4 of kernel 6.18.
#[test]
fn a_chown_to_nobody_drops_set_id_bits_of_ones_own_files_alone() {
    let fs = new_fs();
    let bits = |caller, perm| bits_after_chown_to_nobody(&fs, caller, perm);
    let member = Caller { gid: USER.gid, ..OTHER };
    let outside = Caller { gid: OTHER.gid, ..USER };
    for perm in [0o6777, 0o6755, 0o4777, 0o2755] {
        fails(bits(OTHER, perm), Kind::NotPermitted);
        fails(bits(member, perm), Kind::NotPermitted);
        for caller in [ROOT_USER, USER, outside] {
            assert_eq!(bits(caller, perm).unwrap(), perm & 0o777);
        }
    }
    // Set-gid without execution stays within the group.
    fails(bits(OTHER, 0o2766), Kind::NotPermitted);
    assert_eq!(bits(outside, 0o2766).unwrap(), 0o766);
    for caller in [ROOT_USER, USER, member] {
        assert_eq!(bits(caller, 0o2766).unwrap(), 0o2766);
    }
    assert_eq!(bits(OTHER, 0o777).unwrap(), 0o777, "there is nothing to drop");
    // Whoever is shown as the owner counts as that.
    for (perm, left) in [(0o6777, 0o777), (0o2766, 0o766)] {
        fails(bits(OTHER, perm), Kind::NotPermitted);
        let (f, _) = fs.lookup(fs.root(), name("f")).unwrap();
        assert_eq!(fs.change_as_owner(OTHER, f, &SetAttr::default()).unwrap().perm, left);
    }
    // Where the kernel keeps the ctime it says so; nothing of that is a write.
    let (f, _) = fs.lookup(fs.root(), name("f")).unwrap();
    let ctime = SetAttr { ctime: Some(UNIX_EPOCH.into()), ..SetAttr::default() };
    let (handle, _) = fs.open(OTHER, f, READ_WRITE).unwrap();
    fs.change(USER, f, &SetAttr { perm: Some(0o4755), ..SetAttr::default() }).unwrap();
    fails(fs.change(OTHER, f, &ctime), Kind::NotPermitted);
    assert_eq!(fs.change(USER, f, &ctime).unwrap().perm, 0o755);
    fs.release(handle).unwrap();
}

#[test]
fn whoever_is_about_to_write_drops_set_id_bits() {
    let fs = new_fs();
    let bits = |caller, perm| bits_after_chown_to_nobody(&fs, caller, perm).unwrap();
    let f = file(&fs, USER, fs.root(), "f", 0o755);
    let third = Caller { uid: 3000, ..OTHER };
    let (reading, _) = fs.open(third, f, OpenMode { read: true, ..OpenMode::default() }).unwrap();
    fails(bits_after_chown_to_nobody(&fs, third, 0o6777), Kind::NotPermitted);
    let (handle, _) = fs.open(OTHER, f, READ_WRITE).unwrap();
    assert_eq!(bits(OTHER, 0o6777), 0o777);
    assert_eq!(bits(OTHER, 0o2766), 0o766, "nor does it stay outside the group");
    assert_eq!(bits(third, 0o6777), 0o6777, "it may have been handed to them: the write tells");
    fs.release(handle).unwrap();
    fails(bits_after_chown_to_nobody(&fs, OTHER, 0o6777), Kind::NotPermitted);
    fs.release(reading).unwrap();
    let truncate = SetAttr { size: Some(0), ..SetAttr::default() };
    fs.change(USER, f, &SetAttr { perm: Some(0o2766), ..SetAttr::default() }).unwrap();
    let member = Caller { gid: USER.gid, ..OTHER };
    assert_eq!(fs.change(member, f, &truncate).unwrap().perm, 0o2766);
    assert_eq!(fs.change(OTHER, f, &truncate).unwrap().perm, 0o766);
}

/// Which times differ, as in "amc".
fn changed(before: &Attr, after: &Attr) -> String {
    let mut times = String::new();
    for (letter, was, is) in [
        ('a', before.atime, after.atime),
        ('m', before.mtime, after.mtime),
        ('c', before.ctime, after.ctime),
    ] {
        if was != is {
            times.push(letter);
        }
    }
    times
}

/// Checks which times of the file and of the root an operation changes.
#[track_caller]
fn stamps(fs: &Fs, file: NodeId, of_file: &str, of_root: &str, act: impl FnOnce()) {
    let (file_before, root_before) = (fs.attr(file).unwrap(), fs.attr(fs.root()).unwrap());
    act();
    let file = changed(&file_before, &fs.attr(file).unwrap());
    let root = changed(&root_before, &fs.attr(fs.root()).unwrap());
    assert_eq!((&*file, &*root), (of_file, of_root));
}

#[test]
fn content_stamps_its_times() {
    let fs = new_fs();
    let f = file(&fs, USER, fs.root(), "f", 0o644);
    let (handle, _) = fs.open(USER, f, READ_WRITE).unwrap();
    let write = |data: &[u8], mode| {
        fs.write(handle, 0, data, mode).unwrap();
    };
    stamps(&fs, f, "mc", "", || write(b"abc", WriteMode::Program(USER)));
    stamps(&fs, f, "", "", || write(b"", WriteMode::Program(USER)));
    stamps(&fs, f, "", "", || write(b"abc", WriteMode::UnstampedPages));
    stamps(&fs, f, "", "", || {
        fs.read(handle, 0, &mut [0; 3]).unwrap();
    });
    stamps(&fs, f, "mc", "", || {
        let how = Reserve::Allocate { keep_size: true };
        fs.reserve(USER, handle, 0..10, how).unwrap();
    });
}

fn apply(fs: &Fs, node: NodeId, set: &SetAttr) {
    fs.change(USER, node, set).unwrap();
}

#[test]
fn attributes_stamp_their_times() {
    let fs = new_fs();
    let f = file(&fs, USER, fs.root(), "f", 0o644);
    let set = SetAttr { size: Some(0), ..SetAttr::default() };
    stamps(&fs, f, "mc", "", || apply(&fs, f, &set));
    let set = SetAttr { perm: Some(0o600), ..SetAttr::default() };
    stamps(&fs, f, "c", "", || apply(&fs, f, &set));
    let set = SetAttr { atime: Some(SetTime::Now), ..SetAttr::default() };
    stamps(&fs, f, "ac", "", || apply(&fs, f, &set));
    stamps(&fs, f, "c", "", || {
        let key = name("user.a");
        fs.set_xattr(USER, f, key, b"v", XattrMode::Any).unwrap();
    });
    let time = Timestamp { secs: -5, nanos: 1 };
    let set = SetAttr { mtime: Some(SetTime::At(time)), ..SetAttr::default() };
    stamps(&fs, f, "mc", "", || apply(&fs, f, &set));
    assert_eq!(fs.attr(f).unwrap().mtime, time);
}

#[test]
fn names_stamp_their_times() {
    let fs = new_fs();
    let root = fs.root();
    let f = file(&fs, USER, root, "f", 0o644);
    stamps(&fs, f, "c", "mc", || {
        fs.link(f, root, name("g")).unwrap();
    });
    stamps(&fs, f, "c", "mc", || {
        rename(&fs, (root, "g"), (root, "h"), RenameMode::Replace).unwrap();
    });
    stamps(&fs, f, "c", "mc", || {
        fs.unlink(USER, root, name("h")).unwrap();
    });
    stamps(&fs, f, "", "mc", || {
        dir(&fs, USER, root, "d", 0o755);
    });
}

#[test]
fn appending_goes_to_the_end() {
    let fs = new_fs();
    let f = file(&fs, USER, fs.root(), "f", 0o644);
    let append = OpenMode { append: true, ..READ_WRITE };
    let (one, _) = fs.open(USER, f, append).unwrap();
    let (two, _) = fs.open(USER, f, append).unwrap();
    std::thread::scope(|scope| {
        for handle in [one, two] {
            let fs = &fs;
            scope.spawn(move || {
                for _ in 0..500 {
                    fs.write(handle, 0, b"0123456789", WriteMode::Program(USER)).unwrap();
                }
            });
        }
    });
    assert_eq!(fs.attr(f).unwrap().size, 10_000);
    assert_eq!(fs.write(one, 3, b"ab", WriteMode::Pages).unwrap(), 3);
    assert_eq!(fs.attr(f).unwrap().size, 10_000, "pages go where they belong");
}

#[test]
fn sizes_and_ranges_have_limits() {
    let fs = new_fs();
    let root = fs.root();
    let f = file(&fs, USER, root, "f", 0o644);
    let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    let max = i64::MAX.unsigned_abs();
    fails(fs.change(USER, f, &size(max + 1)), Kind::FileTooBig);
    fails(fs.change(USER, root, &size(0)), Kind::IsDirectory);
    let (h, _) = fs.open(USER, f, READ_WRITE).unwrap();
    fails(fs.write(h, max, b"x", WriteMode::Program(USER)), Kind::FileTooBig);
    fails(fs.reserve(USER, h, 5..5, Reserve::Punch), Kind::Invalid);
    fails(fs.reserve(USER, h, 0..1, Reserve::Collapse), Kind::Invalid);
    fs.write(h, 0, b"abcdef", WriteMode::Program(USER)).unwrap();
    fails(fs.copy_range(USER, (h, 0), (h, 3), 6), Kind::Invalid);
    assert_eq!(fs.copy_range(USER, (h, 0), (h, 6), 3).unwrap(), 3);
    assert_eq!(fs.copy_range(USER, (h, 100), (h, 0), 3).unwrap(), 0);
    let read_only = OpenMode { write: false, ..READ_WRITE };
    let (r, _) = fs.open(USER, f, read_only).unwrap();
    fails(fs.write(r, 0, b"x", WriteMode::Program(USER)), Kind::BadHandle);
    fails(fs.opendir(f), Kind::NotDirectory);
    fails(fs.open(USER, root, read_only), Kind::IsDirectory);
}

#[test]
fn listing_goes_on_where_it_stopped() {
    let fs = new_fs();
    let root = fs.root();
    for at in 0..10 {
        file(&fs, USER, root, &format!("f{at}"), 0o644);
    }
    let handle = fs.opendir(root).unwrap();
    let mut names = Vec::new();
    let mut from = 0;
    loop {
        let before = names.len();
        fs.list(handle, from, &mut |entry| {
            names.push(entry.name.to_owned());
            from = entry.cookie;
            names.len() < before + 3
        })
        .unwrap();
        if names.len() == before {
            break;
        }
        // Deleting what was listed does not disturb what follows.
        let last = names.last().unwrap();
        if last.as_bytes().starts_with(b"f") {
            fs.unlink(USER, root, last).unwrap();
        }
    }
    assert_eq!(names.len(), 12);
    assert_eq!(&names[..2], [".", ".."]);
}

#[test]
fn extended_attributes_have_limits() {
    let fs = new_fs();
    let f = file(&fs, USER, fs.root(), "f", 0o644);
    let set = |key: &str, value: &[u8], mode| fs.set_xattr(USER, f, name(key), value, mode);
    for space in ["user.", "trusted.", "security."] {
        fails(set(space, b"", XattrMode::Any), Kind::Invalid);
        fails(fs.xattr(f, name(space)), Kind::Invalid);
        fails(fs.remove_xattr(f, name(space)), Kind::Invalid);
    }
    fails(set("user", b"", XattrMode::Any), Kind::Unsupported);
    fails(set("system.posix_acl_access", b"", XattrMode::Any), Kind::Unsupported);
    fails(set(&format!("user.{}", "n".repeat(251)), b"", XattrMode::Any), Kind::Range);
    fails(set("user.a", &vec![0; 65537], XattrMode::Any), Kind::TooLarge);
    fails(set("user.a", b"1", XattrMode::Replace), Kind::NoAttribute);
    set("user.a", &vec![0; 65536], XattrMode::Create).unwrap();
    fails(set("user.a", b"1", XattrMode::Create), Kind::Exists);
    fs.remove_xattr(f, name("user.a")).unwrap();
    fails(fs.xattr(f, name("user.a")), Kind::NoAttribute);
}

#[test]
fn users_are_not_told_the_names_of_trusted_attributes() {
    let fs = new_fs();
    let f = file(&fs, USER, fs.root(), "f", 0o644);
    for key in ["security.a", "trusted.a", "user.a"] {
        fs.set_xattr(USER, f, name(key), b"1", XattrMode::Any).unwrap();
    }
    let told = |caller| fs.xattrs_for(caller, f).unwrap();
    assert_eq!(told(ROOT_USER), ["security.a", "trusted.a", "user.a"]);
    assert_eq!(told(USER), ["security.a", "user.a"]);
}
