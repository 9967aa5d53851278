//! What looks at a journal at rest, and recovery: what a crash has interrupted is finished or erased.

use tacita_block::{AlignedBuf, BlockNo, is_zero};
use tacita_secret::digest;

use super::{
    Contents, HASH_AT, MAGIC, Move, PIECE_BLOCKS, RECORD_LEN, Run, erase, move_all, tag_of,
};
use crate::error::{Error, Result, damaged};
use crate::geometry::{BLOCK_LEN, Geometry};
use crate::medium::Medium;
use crate::superblock::{Superblock, u32_at};

/// What recovery found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// The journal was zero: the image had been left at rest.
    Clean,
    /// A commit had begun and was not yet durable: it has been erased.
    Erased,
    /// A durable commit was finished.
    Finished,
}

/// What was found, and what of a journal at rest cannot be read: nothing is to be written then.
pub(crate) type Found = (Recovery, Option<Error>);

/// Looks at the journal without changing anything.
///
/// # Errors
/// [`Kind::Damaged`] if a durable commit cannot be finished; [`Kind::Device`].
pub(crate) fn inspect(medium: &Medium, superblock: &Superblock) -> Result<Found> {
    if let Some(found) = at_rest(medium, &superblock.geometry)? {
        return Ok(found);
    }
    let area = read_area(medium, &superblock.geometry)?;
    let found = match whole(&area) {
        Some(bytes) if Contents::parse(bytes, superblock)?.is_durable(medium)? => {
            Recovery::Finished
        }
        _ => Recovery::Erased,
    };
    Ok((found, None))
}

/// Finishes or erases a commit that a crash has interrupted.
///
/// # Errors
/// [`Kind::Damaged`] if a durable commit cannot be finished; [`Kind::Device`].
pub(crate) fn recover(medium: &Medium, superblock: &Superblock) -> Result<Found> {
    let geometry = &superblock.geometry;
    if let Some(found) = at_rest(medium, geometry)? {
        if found.1.is_none() {
            // A process that died after its last write may have left zeros that are not durable yet.
            medium.flush()?;
        }
        return Ok(found);
    }
    let area = read_area(medium, geometry)?;
    let mut outcome = Recovery::Erased;
    if let Some(bytes) = whole(&area) {
        let contents = Contents::parse(bytes, superblock)?;
        if contents.is_durable(medium)? {
            contents.fill_again(medium)?;
            move_all(&contents.moves, medium, true, &mut |_| {})?;
            contents.overwrite(medium)?;
            medium.flush()?;
            outcome = Recovery::Finished;
        } else {
            contents.take_back(medium, &mut |_| {})?;
        }
    }
    erase(medium, geometry)?;
    Ok((outcome, None))
}

/// The journal if it is zero, which it mostly is, and what of it cannot be read: looked at in pieces.
///
/// One block that cannot be read makes no difference where the others are zero: a commit takes two at
/// least, a header and records.
///
/// # Errors
/// [`Kind::Device`] if several cannot be read.
fn at_rest(medium: &Medium, geometry: &Geometry) -> Result<Option<Found>> {
    let mut piece = AlignedBuf::new(PIECE_BLOCKS as usize * BLOCK_LEN);
    let mut unread = None;
    let mut at = 0;
    while at < geometry.journal_blocks {
        let left = u32::try_from(geometry.journal_blocks - at).unwrap_or(PIECE_BLOCKS);
        let piece = &mut piece[..left.min(PIECE_BLOCKS) as usize * BLOCK_LEN];
        let first = geometry.journal().0 + at;
        if medium.read(BlockNo(first), piece).is_err() {
            for (block, content) in (first..).zip(piece.chunks_exact_mut(BLOCK_LEN)) {
                if let Err(error) = medium.read(BlockNo(block), content) {
                    content.fill(0);
                    let place = damaged(format!("journal: block {block}: {error}"));
                    if unread.replace(place).is_some() {
                        return Err(error);
                    }
                }
            }
        }
        if !is_zero(piece) {
            return Ok(None);
        }
        at += u64::from(PIECE_BLOCKS);
    }
    Ok(Some((Recovery::Clean, unread)))
}

fn read_area(medium: &Medium, geometry: &Geometry) -> Result<AlignedBuf> {
    let len = usize::try_from(geometry.journal_blocks).expect("fits in memory") * BLOCK_LEN;
    let mut area = AlignedBuf::new(len);
    medium.read(geometry.journal(), &mut area)?;
    Ok(area)
}

/// The journal in `area`, if it is whole.
fn whole(area: &[u8]) -> Option<&[u8]> {
    if area[..8] != MAGIC {
        return None;
    }
    let (records, data) = (u64::from(u32_at(area, 8)), u64::from(u32_at(area, 12)));
    let head = (records * RECORD_LEN as u64).next_multiple_of(BLOCK_LEN as u64);
    let len = (1 + data) * BLOCK_LEN as u64 + head;
    let bytes = area.get(..usize::try_from(len).ok()?)?;
    let mut plain = bytes.to_vec();
    plain[HASH_AT..HASH_AT + 32].fill(0);
    (digest(&plain)[..] == bytes[HASH_AT..HASH_AT + 32]).then_some(bytes)
}

impl Contents {
    /// Whether the commit is durable: it is when everything that fills free cells has arrived.
    ///
    /// # Errors
    /// [`Kind::Damaged`] if it was durable and what had arrived has changed since; [`Kind::Device`].
    fn is_durable(&self, medium: &Medium) -> Result<bool> {
        for (run, tag) in &self.fills {
            if tag_of(&run.read(medium)?) != *tag {
                return if self.has_begun(medium)? {
                    Err(damaged(format!(
                        "journal: new content at block {} has changed since it was written",
                        run.at
                    )))
                } else {
                    Ok(false)
                };
            }
        }
        Ok(true)
    }

    /// Whether anything that is put is in its place: what is there before differs, or it would not be
    /// put.
    fn has_begun(&self, medium: &Medium) -> Result<bool> {
        for (at, content) in &self.puts {
            let count = u32::try_from(content.len() / BLOCK_LEN).expect("a run of a record");
            let old = Run { at: *at, count }.read(medium)?;
            let mut blocks = old.chunks_exact(BLOCK_LEN).zip(content.chunks_exact(BLOCK_LEN));
            if blocks.any(|(old, new)| old == new) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes what has arrived once more: what a reader sees after a failed flush need not be on the
    /// medium.
    fn fill_again(&self, medium: &Medium) -> Result<()> {
        for (run, _) in &self.fills {
            medium.write(BlockNo(run.at), &run.read(medium)?)?;
        }
        if self.fills.is_empty() { Ok(()) } else { medium.flush() }
    }
}

impl Move {
    /// Copies the cell as far as it has not arrived: a target that holds it already is its own source,
    /// for the other may have been overwritten since. It is written all the same, for what a reader
    /// sees after a failed flush need not be on the medium. A parked cell that has arrived is left.
    pub(super) fn recover(&self, medium: &Medium) -> Result<()> {
        if let Some(at) = self.later
            && tag_of(&Run { at, count: self.count }.read(medium)?) == self.tag
        {
            return Ok(());
        }
        medium.write(BlockNo(self.to), &self.look_for(medium)?)
    }
}
