//! What the place keeps where a medium lies: the file system around it, and the disk below.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::SeekFrom;
use tacita_daemon::{Mount, mounts};

use super::Finding;
use super::machine::Machine;
use crate::hifs;
use crate::output::shown_name;

/// File systems that overwrite in place, as far as nobody makes snapshots or copies by reference.
const OVERWRITING: [&str; 12] = [
    "ext2",
    "ext3",
    "ext4",
    "xfs",
    "jfs",
    "vfat",
    "msdos",
    "exfat",
    "ntfs3",
    "tmpfs",
    "ramfs",
    "fuse.tacita-hifs",
];
/// File systems that write elsewhere and keep what was there.
const COPYING: [&str; 9] = [
    "btrfs",
    "zfs",
    "bcachefs",
    "f2fs",
    "nilfs2",
    "overlay",
    "ubifs",
    "jffs2",
    "fuse.tacita-dnefs",
];
/// File systems of others.
const FAR: [&str; 8] = ["nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph", "fuse.sshfs"];

/// Places below one another that are looked at, as that of a loop device's file is below what lies on it.
const PLACES_MAX: usize = 8;

pub(super) fn findings(machine: &Machine, medium: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut place = medium.to_owned();
    let mut above = String::new();
    for _ in 0..PLACES_MAX {
        let (found, device) = findings_at(machine, &place);
        findings.extend(found.into_iter().map(|it| it.below(&above)));
        let Some(file) = device.as_ref().and_then(|device| machine.behind(device)) else { break };
        above = device.unwrap_or_default();
        place = file;
    }
    findings.extend(holes(machine, medium));
    findings
}

/// Of one place, and the device that it is or lies on.
fn findings_at(machine: &Machine, medium: &Path) -> (Vec<Finding>, Option<String>) {
    // Of a loop device the disk is what its file lies on.
    let disk = |device: &str| match machine.behind(device) {
        Some(_) => None,
        None => Some(flash(machine, device)),
    };
    // A device has no file system around it; what is in /dev/shm has.
    if medium.starts_with("/dev") && !medium.starts_with("/dev/shm") {
        let device = medium.to_string_lossy().into_owned();
        return (disk(&device).into_iter().collect(), Some(device));
    }
    let Some(mounted) = around(machine, medium) else {
        return (vec![Finding::unknown("file system", "the mount table does not tell")], None);
    };
    let device = mounted.source.to_string_lossy().into_owned();
    let mut findings: Vec<Finding> = disk(&device).into_iter().collect();
    findings.extend([
        file_system(&mounted),
        discards(machine, &mounted),
        journal(&mounted),
        access_times(&mounted),
        snapshots(medium),
    ]);
    findings.extend(attributes(&mounted).filter(|_| medium.is_dir()));
    (findings, Some(device))
}

/// Of an image, whether its file has all its room: where it has none yet, nothing was ever written.
fn holes(machine: &Machine, medium: &Path) -> Option<Finding> {
    const WHAT: &str = "holes";
    let image = machine.behind(&medium.to_string_lossy()).unwrap_or_else(|| medium.to_owned());
    if !image.is_file() || !hifs::has_superblock(&image) {
        return None;
    }
    let file = File::open(&image).ok()?;
    tacita_block::keep_access_time(&file);
    let len_bytes = file.metadata().ok()?.len();
    Some(match rustix::fs::seek(&file, SeekFrom::Hole(0)) {
        Ok(hole) if hole < len_bytes => Finding::leaks(
            WHAT,
            "the image has some: which of its blocks were ever written can be told from the others",
            "copy it by `cp --sparse=never`, use the copy, and remove this one",
        ),
        Ok(_) => Finding::fine(WHAT, "the image has none"),
        Err(e) => Finding::unknown(WHAT, format!("the image does not tell: {e}")),
    })
}

