//! Planted faults: each breaks one promise, and a test must catch each.
//!
//! Without the feature `faults` nothing can be planted.

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
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

#[cfg(feature = "faults")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Plants a fault in this thread, or removes it.
#[cfg(feature = "faults")]
pub fn plant(fault: Option<Fault>) {
    PLANTED.set(fault);
}

/// Whether `fault` is planted.
#[cfg(feature = "faults")]
pub(crate) fn planted(fault: Fault) -> bool {
    PLANTED.get() == Some(fault)
}

/// Nothing is planted in a build that people use.
#[cfg(not(feature = "faults"))]
pub(crate) const fn planted(_: Fault) -> bool {
    false
}
