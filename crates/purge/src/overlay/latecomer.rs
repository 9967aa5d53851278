//! Whoever reaches a file by its name after it has lost that name.
//!
//! The kernel remembers names. A program that opens one while another program takes it away, or puts
//! another file there, may arrive with the old file when that has been overwritten already. Without
//! purging it would get the old content or the new, whole; so it does here. As long as the purge has
//! not begun it gets the old file, and the purge waits until it is closed. Afterwards it is served
//! what the name stands for by now, the *stand-in*: here and not by the kernel, which would be told
//! to look again (`ESTALE`), for it does so once only, and the name may be taken away again meanwhile.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::{Arc, PoisonError, RwLockWriteGuard};

use rustix::fs::{Statx, readlinkat};
use rustix::io::Errno;
use tacita_vfs::{FileType, Kind, NodeId, Opened, Result};

use super::Overlay;
use super::conversions::refused;
use super::table::Node;
use crate::faults::{Fault, planted};

/// Bits of permissions that say who may read, write and execute.
const ACCESS_MASK: u16 = 0o777;

impl Overlay {
    /// The node, or what stands in for it if its purge has begun.
    pub(super) fn living(&self, node: NodeId) -> Result<Arc<Node>> {
        let node = self.table.get(node)?;
        let stand_in = {
            let state = node.state();
            if !state.purging || planted(Fault::LatecomersUnhooked) {
                drop(state);
                return Ok(node);
            }
            state.stand_in.clone()
        };
        stand_in.map_or_else(|| self.look_again(&node), Ok)
    }

    /// As [`Overlay::living`], for attributes, which a node without a name has too.
    pub(super) fn shown_for(&self, node: NodeId) -> Result<Arc<Node>> {
        match self.living(node) {
            Err(e) if matches!(e.kind(), Kind::NotFound | Kind::Stale) => self.table.get(node),
            found => found,
        }
    }

    /// What `ask` says of a node, or of its stand-in if a purge begins meanwhile.
    pub(super) fn ask_living<T>(
        &self,
        node: NodeId,
        ask: impl Fn(&Node) -> Result<T>,
    ) -> Result<T> {
        loop {
            let living = self.living(node)?;
            let told = ask(&living);
            // Nothing is overwritten before the purge has begun.
            if !living.state().purging || planted(Fault::LatecomersUnhooked) {
                return told;
            }
        }
    }

    /// Opens what stands in for a node whose purge has begun. All handles of the node share it, and
    /// it is not purged as long as there is one.
    pub(super) fn open_stand_in(&self, node: &Node, write: bool) -> Result<Opened> {
        // Nodes come to be purged one after the other, and one that is found by its name comes
        // later than the one that it stands in for: so are their locks taken.
        let mut state = node.state();
        loop {
            let other = match &state.stand_in {
                Some(other) => Arc::clone(other),
                None => self.look_again(node)?,
            };
            // If that has been replaced in turn, the name is looked up once more.
            if let Some(opened) = self.open_unless_purging(&other, write)? {
                state.handles += 1;
                state.stand_in = Some(other);
                return Ok(Opened { stands_in: true, ..opened });
            }
        }
    }

    /// Looks up what a node without a name was called.
    fn look_again(&self, node: &Node) -> Result<Arc<Node>> {
        let _no_gap = self.gap.read().unwrap_or_else(PoisonError::into_inner);
        for (dir, name) in node.places_seen() {
            let found = self.table.get(dir).map(|dir| self.table.find(&dir, &name));
            match found {
                Ok(Ok((found, stat))) => return admitted(node, found, &stat),
                Ok(Err(Errno::NOENT)) | Err(_) => {}
                Ok(Err(e)) => return Err(refused(e)),
            }
        }
        Err(Kind::NotFound.into())
    }

    /// Held while a name stands for nothing, though it is about to stand for another file.
    pub(super) fn open_gap(&self) -> RwLockWriteGuard<'_, ()> {
        self.gap.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The target of a link.
    pub(super) fn target_of(&self, node: NodeId) -> Result<OsString> {
        self.ask_living(node, |node| {
            if node.kind != FileType::Symlink {
                return Err(Kind::Invalid.into());
            }
            if node.is_opaque {
                return Self::opaque_target(node);
            }
            let target = node.fd().and_then(|fd| readlinkat(fd, "", Vec::new()));
            let target = target.map_err(refused)?;
            Ok(OsString::from_vec(target.into_bytes()))
        })
    }
}

/// The stand-in, if whoever was let in to the node is let in to it too. The kernel has looked at the
/// permissions of the node; where the other's are stricter it has to look again itself.
fn admitted(node: &Node, found: Arc<Node>, stat: &Statx) -> Result<Arc<Node>> {
    let was = node.stat().map_err(refused)?;
    let owner = |stat: &Statx| (stat.stx_uid, stat.stx_gid);
    let open = was.stx_mode & ACCESS_MASK & !stat.stx_mode == 0;
    if node.kind == found.kind && owner(&was) == owner(stat) && open {
        Ok(found)
    } else {
        Err(Kind::Stale.into())
    }
}
