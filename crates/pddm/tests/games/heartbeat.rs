//! When the heartbeat beats, on a simulated clock.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use tacita_block::{BlockDevice, BlockNo};
use tacita_clock::Simulated;
use tacita_pddm::{Heartbeat, Options, Parameters, Session, Unlock};

use crate::devices::{blocks, content, entropy, make, memory, parameters, volume, wrap};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn beats_follow_public_changes_and_nothing_else() {
    let device: Arc<dyn BlockDevice> = memory(blocks(60));
    make(&device, &Parameters { heartbeat_ms: 1000, ..parameters(1) }, 1, entropy(1, 1));
    let clock = Arc::new(Simulated::at(UNIX_EPOCH));
    let options = Options {
        entropy: entropy(2, 2),
        clock: Arc::<Simulated>::clone(&clock),
        ..Options::default()
    };
    let session = Arc::new(Session::open(&device, Unlock::Wrap(&wrap(1)), options).unwrap());
    let (public, hidden) = (volume(&session, 0), volume(&session, 1));
    let heartbeat = Heartbeat::start(Arc::clone(&session)).unwrap().unwrap();
    let begin = session.written_units();
    // Whoever waits for the clock is the heartbeat alone.
    let beats_after = |seconds: u32| {
        clock.advance_among(1, seconds * SECOND);
        session.written_units() - begin
    };
    // Every second for a minute, and then after 2, 4, 8, 16, 32 and every 60 seconds.
    assert_eq!([1, 58, 1].map(beats_after), [1, 59, 60]);
    assert_eq!([1, 1, 4, 8].map(beats_after), [60, 61, 62, 63]);
    // Whatever the time of day is set to, and however long the machine has slept.
    clock.set_wall(UNIX_EPOCH);
    clock.sleep(36_000 * SECOND);
    hidden.write(BlockNo(0), &content(0, 1)).unwrap();
    assert_eq!([15, 1].map(beats_after), [63, 64], "hidden changes are none");
    public.write(BlockNo(0), &content(0, 1)).unwrap();
    // It is seen at the next look, an eighth of a second later at most.
    assert_eq!([1, 1, 8].map(beats_after), [64, 65, 73]);
    clock.await_waiters(1);
    drop(heartbeat);
    clock.advance(600 * SECOND);
    assert_eq!(session.written_units() - begin, 73, "it has been dropped");
    assert_eq!(session.units_last_minute(), 0);
}
