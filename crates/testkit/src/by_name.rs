//! Names taken away and moved by name alone, for tests that nobody disturbs: the seam wants to be
//! told what a name stands for, which above it is found under a lock.

use std::ffi::OsStr;

use tacita_vfs::{Exchange, FileSystem, Kind, Link, NodeId, Result, Target, Timestamp};

/// Takes a name away, and returns the node that it stood for.
///
/// # Errors
/// As [`FileSystem::lookup`] and [`FileSystem::remove`].
pub fn remove(fs: &dyn FileSystem, dir: NodeId, name: &OsStr, now: Timestamp) -> Result<NodeId> {
    let (node, _) = fs.lookup(dir, name)?;
    fs.remove(Link { dir, name, node }, now)?;
    Ok(node)
}

/// Moves a name, and returns the node that it stood for before, if any: the one replaced or traded.
///
/// # Errors
/// As [`FileSystem::lookup`] and [`FileSystem::rename`].
pub fn rename(
    fs: &dyn FileSystem,
    from: (NodeId, &OsStr),
    to: (NodeId, &OsStr),
    exchange: Exchange,
    now: Timestamp,
) -> Result<Option<NodeId>> {
    let (node, _) = fs.lookup(from.0, from.1)?;
    let other = match fs.lookup(to.0, to.1) {
        Ok((other, _)) => Some(other),
        Err(e) if e.kind() == Kind::NotFound => None,
        Err(e) => return Err(e),
    };
    let link = Link { dir: from.0, name: from.1, node };
    let target = Target { dir: to.0, name: to.1, node: other };
    fs.rename(link, target, exchange, now)?;
    Ok(other)
}
