//! How to make an emulator, and how it behaves.

use super::shape::Shape;
use crate::random::Random;
use crate::{Error, Geometry, Kind, Result};

/// Two copies of the volume table, a block to move to, and one for atomic changes: what UBI keeps.
const KEPT_BLOCKS: u32 = 4;
/// The stream of the seed that decides which blocks are bad from the factory.
const FACTORY_STREAM: u64 = 1;

/// When blocks that nothing refers to any more are erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EraseMode {
    /// At once.
    Eager,
    /// When a block is needed and none is free, and by a flush.
    #[default]
    Lazy,
    /// By a flush only; without one the volume runs out of blocks.
    Never,
}

/// How an emulator behaves from when it is opened on; none of it is kept in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behaviour {
    /// When blocks are erased.
    pub erase_mode: EraseMode,
    /// Content that stays moves when the most worn free block has been erased this much more often
    /// than the block that it is in.
    pub wear_threshold: u64,
    /// So many flipped bits of a page are corrected.
    pub ecc_strength_bits: u32,
    /// What torn and garbled pages and half-erased blocks hold follows from it.
    pub seed: u64,
}

impl Default for Behaviour {
    /// Lazy; the threshold of UBI; the four bits of common chips.
    fn default() -> Self {
        Self { erase_mode: EraseMode::Lazy, wear_threshold: 4096, ecc_strength_bits: 4, seed: 0 }
    }
}

/// What to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmulatorOptions {
    /// Length of a page in bytes: a power of two, 512 to 16,384.
    pub page_len_bytes: u32,
    /// Pages of a physical erase block, 4 to 1024; the first is for headers.
    pub pages_per_block: u32,
    /// Number of physical erase blocks.
    pub blocks: u32,
    /// Of 1024 blocks so many are bad from the beginning, by chance that follows from the seed.
    pub factory_bad_per_1024: u32,
    /// Of 1024 blocks so many are kept for those that are or go bad.
    pub reserve_per_1024: u32,
    /// How it behaves until it is closed.
    pub behaviour: Behaviour,
}

impl Default for EmulatorOptions {
    /// 128 MiB of 2 KiB pages in blocks of 128 KiB, with the reserve of UBI and no bad block.
    fn default() -> Self {
        Self {
            page_len_bytes: 2048,
            pages_per_block: 64,
            blocks: 1024,
            factory_bad_per_1024: 0,
            reserve_per_1024: 20,
            behaviour: Behaviour::default(),
        }
    }
}

impl EmulatorOptions {
    /// As many whole blocks as `len_bytes` have room for.
    #[must_use]
    pub fn len_bytes(mut self, len_bytes: u64) -> Self {
        let block = u64::from(self.page_len_bytes) * u64::from(self.pages_per_block);
        self.blocks = u32::try_from(len_bytes / block.max(1)).unwrap_or(u32::MAX);
        self
    }

    /// What a volume made with these options looks like.
    ///
    /// # Errors
    /// [`Kind::OutOfRange`] for options that cannot be.
    pub fn geometry(&self) -> Result<Geometry> {
        let shape = self.shape()?;
        Ok(Geometry {
            leb_len_bytes: shape.leb_len_bytes(),
            lebs: self.lebs(shape, self.factory_bad_count(shape))?,
            page_len_bytes: shape.page_len_bytes,
        })
    }

    pub(super) fn shape(&self) -> Result<Shape> {
        for (share, what) in
            [(self.factory_bad_per_1024, "bad"), (self.reserve_per_1024, "kept in reserve")]
        {
            if share > 512 {
                let text = format!("{share} of 1024 blocks {what}: at most 512 are possible");
                return Err(Error::new(Kind::OutOfRange, text));
            }
        }
        Shape::new(self.page_len_bytes, self.pages_per_block, self.blocks)
    }

    /// Which blocks are bad from the beginning.
    pub(super) fn factory_bad(&self, shape: Shape) -> Vec<bool> {
        let mut random = Random::new(self.behaviour.seed, FACTORY_STREAM);
        let bad = u64::from(self.factory_bad_per_1024);
        shape.pebs().map(|_| random.below(1024) < bad).collect()
    }

    fn factory_bad_count(&self, shape: Shape) -> u32 {
        let bad = self.factory_bad(shape).into_iter().filter(|is_bad| *is_bad).count();
        u32::try_from(bad).expect("blocks have numbers of 32 bits")
    }

    /// Number of logical erase blocks, where `bad` blocks are bad from the beginning.
    ///
    /// # Errors
    /// [`Kind::OutOfRange`] if there is no room for one.
    pub(super) fn lebs(&self, shape: Shape, bad: u32) -> Result<u32> {
        let reserve = u64::from(shape.blocks) * u64::from(self.reserve_per_1024);
        let reserve = u32::try_from(reserve.div_ceil(1024)).expect("half of the blocks at most");
        let lost = reserve.max(bad) + KEPT_BLOCKS;
        shape.blocks.checked_sub(lost).filter(|lebs| *lebs > 0).ok_or_else(|| {
            let text = format!(
                "{} erase blocks are too few: {bad} are bad, {reserve} kept in reserve, and \
                 {KEPT_BLOCKS} for other needs",
                shape.blocks
            );
            Error::new(Kind::OutOfRange, text)
        })
    }
}
