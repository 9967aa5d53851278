//! Block devices as files of one directory, for loop devices and programs that want a file.
//!
//! Nothing about the files ever changes but their content: no names come or go, sizes stay, and the
//! times are always the same, for they would tell when a device was used. Files belong to the user
//! who serves them, and to nobody else.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::sync::Arc;

use tacita_block::{Allocation, BlockDevice, ByteDevice};
use tacita_vfs::fuse::MountOptions;
use tacita_vfs::posix::NAME_LEN_MAX;
use tacita_vfs::{
    Attr, Change, Cookie, Demand, Entry, Error, Exchange, FileSystem, FileType, FsStats, Kind,
    Link, NewNode, NodeId, Reserve, Result, Seek, Stamps, Target, Timestamp, Wait, XattrMode,
};

/// Node and inode number of the directory; files follow.
const ROOT: NodeId = NodeId(1);

/// Permission bits of the directory.
const ROOT_PERM: u16 = 0o500;

/// Permission bits of the files.
const FILE_PERM: u16 = 0o600;

/// Unit of [`Attr::blocks`] in bytes.
const STAT_BLOCK_LEN_BYTES: u64 = 512;

/// Unit of [`FsStats`], and preferred size of requests, in bytes.
const BLOCK_LEN_BYTES: u32 = 4096;

/// Difference between a file's index and its cookie, which is greater than 2.
const COOKIE_BASE: Cookie = 3;

/// Block devices as files of one directory, which is all there is.
///
/// Reads and writes go to any byte; a program that writes beyond the end is told that there is no
/// room, as by a disk. `fsync` flushes the device, `fallocate` zeroes it (punching holes too: whoever
/// punches relies on reading zeros).
///
/// A device is written to by these files alone: see [`ByteDevice`].
pub struct DeviceFiles {
    files: Vec<DeviceFile>,
    uid: u32,
    gid: u32,
}

struct DeviceFile {
    name: OsString,
    device: ByteDevice<Arc<dyn BlockDevice>>,
    is_hidden: bool,
}

impl DeviceFile {
    /// What the device's failure is to a program that uses its file.
    fn failed(&self, error: tacita_block::Error) -> Error {
        let kind = match error.kind() {
            tacita_block::Kind::OutOfRange => Kind::Invalid,
            tacita_block::Kind::NoSpace => Kind::NoSpace,
            tacita_block::Kind::ReadOnly => Kind::ReadOnly,
            tacita_block::Kind::Busy => Kind::Busy,
            _ => Kind::Io,
        };
        let error = Error::new(kind, error.to_string()).because(error);
        if self.is_hidden { error.in_private() } else { error }
    }
}

impl DeviceFiles {
    /// A file for each device, in this order.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for a name that no file can have; [`Kind::NameTooLong`];
    /// [`Kind::Exists`] for a name that is there twice.
    pub fn new(
        devices: impl IntoIterator<Item = (OsString, Arc<dyn BlockDevice>)>,
    ) -> Result<Self> {
        let mut files: Vec<DeviceFile> = Vec::new();
        for (name, device) in devices {
            let bytes = name.as_encoded_bytes();
            if matches!(bytes, b"" | b"." | b"..") || bytes.contains(&b'/') || bytes.contains(&0) {
                return Err(Error::new(Kind::Invalid, "no file can have the name of a device"));
            }
            if bytes.len() > NAME_LEN_MAX {
                return Err(Kind::NameTooLong.into());
            }
            if files.iter().any(|file| file.name == name) {
                return Err(Error::new(Kind::Exists, "two devices have the same name"));
            }
            files.push(DeviceFile { name, device: ByteDevice::new(device), is_hidden: false });
        }
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        Ok(Self { files, uid: uid.as_raw(), gid: gid.as_raw() })
    }

    /// Says which files hold hidden volumes: their changes may wait for those of other files, their
    /// failures are told to the programs that use them alone, never to a log, and they do not count in
    /// what is said of the whole file system.
    #[must_use]
    pub fn hiding(mut self, is_hidden: impl Fn(&OsStr) -> bool) -> Self {
        for file in &mut self.files {
            file.is_hidden = is_hidden(&file.name);
        }
        self
    }

