//! Whose blocks they are that have to move and cannot be read.

use crate::error::{Error, Kind};
use crate::geometry::{BLOCK_LEN, Table};
use crate::journal::Unread;
use crate::tree::State;
use tacita_vfs::NodeId;

/// Names the files that keep a commit from being made, and remembers them: they can be deleted, however much
/// is pending.
///
/// The image has no form for a file of which something is not known. Where the file lay, what cannot be read
/// may be there the next time, so nothing else goes there; and where all others go follows from all of them.
pub(super) fn in_the_way(state: &mut State, unread: &[Unread]) -> Error {
    let geometry = state.superblock.geometry;
    let mut files = Vec::new();
    for one in unread {
        let cell = geometry.cell_at(Table::Buckets, one.to);
        let Some((owner, bucket)) = cell.and_then(|cell| state.buckets.occupant(cell)) else {
            continue;
        };
        let block = u64::from(bucket) * u64::from(geometry.bucket_blocks) + u64::from(one.index);
        files.extend(state.node_of(owner).map(|(node, _)| (node, block, one.at)));
    }
    files.sort_unstable();
    state.in_the_way = files.iter().map(|(node, ..)| *node).collect();
    let Some((node, block, at)) = files.first() else {
        return Error::new(Kind::Unreadable, "what has to move cannot be read");
    };
    let first = block * BLOCK_LEN as u64;
    let size = state.nodes.get(*node).map_or(u64::MAX, |node| node.size).max(first + 1);
    let others = match files.len() - 1 {
        0 => String::new(),
        others => format!(" (and {others} more blocks)"),
    };
    let text = format!(
        "block {} cannot be read, and bytes {first} to {} of {}, which lie there, have to move{others}: nothing \
         more is written to the image until these bytes are overwritten or the file is deleted",
        at.0,
        size.min(first + BLOCK_LEN as u64) - 1,
        shown(state, *node),
    );
    Error::new(Kind::Unreadable, text)
}

fn shown(state: &State, node: NodeId) -> String {
    match state.nodes.get(node).and_then(|node| node.owner_link()) {
        Some((dir, name)) => format!("{:?}", String::from_utf8_lossy(&state.path(*dir, name))),
        None => "a file that is in use and has no name".to_owned(),
    }
}
