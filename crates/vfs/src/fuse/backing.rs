//! Lower files that the kernel reads and writes directly (passthrough).

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fuser::BackingId;
use tacita_clock::Clock;

use crate::NodeId;
use crate::posix::HandleId;

/// How often it is looked whether files are still open, and how long it takes to look again.
const LOOKS_MAX: u32 = 100;
const LOOK_PAUSE: Duration = Duration::from_millis(5);

/// What the kernel does with the lower file of a node that is open.
#[derive(Debug)]
struct Lower<I> {
    /// Its registration; `None` if the kernel has refused it.
    id: Option<Arc<I>>,
    /// The handles that were opened so, and whether for writing.
    handles: HashMap<HandleId, bool>,
}

/// Registered lower files. The kernel wants all open handles of a node alike: with one registration
/// that they share, or all without. What was settled for the first holds until the last is closed.
#[derive(Debug)]
pub(super) struct Backings<I = BackingId> {
    open: Mutex<HashMap<NodeId, Lower<I>>>,
}

impl<I> Default for Backings<I> {
    fn default() -> Self {
        Self { open: Mutex::default() }
    }
}

impl<I> Backings<I> {
    fn lock(&self) -> MutexGuard<'_, HashMap<NodeId, Lower<I>>> {
        // Every change under this lock is whole before anything can fail.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The registration of the lower file of `node`, for `handle` until [`Backings::release`];
    /// `None` if the kernel refuses, which it does without the privilege or on an unsuitable file.
    pub(super) fn take(
        &self,
        (node, handle): (NodeId, HandleId),
        writes: bool,
        file: &File,
        register: impl FnOnce(&File) -> io::Result<I>,
    ) -> Option<Arc<I>> {
        let mut open = self.lock();
        // The kernel is asked under the lock, for it refuses a second registration.
        let lower = open.entry(node).or_insert_with(|| {
            let id = register(file).inspect_err(|e| log::debug!("no passthrough: {e}"));
            Lower { id: id.ok().map(Arc::new), handles: HashMap::new() }
        });
        lower.handles.insert(handle, writes);
        lower.id.clone()
    }

    /// Whether the kernel may write to the lower file of `node`, also by a mapping, of which it tells
    /// nobody.
    pub(super) fn is_written(&self, node: NodeId) -> bool {
        let open = self.lock();
        open.get(&node)
            .is_some_and(|lower| lower.id.is_some() && lower.handles.values().any(|writes| *writes))
    }

    /// Waits a little until nothing is open, for whoever closes a file does not wait for us. What is registered when
    /// the mount ends stays so until the process does, and its file system in use with it.
    pub(super) fn settle(&self, clock: &impl Clock) {
        let mut looks = 0..LOOKS_MAX;
        while !self.lock().is_empty() && looks.next().is_some() {
            clock.wait(LOOK_PAUSE);
        }
    }

    /// The mount has ended: whoever closes a file is not heard any more.
    pub(super) fn end(&self) {
        let ended = std::mem::take(&mut *self.lock());
        // Here the kernel is told.
        drop(ended);
    }

    /// A handle of `node` is closed, whether or not it had the registration.
    pub(super) fn release(&self, node: NodeId, handle: HandleId) {
        let mut open = self.lock();
        let Some(lower) = open.get_mut(&node) else {
            return;
        };
        lower.handles.remove(&handle);
        if lower.handles.is_empty() {
            let ended = open.remove(&node);
            drop(open);
            // Here the kernel is told, for which nobody else has to wait.
            drop(ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(7);

    fn take(backings: &Backings<u32>, handle: u64, id: Option<u32>) -> Option<u32> {
        let file = File::open("/dev/null").unwrap();
        let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
        let register = |_: &File| id.ok_or_else(refused);
        backings.take((NODE, HandleId(handle)), handle > 10, &file, register).map(|id| *id)
    }

    #[test]
    fn handles_share_a_registration_until_the_last_is_closed() {
        let backings = Backings::default();
        assert_eq!(take(&backings, 1, Some(10)), Some(10));
        assert_eq!(take(&backings, 2, Some(20)), Some(10), "one per node");
        backings.release(NODE, HandleId(1));
        assert_eq!(take(&backings, 3, Some(30)), Some(10), "still in use");
        backings.release(NODE, HandleId(2));
        backings.release(NODE, HandleId(3));
        assert_eq!(take(&backings, 4, Some(40)), Some(40), "the first has ended");
    }

    #[test]
    fn whoever_may_write_is_known_until_it_is_closed() {
        let backings = Backings::default();
        take(&backings, 1, Some(10));
        assert!(!backings.is_written(NODE));
        take(&backings, 11, Some(10));
        take(&backings, 12, Some(10));
        backings.release(NODE, HandleId(11));
        assert!(backings.is_written(NODE));
        backings.release(NODE, HandleId(12));
        assert!(!backings.is_written(NODE));
        backings.release(NODE, HandleId(1));
        take(&backings, 11, None);
        assert!(!backings.is_written(NODE), "what is refused passes through here");
    }

    #[test]
    fn a_handle_without_the_registration_does_not_end_it() {
        let backings = Backings::default();
        assert_eq!(take(&backings, 2, Some(20)), Some(20));
        backings.release(NODE, HandleId(1));
        assert_eq!(take(&backings, 3, Some(30)), Some(20), "handle 2 goes on using it");
        backings.release(NODE, HandleId(2));
        backings.release(NODE, HandleId(2));
        assert_eq!(take(&backings, 4, Some(40)), Some(20), "handle 3 goes on using it");
    }

    /// Else its file system stays in use until the process ends.
    #[test]
    fn what_is_registered_at_the_end_is_let_go_of() {
        let (backings, id) = (Backings::default(), Arc::new(()));
        let file = File::open("/dev/null").unwrap();
        let register = |_: &File| Ok(Arc::clone(&id));
        drop(backings.take((NODE, HandleId(1)), false, &file, register));
        assert_eq!(Arc::strong_count(&id), 2);
        backings.end();
        assert_eq!(Arc::strong_count(&id), 1);
        backings.release(NODE, HandleId(1));
    }

    #[test]
    fn a_refusal_holds_as_long_as_a_handle_is_open_with_it() {
        let backings = Backings::default();
        assert_eq!(take(&backings, 1, None), None);
        assert_eq!(take(&backings, 2, Some(20)), None, "the kernel takes no mixture");
        backings.release(NODE, HandleId(1));
        assert_eq!(take(&backings, 3, Some(30)), None);
        backings.release(NODE, HandleId(2));
        backings.release(NODE, HandleId(3));
        assert_eq!(take(&backings, 4, Some(40)), Some(40));
    }
}
