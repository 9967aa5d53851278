//! From names and inodes back to one tree, in which everything that was found has a place.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use tacita_vfs::{FileType, NodeId};

use super::{
    ALL_BUT_NAME, FILE_INODE, FOLDER_INODE, FoundName, Loss, NAME, NAMES, OTHER_NAME, Salvage,
};
use crate::faults::{Fault, planted};
use crate::names::FileId;
use crate::tree::{Name, ROOT};

/// Name of the folder for what has no name any more.
const FOUND: &str = "lost+found";

/// Names below each directory.
type Children = HashMap<NodeId, Vec<(Name, NodeId)>>;

impl Salvage {
    /// Gives every name and every node its place. What nothing leads to goes to a folder of its own, but for
    /// what had been deleted while it was in use.
    pub(super) fn plant_tree(&mut self) {
        let mut children = Children::new();
        for FoundName { dir, name, id, kind } in std::mem::take(&mut self.names) {
            let Some(dir) = self.folder_of(dir) else { continue };
            match self.named(id, kind) {
                Some(child) => children.entry(dir).or_default().push((name, child)),
                None => self.bare_names.push((dir, name)),
            }
        }
        let mut placed = HashSet::from([ROOT]);
        self.grow(ROOT, &mut children, &mut placed);
        self.find_places(&mut children, &mut placed);
        let linked = self.state.nodes.iter().filter(|(_, node)| node.links.len() > 1);
        for id in linked.map(|(id, _)| id).collect::<Vec<_>>() {
            self.state.settle_owner_link(id);
        }
        self.tell_of_losses();
    }

    /// The directory whose entries these are, even if its inode is lost.
    fn folder_of(&mut self, id: FileId) -> Option<NodeId> {
        if let Some(dir) = self.state.dirs.get(&id) {
            return Some(*dir);
        }
        if self.state.inodes.entries.contains_key(&id) {
            self.losses.damage.push(format!("entries of {id:032x}, which is no directory"));
            return None;
        }
        let folder = Self::stand_in_for(id, FileType::Directory, 0, 0);
        Some(self.stand_in(id, folder))
    }

    /// The node of a name. If its inode is lost, one that stands for it; none if nothing else is left.
    fn named(&mut self, id: FileId, kind: FileType) -> Option<NodeId> {
        if let Some(node) = self.state.inodes.entries.get(&id) {
            return Some(*node);
        }
        match kind {
            FileType::Directory => self.folder_of(id),
            FileType::File => self.content_of(id),
            _ => None,
        }
    }

    /// A file that stands for one whose inode is lost, if there is content of it.
    fn content_of(&mut self, id: FileId) -> Option<NodeId> {
        let buckets = self.buckets.get(&id)?;
        let count = u32::try_from(buckets.len()).ok()?;
        let file = Self::stand_in_for(id, FileType::File, self.size_of(buckets), count);
        Some(self.stand_in(id, file))
    }

    fn stand_in(&mut self, id: FileId, node: crate::tree::Node) -> NodeId {
        let number = self.state.nodes.insert(node);
        self.know(id, number);
        self.stand_ins.push(number);
        number
    }

    /// Puts names in their places, from a directory down; a directory has one place.
    fn grow(&mut self, from: NodeId, children: &mut Children, placed: &mut HashSet<NodeId>) {
        let mut waiting = vec![from];
        while let Some(dir) = waiting.pop() {
            for (name, child) in children.remove(&dir).unwrap_or_default() {
                let is_dir = self.is_directory(child);
                if is_dir && !placed.insert(child) || !self.plant(dir, &name, child) {
                    let text = format!("{:?}: a name too many", String::from_utf8_lossy(&name));
                    self.losses.damage.push(text);
                } else if is_dir {
                    waiting.push(child);
                }
            }
        }
    }

    /// Whether `name` was still free in `dir`; then it is taken.
    fn plant(&mut self, dir: NodeId, name: &Name, child: NodeId) -> bool {
        let is_dir = self.is_directory(child);
        let Some(dir_id) = self.state.nodes.get(dir).map(|node| node.id) else { return false };
        let (_, hash) = self.state.names.entry(dir_id, name);
        let Some(folder) = self.state.nodes.get_mut(dir).and_then(|node| node.directory_mut())
        else {
            return false;
        };
        let key = (hash, Name::clone(name));
        if folder.entries.contains_key(&key) {
            return false;
        }
        folder.entries.insert(key, child);
        folder.subdirectories += u32::from(is_dir);
        if let Some(node) = self.state.nodes.get_mut(child) {
            node.links.add((dir, Name::clone(name)));
        }
        true
    }

