//! Threads that help whoever has the head. They stay: a run of units takes less time than it takes to
//! make threads for it.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Kind, Result};
use crate::faults::any_planted;
use crate::open_log::OpenLog;
use crate::tail::{Tail, read_tails};

/// As many threads as there are processors.
#[derive(Debug)]
pub(crate) struct Team(rayon::ThreadPool);

impl Team {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system has none.
    pub(crate) fn start() -> Result<Self> {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let named = |index| format!("pddm-{index}");
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(named).build();
        let failed =
            |e| Error::new(Kind::Device, format!("there are no threads to seal units: {e}"));
        pool.map(Self).map_err(failed)
    }

    /// Does `work` with each of `items`, side by side, here and wherever there is a thread for it, and
    /// meanwhile reads the tails of these units.
    pub(crate) fn work<T: Send>(
        &self,
        items: impl ExactSizeIterator<Item = T> + Send,
        work: impl Fn(T) + Sync,
        shared: &OpenLog,
        ahead: Range<u64>,
    ) -> Vec<Tail> {
        let mut tails = Vec::new();
        let threads = self.0.current_num_threads().min(items.len());
        // A fault that a test has planted is one of this thread.
        let helpers = if any_planted() { 0 } else { threads.saturating_sub(1) };
        let items = Mutex::new(items);
        let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
        // Each takes the next as long as there is one, so that nobody waits for the slowest.
        let do_all = || std::iter::from_fn(next).for_each(&work);
        self.0.in_place_scope(|scope| {
            if !ahead.is_empty() {
                scope.spawn(|_| tails = read_tails(shared, ahead));
            }
            for _ in 0..helpers {
                scope.spawn(|_| do_all());
            }
            do_all();
        });
        tails
    }
}
