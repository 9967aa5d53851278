//! New file systems, and facts of one.

use std::sync::Arc;

use bytes::Bytes;
use tacita_clock::Clock;
use tacita_oram::log_view::Outcome;
use tacita_oram::record::{Operation, digest_of};
use tacita_secret::Key;
use tacita_vfs::{FileType, NewNode};

use crate::blocks::{Blocks, Room};
use crate::error::{Error, Kind, Result};
use crate::ids::Ids;
use crate::privatefs::random;
use crate::register::Register;
use crate::tree::{Fresh, empty_directory};
use crate::turn::full;

/// Blocks that a store must have room for: with fewer nothing could be changed.
const BLOCKS_MIN: u64 = 128;

/// Makes a file system in a store; `owner` owns the root directory.
///
/// # Errors
/// [`Kind::Exists`] if there is one; [`Kind::Parameters`] if the store is too small. Nothing has changed
/// then.
pub fn format(
    blocks: &dyn Blocks,
    key: &Key,
    clock: &Arc<dyn Clock>,
    owner: (u32, u32),
) -> Result<()> {
    let ids = Ids::new(key);
    let exists = || {
        Error::new(Kind::Exists, "there is a file system in the store already; nothing was changed")
    };
    let capacity = blocks.room()?.capacity;
    if capacity < BLOCKS_MIN {
        let text = format!("a store of {capacity} blocks is too small: {BLOCKS_MIN} are needed");
        return Err(Error::new(Kind::Parameters, text));
    }
    loop {
        // Before the register: what is found there is not what a file system has made of it since.
        let before = directories(blocks, &ids)?;
        if register(blocks, &ids)?.is_some() {
            return Err(exists());
        }
        if make_directories(blocks, &ids, before, (clock, owner))? {
            break;
        }
    }
    let new = Bytes::from(Register::new(random()?).encode());
    let swap = Operation::CompareAndWrite { expected: None, new };
    match &blocks.all(vec![(ids.register(), swap)])?[..] {
        [Outcome::Compared { written: true, .. }] => Ok(()),
        [Outcome::Full] => Err(full()),
        _ => Err(exists()),
    }
}

/// The directories that every file system has, as they are: one whose making was interrupted leaves them.
fn directories(blocks: &dyn Blocks, ids: &Ids) -> Result<[Option<Bytes>; 2]> {
    let read = |inode| (ids.inode(&inode), Operation::Read);
    match <[Outcome; 2]>::try_from(blocks.all([ids.root(), ids.graveyard()].map(read).to_vec())?) {
        Ok([Outcome::Was(root), Outcome::Was(graveyard)]) => Ok([root, graveyard]),
        _ => Err(not_done()),
    }
}

/// Makes them anew where they are what they were `before`; whether both were.
fn make_directories(
    blocks: &dyn Blocks,
    ids: &Ids,
    before: [Option<Bytes>; 2],
    (clock, owner): (&Arc<dyn Clock>, (u32, u32)),
) -> Result<bool> {
    let mut operations = Vec::new();
    for ((inode, perm), before) in
        [(ids.root(), 0o755), (ids.graveyard(), 0o700)].into_iter().zip(before)
    {
        let now = clock.wall().into();
        let new =
            NewNode { uid: owner.0, gid: owner.1, ..NewNode::new(FileType::Directory, perm, now) };
        let fresh = Fresh { inode, content: random()? };
        let new = Bytes::from(empty_directory(fresh, inode, &new).encode());
        let expected = before.as_deref().map(digest_of);
        operations.push((ids.inode(&inode), Operation::CompareAndWrite { expected, new }));
    }
    let outcomes = blocks.all(operations)?;
    if outcomes.contains(&Outcome::Full) {
        return Err(full());
    }
    Ok(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Compared { written: true, .. })))
}

fn not_done() -> Error {
    Error::damaged("the store did not do a query")
}

fn register(blocks: &dyn Blocks, ids: &Ids) -> Result<Option<Bytes>> {
    match blocks.all(vec![(ids.register(), Operation::Read)])?.pop() {
        Some(Outcome::Was(block)) => Ok(block),
        _ => Err(not_done()),
    }
}

/// What there is to be known without mounting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Mounts, whose turn it is, commits.
    pub register: Register,
    /// Room in the store.
    pub room: Room,
}

/// What there is to be known without mounting.
///
/// # Errors
/// [`Kind::NotFormatted`]; [`Kind::Version`]; [`Kind::Damaged`].
pub fn facts(blocks: &dyn Blocks, key: &Key) -> Result<Facts> {
    let Some(block) = register(blocks, &Ids::new(key))? else {
        let text = "there is no file system in the store; `tacita privatefs format` makes one";
        return Err(Error::new(Kind::NotFormatted, text));
    };
    Ok(Facts { register: Register::decode(&block)?, room: blocks.room()? })
}
