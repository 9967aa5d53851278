//! Making names, taking them away, and moving them.

use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, RenameFlags, Statx, Uid, XattrFlags, chmodat, chownat, fstat,
    linkat, mkdirat, mknodat, openat, renameat, renameat_with, symlinkat, unlinkat,
};
use rustix::io::Errno;
use tacita_vfs::credentials::act_for_oneself;
use tacita_vfs::{Attr, Exchange, FileType, Kind, Link, NewNode, NodeId, Result, Target};

use super::access_lists::Bits;
use super::conversions::{device, file_type, lower_type, refused};
use super::table::Node;
use super::{Overlay, opaque};
use crate::descriptors::Folder;
use crate::faults::{Fault, Step, planted, step};
use crate::lower_fs::Names;
use crate::method::Method;
use crate::policy::POLICY_ATTRIBUTE;
use crate::purger::{Job, Losing};
use crate::spool::Seq;
use crate::verdict::Content;
use crate::{obstacle, xattrs};

/// What nobody but us may use until it has its owner.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

impl Overlay {
    /// Makes a node.
    pub(super) fn make(&self, dir: NodeId, name: &OsStr, new: &NewNode) -> Result<(NodeId, Attr)> {
        if new.kind == FileType::File {
            let (node, attr, _) = self.make_file(dir, name, new)?;
            return Ok((node.id, attr));
        }
        let dir = self.folder_for(dir, name)?;
        let fd = dir.fd().map_err(refused)?;
        let lower = &self.purger.lower;
        let bits = self.bits_in(&dir, new).map_err(refused)?;
        match new.kind {
            FileType::Directory => {
                mkdirat(fd, name, bits.made_with(Mode::RWXU)).map_err(refused)?;
            }
            FileType::Symlink
                if self.table.has_opaque && opaque::leaves(lower, new.target.len()) =>
            {
                self.make_opaque(&dir, name, &new.target)?;
            }
            FileType::Symlink => {
                symlinkat(new.target.as_os_str(), fd, name).map_err(refused)?;
            }
            kind => {
                let mode = bits.made_with(PRIVATE);
                mknodat(fd, name, lower_type(kind), mode, device(new.rdev)).map_err(refused)?;
            }
        }
        let dressed = self.table.find(&dir, name).and_then(|(node, stat)| {
            let stat = dress(&node, &xattrs::path_of(&node.fd()?), stat, (new, bits))?;
            if new.kind == FileType::Directory {
                hand_down(&dir, &node);
            }
            Ok((node.id, self.shown(&node, &stat)))
        });
        dressed.map_err(|errno| unmake(&dir, name, new.kind, errno))
    }

    /// Makes a regular file, which is returned open for reading and writing.
    pub(super) fn make_file(
        &self,
        dir: NodeId,
        name: &OsStr,
        new: &NewNode,
    ) -> Result<(Arc<Node>, Attr, File)> {
        let dir = self.folder_for(dir, name)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let bits = self.bits_in(&dir, new).map_err(refused)?;
        let ours = (new.uid, new.gid) == self.ids;
        let private = if ours { Mode::from_raw_mode(new.perm.into()) } else { PRIVATE };
        let mode = bits.made_with(private);
        let opened = dir.fd().and_then(|dir| openat(dir, name, flags, mode));
        let file = opened.map(File::from).map_err(refused)?;
        let dressed = self.table.find(&dir, name).and_then(|(node, stat)| {
            if fstat(&file)?.st_ino != stat.stx_ino {
                // Somebody else works in the lower folder.
                return Err(Errno::STALE);
            }
            let stat = dress(&node, &xattrs::path_of(&file), stat, (new, bits))?;
            node.has_no_policy();
            let attr = self.shown(&node, &stat);
            Ok((node, attr))
        });
        let (node, attr) = dressed.map_err(|errno| unmake(&dir, name, FileType::File, errno))?;
        Ok((node, attr, file))
    }

    /// The folder that a new name is put into.
    fn folder_for(&self, dir: NodeId, name: &OsStr) -> Result<Arc<Node>> {
        if self.is_hidden(dir, name) {
            return Err(tacita_vfs::Error::new(Kind::NotPermitted, "the name of the spool"));
        }
        self.table.get(dir)
    }

