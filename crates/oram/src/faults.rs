//! Planted faults: each breaks one promise, and a test must catch each.
//!
//! Without the feature `faults` nothing can be planted.

tacita_faults::plantable! {
    /// A fault.
    pub enum Fault {
        /// A query that meets an earlier one for the same block leaves out its lookups.
        DummySkipped,
        /// The server answers for a record before it is durable.
        EarlyAnswer,
        /// The server answers its followers for their records at once, not in the order of the log.
        OrderLost,
    }
}
