//! Files into an image and out of it without a mount.

mod access_list;
mod folders;
mod unpack;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;
use tacita_block::AlignedBuf;
use tacita_vfs::{
    ACCESS_LIST, Change, FileSystem, FileType, Kind, NewNode, NodeId, Stamps, Timestamp, XattrMode,
};

use crate::geometry::{BLOCK_LEN, len_for_commit};
use crate::hifs::Hifs;
use crate::record::{INLINE_LEN_MAX, XATTRS_LEN_MAX, is_xattr_name, xattr_len};
use crate::tree::commit_blocks_for;
use folders::{Descent, Folder};
pub use unpack::unpack;

/// Bytes copied at once.
const CHUNK_LEN: usize = 1 << 20;
/// A folder that is not empty has a page of the inode table to itself: room for so many names elsewhere.
const FOLDER_NAMES: u64 = 8;

/// How often a name is looked at that leads to something else each time.
const LOOKS_MAX: usize = 16;

/// What failed, where.
#[derive(Debug)]
pub struct PackError {
    /// The path outside the image.
    pub path: PathBuf,
    /// Why.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

impl std::fmt::Display for PackError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.source)
    }
}

impl std::error::Error for PackError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}

type Outcome<T> = std::result::Result<T, PackError>;

trait At<T> {
    fn at(self, path: &Path) -> Outcome<T>;
}

impl<T, E: Into<Box<dyn std::error::Error + Send + Sync>>> At<T> for std::result::Result<T, E> {
    fn at(self, path: &Path) -> Outcome<T> {
        self.map_err(|error| PackError { path: path.to_owned(), source: error.into() })
    }
}

/// What packing and unpacking have carried.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Carried {
    /// Files, directories and links.
    pub nodes: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// Extended attributes that could not come along: in name spaces that the image or this caller
    /// does not write, or not read out by the kernel.
    pub attributes_left_out: u64,
    /// What of the image could not be read: which files, and how many bytes of each. They are zeros; a link
    /// is left out.
    pub unread: Vec<(PathBuf, u64)>,
    /// Files that others wrote to while they were read: what came along is of several moments.
    pub changed: Vec<PathBuf>,
    /// Devices that this caller may not make, and that are left out.
    pub devices_left_out: Vec<PathBuf>,
}

/// How much there is to pack.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measured {
    /// Files, directories and links.
    pub nodes: u64,
    /// Bytes of content, with holes.
    pub bytes: u64,
    /// Buckets that the content takes, without holes.
    pub buckets: u64,
    /// Room in the inode table, in names: a folder takes that of eight, unless it has more or none.
    pub names: u64,
    /// Room that extended attributes take there besides, in bytes.
    pub attributes: u64,
    /// Most names that one file has.
    pub names_of_one: u64,
}

impl Measured {
    /// The least length of an image in which a file can have as many names as one has here, in bytes.
    pub fn len_for_names_of_one(&self) -> u64 {
        len_for_commit(commit_blocks_for(self.names_of_one))
    }
}

