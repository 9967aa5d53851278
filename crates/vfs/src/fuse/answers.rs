//! Answers that take more than one call of the rules, and the forms that answers have in common.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use fuser::{Errno, INodeNo, RenameFlags, ReplyAttr, ReplyEmpty, ReplyXattr, Request};

use super::adapter::{Adapter, Behaviour};
use super::convert;
use super::convert::{caller, fail};
use crate::credentials::{NOBODY, act_for};
use crate::posix::{HandleId, RenameMode, Unlinked};
use crate::{Attr, FileSystem, Kind, NodeId, Opened, Result};

impl<F: FileSystem> Adapter<F> {
    /// The registration of the lower file of an opened node, where both sides want passthrough.
    pub(super) fn backing(
        &self,
        opening: (NodeId, HandleId),
        opened: &Opened,
        (writes, by_root): (bool, bool),
        register: impl FnOnce(&std::fs::File) -> io::Result<fuser::BackingId>,
    ) -> Option<Arc<fuser::BackingId>> {
        self.passes_through.get()?;
        let register = |file: &std::fs::File| {
            if !self.behaviour.callers_room {
                return register(file);
            }
            // All handles of a node share what the kernel is given here, whoever opens it later.
            if writes
                && by_root
                && self.posix.stats().map_err(io::Error::other)?.blocks_available == 0
            {
                return Err(io::Error::other("only root's own writes find room"));
            }
            let _acting = act_for(NOBODY).map_err(io::Error::other)?;
            register(file)
        };
        self.backings.take(opening, writes, opened.backing.as_ref()?, register)
    }

    /// Gives a node another name; the number that it was shown under stays for a moment.
    pub(super) fn link_node(&self, node: NodeId, dir: NodeId, name: &OsStr) -> Result<Attr> {
        let before = self
            .lingering_number(node)
            .map_or_else(|| self.posix.attr(node).map(|attr| attr.ino), Ok)?;
        let attr = self.posix.link(node, dir, name)?;
        if attr.ino != before {
            self.lingering.stay(node, before, self.posix.clock().monotonic());
        }
        Ok(attr)
    }

    /// Moves a name; returns the numbers whose attributes the kernel has to ask for again, and what is
    /// left to do.
    pub(super) fn rename_nodes(
        &self,
        request: &Request,
        from: (INodeNo, &OsStr),
        to: (INodeNo, &OsStr),
        flags: RenameFlags,
    ) -> Result<(Vec<u64>, Option<Unlinked>)> {
        let mode = match flags {
            RenameFlags::RENAME_NOREPLACE => RenameMode::NoReplace,
            RenameFlags::RENAME_EXCHANGE => RenameMode::Exchange,
            flags if flags.is_empty() => RenameMode::Replace,
            _ => return Err(Kind::Invalid.into()),
        };
        let _acting = self.acting_for(request)?;
        let from = (self.node(from.0)?, from.1);
        let to = (self.node(to.0)?, to.1);
        let renamed = self.posix.rename_name(caller(request, 0), from, to, mode)?;
        let Some((renamed, unlinked)) = renamed else {
            return Ok((Vec::new(), None));
        };
        let stale = unlinked.as_ref().and_then(|unlinked| self.renumbered_by(unlinked));
        let moved = || [Some(renamed.node), renamed.other].into_iter().flatten();
        self.lingering.end(moved());
        if !renamed.renumbered {
            return Ok((Vec::from_iter(stale), unlinked));
        }
        if renamed.directory {
            self.lingering.end_all();
            // Numbers beneath a directory may have changed too, and which nodes lie beneath it is
            // not known here: whatever the kernel remembers it has to ask for again.
            return Ok((self.nodes.numbers(), unlinked));
        }
        let numbers = moved().filter_map(|n| self.nodes.number(n));
        Ok((numbers.collect(), unlinked))
    }
}

pub(super) fn reply_attr(
    operation: &str,
    (ttl, behaviour, lingering): (Duration, &Behaviour, Option<u64>),
    attr: Result<Attr>,
    reply: ReplyAttr,
) {
    match attr {
        // This reply alone may carry another number than the kernel's own: it is what stat shows.
        // Kept it may be as well, unless it is shown for a moment only; a rename that changes it says so.
        Ok(attr) => {
            let ttl = if lingering.is_some() { Duration::ZERO } else { ttl };
            let shown = convert::attr(&attr, lingering.unwrap_or(attr.ino), behaviour.shown);
            reply.attr(&ttl, &shown);
        }
        Err(e) => reply.error(fail(operation, &e)),
    }
}

pub(super) fn reply_empty(operation: &str, done: Result<()>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(fail(operation, &e)),
    }
}

/// Answers with a value, or with its length alone if the caller asked with a buffer of none.
pub(super) fn reply_value(operation: &str, value: Result<Vec<u8>>, size: u32, reply: ReplyXattr) {
    match value {
        Ok(value) => match u32::try_from(value.len()) {
            Ok(len) if size == 0 => reply.size(len),
            Ok(len) if len <= size => reply.data(&value),
            Ok(_) => reply.error(Errno::ERANGE),
            Err(_) => reply.error(Errno::E2BIG),
        },
        Err(e) => reply.error(fail(operation, &e)),
    }
}