    /// Gives a node another name.
    pub(super) fn add_link(&self, node: NodeId, dir: NodeId, name: &OsStr) -> Result<Attr> {
        let (node, dir) = (self.living(node)?, self.folder_for(dir, name)?);
        let (fd, to) = (node.fd().map_err(refused)?, dir.fd().map_err(refused)?);
        let path = xattrs::path_of(&fd);
        linkat(CWD, &*path, to, name, AtFlags::SYMLINK_FOLLOW).map_err(refused)?;
        node.set_place(dir.id, name);
        let stat = node.stat().map_err(refused)?;
        Ok(self.shown(&node, &stat))
    }

    /// Takes a name away. A file that loses its last one goes into the spool.
    /// Returns how many names are left.
    pub(super) fn take_away(&self, link: Link<'_>) -> Result<u32> {
        let (dir, name) = (self.table.get(link.dir)?, link.name);
        let node = self.table.get(link.node)?;
        let stat = node.stat().map_err(refused)?;
        let left = names_left(&node, &stat);
        let Some(method) = self.decide(&dir, name, &node, stat.stx_size) else {
            self.note_lost_link(&dir, &stat);
            take_away_plainly(&dir, name, &node)?;
            return Ok(left);
        };
        let losing = self.about_to_lose(&dir);
        let mut unopened = None;
        let from = dir.fd().map_err(refused)?;
        // Open until it is known whether it has a name left.
        let _open = node.fd().map_err(refused)?;
        match node.lower_kind() {
            FileType::Directory if !planted(Fault::DirectoryUnhooked) => {
                let seq = self.purger.spool.next();
                // The rename below replaces nothing, for no name in the spool is used twice.
                renameat(&from, name, self.purger.spool.dir(), seq.name().as_str())
                    .map_err(|errno| self.kept((&dir, &stat), &method, errno))?;
                node.state().nameless = true;
                node.stays_open();
                self.purger.add_folder(seq);
            }
            FileType::File if stat.stx_nlink <= 1 && !planted(Fault::UnlinkUnhooked) => {
                let seq = self.purger.spool.next();
                let spool = self.purger.spool.dir();
                self.with_room(|| renameat(&from, name, spool, seq.name().as_str()))
                    .map_err(|errno| self.kept((&dir, &stat), &method, errno))?;
                step(Step::Spooled);
                let lost = (dir.folder(), name.to_owned());
                await_purge(&node, &stat, (seq, method), (vec![dir.folder()], lost, true));
            }
            kind if has_values(kind, &node, &stat) => {
                self.count_link(&node, &stat);
                let seq = self.purger.spool.next();
                let spool = self.purger.spool.dir();
                self.with_room(|| renameat(&from, name, spool, seq.name().as_str()))
                    .map_err(|errno| self.kept((&dir, &stat), &method, errno))?;
                unopened = Some((seq, method));
            }
            kind => {
                self.count_link(&node, &stat);
                self.note_lost_link(&dir, &stat);
                let flags = match kind {
                    FileType::Directory => AtFlags::REMOVEDIR,
                    _ => AtFlags::empty(),
                };
                if planted(Fault::DirectoryUnhooked) {
                    self.purger.untouch(node.id);
                }
                unlinkat(&from, name, flags).map_err(refused)?;
            }
        }
        self.name_is_gone(&dir, name, losing);
        if let Some((seq, method)) = unopened {
            self.purge_unopened(seq, &(dir.folder(), name.to_owned()), &method);
        }
        Ok(left)
    }

    /// Purges the attributes of what is in the spool and is never opened.
    fn purge_unopened(&self, seq: Seq, lost: &(Folder, OsString), method: &Method) {
        match act_for_oneself() {
            Ok(_acting) => self.purger.purge_unopened(seq, Some(lost), method),
            Err(e) => log::warn!("attributes are left for the next mount: {e}"),
        }
    }

    /// Does something that needs room for a name in the spool. On a full file system what waits
    /// there is purged first: deleting is what one does then.
    fn with_room<T>(&self, act: impl Fn() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
        let _acting = act_for_oneself().map_err(|_| Errno::PERM)?;
        match act() {
            Err(Errno::NOSPC | Errno::DQUOT) => {
                if let Err(e) = self.purger.drain() {
                    log::warn!("the spool cannot be emptied: {e}");
                }
                act()
            }
            done => done,
        }
    }

