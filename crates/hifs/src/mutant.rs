//! Planted faults: each breaks one promise, and a test must catch each.
//!
//! Without the feature `mutants` nothing can be planted.

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// The superblock counts commits.
    CounterInSuperblock,
    /// The journal's body is left after a commit.
    JournalResidue,
    /// Freed buckets keep their content.
    FreedBucketResidue,
    /// Bytes behind the end of a truncated file keep their content.
    SlackResidue,
    /// Directory pages list entries in the order of insertion.
    InsertionOrder,
    /// No flush between the journal and the writes in place.
    SkippedFlush,
    /// Free map entries keep the old owner.
    MapResidue,
    /// While a commit is on its way, what has moved is still read where it was.
    ReadsOldPlace,
    /// A commit's cycles are opened by copies in the journal, however many there are.
    CyclesCopied,
    /// Times of the clock are stored although the image keeps none.
    ClockTimes,
}

#[cfg(feature = "mutants")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Plants a fault in this thread, or removes it.
#[cfg(feature = "mutants")]
pub fn plant(mutant: Option<Mutant>) {
    PLANTED.set(mutant);
}

/// Whether `mutant` is planted.
#[cfg(feature = "mutants")]
pub(crate) fn planted(mutant: Mutant) -> bool {
    PLANTED.get() == Some(mutant)
}

/// Nothing is planted in a build that people use.
#[cfg(not(feature = "mutants"))]
pub(crate) const fn planted(_: Mutant) -> bool {
    false
}
