//! Where everything lies: a function of what was told at init, never of hidden data.
//!
//! ```text
//! block 0       superblock
//! unit_blocks   the log: units of 1 header, public slots and hidden slots, used as a ring
//! last block    superblock, second copy
//! ```
//!
//! Design note, sections 2.1 and 3.

use std::ops::Range;

use tacita_block::BlockNo;

use crate::error::{Error, Kind, Result};

/// Length of a block in bytes, on the device and of every volume.
pub const BLOCK_LEN: usize = 4096;
/// So much of a device at most is used: a place has 32 bits.
pub const DEVICE_LEN_MAX_BYTES: u64 = (BLOCK_LEN as u64) << 32;
/// Entries of a page of a position map.
pub(crate) const PAGE_ENTRIES: u32 = 1024;
/// Most classes of hidden slots; their cells must fit in the header.
pub const CLASSES_MAX: u32 = 15;
/// Blocks of a unit: below there is little but headers, above the header is too small.
pub(crate) const UNIT_BLOCKS: std::ops::RangeInclusive<u32> = 4..=64;
/// Fewest units of a log: the gap, units in flight and a few to keep data in.
const UNITS_MIN: u32 = 32;
/// Fewest units between head and tail.
const GAP_MIN: u32 = 8;
/// The gap is at least so long, where that is no more than a sixteenth of the log.
const GAP_LEN_BYTES: u64 = 64 << 20;
/// So much at most is written before it is made durable.
const UNFLUSHED_LEN_BYTES: u64 = 256 << 20;
/// A position map is written once in this share of the log...
const CHECKPOINT_SHARE: u32 = 32;
/// ...but not within fewer units than these, where half of the log is longer.
const CHECKPOINT_UNITS_MIN: u32 = 256;

/// Number of a unit in the order of writing, from 0; it never repeats.
#[derive(Default, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

/// Which volume: the public one, or the hidden one of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(u32);

impl Level {
    /// The public volume.
    pub const PUBLIC: Self = Self(0);

    /// The hidden volume of class `number`, from 1.
    pub const fn hidden(number: u32) -> Self {
        assert!(number > 0, "classes are counted from 1");
        Self(number)
    }

    /// 0 for the public volume, else the class.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a block of a volume lies: block of the log, or nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place(pub(crate) u32);

impl Place {
    /// Never written, or discarded: reads as zeros.
    pub(crate) const NOWHERE: Self = Self(u32::MAX);
    /// Its content was lost to damage: cannot be read until it is written again.
    pub(crate) const LOST: Self = Self(u32::MAX - 1);

    pub(crate) const fn is_stored(self) -> bool {
        self.0 < Self::LOST.0
    }
}

/// What is chosen at init. Everybody chooses from the same; nothing tells of hidden volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// Public slots of a unit.
    pub public_slots: u32,
    /// Hidden slots of a unit, divided among the classes.
    pub hidden_slots: u32,
    /// Classes of hidden slots, used or not: so many hidden volumes there can be.
    pub classes: u32,
    /// Share of public slots kept free, in thousandths: more is faster.
    pub public_spare: u16,
    /// Share of hidden slots kept free, in thousandths.
    pub hidden_spare: u16,
    /// After so long without a public write a unit of padding is written, and so on ever more
    /// slowly; 0 for never.
    pub heartbeat_ms: u32,
}

impl Default for Parameters {
    /// Twice to three times the writes, 40% and 22% of the device. With less than a third to spare a log
    /// that is overwritten in order may go on to carry what is about to die (design note, section 4).
    fn default() -> Self {
        Self {
            public_slots: 20,
            hidden_slots: 11,
            classes: 1,
            public_spare: 350,
            hidden_spare: 350,
            heartbeat_ms: 1000,
        }
    }
}

/// Where everything lies on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    parameters: Parameters,
    device_blocks: u64,
    units: u32,
}

