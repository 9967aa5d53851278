//! Who keeps a mount that has been taken away here: processes in other mount namespaces.

use std::fs;
use std::path::Path;

use super::mount_table::mounted_in;

/// A process that still sees the mount.
#[derive(Debug)]
pub(super) struct Holder {
    pid: u32,
    name: String,
    /// Number of the file system, as in `0:42`.
    pub(super) device: String,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} ({})", self.pid, self.name)
    }
}

/// Processes that have the FUSE mount `device`, as in `0:42`, or one on `dir`, in their view of the
/// file system. Those of other users are seen by root alone.
pub(super) fn holders(dir: &Path, device: Option<&str>) -> Vec<Holder> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pid = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let pids = processes.filter_map(|entry| pid(entry.ok()?));
    let held = |pid: &u32| {
        let table = fs::read(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        mounted_in(&table, dir, device)
    };
    pids.filter_map(|pid| {
        let device = held(&pid)?;
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Some(Holder { pid, name: name.trim_end().to_owned(), device })
    })
    .collect()
}
