//! Planted faults: each gives hidden data away in one way, and a game must notice each. A few break
//! other promises.
//!
//! Without the feature `faults` nothing can be planted. Numbers are those of the design note,
//! section 5.5.

tacita_faults::plantable! {
    /// A fault.
    pub enum Fault {
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
        /// A bad sector at the tail ends the writing where a hidden volume is open.
        HiddenUnread,
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
        /// Another: a hidden discard keeps its stage while it looks at the map, or frees what waits, and the head
        /// waits.
        DiscardHoldsLock,
        /// A hidden read keeps the head, and public requests wait for it.
        ReadAtHead,
        /// A hidden read, or a look at extents, keeps its stage to its end, and the head waits.
        ReadHoldsLock,
        /// The heartbeat begins anew with hidden writes, too.
        HiddenBeats,
    }
}

/// Cells of the unit before, by level, for [`Fault::StaleCell`].
#[derive(Debug, Default)]
pub(crate) struct StaleCells {
    #[cfg(feature = "faults")]
    cells: Vec<Vec<u8>>,
}

#[cfg(feature = "faults")]
impl StaleCells {
    /// A cell stays as it was while its volume rests.
    pub(crate) fn put(&mut self, level: usize, rests: bool, cell: &mut [u8]) {
        self.cells.resize(level.max(self.cells.len()) + 1, Vec::new());
        if rests && self.cells[level].len() == cell.len() {
            cell.copy_from_slice(&self.cells[level]);
        }
        self.cells[level] = cell.to_vec();
    }
}

#[cfg(not(feature = "faults"))]
impl StaleCells {
    #[allow(clippy::unused_self, reason = "there is no state in a build that people use")]
    pub(crate) const fn put(&mut self, _: usize, _: bool, _: &mut [u8]) {}
}

/// What is told of blocks that are looked at.
#[cfg(feature = "faults")]
type Look = Box<dyn Fn(u32)>;

#[cfg(feature = "faults")]
thread_local! {
    static LOOK: std::cell::RefCell<Option<Look>> = const { std::cell::RefCell::new(None) };
}

/// Calls `look` for each block whose place a discard of this thread looks at, and for the first of those
/// that a read or a look at extents takes at once, so that a test can stop it in the middle.
#[cfg(feature = "faults")]
pub fn look_on(look: impl Fn(u32) + 'static) {
    LOOK.set(Some(Box::new(look)));
}

/// A block is looked at.
#[cfg(feature = "faults")]
pub(crate) fn looks_at(id: u32) {
    LOOK.with_borrow(|look| {
        if let Some(look) = look {
            look(id);
        }
    });
}

/// Nobody looks on in a build that people use.
#[cfg(not(feature = "faults"))]
pub(crate) const fn looks_at(_: u32) {}
