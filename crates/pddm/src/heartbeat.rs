//! The heartbeat: after some time without public writes units of padding are written, so that hidden
//! data gets to the device. It is a property of the device, the same whether there is any, and a
//! function of public writes alone.

use std::sync::Arc;
use std::time::Duration;

use tacita_clock::{Event, Worker};

use crate::error::{Result, no_thread};
use crate::session::Session;

/// How often it is looked whether something has been written, in shares of the interval.
const LOOKS: u32 = 8;

/// So many beats follow a public write at the chosen interval. Then it doubles, up to as many times
/// the chosen one.
const QUICK_BEATS: u32 = 60;

/// When beat number `beat`, from 0, comes after the last public write.
fn beat_after(interval: Duration, beat: u32) -> Duration {
    let (mut at, mut step) = (interval * (beat + 1).min(QUICK_BEATS), 1);
    for slow in QUICK_BEATS..=beat {
        step = (step * 2).min(QUICK_BEATS);
        if step == QUICK_BEATS {
            return at + interval * QUICK_BEATS * (beat - slow + 1);
        }
        at += interval * step;
    }
    at
}

/// A thread that beats until it is dropped.
#[derive(Debug)]
pub struct Heartbeat {
    _worker: Worker,
}

impl Heartbeat {
    /// Beats at the interval chosen at init; `None` if that is never. Opening counts as a write.
    ///
    /// # Errors
    /// [`crate::Kind::NoThread`].
    pub fn start(session: Arc<Session>) -> Result<Option<Self>> {
        let every = Duration::from_millis(session.geometry().parameters().heartbeat_ms.into());
        if every.is_zero() {
            return Ok(None);
        }
        let clock = Arc::clone(session.clock());
        let mut seen = (session.public_changes(), clock.monotonic());
        let mut beat = 0;
        let look = move || {
            let (changes, clock) = (session.public_changes(), session.clock());
            if changes != seen.0 {
                seen = (changes, clock.monotonic());
                beat = 0;
            } else if clock.elapsed(seen.1) >= beat_after(every, beat) {
                // A device that cannot be written is noticed by whoever writes to it.
                let _ = session.beat();
                beat = beat.saturating_add(1);
            }
        };
        let worker =
            Worker::start("tacita-beat", clock, Event::default(), Some(every / LOOKS), look);
        let worker = worker.map_err(|e| no_thread("beats", &e))?;
        Ok(Some(Self { _worker: worker }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beats_come_every_second_for_a_minute_and_then_ever_more_slowly() {
        let seconds = |beat| beat_after(Duration::from_secs(1), beat).as_secs();
        assert_eq!([0, 1, 58, 59].map(seconds), [1, 2, 59, 60]);
        let slow: Vec<u64> = (60..68).map(seconds).collect();
        assert_eq!(slow, [62, 66, 74, 90, 122, 182, 242, 302]);
        // A day without public writes.
        let day = (0..9999).take_while(|beat| seconds(*beat) <= 86_400).count();
        assert_eq!(day, 60 + 5 + (86_400 - 122) / 60);
    }
}
