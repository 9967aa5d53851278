//! Requests of the kernel, one by one.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, INodeNo,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use super::adapter::Adapter;
use super::answers::{reply_attr, reply_empty, reply_value};
use super::convert;
use super::convert::{caller, fail, from_request_time, kind_of_mode, set_time};
use super::entries::GENERATION;
use super::mount_options::AtOnce;
use crate::posix::{HandleId, OpenMode, SetAttr, WriteMode};
use crate::{Demand, FileSystem, Kind, NodeId, Result, Seek, XattrMode};

/// Permission and set-id bits.
const PERM_MASK: u32 = 0o7777;

impl<F: FileSystem> Adapter<F> {
    pub(super) fn node(&self, number: INodeNo) -> Result<NodeId> {
        self.nodes.node(number.0)
    }

    fn open_mode(&self, flags: i32) -> OpenMode {
        let access = flags & libc::O_ACCMODE;
        let write = access == libc::O_WRONLY || access == libc::O_RDWR;
        OpenMode {
            // With the write-back cache the kernel reads what it is about to write in part.
            read: access != libc::O_WRONLY || self.behaviour.writeback_cache,
            write,
            append: flags & libc::O_APPEND != 0,
            truncate: flags & libc::O_TRUNC != 0 && write,
        }
    }
}

