//! Planted faults: each breaks a promise of the emulator, and a test must notice each.
//!
//! Without the feature `faults` nothing can be planted.

tacita_faults::plantable! {
    /// A fault.
    pub enum Fault {
        /// An atomic change erases the block and writes it again.
        ChangeInPlace,
        /// A block is changed before it is durable that it had another content.
        LoneCopy,
        /// A flush of erases forgets what is queued.
        EraseSkipped,
        /// A block is erased before what has replaced it is synced.
        EraseBeforeSync,
        /// A block is erased while the file still says what is in it.
        EraseUnannounced,
        /// A page can be programmed again without an erase.
        ProgramTwiceAllowed,
        /// Whoever opens an image for reading opens it as writers do.
        ReadersWrite,
        /// Of two copies of an erase block the older one is attached.
        OldCopyWins,
    }
}
