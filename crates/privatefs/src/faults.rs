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
        /// Where operations are padded, what is written over is not read before.
        OverwritesUnread,
        /// What a mount that has ended has left in a hole stays when the hole is covered.
        LeftUncovered,
        /// Only blocks that are there are freed.
        FreesTheLiving,
        /// A commit does not look whose turn it is.
        TurnUnchecked,
        /// A commit does not write the journal first.
        JournalSkipped,
        /// Content is written after the commit that refers to it.
        ContentLate,
        /// A commit's journal is written over the one that may still be needed.
        JournalOverwritten,
        /// A mount keeps what it has cached when another had the turn.
        CacheKept,
        /// A mount that takes over does not look at the journal.
        ReplaySkipped,
        /// Places of mounts that are gone stay theirs.
        PlacesStay,
        /// Places are taken from mounts that give signs of life.
        LifeUnseen,
    }
}
