//! Lower files: opened once for all handles, read, written, truncated and punched.

use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Gid, Mode, OFlags, StatxAttributes, Timestamps, UTIME_NOW,
    UTIME_OMIT, Uid, chmodat, chownat, fallocate, ftruncate, openat, utimensat,
};
use rustix::io::Errno;
use tacita_vfs::credentials::act_for_oneself;
use tacita_vfs::{
    Attr, Change, FileType, Kind, NewNode, NodeId, Opened, Reserve, Result, Stamps, Timestamp,
};

use super::Overlay;
use super::conversions::refused;
use super::table::Node;
use crate::erasure::{Erasure, Fate};
use crate::error::errno_of;
use crate::faults::{Fault, planted};
use crate::verdict::Verdict;
use crate::witness;
use crate::xattrs;

/// Set-id bits: the kernel writes past them only if it is told of every write.
const SET_ID: u16 = 0o6000;

impl Overlay {
    /// Opens the lower file, which all handles share.
    pub(super) fn open_file(&self, node: NodeId, write: bool) -> Result<Opened> {
        let node = self.table.get(node)?;
        match self.open_unless_purging(&node, write)? {
            Some(opened) => Ok(opened),
            None => self.open_stand_in(&node, write),
        }
    }

    /// Opens the lower file of a node, unless its purge has begun.
    pub(super) fn open_unless_purging(&self, node: &Node, write: bool) -> Result<Option<Opened>> {
        // Asked before the lock, which no call to the lower file system should be made under.
        let stat = node.stat().map_err(refused)?;
        let append_only = stat.stx_attributes.contains(StatxAttributes::APPEND);
        let mut state = node.state();
        if state.purging && !planted(Fault::LatecomersUnhooked) {
            return Ok(None);
        }
        let fits = state.file.as_ref().is_some_and(|(_, writable, _)| *writable || !write);
        if !fits {
            let direct = match &state.file {
                // One file is either read by the kernel or through us, never both at a time.
                Some((_, _, direct)) => *direct,
                // A mapping would change what may only be appended to.
                None => self.passthrough && stat.stx_mode & SET_ID == 0 && !append_only,
            };
            let file = Arc::new(reopen(node, write)?);
            state.file = Some((file, write, direct));
        }
        state.handles += 1;
        let backing = match &state.file {
            Some((file, _, true)) => Some(Arc::clone(file)),
            _ => None,
        };
        Ok(Some(Opened { backing, append_only, ..Opened::default() }))
    }

    /// Makes a file and opens it, without asking for it again.
    pub(super) fn create_file(
        &self,
        dir: NodeId,
        name: &OsStr,
        new: &NewNode,
    ) -> Result<(NodeId, Attr, Opened)> {
        let (node, attr, file) = self.make_file(dir, name, new)?;
        let (file, direct) = (Arc::new(file), self.passthrough && attr.perm & SET_ID == 0);
        let mut state = node.state();
        state.handles += 1;
        let backing = direct.then(|| Arc::clone(&file));
        state.file = Some((file, true, direct));
        Ok((node.id, attr, Opened { backing, ..Opened::default() }))
    }

    /// One handle fewer; a file without a name is purged with the last.
    pub(super) fn close_file(&self, node: NodeId) {
        if let Ok(node) = self.table.get(node) {
            self.close_node(&node);
        }
    }

    fn close_node(&self, node: &Node) {
        let job = {
            let mut state = node.state();
            state.handles = state.handles.saturating_sub(1);
            let stand_in = state.stand_in.clone();
            if state.handles == 0 {
                state.stand_in = None;
            }
            if let Some(stand_in) = stand_in {
                drop(state);
                return self.close_node(&stand_in);
            }
            if state.handles > 0 {
                return;
            }
            state.file = None;
            if planted(Fault::CloseUnhooked)
                && let Some(job) = state.job.take()
            {
                let _ = self.purger.spool.remove(job.seq, false);
            }
            state.begin_purge()
        };
        if let Some(job) = job
            && let Err(e) = self.purger.accept(job)
        {
            // Nobody waits for an answer here; it is on record in the verdict.
            log::warn!("{e}");
        }
    }

    /// The lower file of an open node, or one opened for a moment.
    pub(super) fn file_of(node: &Node, write: bool) -> Result<Arc<File>> {
        if let Some((file, writable, _)) = &node.state().file
            && (*writable || !write)
        {
            return Ok(Arc::clone(file));
        }
        Ok(Arc::new(reopen(node, write)?))
    }