impl<F: FileSystem> Filesystem for Adapter<F> {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        self.negotiate(config)
    }

    fn destroy(&mut self) {
        self.end();
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.node(parent).and_then(|dir| self.posix.lookup(dir, name)) {
            Err(e) if e.kind() == Kind::NotFound => self.reply_absent(reply),
            found => self.reply_entry("lookup", found, reply),
        }
    }

    fn forget(&self, _: &Request, ino: INodeNo, nlookup: u64) {
        self.forget_number(ino.0, nlookup);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let node = match self.node(ino) {
            Ok(node) => node,
            Err(e) => return reply.error(fail("getattr", &e)),
        };
        let (ttl, lingering) = (self.own_attr_ttl(node), self.lingering_number(node));
        let attr = self.posix.attr(node);
        reply_attr("getattr", (ttl, &self.behaviour, lingering), attr, reply);
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = SetAttr {
            perm: mode.and_then(|mode| u16::try_from(mode & PERM_MASK).ok()),
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
            ctime: ctime.map(from_request_time),
        };
        let caller = caller(req, 0);
        let found = self.node(ino).and_then(|node| Ok((node, self.to_set(caller, node, set)?)));
        let (node, set) = match found {
            Ok(found) => found,
            Err(e) => return reply.error(fail("setattr", &e)),
        };
        let (behaviour, ttl) = (self.behaviour, self.own_attr_ttl(node));
        let lingering = self.lingering_number(node);
        let Some(size) = size else {
            // The kernel has let whoever is shown as the owner do what owners may.
            let changed = if behaviour.shown.uid == Some(caller.uid) {
                self.posix.change_as_owner(caller, node, &set)
            } else {
                self.posix.change(caller, node, &set)
            };
            let changed =
                changed.and_then(|attr| self.put_down(AtOnce::All, &[ino]).map(|()| attr));
            return reply_attr("setattr", (ttl, &behaviour, lingering), changed, reply);
        };
        let invalidator = Arc::clone(&self.invalidator);
        self.serve(ino.0, Demand::Resize, move |posix| {
            let mut changed = posix.change(caller, node, &set);
            if changed.is_ok() {
                invalidator.pages(ino.0, size);
            }
            if behaviour.at_once == AtOnce::All {
                changed = changed.and_then(|attr| posix.sync_nodes(&[node]).map(|()| attr));
            }
            reply_attr("setattr", (ttl, &behaviour, lingering), changed, reply);
        });
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.node(ino).and_then(|node| self.posix.read_link(node)) {
            Ok(target) => reply.data(target.as_encoded_bytes()),
            Err(e) => reply.error(fail("readlink", &e)),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let entry = self.node(parent).and_then(|dir| {
            let kind = kind_of_mode(mode).ok_or(Kind::Invalid)?;
            let caller = caller(req, umask);
            let mode = self.to_make(caller, dir, mode)?;
            let _acting = self.acting_for(req)?;
            self.posix.mknod(caller, dir, name, (kind, mode), rdev)
        });
        self.reply_entry("mknod", self.put_down_made(parent, entry), reply);
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let entry = self.node(parent).and_then(|dir| {
            let _acting = self.acting_for(req)?;
            self.posix.mkdir(caller(req, umask), dir, name, mode)
        });
        self.reply_entry("mkdir", self.put_down_made(parent, entry), reply);
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let dir = self.node(parent);
        let unlinked = dir.and_then(|dir| self.posix.unlink_name(caller(req, 0), dir, name));
        self.reply_settled("unlink", (parent, name), unlinked, reply);
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let dir = self.node(parent);
        let unlinked = dir.and_then(|dir| self.posix.rmdir_name(caller(req, 0), dir, name));
        self.reply_settled("rmdir", (parent, name), unlinked, reply);
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let entry = self.node(parent).and_then(|dir| {
            let _acting = self.acting_for(req)?;
            self.posix.symlink(caller(req, 0), dir, link_name, target.as_os_str())
        });
        self.reply_entry("symlink", self.put_down_made(parent, entry), reply);
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (stale, unlinked) =
            match self.rename_nodes(req, (parent, name), (newparent, newname), flags) {
                Ok(renamed) => renamed,
                Err(e) => return reply.error(fail("rename", &e)),
            };
        let invalidator = Arc::clone(&self.invalidator);
        let names = [(parent, name.to_owned()), (newparent, newname.to_owned())];
        let answer = move |done: Result<()>| match done {
            Ok(()) if stale.is_empty() => reply.ok(),
            Ok(()) => invalidator.attributes_then(stale, move || reply.ok()),
            Err(e) => {
                reply.error(fail("rename", &e));
                // As in `reply_settled`.
                for (dir, name) in names {
                    invalidator.name(dir, &name);
                }
            }
        };
        match unlinked {
            Some(unlinked) => self.settle_then(unlinked, &[parent, newparent], answer),
            None => answer(self.put_down(AtOnce::Names, &[parent, newparent])),
        }
    }

    fn link(
        &self,
        req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let linked = self.node(ino).and_then(|node| {
            let dir = self.node(newparent)?;
            let _acting = self.acting_for(req)?;
            Ok((node, self.link_node(node, dir, newname)?))
        });
        self.reply_entry("link", self.put_down_made(newparent, linked), reply);
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let mode = self.open_mode(flags.0);
        let opened = self.node(ino).and_then(|node| {
            let (handle, opened) = self.posix.open(caller(req, 0), node, mode)?;
            if mode.truncate {
                self.drop_pages(node, 0);
            }
            Ok((node, handle, opened))
        });
        let (node, handle, opened) = match opened {
            Ok(opened) => opened,
            Err(e) => return reply.error(fail("open", &e)),
        };
        let was_written = self.is_written_past(node);
        let by = (mode.write, req.uid() == 0);
        let backing = self.backing((node, handle), &opened, by, |file| reply.open_backing(file));
        let begins = !was_written && self.is_written_past(node);
        let (handle, flags) = (FileHandle(handle.0), self.open_flags(&opened));
        let answer = move || match backing {
            Some(id) => reply.opened_passthrough(handle, FopenFlags::empty(), &id),
            None => reply.opened(handle, flags),
        };
        // What it remembers was to hold for long.
        if opened.stands_in || begins {
            self.invalidator.attributes_then(vec![ino.0], answer);
        } else {
            answer();
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let len = usize::try_from(size).unwrap_or(usize::MAX);
        self.read_content(fh, offset, len, |bytes| match bytes {
            Ok(bytes) => reply.data(bytes),
            Err(e) => reply.error(fail("read", &e)),
        });
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let pages = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let mode = match (pages, self.behaviour.writeback_cache) {
            (true, true) => WriteMode::UnstampedPages,
            (true, false) => WriteMode::Pages,
            (false, _) if write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) => {
                WriteMode::Program(caller(req, 0))
            }
            (false, _) => WriteMode::Privileged,
        };
        self.write_content(ino.0, HandleId(fh.0), req.uid(), (offset, data), mode, reply);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Closing promises nothing; the kernel does not ask again after this answer.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        // First, so that a system that hears of the end finds its lower file closed.
        if let Ok(node) = self.node(ino) {
            self.backings.release(node, HandleId(fh.0));
        }
        self.serve(ino.0, Demand::Released, move |posix| {
            reply_empty("release", posix.release(HandleId(fh.0)).map(drop), reply);
        });
    }

    fn fsync(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        content_only: bool,
        reply: ReplyEmpty,
    ) {
        self.serve(ino.0, Demand::Sync, move |posix| {
            let handle = HandleId(fh.0);
            let done = if content_only { posix.fdatasync(handle) } else { posix.fsync(handle) };
            reply_empty("fsync", done, reply);
        });
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.node(ino).and_then(|node| self.posix.opendir(node)) {
            Ok(handle) => reply.opened(FileHandle(handle.0), FopenFlags::empty()),
            Err(e) => reply.error(fail("opendir", &e)),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        match self.list_names(fh, offset, &mut reply) {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(fail("readdir", &e)),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        match self.list_entries(fh, offset, &mut reply) {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(fail("readdirplus", &e)),
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, fh: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        reply_empty("releasedir", self.posix.release(HandleId(fh.0)).map(drop), reply);
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, fh: FileHandle, _: bool, reply: ReplyEmpty) {
        self.serve(ino.0, Demand::Sync, move |posix| {
            reply_empty("fsyncdir", posix.fsync(HandleId(fh.0)), reply);
        });
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.posix.stats() {
            Ok(stats) => reply.statfs(
                stats.blocks,
                stats.blocks_free,
                stats.blocks_available,
                stats.files,
                stats.files_free,
                stats.block_len_bytes,
                stats.name_len_max,
                stats.block_len_bytes,
            ),
            Err(e) => reply.error(fail("statfs", &e)),
        }
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let mode = match flags {
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => XattrMode::Any,
        };
        let done = self.node(ino).and_then(|node| {
            let _acting = self.acting_for(req)?;
            self.posix.set_xattr(caller(req, 0), node, name, value, mode)?;
            self.put_down(AtOnce::All, &[ino])
        });
        reply_empty("setxattr", done, reply);
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let value = self.node(ino).and_then(|node| self.posix.xattr(node, name));
        reply_value("getxattr", value, size, reply);
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.node(ino).and_then(|node| self.posix.xattrs_for(caller(req, 0), node));
        let list = names.map(|names| {
            let mut list = Vec::new();
            for name in names {
                list.extend_from_slice(name.as_encoded_bytes());
                list.push(0);
            }
            list
        });
        reply_value("listxattr", list, size, reply);
    }

    fn removexattr(&self, _: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.node(ino).and_then(|node| {
            self.posix.remove_xattr(node, name)?;
            self.put_down(AtOnce::All, &[ino])
        });
        reply_empty("removexattr", done, reply);
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let open = self.open_mode(flags);
        let exclusive = flags & libc::O_EXCL != 0;
        let created = self.node(parent).and_then(|dir| {
            let caller = caller(req, umask);
            let mode = self.to_make(caller, dir, mode)?;
            let _acting = self.acting_for(req)?;
            self.posix.create(caller, dir, name, mode, open, exclusive)
        });
        let created = created.and_then(|(node, attr, handle, opened)| {
            let down = self.put_down_made(parent, Ok((node, attr)));
            let (node, attr) = down.inspect_err(|_| drop(self.posix.release(handle)))?;
            Ok((node, attr, handle, opened))
        });
        let (node, attr, handle, opened) = match created {
            Ok(created) => created,
            Err(e) => return reply.error(fail("create", &e)),
        };
        let number = self.nodes.tell(node, attr.ino);
        let by = (open.write, req.uid() == 0);
        let backing = self.backing((node, handle), &opened, by, |file| reply.open_backing(file));
        // One time for both: where the number may not be kept, the name is asked for again too.
        let ttl: Duration = self.attr_ttl(node, number, attr.ino);
        let attr = convert::attr(&attr, number, self.behaviour.shown);
        let handle = FileHandle(handle.0);
        if let Some(id) = backing {
            let flags = FopenFlags::empty();
            reply.created_passthrough(&ttl, &attr, GENERATION, handle, flags, &id);
        } else {
            let flags = self.open_flags(&opened);
            reply.created(&ttl, &attr, GENERATION, handle, flags);
        }
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let range = (offset, length);
        self.reserve_content(ino.0, HandleId(fh.0), caller(req, 0), range, mode, reply);
    }

    fn ioctl(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        match self.node(ino) {
            Ok(node) => self.control((ino, node), cmd, in_data, reply),
            Err(e) => reply.error(fail("ioctl", &e)),
        }
    }

    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let found = u64::try_from(offset)
            .map_err(|_| Kind::NoMore.into())
            .and_then(|offset| match whence {
                libc::SEEK_DATA => self.posix.seek(HandleId(fh.0), offset, Seek::Data),
                libc::SEEK_HOLE => self.posix.seek(HandleId(fh.0), offset, Seek::Hole),
                _ => Err(Kind::Invalid.into()),
            })
            .and_then(|at| i64::try_from(at).map_err(|_| Kind::FileTooBig.into()));
        match found {
            Ok(at) => reply.offset(at),
            Err(e) => reply.error(fail("lseek", &e)),
        }
    }

    fn copy_file_range(
        &self,
        req: &Request,
        _: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let from = (HandleId(fh_in.0), offset_in);
        let to = (HandleId(fh_out.0), offset_out);
        let acting = self.acting_for(req);
        let copied =
            acting.and_then(|_acting| self.posix.copy_range(caller(req, 0), from, to, len));
        let copied =
            copied.and_then(|copied| self.put_down(AtOnce::All, &[ino_out]).map(|()| copied));
        match copied {
            // One call copies at most 16 MiB.
            Ok(copied) => reply.written(u32::try_from(copied).unwrap_or(u32::MAX)),
            Err(e) => reply.error(fail("copy_file_range", &e)),
        }
    }
}
