//! Planted leaks: each gives hidden data away in one way, and a game must notice each. A few break
//! other promises.
//!
//! Without the feature `leaks` nothing can be planted. Numbers are those of the design note, section 5.5.

/// A leak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leak {
    /// 1: a hidden flush writes the open unit.
    FlushWrites,
    /// 2: carried hidden slots are copied as they are.
    CopiedCiphertext,
    /// 3: empty hidden slots are zeros.
    ZeroDummies,
    /// 4: the cell of an open class is renewed only when something has changed.
    StaleCell,
    /// 5: empty hidden slots come from a weak generator.
    WeakDummies,
    /// 6: the head skips units whose successor has live hidden data.
    SkippedUnits,
    /// 7: hidden pages make public pages wait.
    SharedPages,
    /// 8: salts follow from numbers.
    RepeatedSalt,
    /// 9: recovery stops where hidden ids cannot be read.
    HiddenRecovery,
    /// 10: hidden discards reach the device.
    ForwardedDiscard,
    /// 11: the tags of empty hidden slots are zero.
    ZeroTags,
    /// 12: a hidden volume uses the slots of another class.
    SharedClass,
    /// 13: the superblock counts hidden volumes.
    CountedVolumes,
    /// 14: a full hidden queue makes public writes flush.
    HiddenPressure,
    /// No leak but a broken promise: a flush does not reach the device.
    SkippedFlush,
    /// Another: units are written again before what was taken from them is durable.
    EarlyReuse,
    /// Another: recovery believes the last units unseen.
    BlindRecovery,
    /// Another: a unit is read whatever its number.
    StaleUnits,
    /// Another: a page of the public map that is damaged is not made again.
    ForgottenPages,
    /// Another: what a public-only session has left behind is not carried.
    ForgottenGap,
    /// A change of password writes what the volume needs and no more.
    QuietPassword,
    /// Another: a hidden flush does not close its epoch.
    OpenEpochs,
    /// Another: a hidden discard waits for the head, and whoever has that may wait for it.
    DiscardAtHead,
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
