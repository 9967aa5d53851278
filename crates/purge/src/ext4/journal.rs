//! The journal as it is on the device: whether erasing it has left anything there.
//!
//! While it is looked at the kernel goes on writing to it for other programs, so it need not be
//! empty. What is found is therefore erased once more: whatever is as it was even then has not been
//! reached, for the rest was overwritten by zeros, or by what the kernel has written since.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use tacita_block::AlignedBuf;

use super::{Volume, buffer_for, read_to};
use crate::faults::{Fault, planted};
use crate::{Result, readers};

/// How often it is erased at most: what others write may by chance be the same twice.
const ERASURES_MAX: usize = 4;

/// Bytes that are read at once; a multiple of every length of blocks.
const READ_LEN: usize = 1 << 20;

/// The longest block there is, of zeros.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// An inode whose place is told by extents.
const EXTENTS_MARK: u32 = 0x8_0000;

/// What a node of a tree of extents begins with.
const EXTENTS_MAGIC: u16 = 0xF30A;

/// Length of the head of such a node, and of each entry.
const EXTENT_LEN: usize = 12;

/// The longest extent that has been written to; longer ones have not.
const EXTENT_BLOCKS_MAX: u64 = 1 << 15;

/// Levels of a tree of extents, and of blocks of numbers of blocks.
const DEPTH_MAX: usize = 5;

/// What a journal begins with, and where its superblock keeps marks of what must be understood; all
/// numbers of a journal are big-endian.
const MAGIC: u32 = 0xC03B_3998;
const INCOMPAT_AT: usize = 0x28;

/// It has an area for fast commits.
const FAST_COMMITS: u32 = 0x20;

/// Where an inode tells its place, and how long that is.
const PLACE: Range<usize> = 0x28..0x64;

/// Numbers of blocks of content in an inode; those behind them are of blocks of numbers.
const DIRECT_COUNT: usize = 12;

/// What was seen of a journal that has been erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Erased {
    /// Nothing is left of what was in it.
    Gone,
    /// The device cannot be read.
    Unread,
    /// It lies where it cannot be looked at.
    Unfound,
    /// Blocks of it are as they were before.
    Left,
}

/// Erases the journal by `erase`, and says what was seen on the device. That this cannot be read is no
/// failure: it has been erased.
///
/// # Errors
/// Those of `erase`.
pub(crate) fn erase(volume: Option<&Volume<'_>>, erase: &dyn Fn() -> Result<()>) -> Result<Erased> {
    erase()?;
    if planted(Fault::JournalUnseen) {
        return Ok(Erased::Gone);
    }
    let Some(volume) = volume else {
        return Ok(Erased::Unread);
    };
    let state = RandomState::new();
    let mut before: Option<HashMap<u64, u64>> = None;
    let mut left = Erased::Left;
    for round in 0..ERASURES_MAX {
        if round > 0 {
            erase()?;
        }
        left = match look(volume, &state) {
            Ok(Some(found)) => {
                let mut stayed = found.iter().filter(|(at, hash)| {
                    before.as_ref().is_none_or(|before| before.get(at) == Some(hash))
                });
                if stayed.next().is_none() {
                    return Ok(Erased::Gone);
                }
                before = Some(found);
                Erased::Left
            }
            Ok(None) => return Ok(Erased::Unfound),
            Err(e) => {
                // It may be there the next time.
                log::debug!("the journal cannot be looked at: {e}");
                Erased::Unread
            }
        };
    }
    if left == Erased::Left {
        let count = before.map_or(0, |before| before.len());
        log::warn!(
            "{count} blocks of the journal are not zero after it was erased again and again"
        );
    }
    Ok(left)
}

/// What is not zero, by its place; `None` where nobody can tell where it lies.
fn look(volume: &Volume<'_>, state: &RandomState) -> Result<Option<HashMap<u64, u64>>> {
    let Some(pieces) = pieces(volume)? else {
        return Ok(None);
    };
    let cut = |piece: Range<u64>| {
        let starts = piece.clone().step_by(READ_LEN);
        starts.map(move |at| at..piece.end.min(at + READ_LEN as u64))
    };
    let parts: Vec<_> = pieces.into_iter().flat_map(cut).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut buffer = buffer_for(READ_LEN);
        let mut found = HashMap::new();
        while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            look_at(volume, part, &mut buffer, &mut |at, block| {
                found.insert(at, state.hash_one(block));
            })?;
        }
        Ok(found)
    };
    let found: Result<Vec<_>> = readers::together(parts.len(), work).into_iter().collect();
    Ok(Some(found?.into_iter().flatten().collect()))
}

