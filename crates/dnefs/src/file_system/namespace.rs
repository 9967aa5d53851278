//! Names: each change is one group of records, which counts as a whole after a power cut.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, MutexGuard};

use tacita_dnefs_format::record::{
    Dentry, IndexKey, Inode, Kind as RecordKind, Removal, SENSITIVE,
};
use tacita_vfs::{
    Attr, Cookie, Entry, FileType, Kind, Link, NewNode, NodeId, Result, Target, Timestamp,
};

use super::nodes::{mode_of, time, type_of};
use crate::content::removal_of;
use crate::dnefs::Dnefs;
use crate::entries::{self, Named, Sought};
use crate::error::damaged;
use crate::inodes::{Cell, Node, missing};
use crate::store::Write;

/// Most names of a node.
const NLINK_MAX: u32 = u32::MAX - 8;
/// Cookies 0 to 2 are taken.
const COOKIE_START: u64 = 3;

/// A dentry as a record.
fn dentry(at: IndexKey, ino: u64, mode: u32, name: &OsStr) -> Write<'static> {
    let dentry = Dentry { ino, file_type: mode & 0o170_000, name: name.as_bytes().to_vec() };
    Write { kind: RecordKind::Dentry, at, payload: dentry.encode().into() }
}

/// Inodes that a change of names concerns, each once.
struct Concerned(Vec<Arc<Cell>>);

impl Concerned {
    /// All of them, locked in the order of their numbers.
    fn lock(&self) -> Vec<MutexGuard<'_, Node>> {
        self.0.iter().map(|cell| cell.lock()).collect()
    }
}

/// The one with this number.
fn of<'a, 'b>(nodes: &'a mut [MutexGuard<'b, Node>], ino: NodeId) -> &'a mut MutexGuard<'b, Node> {
    nodes.iter_mut().find(|node| node.ino == ino.0).expect("it is concerned")
}

impl Dnefs {
    fn seek_name(&self, dir: NodeId, name: &OsStr) -> Result<Sought> {
        let name = name.as_bytes();
        Ok(entries::seek(self.store(), self.name_hash(), Named::Dentry, dir.0, name)?)
    }

    pub(super) fn find(&self, dir: NodeId, name: &OsStr) -> Result<Option<(IndexKey, Dentry)>> {
        let Some((at, payload)) = self.seek_name(dir, name)?.found else { return Ok(None) };
        let dentry = Dentry::decode(&payload).map_err(damaged("a name"));
        Ok(Some((at, dentry?)))
    }

    fn concerned(&self, nodes: &[NodeId]) -> Result<Concerned> {
        let mut nodes = nodes.to_vec();
        nodes.sort_unstable();
        nodes.dedup();
        let cells = nodes.into_iter().map(|node| self.cell(node));
        Ok(Concerned(cells.collect::<Result<_>>()?))
    }

