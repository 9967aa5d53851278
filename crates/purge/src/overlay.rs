//! The overlay: a lower folder with every deletion purged.
//!
//! It implements the seam of `vfs` on another file system. Reading and writing go to the lower
//! file, by the kernel itself where it can (passthrough); whatever takes content or a name away
//! passes through here.

mod access_lists;
mod attribute_calls;
mod content;
mod conversions;
mod inode_flags;
mod kept;
mod latecomer;
mod namespace;
mod opaque;
mod seam;
mod table;

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{CWD, IFlags, Mode, OFlags, ioctl_getflags, openat};
use rustix::process::{getegid, geteuid};
use serde_json::{Value, json};
use tacita_clock::{Clock, System};
use tacita_vfs::FileType;

use crate::error::{During, tells_nothing};
use crate::lower_fs::LowerFs;
use crate::method::Method;
use crate::policy::{Facts, Policy};
use crate::purger::{self, Manner, Purger};
use crate::spool::Spool;
use crate::statistics::Statistics;
use crate::{Error, Result, descriptors, names, xattrs};

use table::{Node, Table};

/// How often names and journal are dealt with unless told otherwise.
const EPOCH_DEFAULT: Duration = Duration::from_secs(10);

/// How an overlay works.
#[allow(clippy::struct_excessive_bools, reason = "independent switches, each an option of mount")]
pub struct OverlayOptions {
    /// Which files are purged, and how.
    pub policy: Policy,
    /// Deleting returns at once; a thread purges.
    pub asynchronous: bool,
    /// How often names and journal are dealt with.
    pub epoch: Duration,
    /// The kernel may read and write lower files directly.
    pub passthrough: bool,
    /// Also where overwriting does not reach the old blocks; the verdicts say so.
    pub anyway: bool,
    /// Symbolic links with targets that could not be purged are kept as regular files, and shown as
    /// links.
    pub opaque_links: bool,
    /// Gets every verdict as a line of JSON.
    pub report: Option<File>,
    /// Tells the time: for epochs, for looking again, and for method f.
    pub clock: Arc<dyn Clock>,
}

impl Default for OverlayOptions {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            asynchronous: false,
            epoch: EPOCH_DEFAULT,
            passthrough: true,
            anyway: false,
            opaque_links: false,
            report: None,
            clock: Arc::new(System),
        }
    }
}

impl fmt::Debug for OverlayOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OverlayOptions").field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// A lower folder under purge.
pub struct Overlay {
    table: Table,
    purger: Arc<Purger>,
    policy: Policy,
    passthrough: bool,
    /// Whether there are access control lists below.
    keeps_lists: bool,
    /// Shared by those who look again for a name, exclusive while a name stands for nothing.
    gap: RwLock<()>,
    /// User and group of what this process makes.
    ids: (u32, u32),
    workers: Vec<JoinHandle<()>>,
}

