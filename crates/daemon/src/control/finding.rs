//! Which daemon serves what is meant: by the name of its socket, and by what each says that it serves.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, geteuid};
use serde_json::{Value, json};

use super::client::Client;
use super::server::{all_aside, socket_name};
use crate::process_state::{fuse_devices, has_opened};
use crate::runtime_folder::{folders_below, folders_of_all, users};
use crate::voice::shown_name;
use crate::{Error, Kind, Mount, Result, exit, mounts};

impl Client {
    /// Finds the daemon of `target`: the folder or socket that it serves at, or the image, device or
    /// folder that it serves. A mount is found from other mount namespaces and by other paths, too.
    ///
    /// # Errors
    /// [`Kind::NotServed`] if there is none, or none that this user may ask; [`Kind::NoAnswer`] if one
    /// that may be it does not say what it serves.
    pub fn find(target: &Path) -> Result<Self> {
        let full = full_path(target)
            .map_err(|e| Error::new(Kind::NotServed, format!("{}: {e}", shown_name(target))))?;
        // Whoever looks at the folder itself waits for a daemon that may not answer, and even root may
        // not look into what other users mount for themselves.
        let mounter = mounted_by(|mount| mount.place == full);
        if let Some(client) = Self::by_name(&full, mounter) {
            return Ok(client);
        }
        // Of a dead mount the kernel says so: nobody serves it any more, whoever is silent.
        if full.metadata().is_err_and(|e| e.kind() == ErrorKind::NotConnected) {
            let text = format!("{}: a mount whose daemon has died", shown_name(target));
            return Err(Error::new(Kind::NotServed, text));
        }
        let wanted = Wanted::of(&full);
        let owner = mounter.or_else(|| wanted.mounter()).or(wanted.owner);
        if let Some(client) = Self::by_name(&full, owner) {
            return Ok(client);
        }
        wanted.find(owner, &format!("{}: ", shown_name(target)))
    }

    /// All daemons that this user may ask, each once: for root those of all users.
    pub fn all() -> impl Iterator<Item = Self> {
        let users = if geteuid().is_root() { users() } else { Vec::new() };
        sockets_of_all(&users).into_iter().filter_map(|socket| Self::connect(&socket).ok())
    }

    /// The daemon that serves at that folder or socket, if it is this user's, or for root that of
    /// whoever has mounted it, without a look at the folder.
    pub fn serving_at(target: &Path) -> Option<Self> {
        let full = full_path(target).ok()?;
        let mounter = mounted_by(|mount| mount.place == full);
        Self::by_name(&full, mounter)
    }

    fn by_name(full: &Path, owner: Option<u32>) -> Option<Self> {
        let name = socket_name(full);
        let folders = folders_of_all(owner.as_slice()).into_iter();
        let sockets: Vec<PathBuf> = folders.map(|folder| folder.join(&name)).collect();
        let aside = sockets.iter().flat_map(|socket| all_aside(socket));
        let mut sockets = sockets.iter().cloned().chain(aside);
        sockets.find_map(|socket| Self::connect(&socket).ok())
    }

    /// Finds the daemon of a mounted file system by its number, as in `0:42`.
    ///
    /// # Errors
    /// As [`Client::find`].
    pub fn of_mount(device: &str) -> Result<Self> {
        let device = Some(device.to_owned());
        let wanted = Wanted { path: None, device, source: None, owner: None };
        wanted.find(wanted.mounter(), "")
    }
}

/// What is looked for: the file system that a folder belongs to, or the file that is served.
struct Wanted {
    path: Option<PathBuf>,
    device: Option<String>,
    source: Option<[u64; 2]>,
    /// Whose it is.
    owner: Option<u32>,
}

impl Wanted {
    fn of(target: &Path) -> Self {
        let found = fs::metadata(target).ok();
        let device = found.as_ref().filter(|found| found.is_dir()).map(|found| {
            let (major, minor) = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
            format!("{major}:{minor}")
        });
        Self {
            path: Some(target.to_owned()),
            device,
            source: found.as_ref().map(|found| [found.dev(), found.ino()]),
            owner: found.map(|found| found.uid()),
        }
    }

    /// Who has mounted the file system that it is in. Nobody else is believed to serve that.
    fn mounter(&self) -> Option<u32> {
        let device = self.device.as_ref()?;
        mounted_by(|mount| mount.device == *device)
    }

