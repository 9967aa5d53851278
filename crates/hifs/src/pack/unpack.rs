//! Out of an image, into a folder.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use tacita_block::AlignedBuf;
use tacita_vfs::{Attr, FileSystem, FileType, Kind, NodeId, Seek, Timestamp};

use super::folders::{Descent, Folder};
use super::{At, CHUNK_LEN, Carried, Outcome, is_carried};
use crate::geometry::{BLOCK_LEN, Times};
use crate::hifs::Hifs;

/// Run for its owner, or for its group, whoever starts it.
const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;

fn user_rdev(rdev: u32) -> u64 {
    let (major, minor) = (rdev >> 8 & 0xfff, rdev & 0xff | rdev >> 12 & 0xfff00);
    rustix::fs::makedev(major, minor)
}

/// What a pipe, a socket or a device is made as.
const fn special_kind(kind: FileType) -> rustix::fs::FileType {
    match kind {
        FileType::Socket => rustix::fs::FileType::Socket,
        FileType::CharDevice => rustix::fs::FileType::CharacterDevice,
        FileType::BlockDevice => rustix::fs::FileType::BlockDevice,
        _ => rustix::fs::FileType::Fifo,
    }
}

/// Copies all that an image holds into a folder that is empty or does not exist, and is no link to one. Owners are set
/// only for root; for others a set-user-id bit stays only where the owner is the same, and a set-group-id
/// bit where the group is.
///
/// What of a file cannot be read does not keep the rest of it, and others, from being copied, nor does a device that
/// the caller may not make.
///
/// # Errors
/// What failed, with the path; what came before it is in the folder.
pub fn unpack(hifs: &Hifs, folder: &Path, progress: &mut dyn FnMut(u64)) -> Outcome<Carried> {
    match new_folder(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if fs::read_dir(folder).at(folder)?.next().is_some() {
                return Err(io::Error::from(io::ErrorKind::DirectoryNotEmpty)).at(folder);
            }
        }
        other => other.at(folder)?,
    }
    let owners = rustix::process::geteuid().is_root();
    let times = hifs.superblock().times;
    let mut unpacker = Unpacker {
        hifs,
        owners,
        times,
        links: HashMap::new(),
        carried: Carried::default(),
        progress,
    };
    unpacker.all(folder)?;
    Ok(unpacker.carried)
}

/// A folder that nobody else looks into before it has its owner and permissions.
fn new_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(path)
}

/// The permissions of a node as far as what stands for it outside may have them: a set-user-id bit for
/// another owner, or a set-group-id bit for another group, would lend the rights of somebody else.
fn permitted(attr: &Attr, outside: &Path) -> io::Result<u32> {
    let mut perm = u32::from(attr.perm);
    if perm & (SET_USER_ID | SET_GROUP_ID) != 0 {
        let has = fs::symlink_metadata(outside)?;
        for (bit, is_given) in
            [(SET_USER_ID, has.uid() == attr.uid), (SET_GROUP_ID, has.gid() == attr.gid)]
        {
            if !is_given {
                perm &= !bit;
            }
        }
    }
    Ok(perm)
}

/// Gives what has a name already another one. The first is reached without following a link.
fn hard_link<T>(descent: &Descent<T>, first: &Path, place: &Path) -> io::Result<()> {
    let (Some(above), Some(name)) = (first.parent(), first.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let Some(top) = descent.first() else { return Err(io::ErrorKind::NotFound.into()) };
    let mut folder = None;
    for name in above {
        let below = folder.as_ref().unwrap_or(top).below(name)?;
        folder = Some(below);
    }
    fs::hard_link(folder.as_ref().unwrap_or(top).child(name), place)
}

struct Unpacker<'a> {
    hifs: &'a Hifs,
    owners: bool,
    times: Times,
    /// Where nodes are that have further names: the names from the folder on.
    links: HashMap<NodeId, PathBuf>,
    carried: Carried,
    progress: &'a mut dyn FnMut(u64),
}

