//! The seam: what a storage system supplies to be a file system.
//!
//! Each method is atomic in itself and does what it is told. It checks only what it needs to stay
//! whole (the node exists, the name is there); who may do what, what may replace what, when set-id
//! bits fall and when a nameless node dies is decided above it, once for every system.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use tacita_clock::Event;

use crate::Result;

/// A node's number in memory: stable while the node lives, never written to a medium, never shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileType {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Unix socket.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
}

/// Seconds and nanoseconds since 1970, UTC; nanoseconds are below 1,000,000,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timestamp {
    /// Seconds, negative before 1970.
    pub secs: i64,
    /// Nanoseconds after `secs`.
    pub nanos: u32,
}

/// What `stat` shows of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// Inode number shown to programs; need not be [`NodeId`].
    pub ino: u64,
    /// What the node is.
    pub kind: FileType,
    /// Permission and set-id bits, `0o7777` at most.
    pub perm: u16,
    /// Names of the node; for a directory 2 and one for each subdirectory; 0 when it has no name left.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number in the kernel's encoding, 0 but for devices.
    pub rdev: u32,
    /// Size in bytes.
    pub size: u64,
    /// Space used, in units of 512 bytes.
    pub blocks: u64,
    /// Preferred size of requests, in bytes.
    pub block_len_bytes: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of anything.
    pub ctime: Timestamp,
}

/// What a new node starts with.
#[derive(Debug, Clone)]
pub struct NewNode {
    /// What it is.
    pub kind: FileType,
    /// Permission bits, the umask already applied, unless the directory has a list in its place.
    pub perm: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, 0 but for devices.
    pub rdev: u32,
    /// Target of a symbolic link, empty otherwise.
    pub target: OsString,
    /// All three times of the node, and mtime and ctime of the directory.
    pub now: Timestamp,
}

impl NewNode {
    /// A node of root's that is no device and no link.
    pub fn new(kind: FileType, perm: u16, now: Timestamp) -> Self {
        Self { kind, perm, uid: 0, gid: 0, rdev: 0, target: OsString::new(), now }
    }
}

/// A change of attributes; what is `None` stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Change {
    /// Permission and set-id bits.
    pub perm: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes: truncated, or grown by a hole.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<Timestamp>,
    /// Last change of content.
    pub mtime: Option<Timestamp>,
    /// Last change of anything.
    pub ctime: Option<Timestamp>,
    /// The times come from the user (`utimensat` with values), not from the clock.
    pub user_times: bool,
}

/// Position in a directory: an entry's own cookie leads to the entries after it. Stable across
/// changes of other entries; 0 is the beginning.
pub type Cookie = u64;

/// One directory entry; `.` and `..` are not listed.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Its name.
    pub name: &'a OsStr,
    /// Its node.
    pub node: NodeId,
    /// Inode number as in [`Attr::ino`].
    pub ino: u64,
    /// What the node is.
    pub kind: FileType,
    /// What `stat` shows, from systems that have it at hand: then the node is in memory, too, and
    /// need not be looked up before it is used.
    pub attr: Option<Attr>,
    /// Where to go on after this entry; greater than 2.
    pub cookie: Cookie,
}

/// A name in a directory, and the node that was found under it. The directory is locked against
/// changes of its names, so that is what the name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link<'a> {
    /// The directory.
    pub dir: NodeId,
    /// The name.
    pub name: &'a OsStr,
    /// The node.
    pub node: NodeId,
}

/// Where a name goes by [`FileSystem::rename`], and what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target<'a> {
    /// The directory.
    pub dir: NodeId,
    /// The name.
    pub name: &'a OsStr,
    /// The node that was found under the name, if any.
    pub node: Option<NodeId>,
}

/// What a write sets besides content, in the same step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stamps {
    /// The time of the change: mtime and ctime.
    pub now: Option<Timestamp>,
    /// Permission and set-id bits.
    pub perm: Option<u16>,
}

impl Stamps {
    /// Nothing but content changes.
    pub const NONE: Self = Self { now: None, perm: None };

    /// As a change of attributes; `None` if there is nothing to set.
    pub fn change(self) -> Option<Change> {
        let change =
            Change { perm: self.perm, mtime: self.now, ctime: self.now, ..Change::default() };
        (self != Self::NONE).then_some(change)
    }
}

/// What [`FileSystem::wait`] is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// [`FileSystem::write`].
    Write,
    /// [`FileSystem::change`] of the size, [`FileSystem::reserve`].
    Resize,
    /// [`FileSystem::sync_node`], [`FileSystem::sync_content`].
    Sync,
    /// [`FileSystem::unlinked`].
    Unlinked,
    /// [`FileSystem::released`].
    Released,
}

