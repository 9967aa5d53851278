//! The anchor, kept ahead of lookups: before a query looks anything up, this client remembers that it is
//! in the log. One write serves all that wait meanwhile.

use crate::anchor::{Anchor, Mark};
use crate::error::Result;

#[derive(Debug, Default)]
pub(super) struct Confirming(tokio::sync::Mutex<u64>);

impl Confirming {
    /// Returns when `anchor` remembers `sequence` records; `newest` says what there is to remember.
    pub(super) async fn confirm(
        &self,
        anchor: &dyn Anchor,
        sequence: u64,
        newest: impl FnOnce() -> Mark,
    ) -> Result<()> {
        let mut kept = self.0.lock().await;
        if *kept >= sequence {
            return Ok(());
        }
        let mark = newest();
        anchor.store(&mark).await?;
        *kept = mark.sequence;
        Ok(())
    }
}