    pub(super) fn read_file(&self, node: NodeId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let node = self.living(node)?;
        let file = Self::file_of(&node, false)?;
        let mut done = 0;
        while done < buf.len() {
            match file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(got) => done += got,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(refused(errno_of(&e))),
            }
        }
        Ok(done)
    }

    /// Writes; the lower file system stamps the times by itself.
    pub(super) fn write_file(
        &self,
        node: NodeId,
        offset: u64,
        data: &[u8],
        stamps: Stamps,
    ) -> Result<()> {
        let node = self.living(node)?;
        if let Some(perm) = stamps.perm {
            set_perm(&node, perm)?;
        }
        let file = Self::file_of(&node, true)?;
        file.write_all_at(data, offset).map_err(|e| refused(errno_of(&e)))
    }

    /// Changes attributes; what is truncated is purged first.
    pub(super) fn apply(&self, node: NodeId, change: &Change) -> Result<Attr> {
        let node = self.living(node)?;
        if let Some(size) = change.size {
            self.resize(&node, size)?;
        }
        if change.uid.is_some() || change.gid.is_some() {
            let (uid, gid) = (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw));
            let fd = node.fd().map_err(refused)?;
            chownat(&fd, "", uid, gid, AtFlags::EMPTY_PATH).map_err(refused)?;
        }
        // A link's own bits mean nothing, and lower file systems refuse to change them.
        if let Some(perm) = change.perm.filter(|_| node.kind != FileType::Symlink) {
            set_perm(&node, perm)?;
        }
        set_times(&node, change)?;
        let stat = node.stat().map_err(refused)?;
        Ok(self.shown(&node, &stat))
    }

    fn resize(&self, node: &Node, size: u64) -> Result<()> {
        if node.kind != FileType::File {
            return Err(Kind::Invalid.into());
        }
        let now = node.stat().map_err(refused)?.stx_size;
        let file = Self::file_of(node, true)?;
        let unhooked = match size {
            0 => planted(Fault::EmptyUnhooked),
            _ => planted(Fault::TruncateUnhooked),
        };
        if size < now && !unhooked {
            self.purge_range(node, &file, size..now)?;
        }
        ftruncate(&*file, size).map_err(refused)
    }

    pub(super) fn reserve_range(
        &self,
        node: NodeId,
        range: Range<u64>,
        how: Reserve,
    ) -> Result<()> {
        let node = self.living(node)?;
        let file = Self::file_of(&node, true)?;
        let keep = |keep_size: bool| {
            if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() }
        };
        let (flags, unhooked) = match how {
            Reserve::Allocate { keep_size } => (keep(keep_size), true),
            Reserve::Punch => (
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                planted(Fault::PunchUnhooked),
            ),
            Reserve::Zero { keep_size } => {
                (FallocateFlags::ZERO_RANGE | keep(keep_size), planted(Fault::ZeroUnhooked))
            }
            Reserve::Collapse => (FallocateFlags::COLLAPSE_RANGE, planted(Fault::CollapseUnhooked)),
            Reserve::Insert => (FallocateFlags::INSERT_RANGE, true),
        };
        let stat = node.stat().map_err(refused)?;
        // Said before anything is written, which would be appended.
        let only_grows = stat.stx_attributes.contains(StatxAttributes::APPEND);
        if only_grows && !matches!(how, Reserve::Allocate { .. }) {
            return Err(Kind::NotPermitted.into());
        }
        let end = range.end.min(stat.stx_size);
        if !unhooked && range.start < end {
            self.purge_range(&node, &file, range.start..end)?;
        }
        let len = range.end - range.start;
        fallocate(&*file, flags, range.start, len).map_err(refused)
    }

    /// Overwrites a range that a file is about to lose.
    fn purge_range(&self, node: &Node, file: &File, range: Range<u64>) -> Result<()> {
        let stat = node.stat().map_err(refused)?;
        let Some(method) = self.decide_in_place(node, stat.stx_size) else {
            return Ok(());
        };
        let _acting = act_for_oneself()?;
        let lost = range.end - range.start;
        witness::show(file, stat.stx_ino, None, Some(range.clone()));
        let lower = &self.purger.lower;
        let fate = Fate::Keeps(range);
        let mut erasure = Erasure::prepare(lower, file, &fate, &method)?;
        if erasure.shared() > 0 && self.policy.on_failure == crate::policy::OnFailure::Fail {
            return Err(self.kept_shared(&stat, &method));
        }
        erasure.run(0, &mut |_| ())?;
        let mut verdict = Verdict::new(None, stat.stx_ino, lost, method.to_string());
        verdict.content = erasure.judge()?;
        verdict.overwritten = erasure.overwritten;
        verdict.in_memory = erasure.in_memory;
        verdict.removed = true;
        verdict.add_risks(lower);
        let statistics = &self.purger.statistics;
        statistics.ranges.add(1);
        statistics.bytes_deleted.add(lost);
        statistics.count(&verdict);
        if erasure.is_journaled() {
            // What was there has been written to the journal before.
            self.purger.tell_later(verdict);
        } else {
            statistics.tell(&verdict);
        }
        Ok(())
    }
}

/// Opens a node's file by the kernel's own name for what we hold.
fn reopen(node: &Node, write: bool) -> Result<File> {
    let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
    let flags = access | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    if node.lower_kind() != FileType::File {
        return Err(Kind::Invalid.into());
    }
    let fd = node.fd().map_err(refused)?;
    let open = |flags| openat(CWD, &*xattrs::path_of(&fd), flags, Mode::empty());
    let opened = match open(flags) {
        // An append-only file, or an immutable one, which is refused again.
        Err(Errno::PERM) if write => open(flags | OFlags::APPEND),
        opened => opened,
    };
    match opened {
        Ok(file) => Ok(File::from(file)),
        Err(Errno::NOENT) => Err(Kind::Stale.into()),
        Err(e) => Err(refused(e)),
    }
}

fn set_perm(node: &Node, perm: u16) -> Result<()> {
    let fd = node.fd().map_err(refused)?;
    let mode = Mode::from_raw_mode(perm.into());
    chmodat(CWD, &*xattrs::path_of(&fd), mode, AtFlags::empty()).map_err(refused)
}

/// Sets times. The lower file system stamps by itself what an operation changes.
fn set_times(node: &Node, change: &Change) -> Result<()> {
    if change.atime.is_none() && change.mtime.is_none() {
        return Ok(());
    }
    let time = |time: Option<Timestamp>| match time {
        None => rustix::fs::Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(_) if !change.user_times => rustix::fs::Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(time) => rustix::fs::Timespec { tv_sec: time.secs, tv_nsec: time.nanos.into() },
    };
    let times =
        Timestamps { last_access: time(change.atime), last_modification: time(change.mtime) };
    let fd = node.fd().map_err(refused)?;
    let path = xattrs::path_of(&fd);
    utimensat(CWD, &*path, &times, AtFlags::empty()).map_err(refused)
}
