//! Numbers of nodes in memory, and the inodes that they stand for.

use std::collections::HashMap;

use tacita_vfs::{Kind, NodeId};

use crate::ids::Id;
use crate::tree::node_id;

/// A node that somebody may refer to.
#[derive(Debug, Clone, Copy)]
struct Node {
    id: Id,
    /// The turn in which its content was opened last.
    opened: u64,
    begun: Option<Begun>,
}

/// A content, and the turn in which it was begun.
pub(crate) type Begun = (Id, u64);

/// Nodes in memory.
#[derive(Debug)]
pub(crate) struct Nodes {
    root: NodeId,
    by_node: HashMap<NodeId, Node>,
    by_id: HashMap<Id, NodeId>,
}

impl Nodes {
    /// The root directory alone, which always has its number.
    pub(crate) fn new(root: &Id) -> Self {
        let mut nodes =
            Self { root: node_id(root), by_node: HashMap::new(), by_id: HashMap::new() };
        nodes.number(root);
        nodes
    }

    /// The number of an inode.
    pub(crate) fn number(&mut self, id: &Id) -> NodeId {
        if let Some(node) = self.by_id.get(id) {
            return *node;
        }
        let mut node = node_id(id);
        while self.by_node.contains_key(&node) {
            node.0 += 1;
        }
        self.by_node.insert(node, Node { id: *id, opened: 0, begun: None });
        self.by_id.insert(*id, node);
        node
    }

    /// The inode of a number.
    pub(crate) fn id(&self, node: NodeId) -> tacita_vfs::Result<Id> {
        self.by_node.get(&node).map(|node| node.id).ok_or_else(|| Kind::Stale.into())
    }

    /// The content of a node was begun.
    pub(crate) fn begin_content(&mut self, node: NodeId, begun: Begun) {
        if let Some(node) = self.by_node.get_mut(&node) {
            node.begun = Some(begun);
        }
    }

    /// The content of a node that was begun last, as far as is known here.
    pub(crate) fn begun(&self, node: NodeId) -> Option<Begun> {
        self.by_node.get(&node)?.begun
    }

    /// Nobody refers to a number any more.
    pub(crate) fn forget(&mut self, node: NodeId) -> Option<Id> {
        if node == self.root {
            return None;
        }
        let node = self.by_node.remove(&node)?;
        self.by_id.remove(&node.id);
        Some(node.id)
    }

    /// A file is opened in this turn; whether the kernel may have pages of it from an older one.
    pub(crate) fn opened(&mut self, node: NodeId, epoch: u64) -> bool {
        let Some(node) = self.by_node.get_mut(&node) else { return true };
        std::mem::replace(&mut node.opened, epoch) != epoch
    }
}
