//! Access control lists: whoever may do something in LOWER may do it in the mount, and nobody else.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};

use crate::image::{Image, code, said};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// A user whom a list names, a group that a file has, and a user of neither.
const NAMED: (u32, u32) = (61500, 61500);
const MEMBER: (u32, u32) = (61600, 61234);
const OTHER: (u32, u32) = (61700, 61700);

/// A list by which the user that is named may do this, the group that, and others nothing.
fn list(named: u16, group: u16) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let entries = [
        (1_u16, 6_u16, NOBODY),
        (2, named, NAMED.0),
        (4, group, NOBODY),
        (0x10, named | group, NOBODY),
        (0x20, 0, NOBODY),
    ];
    let entry = |(tag, bits, id): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    [2_u32.to_le_bytes().to_vec(), entries.map(entry).concat()].concat()
}

fn value(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 256];
    let len = getxattr(path, name, &mut value[..]).ok()?;
    value.truncate(len);
    Some(value)
}

/// Whether a user can do that by a shell.
fn can((uid, gid): (u32, u32), what: &str, path: &Path) -> bool {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("umask 027; {what} \"$0\""), path.to_str().unwrap()]);
    shell.uid(uid).gid(gid).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    shell.status().unwrap().success()
}

/// An image whose folders every user reaches: only root can be several.
fn seen_by_all(test: &str) -> Option<Image> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: {test}: needs root");
        return None;
    }
    let image = Image::new(test)?;
    for dir in [image.folder.path(), &image.lower()] {
        fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
    }
    Some(image)
}

#[test]
fn the_mount_obeys_the_lists_of_lower() {
    let Some(image) = seen_by_all("the_mount_obeys_the_lists_of_lower") else { return };
    let (lower, upper) = (image.lower(), image.upper());
    // Its bits show 6 for the group, which may only read.
    fs::write(lower.join("file"), "x").unwrap();
    chown(lower.join("file"), None, Some(MEMBER.1)).unwrap();
    setxattr(lower.join("file"), ACCESS, &list(6, 4), XattrFlags::empty()).unwrap();
    fs::create_dir(lower.join("folder")).unwrap();
    chown(lower.join("folder"), None, Some(MEMBER.1)).unwrap();
    for name in [ACCESS, DEFAULT] {
        setxattr(lower.join("folder"), name, &list(7, 7), XattrFlags::empty()).unwrap();
    }
    let mounted = image.purge_mount(&["-o", "allow_other"]);
    assert_eq!(code(&mounted), 0, "{}", said(&mounted));
    for user in [NAMED, MEMBER, OTHER] {
        for what in ["cat", "echo y >>", "test -x"] {
            let allowed = [&lower, &upper].map(|dir| can(user, what, &dir.join("file")));
            assert_eq!(allowed[0], allowed[1], "{user:?}: {what}");
        }
    }
    assert!(can(NAMED, "echo y >>", &upper.join("file")));
    // What is made is as if it had been made below: with the folder's list, not the umask.
    for (make, name) in
        [("touch", "new"), ("mkdir", "dir"), ("mkfifo", "pipe"), ("ln -s x", "link")]
    {
        let made = [&lower, &upper].map(|dir| {
            let path = dir.join("folder").join(name);
            assert!(can(NAMED, make, &path), "{make} {}", path.display());
            let meta = fs::symlink_metadata(&path).unwrap();
            let lists = [ACCESS, DEFAULT].map(|list| (name != "link").then(|| value(&path, list)));
            let seen = (meta.mode(), meta.uid(), meta.gid(), lists);
            assert!(can(NAMED, "rm -r", &path));
            seen
        });
        assert_eq!(made[0], made[1], "{make}");
        assert!(name == "link" || made[0].3[0] != Some(None), "{make}: {made:?}");
    }
    // Beside such a folder the umask counts.
    let path = upper.join("plain");
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
    assert!(can(OTHER, "touch", &path.join("new")));
    assert_eq!(fs::metadata(path.join("new")).unwrap().mode() & 0o777, 0o640);
    // A list that is set, changed and removed in the mount is so below.
    let (path, below) = (upper.join("file"), lower.join("file"));
    setxattr(&path, ACCESS, &list(0, 6), XattrFlags::empty()).unwrap();
    assert_eq!((value(&path, ACCESS), value(&below, ACCESS)), (Some(list(0, 6)), Some(list(0, 6))));
    assert!(!can(NAMED, "cat", &path) && can(MEMBER, "echo y >>", &path));
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    assert!(!can(MEMBER, "echo y >>", &path) && can(MEMBER, "cat", &path));
    removexattr(&path, ACCESS).unwrap();
    assert_eq!((value(&path, ACCESS), value(&below, ACCESS)), (None, None));
    assert_eq!(code(&image.umount()), 0);
    // Bits that are shown in place of a file's own are all that counts.
    setxattr(&below, ACCESS, &list(6, 6), XattrFlags::empty()).unwrap();
    let mounted = image.purge_mount(&["-o", "allow_other,gid=61234,umask=027"]);
    assert_eq!(code(&mounted), 0, "{}", said(&mounted));
    assert!(!can(NAMED, "cat", &path) && can(MEMBER, "cat", &path));
    assert!(!can(MEMBER, "echo y >>", &path));
    assert_eq!(code(&image.umount()), 0);
}

/// A command of the other user in a folder.
fn by_other(dir: &Path, what: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-c", what]).current_dir(dir).uid(OTHER.0).gid(OTHER.1).stdin(Stdio::null());
    assert!(shell.status().unwrap().success(), "{what}");
}

