//! A constant rate: so many queries a second, whether there is anything to ask or not, so that the
//! number and times of queries tell nothing.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use std::collections::VecDeque;
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval};

use super::Shared;
use crate::keys::Id;
use crate::record::Operation;
use crate::waiters::Waiter;

/// The highest rate, in queries a second.
pub const RATE_MAX: u32 = 100_000;

/// With so many queries under way the server does not keep up, and no turn is given: twice as many as a
/// connection asks for at once. Others would only wait behind them, and in memory.
const UNDER_WAY_MAX: u64 = 256;

/// Queries that wait for their turn.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<VecDeque<oneshot::Sender<()>>>);

impl Turns {
    /// Returns when it is this query's turn.
    pub(super) async fn turn(&self) {
        let (turn, comes) = oneshot::channel();
        self.lock().push_back(turn);
        // Dropped unsent only when the client closes; then the query finds out by itself.
        let _ = comes.await;
    }

    /// Gives the next turn to whoever waits; whether anybody did.
    fn give(&self) -> bool {
        let mut waiting = self.lock();
        while let Some(next) = waiting.pop_front() {
            if next.send(()).is_ok() {
                return true;
            }
        }
        false
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<oneshot::Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Gives turns at a constant rate, and asks for nothing where nobody waits.
    pub(super) async fn keep_rate(self: Arc<Self>, between: Duration) -> crate::Result<()> {
        let Some(turns) = &self.turns else { return Ok(()) };
        let mut ticks = interval(between);
        // After a pause the rate goes on; it does not make up for what was missed.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let (failed, under_way) = {
                let state = self.lock();
                (state.failed.clone(), state.under_way)
            };
            if let Some(error) = failed {
                return Err(error);
            }
            // Whether they are dummies makes no difference, nor whether anybody waits.
            if under_way < UNDER_WAY_MAX && !turns.give() {
                let shared = self.clone();
                let awaited = Arc::new(Waiter::begin(&self.awaited));
                // What becomes of it is of no interest, but that it is asked.
                tokio::spawn(shared.query(self.salt()?, Id::default(), Operation::Dummy, awaited));
            }
        }
    }
}
