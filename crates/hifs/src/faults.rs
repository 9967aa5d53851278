//! Planted faults: each breaks one promise, and a test must catch each.
//!
//! Without the feature `faults` nothing can be planted.

tacita_faults::plantable! {
    /// A fault.
    pub enum Fault {
        /// The superblock counts commits.
        CounterInSuperblock,
        /// The journal's body is left after a commit.
        JournalResidue,
        /// Freed buckets keep their content.
        FreedBucketResidue,
        /// Of a file that goes only what lies before its last end is overwritten, though the image has it
        /// longer.
        ShortenedResidue,
        /// Bytes behind the end of a truncated file keep their content.
        SlackResidue,
        /// Directory pages list entries in the order of insertion.
        InsertionOrder,
        /// No flush between the journal and the writes in place.
        SkippedFlush,
        /// No flush between the journal and what fills free cells.
        UnannouncedFill,
        /// No flush between what fills free cells and the writes in place.
        UnflushedFill,
        /// Recovery leaves in free cells what a commit that is not durable has written there.
        KeptFill,
        /// No flush after a layer of moves.
        UnflushedLayer,
        /// Recovery leaves where it went what a commit that is not durable has cleared away.
        KeptClear,
        /// Free map entries keep the old owner.
        MapResidue,
        /// While a commit is on its way, what has moved is still read where it was.
        ReadsOldPlace,
        /// What has moved and returned because the device failed is read where it went.
        ReadsNewPlace,
        /// A commit's cycles are opened by copies in the journal, however many there are.
        CyclesCopied,
        /// A write is answered before it is known whether there is room, or anybody else has to wait.
        AcceptedEarly,
        /// What the map of a commit under way calls free is salvaged.
        SalvagedFree,
        /// What was deleted while it was in use is salvaged.
        SalvagedDeleted,
        /// Content is salvaged from where it would lie if nothing else were there.
        SalvagedUnproven,
        /// Times of the clock are stored although the image keeps none.
        ClockTimes,
    }
}
