//! Planted faults: each breaks one promise, and a test must catch each.
//!
//! Without the feature `faults` nothing can be planted.

tacita_faults::plantable! {
    /// A fault.
    pub enum Fault {
        /// A query that meets an earlier one for the same block leaves out its lookups.
        DummySkipped,
    }
}
