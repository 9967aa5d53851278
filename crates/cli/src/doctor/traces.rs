//! What programs of the desktop and the system note down about files.

use std::fs;
use std::path::Path;

use super::Finding;
use super::machine::Machine;
use super::places::mount_point;
use crate::faults::{Fault, planted};
use crate::output::shown_name;

pub(super) fn findings(machine: &Machine, given: &Path) -> Vec<Finding> {
    vec![
        trash(machine, given),
        thumbnails(machine),
        recent(machine),
        name_index(machine, given),
        backups(machine),
    ]
}

/// How many entries a folder has; none where there is no folder.
fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).map_or(0, Iterator::count)
}

/// Desktops move what is deleted into a folder beside it, or at home.
fn trash(machine: &Machine, given: &Path) -> Finding {
    const WHAT: &str = "trash";
    let mut folders = Vec::new();
    // A desktop makes it where the file system begins.
    let mut tops = vec![given.to_owned()];
    if !planted(Fault::TopUnseen) {
        tops.extend(mount_point(machine, given).filter(|top| top != given));
    }
    for top in tops {
        let all = fs::read_dir(top).into_iter().flatten().flatten();
        let trash = all.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b".Trash"));
        for path in trash.map(|entry| entry.path()) {
            if path.ends_with(".Trash") {
                // One of each user is in it.
                let users = fs::read_dir(&path).into_iter().flatten().flatten();
                folders.extend(users.map(|user| user.path().join("files")));
            } else {
                folders.push(path.join("files"));
            }
        }
    }
    folders.extend(machine.home.as_ref().map(|home| home.join(".local/share/Trash/files")));
    let full: Vec<String> =
        folders.iter().filter(|folder| entries(folder) > 0).map(shown_name).collect();
    if full.is_empty() {
        return Finding::fine(WHAT, "nothing is in it");
    }
    Finding::leaks(
        WHAT,
        format!("{}: what a desktop deletes is kept there", full.join(", ")),
        "empty it; delete with Shift+Delete or rm",
    )
}

fn thumbnails(machine: &Machine) -> Finding {
    const WHAT: &str = "thumbnails";
    let Some(home) = &machine.home else { return Finding::unknown(WHAT, "there is no home") };
    let folder = home.join(".cache/thumbnails");
    let all = fs::read_dir(&folder).into_iter().flatten().flatten();
    let count: usize = all.map(|size| entries(&size.path())).sum();
    if count == 0 {
        return Finding::fine(WHAT, "there are none");
    }
    Finding::leaks(
        WHAT,
        format!("{}: {count} small pictures of files that were looked at", shown_name(&folder)),
        "delete the folder, and turn previews off in the file manager",
    )
}

fn recent(machine: &Machine) -> Finding {
    const WHAT: &str = "recent files";
    const LISTS: [&str; 3] =
        [".local/share/recently-used.xbel", ".local/share/RecentDocuments", ".viminfo"];
    let Some(home) = &machine.home else { return Finding::unknown(WHAT, "there is no home") };
    let found: Vec<&str> =
        LISTS.into_iter().filter(|list| home.join(list).symlink_metadata().is_ok()).collect();
    if found.is_empty() {
        return Finding::fine(WHAT, "no list of them");
    }
    Finding::leaks(
        WHAT,
        format!("{} at home: names of files that were open", found.join(", ")),
        "delete it, and turn the history of files off",
    )
}

/// The index of names that `locate` has, and those of desktops, which have content, too.
fn name_index(machine: &Machine, given: &Path) -> Finding {
    const WHAT: &str = "search index";
    let locate = ["/var/lib/plocate/plocate.db", "/var/lib/mlocate/mlocate.db"];
    let mut found: Vec<String> = locate
        .into_iter()
        .filter(|path| machine.path(path).exists() && !is_pruned(machine, given))
        .map(str::to_owned)
        .collect();
    if let Some(home) = &machine.home {
        let indexes = [".cache/tracker3", ".local/share/baloo"].map(|folder| home.join(folder));
        found.extend(indexes.iter().filter(|p| p.exists()).map(shown_name));
    }
    if found.is_empty() {
        return Finding::fine(WHAT, "none that has it");
    }
    Finding::leaks(
        WHAT,
        format!("{}: names of files, perhaps their words", found.join(", ")),
        "leave the folder out (PRUNEPATHS in /etc/updatedb.conf, settings of the desktop), and build it anew",
    )
}

