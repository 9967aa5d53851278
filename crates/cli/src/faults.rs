//! What may be wrong with the program itself: planted faults that its unit tests must notice. The program is
//! tested as it is shipped, so nothing else can plant them.

tacita_faults::plantable! {
    if test;
    /// A fault.
    #[allow(unreachable_pub, reason = "the faults of a program are nobody else's")]
    pub enum Fault {
        /// The doctor does not look at what programs note down about files.
        TracesForgotten,
        /// What the doctor could not look at is all right.
        UnseenFine,
        /// It looks for trash beside what was given alone, not where the file system begins.
        TopUnseen,
        /// A disk is encrypted if one of those is that it lies on.
        PartEncrypted,
    }
}