impl Geometry {
    /// The geometry of a device of `device_blocks` blocks.
    ///
    /// # Errors
    /// [`Kind::Geometry`] with the reason.
    pub fn new(parameters: Parameters, device_blocks: u64) -> Result<Self> {
        let refuse = |text: String| Err(Error::new(Kind::Geometry, text));
        let p = &parameters;
        let unit = p.public_slots.saturating_add(p.hidden_slots).saturating_add(1);
        if p.public_slots == 0 || p.hidden_slots == 0 || !UNIT_BLOCKS.contains(&unit) {
            return refuse(format!(
                "a ratio of {}:{} makes units of {unit} blocks; {} to {} are possible, and at \
                 least one slot on either side",
                p.public_slots,
                p.hidden_slots,
                UNIT_BLOCKS.start(),
                UNIT_BLOCKS.end()
            ));
        }
        if !(1..=CLASSES_MAX.min(p.hidden_slots)).contains(&p.classes) {
            return refuse(format!(
                "{} classes: 1 to {CLASSES_MAX} are possible, and each needs a hidden slot",
                p.classes
            ));
        }
        if ![p.public_spare, p.hidden_spare].iter().all(|spare| (50..=900).contains(spare)) {
            return refuse("the spare share must be from 0.05 to 0.9".to_owned());
        }
        let units = device_blocks.saturating_sub(1 + u64::from(unit)) / u64::from(unit);
        let max = u64::from(Place::LOST.0) / u64::from(unit) - 1;
        if units < UNITS_MIN.into() {
            let least = u64::from((UNITS_MIN + 1) * unit + 1) * BLOCK_LEN as u64;
            return refuse(format!("the device is too small: it needs at least {least} bytes"));
        }
        // What lies beyond the largest device is left alone.
        let units = u32::try_from(units.min(max)).expect("fewer places than 2^32");
        Ok(Self { parameters, device_blocks, units })
    }

    /// What was chosen at init.
    pub const fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Blocks of the device.
    pub const fn device_blocks(&self) -> u64 {
        self.device_blocks
    }

    /// Units of the log.
    pub const fn units(&self) -> u32 {
        self.units
    }

    /// Blocks of a unit.
    pub const fn unit_blocks(&self) -> u32 {
        1 + self.parameters.public_slots + self.parameters.hidden_slots
    }

    /// Length of a unit in bytes.
    pub(crate) const fn unit_len(&self) -> usize {
        self.unit_blocks() as usize * BLOCK_LEN
    }

    /// Units between head and tail: free to be written.
    pub fn gap(&self) -> u32 {
        let wanted = u32::try_from(GAP_LEN_BYTES / self.unit_len() as u64).unwrap_or(u32::MAX);
        (self.units / 100).max(wanted.min(self.units / 16)).max(GAP_MIN)
    }

    /// Most units after those that are durable.
    pub(crate) fn unflushed_max(&self) -> u64 {
        u64::from(self.gap()).min(UNFLUSHED_LEN_BYTES / self.unit_len() as u64)
    }

    /// Units within which every page of a position map is written once.
    pub(crate) fn checkpoint_units(&self) -> u32 {
        (self.units / CHECKPOINT_SHARE).max(CHECKPOINT_UNITS_MIN.min(self.units / 2))
    }

    /// All levels, the public one first.
    pub fn levels(&self) -> impl Iterator<Item = Level> + use<> {
        (0..=self.parameters.classes).map(Level)
    }

    /// The slots of a level as blocks of a unit; block 0 is the header.
    pub(crate) fn slots(&self, level: Level) -> Range<u32> {
        let p = &self.parameters;
        if level == Level::PUBLIC {
            return 1..1 + p.public_slots;
        }
        let class = level.0 - 1;
        let start = |class: u32| 1 + p.public_slots + class * p.hidden_slots / p.classes;
        start(class)..start(class + 1)
    }

    /// Number of slots of a level in a unit.
    pub(crate) fn slot_count(&self, level: Level) -> usize {
        self.slots(level).len()
    }

    /// Blocks of a level that one unit can take.
    pub fn slots_per_unit(&self, level: Level) -> u32 {
        let slots = self.slots(level);
        slots.end - slots.start
    }