impl Overlay {
    /// Opens a lower folder, and begins to purge what an interrupted mount has left.
    ///
    /// Without `options.asynchronous` that is done when this returns, as far as it can be: see
    /// [`Overlay::pending`].
    ///
    /// # Errors
    /// [`crate::Kind::NotFound`] for the folder; [`crate::Kind::Unsuitable`] if overwriting does not reach the
    /// old blocks; [`crate::Kind::InUse`] if another mount serves it; [`crate::Kind::NotPermitted`];
    /// [`crate::Kind::NoSpace`]; [`crate::Kind::Io`].
    pub fn open(lower: &Path, options: OverlayOptions) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, lower, flags, Mode::empty())
            .map_err(|errno| Error::of_kernel(errno, lower.display().to_string()))?;
        Self::open_root(root, options)
    }

    /// As [`Overlay::open`], of a folder that has been opened already.
    ///
    /// # Errors
    /// As [`Overlay::open`].
    pub fn open_root(root: OwnedFd, options: OverlayOptions) -> Result<Self> {
        let readable = names::reopen_folder(&root).during("opening the lower folder")?;
        let lower = LowerFs::beneath(&readable)?;
        if !options.anyway {
            lower.check()?;
        }
        descriptors::raise_limit();
        let table =
            Table::new(root, &lower, options.opaque_links).during("opening the lower folder")?;
        let opened = Spool::open(table.root.fd().during("opening the lower folder")?.as_fd())?;
        purger::begin_recording(&lower, &opened);
        let (mut folders, are_all) = opened.lost_folders;
        let returned = purger::take_back(&lower, &opened.spool, &mut folders)?;
        let manner = Manner {
            asynchronous: options.asynchronous,
            epoch: options.epoch,
            on_failure: options.policy.on_failure,
        };
        let statistics = Statistics::new(options.report);
        let purger = Arc::new(Purger::new(
            lower,
            opened.spool,
            readable,
            manner,
            (statistics, options.clock),
        ));
        let interrupted = opened.interrupted;
        let left_over = opened.left_over.into_iter().chain(returned).collect();
        purger.recover(left_over, (folders, are_all), &options.policy.method, interrupted);
        // What cannot be purged now is no reason to keep everything else from being used: it stays
        // in the spool and in the status.
        if !manner.asynchronous
            && let Err(e) = purger.drain()
        {
            log::warn!("what an earlier mount has left is not purged yet: {e}");
        }
        let workers = [
            start(&purger, "tacita-purge", Purger::work)?,
            start(&purger, "tacita-judge", Purger::conclude_all)?,
        ];
        let keeps_lists =
            table.root.fd().map(access_lists::are_kept).during("opening the lower folder")?;
        Ok(Self {
            table,
            keeps_lists,
            purger,
            policy: options.policy,
            passthrough: options.passthrough,
            gap: RwLock::default(),
            ids: (geteuid().as_raw(), getegid().as_raw()),
            workers: workers.into(),
        })
    }

    /// What lies beneath.
    pub fn lower(&self) -> &LowerFs {
        &self.purger.lower
    }

    /// Purges everything pending: files nobody has open, names, and the journal.
    ///
    /// # Errors
    /// [`crate::Kind::Io`]: something is still to be done; the next mount tries again.
    pub fn finish(&self) -> Result<()> {
        self.purger.drain()
    }

    /// Files in the spool that are still to be purged.
    pub fn pending(&self) -> usize {
        let (queued, later) = self.purger.waiting();
        queued + later
    }

    /// Those of them that a program has open in the lower folder.
    pub fn in_use(&self) -> usize {
        self.purger.in_use()
    }

    /// Counts, what is pending, and the last verdicts.
    pub fn status(&self) -> Value {
        self.purger.settle();
        let (queued, later) = self.purger.waiting();
        let mut status = self.purger.statistics.json(&self.purger.verdicts_pending());
        let lower = &self.purger.lower;
        let more = json!({
            "file_system": lower.fs,
            "flash": lower.flash,
            "keeps_copies": lower.keeps_copies(),
            "virtual_disk": lower.on_virtual_disk,
            "shares_attributes": lower.shares_values,
            "method": self.policy.method.to_string(),
            "asynchronous": self.purger.manner.asynchronous,
            "marked_only": self.policy.marked_only,
            "queued": queued,
            "in_use_or_held": later,
            "idle": self.purger.is_idle(),
        });
        if let (Value::Object(status), Value::Object(more)) = (&mut status, more) {
            status.extend(more);
        }
        status
    }

    /// How a file is purged; `None` if it is not.
    fn decide(&self, dir: &Node, name: &OsStr, node: &Node, size: u64) -> Option<Method> {
        let path = if self.policy.rules.is_empty() {
            // Nobody will look at it.
            PathBuf::new()
        } else {
            self.table.path(dir, name)
        };
        // What nobody knows may be wanted: it is purged by the method of the mount.
        let known = |node: &Node| node.policy().unwrap_or_else(|_| Some(Vec::new()));
        let attribute = || known(node).or_else(|| known(dir));
        let marked = || {
            if !matches!(node.lower_kind(), FileType::File | FileType::Directory) {
                return false;
            }
            let again = |flags| {
                let fd = node.fd()?;
                openat(CWD, &*xattrs::path_of(&fd), flags, Mode::empty())
            };
            let flags =
                again(OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC).and_then(ioctl_getflags);
            flags.map_or_else(tells_nothing, |flags| flags.contains(IFlags::SECURE_REMOVAL))
        };
        let facts = Facts { path: &path, size, attribute: &attribute, marked: &marked };
        self.policy.decide(&facts)
    }

    /// As [`Overlay::decide`], by the place where the node was last seen.
    fn decide_in_place(&self, node: &Node, size: u64) -> Option<Method> {
        let (dir, name) = node.place();
        let dir = self.table.get(dir).unwrap_or_else(|_| Arc::clone(&self.table.root));
        self.decide(&dir, &name, node, size)
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        // A file that was closed in the last moment.
        if !self.purger.is_idle()
            && let Err(e) = self.purger.drain()
        {
            log::warn!("something is left for the next mount: {e}");
        }
        self.purger.stop();
        for worker in self.workers.drain(..) {
            // A panic there has been printed already.
            let _ = worker.join();
        }
        if self.purger.is_idle()
            && let Ok(root) = self.table.root.fd()
        {
            self.purger.spool.leave(root.as_fd());
        }
    }
}

impl fmt::Debug for Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overlay").field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// Starts a thread that works until the purger is stopped.
fn start(purger: &Arc<Purger>, name: &str, work: fn(&Purger)) -> Result<JoinHandle<()>> {
    let purger = Arc::clone(purger);
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(move || work(&purger)).during("starting a thread")
}