/// What is below a folder, and how many buckets of `bucket_len_bytes` it takes. What goes meanwhile does not
/// count.
///
/// # Errors
/// If the folder cannot be read.
pub fn measure(folder: &Path, bucket_len_bytes: u64) -> Outcome<Measured> {
    let mut sum = Measured::default();
    let mut linked = HashMap::new();
    let top = Folder::at(folder).at(folder)?;
    let listed = (0, names(&top).at(folder)?);
    let mut descent = Descent::from(folder, top, listed).at(folder)?;
    while let Some((folder, path, (seen, left))) = descent.current() {
        let Some(name) = left.pop() else {
            let path = path.to_owned();
            let (seen, _) = descent.leave().at(&path)?.unwrap_or_default();
            sum.names += if seen == 0 { 0 } else { FOLDER_NAMES.max(seen) };
            continue;
        };
        let place = folder.child(&name);
        let below = match fs::symlink_metadata(&place) {
            Err(error) if is_gone(&error) => continue,
            meta => meta.and_then(|meta| {
                (*seen, sum.nodes) = (*seen + 1, sum.nodes + 1);
                if !meta.is_dir() && meta.nlink() > 1 {
                    let names: &mut u64 = linked.entry((meta.dev(), meta.ino())).or_default();
                    *names += 1;
                    sum.names_of_one = sum.names_of_one.max(*names);
                    if *names > 1 {
                        return Ok(None);
                    }
                }
                sum.attributes += room_of_attributes(&place)?;
                if meta.is_dir() {
                    return below(folder, &name);
                }
                if meta.is_file() {
                    sum.bytes += meta.len();
                    sum.buckets += buckets_of(&place, &meta, bucket_len_bytes)?;
                }
                Ok(None)
            }),
        };
        let path = path.join(&name);
        if let Some((folder, left)) = below.at(&path)? {
            descent.descend(&name, folder, (0, left)).at(&path)?;
        }
    }
    Ok(sum)
}

/// Room in the inode table that the attributes of a file take: a page, at most, and less where others fit beside.
fn room_of_attributes(place: &Path) -> io::Result<u64> {
    let mut len = 0;
    for name in attributes_of(place)? {
        // What is not there any more, or nobody can read, is not carried.
        let value = rustix::fs::lgetxattr_query(place, &name).unwrap_or(0);
        len += if is_carried(name.as_bytes()) { name.len() + value } else { 0 };
    }
    Ok((2 * len as u64).min(BLOCK_LEN as u64))
}

/// The names of the attributes of a file, those that are not carried, too.
fn attributes_of(place: &Path) -> io::Result<Vec<OsString>> {
    let mut names = vec![0; 64 << 10];
    let len = match rustix::fs::llistxattr(place, &mut names[..]) {
        // A file system without attributes has none to carry, and what has gone meanwhile none any more.
        Err(Errno::OPNOTSUPP | Errno::NOENT | Errno::NOTDIR) => 0,
        listed => listed?,
    };
    let names = names[..len].split(|&b| b == 0).filter(|name| !name.is_empty());
    Ok(names.map(|name| OsStr::from_bytes(name).to_owned()).collect())
}

/// Buckets that the content of a file takes.
fn buckets_of(place: &Path, meta: &fs::Metadata, bucket_len: u64) -> io::Result<u64> {
    if meta.len() <= INLINE_LEN_MAX {
        return Ok(0);
    }
    if meta.blocks() * 512 >= meta.len() {
        return Ok(meta.len().div_ceil(bucket_len));
    }
    let Some(file) = open(place)? else { return Ok(0) };
    let (mut count, mut offset) = (0, 0);
    while let Some(data) = data_from(&file, offset, meta.len())? {
        // Whole buckets, so that none is counted twice.
        offset = data.end.next_multiple_of(bucket_len);
        count += offset / bucket_len - data.start / bucket_len;
    }
    Ok(count)
}

/// Whether something is not there, or not any more.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Opens a file; none if there is no file any more. What has come in its place since it was looked at is not
/// followed, and not waited for: it may lead to what whoever has put it there may not read.
fn open(place: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits().cast_signed());
    match options.open(place) {
        Ok(file) => Ok(Some(file).filter(|file| file.metadata().is_ok_and(|meta| meta.is_file()))),
        Err(error) if is_gone(&error) => Ok(None),
        // A link, or a socket.
        Err(error)
            if [Errno::LOOP, Errno::NXIO]
                .iter()
                .any(|e| Some(e.raw_os_error()) == error.raw_os_error()) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The first range of a file of `len` bytes, from `offset` on, that may be other than zeros. All of
/// it where the file system knows nothing of holes.
fn data_from(file: &File, offset: u64, len: u64) -> io::Result<Option<Range<u64>>> {
    use rustix::fs::{SeekFrom, seek};
    if offset >= len {
        return Ok(None);
    }
    let start = match seek(file, SeekFrom::Data(offset)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(offset..len)),
        Err(error) => return Err(error.into()),
    };
    let end = seek(file, SeekFrom::Hole(start))?;
    Ok((start < len).then(|| start..end.min(len)))
}

