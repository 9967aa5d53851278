//! What changes names: made, given, taken away, moved. Each is one step over a view.

use tacita_vfs::{Attr, Exchange, FileType, Kind, NewNode, NodeId, Timestamp};

use crate::content;
use crate::directory::Entry;
use crate::ids::{BLOCK_LEN, Id, MountId};
use crate::inode::{BODY_LEN, Form, Inode, Ranges};
use crate::links::{self, directory};
use crate::view::{Step, View};

/// Names that a node can have.
const LINKS_MAX: u32 = 65_000;

/// Directories above one another, at most.
const DEPTH_MAX: usize = 1 << 16;

/// What is random in a new node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fresh {
    pub(crate) inode: Id,
    pub(crate) content: Id,
}

/// What `stat` shows.
pub(crate) fn attr(inode: &Inode) -> Attr {
    let blocks = match inode.kind {
        FileType::Directory => inode.buckets + 1,
        _ if inode.form == Form::Inline => 1,
        _ => inode.ranges.count() + 1,
    };
    Attr {
        ino: Inode::number(&inode.id),
        kind: inode.kind,
        perm: inode.perm,
        nlink: inode.nlink,
        uid: inode.uid,
        gid: inode.gid,
        rdev: inode.rdev,
        size: inode.size,
        blocks: blocks.saturating_mul(BLOCK_LEN as u64 / 512),
        block_len_bytes: u32::try_from(BLOCK_LEN).expect("blocks are short"),
        atime: inode.atime,
        mtime: inode.mtime,
        ctime: inode.ctime,
    }
}

/// A directory without entries.
pub(crate) fn empty_directory(fresh: Fresh, parent: Id, new: &NewNode) -> Inode {
    Inode { kind: FileType::Directory, nlink: 2, ..node(fresh, parent, new) }
}

fn node(fresh: Fresh, parent: Id, new: &NewNode) -> Inode {
    Inode {
        id: fresh.inode,
        kind: new.kind,
        form: Form::Inline,
        perm: new.perm,
        nlink: 1,
        uid: new.uid,
        gid: new.gid,
        rdev: new.rdev,
        flags: 0,
        size: 0,
        atime: new.now,
        mtime: new.now,
        ctime: new.now,
        content: fresh.content,
        parent,
        entries: 0,
        buckets: 0,
        ranges: Ranges::default(),
        xattrs: Vec::new(),
        body: Vec::new(),
    }
}

fn touch(dir: &mut Inode, now: Timestamp) {
    dir.mtime = now;
    dir.ctime = now;
}

/// The directory, which still has a name.
fn living(view: &mut View<'_>, dir: &Id) -> Step<Inode> {
    let dir = directory(view, dir)?;
    if dir.nlink == 0 { Err(Kind::NotFound.into()) } else { Ok(dir) }
}

/// Finds a name.
pub(crate) fn lookup(view: &mut View<'_>, dir: &Id, name: &[u8]) -> Step<Inode> {
    let dir = directory(view, dir)?;
    let entry = links::find(view, &dir, name)?.ok_or(Kind::NotFound)?;
    view.inode(&entry.inode)
}

/// Makes a node.
pub(crate) fn create(
    view: &mut View<'_>,
    dir: &Id,
    name: &[u8],
    new: &NewNode,
    fresh: Fresh,
) -> Step<Inode> {
    let mut dir = living(view, dir)?;
    let parent = dir.id;
    let mut inode = match new.kind {
        FileType::Directory => empty_directory(fresh, parent, new),
        _ => node(fresh, parent, new),
    };
    if new.kind == FileType::Symlink {
        content::set_target(view, &mut inode, &new.target);
    }
    let entry = Entry { name: name.to_vec(), kind: new.kind, inode: inode.id };
    links::insert(view, &mut dir, entry)?;
    if new.kind == FileType::Directory {
        dir.nlink += 1;
    }
    touch(&mut dir, new.now);
    view.put_inode(&dir);
    view.put_inode(&inode);
    Ok(inode)
}

