//! Ephemeral volumes: superblocks, roots and all keys are in memory only, so that nothing on the flash
//! outlives the mount.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tacita_clock::Clock;
use tacita_dnefs_format::{Layout, Protection, Superblock};
use tacita_flash::{
    EraseReport, Error as FlashError, Geometry, Leb, Result as FlashResult, Volume,
};
use tacita_secret::LockedBytes;

use crate::dnefs::Dnefs;
use crate::error::{Error, Kind, Result, damaged};
use crate::faults::{Fault, planted};
use crate::format::{
    FormatOptions, complete_superblock, format, read_superblock, write_superblock,
};
use crate::inodes::time_of;

/// Destroys what a volume holds, and makes it one whose keys are never on it.
///
/// # Errors
/// [`Kind::NotAVolume`]; [`Kind::Device`].
pub fn make_ephemeral(volume: &dyn Volume) -> Result<EraseReport> {
    let Superblock { parameters, generation, .. } = read_superblock(volume)?;
    write_superblock(volume, &Superblock::ephemeral(parameters, generation + 1))?;
    for leb in (2..parameters.lebs).map(Leb) {
        volume.unmap(leb)?;
    }
    Ok(volume.flush_erases()?)
}

impl Dnefs {
    /// Begins an empty file system on an ephemeral volume, which ends with this process at the latest.
    /// `owner` is the user and the group that its root directory belongs to.
    ///
    /// # Errors
    /// [`Kind::NotAVolume`]; [`Kind::Parameters`] if the volume is not ephemeral; [`Kind::Device`].
    pub fn open_ephemeral(
        volume: Arc<dyn Volume>,
        owner: (u32, u32),
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let superblock = read_superblock(&*volume)?;
        if superblock.protection != Protection::Memory {
            return Err(Error::new(Kind::Parameters, "the volume is not ephemeral"));
        }
        let parameters = superblock.parameters;
        let layout = Layout::new(&parameters).map_err(damaged("the superblock"))?;
        let options = FormatOptions {
            node_len_bytes: parameters.node_len_bytes,
            cipher: parameters.cipher,
            compression: parameters.compression,
            key_lebs: Some(parameters.key_lebs),
            owner,
            now: time_of(&*clock),
        };
        // What of it was to be destroyed may be there, if that was cut short.
        complete_superblock(&*volume, &superblock)?;
        let upper = Upper::new(volume, &layout);
        for leb in (2..upper.count).map(Leb) {
            upper.flash.unmap(leb)?;
        }
        let erased = upper.flash.flush_erases()?;
        let volume: Arc<dyn Volume> = Arc::new(upper);
        format(&volume, &options, None)?;
        let dnefs = Self::open(volume, None, clock)?;
        dnefs.note_erased(erased);
        Ok(dnefs)
    }
}

/// A volume whose lower erase blocks are in memory, up to those of keys.
#[derive(Debug)]
struct Upper {
    flash: Arc<dyn Volume>,
    count: u32,
    blocks: Mutex<Blocks>,
}

#[derive(Debug)]
struct Blocks {
    bytes: LockedBytes,
    leb_len_bytes: usize,
    mapped: Vec<bool>,
}

impl Blocks {
    fn of(&mut self, leb: Leb) -> &mut [u8] {
        let len = self.leb_len_bytes;
        &mut self.bytes[leb.0 as usize * len..][..len]
    }

    fn put(&mut self, leb: Leb, offset: u32, data: &[u8]) {
        self.of(leb)[offset as usize..][..data.len()].copy_from_slice(data);
        self.mapped[leb.0 as usize] = true;
    }

    fn clear(&mut self, leb: Leb) {
        self.of(leb).fill(0xff);
        self.mapped[leb.0 as usize] = false;
    }
}

impl Upper {
    fn new(flash: Arc<dyn Volume>, layout: &Layout) -> Self {
        let count = layout.main_leb(tacita_dnefs_format::MainLeb(0));
        let leb_len_bytes = layout.leb_len_bytes as usize;
        let mut bytes = LockedBytes::zeroed(count as usize * leb_len_bytes);
        bytes.fill(0xff);
        let blocks = Blocks { bytes, leb_len_bytes, mapped: vec![false; count as usize] };
        Self { flash, count, blocks: Mutex::new(blocks) }
    }

    /// The erase blocks in memory, if `leb` is one of them. Whoever has them changes them as a whole
    /// before it lets them go.
    fn in_memory(&self, leb: Leb) -> Option<MutexGuard<'_, Blocks>> {
        // Nothing that is done under the lock fails half way.
        (leb.0 < self.count).then(|| self.blocks.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Volume for Upper {
    fn geometry(&self) -> Geometry {
        self.flash.geometry()
    }

    fn read(&self, leb: Leb, offset: u32, buf: &mut [u8]) -> FlashResult<()> {
        let Some(mut blocks) = self.in_memory(leb) else {
            return self.flash.read(leb, offset, buf);
        };
        self.geometry().check_read(leb, offset, buf.len())?;
        buf.copy_from_slice(&blocks.of(leb)[offset as usize..][..buf.len()]);
        Ok(())
    }

    fn append(&self, leb: Leb, offset: u32, data: &[u8]) -> FlashResult<()> {
        let Some(mut blocks) = self.in_memory(leb) else {
            return self.flash.append(leb, offset, data);
        };
        self.geometry().check_write(leb, offset, data.len())?;
        blocks.put(leb, offset, data);
        Ok(())
    }

    fn change(&self, leb: Leb, data: &[u8]) -> FlashResult<()> {
        let Some(mut blocks) = self.in_memory(leb) else {
            return self.flash.change(leb, data);
        };
        if planted(Fault::EphemeralKept) {
            self.flash.change(leb, data)?;
        }
        self.geometry().check_write(leb, 0, data.len())?;
        blocks.clear(leb);
        blocks.put(leb, 0, data);
        Ok(())
    }

    fn map(&self, leb: Leb) -> FlashResult<()> {
        match self.in_memory(leb) {
            Some(mut blocks) => {
                blocks.mapped[leb.0 as usize] = true;
                Ok(())
            }
            None => self.flash.map(leb),
        }
    }

    fn unmap(&self, leb: Leb) -> FlashResult<()> {
        match self.in_memory(leb) {
            Some(mut blocks) => {
                blocks.clear(leb);
                Ok(())
            }
            None => self.flash.unmap(leb),
        }
    }

    fn is_mapped(&self, leb: Leb) -> FlashResult<bool> {
        match self.in_memory(leb) {
            Some(blocks) => Ok(blocks.mapped[leb.0 as usize]),
            None => self.flash.is_mapped(leb),
        }
    }

    fn missed(&self) -> Option<FlashError> {
        self.flash.missed()
    }

    fn sync(&self) -> FlashResult<()> {
        self.flash.sync()
    }

    /// What was replaced was in memory, and is gone: what is on the flash has no key there.
    fn flush_erases(&self) -> FlashResult<EraseReport> {
        self.sync().map(|()| EraseReport::default())
    }
}
