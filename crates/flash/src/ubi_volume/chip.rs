//! The chip below a volume of UBI: all of its physical blocks, read past UBI.

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::sysfs::Folder;
use crate::dump::read_pages;
use crate::{Error, Result};

/// What Linux tells of the wear of a chip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChipWear {
    /// Physical blocks, bad ones too.
    pub blocks: u32,
    /// Those that are out of use.
    pub bad_blocks: u32,
    /// How often the most worn one has been erased.
    pub erases_most: u32,
}

impl ChipWear {
    pub(super) fn of(volume: &Folder) -> Result<Self> {
        let bad_blocks = volume.bad_blocks()?;
        Ok(Self {
            blocks: volume.number::<u32>("../total_eraseblocks")? + bad_blocks,
            bad_blocks,
            erases_most: volume.number("../max_ec")?,
        })
    }
}

/// A chip as Linux shows it: `/dev/mtdN`.
#[derive(Debug)]
pub(super) struct Chip {
    file: File,
    path: PathBuf,
    len_bytes: u64,
    block_len_bytes: usize,
    page_len_bytes: usize,
}

impl Chip {
    /// The chip that a volume lies on.
    pub(super) fn below(volume: &Folder) -> Result<Self> {
        let number = volume.number::<u32>("../mtd_num")?;
        let path = PathBuf::from(format!("/dev/mtd{number}"));
        let file = File::open(&path)
            .map_err(|e| Error::from_io(format!("cannot open {}", path.display()), e))?;
        let folder = Folder::at(Path::new("/sys/class/mtd").join(format!("mtd{number}")));
        Ok(Self {
            file,
            path,
            len_bytes: folder.number("size")?,
            block_len_bytes: folder.number("erasesize")?,
            page_len_bytes: folder.number("writesize")?,
        })
    }

    /// Writes all of it to `out`; where nothing could be read, and zeros were written.
    pub(super) fn dump(&self, out: &mut dyn Write) -> Result<Vec<Range<u64>>> {
        let mut unread = Vec::new();
        let mut block = vec![0; self.block_len_bytes];
        for start in (0..self.len_bytes).step_by(self.block_len_bytes) {
            let read = |at, buf: &mut [u8]| self.file.read_exact_at(buf, start + at);
            let missing = read_pages(&mut block, self.page_len_bytes, read);
            unread.extend(missing.into_iter().map(|range| start + range.start..start + range.end));
            out.write_all(&block).map_err(|e| {
                Error::from_io(format!("cannot write the dump of {}", self.path.display()), e)
            })?;
        }
        Ok(unread)
    }
}
