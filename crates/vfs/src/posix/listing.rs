//! Reading directories.

use std::ffi::{OsStr, OsString};

use super::Posix;
use super::handles::{Handle, Writer};
use crate::posix::HandleId;
use crate::{Attr, Cookie, Entry, FileSystem, FileType, Kind, NodeId, Result};

/// Cookie of `.`.
const COOKIE_SELF: Cookie = 1;

/// Cookie of `..`; entries of the system have greater ones.
const COOKIE_PARENT: Cookie = 2;

/// An entry with what `stat` shows of its node.
#[derive(Debug, Clone)]
pub struct ListedEntry {
    /// Its name.
    pub name: OsString,
    /// Its node.
    pub node: NodeId,
    /// What `stat` shows.
    pub attr: Attr,
    /// Where to go on after this entry.
    pub cookie: Cookie,
    /// Whether the node got one more reference; `.` and `..` do not.
    pub referenced: bool,
}

impl<F: FileSystem> Posix<F> {
    /// Opens a directory. The handle refers to the node until [`Posix::release`].
    ///
    /// # Errors
    /// [`Kind::NotDirectory`].
    pub fn opendir(&self, node: NodeId) -> Result<HandleId> {
        if self.fs.attr(node)?.kind != FileType::Directory {
            return Err(Kind::NotDirectory.into());
        }
        self.references.take(node);
        Ok(self.handles.insert(Handle {
            writer: Writer::default(),
            node,
            directory: true,
            read: true,
            write: false,
            append: false,
        }))
    }

    /// Lists the entries after `from`, `.` and `..` first, until `each` returns `false`. `each`
    /// must not call back.
    ///
    /// # Errors
    /// [`Kind::BadHandle`]; [`Kind::Io`].
    pub fn list(
        &self,
        handle: HandleId,
        from: Cookie,
        each: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        let dir = self.listable(handle)?;
        let _across = (from < COOKIE_PARENT).then(|| self.locks.across());
        let _names = self.locks.read(dir);
        self.list_locked(dir, from, each)
    }

    /// Lists up to `count_max` entries after `from` with their attributes and a reference to each
    /// node but those of `.` and `..`; the caller gives the references back.
    ///
    /// # Errors
    /// [`Kind::BadHandle`]; [`Kind::Io`].
    pub fn list_with_attr(
        &self,
        handle: HandleId,
        from: Cookie,
        count_max: usize,
    ) -> Result<Vec<ListedEntry>> {
        let dir = self.listable(handle)?;
        let _across = (from < COOKIE_PARENT).then(|| self.locks.across());
        let _names = self.locks.read(dir);
        let evictions = self.references.evictions();
        let mut found: Vec<(OsString, NodeId, Option<Attr>, Cookie)> =
            Vec::with_capacity(count_max);
        self.list_locked(dir, from, &mut |entry| {
            found.push((OsString::from(entry.name), entry.node, entry.attr, entry.cookie));
            found.len() < count_max
        })?;
        let mut listed = Vec::with_capacity(found.len());
        for (name, node, attr, cookie) in found {
            let referenced = cookie > COOKIE_PARENT;
            let known = attr.map(|attr| (node, attr));
            let found = match known {
                Some(known) if !referenced => Ok(known),
                // A system need not hold in memory what it lists by name only.
                known => self.refer(dir, &name, known.map(|known| (evictions, known))),
            };
            match found {
                Ok((node, attr)) => {
                    listed.push(ListedEntry { name, node, attr, cookie, referenced });
                }
                Err(e) if e.kind() == Kind::NotFound => {}
                Err(e) => {
                    for entry in listed.iter().filter(|entry| entry.referenced) {
                        self.forget(entry.node, 1);
                    }
                    return Err(e);
                }
            }
        }
        Ok(listed)
    }

    fn listable(&self, handle: HandleId) -> Result<NodeId> {
        let handle = self.handles.get(handle)?;
        if handle.directory { Ok(handle.node) } else { Err(Kind::BadHandle.into()) }
    }

    /// As [`Posix::list`]; the names of `dir` are locked, and while `..` is listed no name moves from one
    /// directory to another.
    fn list_locked(
        &self,
        dir: NodeId,
        from: Cookie,
        each: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        for (name, cookie) in [(".", COOKIE_SELF), ("..", COOKIE_PARENT)] {
            if from >= cookie {
                continue;
            }
            let node = match cookie {
                COOKIE_SELF => dir,
                // A removed directory may have no parent any more.
                _ => self.fs.parent(dir).unwrap_or(dir),
            };
            let attr = self.fs.attr(node)?;
            let entry = Entry {
                name: OsStr::new(name),
                node,
                ino: attr.ino,
                kind: FileType::Directory,
                attr: Some(attr),
                cookie,
            };
            if !each(entry) {
                return Ok(());
            }
        }
        let from = if from <= COOKIE_PARENT { 0 } else { from };
        self.fs.list(dir, from, each)
    }
}
