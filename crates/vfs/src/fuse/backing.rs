//! Lower files that the kernel reads and writes directly (passthrough).

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use fuser::BackingId;

use crate::NodeId;

/// Registered lower files; the kernel wants one per node, shared by all its open handles.
#[derive(Debug, Default)]
pub(super) struct Backings {
    open: Mutex<HashMap<NodeId, (Arc<BackingId>, u64)>>,
}

impl Backings {
    /// The registration of the lower file of `node`, counted until [`Backings::release`]; `None` if
    /// the kernel refuses, which it does without the privilege or on an unsuitable file.
    pub(super) fn take(
        &self,
        node: NodeId,
        file: &File,
        register: impl FnOnce(&File) -> io::Result<BackingId>,
    ) -> Option<Arc<BackingId>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((id, count)) = open.get_mut(&node) {
            *count += 1;
            return Some(Arc::clone(id));
        }
        let id = match register(file) {
            Ok(id) => Arc::new(id),
            Err(e) => {
                log::debug!("no passthrough: {e}");
                return None;
            }
        };
        open.insert(node, (Arc::clone(&id), 1));
        Some(id)
    }

    /// A handle of `node` is closed, whether or not it had a registration.
    pub(super) fn release(&self, node: NodeId) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, count)) = open.get_mut(&node) {
            *count -= 1;
            if *count == 0 {
                open.remove(&node);
            }
        }
    }
}
