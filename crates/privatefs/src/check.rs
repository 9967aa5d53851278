//! Whether what is in the store is a file system: every name leads to an inode that says as many names, and
//! every block of content that should be there can be read. Other mounts may change all of it meanwhile: what
//! they change is not wrong.

use std::collections::{HashMap, HashSet};

use tacita_vfs::FileType;

use crate::error::Result;
use crate::fields::Stamp;
use crate::ids::Id;
use crate::inode::{Form, Inode};
use crate::links;
use crate::privatefs::{Need, Pad, PrivateFs};
use crate::view::{Step, Stop, View};

/// How often a directory is listed that others change meanwhile, before its numbers are compared with nothing.
const LISTED_MAX: usize = 8;

/// What a check has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// Directories.
    pub directories: u64,
    /// Nodes that are none.
    pub files: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// Inodes without names, which will be freed.
    pub nameless: u64,
    /// What is wrong, in words.
    pub wrong: Vec<String>,
}

/// Reads all inodes, and the content with them if `is_whole`.
///
/// # Errors
/// As the store has them; what is wrong with the file system is found, not an error.
pub fn check(fs: &PrivateFs, is_whole: bool, progress: &mut dyn FnMut(u64)) -> Result<Findings> {
    let mut walk = Walk::begin(fs, is_whole)?;
    let root = fs.core.ids.root();
    let mut seen = HashSet::from([root]);
    let mut todo = vec![(root, At { dir: root, name: Vec::new(), path: Vec::new() })];
    while let Some((dir, at)) = todo.pop() {
        for (name, kind, inode) in walk.directory(&dir, &at)? {
            let path = [&at.path[..], b"/", &name].concat();
            let at = At { dir, name, path };
            if kind == FileType::Directory {
                if seen.insert(inode) {
                    todo.push((inode, at));
                } else if walk.has_two_names(&inode, &at)? {
                    walk.wrong(&at.path, "a directory with two names");
                }
                continue;
            }
            walk.file(&inode, kind, &at)?;
            progress(walk.findings.files);
        }
    }
    walk.names()?;
    walk.graveyard()?;
    Ok(walk.findings)
}

/// Where an inode was found.
#[derive(Debug, Clone)]
struct At {
    dir: Id,
    /// Its name there; empty where it needs none.
    name: Vec<u8>,
    path: Vec<u8>,
}

impl At {
    /// Whether the name still leads to this inode.
    fn leads_to(&self, view: &mut View<'_>, id: &Id) -> Step<bool> {
        if self.name.is_empty() {
            return Ok(true);
        }
        match links::directory(view, &self.dir) {
            Ok(dir) => {
                let entry = links::find(view, &dir, &self.name)?;
                Ok(entry.is_some_and(|entry| entry.inode == *id))
            }
            Err(Stop::Fail(error)) if error.kind() == tacita_vfs::Kind::Stale => Ok(false),
            Err(stop) => Err(stop),
        }
    }
}

/// An inode, and which commit it comes from.
type Found = (Inode, Stamp);

fn found(view: &mut View<'_>, id: &Id) -> Step<Found> {
    let inode = view.inode(id)?;
    let block = view.block(&view.ids.inode(id))?;
    Ok((inode, block.map_or_else(Stamp::default, |block| Stamp::of(&block))))
}

struct Walk<'a> {
    fs: &'a PrivateFs,
    is_whole: bool,
    findings: Findings,
    /// Names of each file.
    names: HashMap<Id, (u32, At)>,
    /// Commits that there were at the beginning.
    commits: u64,
}

type Named = (Vec<u8>, FileType, Id);

impl<'a> Walk<'a> {
    fn begin(fs: &'a PrivateFs, is_whole: bool) -> Result<Self> {
        // With the turn comes the newest register.
        let root = fs.core.ids.inode(&fs.core.ids.root());
        let turn = fs.core.operate(Need::Nothing, Pad::No, |view| view.block(&root));
        turn.map_err(|e| crate::reaper::as_own(&e))?;
        let commits = fs.core.register()?.commit;
        let findings = Findings::default();
        Ok(Self { fs, is_whole, findings, names: HashMap::new(), commits })
    }

    fn wrong(&mut self, path: &[u8], what: &str) {
        self.findings.wrong.push(format!("{}: {what}", String::from_utf8_lossy(path)));
    }

