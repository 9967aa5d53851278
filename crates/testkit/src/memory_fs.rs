//! A file system in memory: the seam implemented plainly and completely, as a model for others and
//! as the ground under the tests of everything above the seam.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use tacita_clock::{Clock, Event, System};
use tacita_vfs::{
    Attr, Change, Cookie, Entry, Error, Exchange, FileSystem, FileType, FsStats, Kind, Link,
    NewNode, NodeId, Opened, Reserve, Result, Seek, Stamps, Target, Timestamp, XattrMode,
};

mod content;
mod node;

use content::BLOCK_LEN_BYTES;
use node::{Body, Directory, Node};

/// Blocks of a file system whose size nobody limited: 1 TiB, so that sums of it never overflow.
const BLOCK_COUNT_UNLIMITED: u64 = 1 << 28;

/// Where the inode numbers that programs see come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InoScheme {
    /// The number of the node: never changes.
    #[default]
    Node,
    /// A hash of the node's first path, by directory and name: changes when the node or one above it is renamed.
    Path,
}

#[derive(Debug)]
struct State {
    nodes: HashMap<NodeId, Node>,
    last: u64,
    blocks_used: u64,
    block_count: u64,
    scheme: InoScheme,
}

/// A file system in memory.
#[derive(Debug)]
pub struct MemoryFs {
    state: RwLock<State>,
    syncs_fail: AtomicBool,
    sync_ms: AtomicU64,
    writes_wait: AtomicBool,
    read_count: AtomicU64,
    backing: Mutex<Option<Arc<File>>>,
    left: Event,
    caught_up: Event,
}

const ROOT: NodeId = NodeId(1);

/// How often a write that waits looks whether it may go on.
const WRITE_STEP: Duration = Duration::from_millis(50);

impl Default for MemoryFs {
    fn default() -> Self {
        Self::new(InoScheme::Node, None)
    }
}

impl MemoryFs {
    /// An empty file system. `size_max_bytes` bounds content, in blocks of 4096 bytes.
    pub fn new(scheme: InoScheme, size_max_bytes: Option<u64>) -> Self {
        let root = NewNode::new(FileType::Directory, 0o755, Timestamp::default());
        let mut root = Node::new(&root);
        root.nlink = 2;
        Self {
            state: RwLock::new(State {
                nodes: HashMap::from([(ROOT, root)]),
                last: ROOT.0,
                blocks_used: 0,
                block_count: size_max_bytes
                    .map_or(BLOCK_COUNT_UNLIMITED, |size| size / BLOCK_LEN_BYTES),
                scheme,
            }),
            syncs_fail: AtomicBool::new(false),
            sync_ms: AtomicU64::new(0),
            writes_wait: AtomicBool::new(false),
            read_count: AtomicU64::new(0),
            backing: Mutex::new(None),
            left: Event::default(),
            caught_up: Event::default(),
        }
    }

    /// Lets every sync fail from now on, or no more.
    pub fn fail_syncs(&self, fail: bool) {
        self.syncs_fail.store(fail, Ordering::Relaxed);
    }

    /// Lets every sync take so many milliseconds from now on.
    pub fn slow_syncs(&self, duration_ms: u64) {
        self.sync_ms.store(duration_ms, Ordering::Relaxed);
    }

    /// Lets every write wait, for ever or until it is told otherwise.
    pub fn hold_writes(&self, hold: bool) {
        self.writes_wait.store(hold, Ordering::Relaxed);
    }

    /// Lets every file that is opened from now on be read and written in a lower file instead.
    pub fn set_backing(&self, file: Option<Arc<File>>) {
        *self.backing.lock().unwrap_or_else(PoisonError::into_inner) = file;
    }

    /// Leaves something to do that no request waits for.
    pub fn leave_something(&self) {
        self.left.notify();
    }

    /// What happens whenever that has been done.
    pub const fn caught_up(&self) -> &Event {
        &self.caught_up
    }

    /// How often content was read: a cache above answers without.
    pub fn read_count(&self) -> u64 {
        self.read_count.load(Ordering::Relaxed)
    }

