//! The anchor, kept ahead of lookups: before a query looks anything up, this client remembers that it is
//! in the log. One write serves all that wait meanwhile.

use std::sync::Arc;

use crate::anchor::{Anchor, Mark};
use crate::error::Result;

#[derive(Debug)]
pub(super) struct Confirming {
    anchor: Arc<dyn Anchor>,
    kept: tokio::sync::Mutex<u64>,
}

impl Confirming {
    pub(super) fn new(anchor: Arc<dyn Anchor>) -> Self {
        Self { anchor, kept: tokio::sync::Mutex::new(0) }
    }

    /// Returns when the anchor remembers `sequence` records; `newest` says what there is to remember.
    pub(super) async fn confirm(&self, sequence: u64, newest: impl FnOnce() -> Mark) -> Result<()> {
        let mut kept = self.kept.lock().await;
        if *kept >= sequence {
            return Ok(());
        }
        let mark = newest();
        self.anchor.store(&mark).await?;
        *kept = mark.sequence;
        Ok(())
    }
}
