//! What a volume lies on: an emulated chip in a file, or a volume of UBI of this machine.

use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tacita_flash::emulator::BlockWear;
use tacita_flash::{Behaviour, Emulator, Result, UbiVolume, Volume};

use crate::exit::{self, Outcome};

pub(super) enum Chip {
    Emulated(Arc<Emulator>),
    Ubi(Arc<UbiVolume>),
}

/// Whether this is a device, not a file.
pub(crate) fn is_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.file_type().is_char_device())
}

impl Chip {
    /// Opens it for this process alone.
    pub(super) fn open(path: &Path) -> Outcome<Self> {
        let opened = if is_device(path) {
            UbiVolume::open(path).map(|volume| Self::Ubi(Arc::new(volume)))
        } else {
            Emulator::open(path, Behaviour::default()).map(|chip| Self::Emulated(Arc::new(chip)))
        };
        opened.map_err(|e| exit::of_flash(path, &e))
    }

    /// The same where one that can only be read has a use: `reading` says which.
    pub(super) fn open_or(path: &Path, reading: &str) -> Outcome<Self> {
        Self::open(path).map_err(|failure| exit::or_reading(failure, reading))
    }

    /// Opens it for reading, beside others who do: nothing of it changes.
    pub(super) fn open_read_only(path: &Path) -> Outcome<Self> {
        let opened = if is_device(path) {
            UbiVolume::open_read_only(path).map(|volume| Self::Ubi(Arc::new(volume)))
        } else {
            Emulator::open_read_only(path).map(|chip| Self::Emulated(Arc::new(chip)))
        };
        opened.map_err(|e| exit::of_flash(path, &e))
    }

    pub(super) fn volume(&self) -> Arc<dyn Volume> {
        match self {
            Self::Emulated(chip) => Arc::<Emulator>::clone(chip),
            Self::Ubi(volume) => Arc::<UbiVolume>::clone(volume),
        }
    }

    /// Its wear, as facts.
    pub(super) fn wear(&self) -> Result<Value> {
        Ok(match self {
            Self::Emulated(chip) => {
                let wear = chip.wear();
                let erased = wear.iter().map(|block| block.erase_counter);
                json!({
                    "physical_blocks": wear.len(),
                    "bad_blocks": wear.iter().filter(|block| block.is_bad).count(),
                    "erases_most": erased.clone().max().unwrap_or(0),
                    "erases": erased.sum::<u64>(),
                })
            }
            Self::Ubi(volume) => {
                let wear = volume.wear()?;
                json!({
                    "physical_blocks": wear.blocks,
                    "bad_blocks": wear.bad_blocks,
                    "erases_most": wear.erases_most,
                })
            }
        })
    }

    /// The wear of each physical block; nothing where the device does not tell.
    pub(super) fn blocks(&self) -> Vec<BlockWear> {
        match self {
            Self::Emulated(chip) => chip.wear(),
            Self::Ubi(_) => Vec::new(),
        }
    }

    /// Writes all physical blocks to `out`; which bytes could not be read.
    pub(super) fn dump(&self, out: &mut dyn Write) -> Result<Vec<Range<u64>>> {
        match self {
            Self::Emulated(chip) => chip.dump(out),
            Self::Ubi(volume) => volume.dump(out),
        }
    }
}
