//! Whether what is in the store is a file system: every name leads to an inode that says as many names, and
//! every block of content that should be there can be read.

use std::collections::{HashMap, HashSet};

use tacita_vfs::FileType;

use crate::error::Result;
use crate::ids::Id;
use crate::inode::{Form, Inode};
use crate::links;
use crate::privatefs::{Need, Pad, PrivateFs};

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
    let mut walk = Walk { fs, is_whole, findings: Findings::default(), names: HashMap::new() };
    let root = fs.core.ids.root();
    let mut seen = HashSet::from([root]);
    let mut todo = vec![(root, root, Vec::new())];
    while let Some((dir, parent, path)) = todo.pop() {
        for (name, kind, inode) in walk.directory(&dir, &parent, &path)? {
            let path = [&path[..], b"/", &name].concat();
            if kind == FileType::Directory {
                if seen.insert(inode) {
                    todo.push((inode, dir, path));
                } else {
                    walk.wrong(&path, "a directory with two names");
                }
                continue;
            }
            walk.file(&inode, kind, &path)?;
            progress(walk.findings.files);
        }
    }
    walk.names()?;
    walk.graveyard()?;
    Ok(walk.findings)
}

struct Walk<'a> {
    fs: &'a PrivateFs,
    is_whole: bool,
    findings: Findings,
    /// Names of each file.
    names: HashMap<Id, (u32, Vec<u8>)>,
}

type Named = (Vec<u8>, FileType, Id);

impl Walk<'_> {
    fn wrong(&mut self, path: &[u8], what: &str) {
        self.findings.wrong.push(format!("{}: {what}", String::from_utf8_lossy(path)));
    }

    fn inode(&mut self, id: &Id, path: &[u8]) -> Result<Option<Inode>> {
        let found = self.fs.core.operate(Need::Nothing, Pad::No, |view| view.inode(id));
        match found {
            Ok(inode) => Ok(Some(inode)),
            Err(error) => self.told(path, &error).map(|()| None),
        }
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
                Err(error) => {
                    self.told(path, &error)?;
                    break;
                }
            }
        }
        Ok(entries)
    }

    fn directory(&mut self, id: &Id, parent: &Id, path: &[u8]) -> Result<Vec<Named>> {
        let Some(inode) = self.inode(id, path)? else { return Ok(Vec::new()) };
        self.findings.directories += 1;
        if inode.kind != FileType::Directory {
            self.wrong(path, "it is no directory");
            return Ok(Vec::new());
        }
        let entries = self.entries(id, path)?;
        let below = entries.iter().filter(|(_, kind, _)| *kind == FileType::Directory).count();
        if inode.entries != entries.len() as u64 {
            self.wrong(path, "it says another number of names");
        }
        if u64::from(inode.nlink) != below as u64 + 2 {
            self.wrong(path, "it says another number of directories in it");
        }
        if inode.parent != *parent {
            self.wrong(path, "it says that it is in another directory");
        }
        Ok(entries)
    }

    fn file(&mut self, id: &Id, kind: FileType, path: &[u8]) -> Result<()> {
        if let Some((names, _)) = self.names.get_mut(id) {
            *names += 1;
            return Ok(());
        }
        self.names.insert(*id, (1, path.to_vec()));
        let Some(inode) = self.inode(id, path)? else { return Ok(()) };
        self.findings.files += 1;
        self.findings.bytes += inode.size;
        if inode.kind != kind {
            self.wrong(path, "its directory says that it is something else");
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
        let names: Vec<_> = self.names.iter().map(|(id, named)| (*id, named.clone())).collect();
        for (id, (count, path)) in names {
            if let Some(inode) = self.inode(&id, &path)?
                && inode.nlink != count
            {
                self.wrong(&path, "it says another number of names");
            }
        }
        Ok(())
    }

    fn graveyard(&mut self) -> Result<()> {
        let graveyard = self.fs.core.ids.graveyard();
        let what = b"what has no name";
        for (_, _, id) in self.entries(&graveyard, what)? {
            self.findings.nameless += 1;
            if let Some(inode) = self.inode(&id, what)?
                && inode.nlink != 0
            {
                self.wrong(what, "it has one");
            }
        }
        Ok(())
    }
}
