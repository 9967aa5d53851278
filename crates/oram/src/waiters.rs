//! Patience with one server: it ends when the server lets nothing end, not when it takes long for all that
//! it has been asked.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

/// Those who wait, in the order in which they asked: since when neither they nor any who asked before them
/// have been answered.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<BTreeMap<u64, Instant>>);

/// One of them, as long as it lives.
#[derive(Debug)]
pub(crate) struct Waiter {
    all: Arc<Waiters>,
    /// Those who asked later have higher ones.
    number: u64,
    /// Whether the server may have what it waits for.
    has_gone_out: AtomicBool,
}

impl Waiters {
    // Every change is one step.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiter {
    pub(crate) fn begin(all: &Arc<Waiters>) -> Self {
        let mut waiting = all.lock();
        let number = waiting.last_key_value().map_or(0, |(last, _)| last + 1);
        waiting.insert(number, Instant::now());
        Self { all: Arc::clone(all), number, has_gone_out: AtomicBool::new(false) }
    }

    /// From now on the server may have what it waits for.
    pub(crate) fn goes_out(&self) {
        self.has_gone_out.store(true, Ordering::SeqCst);
    }

    /// Whether the server may have what it waits for.
    pub(crate) fn has_gone_out(&self) -> bool {
        self.has_gone_out.load(Ordering::SeqCst)
    }

    /// It is answered: who has waited behind it has all patience again.
    pub(crate) fn is_answered(&self) {
        let now = Instant::now();
        self.all.lock().range_mut(self.number..).for_each(|(_, since)| *since = now);
    }

    /// When so much patience ends, as things are.
    pub(crate) fn until(&self, patience: Duration) -> Instant {
        self.all.lock()[&self.number] + patience
    }

    /// Waits until so much patience ends; `None` then.
    pub(crate) async fn patiently<T>(
        &self,
        patience: Duration,
        done: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::pin!(done);
        loop {
            let until = self.until(patience);
            match timeout_at(until, &mut done).await {
                Ok(done) => return Some(done),
                Err(_) if self.until(patience) > until => {}
                Err(_) => return None,
            }
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.all.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// Asks ten times at once; each answer takes fifteen seconds by itself, and none comes from the seventh
    /// on. Returns how many were answered, and after how many seconds the last gave up.
    #[tokio::test(start_paused = true)]
    async fn patience_is_with_who_answers_nobody() {
        let (all, begun) = (Arc::new(Waiters::default()), Instant::now());
        let mut asked = tokio::task::JoinSet::new();
        for n in 1..=10u32 {
            let waiter = Waiter::begin(&all);
            let seconds = if n < 7 { 15 * u64::from(n) } else { 999 };
            let answer = sleep(Duration::from_secs(seconds));
            asked.spawn(async move {
                let answered = waiter.patiently(PATIENCE, answer).await.is_some();
                if answered {
                    waiter.is_answered();
                }
                (answered, begun.elapsed().as_secs())
            });
        }
        let mut ends = asked.join_all().await;
        ends.sort_unstable_by_key(|(_, at)| *at);
        assert!(ends[..6].iter().all(|(answered, _)| *answered), "{ends:?}");
        assert!(ends[6..].iter().all(|end| *end == (false, 6 * 15 + 20)), "{ends:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn later_answers_give_none() {
        let (all, begun) = (Arc::new(Waiters::default()), Instant::now());
        let first = Waiter::begin(&all);
        let later = Waiter::begin(&all);
        tokio::spawn(async move {
            sleep(PATIENCE / 2).await;
            later.is_answered();
        });
        assert_eq!(first.patiently(PATIENCE, std::future::pending::<()>()).await, None);
        assert_eq!(begun.elapsed().as_secs(), PATIENCE.as_secs());
    }
}