    fn is_directory(&self, id: NodeId) -> bool {
        self.state.nodes.get(id).is_some_and(|node| node.directory().is_some())
    }

    /// Places for what no name leads to: trees first, from their tops, then what has content.
    fn find_places(&mut self, children: &mut Children, placed: &mut HashSet<NodeId>) {
        let below: HashSet<NodeId> = children.values().flatten().map(|(_, child)| *child).collect();
        let mut loose: Vec<NodeId> = self.state.dirs.values().copied().collect();
        // Tops first; of a circle any is as good as another.
        loose.sort_unstable_by_key(|dir| (below.contains(dir), *dir));
        for dir in loose {
            if placed.insert(dir) {
                self.put_aside(dir);
                self.grow(dir, children, placed);
            }
        }
        let owners: Vec<FileId> = self.buckets.keys().copied().collect();
        for id in owners {
            if !self.state.inodes.entries.contains_key(&id) {
                self.content_of(id);
            }
        }
        let is_kept = |id: &NodeId| {
            self.told.get(id).is_none_or(|(names, _)| *names > 0 || planted(Fault::SalvagedDeleted))
        };
        let nameless = self
            .state
            .nodes
            .iter()
            .filter(|(id, node)| *id != ROOT && node.links.is_empty() && is_kept(id));
        for id in nameless.map(|(id, _)| id).collect::<Vec<_>>() {
            if !self.is_directory(id) {
                self.put_aside(id);
            }
        }
    }

    /// Puts something into the folder for what has no name any more, which is made for the first.
    fn put_aside(&mut self, id: NodeId) {
        let Some(name) = self.state.nodes.get(id).map(|node| format!("{:032x}", node.id)) else {
            return;
        };
        let (folder, folder_name) = match self.found.take() {
            Some(found) => found,
            None => self.make_found(),
        };
        self.plant(folder, &name.as_bytes().into(), id);
        let path = ["/", &folder_name, &name].iter().collect();
        self.losses.lost.push(Loss { path, what: NAME });
        self.found = Some((folder, folder_name));
    }

    fn make_found(&mut self) -> (NodeId, String) {
        let mut id = (self.state.random_id)();
        while id == 0 || self.state.inodes.entries.contains_key(&id) {
            id = (self.state.random_id)();
        }
        let folder = self.state.nodes.insert(Self::stand_in_for(id, FileType::Directory, 0, 0));
        self.know(id, folder);
        let mut name = FOUND.to_owned();
        while !self.plant(ROOT, &name.as_bytes().into(), folder) {
            name.push('+');
        }
        (folder, name)
    }

    /// Tells of names of which nothing else is left, of what stands for an inode, and of names that are missing.
    fn tell_of_losses(&mut self) {
        let path = |dir, name: &Name| PathBuf::from(OsString::from_vec(self.state.path(dir, name)));
        let bare = self.bare_names.iter();
        let mut lost: Vec<Loss> =
            bare.map(|(dir, name)| Loss { path: path(*dir, name), what: ALL_BUT_NAME }).collect();
        let stand_ins: HashSet<NodeId> = self.stand_ins.iter().copied().collect();
        for (id, node) in self.state.nodes.iter() {
            let (is_dir, names) = (node.directory().is_some(), node.links.len());
            let entries = node.directory().map_or(0, |dir| dir.entries.len() as u64);
            let what = match self.told.get(&id) {
                _ if stand_ins.contains(&id) => {
                    if is_dir {
                        FOLDER_INODE
                    } else {
                        FILE_INODE
                    }
                }
                Some((_, told)) if is_dir && entries < *told => NAMES,
                Some((told, _)) if !is_dir && (1..*told).contains(&names) => OTHER_NAME,
                _ => continue,
            };
            let path = node.owner_link().map_or_else(|| "/".into(), |(dir, name)| path(*dir, name));
            lost.push(Loss { path, what });
        }
        self.losses.lost.extend(lost);
    }
}
