//! Moving names.

use std::ffi::OsStr;

use super::Posix;
use super::names::{check_name, check_parent, check_sticky};
use super::namespace::{Held, Unlinked};
use crate::posix::Caller;
use crate::{Attr, Exchange, FileSystem, FileType, Kind, Link, NodeId, Result, Target};

/// What a rename does when the target name exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RenameMode {
    /// Replaces it, as `rename`.
    #[default]
    Replace,
    /// Fails, as `RENAME_NOREPLACE`.
    NoReplace,
    /// Trades the two, as `RENAME_EXCHANGE`.
    Exchange,
}

/// What a rename moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renamed {
    /// The node whose name moved.
    pub node: NodeId,
    /// The node that lost the target name, or traded it.
    pub other: Option<NodeId>,
    /// Whether the inode number of a moved node has changed.
    pub renumbered: bool,
    /// Whether a moved node is a directory, so that numbers beneath it may have changed too.
    pub directory: bool,
}

impl<F: FileSystem> Posix<F> {
    /// Moves the name `from` to `to`, and settles what that leaves to do; `None` if both name the same
    /// node, when nothing is done.
    ///
    /// # Errors
    /// As [`Posix::rename_name`] and [`Posix::settle`].
    pub fn rename(
        &self,
        caller: Caller,
        from: (NodeId, &OsStr),
        to: (NodeId, &OsStr),
        mode: RenameMode,
    ) -> Result<Option<Renamed>> {
        let Some((renamed, unlinked)) = self.rename_name(caller, from, to, mode)? else {
            return Ok(None);
        };
        unlinked.map_or(Ok(()), |unlinked| self.settle(unlinked))?;
        Ok(Some(renamed))
    }

    /// Moves the name `from` to `to`; `None` if both name the same node, when nothing is done. A node
    /// that is replaced is returned, for what is left to do.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for a directory into itself; [`Kind::IsDirectory`],
    /// [`Kind::NotDirectory`] and [`Kind::NotEmpty`] where the target cannot be replaced;
    /// [`Kind::Exists`] by `mode`; [`Kind::NotPermitted`] in a sticky directory.
    pub fn rename_name(
        &self,
        caller: Caller,
        from: (NodeId, &OsStr),
        to: (NodeId, &OsStr),
        mode: RenameMode,
    ) -> Result<Option<(Renamed, Option<Unlinked>)>> {
        check_name(from.1)?;
        check_name(to.1)?;
        let is_across = from.0 != to.0;
        let _across = is_across.then(|| self.locks.across());
        // Nothing may be put into a directory that is replaced, and which one that is shows only under
        // the lock.
        let mut replaced_dir = to.0;
        loop {
            let _names = self.change_names([from.0, to.0, replaced_dir]);
            let to_dir = self.fs.attr(to.0)?;
            check_parent(&to_dir)?;
            let source = self.hold(from.0, from.1)?;
            check_sticky(caller, || self.fs.attr(from.0), &source.attr)?;
            let target = match self.hold(to.0, to.1) {
                Ok(target) => Some(target),
                Err(e) if e.kind() == Kind::NotFound => None,
                Err(e) => return Err(e),
            };
            match (mode, &target) {
                (RenameMode::NoReplace, Some(_)) => return Err(Kind::Exists.into()),
                (RenameMode::Exchange, None) => return Err(Kind::NotFound.into()),
                (_, Some(target)) if target.node == source.node => return Ok(None),
                _ => {}
            }
            if is_across {
                self.check_not_beneath(to.0, &source)?;
            }
            if let Some(target) = &target {
                check_sticky(caller, || Ok(to_dir), &target.attr)?;
                if mode != RenameMode::Exchange {
                    check_replaceable(&source.attr, &target.attr)?;
                    if target.attr.kind == FileType::Directory {
                        if replaced_dir != target.node {
                            replaced_dir = target.node;
                            continue;
                        }
                        self.check_empty(target.node)?;
                    }
                } else if is_across {
                    self.check_not_beneath(from.0, target)?;
                }
            }
            return self.move_name((from, source), (to, target), mode).map(Some);
        }
    }

    /// Moves a name, which may be moved; the names of all directories are locked.
    fn move_name(
        &self,
        (from, source): ((NodeId, &OsStr), Held<'_, F>),
        (to, target): ((NodeId, &OsStr), Option<Held<'_, F>>),
        mode: RenameMode,
    ) -> Result<(Renamed, Option<Unlinked>)> {
        let exchange = match mode {
            RenameMode::Exchange => Exchange::Yes,
            RenameMode::Replace | RenameMode::NoReplace => Exchange::No,
        };
        let other = target.as_ref().map(|target| target.node);
        let _names_of_other = other.map(|other| self.locks.names_of(other));
        let link = Link { dir: from.0, name: from.1, node: source.node };
        let place = Target { dir: to.0, name: to.1, node: other };
        let left = self.fs.rename(link, place, exchange, self.now())?;
        let (mut unlinked, mut traded) = (None, None);
        match (target, exchange) {
            (Some(target), Exchange::No) => unlinked = Some(target.has_lost_name(left)),
            (target, _) => traded = target,
        }
        let moved = || std::iter::once(&source).chain(&traded);
        let is_renumbered = |held: &Held<'_, F>| self.has_other_number(held.node, held.attr.ino);
        let renamed = Renamed {
            node: source.node,
            other,
            renumbered: moved().any(is_renumbered),
            directory: moved().any(|held| held.attr.kind == FileType::Directory),
        };
        Ok((renamed, unlinked))
    }

    /// Refuses to move a directory into itself or beneath itself.
    fn check_not_beneath(&self, dir: NodeId, held: &Held<'_, F>) -> Result<()> {
        if held.attr.kind != FileType::Directory {
            return Ok(());
        }
        let root = self.fs.root();
        let mut at = dir;
        loop {
            if at == held.node {
                return Err(Kind::Invalid.into());
            }
            if at == root {
                return Ok(());
            }
            at = self.fs.parent(at)?;
        }
    }
}

/// Refuses to put a directory in a file's place or a file in a directory's.
fn check_replaceable(source: &Attr, target: &Attr) -> Result<()> {
    match (source.kind == FileType::Directory, target.kind == FileType::Directory) {
        (true, false) => Err(Kind::NotDirectory.into()),
        (false, true) => Err(Kind::IsDirectory.into()),
        _ => Ok(()),
    }
}
