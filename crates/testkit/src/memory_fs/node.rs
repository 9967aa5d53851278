//! Nodes and directories of the file system in memory.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};

use tacita_vfs::{Attr, Change, Cookie, FileType, Kind, NewNode, NodeId, Result, Timestamp};

use super::content::{BLOCK_LEN_BYTES, Content};

/// First cookie of an entry; those below are taken by `.` and `..`.
const COOKIE_FIRST: Cookie = 3;

/// What a node holds.
#[derive(Debug)]
pub(super) enum Body {
    File(Content),
    Directory(Directory),
    Symlink(OsString),
    Special(FileType),
}

/// A node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) body: Body,
    pub(super) names: Vec<(NodeId, OsString)>,
    pub(super) nlink: u32,
    pub(super) subdirectories: u32,
    pub(super) ctime: Timestamp,
    pub(super) xattrs: BTreeMap<OsString, Vec<u8>>,
    perm: u16,
    uid: u32,
    gid: u32,
    rdev: u32,
    atime: Timestamp,
    mtime: Timestamp,
}

impl Node {
    /// A node without a name.
    pub(super) fn new(new: &NewNode) -> Self {
        Self {
            body: match new.kind {
                FileType::File => Body::File(Content::default()),
                FileType::Directory => Body::Directory(Directory::default()),
                FileType::Symlink => Body::Symlink(new.target.clone()),
                special => Body::Special(special),
            },
            names: Vec::new(),
            nlink: 0,
            subdirectories: 0,
            ctime: new.now,
            xattrs: BTreeMap::new(),
            perm: new.perm,
            uid: new.uid,
            gid: new.gid,
            rdev: new.rdev,
            atime: new.now,
            mtime: new.now,
        }
    }

    pub(super) const fn kind(&self) -> FileType {
        match &self.body {
            Body::File(_) => FileType::File,
            Body::Directory(_) => FileType::Directory,
            Body::Symlink(_) => FileType::Symlink,
            Body::Special(kind) => *kind,
        }
    }

    pub(super) const fn is_directory(&self) -> bool {
        matches!(self.body, Body::Directory(_))
    }

    pub(super) fn directory(&self) -> Result<&Directory> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Kind::NotDirectory.into()),
        }
    }

    pub(super) fn directory_mut(&mut self) -> Result<&mut Directory> {
        match &mut self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Kind::NotDirectory.into()),
        }
    }

    pub(super) fn content(&self) -> Result<&Content> {
        match &self.body {
            Body::File(content) => Ok(content),
            Body::Directory(_) => Err(Kind::IsDirectory.into()),
            _ => Err(Kind::Invalid.into()),
        }
    }

    pub(super) fn content_mut(&mut self) -> Result<&mut Content> {
        match &mut self.body {
            Body::File(content) => Ok(content),
            Body::Directory(_) => Err(Kind::IsDirectory.into()),
            _ => Err(Kind::Invalid.into()),
        }
    }

    pub(super) fn block_count(&self) -> u64 {
        self.content().map_or(0, Content::block_count)
    }

    /// The entries have changed.
    pub(super) const fn stamp(&mut self, now: Timestamp) {
        self.mtime = now;
        self.ctime = now;
    }

    pub(super) fn change(&mut self, change: &Change) {
        self.perm = change.perm.unwrap_or(self.perm);
        self.uid = change.uid.unwrap_or(self.uid);
        self.gid = change.gid.unwrap_or(self.gid);
        self.atime = change.atime.unwrap_or(self.atime);
        self.mtime = change.mtime.unwrap_or(self.mtime);
        self.ctime = change.ctime.unwrap_or(self.ctime);
    }

    pub(super) fn attr(&self, ino: u64) -> Attr {
        Attr {
            ino,
            kind: self.kind(),
            perm: self.perm,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size: match &self.body {
                Body::File(content) => content.size(),
                Body::Directory(directory) => directory.len(),
                Body::Symlink(target) => target.len() as u64,
                Body::Special(_) => 0,
            },
            blocks: self.block_count() * (BLOCK_LEN_BYTES / 512),
            block_len_bytes: u32::try_from(BLOCK_LEN_BYTES).unwrap_or(u32::MAX),
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
        }
    }
}

/// The entries of a directory, by name and in the order of their cookies.
#[derive(Debug, Default)]
pub(super) struct Directory {
    by_name: HashMap<OsString, (NodeId, Cookie)>,
    by_cookie: BTreeMap<Cookie, OsString>,
    given: Cookie,
}

impl Directory {
    fn len(&self) -> u64 {
        self.by_name.len() as u64
    }

    pub(super) fn get(&self, name: &OsStr) -> Option<NodeId> {
        self.by_name.get(name).map(|(node, _)| *node)
    }

    pub(super) fn insert(&mut self, name: &OsStr, node: NodeId) -> Result<()> {
        if self.by_name.contains_key(name) {
            return Err(Kind::Exists.into());
        }
        let cookie = COOKIE_FIRST + self.given;
        self.given += 1;
        self.by_cookie.insert(cookie, name.to_owned());
        self.by_name.insert(name.to_owned(), (node, cookie));
        Ok(())
    }

    pub(super) fn remove(&mut self, name: &OsStr) -> Option<NodeId> {
        let (node, cookie) = self.by_name.remove(name)?;
        self.by_cookie.remove(&cookie);
        Some(node)
    }

    pub(super) fn after(&self, from: Cookie) -> impl Iterator<Item = (Cookie, &OsStr, NodeId)> {
        self.by_cookie
            .range(from + 1..)
            .map(|(cookie, name)| (*cookie, name.as_os_str(), self.by_name[name].0))
    }
}
