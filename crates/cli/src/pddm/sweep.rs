//! `tacita pddm sweep`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tacita_block::Access;
use tacita_clock::{Clock, System};
use tacita_daemon::Interrupts;
use tacita_pddm::{Level, Options, Session, Unlock, Unread};

use super::{control, failure, only_if_wanted, open_device};
use crate::arguments::Pddm as Command;
use crate::exit::{self, Failure, Outcome};
use crate::output::{self, shown_name};

/// How often somebody who waits looks whether the sweep is to go on.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Keeps to a number of bytes a second.
pub(super) struct RateLimit {
    rate: Option<u64>,
    clock: Arc<dyn Clock>,
    begun: Duration,
}

impl RateLimit {
    pub(super) fn new(rate: Option<u64>, clock: Arc<dyn Clock>) -> Self {
        Self { rate: rate.filter(|rate| *rate > 0), begun: clock.monotonic(), clock }
    }

    /// Waits until so many bytes are due, unless it does not go on meanwhile: whether it does.
    pub(super) fn keep(&self, bytes: u64, goes_on: &mut dyn FnMut() -> bool) -> bool {
        while goes_on() {
            let left = self.left(bytes);
            if left.is_zero() {
                return true;
            }
            self.clock.wait(left.min(LOOK_EVERY));
        }
        false
    }

    /// How long it is until then.
    fn left(&self, bytes: u64) -> Duration {
        let Some(rate) = self.rate else { return Duration::ZERO };
        #[allow(clippy::cast_precision_loss, reason = "bytes and seconds of people")]
        let due = Duration::from_secs_f64(bytes as f64 / rate as f64);
        due.saturating_sub(self.clock.elapsed(self.begun))
    }
}

/// How a sweep ended, as its exit code tells.
pub(super) fn verdict(lost: u32) -> Outcome<()> {
    if lost == 0 {
        return Ok(());
    }
    let text = format!("{lost} blocks of the public volume are lost");
    Err(Failure::new(exit::WRONG, text)
        .with_remedy("they cannot be read until they are written again; all other blocks can"))
}

pub(super) fn run(command: &Command) -> Outcome<()> {
    let Command::Sweep { target, password, public_only, rate } = command else {
        unreachable!("called for sweep");
    };
    if control::is_endpoint(target) {
        return control::sweep(target, *public_only, *rate);
    }
    let device = open_device(target, Access::ReadWrite)?;
    let password = password.read("Password")?;
    // All is written anew: what cannot be read by now is lost.
    let unread = Unread::GivenUp;
    let options = Options { public_only: *public_only, unread, ..Options::default() };
    let session = Session::open(&device, Unlock::Password(&password), options);
    let session = session.map_err(|e| failure(target, &e))?;
    only_if_wanted(&session, *public_only)?;
    let Some(missed) = session.missed() else { return sweep(target, &session, *rate) };
    let text = format!("{}: {missed}: what it held is lost", shown_name(target));
    output::say(&format!("tacita: {text}"));
    sweep(target, &session, *rate)?;
    Err(Failure::new(exit::WRONG, text).with_remedy("all else is written anew"))
}

fn sweep(path: &Path, session: &Session, rate: Option<u64>) -> Outcome<()> {
    let mut interrupts = Interrupts::watch()?;
    let unit_len = u64::from(session.geometry().unit_blocks()) * 4096;
    let bar = output::progress("sweeping", u64::from(session.geometry().units()) * unit_len);
    let (limit, mut first) = (RateLimit::new(rate, Arc::new(System)), None);
    let whole = session.sweep(&mut |done, _| {
        bar.set_position(done * unit_len);
        let bytes = (done - *first.get_or_insert(done)) * unit_len;
        limit.keep(bytes, &mut || !interrupts.pending())
    });
    let whole = whole.map_err(|e| failure(path, &e))?;
    bar.finish_and_clear();
    session.close().map_err(|e| failure(path, &e))?;
    if !whole {
        let text = format!("{}: interrupted; nothing is lost", shown_name(path));
        return Err(Failure::new(exit::WRONG, text)
            .with_remedy("the next `tacita pddm sweep` continues where this one stopped"));
    }
    verdict(session.volume(Level::PUBLIC).expect("it is always open").lost_blocks())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::SystemTime;

    use tacita_clock::Simulated;

    use super::*;

    #[test]
    fn bytes_wait_until_they_are_due() {
        let clock = Arc::new(Simulated::at(SystemTime::UNIX_EPOCH));
        let limit = RateLimit::new(Some(1000), Arc::<Simulated>::clone(&clock));
        std::thread::scope(|scope| {
            let kept = scope.spawn(|| {
                assert!(limit.keep(0, &mut || true));
                assert!(limit.keep(2500, &mut || true));
                clock.monotonic()
            });
            clock.advance_among(1, Duration::from_millis(2400));
            assert_eq!(clock.waiting(), 1);
            clock.advance(Duration::from_millis(100));
            assert_eq!(kept.join().unwrap(), Duration::from_millis(2500));
        });
        // What is late already does not wait, nor does anything without a rate.
        assert!(limit.keep(2400, &mut || true));
        assert!(RateLimit::new(None, clock).keep(u64::MAX, &mut || true));
    }

    /// However long it is until the next bytes are due.
    #[test]
    fn who_is_to_end_does_not_wait_on() {
        let clock = Arc::new(Simulated::at(SystemTime::UNIX_EPOCH));
        let limit = RateLimit::new(Some(1), Arc::<Simulated>::clone(&clock));
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let kept = scope.spawn(|| limit.keep(1 << 40, &mut || !ends.load(Ordering::Relaxed)));
            clock.advance_among(1, Duration::from_secs(5));
            ends.store(true, Ordering::Relaxed);
            clock.advance(LOOK_EVERY);
            assert!(!kept.join().unwrap());
        });
    }
}