    /// How many nodes are held, with or without a name.
    pub fn node_count(&self) -> usize {
        self.state().nodes.len()
    }

    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change_state(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn node(&self, id: NodeId) -> Result<&Node> {
        self.nodes.get(&id).ok_or_else(|| Kind::Stale.into())
    }

    fn node_mut(&mut self, id: NodeId) -> Result<&mut Node> {
        self.nodes.get_mut(&id).ok_or_else(|| Kind::Stale.into())
    }

    fn directory(&self, id: NodeId) -> Result<&Directory> {
        self.node(id)?.directory()
    }

    fn find(&self, dir: NodeId, name: &OsStr) -> Result<NodeId> {
        self.directory(dir)?.get(name).ok_or_else(|| Kind::NotFound.into())
    }

    /// Whoever changes a name has looked at it before, and nobody has touched it since.
    fn check_found(&self, dir: NodeId, name: &OsStr, found: Option<NodeId>) -> Result<()> {
        match self.directory(dir)?.get(name) {
            now if now == found => Ok(()),
            None => Err(Kind::NotFound.into()),
            Some(_) => Err(Error::new(Kind::Io, "a name stands for another node than was found")),
        }
    }

    fn ino(&self, id: NodeId) -> Result<u64> {
        if self.scheme == InoScheme::Node {
            return Ok(id.0);
        }
        let mut hasher = DefaultHasher::new();
        let mut at = id;
        loop {
            let node = self.node(at)?;
            match node.names.iter().min() {
                Some((dir, name)) => {
                    name.hash(&mut hasher);
                    at = *dir;
                }
                None if at == ROOT => break,
                None => {
                    // Nameless: any number that is its own will do.
                    at.hash(&mut hasher);
                    break;
                }
            }
        }
        // 32 bits leave the adapter's private range alone yet make collisions in tests unlikely.
        Ok((hasher.finish() >> 32).max(2))
    }

    fn attr(&self, id: NodeId) -> Result<Attr> {
        let node = self.node(id)?;
        Ok(node.attr(self.ino(id)?))
    }

    /// Puts a name to a node; the parts of a directory's links go with it.
    fn attach(&mut self, dir: NodeId, name: &OsStr, id: NodeId, now: Timestamp) -> Result<()> {
        let is_directory = self.node(id)?.is_directory();
        let parent = self.node_mut(dir)?;
        parent.directory_mut()?.insert(name, id)?;
        parent.stamp(now);
        if is_directory {
            parent.nlink += 1;
        }
        let node = self.node_mut(id)?;
        node.names.push((dir, name.to_owned()));
        node.ctime = now;
        node.nlink = if is_directory { 2 + node.subdirectories } else { node.nlink + 1 };
        if is_directory {
            self.node_mut(dir)?.subdirectories += 1;
        }
        Ok(())
    }

    /// Takes a name from a node.
    fn detach(&mut self, dir: NodeId, name: &OsStr, now: Timestamp) -> Result<NodeId> {
        let parent = self.node_mut(dir)?;
        let id = parent.directory_mut()?.remove(name).ok_or(Kind::NotFound)?;
        parent.stamp(now);
        let is_directory = self.node(id)?.is_directory();
        if is_directory {
            let parent = self.node_mut(dir)?;
            parent.nlink -= 1;
            parent.subdirectories -= 1;
        }
        let node = self.node_mut(id)?;
        node.names.retain(|(in_dir, as_name)| *in_dir != dir || as_name != name);
        node.ctime = now;
        node.nlink = if is_directory { 0 } else { node.nlink - 1 };
        Ok(id)
    }

    /// Does `f` to a file's content, keeping the account of blocks; refuses before it when `need`
    /// more blocks are not there.
    fn with_content<T>(
        &mut self,
        id: NodeId,
        need: impl FnOnce(&content::Content) -> u64,
        f: impl FnOnce(&mut content::Content) -> T,
    ) -> Result<T> {
        let free = self.block_count.saturating_sub(self.blocks_used);
        let content = self.node_mut(id)?.content_mut()?;
        let need = need(content);
        if need > 0 && need > free {
            return Err(Kind::NoSpace.into());
        }
        let before = content.block_count();
        let done = f(content);
        let after = content.block_count();
        self.blocks_used = self.blocks_used + after - before;
        Ok(done)
    }
}

impl FileSystem for MemoryFs {
    fn root(&self) -> NodeId {
        ROOT
    }

