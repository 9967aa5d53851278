//! Planted faults: each leaves a key somewhere, and a search of memory must find each.
//!
//! Without the feature `faults` nothing can be planted.

tacita_faults::plantable! {
    /// A fault.
    pub enum Fault {
        /// The state of the hash that derives a key stays on the stack, as what makes a cipher of it does.
        HashState,
        /// What using a cipher leaves on the stack stays there.
        UsedStack,
        /// A place of a key or cipher is given back as it is.
        UsedPlaces,
    }
}
