//! Planted faults and crash points: each fault breaks one promise, and a test must catch each.
//!
//! Without the feature `faults` nothing can be planted.

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The last name of a file goes without a purge.
    UnlinkUnhooked,
    /// A file without a name is not purged when it is closed.
    CloseUnhooked,
    /// The file that a rename replaces is not purged.
    ReplaceUnhooked,
    /// Truncating a file to nothing purges nothing (`O_TRUNC`).
    EmptyUnhooked,
    /// Truncating a file to a part of it purges nothing (`ftruncate`).
    TruncateUnhooked,
    /// Punching a hole purges nothing.
    PunchUnhooked,
    /// Zeroing a range purges nothing.
    ZeroUnhooked,
    /// Collapsing a range purges nothing.
    CollapseUnhooked,
    /// Replacing an attribute purges nothing.
    SetAttributeUnhooked,
    /// Removing an attribute purges nothing.
    RemoveAttributeUnhooked,
    /// The attributes of a purged file keep their values.
    AttributesUnhooked,
    /// A removed directory is freed at once.
    DirectoryUnhooked,
    /// What is only in memory is not overwritten there.
    MemoryUnhooked,
    /// What programs have written stays in the memory of the lower file system when they sync all.
    LeftInMemory,
    /// What an interrupted mount left in the spool stays there.
    RecoveryUnhooked,
    /// The last pass is read back through the cache.
    CachedVerification,
    /// Passes are not written back before they are verified.
    UnflushedPass,
    /// Directories are not written before they are freed.
    UnflushedDirectory,
    /// Whoever opens a file while it loses its name is served what is being overwritten.
    LatecomersUnhooked,
    /// Names that are left in folders that live on are not cleared.
    FillersUnhooked,
    /// Folders that have lost names are not recorded.
    FoldersForgotten,
    /// Folders are not looked at on the device.
    FoldersUnseen,
    /// What keeps blocks of attributes until their names are cleared is alike for all files.
    PlaceholdersAlike,
    /// Values in a block that several files have are not looked at again when all are purged.
    SharedUnseen,
    /// Values of attributes may move while they are overwritten.
    ValuesMove,
    /// A value that is replaced is overwritten first, for everybody to see.
    ValuesTorn,
    /// Values of attributes are not looked at on the device.
    ValuesUnseen,
    /// A file that is purged by its path keeps its name meanwhile.
    AsideUnhooked,
    /// What is kept does not get its name back.
    AsideStays,
    /// A run that is to end goes on.
    StopUnheeded,
    /// The journal is not erased.
    JournalStays,
    /// The journal is not looked at on the device.
    JournalUnseen,
    /// Verdicts say nothing of a journal with an area for fast commits.
    FastCommitsUntold,
    /// No intent is on the medium before a file is overwritten ahead of the loss of its name.
    IntentUnwritten,
    /// Recovery does not look for files that were being overwritten.
    TagsUnseen,
    /// The intents of an epoch are not erased.
    IntentsStay,
    /// That a file has lost a name in another folder is not remembered.
    MovesUnhooked,
    /// Descriptors of nodes are never closed while the kernel remembers them.
    DescriptorsStay,
    /// Descriptors of what has lost its last name are closed like others.
    NumbersUsedAgain,
}

/// A step of purging at which the process can be made to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A folder that is about to lose a name is recorded in the spool.
    Recorded,
    /// The file has been moved into the spool.
    Spooled,
    /// The victim of a rename has a second name in the spool.
    Linked,
    /// The loss of its name is on the medium.
    Durable,
    /// The intent to overwrite files of a folder is on the medium.
    Intended,
    /// The file system has been asked where content lies that is about to be overwritten.
    Looked,
    /// Half of the first pass has been written.
    HalfPass,
    /// The first pass is done.
    FirstPass,
    /// All passes are done.
    Passed,
    /// Values of attributes are overwritten, or have others in their place, and nobody has looked yet.
    ValuesChanged,
    /// Its attributes are overwritten.
    AttributesDone,
    /// It has been removed from the spool.
    Freed,
    /// What a path names has been looked up, and nothing of it has been touched.
    Found,
    /// A folder that lives on is full of fillers.
    Filled,
    /// The loss of names is on the medium, and the intents of the epoch are erased.
    Forgotten,
    /// Directories have been flushed, the journal not yet.
    Flushed,
    /// Everything is done.
    Erased,
}