/// What is known of a folder that is being unpacked.
struct Unpacking {
    node: NodeId,
    attr: Attr,
    /// What is still to be unpacked, the last one first.
    entries: Vec<(OsString, NodeId)>,
}

impl Unpacker<'_> {
    /// All below the root, and what is known of the root itself.
    fn all(&mut self, folder: &Path) -> Outcome<()> {
        let root = self.hifs.root();
        let attr = self.hifs.attr(root).at(folder)?;
        let top = Folder::exactly_at(folder).at(folder)?;
        let mut descent =
            Descent::from(folder, top, self.listed(folder, root, attr)?).at(folder)?;
        while let Some((at, path, known)) = descent.current() {
            if let Some((name, node)) = known.entries.pop() {
                let place = at.child(&name);
                let path = path.join(&name);
                let attr = self.hifs.attr(node).at(&path)?;
                if let Some(first) = self.links.get(&node) {
                    hard_link(&descent, first, &place).at(&path)?;
                } else if attr.kind == FileType::Directory {
                    new_folder(&place).at(&path)?;
                    let below = at.below(&name).at(&path)?;
                    descent.descend(&name, below, self.listed(&path, node, attr)?).at(&path)?;
                } else {
                    if attr.nlink > 1 {
                        let first = path.strip_prefix(folder).expect("it lies in it").to_owned();
                        self.links.insert(node, first);
                    }
                    self.entry(&path, &place, node, &attr)?;
                }
            } else {
                let place = at.itself();
                let path = path.to_owned();
                self.attributes(&path, &place, known.node, &known.attr)?;
                descent.leave().at(&path)?;
                self.carried.nodes += u64::from(descent.first().is_some());
            }
        }
        Ok(())
    }

    fn listed(&self, path: &Path, node: NodeId, attr: Attr) -> Outcome<Unpacking> {
        let mut entries: Vec<(OsString, NodeId)> = Vec::new();
        let mut each = |entry: tacita_vfs::Entry<'_>| {
            entries.push((entry.name.to_owned(), entry.node));
            true
        };
        self.hifs.list(node, 0, &mut each).at(path)?;
        entries.sort_by(|a, b| b.cmp(a));
        Ok(Unpacking { node, attr, entries })
    }

    /// Unpacks what has a name, and is no folder.
    fn entry(&mut self, path: &Path, place: &Path, node: NodeId, attr: &Attr) -> Outcome<()> {
        let special = |kind| {
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            let rdev = user_rdev(attr.rdev);
            rustix::fs::mknodat(rustix::fs::CWD, place, kind, mode, rdev)
        };
        let is_device = matches!(attr.kind, FileType::CharDevice | FileType::BlockDevice);
        match attr.kind {
            FileType::Directory => unreachable!("made by the caller"),
            FileType::File => self.content(path, place, node, attr.size)?,
            FileType::Symlink => match self.hifs.read_link(node) {
                Ok(target) if self.missing(node) == 0 => {
                    std::os::unix::fs::symlink(target, place).at(path)?;
                }
                Err(error) if error.kind() != Kind::Io => return Err(error).at(path),
                _ => {
                    self.links.remove(&node);
                    self.carried.unread.push((path.to_owned(), attr.size));
                    return Ok(());
                }
            },
            _ => match special(special_kind(attr.kind)) {
                // What all others have need not be missed for it.
                Err(Errno::PERM) if is_device => {
                    self.links.remove(&node);
                    self.carried.devices_left_out.push(path.to_owned());
                    return Ok(());
                }
                made => made.at(path)?,
            },
        }
        self.carried.nodes += 1;
        self.attributes(path, place, node, attr)
    }

    fn content(&mut self, path: &Path, place: &Path, node: NodeId, size: u64) -> Outcome<()> {
        let mut new = OpenOptions::new();
        let file = new.write(true).create_new(true).mode(0o600).open(place).at(path)?;
        let before = self.carried.bytes;
        let mut buffer = AlignedBuf::new(CHUNK_LEN);
        let (mut offset, mut unread) = (0, self.missing(node));
        while let Some(data) = self.stored_from(node, offset).at(path)? {
            offset = data.start;
            while offset < data.end {
                let wanted =
                    buffer.len().min(usize::try_from(data.end - offset).unwrap_or(CHUNK_LEN));
                let len = self.read(node, offset, &mut buffer[..wanted], &mut unread).at(path)?;
                file.write_all_at(&buffer[..len], offset).at(path)?;
                offset += len as u64;
                (self.progress)(before + offset);
            }
        }
        file.set_len(size).at(path)?;
        if unread > 0 {
            self.carried.unread.push((path.to_owned(), unread));
        }
        self.carried.bytes = before + size;
        (self.progress)(self.carried.bytes);
        Ok(())
    }

    /// Bytes of a file of a damaged image that are not there, at most.
    fn missing(&self, node: NodeId) -> u64 {
        self.hifs.losses().missing.get(&node).copied().unwrap_or_default()
    }

    /// Reads content, block by block if it cannot be read at once. What cannot be read is zero, and adds to
    /// `unread`.
    fn read(
        &self,
        node: NodeId,
        offset: u64,
        buf: &mut [u8],
        unread: &mut u64,
    ) -> tacita_vfs::Result<usize> {
        match self.hifs.read(node, offset, buf) {
            Err(error) if error.kind() == Kind::Io => {}
            read => return read,
        }
        let (mut at, mut len) = (offset, 0);
        for block in buf.chunks_mut(BLOCK_LEN) {
            len += match self.hifs.read(node, at, block) {
                Err(error) if error.kind() == Kind::Io => {
                    block.fill(0);
                    *unread += block.len() as u64;
                    block.len()
                }
                read => read?,
            };
            at += BLOCK_LEN as u64;
        }
        Ok(len)
    }

    /// The first range of a file, from `offset` on, that is no hole.
    fn stored_from(&self, node: NodeId, offset: u64) -> tacita_vfs::Result<Option<Range<u64>>> {
        match self.hifs.seek(node, offset, Seek::Data) {
            Ok(start) => Ok(Some(start..self.hifs.seek(node, start, Seek::Hole)?)),
            Err(error) if error.kind() == Kind::NoMore => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn attributes(
        &mut self,
        path: &Path,
        outside: &Path,
        node: NodeId,
        attr: &Attr,
    ) -> Outcome<()> {
        let symlink = attr.kind == FileType::Symlink;
        // A change of owner takes capabilities away, so it comes first.
        if self.owners {
            std::os::unix::fs::lchown(outside, Some(attr.uid), Some(attr.gid)).at(path)?;
        }
        for name in self.hifs.xattrs(node).at(path)? {
            let value = self.hifs.xattr(node, &name).at(path)?;
            let set = if is_carried(name.as_bytes()) {
                rustix::fs::lsetxattr(outside, &name, &value, XattrFlags::empty())
            } else {
                Err(Errno::PERM)
            };
            match set {
                Ok(()) => {}
                // This caller, this kind of file or the file system there does not take it.
                Err(Errno::PERM | Errno::OPNOTSUPP | Errno::INVAL) => {
                    self.carried.attributes_left_out += 1;
                }
                Err(e) => return Err(e).at(path),
            }
        }
        if !symlink {
            let perm = permitted(attr, outside).at(path)?;
            fs::set_permissions(outside, fs::Permissions::from_mode(perm)).at(path)?;
        }
        if self.times != Times::None {
            let spec = |time: Timestamp| Timespec {
                tv_sec: time.secs,
                tv_nsec: rustix::fs::Nsecs::from(time.nanos),
            };
            let times =
                Timestamps { last_access: spec(attr.atime), last_modification: spec(attr.mtime) };
            let at = rustix::fs::CWD;
            rustix::fs::utimensat(at, outside, &times, AtFlags::SYMLINK_NOFOLLOW).at(path)?;
        }
        Ok(())
    }
}
