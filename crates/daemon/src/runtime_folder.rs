//! Where daemons keep what tells of them: a private folder of their user, in memory if there is one.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// The file's name gives the path away only to whoever can guess it.
pub(crate) fn file_name(dir: &Path) -> String {
    // FNV-1a: two mounts at a time that share a number would only refuse one another.
    let bytes = dir.as_os_str().as_bytes().iter();
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// Where a user's files are, in the order of preference: memory first, no trace on a medium. Not by
/// the environment, for whoever unmounts may have another one.
fn folders_of(uid: u32) -> [PathBuf; 2] {
    let in_memory = if uid == 0 {
        PathBuf::from("/run/tacita")
    } else {
        PathBuf::from(format!("/run/user/{uid}/tacita"))
    };
    [in_memory, PathBuf::from(format!("/tmp/tacita-{uid}"))]
}

/// Where a daemon's files can be: with its owners, with whoever asks, or with root.
/// Folders that their user has not made are not looked at.
pub(crate) fn folders_of_all(owners: &[u32]) -> Vec<PathBuf> {
    folders_below(Path::new("/"), owners)
}

/// The same in another view of the file system, such as `/proc/1/root`.
pub(crate) fn folders_below(root: &Path, owners: &[u32]) -> Vec<PathBuf> {
    let mut uids = vec![geteuid().as_raw(), 0];
    uids.extend(owners);
    uids.sort_unstable();
    uids.dedup();
    let folders = uids.iter().flat_map(|uid| folders_of(*uid).map(|folder| (*uid, folder)));
    let folders = folders.map(|(uid, folder)| {
        (uid, root.join(folder.strip_prefix("/").expect("all of them are absolute")))
    });
    folders.filter(|(uid, folder)| is_private(folder, *uid)).map(|(_, folder)| folder).collect()
}

/// The users who may have daemons, as far as it can be seen from the names of folders.
pub(crate) fn users() -> Vec<u32> {
    let names = |folder| fs::read_dir(folder).into_iter().flatten().flatten();
    let text = |entry: fs::DirEntry| entry.file_name().into_string().ok();
    let in_memory = names("/run/user").filter_map(text).filter_map(|name| name.parse().ok());
    let others = names("/tmp").filter_map(text);
    in_memory.chain(others.filter_map(|name| name.strip_prefix("tacita-")?.parse().ok())).collect()
}

fn is_private(folder: &Path, uid: u32) -> bool {
    // Somebody else's folder may lie in a place where anybody may make one.
    fs::symlink_metadata(folder)
        .is_ok_and(|found| found.is_dir() && found.uid() == uid && found.mode() & 0o022 == 0)
}

/// The folder that this user's files go to: private, and gone with the next start of the machine.
///
/// # Errors
/// If it cannot be made, or somebody else's is in its place.
pub(crate) fn private_folder() -> io::Result<PathBuf> {
    let uid = geteuid().as_raw();
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for folder in folders_of(uid) {
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                let text = format!("{}: {e}", folder.display());
                failure = io::Error::new(e.kind(), text);
            }
            _ => {
                if is_private(&folder, uid) {
                    return Ok(folder);
                }
                let text = format!("{}: not a private folder", folder.display());
                failure = io::Error::new(io::ErrorKind::PermissionDenied, text);
            }
        }
    }
    Err(failure)
}
