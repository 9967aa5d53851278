//! A clock that stands still until it is told to go on.

use std::collections::BTreeMap;
use std::collections::btree_map::OccupiedEntry;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use crate::{Clock, Event};

/// How long [`Simulated::await_waiters`] waits, in time of the machine: only a broken test comes here.
const PATIENCE: Duration = Duration::from_mins(5);

/// A clock on which no time passes but by [`Simulated::advance`] and its like.
#[derive(Debug)]
pub struct Simulated {
    tick: Duration,
    state: Mutex<State>,
    /// Somebody waits.
    came: Condvar,
}

#[derive(Debug)]
struct State {
    /// The time of day when the clock began, had it been right then.
    begin: SystemTime,
    now: Duration,
    slept: Duration,
    /// Who waits, by when the wait ends and then by who came first.
    waiters: BTreeMap<(Duration, u64), Waiter>,
    last: u64,
}

#[derive(Debug, Clone)]
struct Waiter {
    event: Event,
    seen: u64,
}

impl Simulated {
    /// A clock at a time of day.
    pub fn at(begin: SystemTime) -> Self {
        Self::ticking(begin, Duration::ZERO)
    }

    /// A clock that goes on by `tick` before the time of day is told, so that no two are equal.
    pub fn ticking(begin: SystemTime, tick: Duration) -> Self {
        let state = State {
            begin,
            now: Duration::ZERO,
            slept: Duration::ZERO,
            waiters: BTreeMap::new(),
            last: 0,
        };
        Self { tick, state: Mutex::new(state), came: Condvar::new() }
    }

    /// Lets time pass, at once for all whose wait ends by then; they are woken in the order of that.
    pub fn advance(&self, time: Duration) {
        let until = self.monotonic() + time;
        while let Some(waiter) = self.go_on(until) {
            waiter.event.wake();
        }
    }

    /// Lets time pass for `count` threads that wait again and again: time stands still while one of
    /// them does not wait, and each sees the time that it has waited for.
    pub fn advance_among(&self, count: usize, time: Duration) {
        let until = self.monotonic() + time;
        loop {
            self.await_waiters(count);
            match self.go_on(until) {
                Some(waiter) => waiter.event.wake(),
                None => return,
            }
        }
    }

    /// Lets time pass until the next wait ends; false if nobody waits.
    pub fn advance_to_next(&self) -> bool {
        let next = self.state().waiters.first_key_value().map(|((end, _), _)| *end);
        let Some(next) = next else { return false };
        self.advance(next.saturating_sub(self.monotonic()));
        true
    }

    /// Sets the time of day, as somebody does who sets the clock of a machine; no time passes by that.
    pub fn set_wall(&self, to: SystemTime) {
        let mut state = self.state();
        state.begin = to - state.now - state.slept;
    }

    /// Lets the machine sleep for so long: no wait ends by that.
    pub fn sleep(&self, time: Duration) {
        self.state().slept += time;
    }

    /// Waits until so many threads wait for this clock.
    ///
    /// # Panics
    /// If they do not within minutes of the machine.
    pub fn await_waiters(&self, count: usize) {
        let too_few = |state: &mut State| state.waiting() < count;
        let waited = self.came.wait_timeout_while(self.state(), PATIENCE, too_few);
        let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!waited.timed_out(), "{} wait, and not {count}", state.waiting());
    }

    /// How many threads wait for this clock.
    pub fn waiting(&self) -> usize {
        self.state().waiting()
    }

    /// Moves time to the next moment at which a wait ends, if that is not after `until`, and takes
    /// that waiter out, or else to `until`.
    fn go_on(&self, until: Duration) -> Option<Waiter> {
        let mut state = self.state();
        let due = state.waiters.first_entry().filter(|first| first.key().0 <= until);
        let due = due.map(OccupiedEntry::remove_entry);
        let to = due.as_ref().map_or(until, |((end, _), _)| *end);
        state.now = state.now.max(to);
        due.map(|(_, waiter)| waiter)
    }

    // Every change under the lock is whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn waiting(&self) -> usize {
        self.waiters.values().filter(|waiter| waiter.event.seen() == waiter.seen).count()
    }
}

impl Clock for Simulated {
    fn wall(&self) -> SystemTime {
        if !self.tick.is_zero() {
            self.advance(self.tick);
        }
        let state = self.state();
        state.begin + state.now + state.slept
    }

    fn monotonic(&self) -> Duration {
        self.state().now
    }

    fn boottime(&self) -> Duration {
        let state = self.state();
        state.now + state.slept
    }

    fn wait_event(&self, event: &Event, seen: u64, time: Duration) -> bool {
        let mut state = self.state();
        let end = state.now.saturating_add(time);
        state.last += 1;
        let key = (end, state.last);
        if !time.is_zero() {
            state.waiters.insert(key, Waiter { event: event.clone(), seen });
        }
        drop(state);
        self.came.notify_all();
        let happened = event.block(seen, None, || !self.state().waiters.contains_key(&key));
        self.state().waiters.remove(&key);
        happened
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};
    use std::sync::{Arc, PoisonError};
    use std::thread::JoinHandle;

    use super::*;
    use crate::Cancellation;

    const SECOND: Duration = Duration::from_secs(1);

