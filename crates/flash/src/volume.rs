//! The seam: logical erase blocks that are appended to, mapped, unmapped and changed as a whole.

use std::fmt::Debug;

use crate::{Error, Kind, Result};

/// Number of a logical erase block (LEB), from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Leb(pub u32);

/// Shape of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Usable size of a logical erase block in bytes: whole pages, but no power of two where the
    /// headers of UBI take a page of it.
    pub leb_len_bytes: u32,
    /// Number of logical erase blocks.
    pub lebs: u32,
    /// Size of a page, the unit of writing, in bytes.
    pub page_len_bytes: u32,
}

impl Geometry {
    /// Checks that `len_bytes` at `offset` lie within erase block `leb`.
    ///
    /// # Errors
    /// [`Kind::OutOfRange`].
    pub fn check_read(&self, leb: Leb, offset: u32, len_bytes: usize) -> Result<()> {
        let fits = u64::from(offset) + len_bytes as u64 <= u64::from(self.leb_len_bytes);
        if leb.0 < self.lebs && fits {
            return Ok(());
        }
        Err(Error::new(
            Kind::OutOfRange,
            format!("{len_bytes} bytes at {offset} of erase block {} are beyond the end", leb.0),
        ))
    }

    /// [`Geometry::check_read`], and that these are whole pages.
    ///
    /// # Errors
    /// [`Kind::OutOfRange`].
    pub fn check_write(&self, leb: Leb, offset: u32, len_bytes: usize) -> Result<()> {
        self.check_read(leb, offset, len_bytes)?;
        let page = self.page_len_bytes;
        if offset.is_multiple_of(page) && (len_bytes as u64).is_multiple_of(u64::from(page)) {
            return Ok(());
        }
        Err(Error::new(
            Kind::OutOfRange,
            format!(
                "{len_bytes} bytes at {offset} of erase block {} are not whole pages of {page} bytes",
                leb.0
            ),
        ))
    }
}

/// What became of the physical blocks that nothing refers to any more: a block that went bad before
/// it was erased keeps what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EraseReport {
    /// Blocks that were out of use because they are bad when erases were last flushed, or when the
    /// volume was opened: what goes bad between two flushes is in the report of the second.
    pub bad_before: u32,
    /// The same now.
    pub bad_after: u32,
}

/// Logical erase blocks on flash.
///
/// Thread-safe; every method is atomic towards others, and `change` towards power cuts, too. Where it was
/// opened for reading, all but `geometry`, `read`, `is_mapped` and `sync` fails with [`Kind::ReadOnly`].
pub trait Volume: Send + Sync + Debug {
    /// Its shape, which never changes while it is open.
    fn geometry(&self) -> Geometry;

    /// Reads at `offset` of `leb`. What was never written, and all of a block that is not mapped,
    /// reads as `0xff`.
    ///
    /// # Errors
    /// [`Kind::OutOfRange`]; [`Kind::Io`] if it cannot be corrected.
    fn read(&self, leb: Leb, offset: u32, buf: &mut [u8]) -> Result<()>;

    /// Programs whole pages at `offset` of `leb`, which none has been programmed at or behind. A block
    /// that is not mapped is mapped first.
    ///
    /// After a power cut the pages hold what was written, part of it, or anything.
    ///
    /// # Errors
    /// [`Kind::OutOfRange`]; [`Kind::Programmed`]; [`Kind::Io`], [`Kind::WornOut`]: then some of it may
    /// be there.
    fn append(&self, leb: Leb, offset: u32, data: &[u8]) -> Result<()>;

    /// Replaces all of `leb` by `data`, whole pages from its start on; the rest is as erased. After a
    /// power cut the block holds the old content or the new. What it held before stays in a physical
    /// block until [`Volume::flush_erases`].
    ///
    /// # Errors
    /// [`Kind::OutOfRange`]; [`Kind::Io`], [`Kind::WornOut`]: the old content is still there.
    fn change(&self, leb: Leb, data: &[u8]) -> Result<()>;

    /// Gives `leb` an erased physical block, if it has none.
    ///
    /// # Errors
    /// [`Kind::OutOfRange`]; [`Kind::Io`]; [`Kind::WornOut`].
    fn map(&self, leb: Leb) -> Result<()>;

    /// Takes its physical block from `leb`; it is erased some time. After a power cut the block may
    /// be mapped again, with its old content, until [`Volume::flush_erases`].
    ///
    /// # Errors
    /// [`Kind::OutOfRange`]; [`Kind::Io`].
    fn unmap(&self, leb: Leb) -> Result<()>;

    /// Whether `leb` has a physical block.
    ///
    /// # Errors
    /// [`Kind::OutOfRange`]; [`Kind::Io`].
    fn is_mapped(&self, leb: Leb) -> Result<bool>;

    /// What could not be read when the volume was opened for reading, if anything: blocks that seem not to be
    /// mapped may hold something there. By default nobody knows of any.
    fn missed(&self) -> Option<Error> {
        None
    }

    /// What was appended, changed and mapped until now survives a power cut and a crash of the
    /// machine.
    ///
    /// # Errors
    /// [`Kind::Io`].
    fn sync(&self) -> Result<()>;

    /// [`Volume::sync`], and every physical block that was replaced or unmapped until now is erased, or
    /// counted as bad in the report.
    ///
    /// # Errors
    /// [`Kind::Io`].
    fn flush_erases(&self) -> Result<EraseReport>;
}
