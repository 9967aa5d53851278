//! Making a device.

use std::collections::VecDeque;
use std::sync::Arc;

use tacita_block::{BlockDevice, BlockNo};
use tacita_clock::System;
use tacita_secret::Key;

use crate::engine::Engine;
use crate::entropy::Entropy;
use crate::error::{Error, Kind, Result};
use crate::faults::{Fault, planted};
use crate::geometry::{BLOCK_LEN, Geometry, Level, Parameters, Seq};
use crate::keys::HiddenKeys;
use crate::level::{LevelHead, OpenLevel, Pages};
use crate::log::Log;
use crate::open_log::OpenLog;
use crate::sequencer::{Sequencer, Start};
use crate::superblock::Superblock;
use crate::unit::{Block, NO_ID};
use crate::unlock::{Unlock, shape};

/// Makes a device. What is on it is lost, though not overwritten: that is what `wipe` is for.
///
/// # Errors
/// As [`Making::new`] and [`Making::write`].
pub fn init(
    device: &Arc<dyn BlockDevice>,
    parameters: &Parameters,
    public: Unlock<'_>,
    hidden: &[Unlock<'_>],
    entropy: Entropy,
) -> Result<()> {
    Making::new(parameters, shape(&**device)?, public, hidden, entropy)?.write(device)
}

/// A device that is about to be made. Each password has taken its time by now: what is left to do takes as
/// long whatever is hidden.
pub struct Making {
    blocks: u64,
    geometry: Geometry,
    superblock: Superblock,
    master: Key,
    levels: Vec<Option<OpenLevel>>,
    heads: Vec<Option<LevelHead>>,
    entropy: Entropy,
}

impl std::fmt::Debug for Making {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Making").field("geometry", &self.geometry).finish_non_exhaustive()
    }
}

impl Making {
    /// Makes the keys of a device of so many blocks.
    ///
    /// `hidden` has one entry a class, from the first on; classes left out have no volume.
    ///
    /// # Errors
    /// [`Kind::Geometry`]; [`Kind::Memory`]; [`Kind::Device`] without random bytes.
    pub fn new(
        parameters: &Parameters,
        blocks: u64,
        public: Unlock<'_>,
        hidden: &[Unlock<'_>],
        mut entropy: Entropy,
    ) -> Result<Self> {
        let mut parameters = *parameters;
        if planted(Fault::CountedVolumes) {
            parameters.heartbeat_ms += u32::try_from(hidden.len()).unwrap_or(0);
        }
        let geometry = Geometry::new(parameters, blocks)?;
        if hidden.len() > parameters.classes as usize {
            let text = format!("more hidden passwords than classes: {}", parameters.classes);
            return Err(Error::new(Kind::Geometry, text));
        }
        let salt = (entropy.public)()?;
        let wrap_salt = (entropy.public)()?;
        let master = Key::take(&mut (entropy.public)()?);
        let wrap = public.wrap(&salt)?;
        let superblock = Superblock::new(geometry, salt, wrap_salt, &wrap, &master);
        let open = OpenLevel::new(&geometry, Level::PUBLIC, master.clone(), None, 0);
        let mut levels = vec![Some(open)];
        let mut below = master.clone();
        for level in geometry.levels().skip(1) {
            let Some(unlock) = hidden.get(level.index() - 1) else {
                levels.push(None);
                continue;
            };
            let keys =
                HiddenKeys { wrap: unlock.wrap(&salt)?, master: entropy.hidden_key()?, below };
            let master = keys.master.clone();
            below = keys.master.clone();
            levels.push(Some(OpenLevel::new(&geometry, level, master, Some(keys), 0)));
        }
        let heads = levels.iter().map(|open| Some(fresh_head(&geometry, open.as_ref()?))).collect();
        Ok(Self { blocks, geometry, superblock, master, levels, heads, entropy })
    }

    /// Writes it.
    ///
    /// # Errors
    /// [`Kind::Geometry`] for a device of another length; [`Kind::NoThread`]; [`Kind::Device`].
    pub fn write(self, device: &Arc<dyn BlockDevice>) -> Result<()> {
        let Self { blocks, geometry, superblock, master, levels, heads, entropy } = self;
        if shape(&**device)? != blocks {
            return Err(Error::new(Kind::Geometry, "the length of the device has changed"));
        }
        let log = Log::new(device, geometry, master);
        let shared = OpenLog::new(log, Seq(0), levels, usize::MAX, Arc::new(System), None);
        let shared = Arc::new(shared);
        let head = Sequencer::new(Arc::clone(&shared), &Start::default(), heads, entropy)?;
        // Units are written in every world, so that there is a place for cells; two, so that one of them
        // may be damaged.
        let engine = Engine::new(shared, Some(head))?;
        engine.beat()?;
        engine.beat()?;
        write_superblock(&**device, &geometry, &superblock.encode())
    }
}

/// Writes all superblocks; on a device that has grown there is one in its last block, too.
pub(crate) fn write_superblock(
    device: &dyn BlockDevice,
    geometry: &Geometry,
    block: &Block,
) -> Result<()> {
    let last = BlockNo(shape(device)? - 1);
    let grown = (last != geometry.second_superblock()).then_some(last);
    // One after the other: a power cut leaves one of them whole.
    for at in grown.into_iter().chain([geometry.second_superblock(), BlockNo(0)]) {
        device.write(at, block)?;
        device.flush()?;
    }
    Ok(())
}

/// Puts a copy of the superblock in the last block of a device that has grown since it was opened
/// last. Nothing that is hidden has a part in it.
pub(crate) fn follow_growth(device: &dyn BlockDevice, superblock: &Superblock) -> Result<()> {
    let last = BlockNo(shape(device)? - 1);
    if last == superblock.geometry.second_superblock() {
        return Ok(());
    }
    let (block, mut found) = (superblock.encode(), Box::new([0; BLOCK_LEN]));
    let is_read = device.read(last, &mut found[..]).is_ok();
    if !is_read || found != block {
        device.write(last, &block[..])?;
        device.flush()?;
    }
    Ok(())
}

fn fresh_head(geometry: &Geometry, open: &OpenLevel) -> LevelHead {
    let ids_before = vec![NO_ID; geometry.slot_count(open.level)];
    let pages = Pages::new(vec![Seq(0); open.map.pages() as usize]);
    LevelHead { ids_before, pages, passed: VecDeque::new() }
}
