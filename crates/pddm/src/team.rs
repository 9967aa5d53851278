//! Threads that help whoever has the head. They stay: a run of units takes less time than it takes to
//! make threads for it.

use std::collections::VecDeque;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use crate::error::{Result, no_thread};
use crate::faults::any_planted;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closing: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Shared {
    // Every change of the queue is one step.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job, for a thread that helps; `None` when there will be none.
    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.closing {
                return None;
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// As many threads as there are processors, with the one that asks.
pub(crate) struct Team {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Team {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Team").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl Team {
    /// Starts the threads.
    ///
    /// # Errors
    /// [`crate::Kind::NoThread`].
    pub(crate) fn start() -> Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let mut team = Self { shared: Arc::default(), threads: Vec::new() };
        for index in 1..processors {
            let shared = Arc::clone(&team.shared);
            let help = move || {
                while let Some(job) = shared.next() {
                    job();
                }
            };
            let thread = Builder::new().name(format!("pddm-{index}")).spawn(help);
            team.threads.push(thread.map_err(|e| no_thread("helps to seal units", &e))?);
        }
        Ok(team)
    }

    /// Does `work` with each of `items`, side by side, here and wherever there is a thread for it. What
    /// comes of them is in their order.
    pub(crate) fn work<T: Send + 'static, R: Send + 'static>(
        &self,
        items: Vec<T>,
        work: impl Fn(T) -> R + Clone + Send + 'static,
    ) -> Vec<R> {
        let count = items.len();
        // A fault that a test has planted is one of this thread.
        let helpers =
            if any_planted() { 0 } else { self.threads.len().min(count.saturating_sub(1)) };
        let items = Arc::new(Mutex::new(items.into_iter().enumerate()));
        let (done, results) = channel();
        // Each takes the next as long as there is one, so that nobody waits for the slowest.
        let do_all = move || {
            let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
            for (index, item) in std::iter::from_fn(next) {
                // Whoever waits for it is gone only if it has panicked.
                let _ = done.send((index, work(item)));
            }
        };
        if helpers > 0 {
            let mut queue = self.shared.lock();
            queue.jobs.extend((0..helpers).map(|_| Box::new(do_all.clone()) as Job));
            drop(queue);
            self.shared.changed.notify_all();
        }
        do_all();
        drop(do_all);
        let mut ordered: Vec<Option<R>> = std::iter::repeat_with(|| None).take(count).collect();
        // A thread that panics leaves its result out, and this one panics below.
        results.iter().take(count).for_each(|(index, result)| ordered[index] = Some(result));
        ordered
            .into_iter()
            .map(|result| result.expect("a thread that helps has panicked"))
            .collect()
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A panic there has been printed already.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::time::Duration;

    use tacita_clock::{Clock, System};

    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let team = Team::start().unwrap();
        for count in [1, 2, 7, 100] {
            let twice = team.work((0..count).collect(), |n: usize| {
                System.wait(Duration::from_micros((n % 3) as u64 * 100));
                2 * n
            });
            assert_eq!(twice, (0..count).map(|n| 2 * n).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_panic_of_a_thread_that_helps_is_one_here() {
        let team = Team::start().unwrap();
        if team.threads.is_empty() {
            eprintln!("SKIPPED: a_panic_of_a_thread_that_helps_is_one_here: one processor");
            return;
        }
        let here = std::thread::current().id();
        // Neither goes on before the other has come, so that both have one.
        let both = Arc::new(Barrier::new(2));
        let work = move |()| {
            both.wait();
            assert_eq!(std::thread::current().id(), here, "somebody helps");
        };
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            team.work(vec![(); 2], work);
        }));
        assert!(done.is_err());
    }
}
