//! Other options for what is mounted already.

use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};
use tacita_daemon::Mount;
use tacita_daemon::voice::shown_name;

use super::mount_options::{each, is_known, refused};
use super::mount_table::mount_on;
use super::unmount::{canonical, is_served_read_only, not_mounted, sync_of};
use crate::{Error, Kind, Result};

/// What the kernel's table has besides, which mount(8) hands on, and what it says to have this done.
const OF_TABLE: [&str; 3] = ["user_id=", "group_id=", "remount"];

/// Gives the file system mounted on `dir` the generic options of the list, as after `-o`; others of it
/// stay as they are: what takes rights away goes only by its opposite. When it has become read-only, everything
/// is on the medium.
///
/// # Errors
/// [`Kind::NotFound`] if nothing of ours is mounted there; [`Kind::Busy`] if something that is open for
/// writing would have to become read-only, and if its daemon does not answer; [`Kind::Invalid`] for an
/// option that nobody knows, and if what was opened for reading alone is to be written;
/// [`Kind::NotPermitted`]; [`Kind::Io`], also if it has become read-only and is not synced.
pub fn remount(dir: impl AsRef<Path>, options: &str) -> Result<()> {
    let dir = canonical(dir.as_ref())?;
    let mount = mount_on(&dir)?.filter(|mount| mount.kind.starts_with("fuse.tacita"));
    let mount = mount.ok_or_else(|| not_mounted(&dir))?;
    let is_of_table = |option: &str| OF_TABLE.iter().any(|name| option.starts_with(name));
    for option in each(options).filter(|option| !is_of_table(option)) {
        is_known(option)?;
    }
    let flags = flags(&format!("{},{options}", kept(&mount)));
    if !flags.contains(MountFlags::RDONLY) && is_served_read_only(&mount.device)? {
        let remedy = "unmount it, and mount it without ro";
        let place = dir.display().to_string();
        return Err(refused(&place, "it was opened for reading alone", remedy));
    }
    mount_remount(&dir, flags, c"").map_err(|errno| {
        let kind = match errno {
            Errno::BUSY => Kind::Busy,
            Errno::PERM | Errno::ACCESS => Kind::NotPermitted,
            _ => Kind::Io,
        };
        Error::new(kind, format!("{}: cannot change how it is mounted: {errno}", dir.display()))
    })?;
    if flags.contains(MountFlags::RDONLY) {
        sync_of(&mount.device).map_err(|mut why| {
            let place = shown_name(&dir);
            why.cause = format!("{place}: mounted read-only now, but not synced: {}", why.cause);
            Error::new(Kind::Io, why.cause.clone()).because(why)
        })?;
    }
    Ok(())
}

/// What stays unless the list says otherwise: mounts are `nosuid,nodev` where nobody asks for anything else, and what
/// mount(8) has from a line of /etc/fstab need not say so.
fn kept(mount: &Mount) -> String {
    let kept = mount.options.split(',').filter(|option| ["nosuid", "nodev"].contains(option));
    kept.collect::<Vec<_>>().join(",")
}

/// What the kernel calls the options of a list; of opposites the last counts. Access times are never
/// kept.
pub(super) fn flags(options: &str) -> MountFlags {
    let mut flags = MountFlags::NOATIME;
    for option in each(options) {
        let (flag, on) = match option {
            "ro" => (MountFlags::RDONLY, true),
            "rw" => (MountFlags::RDONLY, false),
            "nosuid" => (MountFlags::NOSUID, true),
            "suid" => (MountFlags::NOSUID, false),
            "nodev" => (MountFlags::NODEV, true),
            "dev" => (MountFlags::NODEV, false),
            "noexec" => (MountFlags::NOEXEC, true),
            "exec" => (MountFlags::NOEXEC, false),
            "sync" => (MountFlags::SYNCHRONOUS, true),
            "async" => (MountFlags::SYNCHRONOUS, false),
            "dirsync" => (MountFlags::DIRSYNC, true),
            "nosymfollow" => (MountFlags::NOSYMFOLLOW, true),
            "symfollow" => (MountFlags::NOSYMFOLLOW, false),
            _ => continue,
        };
        flags.set(flag, on);
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_opposites_the_last_counts() {
        let kept = MountFlags::NOATIME | MountFlags::NOSUID | MountFlags::NODEV;
        let table = "rw,nosuid,nodev,noatime,user_id=0,group_id=0,default_permissions";
        assert_eq!(flags(table), kept);
        assert_eq!(flags(&format!("{table},remount,ro")), kept | MountFlags::RDONLY);
        assert_eq!(flags("nosymfollow"), MountFlags::NOATIME | MountFlags::NOSYMFOLLOW);
        assert_eq!(flags("noexec,nosuid,exec,suid,ro,rw,sync,async"), MountFlags::NOATIME);
    }
}
