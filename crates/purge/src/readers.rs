//! Reading the medium side by side: each reader waits for it most of the time.

use std::panic::resume_unwind;
use std::thread::{Builder, ScopedJoinHandle};

/// Readers at the same time. Eight are no quicker (docs/performance.md).
const COUNT: usize = 4;

/// Does the same work with so many readers, as far as there is work for each; what each has come to, in no order.
/// Where the system has no more threads, those that there are do it.
pub(crate) fn together<T: Send>(works: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let helper = || Builder::new().name("tacita-reader".to_owned());
        let others = 1..works.clamp(1, COUNT);
        let started = others.map_while(|_| helper().spawn_scoped(scope, &work).ok());
        let started: Vec<_> = started.collect();
        let mut done = vec![work()];
        let theirs = started.into_iter().map(ScopedJoinHandle::join);
        done.extend(theirs.map(|done| done.unwrap_or_else(|e| resume_unwind(e))));
        done
    })
}
