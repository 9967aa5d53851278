//! Planted faults: each breaks one promise, and a test must catch each.
//!
//! Without the feature `faults` nothing can be planted.

tacita_faults::plantable! {
    /// A fault.
    pub enum Fault {
        /// A purge ends when keys are replaced; what was replaced is not erased.
        EraseSkipped,
        /// A purge leaves deleted keys as they are.
        DeletedKept,
        /// A purge leaves unused keys as they are.
        UnusedKept,
        /// Pages of keys stay in memory when they are purged.
        CacheKept,
        /// Keys of nodes of old checkpoints stay in use.
        CheckpointKept,
        /// After a power cut unused keys are handed out without a purge.
        KeysTrusted,
        /// Of a group that was cut short, the nodes that are there count.
        HalfGroups,
        /// The receipt of the last purge is not kept.
        ReceiptLost,
        /// What is sensitive waits for the next purge like everything else.
        SensitiveWaits,
        /// Keys of an ephemeral volume reach the flash.
        EphemeralKept,
        /// Names stand behind their nodes in clear.
        NamesInClear,
        /// A volume that is opened for reading is opened as for writing.
        ReadersRecover,
        /// Garbage collection takes the keys of what it moves for deleted.
        MovedRemarked,
    }
}
