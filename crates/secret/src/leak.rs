//! Planted leaks: each leaves a key somewhere, and a search of memory must find each.
//!
//! Without the feature `leaks` nothing can be planted.

/// A leak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leak {
    /// The state of the hash that derives a key stays on the stack, as what makes a cipher of it does.
    HashState,
    /// What using a cipher leaves on the stack stays there.
    UsedStack,
    /// A place of a key or cipher is given back as it is.
    UsedPlaces,
}

#[cfg(feature = "leaks")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Leak>> = const { std::cell::Cell::new(None) };
}

/// Plants a leak in this thread, or removes it.
#[cfg(feature = "leaks")]
pub fn plant(leak: Option<Leak>) {
    PLANTED.set(leak);
}

/// Whether `leak` is planted.
#[cfg(feature = "leaks")]
pub(crate) fn planted(leak: Leak) -> bool {
    PLANTED.get() == Some(leak)
}

/// Nothing is planted in a build that people use.
#[cfg(not(feature = "leaks"))]
pub(crate) const fn planted(_: Leak) -> bool {
    false
}