    /// Blocks of the volume of a level.
    pub fn volume_blocks(&self, level: Level) -> u32 {
        let p = &self.parameters;
        let spare = if level == Level::PUBLIC { p.public_spare } else { p.hidden_spare };
        let usable = u64::from(self.units - self.gap()) * self.slot_count(level) as u64;
        let kept = usable * u64::from(1000 - spare) / 1000;
        // The pages of the position map are kept beside the blocks.
        let entries = u64::from(PAGE_ENTRIES);
        u32::try_from((kept * entries / (entries + 1)).saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// Slots of a level that one round of the head has room for beside all that a volume can hold.
    pub(crate) fn round_room(&self, level: Level) -> usize {
        let blocks = self.volume_blocks(level);
        let kept = blocks as usize + blocks.div_ceil(PAGE_ENTRIES) as usize;
        (self.units as usize * self.slot_count(level)).saturating_sub(kept)
    }

    /// Where a unit begins on the device.
    pub(crate) fn unit_start(&self, unit: u32) -> BlockNo {
        BlockNo(u64::from(self.unit_blocks()) * (u64::from(unit) + 1))
    }

    /// The unit that is written as number `seq`.
    pub(crate) fn unit_of(&self, seq: Seq) -> u32 {
        u32::try_from(seq.0 % u64::from(self.units)).expect("less than the number of units")
    }

    /// The number under which a unit was written last, when `next` is to be written next: whatever
    /// else is found there is not what was written. `None` if it has never been written.
    pub(crate) fn seq_at(&self, unit: u32, next: Seq) -> Option<Seq> {
        let last = next.0.checked_sub(1)?;
        let back = (last + u64::from(self.units) - u64::from(unit)) % u64::from(self.units);
        last.checked_sub(back).map(Seq)
    }

    /// The unit that the tail leaves while unit `seq` is made.
    pub(crate) fn left_by(&self, seq: Seq) -> Option<Seq> {
        (seq.0 + u64::from(self.gap())).checked_sub(u64::from(self.units)).map(Seq)
    }

    /// The place of block `block` of a unit.
    pub(crate) const fn place(&self, unit: u32, block: u32) -> Place {
        Place(unit * self.unit_blocks() + block)
    }

    /// The place of slot `index` of a level in a unit.
    pub(crate) fn slot_place(&self, level: Level, seq: Seq, index: usize) -> Place {
        let block = self.slots(level).start + u32::try_from(index).expect("fewer than 64 slots");
        self.place(self.unit_of(seq), block)
    }

    /// Unit and block of a place.
    pub(crate) const fn split(&self, place: Place) -> (u32, u32) {
        (place.0 / self.unit_blocks(), place.0 % self.unit_blocks())
    }

    /// Where the second superblock lies.
    pub(crate) const fn second_superblock(&self) -> BlockNo {
        BlockNo(self.device_blocks - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_the_default() {
        let geometry = Geometry::new(Parameters::default(), (64u64 << 30) / 4096).unwrap();
        assert_eq!(geometry.unit_blocks(), 32);
        let share = |level| f64::from(geometry.volume_blocks(level)) / f64::from(16 << 20);
        assert!((0.40..0.41).contains(&share(Level::PUBLIC)), "{}", share(Level::PUBLIC));
        assert!((0.22..0.23).contains(&share(Level::hidden(1))), "{}", share(Level::hidden(1)));
    }

    #[test]
    fn a_place_tells_the_number_of_its_unit() {
        let geometry = Geometry::new(Parameters::default(), 33 * 32 + 1).unwrap();
        assert_eq!(geometry.units(), 32);
        assert_eq!(geometry.seq_at(0, Seq(0)), None);
        for next in 1..200 {
            for unit in 0..32 {
                let mut seqs = (0..next).filter(|seq| geometry.unit_of(Seq(*seq)) == unit);
                assert_eq!(geometry.seq_at(unit, Seq(next)), seqs.next_back().map(Seq));
            }
        }
    }

    #[test]
    fn classes_divide_the_hidden_slots() {
        for classes in 1..=11 {
            let parameters = Parameters { classes, ..Parameters::default() };
            let geometry = Geometry::new(parameters, 1 << 20).unwrap();
            let mut next = 1;
            for level in geometry.levels() {
                assert_eq!(geometry.slots(level).start, next);
                assert!(geometry.slot_count(level) > 0);
                next = geometry.slots(level).end;
            }
            assert_eq!(next, 32);
        }
    }

    #[test]
    fn absurd_parameters_are_refused() {
        let default = Parameters::default();
        let refused = [
            Parameters { public_slots: 0, ..default },
            Parameters { hidden_slots: 0, ..default },
            Parameters { public_slots: 60, ..default },
            Parameters { public_slots: u32::MAX, ..default },
            Parameters { classes: 0, ..default },
            Parameters { classes: 16, ..default },
            Parameters { classes: 12, ..default },
            Parameters { public_spare: 1000, ..default },
            Parameters { hidden_spare: 0, ..default },
        ];
        for parameters in refused {
            let error = Geometry::new(parameters, 1 << 20).unwrap_err();
            assert_eq!(error.kind(), Kind::Geometry);
        }
        assert_eq!(Geometry::new(default, 1000).unwrap_err().kind(), Kind::Geometry);
        assert!(Geometry::new(default, u64::MAX).is_ok());
    }
}