/// Copies all that a folder holds into the root of an image, and commits.
///
/// Owners, permissions, hard links, holes, links, special files and extended attributes come along;
/// those of `trusted.` and `security.` for root alone. Times do as far as the image keeps them: never
/// access times, which packing itself would change. What goes meanwhile is left out, and what is written to
/// while it is read is told.
///
/// # Errors
/// What failed, with the path; what came before it is in the image.
pub fn pack(hifs: &Hifs, folder: &Path, progress: &mut dyn FnMut(u64)) -> Outcome<Carried> {
    let mut packer = Packer { hifs, links: HashMap::new(), carried: Carried::default(), progress };
    packer.all(folder)?;
    hifs.commit().at(folder)?;
    Ok(packer.carried)
}

struct Packer<'a> {
    hifs: &'a Hifs,
    /// Nodes that may have further names, by device and inode, and how they were: the number may be given to
    /// another.
    links: HashMap<(u64, u64), (NodeId, State)>,
    carried: Carried,
    progress: &'a mut dyn FnMut(u64),
}

/// What is different when a file has been written to: its length, and when that was.
type State = (u64, Timestamp);

fn state(meta: &fs::Metadata) -> State {
    (meta.len(), mtime(meta))
}

/// What is known of a folder that is being packed.
struct Packing {
    meta: fs::Metadata,
    node: NodeId,
    /// Names that are still to be packed, the last one first.
    names: Vec<OsString>,
}

/// What was found under a name.
enum Found {
    Folder(Folder, Vec<OsString>),
    File(File),
    Link(OsString),
    Special,
}