/// Gives a node another name.
pub(crate) fn link(
    view: &mut View<'_>,
    node: &Id,
    dir: &Id,
    name: &[u8],
    now: Timestamp,
) -> Step<Inode> {
    let mut dir = living(view, dir)?;
    let mut inode = view.inode(node)?;
    match inode.nlink {
        0 => return Err(Kind::NotFound.into()),
        LINKS_MAX.. => return Err(Kind::TooManyLinks.into()),
        _ => inode.nlink += 1,
    }
    inode.ctime = now;
    links::insert(view, &mut dir, Entry { name: name.to_vec(), kind: inode.kind, inode: *node })?;
    touch(&mut dir, now);
    view.put_inode(&dir);
    view.put_inode(&inode);
    Ok(inode)
}

/// Takes a name away, which stands for `node`. How many the node has left.
pub(crate) fn remove(
    view: &mut View<'_>,
    mount: &MountId,
    (dir, name): (&Id, &[u8]),
    node: &Id,
    now: Timestamp,
) -> Step<u32> {
    let mut dir = directory(view, dir)?;
    let entry = links::find(view, &dir, name)?.ok_or(Kind::NotFound)?;
    if entry.inode != *node {
        // Another mount was quicker.
        return Err(Kind::Stale.into());
    }
    links::remove(view, &mut dir, name)?;
    if entry.kind == FileType::Directory {
        dir.nlink -= 1;
    }
    touch(&mut dir, now);
    view.put_inode(&dir);
    lose_name(view, mount, node, now)
}

/// A node has lost a name. Without any it is buried.
fn lose_name(view: &mut View<'_>, mount: &MountId, node: &Id, now: Timestamp) -> Step<u32> {
    let mut inode = view.inode(node)?;
    inode.ctime = now;
    if inode.kind == FileType::Directory {
        if inode.entries > 0 {
            return Err(Kind::NotEmpty.into());
        }
        inode.nlink = 0;
    } else {
        inode.nlink = inode.nlink.saturating_sub(1);
    }
    view.put_inode(&inode);
    if inode.nlink == 0 {
        bury(view, mount, &inode)?;
    }
    Ok(inode.nlink)
}

/// What an inode without a name is called among its like: so it is known whose it is.
pub(crate) fn grave(mount: &MountId, inode: &Id) -> Vec<u8> {
    let mut name = Vec::with_capacity(96);
    for byte in mount.iter().chain(inode) {
        let digits = [byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]);
        name.extend(digits);
    }
    name
}

/// An inode that has no name is remembered until its content is freed.
pub(crate) fn bury(view: &mut View<'_>, mount: &MountId, inode: &Inode) -> Step<()> {
    let mut graveyard = directory(view, &view.ids.graveyard())?;
    let name = grave(mount, &inode.id);
    links::insert(view, &mut graveyard, Entry { name, kind: inode.kind, inode: inode.id })?;
    view.put_inode(&graveyard);
    Ok(())
}

/// What was buried is gone, and with it its inode.
pub(crate) fn forget(view: &mut View<'_>, name: &[u8], inode: &Id) -> Step<()> {
    let mut graveyard = directory(view, &view.ids.graveyard())?;
    links::remove(view, &mut graveyard, name)?;
    view.put_inode(&graveyard);
    view.drop_inode(inode);
    Ok(())
}

/// A rename.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Move<'a> {
    pub(crate) from: (&'a Id, &'a [u8]),
    pub(crate) node: &'a Id,
    pub(crate) to: (&'a Id, &'a [u8]),
    pub(crate) other: Option<&'a Id>,
    pub(crate) exchange: Exchange,
    pub(crate) now: Timestamp,
}

