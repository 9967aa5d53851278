//! Queries under way at once, and how long each of them takes: what measures a store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// When a measurement ends: when so many queries have begun, or so much time has passed.
#[derive(Debug, Clone, Copy)]
pub struct Amount {
    /// Queries of all clients.
    pub queries: u64,
    /// No query begins after it.
    pub time: Duration,
}

/// What was measured.
#[derive(Debug, Clone)]
pub struct Load {
    /// How long each query took, the quickest first.
    times: Vec<Duration>,
    per_second: f64,
}

impl Load {
    /// Has each of `clients` ask one query after the other. A client is told the number of the query.
    ///
    /// # Errors
    /// The first error of a client.
    pub fn measure<C, E>(clients: Vec<C>, amount: Amount) -> Result<Self, E>
    where
        C: FnMut(u64) -> Result<(), E> + Send,
        E: Send,
    {
        let next = AtomicU64::new(0);
        let begin = Instant::now();
        let ask = |mut client: C| -> Result<(Vec<Duration>, Duration), E> {
            let mut times = Vec::new();
            while begin.elapsed() < amount.time {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= amount.queries {
                    break;
                }
                let asked = Instant::now();
                client(number)?;
                times.push(asked.elapsed());
            }
            Ok((times, begin.elapsed()))
        };
        let ask = &ask;
        let told = std::thread::scope(|scope| {
            let asking: Vec<_> =
                clients.into_iter().map(|client| scope.spawn(move || ask(client))).collect();
            let told =
                asking.into_iter().map(|thread| thread.join().expect("clients do not panic"));
            told.collect::<Result<Vec<_>, E>>()
        })?;
        // Each by its own time: the clients do not end at once, and the last ones have the server alone.
        let per_second = told.iter().map(|(times, took)| rate(times.len(), *took)).sum();
        let mut times: Vec<Duration> = told.into_iter().flat_map(|(times, _)| times).collect();
        times.sort_unstable();
        Ok(Self { times, per_second })
    }

    /// Queries that have ended.
    pub fn queries(&self) -> u64 {
        self.times.len() as u64
    }

    /// Queries a second, of all clients.
    pub const fn per_second(&self) -> f64 {
        self.per_second
    }

    /// The time that so many queries of a thousand did not exceed.
    pub fn at(&self, permille: usize) -> Duration {
        let last = self.times.len().saturating_sub(1);
        let place = (self.times.len() * permille / 1000).min(last);
        self.times.get(place).copied().unwrap_or_default()
    }
}

#[allow(clippy::cast_precision_loss, reason = "fewer than 2^53 queries")]
fn rate(count: usize, took: Duration) -> f64 {
    if took.is_zero() { 0.0 } else { count as f64 / took.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use super::*;

    const LONG: Duration = Duration::from_mins(10);

    #[test]
    fn so_many_queries_are_asked_once_each() {
        let asked = Mutex::new(BTreeSet::new());
        let client = |number| {
            assert!(asked.lock().unwrap().insert(number));
            Ok::<(), ()>(())
        };
        let amount = Amount { queries: 100, time: LONG };
        let load = Load::measure(vec![client; 7], amount).unwrap();
        assert_eq!((load.queries(), asked.lock().unwrap().len()), (100, 100));
        assert!(load.at(0) <= load.at(500) && load.at(500) <= load.at(999));
        assert!(load.per_second() > 0.0);
    }

    #[test]
    fn no_query_begins_when_the_time_is_over() {
        let amount = Amount { queries: 100, time: Duration::ZERO };
        let load = Load::measure(vec![|_| Ok::<(), ()>(()); 3], amount).unwrap();
        assert_eq!((load.queries(), load.at(999)), (0, Duration::ZERO));
    }

    #[test]
    fn an_error_ends_it() {
        let client = |number| if number == 5 { Err("five") } else { Ok(()) };
        let amount = Amount { queries: 100, time: LONG };
        assert_eq!(Load::measure(vec![client; 3], amount).unwrap_err(), "five");
    }
}
