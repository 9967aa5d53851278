//! Moving names.

use std::ffi::OsStr;

use super::Posix;
use super::names::{check_name, check_parent, check_sticky};
use crate::posix::Caller;
use crate::{Attr, Exchange, FileSystem, FileType, Kind, NodeId, Result};

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
    /// Moves the name `from` to `to`; `None` if both name the same node, when nothing is done.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for a directory into itself; [`Kind::IsDirectory`],
    /// [`Kind::NotDirectory`] and [`Kind::NotEmpty`] where the target cannot be replaced;
    /// [`Kind::Exists`] by `mode`; [`Kind::NotPermitted`] in a sticky directory.
    pub fn rename(
        &self,
        caller: Caller,
        from: (NodeId, &OsStr),
        to: (NodeId, &OsStr),
        mode: RenameMode,
    ) -> Result<Option<Renamed>> {
        check_name(from.1)?;
        check_name(to.1)?;
        let guard = self.change_namespace();
        let to_dir = self.fs.attr(to.0)?;
        check_parent(&to_dir)?;
        let (node, attr) = self.fs.lookup(from.0, from.1)?;
        check_sticky(caller, || self.fs.attr(from.0), &attr)?;
        let target = self.find(to.0, to.1)?;
        match (mode, &target) {
            (RenameMode::NoReplace, Some(_)) => return Err(Kind::Exists.into()),
            (RenameMode::Exchange, None) => return Err(Kind::NotFound.into()),
            (_, Some((other, _))) if *other == node => return Ok(None),
            _ => {}
        }
        self.check_not_beneath(to.0, (node, &attr))?;
        if let Some((other, other_attr)) = &target {
            check_sticky(caller, || Ok(to_dir), other_attr)?;
            if mode == RenameMode::Exchange {
                self.check_not_beneath(from.0, (*other, other_attr))?;
            } else {
                self.check_replaceable(&attr, (*other, other_attr))?;
            }
        }
        let exchange = match mode {
            RenameMode::Exchange => Exchange::Yes,
            RenameMode::Replace | RenameMode::NoReplace => Exchange::No,
        };
        let replaced = self.fs.rename(from, to, exchange, self.now())?;
        if let Some(replaced) = replaced.filter(|_| exchange == Exchange::No) {
            self.after_loss_of_name(replaced)?;
        }
        let mut renumbered = self.fs.attr(node)?.ino != attr.ino;
        let mut directory = attr.kind == FileType::Directory;
        if let (Exchange::Yes, Some((other, was))) = (exchange, &target) {
            renumbered |= self.fs.attr(*other)?.ino != was.ino;
            directory |= was.kind == FileType::Directory;
        }
        drop(guard);
        if let (Exchange::No, Some((other, was))) = (exchange, &target)
            && (was.nlink <= 1 || was.kind == FileType::Directory)
        {
            self.fs.lost(*other)?;
        }
        Ok(Some(Renamed { node, other: target.map(|(other, _)| other), renumbered, directory }))
    }

    /// Refuses to move a directory into itself or beneath itself.
    fn check_not_beneath(&self, dir: NodeId, (node, attr): (NodeId, &Attr)) -> Result<()> {
        if attr.kind != FileType::Directory {
            return Ok(());
        }
        let root = self.fs.root();
        let mut at = dir;
        loop {
            if at == node {
                return Err(Kind::Invalid.into());
            }
            if at == root {
                return Ok(());
            }
            at = self.fs.parent(at)?;
        }
    }

    fn check_replaceable(&self, source: &Attr, (node, target): (NodeId, &Attr)) -> Result<()> {
        match (source.kind == FileType::Directory, target.kind == FileType::Directory) {
            (true, false) => Err(Kind::NotDirectory.into()),
            (false, true) => Err(Kind::IsDirectory.into()),
            (true, true) => self.check_empty(node),
            (false, false) => Ok(()),
        }
    }
}