/// Moves a name. How many the replaced node has left; 0 if none was replaced.
pub(crate) fn rename(view: &mut View<'_>, mount: &MountId, what: Move<'_>) -> Step<u32> {
    let source_dir = directory(view, what.from.0)?;
    let target_dir = living(view, what.to.0)?;
    let source = links::find(view, &source_dir, what.from.1)?.ok_or(Kind::NotFound)?;
    let target = links::find(view, &target_dir, what.to.1)?;
    if source.inode != *what.node || target.as_ref().map(|entry| &entry.inode) != what.other {
        // Another mount was quicker.
        return Err(Kind::Stale.into());
    }
    let is_across = source_dir.id != target_dir.id;
    if is_across {
        check_apart(view, &source, target_dir.id)?;
        if let (Exchange::Yes, Some(target)) = (what.exchange, &target) {
            check_apart(view, target, source_dir.id)?;
        }
    }
    match what.exchange {
        Exchange::No => replace_name(view, mount, &what, &source, target.as_ref()),
        Exchange::Yes => {
            let target = target.ok_or(Kind::NotFound)?;
            exchange_names(view, &what, &source, &target)?;
            Ok(0)
        }
    }
}

fn replace_name(
    view: &mut View<'_>,
    mount: &MountId,
    what: &Move<'_>,
    source: &Entry,
    target: Option<&Entry>,
) -> Step<u32> {
    let mut left = 0;
    let is_dir = source.kind == FileType::Directory;
    let mut from = directory(view, what.from.0)?;
    links::remove(view, &mut from, what.from.1)?;
    from.nlink -= u32::from(is_dir);
    touch(&mut from, what.now);
    view.put_inode(&from);
    let mut to = directory(view, what.to.0)?;
    let entry = Entry { name: what.to.1.to_vec(), ..source.clone() };
    match target {
        Some(target) => {
            match (is_dir, target.kind == FileType::Directory) {
                (true, false) => return Err(Kind::NotDirectory.into()),
                (false, true) => return Err(Kind::IsDirectory.into()),
                _ => {}
            }
            links::replace(view, &mut to, entry)?;
            to.nlink -= u32::from(is_dir);
        }
        None => links::insert(view, &mut to, entry)?,
    }
    to.nlink += u32::from(is_dir);
    touch(&mut to, what.now);
    view.put_inode(&to);
    if let Some(target) = target {
        left = lose_name(view, mount, &target.inode, what.now)?;
    }
    moved(view, &source.inode, to.id, what.now)?;
    Ok(left)
}

fn exchange_names(
    view: &mut View<'_>,
    what: &Move<'_>,
    source: &Entry,
    target: &Entry,
) -> Step<()> {
    let sides = [(what.from, target, source), (what.to, source, target)];
    for ((dir, name), comes, goes) in sides {
        let mut dir = directory(view, dir)?;
        links::replace(view, &mut dir, Entry { name: name.to_vec(), ..comes.clone() })?;
        dir.nlink += u32::from(comes.kind == FileType::Directory);
        dir.nlink -= u32::from(goes.kind == FileType::Directory);
        touch(&mut dir, what.now);
        view.put_inode(&dir);
        moved(view, &comes.inode, dir.id, what.now)?;
    }
    Ok(())
}

fn moved(view: &mut View<'_>, node: &Id, dir: Id, now: Timestamp) -> Step<()> {
    let mut inode = view.inode(node)?;
    inode.ctime = now;
    if inode.kind == FileType::Directory {
        inode.parent = dir;
    }
    view.put_inode(&inode);
    Ok(())
}

/// Refuses to move a directory beneath itself.
fn check_apart(view: &mut View<'_>, moving: &Entry, to: Id) -> Step<()> {
    if moving.kind != FileType::Directory {
        return Ok(());
    }
    let mut at = to;
    for _ in 0..DEPTH_MAX {
        if at == moving.inode {
            return Err(Kind::Invalid.into());
        }
        if at == view.ids.root() {
            return Ok(());
        }
        at = view.inode(&at)?.parent;
    }
    Err(Kind::Corrupt.into())
}

/// The number of a node that the kernel has not heard of.
pub(crate) fn node_id(id: &Id) -> NodeId {
    NodeId(Inode::number(id))
}

const _: () = assert!(BODY_LEN > 2048, "most links fit into their inodes");
