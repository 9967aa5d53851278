//! A sweep: the whole log is written anew, one round.
//!
//! It is maintenance that anybody may do, and takes one round whatever is open: an end that followed
//! from what waits on a hidden volume would tell of it. Where it ends stands in every header, so
//! that one which was interrupted goes on. What is left of one need not have room for what waits:
//! whoever wants that to be carried begins a whole round.

use crate::engine::Engine;
use crate::error::Result;
use crate::sequencer::Round;

/// Goes a round; false if `each` ended it.
///
/// # Errors
/// The device's.
pub(crate) fn sweep(
    engine: &Engine,
    round: Round,
    each: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<bool> {
    let units = u64::from(engine.shared.geometry().units());
    engine.head()?.begin_sweep(round);
    loop {
        let left = {
            let mut head = engine.head()?;
            let left = head.sweep_left();
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(engine.shared.run_units);
            if count == 0 {
                head.make_durable()?;
                return Ok(true);
            }
            head.emit_units(count)?;
            left - count as u64
        };
        engine.write_due_runs()?;
        if !each(units - left, units) {
            engine.head()?.make_durable()?;
            return Ok(false);
        }
    }
}