impl Packer<'_> {
    /// All below a folder, and what is known of the folder itself.
    fn all(&mut self, folder: &Path) -> Outcome<()> {
        let top = Folder::at(folder).at(folder)?;
        let meta = fs::symlink_metadata(top.itself()).at(folder)?;
        let names = names(&top).at(folder)?;
        let known = Packing { meta, node: self.hifs.root(), names };
        let mut descent = Descent::from(folder, top, known).at(folder)?;
        while let Some((folder, path, known)) = descent.current() {
            if let Some(name) = known.names.pop() {
                let parent = known.node;
                // It is reached by way of the folder, and told of by its path.
                let (place, found) = (folder.child(&name), look(folder, &name));
                let path = path.join(&name);
                let Some(found) = found.at(&path)? else { continue };
                if let Some((folder, known)) = self.entry((&path, &place), parent, &name, found)? {
                    descent.descend(&name, folder, known).at(&path)?;
                }
            } else {
                let place = folder.itself();
                let path = path.to_owned();
                let Packing { meta, node, .. } = known;
                self.attributes((&path, &place), meta, *node)?;
                descent.leave().at(&path)?;
                self.carried.nodes += u64::from(descent.first().is_some());
            }
        }
        Ok(())
    }

    /// Packs what has a name; a folder is still to be.
    fn entry(
        &mut self,
        (path, place): (&Path, &Path),
        dir: NodeId,
        name: &OsStr,
        (meta, found): (fs::Metadata, Found),
    ) -> Outcome<Option<(Folder, Packing)>> {
        let key = (meta.dev(), meta.ino());
        if let Some((node, _)) = self.links.get(&key).filter(|(_, seen)| *seen == state(&meta)) {
            self.hifs.link(*node, dir, name, mtime(&meta)).at(path)?;
            // The new name has changed it.
            let ctime = Some(timestamp(meta.ctime(), meta.ctime_nsec()));
            self.hifs.change(*node, &Change { ctime, ..Change::default() }).at(path)?;
            return Ok(None);
        }
        let kind = kind_of(&meta);
        let target =
            if let Found::Link(target) = &found { target.clone() } else { OsString::new() };
        let new = NewNode {
            kind,
            perm: u16::try_from(meta.permissions().mode() & 0o7777).expect("12 bits"),
            uid: meta.uid(),
            gid: meta.gid(),
            rdev: match kind {
                FileType::CharDevice | FileType::BlockDevice => kernel_rdev(meta.rdev()),
                _ => 0,
            },
            target,
            now: mtime(&meta),
        };
        let (node, _) = self.hifs.create(dir, name, &new).at(path)?;
        match found {
            Found::Folder(folder, names) => {
                return Ok(Some((folder, Packing { meta, node, names })));
            }
            Found::File(file) => self.content(path, &file, &meta, node)?,
            Found::Link(_) | Found::Special => {}
        }
        if meta.nlink() > 1 {
            self.links.insert(key, (node, state(&meta)));
        }
        self.attributes((path, place), &meta, node)?;
        self.carried.nodes += 1;
        Ok(None)
    }

    fn content(
        &mut self,
        path: &Path,
        file: &File,
        meta: &fs::Metadata,
        node: NodeId,
    ) -> Outcome<()> {
        let size = meta.len();
        let before = self.carried.bytes;
        let mut buffer = AlignedBuf::new(CHUNK_LEN);
        let mut offset = 0;
        while let Some(data) = data_from(file, offset, size).at(path)? {
            offset = data.start;
            while offset < data.end {
                let wanted =
                    buffer.len().min(usize::try_from(data.end - offset).unwrap_or(CHUNK_LEN));
                let len = file.read_at(&mut buffer[..wanted], offset).at(path)?;
                if len == 0 {
                    // It has become shorter meanwhile.
                    offset = data.end;
                    break;
                }
                // Zeros are never stored, so writing them keeps holes.
                self.hifs.write(node, offset, &buffer[..len], Stamps::NONE).at(path)?;
                offset += len as u64;
                (self.progress)(before + offset);
            }
        }
        self.carried.bytes = before + size;
        (self.progress)(self.carried.bytes);
        self.hifs.change(node, &Change { size: Some(size), ..Change::default() }).at(path)?;
        if state(&file.metadata().at(path)?) != state(meta) {
            self.carried.changed.push(path.to_owned());
        }
        Ok(())
    }

    fn attributes(
        &mut self,
        (path, place): (&Path, &Path),
        meta: &fs::Metadata,
        node: NodeId,
    ) -> Outcome<()> {
        let (mut mode, mut together) = (meta.permissions().mode(), 0);
        for name in attributes_of(place).at(path)? {
            if !is_carried(name.as_bytes()) {
                self.carried.attributes_left_out += 1;
                if name == ACCESS_LIST {
                    mode = access_list::mode_without(place, mode).at(path)?;
                }
                continue;
            }
            let mut value = vec![0; 64 << 10];
            let len = match rustix::fs::lgetxattr(place, &name, &mut value[..]) {
                // The kernel reads what is no list of capabilities out to nobody: an empty one, say.
                Err(Errno::INVAL) => {
                    self.carried.attributes_left_out += 1;
                    continue;
                }
                // It has gone meanwhile.
                Err(Errno::NODATA | Errno::NOENT | Errno::NOTDIR) => continue,
                read => read.at(path)?,
            };
            together += xattr_len(name.as_bytes(), &value[..len]);
            if together > XATTRS_LEN_MAX {
                let text = format!(
                    "no image holds more than {XATTRS_LEN_MAX} bytes of extended attributes of a file"
                );
                return Err(tacita_vfs::Error::new(Kind::TooLarge, text)).at(path);
            }
            self.hifs.set_xattr(node, &name, &value[..len], XattrMode::Any).at(path)?;
        }
        let change = Change {
            perm: u16::try_from(mode & 0o7777).ok(),
            uid: Some(meta.uid()),
            gid: Some(meta.gid()),
            mtime: Some(mtime(meta)),
            ctime: Some(timestamp(meta.ctime(), meta.ctime_nsec())),
            user_times: true,
            ..Change::default()
        };
        self.hifs.change(node, &change).at(path)?;
        Ok(())
    }
}

