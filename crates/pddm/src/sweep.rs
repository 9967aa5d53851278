//! A sweep: the whole log is written anew, one round.
//!
//! It is maintenance that anybody may do, and takes one round whatever is open: an end that followed
//! from what waits on a hidden volume would tell of it. Where it ends stands in every header, so
//! that one which was interrupted goes on.

use crate::engine::Engine;
use crate::error::Result;
use crate::geometry::Seq;
use crate::sequencer::Sequencer;

impl Engine {
    /// Goes one round, or what is left of one; false if `each` ended it.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn sweep(&self, each: &mut dyn FnMut(u64, u64) -> bool) -> Result<bool> {
        let units = u64::from(self.geometry().units());
        self.begin_sweep(&mut *self.head()?);
        loop {
            let left = {
                let mut head = self.head()?;
                let left = head.sweep_until.0.saturating_sub(head.next.0);
                let count = usize::try_from(left).unwrap_or(usize::MAX).min(self.run_units);
                if count == 0 {
                    self.make_durable(&mut head)?;
                    return Ok(true);
                }
                self.emit_units(&mut head, count)?;
                left - count as u64
            };
            self.write_due_runs()?;
            if !each(units - left, units) {
                self.make_durable(&mut *self.head()?)?;
                return Ok(false);
            }
        }
    }

    fn begin_sweep(&self, head: &mut Sequencer) {
        if head.sweep_until <= head.next {
            head.sweep_until = Seq(head.next.0 + u64::from(self.geometry().units()));
        }
    }
}
