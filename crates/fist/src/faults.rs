//! Planted faults: each breaks one promise, and a test must catch each.
//!
//! Without the feature `faults` nothing can be planted.

tacita_faults::plantable! {
    /// A fault.
    pub enum Fault {
        /// The last return of a function is left as it was.
        ReturnMissed,
        /// An edit lands one byte behind its place.
        EditShifted,
        /// Handlers of the kernel's own stay in their vectors unwrapped.
        GenericUnwrapped,
        /// A void function is not looked at where it ends without a return.
        EndMissed,
    }
}
