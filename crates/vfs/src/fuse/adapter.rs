//! State of the adapter, and the settings it negotiates with the kernel.

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use fuser::{FopenFlags, InitFlags, KernelConfig, Request, Version};
use tacita_daemon::Leaving;

use super::backing::Backings;
use super::hands::Hands;
use super::invalidator::Invalidator;
use super::lingering::Lingering;
use super::mount_options::{AtOnce, Shown};
use super::node_table::NodeTable;
use crate::credentials::{Acting, act_for};
use crate::posix::HandOver;
use crate::{FileSystem, NodeId, Opened, Posix, Result};

/// Largest write in bytes: one request of the kernel at 4 KiB a page.
const WRITE_LEN_MAX_BYTES: u32 = 1 << 20;

/// File systems that may lie on top of one another beneath passthrough.
const STACK_DEPTH_MAX: u32 = 1;

/// First version of the protocol (Linux 5.16) whose kernels surely refuse entries with impossible
/// attributes, on which listing renumbered nodes relies: see [`super::entries`].
const READ_DIR_PLUS_SINCE: Version = Version(7, 35);

/// How the adapter behaves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Behaviour {
    pub(super) ttl: Duration,
    pub(super) writeback_cache: bool,
    pub(super) passthrough: bool,
    pub(super) callers_room: bool,
    pub(super) background_max: u16,
    pub(super) shown: Shown,
    pub(super) at_once: AtOnce,
}

/// What outlives the session: how its last sync went.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    final_sync: Mutex<Option<Result<()>>>,
}

impl Outcome {
    /// How the final sync went; `None` if it was not reached.
    pub(super) fn take(&self) -> Option<Result<()>> {
        self.final_sync.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set(&self, result: Result<()>) {
        *self.final_sync.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    }
}

/// A session's adapter.
pub(super) struct Adapter<F> {
    pub(super) posix: Arc<Posix<F>>,
    pub(super) behaviour: Behaviour,
    pub(super) nodes: Arc<NodeTable>,
    pub(super) invalidator: Arc<Invalidator>,
    pub(super) lingering: Lingering,
    pub(super) backings: Arc<Backings>,
    /// Whether the kernel agreed to passthrough.
    pub(super) passes_through: OnceLock<()>,
    outcome: Arc<Outcome>,
    leaving: Leaving,
    pub(super) hands: Hands,
}

impl<F: FileSystem> Adapter<F> {
    pub(super) fn new(
        posix: Arc<Posix<F>>,
        behaviour: Behaviour,
        threads: usize,
        leaving: Leaving,
    ) -> Self {
        Self {
            nodes: Arc::new(NodeTable::new(posix.root())),
            posix,
            behaviour,
            invalidator: Arc::new(Invalidator::new()),
            lingering: Lingering::default(),
            backings: Arc::default(),
            passes_through: OnceLock::new(),
            outcome: Arc::default(),
            leaving,
            hands: Hands::beside(threads),
        }
    }

    pub(super) fn outcome(&self) -> Arc<Outcome> {
        Arc::clone(&self.outcome)
    }

    /// Settles what both sides can do.
    pub(super) fn negotiate(&self, config: &mut KernelConfig) -> io::Result<()> {
        // Not FUSE_ATOMIC_O_TRUNC: the kernel would truncate a file before it notices that the file
        // is being executed.
        let mut wanted = InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2;
        if config.kernel_abi() >= READ_DIR_PLUS_SINCE {
            wanted |= InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO;
        }
        if self.behaviour.writeback_cache {
            wanted |= InitFlags::FUSE_WRITEBACK_CACHE;
        }
        // Bits that are shown instead of a file's own are obeyed alone.
        if self.posix.keeps_access_lists() && self.behaviour.shown.umask.is_none() {
            wanted |= InitFlags::FUSE_POSIX_ACL | InitFlags::FUSE_DONT_MASK;
        }
        // Whatever the kernel lacks it does without: it has lists (Linux 4.9), and all else only saves questions.
        let _ = config.add_capabilities(wanted & config.capabilities());
        // Set-id bits fall where the kernel writes by itself only if it is shown them.
        if self.behaviour.passthrough
            && !self.behaviour.writeback_cache
            && self.behaviour.shown.umask.is_none()
            && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
            && config.set_max_stack_depth(STACK_DEPTH_MAX).is_ok()
        {
            self.passes_through.get_or_init(|| ());
        }
        config.set_max_write(WRITE_LEN_MAX_BYTES).map_err(refused)?;
        config
            .set_max_background(self.behaviour.background_max)
            .map_err(|limit| refused(u32::from(limit)))?;
        Ok(())
    }