    /// Asks all daemons that can be reached what they serve, each once. `what` names it in errors.
    fn find(&self, owner: Option<u32>, what: &str) -> Result<Client> {
        let mut silent = None;
        let believed = sockets_of_all(owner.as_slice()).into_iter().map(|socket| (socket, true));
        let others = std::iter::once_with(|| self.others()).flatten().map(|socket| (socket, false));
        for (socket, is_believed) in believed.chain(others) {
            // Who has ended meanwhile serves nothing.
            let Ok(client) = Client::connect(&socket) else { continue };
            let pid = client.pid;
            if !is_believed && self.has_opened(pid) != Some(true) {
                continue;
            }
            let is_it = match client.status() {
                Ok(status) => self.is(&status),
                Err(why) if why.code == exit::BUSY => self.seen_in(pid).unwrap_or_else(|| {
                    silent.get_or_insert(why);
                    false
                }),
                Err(_) => false,
            };
            if is_it && let Ok(client) = Client::connect(&socket) {
                return Ok(client);
            }
        }
        Err(match silent {
            Some(why) => {
                let text = format!("{what}whether it is served cannot be said: {}", why.cause);
                Error::new(Kind::NoAnswer, text)
            }
            None => {
                Error::new(Kind::NotServed, format!("{what}not served by a daemon of this user"))
            }
        })
    }

    /// Where else root asks, for a file may be served by whoever may open it: daemons of all users, which
    /// are believed if they have it open.
    fn others(&self) -> Vec<PathBuf> {
        let is_file = self.path.is_some() && self.device.is_none();
        if is_file && geteuid().is_root() { sockets_of_all(&users()) } else { Vec::new() }
    }

    /// Whether it is a daemon that does not say what it serves, as far as that can be seen from outside:
    /// what it has open, and where the kernel tells it, what it has not mounted.
    fn seen_in(&self, pid: Option<Pid>) -> Option<bool> {
        let has_opened = self.has_opened(pid);
        if has_opened == Some(true) || !self.is_mounted() {
            return has_opened;
        }
        let served = fuse_devices(pid?)?;
        // The number of one that the kernel has let go of may be another's by now.
        let may_be = self.device.as_ref().is_some_and(|device| served.contains(device));
        (!may_be).then_some(false)
    }

    /// Whether a process has it open; `None` if that cannot be seen.
    fn has_opened(&self, pid: Option<Pid>) -> Option<bool> {
        match &self.path {
            Some(path) => has_opened(pid?, path),
            None => Some(false),
        }
    }

    /// Whether what is looked for is in something that a daemon of some system has mounted.
    fn is_mounted(&self) -> bool {
        let Some(device) = &self.device else { return false };
        let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
        let is_it = |row: Mount| row.device == *device && row.kind.starts_with("fuse.tacita");
        // By its number alone a mount is looked for that this namespace need not have any more.
        self.path.is_none() || mounts(&table).any(is_it)
    }

    fn is(&self, status: &Value) -> bool {
        // What a daemon says and no more: its source may lie where nobody answers.
        let is_named = |key: &str, wanted: Value| !wanted.is_null() && status[key] == wanted;
        is_named("device", json!(self.device)) || is_named("source_number", json!(self.source))
    }
}

/// The canonical path of something, as far as it is there: a socket may be gone, with its folder, too, which leaves
/// the path by which its daemon is shown; and a mount whose daemon is dead has no attributes.
fn full_path(target: &Path) -> std::io::Result<PathBuf> {
    match (target.canonicalize(), target.parent(), target.file_name()) {
        (Err(_), Some(folder), Some(name)) => {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            match folder.canonicalize() {
                Err(e) if e.kind() == ErrorKind::NotFound => std::path::absolute(target),
                folder => Ok(folder?.join(name)),
            }
        }
        (full, ..) => full,
    }
}

/// Who has mounted the file system in user space that is meant, as the mount table says.
fn mounted_by(is_it: impl Fn(&Mount) -> bool) -> Option<u32> {
    let table = fs::read("/proc/self/mountinfo").ok()?;
    mounts(&table).rev().filter(is_it).find_map(|mount| mount.mounter())
}

/// Where daemons that can be reached are asked, each once, in this view of the file system first.
fn sockets_of_all(owners: &[u32]) -> Vec<PathBuf> {
    let mut seen = HashSet::new();
    let mut is_new = |socket: &PathBuf| {
        fs::metadata(socket).is_ok_and(|found| seen.insert((found.dev(), found.ino())))
    };
    let elsewhere = other_views().into_iter().flat_map(|root| folders_below(&root, owners));
    let folders = folders_of_all(owners).into_iter().chain(elsewhere);
    folders.flat_map(|folder| sockets_in(&folder)).filter(|socket| is_new(socket)).collect()
}

fn sockets_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sockets = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
    sockets.map(|entry| entry.path()).collect()
}

/// Views of the file system that differ from ours, of processes that this user may look into.
fn other_views() -> Vec<PathBuf> {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let mut seen: HashSet<PathBuf> = namespace("self").into_iter().collect();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().into_string().ok());
    let pids = pids.filter(|name| name.bytes().all(|b| b.is_ascii_digit()));
    let new = pids.filter(|pid| namespace(pid).is_some_and(|namespace| seen.insert(namespace)));
    // A view of a process of another user could show us anything.
    let ours = new.filter(|pid| {
        geteuid().is_root()
            || fs::metadata(format!("/proc/{pid}"))
                .is_ok_and(|found| found.uid() == geteuid().as_raw())
    });
    ours.map(|pid| PathBuf::from(format!("/proc/{pid}/root"))).collect()
}
