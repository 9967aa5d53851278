//! Called by mount(8) and umount(8), as the helper of a type of file system: for a line of /etc/fstab
//! with the type `fuse.tacita-hifs` they call `mount.fuse.tacita-hifs`, a link to this program, or a
//! script that calls it with this name in front of the other words.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// What helpers are called, before the name of the system.
pub(crate) const MOUNT: &str = "mount.fuse.tacita-";
pub(crate) const UNMOUNT: &str = "umount.fuse.tacita-";
/// What options begin with that are the command's own: `tacita.key=FILE` is `--key=FILE`.
const OWN: &[u8] = b"tacita.";
/// Systems whose source is a file, a device or a folder.
const ON_PATHS: [&str; 3] = ["hifs", "purge", "dnefs"];

/// The words of a command line as this program understands them, none if nothing is to be done. Other
/// words than a helper's are handed on as they are.
pub(crate) fn words(words: Vec<OsString>) -> Option<Vec<OsString>> {
    let name_of = |word: &OsString| Path::new(word).file_name()?.to_str().map(str::to_owned);
    let is_helper = |name: &String| name.starts_with(MOUNT) || name.starts_with(UNMOUNT);
    let called = words.iter().take(2).position(|word| name_of(word).is_some_and(|n| is_helper(&n)));
    let Some(name) = called.and_then(|at| name_of(&words[at])) else { return Some(words) };
    let rest = &words[called.unwrap_or(0) + 1..];
    if let Some(system) = name.strip_prefix(MOUNT) {
        let Given { places, options, is_fake, .. } = taken_apart(rest);
        if is_fake {
            return None;
        }
        if options.iter().any(|option| option == b"remount") {
            let mut made = ["tacita", "remount"].map(OsString::from).to_vec();
            made.extend(handed_on(&options));
            made.push("--".into());
            made.extend(places.into_iter().skip(1));
            return Some(made);
        }
        if ON_PATHS.contains(&system) && may_be_absent(&options) && is_absent(places.first()) {
            return None;
        }
        let mut made = ["tacita", system, "mount"].map(OsString::from).to_vec();
        made.extend(own(&options));
        made.extend(handed_on(&options));
        made.push("--".into());
        made.extend(places);
        return Some(made);
    }
    let Given { places, is_lazy, .. } = taken_apart(rest);
    let words = if is_lazy { vec!["tacita", "umount", "--lazy"] } else { vec!["tacita", "umount"] };
    let words = words.into_iter().map(OsString::from).chain(["--".into()]);
    Some(words.chain(places.into_iter().take(1)).collect())
}

/// What a helper has been given.
#[derive(Default)]
struct Given {
    /// The words that name something.
    places: Vec<OsString>,
    /// The options behind `-o`.
    options: Vec<Vec<u8>>,
    /// Whether mount(8) was told to do all but mount.
    is_fake: bool,
    /// Whether umount(8) was told not to mind who uses it.
    is_lazy: bool,
}

/// What else there may be than is kept of it, mount(8) has seen to: to be sloppy, to tell more, not to
/// write a table, the type, a namespace.
fn taken_apart(words: &[OsString]) -> Given {
    let mut given = Given::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_bytes() {
            b"-o" => {
                let list = words.next().map(|word| word.as_bytes()).unwrap_or_default();
                let options = list.split(|byte| *byte == b',').filter(|option| !option.is_empty());
                given.options.extend(options.map(<[u8]>::to_vec));
            }
            b"-t" | b"-N" => drop(words.next()),
            [b'-', letters @ ..] => {
                given.is_fake |= letters.contains(&b'f');
                given.is_lazy |= letters.contains(&b'l');
            }
            _ => given.places.push(word.clone()),
        }
    }
    given
}

/// Whether it is no failure that what is to be mounted is not there: mount(8) leaves this to its helpers.
fn may_be_absent(options: &[Vec<u8>]) -> bool {
    let said = options.iter().rev().find(|option| matches!(&option[..], b"nofail" | b"fail"));
    said.is_some_and(|option| option == b"nofail")
}

fn is_absent(source: Option<&OsString>) -> bool {
    let seen = source.map(|source| Path::new(source).metadata());
    seen.is_some_and(|seen| seen.is_err_and(|e| e.kind() == ErrorKind::NotFound))
}