    /// The inode that a name leads to. None if it was told what is wrong with it, or if the name does not lead there
    /// any more, which is looked at in the same step.
    fn inode(&mut self, id: &Id, at: &At) -> Result<Option<Found>> {
        let found = self.fs.core.operate(Need::Nothing, Pad::No, |view| match found(view, id) {
            Err(Stop::Fail(error))
                if error.kind() == tacita_vfs::Kind::Stale && !at.leads_to(view, id)? =>
            {
                Ok(None)
            }
            found => found.map(Some),
        });
        match found {
            Ok(found) => Ok(found),
            Err(error) => self.told(&at.path, &error).map(|()| None),
        }
    }

    /// Whether a directory is here and says that it is elsewhere.
    fn is_astray(&mut self, id: &Id, at: &At) -> Result<bool> {
        let found = self.fs.core.operate(Need::Nothing, Pad::No, |view| {
            Ok(at.leads_to(view, id)? && view.inode(id)?.parent != at.dir)
        });
        match found {
            Ok(is_astray) => Ok(is_astray),
            Err(error) => self.told(&at.path, &error).map(|()| false),
        }
    }

    /// Whether a directory that was found before is here as well, and has not been moved here since.
    fn has_two_names(&mut self, id: &Id, at: &At) -> Result<bool> {
        let Some((_, stamp)) = self.inode(id, at)? else { return Ok(false) };
        Ok(!self.is_changed(stamp)?)
    }

    /// Whether others have made that commit since the beginning.
    fn is_changed(&self, stamp: Stamp) -> Result<bool> {
        Ok(stamp.commit > self.commits && stamp.commit <= self.fs.core.register()?.commit)
    }

    /// What cannot be read is wrong; a store that does not answer is an error.
    fn told(&mut self, path: &[u8], error: &tacita_vfs::Error) -> Result<()> {
        match error.kind() {
            tacita_vfs::Kind::Corrupt => self.wrong(path, &error.to_string()),
            tacita_vfs::Kind::Stale => self.wrong(path, "it is not there"),
            _ => return Err(crate::reaper::as_own(error)),
        }
        Ok(())
    }

    fn entries(&mut self, id: &Id, path: &[u8]) -> Result<Vec<Named>> {
        let mut entries = Vec::new();
        let mut next = Some(0);
        while let Some(from) = next {
            let listed = self.fs.core.operate(Need::Nothing, Pad::No, |view| {
                let dir = links::directory(view, id)?;
                links::list(view, &dir, from)
            });
            match listed {
                Ok((listed, after)) => {
                    entries.extend(listed.into_iter().map(|(_, e)| (e.name, e.kind, e.inode)));
                    next = after;
                }
                // Who looks whether its name still leads there tells it.
                Err(error) if error.kind() == tacita_vfs::Kind::Stale => break,
                Err(error) => {
                    self.told(path, &error)?;
                    break;
                }
            }
        }
        Ok(entries)
    }

    /// The entries of a directory, and what it was while they were listed, if it has not changed meanwhile.
    fn listed(
        &mut self,
        id: &Id,
        at: &At,
        mut before: Found,
    ) -> Result<(Vec<Named>, Option<Inode>)> {
        let mut entries = Vec::new();
        for _ in 0..LISTED_MAX {
            entries = self.entries(id, &at.path)?;
            let Some(after) = self.inode(id, at)? else { break };
            if after == before {
                return Ok((entries, Some(before.0)));
            }
            before = after;
        }
        Ok((entries, None))
    }

    fn directory(&mut self, id: &Id, at: &At) -> Result<Vec<Named>> {
        let Some(found) = self.inode(id, at)? else { return Ok(Vec::new()) };
        self.findings.directories += 1;
        if found.0.kind != FileType::Directory {
            self.wrong(&at.path, "it is no directory");
            return Ok(Vec::new());
        }
        let parent = found.0.parent;
        let (entries, inode) = self.listed(id, at, found)?;
        if let Some(inode) = inode {
            let below = entries.iter().filter(|(_, kind, _)| *kind == FileType::Directory).count();
            if inode.entries != entries.len() as u64 {
                self.wrong(&at.path, "it says another number of names");
            }
            if u64::from(inode.nlink) != below as u64 + 2 {
                self.wrong(&at.path, "it says another number of directories in it");
            }
        }
        if parent != at.dir && self.is_astray(id, at)? {
            self.wrong(&at.path, "it says that it is in another directory");
        }
        Ok(entries)
    }