    /// How to mount them: no regular sync, for a device is flushed when somebody asks for it, and
    /// at the end.
    pub fn mount_options() -> MountOptions {
        MountOptions {
            sync_interval: std::time::Duration::ZERO,
            // Changes that wait must leave room for those that they wait for.
            background_max: u16::MAX,
            ..MountOptions::default()
        }
    }

    fn index_of(node: NodeId) -> Option<usize> {
        usize::try_from(node.0.checked_sub(ROOT.0 + 1)?).ok()
    }

    fn node_of(index: usize) -> NodeId {
        NodeId(ROOT.0 + 1 + index as u64)
    }

    fn file(&self, node: NodeId) -> Result<&DeviceFile> {
        if node == ROOT {
            return Err(Kind::IsDirectory.into());
        }
        let file = Self::index_of(node).and_then(|index| self.files.get(index));
        file.ok_or_else(|| Kind::Stale.into())
    }

    /// Those that may be told of to whoever asks of all mounts, as `df` does, and keeps what it hears.
    fn shown(&self) -> impl Iterator<Item = &DeviceFile> {
        self.files.iter().filter(|file| !file.is_hidden)
    }
}

impl FileSystem for DeviceFiles {
    fn root(&self) -> NodeId {
        ROOT
    }

    fn attr(&self, node: NodeId) -> Result<Attr> {
        let (kind, perm, nlink, size) = if node == ROOT {
            (FileType::Directory, ROOT_PERM, 2, 0)
        } else {
            (FileType::File, FILE_PERM, 1, self.file(node)?.device.len_bytes())
        };
        Ok(Attr {
            ino: node.0,
            kind,
            perm,
            nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            size,
            blocks: size.div_ceil(STAT_BLOCK_LEN_BYTES),
            block_len_bytes: BLOCK_LEN_BYTES,
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
            ctime: Timestamp::default(),
        })
    }

    fn lookup(&self, dir: NodeId, name: &OsStr) -> Result<(NodeId, Attr)> {
        if dir != ROOT {
            return Err(Kind::NotDirectory.into());
        }
        let index = self.files.iter().position(|file| file.name == name).ok_or(Kind::NotFound)?;
        let node = Self::node_of(index);
        Ok((node, self.attr(node)?))
    }

    fn parent(&self, dir: NodeId) -> Result<NodeId> {
        if dir == ROOT { Ok(ROOT) } else { Err(Kind::NotDirectory.into()) }
    }

    fn create(&self, _: NodeId, _: &OsStr, _: &NewNode) -> Result<(NodeId, Attr)> {
        Err(fixed())
    }

    fn link(&self, _: NodeId, _: NodeId, _: &OsStr, _: Timestamp) -> Result<Attr> {
        Err(fixed())
    }

    fn remove(&self, _: Link<'_>, _: Timestamp) -> Result<u32> {
        Err(fixed())
    }

    fn rename(&self, _: Link<'_>, _: Target<'_>, _: Exchange, _: Timestamp) -> Result<u32> {
        Err(fixed())
    }

    fn forget(&self, _: NodeId) {}

    fn list(
        &self,
        dir: NodeId,
        from: Cookie,
        each: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        if dir != ROOT {
            return Err(Kind::NotDirectory.into());
        }
        for (cookie, (index, file)) in (COOKIE_BASE..).zip(self.files.iter().enumerate()) {
            let node = Self::node_of(index);
            let attr = Some(self.attr(node)?);
            let (name, ino, kind) = (&*file.name, node.0, FileType::File);
            let entry = Entry { name, node, ino, kind, attr, cookie };
            if cookie > from && !each(entry) {
                break;
            }
        }
        Ok(())
    }

    /// Takes no notice of times, which every write wants to set; refuses the rest.
    fn change(&self, node: NodeId, change: &Change) -> Result<Attr> {
        let attr = self.attr(node)?;
        let refused = change.user_times
            || change.size.is_some_and(|size| size != attr.size)
            || change.perm.is_some_and(|perm| perm != attr.perm)
            || change.uid.is_some_and(|uid| uid != attr.uid)
            || change.gid.is_some_and(|gid| gid != attr.gid);
        if refused { Err(fixed()) } else { Ok(attr) }
    }

    fn read_link(&self, _: NodeId) -> Result<OsString> {
        Err(Kind::Invalid.into())
    }

    fn read(&self, node: NodeId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let file = self.file(node)?;
        let device = &file.device;
        let left = device.len_bytes().saturating_sub(offset);
        let len = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
        device.read(offset, &mut buf[..len]).map_err(|e| file.failed(e))?;
        Ok(len)
    }

