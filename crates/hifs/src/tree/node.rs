//! Nodes: what one file, directory or link is in memory.

use std::collections::{BTreeMap, HashSet};

use tacita_vfs::{FileType, NodeId, Timestamp};

use super::Name;
use super::links::{Link, Links};
use crate::content::Content;
use crate::names::FileId;
use crate::record::{INLINE_LEN_MAX, Inode, Xattrs, inode_len};
use crate::trie::Trie;

/// One file, directory or link.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: FileId,
    pub(crate) kind: FileType,
    pub(crate) perm: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u32,
    /// Size of content in bytes; 0 for what has none.
    pub(crate) size: u64,
    pub(crate) times: NodeTimes,
    pub(crate) xattrs: Xattrs,
    /// Its names.
    pub(crate) links: Links,
    pub(crate) body: Body,
    /// Bytes of the inode's entry as the trie of inodes counts it; 0 while it is not in there.
    pub(crate) record_len: u32,
}

/// atime, mtime and ctime of a node.
#[derive(Debug, Clone)]
pub(crate) struct NodeTimes {
    seen: Seen,
    /// As far as the image keeps them.
    kept: Option<Box<[Option<Timestamp>; 3]>>,
}

/// Times as programs see them. Those of most nodes are one and the same.
#[derive(Debug, Clone)]
enum Seen {
    Same(Timestamp),
    Each(Box<[Timestamp; 3]>),
}

impl NodeTimes {
    /// All three are `now`, and the image keeps none.
    pub(crate) const fn new(now: Timestamp) -> Self {
        Self { seen: Seen::Same(now), kept: None }
    }

    /// Those that the image keeps; programs see 0 for the others.
    fn stored(kept: [Option<Timestamp>; 3]) -> Self {
        let mut this = Self::new(Timestamp::default());
        for (i, time) in kept.into_iter().enumerate() {
            if let Some(time) = time {
                this.set(i, time);
                this.keep(i, time);
            }
        }
        this
    }

    /// As programs see them.
    pub(crate) fn seen(&self) -> [Timestamp; 3] {
        match &self.seen {
            Seen::Same(time) => [*time; 3],
            Seen::Each(times) => **times,
        }
    }

    /// As the image keeps them.
    pub(crate) fn kept(&self) -> [Option<Timestamp>; 3] {
        self.kept.as_deref().copied().unwrap_or_default()
    }

    /// Sets what programs see.
    pub(crate) fn set(&mut self, which: usize, time: Timestamp) {
        let mut times = self.seen();
        times[which] = time;
        self.seen = if times == [time; 3] { Seen::Same(time) } else { Seen::Each(times.into()) };
    }

    /// Sets what the image keeps.
    pub(crate) fn keep(&mut self, which: usize, time: Timestamp) {
        self.kept.get_or_insert_default()[which] = Some(time);
    }
}

/// What a node holds.
#[derive(Debug)]
pub(crate) enum Body {
    Directory(Box<Directory>),
    Content(Box<Content>),
    Nothing,
}

/// The entries of a directory in canonical order: by hash, then name.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    pub(crate) entries: BTreeMap<(u64, Name), NodeId>,
    pub(crate) trie: Trie,
    pub(crate) subdirectories: u32,
}

impl Node {
    pub(crate) const fn directory(&self) -> Option<&Directory> {
        if let Body::Directory(dir) = &self.body { Some(dir) } else { None }
    }

    pub(crate) const fn directory_mut(&mut self) -> Option<&mut Directory> {
        if let Body::Directory(dir) = &mut self.body { Some(dir) } else { None }
    }

    pub(crate) const fn content(&self) -> Option<&Content> {
        if let Body::Content(content) = &self.body { Some(content) } else { None }
    }

    pub(crate) const fn content_mut(&mut self) -> Option<&mut Content> {
        if let Body::Content(content) = &mut self.body { Some(content) } else { None }
    }

    /// The link that gives the file its id and its home: the least path, kept first.
    pub(crate) const fn owner_link(&self) -> Option<&Link> {
        self.links.owner()
    }