    /// A folder is about to lose a name. That never fails: at worst nobody knows of it after a crash.
    fn about_to_lose(&self, dir: &Node) -> Losing<'_> {
        self.with_room(|| self.purger.about_to_lose(&dir.folder())).unwrap_or_else(|e| {
            log::debug!("a folder is not recorded: {e}");
            self.purger.lose_unrecorded()
        })
    }

    /// A name has left a folder.
    fn name_is_gone(&self, dir: &Arc<Node>, name: &OsStr, losing: Losing<'_>) {
        if self.purger.lower.names == Names::Covered {
            // The names of the folder are locked above, so nobody sees them.
            match dir.fd() {
                Ok(dir) => crate::names::cover(&self.purger.lower, dir, name.len()),
                Err(e) => log::warn!("a name is not covered: {e}"),
            }
        }
        self.purger.lost(&dir.folder(), name, losing);
    }

    /// A name of a file that has others is taken away.
    fn note_lost_link(&self, dir: &Arc<Node>, stat: &Statx) {
        if stat.stx_nlink > 1 && file_type(stat) == FileType::File {
            self.purger.note_moved(&dir.folder(), stat.stx_ino);
        }
    }

    /// A name has been moved.
    fn note_move(&self, (from, to): (&Arc<Node>, &Node), node: NodeId) {
        if from.id != to.id {
            self.purger.note_moved(&from.folder(), node.0);
        }
    }

    fn count_link(&self, node: &Node, stat: &Statx) {
        let is_left = || Content::of_target(&self.purger.lower, stat) != Content::NothingStored;
        if node.lower_kind() == FileType::Symlink && is_left() {
            self.purger.statistics.links.add(1);
        }
    }

    /// Moves a name, or trades two. What is replaced goes into the spool; returns how many names it has
    /// left.
    pub(super) fn move_name(
        &self,
        from: Link<'_>,
        to: Target<'_>,
        exchange: Exchange,
    ) -> Result<u32> {
        if self.is_hidden(to.dir, to.name) {
            return Err(tacita_vfs::Error::new(Kind::NotPermitted, "the name of the spool"));
        }
        let (from_dir, to_dir) = (self.table.get(from.dir)?, self.table.get(to.dir)?);
        let node = self.table.get(from.node)?;
        let victim = match to.node {
            Some(victim) => Some(self.table.get(victim)?),
            None => None,
        };
        // Open until it is known whether it has a name left.
        let _open = match &victim {
            Some(victim) => Some(victim.fd().map_err(refused)?),
            None => None,
        };
        let from_fd = from_dir.fd().map_err(refused)?;
        let to_fd = to_dir.fd().map_err(refused)?;
        if exchange == Exchange::Yes {
            let other = victim.ok_or(Kind::NotFound)?;
            let flags = RenameFlags::EXCHANGE;
            renameat_with(from_fd, from.name, to_fd, to.name, flags).map_err(refused)?;
            node.move_place((&from_dir, from.name), (&to_dir, to.name));
            other.move_place((&to_dir, to.name), (&from_dir, from.name));
            self.note_move((&from_dir, &to_dir), node.id);
            self.note_move((&to_dir, &from_dir), other.id);
            return Ok(0);
        }
        let plain = || renameat(&from_fd, from.name, &to_fd, to.name).map_err(refused);
        let size = node.stat().map_err(refused)?.stx_size;
        let moved = self.decide(&from_dir, from.name, &node, size).is_some();
        let mut left = 0;
        let losing = (moved || victim.is_some()).then(|| self.about_to_lose(&from_dir));
        match &victim {
            Some(victim) if victim.kind == FileType::Directory => {
                self.replace_folder(&to_dir, to.name, victim, &plain)?;
            }
            Some(victim) => {
                let stat = victim.stat().map_err(refused)?;
                left = names_left(victim, &stat);
                self.replace_file((&from_dir, &to_dir, to.name), (victim, &stat), &plain)?;
            }
            None => plain()?,
        }
        node.move_place((&from_dir, from.name), (&to_dir, to.name));
        self.note_move((&from_dir, &to_dir), node.id);
        if let Some(losing) = losing {
            self.name_is_gone(&from_dir, from.name, losing);
        }
        Ok(left)
    }

    /// Renames over an empty folder, which goes into the spool first.
    fn replace_folder(
        &self,
        dir: &Node,
        name: &OsStr,
        victim: &Node,
        rename: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let spool = &self.purger.spool;
        let seq = spool.next();
        let fd = dir.fd().map_err(refused)?;
        let _gap = self.open_gap();
        self.with_room(|| renameat(&fd, name, spool.dir(), seq.name().as_str()))
            .map_err(refused)?;
        if let Err(e) = rename() {
            renameat(spool.dir(), seq.name().as_str(), &fd, name).map_err(refused)?;
            return Err(e);
        }
        victim.state().nameless = true;
        victim.stays_open();
        self.purger.add_folder(seq);
        Ok(())
    }

    /// Renames over a file, which gets a second name in the spool first. A crash between the two
    /// leaves it with both, and the one in the spool is dropped.
    fn replace_file(
        &self,
        (from_dir, dir, name): (&Arc<Node>, &Arc<Node>, &OsStr),
        (victim, stat): (&Node, &Statx),
        rename: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let method = self.decide(dir, name, victim, stat.stx_size);
        let kind = victim.lower_kind();
        let is_purged = kind == FileType::File || has_values(kind, victim, stat);
        let (Some(method), true, 0..=1, false) =
            (method, is_purged, stat.stx_nlink, planted(Fault::ReplaceUnhooked))
        else {
            self.count_link(victim, stat);
            self.note_lost_link(dir, stat);
            return rename();
        };
        if obstacle::of_file(stat).is_some() {
            // The rename would fail, and a swap file's second name would have to stay.
            return Err(self.kept((dir, stat), &method, Errno::PERM));
        }
        let spool = &self.purger.spool;
        let seq = spool.next();
        let seq_name = seq.name();
        let fd = dir.fd().map_err(refused)?;
        let parents = vec![from_dir.folder(), dir.folder()];
        let lost = (dir.folder(), name.to_owned());
        let linked = if self.purger.lower.is_remote() {
            // A client of NFS keeps what a rename replaces under a third name while we hold it.
            Err(Errno::OPNOTSUPP)
        } else {
            let link = || linkat(&fd, name, spool.dir(), seq_name.as_str(), AtFlags::empty());
            self.with_room(link)
        };
        match linked {
            Ok(()) => {}
            // Without links the victim is moved away first.
            Err(Errno::PERM | Errno::OPNOTSUPP) => {
                let _gap = self.open_gap();
                renameat(&fd, name, spool.dir(), seq_name.as_str())
                    .map_err(|errno| self.kept((dir, stat), &method, errno))?;
                if let Err(e) = rename() {
                    renameat(spool.dir(), seq_name.as_str(), &fd, name).map_err(refused)?;
                    return Err(e);
                }
                self.spooled((victim, stat), (seq, method), (parents, lost));
                return Ok(());
            }
            Err(e) => return Err(refused(e)),
        }
        step(Step::Linked);
        if !self.purger.lower.is_ordered {
            // Without a journal nothing else keeps the two names in their order.
            rustix::fs::fsync(spool.dir().as_fd()).map_err(refused)?;
        }
        if let Err(e) = rename() {
            spool.remove(seq, false)?;
            return Err(e);
        }
        step(Step::Spooled);
        self.spooled((victim, stat), (seq, method), (parents, lost));
        Ok(())
    }

    /// What a rename has replaced is in the spool.
    fn spooled(
        &self,
        (victim, stat): (&Node, &Statx),
        (seq, method): (Seq, Method),
        (parents, lost): (Vec<Folder>, (Folder, OsString)),
    ) {
        if victim.lower_kind() == FileType::File {
            return await_purge(victim, stat, (seq, method), (parents, lost, false));
        }
        self.count_link(victim, stat);
        self.purge_unopened(seq, &lost, &method);
    }

    /// Purges a node without a name unless somebody has it open.
    pub(super) fn purge_unless_open(&self, node: NodeId) -> Result<()> {
        let Ok(node) = self.table.get(node) else {
            return Ok(());
        };
        let _acting = act_for_oneself()?;
        let job = node.state().begin_purge();
        match job {
            Some(job) => Ok(self.purger.accept(job)?),
            None => Ok(()),
        }
    }

    /// Hands over what a node that nobody refers to any more leaves to be purged.
    pub(super) fn hand_over(&self, node: &Node) {
        let job = node.state().begin_purge();
        if let Some(job) = job
            && let Err(e) = self.purger.accept(job)
        {
            log::warn!("{e}");
        }
    }
}

