//! Finding, making and taking away names.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::Posix;
use super::names::{TARGET_LEN_MAX, check_name, check_parent, check_sticky};
use crate::posix::{Caller, HandleId, OpenMode};
use crate::{Attr, FileSystem, FileType, Kind, Link, NewNode, NodeId, Opened, Result};

/// Set-gid: new nodes of such a directory take its group.
const SET_GID: u16 = 0o2000;

/// Permission and set-id bits.
const PERM_MASK: u32 = 0o7777;

/// A node that has lost a name, and is referred to until that is settled ([`Posix::settle`]).
#[derive(Debug, PartialEq, Eq)]
#[must_use = "what the loss of a name leaves to do is done by `settle`"]
pub struct Unlinked {
    /// The node.
    pub node: NodeId,
    /// Whether it has other names.
    pub lives_on: bool,
    /// Whether it has another number by that.
    pub renumbered: bool,
}

/// A node that is referred to while something is done with it.
pub(super) struct Held<'a, F: FileSystem> {
    posix: &'a Posix<F>,
    pub(super) node: NodeId,
    pub(super) attr: Attr,
}

impl<F: FileSystem> Held<'_, F> {
    /// It has just lost a name, and so many are left; its names and those of the directory are locked.
    pub(super) fn has_lost_name(self, left: u32) -> Unlinked {
        let (node, before) = (self.node, self.attr.ino);
        if left == 0 {
            self.posix.references.orphan(node);
        }
        let renumbered = left > 0 && self.posix.has_other_number(node, before);
        // The reference goes on to what is left to do.
        std::mem::forget(self);
        Unlinked { node, lives_on: left > 0, renumbered }
    }
}

impl<F: FileSystem> Drop for Held<'_, F> {
    fn drop(&mut self) {
        self.posix.forget(self.node, 1);
    }
}

impl<F: FileSystem> Posix<F> {
    /// The node named `name` in `dir`, with one more reference (give it back by
    /// [`Posix::forget`]). `.` and `..` are found too.
    ///
    /// # Errors
    /// [`Kind::NotFound`]; [`Kind::NotDirectory`]; [`Kind::NameTooLong`].
    pub fn lookup(&self, dir: NodeId, name: &OsStr) -> Result<(NodeId, Attr)> {
        match name.as_bytes() {
            b"." => {
                let attr = self.fs.attr(dir)?;
                self.references.take(dir);
                Ok((dir, attr))
            }
            b".." => {
                // A directory with a name keeps the one above it from being removed.
                let _across = self.locks.across();
                let _names = self.locks.read(dir);
                if self.fs.attr(dir)?.nlink == 0 {
                    return Err(Kind::Stale.into());
                }
                let parent = self.fs.parent(dir)?;
                let attr = self.fs.attr(parent)?;
                self.references.take(parent);
                Ok((parent, attr))
            }
            _ => {
                check_name(name)?;
                let _names = self.locks.read(dir);
                self.refer(dir, name, None)
            }
        }
    }

    /// The node of that name with one more reference; the names of `dir` are locked. `known` is what
    /// was found under it since there were so many evictions.
    pub(super) fn refer(
        &self,
        dir: NodeId,
        name: &OsStr,
        known: Option<(u64, (NodeId, Attr))>,
    ) -> Result<(NodeId, Attr)> {
        let mut known = known;
        loop {
            let (evictions, found) = match known.take() {
                Some(known) => known,
                None => (self.references.evictions(), self.fs.lookup(dir, name)?),
            };
            if self.references.take(found.0) || self.references.evictions() == evictions {
                return Ok(found);
            }
            // It may have been evicted before it was referred to.
            self.forget(found.0, 1);
        }
    }

