//! The names of one node: which of many is the least path is known without looking at all.

use std::collections::{BTreeMap, BTreeSet};

use tacita_vfs::NodeId;

use super::Name;

/// A name in a directory.
pub(crate) type Link = (NodeId, Name);

/// Every directory and name that leads to a node; for a directory one, for the root none.
///
/// The first is the *owner*, which gives a file its id and its home. Of the names in one directory
/// the least path is that of the least name, so only directories need comparing.
#[derive(Debug, Default)]
pub(crate) struct Links {
    owner: Option<Link>,
    /// Most files have none.
    others: Option<Box<Others>>,
}

/// The names that are not the owner.
#[derive(Debug, Default)]
struct Others {
    names: BTreeMap<NodeId, BTreeSet<Name>>,
    len: u32,
}

impl Links {
    pub(crate) fn len(&self) -> u32 {
        u32::from(self.owner.is_some()) + self.others.as_ref().map_or(0, |others| others.len)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.owner.is_none()
    }

    /// The first of them.
    pub(crate) const fn owner(&self) -> Option<&Link> {
        self.owner.as_ref()
    }

    /// All of them, the owner first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, &Name)> {
        let others = self.others.iter().flat_map(|others| &others.names);
        let others = others.flat_map(|(dir, names)| names.iter().map(|name| (*dir, name)));
        self.owner.iter().map(|(dir, name)| (*dir, name)).chain(others)
    }

    /// Adds a name; the owner stays.
    pub(crate) fn add(&mut self, link: Link) {
        match self.owner {
            None => self.owner = Some(link),
            Some(_) => self.add_other(link),
        }
    }

    fn add_other(&mut self, (dir, name): Link) {
        let others = self.others.get_or_insert_default();
        others.len += u32::from(others.names.entry(dir).or_default().insert(name));
    }

    /// Takes a name away; any of the others may be the owner afterwards.
    pub(crate) fn remove(&mut self, link: &Link) {
        if self.owner.as_ref() == Some(link) {
            let next = self.candidates().next().map(|(dir, name)| (dir, Name::clone(name)));
            if let Some(next) = &next {
                self.remove_other(next);
            }
            self.owner = next;
        } else {
            self.remove_other(link);
        }
    }

    fn remove_other(&mut self, (dir, name): &Link) {
        let Some(others) = &mut self.others else {
            return;
        };
        if let Some(names) = others.names.get_mut(dir) {
            others.len -= u32::from(names.remove(name));
            if names.is_empty() {
                others.names.remove(dir);
            }
        }
        if others.len == 0 {
            self.others = None;
        }
    }

    /// The least other name of each directory: one of these or the owner is the least path.
    fn candidates(&self) -> impl Iterator<Item = (NodeId, &Name)> {
        let others = self.others.iter().flat_map(|others| &others.names);
        others.filter_map(|(dir, names)| Some((*dir, names.first()?)))
    }

    /// Makes the least path, as `path` gives it, the owner, if a name has just been added: it is the
    /// only one that can be less.
    pub(crate) fn prefer(&mut self, new: Link, path: impl Fn(NodeId, &Name) -> Vec<u8>) {
        let Some(owner) = self.owner.take_if(|owner| path(new.0, &new.1) < path(owner.0, &owner.1))
        else {
            return;
        };
        self.remove_other(&new);
        self.add_other(owner);
        self.owner = Some(new);
    }

    /// Makes the least path, as `path` gives it, the owner.
    pub(crate) fn settle(&mut self, path: impl Fn(NodeId, &Name) -> Vec<u8>) {
        let Some(owner) = self.owner.take() else {
            return;
        };
        let least = self.candidates().map(|(dir, name)| (path(dir, name), (dir, name))).min();
        match least.filter(|(least, _)| *least < path(owner.0, &owner.1)) {
            Some((_, (dir, name))) => {
                let least = (dir, Name::clone(name));
                self.remove_other(&least);
                self.add_other(owner);
                self.owner = Some(least);
            }
            None => self.owner = Some(owner),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_owner_is_the_least_of_all(
            ops in prop::collection::vec((any::<bool>(), 0u64..3, "[a-c]{1,2}"), 0..60),
        ) {
            let path = |dir: NodeId, name: &Name| [format!("/{dir:?}/").as_bytes(), name].concat();
            let mut links = Links::default();
            let mut want: BTreeSet<(NodeId, Vec<u8>)> = BTreeSet::new();
            for (add, dir, name) in ops {
                let link: Link = (NodeId(dir), name.as_bytes().into());
                if add && want.insert((link.0, name.clone().into())) {
                    links.add(link.clone());
                    links.prefer(link, path);
                } else if !add {
                    want.remove(&(link.0, name.into()));
                    links.remove(&link);
                    links.settle(path);
                }
                prop_assert_eq!(links.len() as usize, want.len());
                let all: BTreeSet<(NodeId, Vec<u8>)> =
                    links.iter().map(|(dir, name)| (dir, name.to_vec())).collect();
                prop_assert_eq!(&all, &want);
                let least = want.iter().map(|(dir, name)| path(*dir, &name[..].into())).min();
                prop_assert_eq!(links.owner().map(|(dir, name)| path(*dir, name)), least);
            }
        }
    }
}