/// What a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Nothing that takes long.
    No,
    /// A device: it takes long, but comes to an end by itself.
    Device,
    /// What other requests bring about, which must not be held up by it.
    Others,
}

/// How [`FileSystem::rename`] treats the target name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exchange {
    /// The target name, if any, is replaced; its node loses that name.
    No,
    /// Both names exist and trade nodes.
    Yes,
}

/// What [`FileSystem::reserve`] does to a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserve {
    /// Promise room; the size grows to the end of the range unless `keep_size`.
    Allocate {
        /// Leave the size as it is.
        keep_size: bool,
    },
    /// Make a hole; the size stays.
    Punch,
    /// Read as zeros; the size grows to the end of the range unless `keep_size`.
    Zero {
        /// Leave the size as it is.
        keep_size: bool,
    },
    /// Remove the range; what follows moves down.
    Collapse,
    /// Insert a hole; what follows moves up.
    Insert,
}

/// What [`FileSystem::seek`] looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// The next byte that is stored.
    Data,
    /// The next byte that is not stored, at latest the end of the file.
    Hole,
}

/// How [`FileSystem::set_xattr`] treats an existing value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrMode {
    /// Set or replace.
    Any,
    /// Fail with [`crate::Kind::Exists`] if there is one.
    Create,
    /// Fail with [`crate::Kind::NoAttribute`] if there is none.
    Replace,
}

/// What `statfs` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsStats {
    /// Unit of the three block counts, in bytes.
    pub block_len_bytes: u32,
    /// All blocks.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks open to users.
    pub blocks_available: u64,
    /// All nodes that could be.
    pub files: u64,
    /// Nodes that could still be made.
    pub files_free: u64,
    /// Longest name, in bytes.
    pub name_len_max: u32,
}

/// What an open file brings.
#[derive(Debug, Clone, Default)]
pub struct Opened {
    /// A lower file that the kernel may read and write directly (FUSE passthrough).
    pub backing: Option<Arc<File>>,
    /// Forget cached pages of the file at this open.
    pub drop_cache: bool,
    /// Only what appends may write to it (`chattr +a`).
    pub append_only: bool,
    /// The content is another node's, which stands in for this one: nothing of it may be kept under
    /// this node's number, and what is known of this one is to be asked for again.
    pub stands_in: bool,
}

/// Inode flags that ask nothing of a file system which sets no access times, in the numbers of
/// `FS_IOC_GETFLAGS`: nodump, noatime.
const FLAGS_WITHOUT_DUTIES: u32 = 0x40 | 0x80;

/// Whether a file system that only notes inode flags may change them so: whoever marks a file immutable
/// relies on that, so it is better refused.
///
/// # Errors
/// [`crate::Kind::Unsupported`] if a flag is added that would have to be honoured.
pub fn check_noted_flags(old: u32, new: u32) -> Result<()> {
    match new & !old & !FLAGS_WITHOUT_DUTIES {
        0 => Ok(()),
        _ => Err(crate::Kind::Unsupported.into()),
    }
}