    /// The node of that name, held; the names of `dir` are locked.
    pub(super) fn hold(&self, dir: NodeId, name: &OsStr) -> Result<Held<'_, F>> {
        let (node, attr) = self.refer(dir, name, None)?;
        Ok(Held { posix: self, node, attr })
    }

    /// Makes a file, pipe, socket or device, with one reference.
    ///
    /// # Errors
    /// [`Kind::Exists`]; [`Kind::Invalid`] for a directory or symbolic link; as the system has them.
    pub fn mknod(
        &self,
        caller: Caller,
        dir: NodeId,
        name: &OsStr,
        (kind, mode): (FileType, u32),
        rdev: u32,
    ) -> Result<(NodeId, Attr)> {
        let rdev = match kind {
            FileType::CharDevice | FileType::BlockDevice => rdev,
            FileType::Directory | FileType::Symlink => return Err(Kind::Invalid.into()),
            FileType::File | FileType::Fifo | FileType::Socket => 0,
        };
        self.make(caller, dir, name, (kind, mode), |new| new.rdev = rdev)
    }

    /// Makes a directory, with one reference.
    ///
    /// # Errors
    /// [`Kind::Exists`]; as the system has them.
    pub fn mkdir(
        &self,
        caller: Caller,
        dir: NodeId,
        name: &OsStr,
        mode: u32,
    ) -> Result<(NodeId, Attr)> {
        self.make(caller, dir, name, (FileType::Directory, mode), |_| ())
    }

    /// Makes a symbolic link to `target`, with one reference.
    ///
    /// # Errors
    /// [`Kind::Exists`]; [`Kind::NotFound`] for an empty target; [`Kind::NameTooLong`].
    pub fn symlink(
        &self,
        caller: Caller,
        dir: NodeId,
        name: &OsStr,
        target: &OsStr,
    ) -> Result<(NodeId, Attr)> {
        if target.is_empty() {
            return Err(Kind::NotFound.into());
        }
        if target.len() > TARGET_LEN_MAX {
            return Err(Kind::NameTooLong.into());
        }
        // A link's own bits mean nothing and are always all set, whatever the umask.
        let caller = Caller { umask: 0, ..caller };
        let kind = (FileType::Symlink, 0o777);
        self.make(caller, dir, name, kind, |new| {
            new.target = OsString::from(target);
        })
    }

    /// Makes a regular file and opens it, with one reference besides the handle's own. An existing
    /// regular file is opened instead unless `exclusive`.
    ///
    /// # Errors
    /// [`Kind::Exists`]; [`Kind::IsDirectory`]; as the system has them.
    pub fn create(
        &self,
        caller: Caller,
        dir: NodeId,
        name: &OsStr,
        mode: u32,
        open: OpenMode,
        exclusive: bool,
    ) -> Result<(NodeId, Attr, HandleId, Opened)> {
        match self.make_open(caller, dir, name, mode, open) {
            Err(e) if e.kind() == Kind::Exists && !exclusive => {}
            done => return done,
        }
        let (node, _) = self.lookup(dir, name)?;
        let found = self
            .open(caller, node, open)
            .and_then(|(handle, opened)| Ok((node, self.fs.attr(node)?, handle, opened)));
        if found.is_err() {
            self.forget(node, 1);
        }
        found
    }

    /// Makes a regular file and opens it.
    fn make_open(
        &self,
        caller: Caller,
        dir: NodeId,
        name: &OsStr,
        mode: u32,
        open: OpenMode,
    ) -> Result<(NodeId, Attr, HandleId, Opened)> {
        check_name(name)?;
        let _names = self.change_names([dir]);
        let new = self.prepare(caller, dir, name, (FileType::File, mode))?;
        let (node, attr, opened) = self.fs.create_open(dir, name, &new, open.write)?;
        self.references.take(node);
        Ok((node, attr, self.open_handle(caller, node, open, &opened), opened))
    }

    /// Gives `node` another name, with one more reference.
    ///
    /// # Errors
    /// [`Kind::NotPermitted`] for a directory; [`Kind::NotFound`] if the node has no name left;
    /// [`Kind::Exists`]; [`Kind::TooManyLinks`].
    pub fn link(&self, node: NodeId, dir: NodeId, name: &OsStr) -> Result<Attr> {
        check_name(name)?;
        let _names = self.change_names([dir]);
        check_parent(&self.fs.attr(dir)?)?;
        // It must not lose its last name meanwhile, wherever that is.
        let _names_of_node = self.locks.names_of(node);
        let attr = self.fs.attr(node)?;
        if attr.kind == FileType::Directory {
            return Err(Kind::NotPermitted.into());
        }
        if attr.nlink == 0 {
            return Err(Kind::NotFound.into());
        }
        if self.find(dir, name)?.is_some() {
            return Err(Kind::Exists.into());
        }
        let attr = self.fs.link(node, dir, name, self.now())?;
        self.references.take(node);
        Ok(attr)
    }

    /// Takes away a name that is no directory's, and settles what that leaves to do. Returns the node
    /// and whether it lives on under other names.
    ///
    /// # Errors
    /// As [`Posix::unlink_name`] and [`Posix::settle`].
    pub fn unlink(&self, caller: Caller, dir: NodeId, name: &OsStr) -> Result<(NodeId, bool)> {
        let unlinked = self.unlink_name(caller, dir, name)?;
        let done = (unlinked.node, unlinked.lives_on);
        self.settle(unlinked)?;
        Ok(done)
    }

    /// Whether a node is shown under another number than before. It is there; at worst the kernel asks once more.
    pub(super) fn has_other_number(&self, node: NodeId, before: u64) -> bool {
        self.fs.attr(node).map_or(true, |attr| attr.ino != before)
    }

    /// Takes away a name that is no directory's.
    ///
    /// # Errors
    /// [`Kind::NotFound`]; [`Kind::IsDirectory`]; [`Kind::NotPermitted`] in a sticky directory.
    pub fn unlink_name(&self, caller: Caller, dir: NodeId, name: &OsStr) -> Result<Unlinked> {
        check_name(name)?;
        let _names = self.change_names([dir]);
        let held = self.hold(dir, name)?;
        check_sticky(caller, || self.fs.attr(dir), &held.attr)?;
        if held.attr.kind == FileType::Directory {
            return Err(Kind::IsDirectory.into());
        }
        let _names_of_node = self.locks.names_of(held.node);
        let link = Link { dir, name, node: held.node };
        let left = self.fs.remove(link, self.now())?;
        Ok(held.has_lost_name(left))
    }

    /// Does what the loss of a name leaves to do, which may take long. No lock is held.
    ///
    /// # Errors
    /// As the system has them; the name stays gone.
    #[expect(clippy::needless_pass_by_value, reason = "it is settled once")]
    pub fn settle(&self, unlinked: Unlinked) -> Result<()> {
        let Unlinked { node, lives_on, .. } = unlinked;
        let is_open = || self.handles.any_on(node);
        let settled = if lives_on { Ok(()) } else { self.fs.unlinked(node, &is_open) };
        self.forget(node, 1);
        settled
    }

    /// Takes away an empty directory, and settles what that leaves to do. Returns the directory.
    ///
    /// # Errors
    /// As [`Posix::rmdir_name`] and [`Posix::settle`].
    pub fn rmdir(&self, caller: Caller, dir: NodeId, name: &OsStr) -> Result<NodeId> {
        let unlinked = self.rmdir_name(caller, dir, name)?;
        let node = unlinked.node;
        self.settle(unlinked)?;
        Ok(node)
    }

    /// Takes away an empty directory.
    ///
    /// # Errors
    /// [`Kind::NotFound`]; [`Kind::NotDirectory`]; [`Kind::NotEmpty`]; [`Kind::Invalid`] for `.`;
    /// [`Kind::NotPermitted`] in a sticky directory.
    pub fn rmdir_name(&self, caller: Caller, dir: NodeId, name: &OsStr) -> Result<Unlinked> {
        if name.as_bytes() == b".." {
            return Err(Kind::NotEmpty.into());
        }
        check_name(name)?;
        // Nothing may be put into it while it goes, and which one it is shows only under the lock.
        let mut locked = dir;
        loop {
            let _names = self.change_names([dir, locked]);
            let held = self.hold(dir, name)?;
            check_sticky(caller, || self.fs.attr(dir), &held.attr)?;
            if held.attr.kind != FileType::Directory {
                return Err(Kind::NotDirectory.into());
            }
            if locked != held.node {
                locked = held.node;
                continue;
            }
            self.check_empty(held.node)?;
            let link = Link { dir, name, node: held.node };
            let left = self.fs.remove(link, self.now())?;
            return Ok(held.has_lost_name(left));
        }
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`Kind::Invalid`] if it is none.
    pub fn read_link(&self, node: NodeId) -> Result<OsString> {
        self.fs.read_link(node)
    }

    /// Makes a node of the kind and mode after the rules on owners and set-gid directories.
    fn make(
        &self,
        caller: Caller,
        dir: NodeId,
        name: &OsStr,
        (kind, mode): (FileType, u32),
        complete: impl FnOnce(&mut NewNode),
    ) -> Result<(NodeId, Attr)> {
        check_name(name)?;
        let _names = self.change_names([dir]);
        let mut new = self.prepare(caller, dir, name, (kind, mode))?;
        complete(&mut new);
        let (node, attr) = self.fs.create(dir, name, &new)?;
        self.references.take(node);
        Ok((node, attr))
    }

    /// What a new node of `dir` starts with; its names are locked.
    fn prepare(
        &self,
        caller: Caller,
        dir: NodeId,
        name: &OsStr,
        (kind, mode): (FileType, u32),
    ) -> Result<NewNode> {
        let parent = self.fs.attr(dir)?;
        check_parent(&parent)?;
        if self.find(dir, name)?.is_some() {
            return Err(Kind::Exists.into());
        }
        let umask = if self.fs.has_default_list(dir)? { 0 } else { caller.umask };
        let perm = u16::try_from(mode & PERM_MASK & !umask).unwrap_or(0);
        let inherits = parent.perm & SET_GID != 0;
        Ok(NewNode {
            kind,
            perm: match kind {
                FileType::Directory if inherits => perm | SET_GID,
                _ => perm,
            },
            uid: caller.uid,
            gid: if inherits { parent.gid } else { caller.gid },
            rdev: 0,
            target: OsString::new(),
            now: self.now(),
        })
    }

    /// The node of that name, if there is one; the names of `dir` are locked.
    pub(super) fn find(&self, dir: NodeId, name: &OsStr) -> Result<Option<(NodeId, Attr)>> {
        match self.fs.lookup(dir, name) {
            Ok(found) => Ok(Some(found)),
            Err(e) if e.kind() == Kind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Refuses a directory with entries; its names are locked.
    pub(super) fn check_empty(&self, dir: NodeId) -> Result<()> {
        let mut empty = true;
        self.fs.list(dir, 0, &mut |_| {
            empty = false;
            false
        })?;
        if empty { Ok(()) } else { Err(Kind::NotEmpty.into()) }
    }
}