    fn file(&mut self, id: &Id, kind: FileType, at: &At) -> Result<()> {
        if let Some((names, _)) = self.names.get_mut(id) {
            *names += 1;
            return Ok(());
        }
        self.names.insert(*id, (1, at.clone()));
        let Some((inode, _)) = self.inode(id, at)? else { return Ok(()) };
        self.findings.files += 1;
        self.findings.bytes = self.findings.bytes.saturating_add(inode.size);
        if inode.kind != kind {
            self.wrong(&at.path, "its directory says that it is something else");
        }
        if self.is_whole && inode.form == Form::Blocks {
            let ids = &self.fs.core.ids;
            let covered: Vec<Id> = inode
                .ranges
                .within(0, u64::MAX)
                .map(|index| ids.content(&inode.content, index))
                .collect();
            for some in covered.chunks(64) {
                self.fs.core.read(some)?;
            }
        }
        Ok(())
    }

    fn names(&mut self) -> Result<()> {
        for (id, (count, at)) in std::mem::take(&mut self.names) {
            // How many names it had when it was changed was not counted.
            if let Some((inode, stamp)) = self.inode(&id, &at)?
                && inode.nlink != count
                && !self.is_changed(stamp)?
            {
                self.wrong(&at.path, "it says another number of names");
            }
        }
        Ok(())
    }

    fn graveyard(&mut self) -> Result<()> {
        let dir = self.fs.core.ids.graveyard();
        let at = At { dir, name: Vec::new(), path: b"what has no name".to_vec() };
        if self.inode(&dir, &at)?.is_none() {
            return Ok(());
        }
        let listed = self.entries(&dir, &at.path)?;
        self.nameless(listed, &at)
    }

    /// Looks at what was listed in the graveyard, which whoever has buried it may free meanwhile.
    fn nameless(&mut self, listed: Vec<Named>, graveyard: &At) -> Result<()> {
        for (name, _, id) in listed {
            let at = At { name, ..graveyard.clone() };
            let Some((inode, _)) = self.inode(&id, &at)? else { continue };
            self.findings.nameless += 1;
            if inode.nlink != 0 {
                self.wrong(&at.path, "it has one");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use tacita_clock::{Clock, Simulated};
    use tacita_secret::Key;
    use tacita_vfs::{FileSystem, Link, NewNode, Timestamp};

    use super::*;
    use crate::blocks::Memory;
    use crate::{Options, format};

    /// Whoever has buried it frees it when it has been listed, and before it is looked at.
    #[test]
    fn what_is_freed_while_it_is_checked_is_not_wrong() {
        let store = Memory::new(1 << 12);
        let key = Key::take(&mut [7; 32]);
        let clock: Arc<dyn Clock> = Arc::new(Simulated::at(SystemTime::UNIX_EPOCH));
        format(&*store.way(0), &key, &clock, (0, 0)).unwrap();
        let fs = PrivateFs::open(store.way(1), &key, clock, &Options::default()).unwrap();
        let (name, now) = ("file".as_ref(), Timestamp::default());
        let new = NewNode::new(FileType::File, 0o600, now);
        let (node, _) = fs.create(fs.root(), name, &new).unwrap();
        let link = Link { dir: fs.root(), name, node };
        assert_eq!(fs.remove(link, now).unwrap(), 0);
        let mut walk = Walk::begin(&fs, true).unwrap();
        let dir = fs.core.ids.graveyard();
        let at = At { dir, name: Vec::new(), path: Vec::new() };
        let listed = walk.entries(&dir, &at.path).unwrap();
        walk.nameless(listed.clone(), &at).unwrap();
        assert_eq!((listed.len(), walk.findings.nameless), (1, 1));
        fs.forget(node);
        fs.sync().unwrap();
        walk.nameless(listed, &at).unwrap();
        assert_eq!((walk.findings.nameless, walk.findings.wrong), (1, Vec::new()));
        fs.close().unwrap();
    }
}