/// Options of the command itself.
fn own(options: &[Vec<u8>]) -> impl Iterator<Item = OsString> {
    let own = options.iter().filter_map(|option| option.strip_prefix(OWN));
    own.map(|option| OsString::from_vec([b"--", option].concat()))
}

/// Options of the mount.
fn handed_on(options: &[Vec<u8>]) -> Vec<OsString> {
    let rest: Vec<&[u8]> =
        options.iter().map(Vec::as_slice).filter(|option| !option.starts_with(OWN)).collect();
    if rest.is_empty() {
        return Vec::new();
    }
    vec!["-o".into(), OsString::from_vec(rest.join(&b','))]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> String {
        let words = words(line.split(' ').map(OsString::from).collect()).unwrap();
        words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn helpers_are_commands() {
        let called = "/sbin/mount.fuse.tacita-hifs /srv/a.img /mnt -o rw,noauto,user";
        assert_eq!(of(called), "tacita hifs mount -o rw,noauto,user -- /srv/a.img /mnt");
        let called =
            "mount.fuse.tacita-privatefs host:7 /mnt -n -o ro,tacita.key=/k,tacita.pad -t x -s";
        assert_eq!(of(called), "tacita privatefs mount --key=/k --pad -o ro -- host:7 /mnt");
        let called = "mount.fuse.tacita-hifs /image /mnt -o rw,nosuid,remount,ro";
        assert_eq!(of(called), "tacita remount -o rw,nosuid,remount,ro -- /mnt");
        assert_eq!(of("mount.fuse.tacita-dnefs /v /mnt"), "tacita dnefs mount -- /v /mnt");
        assert_eq!(of("/sbin/umount.fuse.tacita-purge /mnt -r -t x"), "tacita umount -- /mnt");
        let called = "/sbin/umount.fuse.tacita-hifs /mnt -n -l";
        assert_eq!(of(called), "tacita umount --lazy -- /mnt");
        let called = "/usr/bin/tacita mount.fuse.tacita-hifs a b -o ro";
        assert_eq!(of(called), "tacita hifs mount -o ro -- a b");
        assert_eq!(of("tacita umount.fuse.tacita-hifs a"), "tacita umount -- a");
        for other in [
            "tacita hifs mount a b -o ro",
            "/usr/bin/tacita",
            "mount.fuse a b",
            "tacita check x mount.fuse.tacita-hifs",
        ] {
            assert_eq!(of(other), other);
        }
        assert_eq!(words(Vec::new()), Some(Vec::new()));
    }

    #[test]
    fn what_may_be_absent_and_is_fails_not() {
        let is_done = |line: &str| words(line.split(' ').map(OsString::from).collect()).is_some();
        for system in ON_PATHS {
            let absent = format!("mount.fuse.tacita-{system} /no/such /mnt -o rw");
            assert!(is_done(&absent), "{system}");
            assert!(!is_done(&format!("{absent},nofail,noexec")), "{system}");
            assert!(is_done(&format!("{absent},nofail,fail")), "{system}");
            assert!(is_done(&format!("{absent},nofail,remount")), "{system}");
        }
        assert!(is_done("mount.fuse.tacita-hifs / /mnt -o nofail"));
        assert!(is_done("mount.fuse.tacita-hifs /dev/null/x /mnt -o nofail"));
        assert!(is_done("mount.fuse.tacita-privatefs host:7 /mnt -o nofail"));
    }

    #[test]
    fn a_fake_mount_does_nothing() {
        let is_done = |line: &str| words(line.split(' ').map(OsString::from).collect()).is_some();
        assert!(!is_done("mount.fuse.tacita-hifs /image /mnt -f"));
        assert!(!is_done("mount.fuse.tacita-hifs /image /mnt -sfv -o ro"));
        assert!(is_done("mount.fuse.tacita-hifs /image /mnt -sv -t -f"));
        assert!(is_done("mount.fuse.tacita-hifs /of /fm -o fsname=f"));
        assert!(is_done("umount.fuse.tacita-hifs /mnt -f"));
        assert!(is_done("tacita hifs mount -f"));
    }
}
