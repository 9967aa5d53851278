//! Requests that may take long, or wait for what other requests bring about: others are served
//! meanwhile.

use std::ffi::OsStr;
use std::sync::Arc;

use fuser::{INodeNo, ReplyEmpty, ReplyWrite};

use super::adapter::Adapter;
use super::answers::reply_empty;
use super::convert::fail;
use super::mount_options::AtOnce;
use crate::credentials::{NOBODY, act_for};
use crate::posix::{Caller, HandleId, Unlinked, WriteMode};
use crate::{Attr, Demand, FileSystem, Kind, NodeId, Posix, Reserve, Result, Wait};

impl<F: FileSystem> Adapter<F> {
    /// Does something for a node where it is in nobody's way.
    pub(super) fn serve(
        &self,
        number: u64,
        demand: Demand,
        work: impl FnOnce(&Posix<F>) + Send + 'static,
    ) {
        if let Some(_staying) = self.hands.stay(self.wait(number, demand)) {
            work(&self.posix);
        } else {
            let posix = Arc::clone(&self.posix);
            self.hands.take(move || work(&posix));
        }
    }

    fn wait(&self, number: u64, demand: Demand) -> Wait {
        let node = self.nodes.node(number);
        node.map_or(Wait::No, |node| self.posix.file_system().wait(node, demand))
    }

    /// Puts what has been changed of nodes on the medium, if the mount is to do so at once.
    ///
    /// # Errors
    /// [`Kind::Io`]: it has been changed, and is perhaps not on the medium.
    pub(super) fn put_down(&self, what: AtOnce, numbers: &[INodeNo]) -> Result<()> {
        if self.behaviour.at_once < what {
            return Ok(());
        }
        // Where no other thread is free to serve, this one is kept from it all the same.
        let _staying = self.hands.stay(Wait::Device);
        self.posix.sync_nodes(&self.nodes_at(numbers))
    }

    fn nodes_at(&self, numbers: &[INodeNo]) -> Vec<NodeId> {
        numbers.iter().filter_map(|number| self.node(*number).ok()).collect()
    }

    /// The same of a directory in which a node was made, or got a name: what has failed leaves no reference to it.
    pub(super) fn put_down_made(
        &self,
        dir: INodeNo,
        made: Result<(NodeId, Attr)>,
    ) -> Result<(NodeId, Attr)> {
        let (node, attr) = made?;
        match self.put_down(AtOnce::Names, &[dir]) {
            Ok(()) => Ok((node, attr)),
            Err(e) => {
                self.posix.forget(node, 1);
                Err(e)
            }
        }
    }

    /// Does what the loss of a name in directories leaves to do where it is in nobody's way, and then answers.
    pub(super) fn settle_then(
        &self,
        unlinked: Unlinked,
        dirs: &[INodeNo],
        answer: impl FnOnce(Result<()>) + Send + 'static,
    ) {
        let at_once = self.behaviour.at_once >= AtOnce::Names;
        let dirs = if at_once { self.nodes_at(dirs) } else { Vec::new() };
        let settle = move |posix: &Posix<F>, unlinked: Unlinked| {
            posix.settle(unlinked)?;
            if at_once { posix.sync_nodes(&dirs) } else { Ok(()) }
        };
        let Unlinked { node, lives_on, .. } = unlinked;
        if !lives_on {
            self.drop_pages_in_use(node);
        }
        let wait = || self.posix.file_system().wait(node, Demand::Unlinked);
        let wait = match if lives_on { Wait::No } else { wait() } {
            Wait::No if at_once => Wait::Device,
            wait => wait,
        };
        if let Some(_staying) = self.hands.stay(wait) {
            answer(settle(&self.posix, unlinked));
        } else {
            let posix = Arc::clone(&self.posix);
            self.hands.take(move || answer(settle(&posix, unlinked)));
        }
    }

    /// Answers a request that has taken away a name, when what that leaves to do is done. Where that fails the
    /// name is gone all the same, which the kernel does not think after an error.
    pub(super) fn reply_settled(
        &self,
        operation: &'static str,
        (dir, name): (INodeNo, &OsStr),
        unlinked: Result<Unlinked>,
        reply: ReplyEmpty,
    ) {
        match unlinked {
            Ok(unlinked) => {
                let (invalidator, name) = (Arc::clone(&self.invalidator), name.to_owned());
                let stale = self.renumbered_by(&unlinked);
                self.settle_then(unlinked, &[dir], move |done| {
                    let failed = done.is_err();
                    let answer = move || reply_empty(operation, done, reply);
                    match stale {
                        Some(number) => invalidator.attributes_then(vec![number], answer),
                        None => answer(),
                    }
                    if failed {
                        invalidator.name(dir, &name);
                    }
                });
            }
            Err(e) => reply.error(fail(operation, &e)),
        }
    }

    /// The number by which the kernel knows what is shown under another one, for it has lost a name.
    pub(super) fn renumbered_by(&self, unlinked: &Unlinked) -> Option<u64> {
        if unlinked.lives_on {
            self.lingering.end([unlinked.node]);
        }
        unlinked.renumbered.then(|| self.nodes.number(unlinked.node)).flatten()
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
        let write = move |posix: &Posix<F>, data: &[u8]| {
            let mut reply = Some(reply);
            let mut accepted = || {
                if let Some(reply) = reply.take() {
                    // A request is at most as long as was settled, far below the limit of u32.
                    reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX));
                }
            };
            let written = act_for(user).and_then(|_acting| {
                posix.write_and_tell(handle, offset, data, mode, &mut accepted)
            });
            match written {
                Ok(_) => accepted(),
                Err(e) => {
                    let error = fail("write", &e);
                    if let Some(reply) = reply {
                        reply.error(error);
                    }
                }
            }
        };
        if let Some(_staying) = self.hands.stay(self.wait(number, Demand::Write)) {
            write(&self.posix, data);
        } else {
            let (posix, data) = (Arc::clone(&self.posix), data.to_vec());
            self.hands.take(move || write(&posix, &data));
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
        let at_once = self.behaviour.at_once;
        self.serve(number, Demand::Resize, move |posix| {
            let done = reserve_of_mode(mode).and_then(|how| {
                let _acting = act_for(user)?;
                let end = offset.checked_add(length).ok_or(Kind::FileTooBig)?;
                posix.reserve(caller, handle, offset..end, how)?;
                if at_once == AtOnce::All { posix.fsync(handle) } else { Ok(()) }
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