    fn write(&self, node: NodeId, offset: u64, data: &[u8], _: Stamps) -> Result<()> {
        let file = self.file(node)?;
        let device = &file.device;
        check_room(device.len_bytes(), offset, data.len() as u64)?;
        device.write(offset, data).map_err(|e| file.failed(e))
    }

    fn reserve(&self, node: NodeId, range: Range<u64>, how: Reserve) -> Result<()> {
        let file = self.file(node)?;
        let device = &file.device;
        let len = range.end - range.start;
        match how {
            // All that there will ever be is there.
            Reserve::Allocate { .. } => check_room(device.len_bytes(), range.start, len),
            Reserve::Zero { .. } => {
                check_room(device.len_bytes(), range.start, len)?;
                device.write_zeroes(range.start, len).map_err(|e| file.failed(e))
            }
            Reserve::Punch => {
                let end = range.end.min(device.len_bytes());
                let start = range.start.min(end);
                device.write_zeroes(start, end - start).map_err(|e| file.failed(e))
            }
            Reserve::Collapse | Reserve::Insert => Err(Kind::Unsupported.into()),
        }
    }

    fn seek(&self, node: NodeId, offset: u64, what: Seek) -> Result<u64> {
        let file = self.file(node)?;
        let device = &file.device;
        let end = device.len_bytes();
        let wanted = match what {
            Seek::Data => Allocation::Data,
            Seek::Hole => Allocation::Hole,
        };
        if offset >= end {
            return Err(Kind::NoMore.into());
        }
        let mut at = offset;
        while at < end {
            let extent = device.extent(at, end - at).map_err(|e| file.failed(e))?;
            if extent.allocation == wanted {
                return Ok(at);
            }
            at += extent.len_bytes;
        }
        match what {
            Seek::Data => Err(Kind::NoMore.into()),
            Seek::Hole => Ok(end),
        }
    }

    fn xattr(&self, _: NodeId, _: &OsStr) -> Result<Vec<u8>> {
        Err(Kind::NoAttribute.into())
    }

    fn xattrs(&self, _: NodeId) -> Result<Vec<OsString>> {
        Ok(Vec::new())
    }

    fn set_xattr(&self, _: NodeId, _: &OsStr, _: &[u8], _: XattrMode) -> Result<()> {
        Err(Kind::Unsupported.into())
    }

    fn remove_xattr(&self, _: NodeId, _: &OsStr) -> Result<()> {
        Err(Kind::NoAttribute.into())
    }

    fn stats(&self) -> Result<FsStats> {
        let len_bytes: u64 = self.shown().map(|file| file.device.len_bytes()).sum();
        Ok(FsStats {
            block_len_bytes: BLOCK_LEN_BYTES,
            blocks: len_bytes / u64::from(BLOCK_LEN_BYTES),
            blocks_free: 0,
            blocks_available: 0,
            files: self.shown().count() as u64 + 1,
            files_free: 0,
            name_len_max: u32::try_from(NAME_LEN_MAX).unwrap_or(u32::MAX),
        })
    }

    fn wait(&self, node: NodeId, _: Demand) -> Wait {
        let file = Self::index_of(node).and_then(|index| self.files.get(index));
        if file.is_some_and(|file| file.is_hidden) { Wait::Others } else { Wait::No }
    }

    fn sync_node(&self, node: NodeId) -> Result<()> {
        if node == ROOT {
            return Ok(());
        }
        let file = self.file(node)?;
        file.device.flush().map_err(|e| file.failed(e))
    }

    /// Each device is flushed by whoever uses it. There is nothing to be done for all of them: the
    /// flush of one may take long, and must neither hold up another nor show in its timing.
    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

impl std::fmt::Debug for DeviceFiles {
    // How many there are, and their names, may be what their owner does not want told.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceFiles").finish_non_exhaustive()
    }
}

fn fixed() -> Error {
    Error::new(Kind::NotPermitted, "these files stay as they are")
}

/// Refuses what reaches beyond the end.
fn check_room(len_bytes: u64, offset: u64, wanted_bytes: u64) -> Result<()> {
    match offset.checked_add(wanted_bytes) {
        Some(end) if end <= len_bytes => Ok(()),
        _ => Err(Kind::NoSpace.into()),
    }
}