impl Step {
    /// Those that a purge with several passes comes by, in order.
    pub const ALL: [Self; 10] = [
        Self::Spooled,
        Self::Linked,
        Self::Durable,
        Self::HalfPass,
        Self::FirstPass,
        Self::Passed,
        Self::AttributesDone,
        Self::Freed,
        Self::Flushed,
        Self::Erased,
    ];

    /// Those that a purge ahead of the loss of the name comes by, in order.
    pub const AHEAD: [Self; 9] = [
        Self::Spooled,
        Self::Intended,
        Self::HalfPass,
        Self::FirstPass,
        Self::Passed,
        Self::Freed,
        Self::Forgotten,
        Self::Flushed,
        Self::Erased,
    ];
}

#[cfg(feature = "faults")]
static PLANTED: std::sync::Mutex<Vec<Fault>> = std::sync::Mutex::new(Vec::new());

#[cfg(feature = "faults")]
type Hook = Box<dyn Fn(Step) + Send + Sync>;

#[cfg(feature = "faults")]
static HOOK: std::sync::Mutex<Option<Hook>> = std::sync::Mutex::new(None);

/// Plants faults in this process, instead of those planted before.
#[cfg(feature = "faults")]
pub fn plant(faults: &[Fault]) {
    *PLANTED.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = faults.to_vec();
}

/// Calls `hook` at every step from now on.
#[cfg(feature = "faults")]
pub fn at_each_step(hook: impl Fn(Step) + Send + Sync + 'static) {
    *HOOK.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(Box::new(hook));
}

/// Whether any fault is planted.
#[cfg(feature = "faults")]
pub fn is_any_planted() -> bool {
    !PLANTED.lock().unwrap_or_else(std::sync::PoisonError::into_inner).is_empty()
}

/// Whether `fault` is planted.
#[cfg(feature = "faults")]
pub(crate) fn planted(fault: Fault) -> bool {
    PLANTED.lock().unwrap_or_else(std::sync::PoisonError::into_inner).contains(&fault)
}

/// A step has been reached.
#[cfg(feature = "faults")]
pub(crate) fn step(step: Step) {
    if let Some(hook) = &*HOOK.lock().unwrap_or_else(std::sync::PoisonError::into_inner) {
        hook(step);
    }
}

/// Places of the device that cannot be read, and how often.
#[cfg(feature = "faults")]
static UNREADABLE: std::sync::Mutex<(std::ops::Range<u64>, u32)> = std::sync::Mutex::new((0..0, 0));

/// What the file system keeps in `places` of the device cannot be read there, so many times from now on.
/// Content that is read back can.
#[cfg(feature = "faults")]
pub fn make_unreadable(places: std::ops::Range<u64>, times: u32) {
    *UNREADABLE.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = (places, times);
}

/// Whether reading the device fails this time.
#[cfg(feature = "faults")]
pub(crate) fn is_unreadable(at: u64, len: usize) -> bool {
    let mut unreadable = UNREADABLE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (places, times) = &mut *unreadable;
    let is_hit = *times > 0 && at < places.end && places.start < at + len as u64;
    *times -= u32::from(is_hit);
    is_hit
}

/// Nothing is planted in a build that people use.
#[cfg(not(feature = "faults"))]
pub(crate) const fn planted(_: Fault) -> bool {
    false
}

/// What is readable is read in a build that people use.
#[cfg(not(feature = "faults"))]
pub(crate) const fn is_unreadable(_: u64, _: usize) -> bool {
    false
}

/// Nobody watches in a build that people use.
#[cfg(not(feature = "faults"))]
pub(crate) const fn step(_: Step) {}