    /// The session is over.
    pub(super) fn end(&self) {
        self.leaving.tell();
        self.invalidator.stop();
        // A kernel that lets go of a mount does not forget its nodes one by one.
        self.posix.forget_all();
        self.outcome.set(self.posix.sync());
    }

    /// On whose account what is done for a user takes room, until it is dropped.
    pub(super) fn acting_for(&self, request: &Request) -> Result<Acting> {
        act_for(self.account(request.uid()))
    }

    /// The user on whose account room is taken for `user`.
    pub(super) const fn account(&self, user: u32) -> u32 {
        if self.behaviour.callers_room { user } else { 0 }
    }

    /// How long the kernel may keep attributes shown under `number`.
    pub(super) fn attr_ttl(&self, node: NodeId, number: u64, ino: u64) -> Duration {
        let is_own = number == ino && self.lingering_number(node).is_none();
        if is_own { self.own_attr_ttl(node) } else { Duration::ZERO }
    }

    /// How long the kernel may keep attributes. Not at all while it writes past the file system: what
    /// is written by a mapping changes times, and nobody hears of it.
    pub(super) fn own_attr_ttl(&self, node: NodeId) -> Duration {
        if self.is_written_past(node) { Duration::ZERO } else { self.behaviour.ttl }
    }

    /// The number that a node is still shown under in place of its own.
    pub(super) fn lingering_number(&self, node: NodeId) -> Option<u64> {
        self.lingering.of(node, || self.posix.clock().monotonic())
    }

    /// Whether the kernel may write to the lower file of a node by itself.
    pub(super) fn is_written_past(&self, node: NodeId) -> bool {
        self.passes_through.get().is_some() && self.backings.is_written(node)
    }

    /// Flags of an open regular file.
    pub(super) fn open_flags(&self, opened: &Opened) -> FopenFlags {
        let mut flags = FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        // What may only be appended to is not mapped to be written: the kernel does not know that it is that.
        if opened.stands_in || opened.append_only {
            flags |= FopenFlags::FOPEN_DIRECT_IO;
        } else if !opened.drop_cache {
            flags |= FopenFlags::FOPEN_KEEP_CACHE;
        }
        if !self.behaviour.writeback_cache {
            flags |= FopenFlags::FOPEN_NOFLUSH;
        }
        flags
    }

    /// What hands over what programs have changed in mappings, as long as the mount lasts. The kernel's `syncfs`
    /// begins to write it, and waits for that on `fuseblk` alone (Linux 6.18).
    pub(super) fn hands_over(&self) -> HandOver {
        let nodes = Arc::downgrade(&self.nodes);
        let invalidator = Arc::downgrade(&self.invalidator);
        Arc::new(move |written| {
            let (Some(nodes), Some(invalidator)) = (nodes.upgrade(), invalidator.upgrade()) else {
                return;
            };
            for number in written.into_iter().filter_map(|node| nodes.number(node)) {
                invalidator.write_back(number);
            }
        })
    }

    /// Drops what the kernel caches of a node that has lost a name. If nobody has it open, the
    /// kernel does so by itself when its last name goes.
    pub(super) fn drop_pages_in_use(&self, node: NodeId) {
        if self.posix.is_open(node) {
            self.drop_pages(node, 0);
        }
    }

    /// Drops what the kernel caches of a node's content from an offset on.
    pub(super) fn drop_pages(&self, node: NodeId, from: u64) {
        if let Some(number) = self.nodes.number(node) {
            self.invalidator.pages(number, from);
        }
    }
}

impl<F> std::fmt::Debug for Adapter<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Adapter").finish_non_exhaustive()
    }
}

fn refused(limit: u32) -> io::Error {
    io::Error::other(format!("FUSE limits a setting to {limit}"))
}