/// The file system that keeps what a path names, below what purge shows of a folder in its own place.
fn around(machine: &Machine, path: &Path) -> Option<Mount> {
    let shows_itself =
        |it: &Mount| it.kind == "fuse.tacita-purge" && Path::new(&it.source) == it.place;
    nearest(machine, path, |mounted| !shows_itself(mounted))
}

/// The longest place that is above a path, the last of them, of those mounts that count.
fn nearest(machine: &Machine, path: &Path, counts: impl Fn(&Mount) -> bool) -> Option<Mount> {
    let table = fs::read(machine.path("/proc/self/mountinfo")).ok()?;
    let above = mounts(&table).filter(|mounted| path.starts_with(&mounted.place));
    above.filter(counts).max_by_key(|mounted| mounted.place.as_os_str().len())
}

/// Where the file system is mounted that a path is in.
pub(super) fn mount_point(machine: &Machine, path: &Path) -> Option<PathBuf> {
    Some(nearest(machine, path, |_| true)?.place)
}

/// Those of the mount, and those of the file system.
fn options(mounted: &Mount) -> impl Iterator<Item = &str> {
    mounted.options.split(',').chain(mounted.options_of_all.split(','))
}

fn flash(machine: &Machine, device: &str) -> Finding {
    const WHAT: &str = "disk";
    match machine.is_flash(device) {
        Some(false) if machine.is_virtual_disk(device) => Finding::unknown(
            WHAT,
            format!("{device} is virtual: whether its host keeps copies can only be seen there"),
        ),
        Some(false) => Finding::fine(WHAT, format!("{device} rotates, and overwrites in place")),
        Some(true) => Finding::leaks(
            WHAT,
            format!("{device} does not rotate: flash writes elsewhere, and keeps what was there"),
            "encrypt all of it, and destroy the key in the end; or use `tacita dnefs` on raw flash",
        ),
        None => Finding::unknown(WHAT, format!("{device}: what kind of disk it is cannot be seen")),
    }
}

fn file_system(mounted: &Mount) -> Finding {
    const WHAT: &str = "file system";
    let kind = &mounted.kind;
    if COPYING.contains(&&kind[..]) {
        let seen = format!("{kind} writes to new places and keeps old ones, snapshots too");
        return Finding::leaks(WHAT, seen, "put it on ext4 or xfs, or on a device of its own");
    }
    if FAR.contains(&&kind[..]) {
        let seen = format!("{kind} is kept by another machine, which may keep every version");
        return Finding::leaks(WHAT, seen, "put it on a disk of this machine");
    }
    if OVERWRITING.contains(&&kind[..]) {
        return Finding::fine(WHAT, format!("{kind} overwrites in place"));
    }
    Finding::unknown(WHAT, format!("whether {kind} overwrites in place is not known here"))
}

fn discards(machine: &Machine, mounted: &Mount) -> Finding {
    const WHAT: &str = "discards";
    let timer = machine.path("/etc/systemd/system/timers.target.wants/fstrim.timer");
    // btrfs has `discard=async` without being asked.
    let is_discard = |option: &str| option == "discard" || option.starts_with("discard=");
    let by = if options(mounted).any(is_discard) {
        "the mount option discard"
    } else if mounted.source.as_bytes().starts_with(b"/") && timer.symlink_metadata().is_ok() {
        "fstrim.timer"
    } else {
        return Finding::fine(WHAT, "none that tell which blocks are free");
    };
    Finding::leaks(
        WHAT,
        format!("{by} tells the disk which blocks are free, and whoever reads it which are zero"),
        "mount it with nodiscard, disable fstrim.timer, or accept that free space can be told from used",
    )
}

fn journal(mounted: &Mount) -> Finding {
    const WHAT: &str = "journal";
    if options(mounted).any(|option| option == "data=journal") {
        return Finding::leaks(
            WHAT,
            "data=journal: content passes through the journal, and stays there for a while",
            "mount it with data=ordered",
        );
    }
    Finding::fine(WHAT, "content does not pass through it")
}