/// The names in a folder, the last one first.
fn names(folder: &Folder) -> io::Result<Vec<OsString>> {
    let names = fs::read_dir(folder.itself())?.map(|entry| Ok(entry?.file_name()));
    let mut names = names.collect::<io::Result<Vec<OsString>>>()?;
    names.sort_by(|a, b| b.cmp(a));
    Ok(names)
}

/// A folder in another, and the names in it; none if there is no folder any more.
fn below(folder: &Folder, name: &OsStr) -> io::Result<Option<(Folder, Vec<OsString>)>> {
    let listed = folder.below(name).and_then(|folder| {
        let names = names(&folder)?;
        Ok((folder, names))
    });
    match listed {
        Err(error) if is_gone(&error) => Ok(None),
        listed => listed.map(Some),
    }
}

/// What a name leads to; none if it has gone. Something else may come in its place between two looks: then the
/// next look finds that.
fn look(folder: &Folder, name: &OsStr) -> io::Result<Option<(fs::Metadata, Found)>> {
    let place = &folder.child(name);
    for _ in 0..LOOKS_MAX {
        let meta = match fs::symlink_metadata(place) {
            Err(error) if is_gone(&error) => return Ok(None),
            meta => meta?,
        };
        let found = match kind_of(&meta) {
            FileType::Directory => match below(folder, name)? {
                Some((folder, names)) => {
                    let meta = fs::symlink_metadata(folder.itself())?;
                    Some((meta, Found::Folder(folder, names)))
                }
                None => None,
            },
            FileType::File => match open(place)? {
                Some(file) => Some((file.metadata()?, Found::File(file))),
                None => None,
            },
            FileType::Symlink => match fs::read_link(place) {
                Err(error) if is_gone(&error) || error.kind() == io::ErrorKind::InvalidInput => {
                    None
                }
                target => Some((meta, Found::Link(target?.into_os_string()))),
            },
            _ => Some((meta, Found::Special)),
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Err(io::Error::other("it became something else again and again"))
}

/// Whether this caller carries an attribute into an image and out of it.
fn is_carried(name: &[u8]) -> bool {
    is_xattr_name(name) && (name.starts_with(b"user.") || rustix::process::geteuid().is_root())
}

fn timestamp(secs: i64, nanos: i64) -> Timestamp {
    Timestamp { secs, nanos: u32::try_from(nanos).unwrap_or(0) }
}

fn mtime(meta: &fs::Metadata) -> Timestamp {
    timestamp(meta.mtime(), meta.mtime_nsec())
}

fn kind_of(meta: &fs::Metadata) -> FileType {
    let kind = meta.file_type();
    if kind.is_dir() {
        FileType::Directory
    } else if kind.is_symlink() {
        FileType::Symlink
    } else if kind.is_fifo() {
        FileType::Fifo
    } else if kind.is_socket() {
        FileType::Socket
    } else if kind.is_char_device() {
        FileType::CharDevice
    } else if kind.is_block_device() {
        FileType::BlockDevice
    } else {
        FileType::File
    }
}

/// The kernel's 32-bit encoding of a device number, as FUSE uses it.
fn kernel_rdev(dev: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As when somebody puts them there between a look at a file and opening it.
    #[test]
    fn what_has_come_in_the_place_of_a_file_is_not_followed_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "content").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, mode, 0)
            .unwrap();
        for name in ["link", "pipe", "missing", "file/missing"] {
            assert!(open(&at(name)).unwrap().is_none(), "{name}");
        }
        assert!(open(&at("file")).unwrap().is_some());
    }
}
