//! Who brings frozen commits into the image, one after another, while programs go on.

use std::sync::Arc;

use crate::commit::CommitCost;
use crate::error::{Error, Kind, Result};
use crate::hifs::Durability;
use crate::journal::{InFlight, Plan, Sealed, Unread, Unsealed};
use crate::medium::Medium;
use crate::superblock::Superblock;

/// What a commit holds while it is on its way, and what is left to do of the last one.
pub(crate) struct Committer {
    medium: Medium,
    superblock: Superblock,
    in_flight: Arc<InFlight>,
    /// What has been frozen and is not in the image yet: nobody has come to it, or a failure has
    /// interrupted it.
    waiting: Option<Waiting>,
    /// A commit that is durable, but whose journal is not erased yet.
    unfinished: Option<Arc<Sealed>>,
    /// Content was overwritten without a journal since the last flush.
    unflushed: bool,
    /// A commit that was not durable: the journal, free cells and cleared ones may hold part of it.
    littered: Option<Arc<Sealed>>,
    /// A commit failed after it had become durable: memory and image disagree.
    poisoned: bool,
    cost: CommitCost,
}

#[derive(Clone)]
enum Waiting {
    Planned(Arc<Plan>),
    Sealed(Arc<Sealed>),
}

/// What has been frozen, with its cost so far; nothing if nothing is pending.
type Frozen = Option<(Arc<Plan>, CommitCost)>;

/// Who knows what is pending.
pub(crate) trait Pending {
    /// Freezes what is pending, see [`crate::commit::freeze`].
    fn freeze(&self) -> Result<Frozen>;

    /// Takes it into what is frozen and has something to move that cannot be read, see
    /// [`crate::commit::freeze_with`].
    fn freeze_with(&self, frozen: &Plan, unread: &[Unread]) -> Result<(Arc<Sealed>, CommitCost)>;
}

impl Committer {
    pub(crate) fn new(medium: Medium, superblock: Superblock, in_flight: Arc<InFlight>) -> Self {
        Self {
            medium,
            superblock,
            in_flight,
            waiting: None,
            unfinished: None,
            unflushed: false,
            littered: None,
            poisoned: false,
            cost: CommitCost::default(),
        }
    }

    pub(crate) const fn cost(&self) -> CommitCost {
        self.cost
    }

    pub(crate) const fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    /// Whether something has been frozen that is not in the image yet.
    pub(crate) const fn is_behind(&self) -> bool {
        self.waiting.is_some()
    }

    /// Finishes what an earlier one has left, then brings what `freeze` gives into the image, as far
    /// as `durability` asks for. For [`Durability::Room`] it is enough that it is frozen: whoever
    /// comes next brings it there.
    ///
    /// # Errors
    /// [`Kind::Device`]: unless that poisons, the next call tries again. Those of `pending`.
    pub(crate) fn bring(&mut self, durability: Durability, pending: &dyn Pending) -> Result<()> {
        self.land(pending)?;
        if let Some((plan, cost)) = pending.freeze()? {
            self.cost.add(&cost);
            self.waiting = Some(Waiting::Planned(plan));
            if durability == Durability::Room {
                return Ok(());
            }
            self.land(pending)?;
        }
        match durability {
            Durability::Room => Ok(()),
            Durability::Durable => self.flush(),
            Durability::Erased => self.finish(),
        }
    }

    /// Brings into the image what waits. Until the journal is durable a failure leaves it waiting,
    /// and programs go on reading through [`InFlight`].
    fn land(&mut self, pending: &dyn Pending) -> Result<()> {
        let Some(waiting) = self.waiting.clone() else {
            return Ok(());
        };
        self.finish()?;
        let sealed = match waiting {
            Waiting::Planned(plan) => {
                let sealed = self.seal(&plan, pending)?;
                self.waiting = Some(Waiting::Sealed(sealed.clone()));
                sealed
            }
            Waiting::Sealed(sealed) => sealed,
        };
        self.littered = Some(sealed.clone());
        let flushed = &mut |layer| self.in_flight.flushed(layer);
        sealed.write(&self.medium, &self.superblock.geometry, flushed)?;
        self.littered = None;
        self.cost.journal_blocks += sealed.blocks();
        if let Err(error) = sealed.apply(&self.medium, flushed) {
            self.poisoned = !sealed.is_loose();
            return Err(error);
        }
        self.waiting = None;
        self.in_flight.land();
        if sealed.is_loose() {
            self.unflushed = true;
        } else {
            // Writing the journal has flushed all that went before it, but not what it led to.
            self.unflushed = sealed.has_loose();
            self.unfinished = Some(sealed);
        }
        Ok(())
    }

    /// Seals what waits. What of it cannot be read may not be wanted any more: then what is pending becomes
    /// part of it.
    fn seal(&mut self, plan: &Plan, pending: &dyn Pending) -> Result<Arc<Sealed>> {
        match plan.seal(&self.medium, &self.superblock) {
            Ok(sealed) => {
                let sealed = Arc::new(sealed);
                self.in_flight.seal(&sealed);
                Ok(sealed)
            }
            Err(Unsealed::Unread(unread)) => {
                let (sealed, cost) = pending.freeze_with(plan, &unread)?;
                self.cost.add(&cost);
                Ok(sealed)
            }
            Err(Unsealed::Failed(error)) => Err(error),
        }
    }

    /// Makes overwritten content durable.
    fn flush(&mut self) -> Result<()> {
        if self.unflushed {
            let done = self.medium.flush();
            self.trust(done)?;
            self.unflushed = false;
        }
        Ok(())
    }

    /// What a failed flush has lost, no later flush brings back: nothing more is promised, and the
    /// journal stays until recovery has written everything again.
    fn trust(&mut self, flushed: Result<()>) -> Result<()> {
        self.poisoned |= flushed.is_err();
        flushed
    }

    /// Erases the journal of the last commit, or of one that failed.
    fn finish(&mut self) -> Result<()> {
        if let Some(sealed) = &self.littered {
            let returned = &mut |layer| self.in_flight.returned(layer);
            sealed.take_back(&self.medium, &self.superblock.geometry, returned)?;
            self.littered = None;
        }
        if let Some(sealed) = self.unfinished.take() {
            let done = sealed.finish(&self.medium, &self.superblock.geometry);
            self.trust(done)?;
            self.unflushed = false;
        }
        self.flush()
    }
}

pub(crate) fn poisoned() -> Error {
    let text =
        "an earlier write failed in the middle of a commit; unmount and mount again to recover";
    Error::new(Kind::Poisoned, text)
}
