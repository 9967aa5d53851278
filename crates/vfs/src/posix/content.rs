//! Open files: reading, writing, room and holes.

use std::ops::Range;

use super::attributes::without_set_id_by;
use super::handles::{Handle, Writer};
use super::{FILE_SIZE_MAX, Posix};
use crate::posix::{Caller, HandleId, SetAttr};
use crate::{Attr, FileSystem, FileType, Kind, NodeId, Opened, Reserve, Result, Seek, Stamps};

/// Bytes that copying holds in memory at once.
const COPY_CHUNK_LEN_BYTES: usize = 1 << 20;

/// Bytes that one call copies at most, so that it never holds a thread for long; programs go on
/// with the rest.
const COPY_LEN_MAX_BYTES: u64 = 16 << 20;

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(clippy::struct_excessive_bools, reason = "independent flags of open, as in the manual")]
pub struct OpenMode {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Every write goes to the end (`O_APPEND`).
    pub append: bool,
    /// The content is truncated (`O_TRUNC`).
    pub truncate: bool,
}

/// Who writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteMode {
    /// A program without the right to keep set-id bits, which may have been handed the file open.
    Program(Caller),
    /// A program that may keep set-id bits.
    Privileged,
    /// The kernel hands down pages of a mapping: the offset counts, even on a handle that appends.
    Pages,
    /// The kernel hands down pages and keeps the times itself.
    UnstampedPages,
}

impl<F: FileSystem> Posix<F> {
    /// Opens a regular file. The handle refers to the node until [`Posix::release`].
    ///
    /// # Errors
    /// [`Kind::IsDirectory`]; [`Kind::Invalid`] for anything else that is no file;
    /// [`Kind::NotPermitted`] for writing what may only be appended to.
    pub fn open(&self, caller: Caller, node: NodeId, mode: OpenMode) -> Result<(HandleId, Opened)> {
        match self.fs.attr(node)?.kind {
            FileType::File => {}
            FileType::Directory => return Err(Kind::IsDirectory.into()),
            _ => return Err(Kind::Invalid.into()),
        }
        if mode.truncate {
            let truncate = SetAttr { size: Some(0), ..SetAttr::default() };
            self.change(caller, node, &truncate)?;
        }
        let opened = self.fs.open(node, mode.write)?;
        if opened.append_only && mode.write && !mode.append {
            self.fs.released(node);
            return Err(Kind::NotPermitted.into());
        }
        Ok((self.open_handle(caller, node, mode, &opened), opened))
    }

    /// A handle of a regular file that the system has opened, which refers to the node.
    pub(super) fn open_handle(
        &self,
        caller: Caller,
        node: NodeId,
        mode: OpenMode,
        opened: &Opened,
    ) -> HandleId {
        self.references.take(node);
        let writer = Writer { user: caller.uid, past_us: opened.backing.is_some() };
        self.handles.insert(Handle {
            node,
            directory: false,
            read: mode.read,
            write: mode.write,
            append: mode.append,
            writer,
        })
    }

    /// Whether somebody has the node open.
    pub fn is_open(&self, node: NodeId) -> bool {
        self.handles.any_on(node)
    }

    /// Closes a file or directory and returns its node.
    ///
    /// # Errors
    /// [`Kind::BadHandle`].
    pub fn release(&self, handle: HandleId) -> Result<NodeId> {
        let Handle { node, directory, .. } = self.handles.remove(handle)?;
        if !directory {
            self.fs.released(node);
        }
        self.forget(node, 1);
        Ok(node)
    }

    /// Reads at `offset`; less than asked only at the end of the file.
    ///
    /// # Errors
    /// [`Kind::BadHandle`]; [`Kind::Io`]; [`Kind::Corrupt`].
    pub fn read(&self, handle: HandleId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let handle = self.readable(handle)?;
        self.fs.read(handle.node, offset, buf)
    }

    /// Writes all of `data` at `offset`, or at the end on a handle that appends. Returns where it
    /// went.
    ///
    /// # Errors
    /// [`Kind::BadHandle`]; [`Kind::FileTooBig`]; [`Kind::NoSpace`]; [`Kind::Io`].
    pub fn write(
        &self,
        handle: HandleId,
        offset: u64,
        data: &[u8],
        mode: WriteMode,
    ) -> Result<u64> {
        self.write_and_tell(handle, offset, data, mode, &mut || ())
    }

    /// The same; calls `accepted` as [`FileSystem::write_and_tell`] does.
    ///
    /// # Errors
    /// As [`Posix::write`]; none when `accepted` has been called.
    pub fn write_and_tell(
        &self,
        handle: HandleId,
        offset: u64,
        data: &[u8],
        mode: WriteMode,
        accepted: &mut dyn FnMut(),
    ) -> Result<u64> {
        let handle = self.writable(handle)?;
        self.activity.note();
        let by_program = matches!(mode, WriteMode::Program(_) | WriteMode::Privileged);
        let appends = handle.append && by_program;
        let remaining = |attr: &Attr| match mode {
            WriteMode::Program(caller) if !data.is_empty() => without_set_id_by(caller, attr),
            _ => None,
        };
        let drops_set_id = matches!(mode, WriteMode::Program(_))
            && remaining(&self.fs.attr(handle.node)?).is_some();
        let is_stamped = mode != WriteMode::UnstampedPages && !data.is_empty();
        let mut stamps = Stamps { now: is_stamped.then(|| self.now()), perm: None };
        if !appends && !drops_set_id {
            check_end(offset, data.len() as u64)?;
            self.fs.write_and_tell(handle.node, offset, data, stamps, accepted)?;
            return Ok(offset);
        }
        let _guard = self.lock_attributes(handle.node);
        let attr = self.fs.attr(handle.node)?;
        if drops_set_id {
            stamps.perm = remaining(&attr);
        }
        let offset = if appends { attr.size } else { offset };
        check_end(offset, data.len() as u64)?;
        self.fs.write_and_tell(handle.node, offset, data, stamps, accepted)?;
        Ok(offset)
    }