    fn attr(&self, node: NodeId) -> Result<Attr> {
        self.state().attr(node)
    }

    fn lookup(&self, dir: NodeId, name: &OsStr) -> Result<(NodeId, Attr)> {
        let state = self.state();
        let node = state.find(dir, name)?;
        Ok((node, state.attr(node)?))
    }

    fn parent(&self, dir: NodeId) -> Result<NodeId> {
        let state = self.state();
        let node = state.node(dir)?;
        node.directory()?;
        Ok(node.names.first().map_or(ROOT, |(parent, _)| *parent))
    }

    fn create(&self, dir: NodeId, name: &OsStr, new: &NewNode) -> Result<(NodeId, Attr)> {
        let mut state = self.change_state();
        if state.directory(dir)?.get(name).is_some() {
            return Err(Kind::Exists.into());
        }
        state.last += 1;
        let id = NodeId(state.last);
        state.nodes.insert(id, Node::new(new));
        state.attach(dir, name, id, new.now)?;
        Ok((id, state.attr(id)?))
    }

    fn link(&self, node: NodeId, dir: NodeId, name: &OsStr, now: Timestamp) -> Result<Attr> {
        let mut state = self.change_state();
        if state.directory(dir)?.get(name).is_some() {
            return Err(Kind::Exists.into());
        }
        state.attach(dir, name, node, now)?;
        state.attr(node)
    }

    fn remove(&self, link: Link<'_>, now: Timestamp) -> Result<u32> {
        let mut state = self.change_state();
        state.check_found(link.dir, link.name, Some(link.node))?;
        state.detach(link.dir, link.name, now)?;
        Ok(state.node(link.node)?.nlink)
    }

    fn rename(
        &self,
        from: Link<'_>,
        to: Target<'_>,
        exchange: Exchange,
        now: Timestamp,
    ) -> Result<u32> {
        let mut state = self.change_state();
        state.check_found(from.dir, from.name, Some(from.node))?;
        state.check_found(to.dir, to.name, to.node)?;
        if to.node.is_none() && exchange == Exchange::Yes {
            return Err(Kind::NotFound.into());
        }
        if to.node.is_some() {
            state.detach(to.dir, to.name, now)?;
        }
        state.detach(from.dir, from.name, now)?;
        state.attach(to.dir, to.name, from.node, now)?;
        match to.node {
            Some(other) if exchange == Exchange::Yes => {
                state.attach(from.dir, from.name, other, now)?;
                Ok(0)
            }
            Some(replaced) => Ok(state.node(replaced)?.nlink),
            None => Ok(0),
        }
    }

    fn forget(&self, node: NodeId) {
        let mut state = self.change_state();
        let nameless = |node: &Node| node.names.is_empty();
        if node == ROOT || !state.nodes.get(&node).is_some_and(nameless) {
            return;
        }
        if let Some(node) = state.nodes.remove(&node) {
            state.blocks_used -= node.block_count();
        }
    }

    fn list(
        &self,
        dir: NodeId,
        from: Cookie,
        each: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        let state = self.state();
        for (cookie, name, node) in state.directory(dir)?.after(from) {
            let (ino, kind) = (state.ino(node)?, state.node(node)?.kind());
            let entry = Entry { name, node, ino, kind, attr: None, cookie };
            if !each(entry) {
                break;
            }
        }
        Ok(())
    }

    fn change(&self, node: NodeId, change: &Change) -> Result<Attr> {
        let mut state = self.change_state();
        if let Some(size) = change.size {
            state.with_content(node, |_| 0, |content| content.set_size(size))?;
        }
        state.node_mut(node)?.change(change);
        state.attr(node)
    }

