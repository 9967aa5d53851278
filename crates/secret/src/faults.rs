//! Planted faults: each leaves a key somewhere, and a search of memory must find each.
//!
//! Without the feature `faults` nothing can be planted.

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The state of the hash that derives a key stays on the stack, as what makes a cipher of it does.
    HashState,
    /// What using a cipher leaves on the stack stays there.
    UsedStack,
    /// A place of a key or cipher is given back as it is.
    UsedPlaces,
}

#[cfg(feature = "faults")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Plants a fault in this thread, or removes it.
#[cfg(feature = "faults")]
pub fn plant(fault: Option<Fault>) {
    PLANTED.set(fault);
}

/// Whether `fault` is planted.
#[cfg(feature = "faults")]
pub(crate) fn planted(fault: Fault) -> bool {
    PLANTED.get() == Some(fault)
}

/// Nothing is planted in a build that people use.
#[cfg(not(feature = "faults"))]
pub(crate) const fn planted(_: Fault) -> bool {
    false
}