    /// Puts a file or directory on the medium, with the guarantee that the mount asked for.
    ///
    /// # Errors
    /// [`Kind::BadHandle`]; [`Kind::Io`].
    pub fn fsync(&self, handle: HandleId) -> Result<()> {
        let node = self.handles.get(handle)?.node;
        self.let_go_of_closed();
        self.fs.sync_node(node)
    }

    /// Puts nodes on the medium, directories most of all, as `fsync` of each does.
    ///
    /// # Errors
    /// [`Kind::Io`].
    pub fn sync_nodes(&self, nodes: &[NodeId]) -> Result<()> {
        self.let_go_of_closed();
        nodes.iter().try_for_each(|node| self.fs.sync_node(*node))
    }

    /// Puts the content of a file on the medium, and what is needed to read it back.
    ///
    /// # Errors
    /// As [`Posix::fsync`].
    pub fn fdatasync(&self, handle: HandleId) -> Result<()> {
        let node = self.handles.get(handle)?.node;
        self.let_go_of_closed();
        self.fs.sync_content(node)
    }

    /// `fallocate`.
    ///
    /// # Errors
    /// [`Kind::BadHandle`]; [`Kind::Invalid`] for an empty range or one that `how` cannot take;
    /// [`Kind::FileTooBig`]; [`Kind::NoSpace`]; [`Kind::Unsupported`].
    pub fn reserve(
        &self,
        caller: Caller,
        handle: HandleId,
        range: Range<u64>,
        how: Reserve,
    ) -> Result<()> {
        let node = self.writable(handle)?.node;
        if range.is_empty() {
            return Err(Kind::Invalid.into());
        }
        if range.end > FILE_SIZE_MAX {
            return Err(Kind::FileTooBig.into());
        }
        let size = self.fs.attr(node)?.size;
        match how {
            Reserve::Collapse if range.end >= size => return Err(Kind::Invalid.into()),
            Reserve::Insert if range.start >= size => return Err(Kind::Invalid.into()),
            Reserve::Insert => check_end(size, range.end - range.start)?,
            _ => {}
        }
        self.fs.reserve(node, range, how)?;
        self.stamp_content(caller, node)
    }

    /// `lseek` for data or holes.
    ///
    /// # Errors
    /// [`Kind::BadHandle`]; [`Kind::NoMore`].
    pub fn seek(&self, handle: HandleId, offset: u64, what: Seek) -> Result<u64> {
        self.fs.seek(self.handles.get(handle)?.node, offset, what)
    }

    /// Copies up to `len` bytes between open files and returns how many; 0 at the end of the
    /// source.
    ///
    /// # Errors
    /// [`Kind::BadHandle`]; [`Kind::Invalid`] where the ranges of one file overlap;
    /// [`Kind::FileTooBig`]; [`Kind::NoSpace`]; [`Kind::Io`]. What was copied before a failure counts as
    /// copied and is returned instead.
    pub fn copy_range(
        &self,
        caller: Caller,
        (from, from_offset): (HandleId, u64),
        (to, to_offset): (HandleId, u64),
        len: u64,
    ) -> Result<u64> {
        let source = self.readable(from)?.node;
        let target = self.writable(to)?.node;
        let len = len.min(COPY_LEN_MAX_BYTES);
        let apart = from_offset >= to_offset.saturating_add(len)
            || to_offset >= from_offset.saturating_add(len);
        if source == target && !apart {
            return Err(Kind::Invalid.into());
        }
        let chunk_len = len.min(COPY_CHUNK_LEN_BYTES as u64);
        let mut chunk = vec![0; usize::try_from(chunk_len).unwrap_or(COPY_CHUNK_LEN_BYTES)];
        let mut done = 0;
        let mut failure = None;
        while done < len {
            let want = usize::try_from(len - done).map_or(chunk.len(), |l| l.min(chunk.len()));
            let step =
                self.fs.read(source, from_offset + done, &mut chunk[..want]).and_then(|got| {
                    check_end(to_offset + done, got as u64)?;
                    if got > 0 {
                        self.fs.write(target, to_offset + done, &chunk[..got], Stamps::NONE)?;
                    }
                    Ok(got)
                });
            match step {
                Ok(0) => break,
                Ok(got) => done += got as u64,
                Err(e) => {
                    failure = Some(e);
                    break;
                }
            }
        }
        match failure {
            Some(e) if done == 0 => Err(e),
            _ if done == 0 => Ok(0),
            _ => {
                self.stamp_content(caller, target)?;
                Ok(done)
            }
        }
    }

    fn readable(&self, handle: HandleId) -> Result<Handle> {
        let handle = self.handles.get(handle)?;
        if handle.read && !handle.directory { Ok(handle) } else { Err(Kind::BadHandle.into()) }
    }

    fn writable(&self, handle: HandleId) -> Result<Handle> {
        let handle = self.handles.get(handle)?;
        if handle.write && !handle.directory { Ok(handle) } else { Err(Kind::BadHandle.into()) }
    }
}

/// Refuses what would reach beyond the largest offset.
fn check_end(offset: u64, len: u64) -> Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= FILE_SIZE_MAX => Ok(()),
        _ => Err(Kind::FileTooBig.into()),
    }
}