    fn read_link(&self, node: NodeId) -> Result<OsString> {
        match &self.state().node(node)?.body {
            Body::Symlink(target) => Ok(target.clone()),
            _ => Err(Kind::Invalid.into()),
        }
    }

    fn open(&self, _: NodeId, _: bool) -> Result<Opened> {
        let backing = self.backing.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Opened { backing: backing.clone(), ..Opened::default() })
    }

    fn read(&self, node: NodeId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.read_count.fetch_add(1, Ordering::Relaxed);
        Ok(self.state().node(node)?.content()?.read(offset, buf))
    }

    fn write(&self, node: NodeId, offset: u64, data: &[u8], stamps: Stamps) -> Result<()> {
        while self.writes_wait.load(Ordering::Relaxed) {
            System.wait(WRITE_STEP);
        }
        let range = offset..offset + data.len() as u64;
        let mut state = self.change_state();
        state.with_content(
            node,
            |content| content.missing(&range),
            |content| content.write(offset, data),
        )?;
        if let Some(change) = stamps.change() {
            state.node_mut(node)?.change(&change);
        }
        Ok(())
    }

    fn reserve(&self, node: NodeId, range: Range<u64>, how: Reserve) -> Result<()> {
        self.change_state().with_content(
            node,
            |content| match how {
                Reserve::Allocate { .. } | Reserve::Zero { .. } => content.missing(&range),
                // A shift that is not by whole blocks can touch one block more.
                Reserve::Insert => 1,
                Reserve::Punch | Reserve::Collapse => 0,
            },
            |content| content.reserve(&range, how),
        )
    }

    fn seek(&self, node: NodeId, offset: u64, what: Seek) -> Result<u64> {
        self.state().node(node)?.content()?.seek(offset, what).ok_or_else(|| Kind::NoMore.into())
    }

    fn xattr(&self, node: NodeId, name: &OsStr) -> Result<Vec<u8>> {
        let state = self.state();
        let value = state.node(node)?.xattrs.get(name);
        value.cloned().ok_or_else(|| Kind::NoAttribute.into())
    }

    fn xattrs(&self, node: NodeId) -> Result<Vec<OsString>> {
        Ok(self.state().node(node)?.xattrs.keys().cloned().collect())
    }

    fn set_xattr(&self, node: NodeId, name: &OsStr, value: &[u8], mode: XattrMode) -> Result<()> {
        let mut state = self.change_state();
        let xattrs = &mut state.node_mut(node)?.xattrs;
        match (mode, xattrs.contains_key(name)) {
            (XattrMode::Create, true) => return Err(Kind::Exists.into()),
            (XattrMode::Replace, false) => return Err(Kind::NoAttribute.into()),
            _ => {}
        }
        xattrs.insert(name.to_owned(), value.to_vec());
        Ok(())
    }

    fn remove_xattr(&self, node: NodeId, name: &OsStr) -> Result<()> {
        let removed = self.change_state().node_mut(node)?.xattrs.remove(name);
        removed.map(drop).ok_or_else(|| Kind::NoAttribute.into())
    }

    fn stats(&self) -> Result<FsStats> {
        let state = self.state();
        let free = state.block_count.saturating_sub(state.blocks_used);
        Ok(FsStats {
            block_len_bytes: u32::try_from(BLOCK_LEN_BYTES).unwrap_or(u32::MAX),
            blocks: state.block_count,
            blocks_free: free,
            blocks_available: free,
            files: state.nodes.len() as u64 + free,
            files_free: free,
            name_len_max: 255,
        })
    }

    fn sync_node(&self, node: NodeId) -> Result<()> {
        self.state().node(node).map(drop)
    }

    fn sync(&self) -> Result<()> {
        System.wait(Duration::from_millis(self.sync_ms.load(Ordering::Relaxed)));
        if self.syncs_fail.load(Ordering::Relaxed) {
            return Err(Error::new(Kind::Io, "told to fail"));
        }
        Ok(())
    }

    fn left_to_do(&self) -> Option<Event> {
        Some(self.left.clone())
    }

    fn catch_up(&self) {
        self.caught_up.notify();
    }
}