/// Tells of blocks of a part of the journal that are not zero.
fn look_at(
    volume: &Volume<'_>,
    part: &Range<u64>,
    buffer: &mut AlignedBuf,
    tell: &mut dyn FnMut(u64, &[u8]),
) -> Result<()> {
    let len = usize::try_from(part.end - part.start).unwrap_or(0);
    let bytes = read_to(volume.device, part.start, len, buffer)?;
    let block_len = usize::try_from(volume.block_len()).unwrap_or(ZEROS.len());
    for (at, block) in part.clone().step_by(block_len).zip(bytes.chunks(block_len)) {
        if *block != ZEROS[..block.len()] {
            tell(at, block);
        }
    }
    Ok(())
}

/// Whether the journal has an area for fast commits, as the file system's superblock or its own
/// says; `None` where the device cannot be read. Where only its own cannot be found, as on another
/// device, the file system's is believed: without its word the kernel makes none.
pub(crate) fn has_fast_commits(device: &File) -> Option<bool> {
    let volume = Volume::of(device).ok()??;
    if volume.superblock.has_fast_commits {
        return Some(true);
    }
    let Some(first) = blocks(&volume).ok()?.and_then(|ranges| Some(ranges.first()?.start)) else {
        return Some(false);
    };
    let block = volume.read(first * volume.block_len(), super::superblock::LEN).ok()?;
    let word = |at| u32_at(&block, at).swap_bytes();
    Some(word(0) == MAGIC && word(INCOMPAT_AT) & FAST_COMMITS != 0)
}

/// Where the journal lies on the device, without its first block, which tells that it is empty;
/// `None` where nobody can tell, or it lies on another device.
fn pieces(volume: &Volume<'_>) -> Result<Option<Vec<Range<u64>>>> {
    let Some(mut ranges) = blocks(volume)? else {
        return Ok(None);
    };
    if let Some(first) = ranges.first_mut() {
        first.start += 1;
    }
    let len = volume.block_len();
    let bytes = ranges.iter().filter(|range| !range.is_empty());
    let bytes: Vec<_> = bytes.map(|range| range.start * len..range.end * len).collect();
    Ok((!bytes.is_empty()).then_some(bytes))
}

/// The blocks of the journal, in its order.
fn blocks(volume: &Volume<'_>) -> Result<Option<Vec<Range<u64>>>> {
    let number = volume.superblock.journal_inode;
    if number == 0 {
        return Ok(None);
    }
    let Some(inode) = volume.inode(number)? else {
        return Ok(None);
    };
    let place = &inode[PLACE];
    let mut blocks = Blocks { volume, ranges: Vec::new() };
    let is_known = if u32_at(&inode, 0x20) & EXTENTS_MARK != 0 {
        blocks.take_extents(place, DEPTH_MAX)?
    } else {
        blocks.take_numbers(place)?
    };
    Ok(is_known.then_some(blocks.ranges))
}

/// Blocks of a file, in its order.
struct Blocks<'a> {
    volume: &'a Volume<'a>,
    ranges: Vec<Range<u64>>,
}