/// Something that a user does.
fn as_user<T: Send>((uid, gid): (u32, u32), act: impl FnOnce() -> T + Send) -> T {
    use rustix::process::{Gid, Uid};
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    let act = || {
        set_thread_groups(&[]).unwrap();
        set_thread_res_gid(None::<Gid>, Some(Gid::from_raw(gid)), None::<Gid>).unwrap();
        set_thread_res_uid(None::<Uid>, Some(Uid::from_raw(uid)), None::<Uid>).unwrap();
        act()
    };
    std::thread::scope(|scope| scope.spawn(act).join().unwrap())
}

/// Set-id bits that are given in the mount count below, where owner and group are others than are shown.
#[test]
fn who_is_shown_as_the_owner_lends_nobody_s_rights() {
    let Some(image) = seen_by_all("who_is_shown_as_the_owner_lends_nobody_s_rights") else {
        return;
    };
    let (lower, upper) = (image.lower(), image.upper());
    let handing = lower.join("handing");
    fs::create_dir(&handing).unwrap();
    fs::set_permissions(&handing, Permissions::from_mode(0o3777)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    let (root_s, own) = (lower.join("root-s"), lower.join("own"));
    let (uid, gid) = (format!("uid={}", OTHER.0), format!("gid={}", OTHER.1));
    let all = [
        uid.clone(),
        gid.clone(),
        "umask=000".to_owned(),
        format!("{gid},umask=000"),
        String::new(),
    ];
    for options in all {
        for (path, owner) in [(&root_s, 0), (&own, OTHER.0)] {
            fs::write(path, "").unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
            chown(path, Some(owner), Some(0)).unwrap();
        }
        let mounted = image.purge_mount(&["-o", &format!("allow_other,{options}")]);
        assert_eq!(code(&mounted), 0, "{}", said(&mounted));
        if options == uid {
            by_other(&upper, "echo x > root-s && chmod 6755 root-s");
        }
        by_other(&upper, "chmod 6755 own");
        as_user(OTHER, || {
            let mut file = File::options();
            file.write(true).create_new(true).mode(0o6755).open(upper.join("handing/new")).unwrap();
        });
        assert_eq!(code(&image.umount()), 0);
        let new = handing.join("new");
        assert_eq!(fs::metadata(&new).unwrap().gid(), 0, "{options}");
        let modes = [&root_s, &own, &new].map(|path| format!("{:o}", mode(path)));
        assert_eq!(modes, ["755", "4755", "4755"], "{options}");
        fs::remove_file(new).unwrap();
    }
}

/// An owner who is not in the group takes set-group-id away by setting a list, as below.
#[test]
fn who_sets_a_list_lends_no_group_s_rights() {
    let Some(image) = seen_by_all("who_sets_a_list_lends_no_group_s_rights") else { return };
    let (lower, upper) = (image.lower(), image.upper());
    let mounted = image.purge_mount(&["-o", "allow_other"]);
    assert_eq!(code(&mounted), 0, "{}", said(&mounted));
    for (group, is_dir) in [(MEMBER.1, false), (OTHER.1, false), (MEMBER.1, true)] {
        let modes = ["below", "in the mount"].map(|name| {
            let dir = if name == "below" { &lower } else { &upper };
            let name = format!("{name} {group} {is_dir}");
            let path = lower.join(&name);
            if is_dir {
                fs::create_dir(&path).unwrap();
            } else {
                fs::write(&path, "").unwrap();
            }
            chown(&path, Some(OTHER.0), Some(group)).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o2750)).unwrap();
            // The kernel may know the file already.
            let seen = dir.join(&name);
            assert_eq!(fs::metadata(&seen).unwrap().mode() & 0o7777, 0o2750);
            as_user(OTHER, || setxattr(&seen, ACCESS, &list(4, 5), XattrFlags::empty()).unwrap());
            let modes = [&path, &seen].map(|path| fs::metadata(path).unwrap().mode() & 0o7777);
            assert_eq!(modes[0], modes[1], "{name}");
            modes[0]
        });
        assert_eq!(modes[0], modes[1], "{group} {is_dir}: {modes:?}");
        assert_eq!(modes[0] & 0o2000 != 0, group == OTHER.1);
    }
    assert_eq!(code(&image.umount()), 0);
}

/// Who writes to a file that its owner has made set-user-id meanwhile takes that away, whatever bits are shown.
#[test]
fn who_had_it_open_lends_nobody_s_rights() {
    let Some(image) = seen_by_all("who_had_it_open_lends_nobody_s_rights") else { return };
    let (below, upper) = (image.lower().join("file"), image.upper());
    fs::write(&below, "").unwrap();
    chown(&below, Some(OTHER.0), Some(OTHER.1)).unwrap();
    for options in ["allow_other", "allow_other,umask=000"] {
        fs::set_permissions(&below, Permissions::from_mode(0o777)).unwrap();
        let mounted = image.purge_mount(&["-o", options]);
        assert_eq!(code(&mounted), 0, "{}", said(&mounted));
        let open = || File::options().append(true).open(upper.join("file")).unwrap();
        let mut file = as_user(NAMED, open);
        as_user(OTHER, || {
            fs::set_permissions(upper.join("file"), Permissions::from_mode(0o4777)).unwrap();
        });
        assert_eq!(fs::metadata(&below).unwrap().mode() & 0o7777, 0o4777, "{options}");
        as_user(NAMED, || file.write_all(b"x").unwrap());
        assert_eq!(fs::metadata(&below).unwrap().mode() & 0o7777, 0o777, "{options}");
        drop(file);
        assert_eq!(code(&image.umount()), 0);
    }
}
