//! Room that is kept for root: other users of a mount get none of it, though the daemon is root.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::statvfs;
use tacita_purge::OverlayOptions;
use tacita_testkit::skip_without_fuse;

use crate::image::{Fs, Image, turn};
use crate::overlay::{Mounted, options};

/// What another user does until there is no room for it, in a folder of theirs.
const FILLINGS: [(&str, &str); 6] = [
    ("write", "head -c 60M /dev/zero > file"),
    ("append", "for n in $(seq 40); do head -c 1M /dev/zero >> file || exit 1; done"),
    ("direct", "dd if=/dev/zero of=file bs=256k oflag=direct status=none"),
    (
        "reserve",
        "fallocate -l 60M file || { n=0; while fallocate -o ${n}K -l 64K file; do \
      n=$((n + 64)); done; exit 1; }",
    ),
    (
        "map",
        "python3 -c 'import mmap\nf = open(\"file\", \"w+b\")\nf.truncate(60 << 20)\n\
      m = mmap.mmap(f.fileno(), 0)\nfor n in range(0, 60 << 20, 4096): m[n] = 1\nm.flush()'",
    ),
    ("root's", "head -c 60M /dev/zero >> ../shared"),
];

/// Then they make folders, and names in them.
const SMALL: &str = "for n in $(seq 400); do mkdir d$n || break; done; d=$(printf %0240d 0); \
                     for n in $(seq 2000); do ln -s $d$d $d-$n || break; done; :";

fn as_nobody(dir: &Path, script: &str) -> bool {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script]);
    let done = command.current_dir(dir).env("LC_ALL", "C").output().unwrap();
    done.status.success()
}

/// How much of the kept room is free, and is to be.
fn kept(dir: &Path) -> (u64, u64) {
    let stat = statvfs(dir).unwrap();
    ((stat.f_bfree * stat.f_frsize) >> 10, (stat.f_bavail * stat.f_frsize) >> 10)
}

#[test]
fn room_kept_for_root_is_not_for_others() {
    let _turn = turn();
    let test = "room_kept_for_root_is_not_for_others";
    if skip_without_fuse(test) {
        return;
    }
    for passthrough in [true, false] {
        for (way, script) in FILLINGS {
            let Some(image) = Image::new(test, Fs::Ext4Reserved) else { return };
            let case = format!("{way}, passthrough {passthrough}");
            let (free, available) = kept(&image.dir());
            let reserved = free - available;
            assert!(reserved > 4 << 10, "{reserved} KiB");
            let options = OverlayOptions { passthrough, ..options("clear", false) };
            let mounted = Mounted::new(&image, options);
            let theirs = mounted.dir.join("theirs");
            fs::create_dir(&theirs).unwrap();
            std::os::unix::fs::chown(&theirs, Some(65534), Some(65534)).unwrap();
            // Root has it open, too, and others may write to it.
            let shared = File::create(mounted.dir.join("shared")).unwrap();
            shared.set_permissions(Permissions::from_mode(0o666)).unwrap();
            let held = File::create(mounted.dir.join("held")).unwrap();
            let filled = as_nobody(&theirs, script);
            assert!(!filled, "{case}: the file system was not full");
            assert!(as_nobody(&theirs, SMALL));
            rustix::fs::syncfs(File::open(image.dir()).unwrap()).unwrap();
            let (free, available) = kept(&image.dir());
            assert!(available < 512, "{case}: {available} KiB are left, so nothing was filled");
            assert!(free + 64 >= reserved, "{case}: {free} KiB free of {reserved} kept for root");
            // Root goes on, by what it opens now.
            drop((shared, held));
            let mut own = File::create(mounted.dir.join("own")).unwrap();
            own.write_all(&vec![1; 2 << 20]).unwrap();
            own.sync_all().unwrap();
            // They get nothing of it by a file that root has opened so.
            own.set_permissions(Permissions::from_mode(0o666)).unwrap();
            assert!(!as_nobody(&theirs, "head -c 1M /dev/zero >> ../own"), "{case}: root's file");
            drop(own);
            fs::remove_file(mounted.dir.join("own")).unwrap();
            assert!(as_nobody(&theirs, "rm -rf ./*"), "{case}: deleting goes on");
            mounted.end();
        }
    }
}

/// Without acting for its callers the daemon gives them root's room.
#[test]
fn room_taken_on_the_account_of_root_is_caught() {
    let _turn = turn();
    let test = "room_taken_on_the_account_of_root_is_caught";
    if skip_without_fuse(test) {
        return;
    }
    for passthrough in [true, false] {
        let Some(image) = Image::new(test, Fs::Ext4Reserved) else { return };
        let (free, available) = kept(&image.dir());
        let reserved = free - available;
        let options = OverlayOptions { passthrough, ..options("clear", false) };
        let mounted = Mounted::by_root_alone(&image, options);
        fs::set_permissions(&mounted.dir, Permissions::from_mode(0o777)).unwrap();
        assert!(!as_nobody(&mounted.dir, FILLINGS[0].1));
        let (free, _) = kept(&image.dir());
        mounted.end();
        assert!(
            free < reserved / 2,
            "passthrough {passthrough}: {free} KiB of {reserved} are left"
        );
    }
}
