//! What one operation sees and changes. What it lacks stops it; it begins anew when that is here. What it
//! changes counts when it has come to its end, all at once.

use std::collections::HashMap;

use bytes::Bytes;

use crate::cache::{Cache, Class, NotHere};
use crate::error::Error;
use crate::ids::{Id, Ids};
use crate::inode::Inode;

/// Why an operation does not go on.
#[derive(Debug)]
pub(crate) enum Stop {
    /// These blocks are not here.
    Missing(Vec<Id>),
    /// It fails.
    Fail(tacita_vfs::Error),
}

impl From<tacita_vfs::Error> for Stop {
    fn from(error: tacita_vfs::Error) -> Self {
        Self::Fail(error)
    }
}

impl From<tacita_vfs::Kind> for Stop {
    fn from(kind: tacita_vfs::Kind) -> Self {
        Self::Fail(kind.into())
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Fail(error.into())
    }
}

/// Result of a step of an operation.
pub(crate) type Step<T> = Result<T, Stop>;

/// Blocks, and changes of them.
pub(crate) struct View<'a> {
    pub(crate) ids: &'a Ids,
    /// The turn that it is seen in.
    pub(crate) epoch: u64,
    cache: &'a mut Cache,
    changes: HashMap<Id, (Option<Bytes>, Class)>,
    /// Blocks that the operation adds to the store.
    added: u64,
}

impl<'a> View<'a> {
    pub(crate) fn new(ids: &'a Ids, epoch: u64, cache: &'a mut Cache) -> Self {
        Self { ids, epoch, cache, changes: HashMap::new(), added: 0 }
    }

    /// A block; `None` if there is none.
    pub(crate) fn block(&mut self, id: &Id) -> Step<Option<Bytes>> {
        self.peek(id).map_err(|NotHere| Stop::Missing(vec![*id]))
    }

    /// A block, if it is here.
    pub(crate) fn peek(&mut self, id: &Id) -> Result<Option<Bytes>, NotHere> {
        match self.changes.get(id) {
            Some((now, _)) => Ok(now.clone()),
            None => self.cache.get(id),
        }
    }

    /// Makes this the content of a block, or lets there be none.
    pub(crate) fn put(&mut self, id: Id, now: Option<Bytes>, class: Class) {
        if now.is_some() && !self.changes.contains_key(&id) && self.cache.is_new(&id) {
            self.added += 1;
        }
        self.changes.insert(id, (now, class));
    }

    /// Blocks that the operation adds to the store.
    pub(crate) const fn added(&self) -> u64 {
        self.added
    }

    /// An inode that must be there.
    pub(crate) fn inode(&mut self, id: &Id) -> Step<Inode> {
        let Some(block) = self.block(&self.ids.inode(id))? else {
            return Err(tacita_vfs::Kind::Stale.into());
        };
        let inode = Inode::decode(&block)?;
        if inode.id != *id {
            return Err(Error::damaged("an inode: it is another one").into());
        }
        Ok(inode)
    }

    /// An inode is changed, or new.
    pub(crate) fn put_inode(&mut self, inode: &Inode) {
        let id = self.ids.inode(&inode.id);
        self.put(id, Some(Bytes::from(inode.encode())), Class::Meta);
    }

    /// There is no such inode any more.
    pub(crate) fn drop_inode(&mut self, id: &Id) {
        self.put(self.ids.inode(id), None, Class::Meta);
    }

    /// The operation has come to its end.
    pub(crate) fn finish(self) {
        for (id, (now, class)) in self.changes {
            self.cache.put(id, now, class);
        }
    }
}
