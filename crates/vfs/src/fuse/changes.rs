//! Changes of content: those that may wait for other requests are handed to threads of their own.

use std::sync::Arc;

use fuser::{ReplyEmpty, ReplyWrite};

use super::adapter::Adapter;
use super::convert::fail;
use super::requests::reply_empty;
use crate::credentials::{NOBODY, act_for};
use crate::posix::{Caller, HandleId, WriteMode};
use crate::{FileSystem, Kind, Posix, Reserve, Result};

impl<F: FileSystem> Adapter<F> {
    /// Does a change of a file: here, or, if it may wait for other requests, where it is in nobody's
    /// way.
    pub(super) fn change_file(&self, number: u64, change: impl FnOnce(&Posix<F>) + Send + 'static) {
        if self.is_handed_over(number) {
            let posix = Arc::clone(&self.posix);
            self.hands.take(move || change(&posix));
        } else {
            change(&self.posix);
        }
    }

    /// Whether a change of this file is done elsewhere.
    pub(super) fn is_handed_over(&self, number: u64) -> bool {
        let node = self.nodes.node(number);
        node.is_ok_and(|node| self.posix.file_system().may_wait(node))
    }

    pub(super) fn write_content(
        &self,
        number: u64,
        handle: HandleId,
        user: u32,
        (offset, data): (u64, &[u8]),
        mode: WriteMode,
        reply: ReplyWrite,
    ) {
        // Whose pages those of a mapping are is not told.
        let from_mapping = matches!(mode, WriteMode::Pages | WriteMode::UnstampedPages);
        let user = self.account(if from_mapping { NOBODY } else { user });
        if self.is_handed_over(number) {
            let data = data.to_vec();
            self.change_file(number, move |posix| {
                let acting = act_for(user);
                let written = acting.and_then(|_acting| posix.write(handle, offset, &data, mode));
                reply_written(written, data.len(), reply);
            });
        } else {
            let acting = act_for(user);
            let written = acting.and_then(|_acting| self.posix.write(handle, offset, data, mode));
            reply_written(written, data.len(), reply);
        }
    }

    pub(super) fn reserve_content(
        &self,
        number: u64,
        handle: HandleId,
        caller: Caller,
        (offset, length): (u64, u64),
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let user = self.account(caller.uid);
        self.change_file(number, move |posix| {
            let done = reserve_of_mode(mode).and_then(|how| {
                let _acting = act_for(user)?;
                let end = offset.checked_add(length).ok_or(Kind::FileTooBig)?;
                posix.reserve(caller, handle, offset..end, how)
            });
            reply_empty("fallocate", done, reply);
        });
    }
}

fn reserve_of_mode(mode: i32) -> Result<Reserve> {
    let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
    match mode & !libc::FALLOC_FL_KEEP_SIZE {
        0 => Ok(Reserve::Allocate { keep_size }),
        libc::FALLOC_FL_PUNCH_HOLE if keep_size => Ok(Reserve::Punch),
        libc::FALLOC_FL_ZERO_RANGE => Ok(Reserve::Zero { keep_size }),
        libc::FALLOC_FL_COLLAPSE_RANGE if !keep_size => Ok(Reserve::Collapse),
        libc::FALLOC_FL_INSERT_RANGE if !keep_size => Ok(Reserve::Insert),
        _ => Err(Kind::Unsupported.into()),
    }
}

fn reply_written(written: Result<u64>, len: usize, reply: ReplyWrite) {
    match written {
        // A request is at most as long as was settled, far below the limit of u32.
        Ok(_) => reply.written(u32::try_from(len).unwrap_or(u32::MAX)),
        Err(e) => reply.error(fail("write", &e)),
    }
}