    /// Bytes of content that lie in the inode.
    pub(crate) fn inline_len(&self) -> usize {
        let inline = self.content().is_some() && self.size <= INLINE_LEN_MAX;
        if inline { usize::try_from(self.size).expect("192 at most") } else { 0 }
    }

    /// Buckets that count against the limit: short content lies in the inode.
    pub(crate) fn buckets_counted(&self) -> u64 {
        let content = self.content().filter(|_| self.size > INLINE_LEN_MAX);
        content.map_or(0, |content| content.buckets.into())
    }

    /// Bytes of the inode's entry.
    pub(crate) fn record_len_now(&self) -> u32 {
        inode_len(self.times.kept().map(|time| time.is_some()), self.inline_len(), &self.xattrs)
    }

    /// The inode as it goes into a page.
    pub(crate) fn record(&self, inline: Vec<u8>) -> Inode {
        let (size, buckets) = match &self.body {
            Body::Directory(dir) => (dir.entries.len() as u64, 0),
            Body::Content(content) => (self.size, content.buckets),
            Body::Nothing => (0, 0),
        };
        let nlink = match &self.body {
            Body::Directory(dir) => 2 + dir.subdirectories,
            _ => self.links.len(),
        };
        Inode {
            id: self.id,
            kind: self.kind,
            perm: self.perm,
            nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size,
            buckets,
            times: self.times.kept(),
            inline,
            xattrs: self.xattrs.clone(),
        }
    }

    /// The node of an inode just read; its links follow.
    pub(crate) fn from_record(inode: Inode) -> Self {
        let content = matches!(inode.kind, FileType::File | FileType::Symlink);
        let body = match inode.kind {
            FileType::Directory => Body::Directory(Box::default()),
            _ if content => {
                Body::Content(Box::new(Content::stored(inode.id, inode.inline, inode.buckets)))
            }
            _ => Body::Nothing,
        };
        Self {
            id: inode.id,
            kind: inode.kind,
            perm: inode.perm,
            uid: inode.uid,
            gid: inode.gid,
            rdev: inode.rdev,
            size: if content { inode.size } else { 0 },
            times: NodeTimes::stored(inode.times),
            xattrs: inode.xattrs,
            links: Links::default(),
            body,
            record_len: 0,
        }
    }
}

/// All nodes by number.
#[derive(Debug)]
pub(crate) struct Nodes {
    slots: Vec<Option<Box<Node>>>,
    vacant: Vec<u64>,
    /// Numbers of nodes that are gone, but not for the kernel.
    buried: HashSet<u64>,
}

impl Default for Nodes {
    fn default() -> Self {
        // Number 0 stays empty; 1 is the root.
        Self { slots: vec![None], vacant: Vec::new(), buried: HashSet::new() }
    }
}

impl Nodes {
    pub(crate) fn get(&self, node: NodeId) -> Option<&Node> {
        self.slots.get(usize::try_from(node.0).ok()?)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, node: NodeId) -> Option<&mut Node> {
        self.slots.get_mut(usize::try_from(node.0).ok()?)?.as_deref_mut()
    }

    pub(crate) fn insert(&mut self, node: Node) -> NodeId {
        let node = Some(Box::new(node));
        if let Some(number) = self.vacant.pop() {
            self.slots[usize::try_from(number).expect("a slot's number")] = node;
            return NodeId(number);
        }
        self.slots.push(node);
        NodeId(self.slots.len() as u64 - 1)
    }

    /// Takes the node away; its number stays taken until [`Nodes::free`].
    pub(crate) fn bury(&mut self, node: NodeId) -> Option<Box<Node>> {
        let removed = self.slots.get_mut(usize::try_from(node.0).ok()?)?.take();
        if removed.is_some() {
            self.buried.insert(node.0);
        }
        removed
    }

    /// The number of a buried node may be given to another.
    pub(crate) fn free(&mut self, node: NodeId) {
        if self.buried.remove(&node.0) {
            self.vacant.push(node.0);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        (0..).zip(&self.slots).filter_map(|(i, node)| Some((NodeId(i), node.as_deref()?)))
    }

    pub(crate) fn len(&self) -> u64 {
        (self.slots.len() - 1 - self.vacant.len() - self.buried.len()) as u64
    }
}
