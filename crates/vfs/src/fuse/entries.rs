//! Replies that introduce nodes to the kernel.
//!
//! One thing needs care: a listing with attributes carries one number for a node, which the kernel
//! takes for the number it knows the node by as well as for the inode number that `readdir` shows.
//! Where the two differ, the entry is sent with the inode number and an impossible size. The
//! kernel lists the name, refuses the rest, and says at once that it forgets the number once; the
//! table holds that number back until then.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::time::Duration;

use fuser::{
    Errno, FileHandle, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus, ReplyEntry,
};
use tacita_block::AlignedBuf;

use super::adapter::Adapter;
use super::convert;
use crate::posix::{HandleId, ListedEntry};
use crate::{Attr, FileSystem, NodeId, Result};

/// Numbers are not used again while the kernel remembers them, so one generation is enough.
pub(super) const GENERATION: Generation = Generation(0);

/// A size that no kernel believes.
const IMPOSSIBLE_SIZE: u64 = u64::MAX;

/// Entries that are fetched at once for a listing with attributes; a reply of a page holds fewer.
const LISTED_AT_ONCE: usize = 24;

thread_local! {
    /// Where a thread reads content to; kept, so that no read has to clear memory first.
    static READ_BUFFER: RefCell<AlignedBuf> = RefCell::default();
}

impl<F: FileSystem> Adapter<F> {
    /// Answers with a node that the rules have handed out a reference to.
    pub(super) fn reply_entry(
        &self,
        operation: &str,
        found: Result<(NodeId, Attr)>,
        reply: ReplyEntry,
    ) {
        match found {
            Ok((node, attr)) => {
                let number = self.nodes.tell(node, attr.ino);
                reply.entry_with_ttls(
                    &self.attr_ttl(node, number, attr.ino),
                    &self.behaviour.ttl,
                    &convert::attr(&attr, number, self.behaviour.shown),
                    GENERATION,
                );
            }
            Err(e) => reply.error(convert::fail(operation, &e)),
        }
    }

    /// Answers that there is no such name, which the kernel may remember: whatever makes the name
    /// passes through it.
    pub(super) fn reply_absent(&self, reply: ReplyEntry) {
        if self.behaviour.ttl.is_zero() {
            reply.error(Errno::ENOENT);
        } else {
            reply.entry(&self.behaviour.ttl, &convert::ABSENT, GENERATION);
        }
    }

    /// The kernel forgets a number `count` times.
    pub(super) fn forget_number(&self, number: u64, count: u64) {
        if let Some((node, references)) = self.nodes.forget(number, count) {
            self.posix.forget(node, references);
        }
    }

    /// Reads and hands the bytes to `then`.
    pub(super) fn read_content(
        &self,
        handle: FileHandle,
        offset: u64,
        len: usize,
        then: impl FnOnce(Result<&[u8]>),
    ) {
        READ_BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < len {
                *buffer = AlignedBuf::new(len);
            }
            let got = self.posix.read(HandleId(handle.0), offset, &mut buffer[..len]);
            then(got.map(|got| &buffer[..got]));
        });
    }

    /// Lists names.
    pub(super) fn list_names(
        &self,
        handle: FileHandle,
        from: u64,
        reply: &mut ReplyDirectory,
    ) -> Result<()> {
        self.posix.list(HandleId(handle.0), from, &mut |entry| {
            let kind = convert::file_type(entry.kind);
            !reply.add(INodeNo(entry.ino), entry.cookie, kind, entry.name)
        })
    }

    /// Lists names with attributes.
    pub(super) fn list_entries(
        &self,
        handle: FileHandle,
        from: u64,
        reply: &mut ReplyDirectoryPlus,
    ) -> Result<()> {
        let mut from = from;
        let mut full = false;
        while !full {
            let listed = self.posix.list_with_attr(HandleId(handle.0), from, LISTED_AT_ONCE)?;
            let Some(last) = listed.last() else {
                break;
            };
            from = last.cookie;
            for entry in listed {
                if full {
                    if entry.referenced {
                        self.posix.forget(entry.node, 1);
                    }
                } else {
                    full = self.add_entry(&entry, reply);
                }
            }
        }
        Ok(())
    }

    /// Adds an entry with attributes; true if it did not fit.
    fn add_entry(&self, entry: &ListedEntry, reply: &mut ReplyDirectoryPlus) -> bool {
        let ino = entry.attr.ino;
        let mut add = |name: &OsStr, ttl: Duration, attr: &Attr| {
            let attr = convert::attr(attr, ino, self.behaviour.shown);
            reply.add(INodeNo(ino), entry.cookie, name, &ttl, &attr, GENERATION)
        };
        if !entry.referenced {
            return add(&entry.name, Duration::ZERO, &entry.attr);
        }
        let number = self.nodes.tell(entry.node, ino);
        if number == ino {
            let full = add(&entry.name, self.own_attr_ttl(entry.node), &entry.attr);
            if full {
                self.forget_number(number, 1);
            }
            return full;
        }
        self.nodes.hold_back(ino);
        let refused = Attr { size: IMPOSSIBLE_SIZE, ..entry.attr };
        let full = add(&entry.name, Duration::ZERO, &refused);
        if full {
            self.forget_number(ino, 1);
        }
        self.forget_number(number, 1);
        full
    }
}