    fn simulated() -> Arc<Simulated> {
        Arc::new(Simulated::at(SystemTime::UNIX_EPOCH + 1000 * SECOND))
    }

    /// Threads that wait so many seconds each, again and again; what they say they have seen.
    fn waiting(clock: &Arc<Simulated>, seconds: &[u32]) -> Receiver<(u32, Duration)> {
        let (tell, told) = channel();
        for (seconds, before) in seconds.iter().copied().zip(0..) {
            let (own, tell) = (Arc::clone(clock), tell.clone());
            std::thread::spawn(move || {
                loop {
                    own.wait(seconds * SECOND);
                    if tell.send((seconds, own.monotonic())).is_err() {
                        return;
                    }
                }
            });
            clock.await_waiters(before + 1_usize);
        }
        told
    }

    #[test]
    fn time_stands_still_until_it_is_told_to_go_on() {
        let clock = simulated();
        assert_eq!((clock.monotonic(), clock.monotonic()), (Duration::ZERO, Duration::ZERO));
        clock.advance(5 * SECOND);
        assert_eq!(clock.monotonic(), 5 * SECOND);
        assert_eq!(clock.wall(), SystemTime::UNIX_EPOCH + 1005 * SECOND);
    }

    #[test]
    fn a_ticking_clock_tells_no_time_twice() {
        let clock = Simulated::ticking(SystemTime::UNIX_EPOCH, SECOND);
        assert_eq!(clock.wall(), SystemTime::UNIX_EPOCH + SECOND);
        assert_eq!(clock.wall(), SystemTime::UNIX_EPOCH + 2 * SECOND);
        assert_eq!(clock.monotonic(), 2 * SECOND);
    }

    #[test]
    fn waits_end_neither_by_sleeping_nor_by_setting_the_time_of_day() {
        let clock = simulated();
        let told = waiting(&clock, &[10]);
        clock.advance(SECOND);
        clock.sleep(3600 * SECOND);
        assert_eq!(clock.wall(), SystemTime::UNIX_EPOCH + 4601 * SECOND);
        for day in [0, 5] {
            let set = SystemTime::UNIX_EPOCH + 86_400 * day * SECOND;
            clock.set_wall(set);
            assert_eq!(clock.wall(), set);
        }
        assert_eq!((clock.monotonic(), clock.boottime()), (SECOND, 3601 * SECOND));
        assert_eq!((clock.waiting(), told.try_recv().ok()), (1, None));
        clock.advance(9 * SECOND);
        assert_eq!(told.recv(), Ok((10, 10 * SECOND)));
    }

    #[test]
    fn each_waiter_sees_its_own_time_in_order() {
        let clock = simulated();
        let told = waiting(&clock, &[3, 2]);
        clock.advance_among(2, 6 * SECOND);
        clock.await_waiters(2);
        let told: Vec<_> = told.try_iter().map(|(who, when)| (who, when.as_secs())).collect();
        // Of those that end at the same time, who came first is first.
        assert_eq!(told, [(2, 2), (3, 3), (2, 4), (3, 6), (2, 6)]);
    }

    #[test]
    fn waits_that_are_not_over_go_on() {
        let clock = simulated();
        let told = waiting(&clock, &[10]);
        clock.advance(9 * SECOND);
        assert_eq!(clock.waiting(), 1);
        clock.advance(SECOND);
        assert_eq!(told.recv(), Ok((10, 10 * SECOND)));
        clock.wait(Duration::ZERO);
    }

    fn cancellable(clock: &Arc<Simulated>, with: &Cancellation) -> JoinHandle<bool> {
        let (clock, with) = (Arc::clone(clock), with.clone());
        std::thread::spawn(move || clock.wait_or(&with, SECOND))
    }

    #[test]
    fn what_is_cancelled_waits_no_more() {
        let (clock, cancellation) = (simulated(), Cancellation::default());
        let waiter = cancellable(&clock, &cancellation);
        clock.await_waiters(1);
        clock.advance(SECOND);
        assert!(!waiter.join().unwrap(), "it has had its time");
        let waiter = cancellable(&clock, &cancellation);
        clock.await_waiters(1);
        cancellation.cancel();
        assert_eq!(clock.waiting(), 0);
        assert!(waiter.join().unwrap());
        assert_eq!(clock.monotonic(), SECOND);
    }

    #[test]
    fn an_event_ends_a_wait_when_what_is_waited_for_is_there() {
        let (clock, event) = (simulated(), Event::default());
        let box_of = Arc::new(Mutex::new(0));
        let start = || {
            let (clock, event, own) = (Arc::clone(&clock), event.clone(), Arc::clone(&box_of));
            std::thread::spawn(move || event.wait_while(&*clock, &own, SECOND, |n| *n < 2).1)
        };
        let put = |n| {
            *box_of.lock().unwrap_or_else(PoisonError::into_inner) = n;
            event.notify();
        };
        let waiter = start();
        clock.await_waiters(1);
        put(1);
        clock.await_waiters(1);
        put(2);
        assert!(waiter.join().unwrap(), "it has come");
        put(0);
        let waiter = start();
        clock.await_waiters(1);
        clock.advance(SECOND);
        assert!(!waiter.join().unwrap(), "its time is over");
    }
}