/// Storage of nodes, entries and content.
///
/// Thread-safe; every method is atomic. Nodes stay valid, even without a name, until
/// [`FileSystem::forget`].
pub trait FileSystem: Send + Sync + 'static {
    /// The root directory.
    fn root(&self) -> NodeId;

    /// What `stat` shows of `node`.
    ///
    /// # Errors
    /// [`crate::Kind::Stale`] if there is no such node.
    fn attr(&self, node: NodeId) -> Result<Attr>;

    /// The node named `name` in `dir`; never called with `.` or `..`.
    ///
    /// # Errors
    /// [`crate::Kind::NotFound`] if the name is absent.
    fn lookup(&self, dir: NodeId, name: &OsStr) -> Result<(NodeId, Attr)>;

    /// The directory that holds directory `dir`; the root is its own parent.
    ///
    /// # Errors
    /// [`crate::Kind::Stale`] if there is no such directory.
    fn parent(&self, dir: NodeId) -> Result<NodeId>;

    /// Makes a node under a name that is known to be free.
    ///
    /// # Errors
    /// [`crate::Kind::Exists`]; [`crate::Kind::NoSpace`]. Nothing has changed in either case.
    fn create(&self, dir: NodeId, name: &OsStr, new: &NewNode) -> Result<(NodeId, Attr)>;

    /// [`FileSystem::create`] of a regular file and [`FileSystem::open`] in one, for systems that
    /// have less to do then.
    ///
    /// # Errors
    /// As both; the file may be there when the latter fails.
    fn create_open(
        &self,
        dir: NodeId,
        name: &OsStr,
        new: &NewNode,
        write: bool,
    ) -> Result<(NodeId, Attr, Opened)> {
        let (node, attr) = self.create(dir, name, new)?;
        match self.open(node, write) {
            Ok(opened) => Ok((node, attr, opened)),
            Err(e) => {
                self.evict(node);
                Err(e)
            }
        }
    }

    /// Gives `node`, which is no directory, another name.
    ///
    /// # Errors
    /// [`crate::Kind::Exists`]; [`crate::Kind::NoSpace`]; [`crate::Kind::TooManyLinks`].
    fn link(&self, node: NodeId, dir: NodeId, name: &OsStr, now: Timestamp) -> Result<Attr>;

    /// Takes a name away; a directory is known to be empty. Returns how many names the node has
    /// left; without names it lives on until [`FileSystem::forget`].
    ///
    /// # Errors
    /// [`crate::Kind::NotFound`].
    fn remove(&self, link: Link<'_>, now: Timestamp) -> Result<u32>;

    /// Moves a name; the rules on what may replace what have been checked. Returns how many names
    /// a node that was replaced has left, and 0 if none was.
    ///
    /// # Errors
    /// [`crate::Kind::NotFound`]; [`crate::Kind::NoSpace`]; [`crate::Kind::CrossDevice`] where the
    /// system cannot move as much at once: programs then copy.
    fn rename(
        &self,
        from: Link<'_>,
        to: Target<'_>,
        exchange: Exchange,
        now: Timestamp,
    ) -> Result<u32>;

    /// Nobody refers to `node` any more: if it has no name, it is erased.
    fn forget(&self, node: NodeId);

    /// Nobody has `node`, which has no name, open: its content is to be gone with the next commit, and of
    /// a system that promises more all of it with what it does next. Its number stays taken until
    /// [`FileSystem::forget`], which the kernel may ask for late. A system without commits has nothing to
    /// do.
    fn unused(&self, _node: NodeId) {}

    /// Nobody refers to `node` any more, but it has a name: what is held in memory for it can be
    /// dropped. It is looked up again before it is used again.
    fn evict(&self, _node: NodeId) {}

    /// `node` has just lost its last name, by [`FileSystem::remove`] or [`FileSystem::rename`]. No
    /// lock is held, and the program hears of success only after this: the place for work that
    /// takes long and has to be done by then. `is_open` tells whether somebody has it open.
    ///
    /// # Errors
    /// As the system has them; the name stays gone.
    fn unlinked(&self, _node: NodeId, _is_open: &dyn Fn() -> bool) -> Result<()> {
        Ok(())
    }

    /// Lists the entries after `from`, in the order of cookies, until `each` returns `false`.
    ///
    /// # Errors
    /// [`crate::Kind::NotDirectory`].
    fn list(
        &self,
        dir: NodeId,
        from: Cookie,
        each: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<()>;

    /// Changes attributes and returns the new ones.
    ///
    /// # Errors
    /// [`crate::Kind::NoSpace`]; [`crate::Kind::FileTooBig`]. Nothing has changed in either case.
    fn change(&self, node: NodeId, change: &Change) -> Result<Attr>;

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`crate::Kind::Invalid`] if it is none.
    fn read_link(&self, node: NodeId) -> Result<OsString>;

    /// A regular file is being opened.
    ///
    /// # Errors
    /// As the system has them.
    fn open(&self, node: NodeId, write: bool) -> Result<Opened> {
        let _ = (node, write);
        Ok(Opened::default())
    }

    /// What [`FileSystem::open`] opened is closed; comes once for each.
    fn released(&self, _node: NodeId) {}

    /// Reads at `offset` into `buf`; less than asked only at the end of the file.
    ///
    /// # Errors
    /// [`crate::Kind::Io`]; [`crate::Kind::Corrupt`].
    fn read(&self, node: NodeId, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Writes all of `data` at `offset`; the file grows as needed. What `stamps` says is set in the
    /// same step, where the system does not stamp by itself what it changes.
    ///
    /// # Errors
    /// [`crate::Kind::NoSpace`]; [`crate::Kind::FileTooBig`]; [`crate::Kind::Io`].
    fn write(&self, node: NodeId, offset: u64, data: &[u8], stamps: Stamps) -> Result<()>;

    /// The same; calls `accepted`, at most once, as soon as nothing is left that could refuse it. That
    /// may be before all of `data` is where it belongs, but not before whoever asks for anything from
    /// then on finds it there: so a program need not wait until its bytes have been copied.
    ///
    /// # Errors
    /// As [`FileSystem::write`]; none when `accepted` has been called.
    fn write_and_tell(
        &self,
        node: NodeId,
        offset: u64,
        data: &[u8],
        stamps: Stamps,
        accepted: &mut dyn FnMut(),
    ) -> Result<()> {
        self.write(node, offset, data, stamps)?;
        accepted();
        Ok(())
    }

    /// `fallocate`: room, holes, zeros.
    ///
    /// # Errors
    /// [`crate::Kind::Unsupported`] for what the system does not offer.
    fn reserve(&self, node: NodeId, range: Range<u64>, how: Reserve) -> Result<()>;

    /// `lseek` for data or holes.
    ///
    /// # Errors
    /// [`crate::Kind::NoMore`] at or beyond the end, or where no data follows.
    fn seek(&self, node: NodeId, offset: u64, what: Seek) -> Result<u64>;

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// [`crate::Kind::NoAttribute`].
    fn xattr(&self, node: NodeId, name: &OsStr) -> Result<Vec<u8>>;

    /// The names of all extended attributes.
    ///
    /// # Errors
    /// [`crate::Kind::Stale`].
    fn xattrs(&self, node: NodeId) -> Result<Vec<OsString>>;

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// [`crate::Kind::Exists`], [`crate::Kind::NoAttribute`] by `mode`; [`crate::Kind::NoSpace`].
    fn set_xattr(&self, node: NodeId, name: &OsStr, value: &[u8], mode: XattrMode) -> Result<()>;

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`crate::Kind::NoAttribute`].
    fn remove_xattr(&self, node: NodeId, name: &OsStr) -> Result<()>;

    /// Whether access control lists of POSIX are kept, as attributes of their names: the kernel obeys them.
    fn keeps_access_lists(&self) -> bool {
        false
    }

    /// Whether a directory has a list for what is made in it. It stands in the place of the umask, and
    /// [`FileSystem::create`] obeys it.
    ///
    /// # Errors
    /// [`crate::Kind::Io`].
    fn has_default_list(&self, _dir: NodeId) -> Result<bool> {
        Ok(false)
    }

    /// The inode flags of a file or directory, as `chattr` sets them, in the numbers of
    /// `FS_IOC_GETFLAGS`.
    ///
    /// # Errors
    /// [`crate::Kind::Unsupported`] where there are none.
    fn inode_flags(&self, _node: NodeId) -> Result<u32> {
        Err(crate::Kind::Unsupported.into())
    }

    /// Sets all inode flags of a file or directory. Who may set which has been checked but for those
    /// that a system has alone.
    ///
    /// # Errors
    /// [`crate::Kind::Unsupported`] for a flag that cannot be set.
    fn set_inode_flags(&self, _node: NodeId, _flags: u32) -> Result<()> {
        Err(crate::Kind::Unsupported.into())
    }

    /// What `statfs` shows.
    ///
    /// # Errors
    /// [`crate::Kind::Io`].
    fn stats(&self) -> Result<FsStats>;

    /// What it may wait for to do what is demanded for `node`: whoever serves requests sees to it that
    /// others are served meanwhile.
    fn wait(&self, _node: NodeId, _demand: Demand) -> Wait {
        Wait::No
    }

    /// `fsync` of a file or directory, with the guarantee that the mount asked for.
    ///
    /// # Errors
    /// [`crate::Kind::Io`]: the change is not on the medium.
    fn sync_node(&self, node: NodeId) -> Result<()>;

    /// `fdatasync` of a file: its times need not be on the medium.
    ///
    /// # Errors
    /// As [`FileSystem::sync_node`].
    fn sync_content(&self, node: NodeId) -> Result<()> {
        self.sync_node(node)
    }

    /// What tells that something is left to do that no request waits for; `None` where there never is.
    /// Whoever serves requests then calls [`FileSystem::catch_up`] beside them.
    fn left_to_do(&self) -> Option<Event> {
        None
    }

    /// Does what is left to do. What fails is told to whoever needs it next, a sync at the latest.
    fn catch_up(&self) {}

    /// Everything is on the medium and nothing is left to do (`sync`, unmount, timer).
    ///
    /// # Errors
    /// [`crate::Kind::Io`].
    fn sync(&self) -> Result<()>;
}