/// What ext4 leaves of attributes, where files lie in a folder of it.
fn attributes(mounted: &Mount) -> Option<Finding> {
    const WHAT: &str = "attributes";
    if !matches!(&mounted.kind[..], "ext2" | "ext3" | "ext4") {
        return None;
    }
    if options(mounted).any(|option| matches!(option, "nombcache" | "no_mbcache")) {
        return Some(Finding::fine(WHAT, "each file has a block of its own for them"));
    }
    Some(Finding::leaks(
        WHAT,
        "files with the same ones have one block, and a copy of their values may be freed as it is",
        "mount the file system with nombcache, if attributes of files hold what is to go",
    ))
}

fn access_times(mounted: &Mount) -> Finding {
    const WHAT: &str = "access times";
    if options(mounted).any(|option| option == "noatime") {
        return Finding::fine(WHAT, "they are not kept");
    }
    Finding::leaks(WHAT, "they tell when it was read last", "mount the file system with noatime")
}

/// Snapshots and copies that are made beside.
fn snapshots(medium: &Path) -> Finding {
    const WHAT: &str = "snapshots";
    const NAMES: [&str; 4] = [".snapshots", ".zfs", ".snapshot", "timeshift"];
    let all = medium.ancestors().flat_map(|above| NAMES.map(|name| above.join(name)));
    let found: Vec<String> =
        all.filter(|path| path.is_dir()).map(|path| shown_name(&path)).collect();
    if found.is_empty() {
        return Finding::fine(WHAT, "no folder of them above");
    }
    Finding::leaks(
        WHAT,
        format!("{} may hold earlier versions", found.join(", ")),
        "leave it out of snapshots, and delete those that have it",
    )
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::super::machine::tests::{leaks, machine};
    use super::*;

    const TABLE: &str = "21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
        30 21 0:40 / /my\\040disk rw,noatime - btrfs /dev/sda1 rw,discard=async,space_cache\n\
        31 21 8:17 / /srv rw - ext4 /dev/sdb1 rw,data=journal\n\
        32 21 0:41 / /srv/far rw - nfs4 host:/x rw\n\
        33 21 0:42 / /srv/chip rw - fuse.tacita-dnefs /v rw\n\
        34 21 0:43 / /srv/odd rw - fuse.other none rw\n";

    #[test]
    fn the_nearest_file_system_counts() {
        let (_root, found) = machine(&[("/proc/self/mountinfo", TABLE)]);
        let of = |path: &str| around(&found, Path::new(path)).unwrap().source;
        assert_eq!(of("/a"), "/dev/vda");
        assert_eq!(of("/my disk/a"), "/dev/sda1");
        assert_eq!(of("/srvx"), "/dev/vda");
        assert_eq!(of("/srv/far/a"), "host:/x");
        let (_root, none) = machine(&[]);
        assert_eq!(around(&none, Path::new("/")), None);
    }

    #[test]
    fn the_place_of_a_file_system_may_have_any_name() {
        let (_root, machine) = machine(&[]);
        let table = machine.path("/proc/self/mountinfo");
        fs::create_dir_all(table.parent().unwrap()).unwrap();
        let rows = b"21 1 254:0 / / rw - ext4 /dev/vda rw\n\
            22 21 0:40 / /d\xff\\012 rw,noatime - btrfs /dev/sda1 rw\n";
        fs::write(table, rows).unwrap();
        let medium = Path::new(OsStr::from_bytes(b"/d\xff\n/image"));
        let place = OsStr::from_bytes(b"/d\xff\n");
        assert_eq!(mount_point(&machine, medium), Some(place.into()));
        let found = findings(&machine, medium);
        assert_eq!([1, 4].map(|at| leaks(&found[at])), [Some(true), Some(false)]);
    }

    #[test]
    fn what_is_below_a_folder_that_purge_shows_in_its_place_is_looked_at() {
        let own = "35 31 0:44 / /srv rw,noatime - fuse.tacita-purge /srv rw\n\
            36 31 0:45 / /shown rw,noatime - fuse.tacita-purge /srv/lower rw\n";
        let table = TABLE.to_owned() + own;
        let (_root, found) = machine(&[("/proc/self/mountinfo", &table[..])]);
        let of = |path: &str| around(&found, Path::new(path)).unwrap().source;
        assert_eq!([of("/srv"), of("/srv/lower/a")], ["/dev/sdb1", "/dev/sdb1"]);
        let access_times = findings(&found, Path::new("/srv/lower")).swap_remove(4);
        assert_eq!(leaks(&access_times), Some(true));
        assert_eq!(mount_point(&found, Path::new("/srv/a")), Some("/srv".into()));
        assert_eq!(mount_point(&found, Path::new("/shown/a")), Some("/shown".into()));
    }

    #[test]
    fn what_a_loop_device_shows_lies_where_its_file_does() {
        let table = TABLE.to_owned() + "37 31 7:0 / /l rw - ext4 /dev/loop0 rw\n";
        let (_root, machine) = machine(&[
            ("/proc/self/mountinfo", &table[..]),
            ("/sys/class/block/loop0/loop/backing_file", "/my disk/a\n"),
            ("/sys/class/block/loop1/loop/backing_file", "/l/b\n"),
            ("/sys/class/block/sda1/queue/rotational", "0"),
        ]);
        let of = |path: &str| -> Vec<(&str, Option<bool>)> {
            findings(&machine, Path::new(path)).iter().map(|it| (it.what, leaks(it))).collect()
        };
        let (yes, no) = (Some(true), Some(false));
        let below = [
            ("disk", yes),
            ("file system", yes),
            ("discards", yes),
            ("journal", no),
            ("access times", no),
            ("snapshots", no),
        ];
        assert_eq!(of("/dev/loop0"), below);
        assert_eq!(of("/dev/loop1")[5..], below);
        assert_eq!(of("/l/b")[5..], below);
        assert_eq!(of("/l/b")[0], ("file system", no));
    }

    #[test]
    fn places_are_looked_at() {
        let files = [
            ("/proc/self/mountinfo", TABLE),
            ("/sys/class/block/sda1/queue/rotational", "0"),
            ("/sys/class/block/sdb1/queue/rotational", "1"),
            ("/sys/class/block/vda/queue/rotational", "1"),
            ("/sys/class/block/vda/device/vendor", "QEMU"),
        ];
        let (root, machine) = machine(&files);
        let of = |path: &str| -> Vec<Option<bool>> {
            findings(&machine, Path::new(path)).iter().map(leaks).collect()
        };
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(of("/my disk/a"), [yes, yes, yes, no, no, no]);
        assert_eq!(of("/srv/a"), [no, no, no, yes, yes, no]);
        assert_eq!(of("/srv/far/a"), [None, yes, no, no, yes, no]);
        assert_eq!(of("/a"), [None, no, no, no, yes, no]);
        assert_eq!([of("/srv/chip/a")[1], of("/srv/odd/a")[1]], [yes, None]);
        assert_eq!(of("/dev/sda1"), [yes]);
        let timer = machine.path("/etc/systemd/system/timers.target.wants/fstrim.timer");
        std::fs::create_dir_all(timer.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink("/nowhere", timer).unwrap();
        assert_eq!(of("/srv/a")[2], yes);
        // What lies on no device of this machine is not trimmed.
        assert_eq!(of("/srv/far/a")[2], no);
        assert_eq!(of("/dev/shm/a").len(), 6);
        std::fs::create_dir(root.path().join(".snapshots")).unwrap();
        assert_eq!(leaks(&snapshots(&root.path().join("a"))), yes);
    }
}