/// Programs that copy files elsewhere, and keep what has been deleted since.
fn backups(machine: &Machine) -> Finding {
    const WHAT: &str = "backups";
    const SYSTEM: [&str; 6] = [
        "/etc/borgmatic",
        "/etc/borgmatic.d",
        "/etc/rsnapshot.conf",
        "/etc/restic",
        "/etc/timeshift/timeshift.json",
        "/etc/bareos",
    ];
    const HOME: [&str; 4] =
        [".config/borgmatic", ".config/vorta", ".config/restic", ".cache/deja-dup"];
    let system = SYSTEM.into_iter().filter(|path| machine.path(path).exists());
    let home = machine.home.iter().flat_map(|home| {
        HOME.into_iter().filter(|path| home.join(path).exists()).collect::<Vec<_>>()
    });
    let found: Vec<&str> = system.chain(home).collect();
    if found.is_empty() {
        return Finding::fine(WHAT, "no program is set up that is known here");
    }
    Finding::leaks(
        WHAT,
        format!("{}: copies may keep what is deleted here", found.join(", ")),
        "leave it out of backups, or let them forget what was deleted",
    )
}

/// Whether `updatedb` leaves a folder out.
fn is_pruned(machine: &Machine, given: &Path) -> bool {
    let text = machine.read("/etc/updatedb.conf").unwrap_or_default();
    let paths = text.lines().filter_map(|line| line.trim().strip_prefix("PRUNEPATHS"));
    let mut paths = paths.flat_map(|line| line.split(['=', '"', ' ']));
    paths.any(|path| path.starts_with('/') && given.starts_with(path))
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::{leaks, machine};
    use super::*;

    #[test]
    fn traces_are_looked_at() {
        let (root, machine) = machine(&[]);
        let table = format!("21 1 254:0 / {} rw - ext4 /dev/vda rw\n", root.path().display());
        fs::create_dir_all(machine.path("/proc/self")).unwrap();
        fs::write(machine.path("/proc/self/mountinfo"), table).unwrap();
        let given = root.path().join("mnt");
        fs::create_dir(&given).unwrap();
        let of = || -> Vec<bool> {
            findings(&machine, &given).iter().map(|finding| leaks(finding).unwrap()).collect()
        };
        assert_eq!(of(), [false; 5]);
        let put = |path: &Path| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        };
        let home = machine.home.clone().unwrap();
        for trash in [given.join(".Trash-0/files"), root.path().join(".Trash/1000/files")] {
            put(&trash.join("letter"));
            assert_eq!(of(), [true, false, false, false, false], "{}", trash.display());
            fs::remove_dir_all(trash).unwrap();
        }
        put(&given.join(".Trash-0/files/letter"));
        put(&home.join(".cache/thumbnails/large/1.png"));
        put(&home.join(".local/share/recently-used.xbel"));
        put(&machine.path("/var/lib/plocate/plocate.db"));
        assert_eq!(of(), [true, true, true, true, false]);
        let pruned = format!("PRUNEPATHS=\"/tmp {}\"\n", given.display());
        fs::create_dir_all(machine.path("/etc")).unwrap();
        fs::write(machine.path("/etc/updatedb.conf"), pruned).unwrap();
        fs::remove_dir_all(given.join(".Trash-0")).unwrap();
        assert_eq!(of(), [false, true, true, false, false]);
        put(&home.join(".local/share/Trash/files/letter"));
        put(&home.join(".local/share/baloo"));
        put(&machine.path("/etc/rsnapshot.conf"));
        assert_eq!(of(), [true; 5]);
    }
}
