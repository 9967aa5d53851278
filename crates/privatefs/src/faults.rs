//! Planted faults: each breaks one promise, and a test must catch each.
//!
//! Without the feature `faults` nothing can be planted.

tacita_faults::plantable! {
    /// A fault.
    pub enum Fault {
        /// What is read ahead ends where the file does.
        ReadAheadToTheEnd,
        /// Where operations are padded, one that finds all in the cache asks nothing.
        HitUnpadded,
        /// Only blocks that are there are freed.
        FreesTheLiving,
        /// A commit does not look whose turn it is.
        TurnUnchecked,
        /// A commit does not write the journal first.
        JournalSkipped,
        /// Content is written after the commit that refers to it.
        ContentLate,
        /// A mount keeps what it has cached when another had the turn.
        CacheKept,
        /// A mount that takes over does not look at the journal.
        ReplaySkipped,
    }
}