impl Blocks<'_> {
    fn push(&mut self, range: Range<u64>) {
        match self.ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.ranges.push(range),
        }
    }

    fn block(&self, number: u64) -> Result<Vec<u8>> {
        let len = self.volume.block_len();
        self.volume.read(number * len, usize::try_from(len).unwrap_or(0))
    }

    /// Takes in what a node of a tree of extents tells; whether it could be understood.
    fn take_extents(&mut self, node: &[u8], levels: usize) -> Result<bool> {
        let (count, depth) = (usize::from(u16_at(node, 2)), u16_at(node, 6));
        let Some(entries) = node.get(EXTENT_LEN..EXTENT_LEN * (count + 1)) else {
            return Ok(false);
        };
        if u16_at(node, 0) != EXTENTS_MAGIC || levels == 0 {
            return Ok(false);
        }
        for entry in entries.chunks(EXTENT_LEN) {
            if depth == 0 {
                let len = u64::from(u16_at(entry, 4));
                let len = if len > EXTENT_BLOCKS_MAX { len - EXTENT_BLOCKS_MAX } else { len };
                let start = u64::from(u16_at(entry, 6)) << 32 | u64::from(u32_at(entry, 8));
                self.push(start..start + len);
            } else {
                let child = u64::from(u16_at(entry, 8)) << 32 | u64::from(u32_at(entry, 4));
                let child = self.block(child)?;
                if !self.take_extents(&child, levels - 1)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The same of an inode that tells numbers of blocks, as those of ext3 do.
    fn take_numbers(&mut self, place: &[u8]) -> Result<bool> {
        for (index, number) in place.chunks(4).enumerate() {
            self.take_number(u32_at(number, 0), (index + 1).saturating_sub(DIRECT_COUNT))?;
        }
        Ok(true)
    }

    fn take_number(&mut self, number: u32, levels: usize) -> Result<()> {
        let number = u64::from(number);
        if number == 0 {
            return Ok(());
        }
        if levels == 0 {
            self.push(number..number + 1);
            return Ok(());
        }
        for below in self.block(number)?.chunks(4) {
            self.take_number(u32_at(below, 0), levels - 1)?;
        }
        Ok(())
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..at + 4);
    bytes.map_or(0, |bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::process::{Command, Stdio};

    use super::*;

    /// An image that nobody mounts; `None` where there is no program for it, which is said.
    fn image(features: &str) -> Option<tempfile::NamedTempFile> {
        image_of("4096", features)
    }

    fn image_of(block_len: &str, features: &str) -> Option<tempfile::NamedTempFile> {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(32 << 20).unwrap();
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        let mut command = Command::new("mkfs.ext4");
        command.args(["-q", "-F", "-b", block_len, "-O", features]).arg(file.path());
        match command.env("PATH", path).stdin(Stdio::null()).status() {
            Ok(done) => assert!(done.success(), "{features}"),
            Err(e) => {
                eprintln!("SKIPPED: fast commits: mkfs.ext4: {e}");
                return None;
            }
        }
        Some(file)
    }

    #[test]
    fn an_area_for_fast_commits_is_seen() {
        for (features, seen) in
            [("^fast_commit", false), ("fast_commit", true), ("^has_journal", false)]
        {
            let Some(image) = image(features) else { return };
            assert_eq!(has_fast_commits(image.as_file()), Some(seen), "{features}");
        }
    }

    #[test]
    fn a_journal_is_found_in_every_shape() {
        for block_len in ["1024", "2048", "4096"] {
            for features in ["^bigalloc", "bigalloc", "^64bit", "^extent,^64bit"] {
                let Some(file) = image_of(block_len, features) else { return };
                let volume = Volume::of(file.as_file()).unwrap().unwrap();
                let ranges = blocks(&volume).unwrap().unwrap();
                let first = volume.read(ranges[0].start * volume.block_len(), 4).unwrap();
                let what = format!("{features}, blocks of {block_len}");
                assert_eq!(u32_at(&first, 0).swap_bytes(), MAGIC, "{what}");
                assert_eq!(has_fast_commits(file.as_file()), Some(false), "{what}");
            }
        }
    }

    /// That it cannot be read, for a moment or for ever, keeps nobody from erasing it.
    #[test]
    fn a_journal_that_cannot_be_read_is_erased() {
        let Some(image) = image("^fast_commit") else { return };
        let file = image.as_file();
        let volume = Volume::of(file).unwrap().unwrap();
        let len = file.metadata().unwrap().len();
        let end = blocks(&volume).unwrap().unwrap().last().unwrap().end * volume.block_len();
        for (readable_from, expected) in [(2, Erased::Gone), (usize::MAX, Erased::Unread)] {
            file.set_len(end - 1).unwrap();
            let erasures = std::cell::Cell::new(0);
            let erase = || {
                erasures.set(erasures.get() + 1);
                if erasures.get() >= readable_from {
                    file.set_len(len).unwrap();
                }
                Ok(())
            };
            assert_eq!(super::erase(Some(&volume), &erase).unwrap(), expected);
            assert!(erasures.get() > 1, "it is tried again");
        }
    }

    /// It stays when the feature is taken away from the file system.
    #[test]
    fn an_area_that_only_the_journal_knows_of_is_seen() {
        let Some(file) = image("^fast_commit") else { return };
        let volume = Volume::of(file.as_file()).unwrap().unwrap();
        let first = blocks(&volume).unwrap().unwrap()[0].start * volume.block_len();
        let mark = FAST_COMMITS.to_be_bytes();
        file.as_file().write_all_at(&mark, first + INCOMPAT_AT as u64).unwrap();
        assert_eq!(has_fast_commits(file.as_file()), Some(true));
        file.as_file().write_all_at(&[0; 4], first).unwrap();
        assert_eq!(has_fast_commits(file.as_file()), Some(false), "it is no journal");
    }

    #[test]
    fn what_cannot_be_read_is_not_denied() {
        let empty = tempfile::tempfile().unwrap();
        assert_eq!(has_fast_commits(&empty), None, "nothing on it");
    }
}