    /// Changes inodes in memory, writes what the change wants written with those that it marks as
    /// dirty for it, and takes the change back if that fails.
    fn change_names(
        &self,
        nodes: &mut [MutexGuard<'_, Node>],
        change: impl FnOnce(&mut [MutexGuard<'_, Node>], &mut Group) -> Result<()>,
    ) -> Result<()> {
        let before: Vec<_> = nodes.iter().map(|node| (node.inode.clone(), node.is_dirty)).collect();
        let mut group = Group::default();
        let done = change(nodes, &mut group).and_then(|()| {
            for ino in &group.inodes {
                group.writes.push(of(nodes, *ino).record());
            }
            if group.removal != Removal::default() {
                group.writes.push(removal_of(0, &group.removal));
            }
            Ok(self.store().write_group(&group.writes)?)
        });
        if done.is_err() {
            for (node, (inode, is_dirty)) in nodes.iter_mut().zip(before) {
                node.inode = inode;
                node.is_dirty = is_dirty;
            }
            return done;
        }
        for ino in group.inodes {
            of(nodes, ino).is_dirty = false;
        }
        self.after_deletion();
        Ok(())
    }

    pub(super) fn create_node(
        &self,
        dir: NodeId,
        name: &OsStr,
        new: &NewNode,
    ) -> Result<(NodeId, Attr)> {
        let sought = self.seek_name(dir, name)?;
        if sought.found.is_some() {
            return Err(Kind::Exists.into());
        }
        let at = sought.place()?;
        let is_dir = new.kind == FileType::Directory;
        let now = time(new.now);
        let concerned = self.concerned(&[dir])?;
        let mut nodes = concerned.lock();
        let inode = Inode {
            mode: mode_of(new.kind) | u32::from(new.perm),
            nlink: if is_dir { 2 } else { 1 },
            uid: new.uid,
            gid: new.gid,
            rdev: new.rdev,
            flags: of(&mut nodes, dir).inode.flags & SENSITIVE,
            size: 0,
            parent: if is_dir { dir.0 } else { 0 },
            atime: now,
            mtime: now,
            ctime: now,
            target: new.target.as_bytes().to_vec(),
        };
        let ino = self.store().new_ino();
        let node = Node::new(ino, inode);
        self.change_names(&mut nodes, |nodes, group| {
            stamp_dir(of(nodes, dir), new.now);
            group.writes.push(node.record());
            group.writes.push(dentry(at, ino, node.inode.mode, name));
            if is_dir {
                add_links(of(nodes, dir), 1)?;
                group.inodes.push(dir);
            }
            Ok(())
        })?;
        let attr = self.attr_of(&node);
        self.inodes().add(ino, node.inode);
        Ok((NodeId(ino), attr))
    }

    pub(super) fn link_node(
        &self,
        node: NodeId,
        dir: NodeId,
        name: &OsStr,
        now: Timestamp,
    ) -> Result<Attr> {
        let sought = self.seek_name(dir, name)?;
        if sought.found.is_some() {
            return Err(Kind::Exists.into());
        }
        let at = sought.place()?;
        let concerned = self.concerned(&[node, dir])?;
        let mut nodes = concerned.lock();
        self.change_names(&mut nodes, |nodes, group| {
            stamp_dir(of(nodes, dir), now);
            let linked = of(nodes, node);
            add_links(linked, 1)?;
            linked.inode.ctime = time(now);
            group.writes.push(dentry(at, node.0, linked.inode.mode, name));
            group.inodes.push(node);
            Ok(())
        })?;
        Ok(self.attr_of(of(&mut nodes, node)))
    }

    pub(super) fn remove_name(&self, link: Link<'_>, now: Timestamp) -> Result<u32> {
        let (at, found) = self.find(link.dir, link.name)?.ok_or(Kind::NotFound)?;
        if found.ino != link.node.0 {
            return Err(Kind::NotFound.into());
        }
        let concerned = self.concerned(&[link.dir, link.node])?;
        let mut nodes = concerned.lock();
        self.change_names(&mut nodes, |nodes, group| {
            group.removal.removed.push(at);
            stamp_dir(of(nodes, link.dir), now);
            lose_name(nodes, link.dir, link.node, now, group)
        })?;
        Ok(of(&mut nodes, link.node).inode.nlink)
    }

    pub(super) fn rename_name(
        &self,
        from: Link<'_>,
        to: Target<'_>,
        now: Timestamp,
    ) -> Result<u32> {
        let (old, found) = self.find(from.dir, from.name)?.ok_or(Kind::NotFound)?;
        if found.ino != from.node.0 {
            return Err(Kind::NotFound.into());
        }
        let sought = self.seek_name(to.dir, to.name)?;
        let new = sought.place()?;
        if old == new {
            return Ok(0);
        }
        let mut all = vec![from.dir, to.dir, from.node];
        all.extend(to.node);
        let concerned = self.concerned(&all)?;
        let mut nodes = concerned.lock();
        self.change_names(&mut nodes, |nodes, group| {
            stamp_dir(of(nodes, from.dir), now);
            stamp_dir(of(nodes, to.dir), now);
            if let Some(replaced) = to.node.filter(|node| *node != from.node) {
                lose_name(nodes, to.dir, replaced, now, group)?;
            }
            let moved = of(nodes, from.node);
            moved.inode.ctime = time(now);
            moved.is_dirty = true;
            group.writes.push(dentry(new, from.node.0, moved.inode.mode, to.name));
            group.removal.removed.push(old);
            move_dir(nodes, from.node, from.dir, to.dir, group)
        })?;
        Ok(to.node.map_or(0, |replaced| of(&mut nodes, replaced).inode.nlink))
    }

    pub(super) fn exchange_names(
        &self,
        from: Link<'_>,
        to: Target<'_>,
        now: Timestamp,
    ) -> Result<u32> {
        let other = to.node.ok_or(Kind::NotFound)?;
        let (one, _) = self.find(from.dir, from.name)?.ok_or(Kind::NotFound)?;
        let (two, _) = self.find(to.dir, to.name)?.ok_or(Kind::NotFound)?;
        let concerned = self.concerned(&[from.dir, to.dir, from.node, other])?;
        let mut nodes = concerned.lock();
        self.change_names(&mut nodes, |nodes, group| {
            stamp_dir(of(nodes, from.dir), now);
            stamp_dir(of(nodes, to.dir), now);
            for (at, node, name) in [(one, other, from.name), (two, from.node, to.name)] {
                let node = of(nodes, node);
                node.inode.ctime = time(now);
                node.is_dirty = true;
                group.writes.push(dentry(at, node.ino, node.inode.mode, name));
            }
            move_dir(nodes, from.node, from.dir, to.dir, group)?;
            move_dir(nodes, other, to.dir, from.dir, group)
        })?;
        Ok(0)
    }

    pub(super) fn list_entries(
        &self,
        dir: NodeId,
        from: Cookie,
        each: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        if type_of(self.cell(dir)?.lock().inode.mode)? != FileType::Directory {
            return Err(Kind::NotDirectory.into());
        }
        let mut next = from.checked_sub(COOKIE_START).map_or(0, |place| place + 1);
        loop {
            // A few at a time, for nobody is to be called while the volume is being read.
            let mut found = Vec::with_capacity(LISTED);
            let most = self.store().layout.leb_len_bytes as usize;
            let all = IndexKey::dentry(dir.0, next)..IndexKey::xattr(dir.0, 0);
            let listed = self.store().list(all.clone(), LISTED);
            let Some(last) = listed.last() else { return Ok(()) };
            let end = IndexKey { sub: last.sub + 1, ..*last };
            self.store().read(all.start..end, |at, opened| {
                found.push((at, Dentry::decode(&opened.payload(most)?)?));
                Ok(())
            })?;
            for (at, dentry) in &found {
                let place = entries::place_of(*at).ok_or(Kind::Corrupt)?;
                let entry = Entry {
                    name: OsStr::from_bytes(&dentry.name),
                    node: NodeId(dentry.ino),
                    ino: dentry.ino,
                    kind: type_of(dentry.file_type)?,
                    attr: None,
                    cookie: place + COOKIE_START,
                };
                if !each(entry) {
                    return Ok(());
                }
            }
            next = entries::place_of(*last).ok_or(Kind::Corrupt)? + 1;
        }
    }
}

/// Entries that are read in one go.
const LISTED: usize = 64;

/// What a change of names writes besides the inodes it concerns.
#[derive(Default)]
struct Group {
    writes: Vec<Write<'static>>,
    inodes: Vec<NodeId>,
    removal: Removal,
}

fn stamp_dir(dir: &mut Node, now: Timestamp) {
    (dir.inode.mtime, dir.inode.ctime) = (time(now), time(now));
    dir.is_dirty = true;
}

fn add_links(node: &mut Node, count: u32) -> Result<()> {
    node.inode.nlink = node
        .inode
        .nlink
        .checked_add(count)
        .filter(|n| *n <= NLINK_MAX)
        .ok_or(Kind::TooManyLinks)?;
    Ok(())
}

/// `node` loses a name in `dir`; a directory, its only one.
fn lose_name(
    nodes: &mut [MutexGuard<'_, Node>],
    dir: NodeId,
    node: NodeId,
    now: Timestamp,
    group: &mut Group,
) -> Result<()> {
    let lost = of(nodes, node);
    lost.inode.ctime = time(now);
    let is_dir = type_of(lost.inode.mode)? == FileType::Directory;
    lost.inode.nlink = if is_dir { 0 } else { lost.inode.nlink.saturating_sub(1) };
    if lost.inode.nlink == 0 {
        group.removal.orphans.push(node.0);
    } else {
        push_once(&mut group.inodes, node);
    }
    if is_dir {
        let dir_node = of(nodes, dir);
        dir_node.inode.nlink = dir_node.inode.nlink.checked_sub(1).ok_or_else(|| missing(dir.0))?;
        push_once(&mut group.inodes, dir);
    }
    Ok(())
}

/// If `node` is a directory, it is in `to` now.
fn move_dir(
    nodes: &mut [MutexGuard<'_, Node>],
    node: NodeId,
    from: NodeId,
    to: NodeId,
    group: &mut Group,
) -> Result<()> {
    if from == to || type_of(of(nodes, node).inode.mode)? != FileType::Directory {
        return Ok(());
    }
    of(nodes, node).inode.parent = to.0;
    let left = of(nodes, from);
    left.inode.nlink = left.inode.nlink.checked_sub(1).ok_or_else(|| missing(from.0))?;
    add_links(of(nodes, to), 1)?;
    for ino in [node, from, to] {
        push_once(&mut group.inodes, ino);
    }
    Ok(())
}

fn push_once(inodes: &mut Vec<NodeId>, ino: NodeId) {
    if !inodes.contains(&ino) {
        inodes.push(ino);
    }
}