/// Takes away what could not be made whole: it was never there as far as anybody else can know.
fn unmake(dir: &Node, name: &OsStr, kind: FileType, errno: Errno) -> tacita_vfs::Error {
    let flags = match kind {
        FileType::Directory => AtFlags::REMOVEDIR,
        _ => AtFlags::empty(),
    };
    if let Err(e) = dir.fd().and_then(|dir| unlinkat(dir, name, flags)) {
        log::warn!("a new name that is not needed cannot be removed: {e}");
    }
    refused(errno)
}

/// Gives a new node its owner and permissions. `path` is the kernel's own name for it.
fn dress(
    node: &Node,
    path: &CStr,
    stat: Statx,
    (new, bits): (&NewNode, Bits),
) -> rustix::io::Result<Statx> {
    let perm = bits.wanted(&stat);
    let owned = (stat.stx_uid, stat.stx_gid) == (new.uid, new.gid);
    if !owned {
        let (uid, gid) = (Uid::from_raw(new.uid), Gid::from_raw(new.gid));
        chownat(node.fd()?, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
    }
    if new.kind != FileType::Symlink && (!owned || stat.stx_mode & 0o7777 != perm) {
        chmodat(CWD, path, Mode::from_raw_mode(perm.into()), AtFlags::empty())?;
    } else if owned {
        return Ok(stat);
    }
    node.stat()
}

/// As the mark of `chattr +s` is handed down to a new folder, so is the attribute.
fn hand_down(dir: &Node, folder: &Node) {
    let name = OsStr::new(POLICY_ATTRIBUTE);
    if let Ok(Some(value)) = dir.policy()
        && let Err(e) =
            folder.fd().and_then(|folder| xattrs::set(folder, name, &value, XattrFlags::empty()))
    {
        log::debug!("{POLICY_ATTRIBUTE} is not handed down: {e}");
    }
}

/// How many names a node will have left when it has lost one.
fn names_left(node: &Node, stat: &Statx) -> u32 {
    match node.kind {
        FileType::Directory => 0,
        _ => stat.stx_nlink.saturating_sub(1),
    }
}

/// Whether what is never opened is about to lose its last name, with values of attributes.
fn has_values(kind: FileType, node: &Node, stat: &Statx) -> bool {
    !matches!(kind, FileType::File | FileType::Directory)
        && stat.stx_nlink <= 1
        // What nobody knows may be there.
        && node.fd().and_then(xattrs::has_data).unwrap_or(true)
}

fn take_away_plainly(dir: &Node, name: &OsStr, node: &Node) -> Result<()> {
    let _open = node.fd().map_err(refused)?;
    let flags = match node.kind {
        FileType::Directory => AtFlags::REMOVEDIR,
        _ => AtFlags::empty(),
    };
    dir.fd().and_then(|dir| unlinkat(dir, name, flags)).map_err(refused)?;
    if node.kind == FileType::Directory {
        node.state().nameless = true;
    }
    Ok(())
}

/// Notes that a node in the spool is to be purged when nobody has it open.
fn await_purge(
    node: &Node,
    stat: &Statx,
    (seq, method): (Seq, Method),
    (parents, lost, is_unlinked): (Vec<Folder>, (Folder, OsString), bool),
) {
    node.stays_open();
    let mut state = node.state();
    state.nameless = true;
    state.job = Some(Job {
        seq,
        inode: stat.stx_ino,
        size: Some(stat.stx_size),
        method,
        parents,
        is_unlinked,
        lost: Some(lost),
        passes_done: 0,
        hold_until: 0,
        is_known_to_fail: false,
    });
}
