//! Planted faults: each breaks one promise, and a test must catch each.
//!
//! Without the feature `faults` nothing can be planted.

tacita_faults::plantable! {
    /// A fault.
    pub enum Fault {
        /// A query that meets an earlier one for the same block leaves out its lookups.
        DummySkipped,
        /// A query that has found its block asks no more generations.
        HitReturnsEarly,
        /// Filters say yes falsely now and then.
        FilterLoose,
        /// Which half of a filter a block is in is told by its number.
        FilterByNumber,
        /// What authors of records have seen is not compared with the log.
        ChainUnchecked,
        /// Clients that share an anchor do not compare the log with it.
        AgreementIgnored,
        /// Whoever finishes another's query asks for labels of its own.
        FreshOnReplay,
        /// A build leaves what nobody asked for where it was.
        UntouchedStays,
        /// Records are as long as what is written.
        LengthShown,
        /// A compare-and-write that finds something else writes nothing back.
        CompareStopsEarly,
        /// The server answers for a record before it is durable.
        EarlyAnswer,
        /// The server answers its followers for their records at once, not in the order of the log.
        OrderLost,
        /// The server keeps connections that say nothing.
        SilenceKept,
        /// A store is taken from a server that is there.
        LeaseIgnored,
        /// A server goes on that could not say for too long that it is there.
        LeaseOutlived,
        /// An engine does once more what it is asked again.
        DoneTwice,
        /// Whoever was left behind asks nothing in the place of what it does not know to be done.
        UnknownUnasked,
    }
}
