//! A folder's blocks as they are on the device: which names are left in them beside those that live.
//!
//! The driver clears an entry that it removes, but when it splits a full block it leaves what moves
//! to the other one as it was: in the room behind the last entry, which counts as free. So the free
//! room is searched, gap by gap.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;

use super::hash::Hash;
use super::{CASEFOLD_MARK, ENCRYPTED_MARK, INDEX_MARK, INLINE_MARK, Volume, marks};
use crate::Result;
use crate::extents::Map;

/// Length of what precedes a name in its entry.
const HEAD_LEN: usize = 8;

/// The least that an entry takes.
pub(crate) const ENTRY_LEN_MIN: usize = 12;

/// Length of the checksum at the end of a block, which looks like an entry.
const CHECKSUM_LEN: usize = 12;

/// Where the head of an index lies in the first block of a folder.
const INDEX_HEAD: usize = 24;

/// The least of the end of a name that is taken for it.
const TAIL_LEN_MIN: usize = 4;

/// Bits of a number of a block in an index.
const BLOCK_MASK: u32 = 0x0fff_ffff;

/// Which names are looked for.
#[derive(Debug, Default, Clone)]
pub(crate) struct Wanted {
    /// Names that were removed.
    pub(crate) names: HashSet<OsString>,
    /// Any name at all: the folder goes.
    pub(crate) any: bool,
}

/// Room in a block that no entry uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gap {
    /// What an entry of the driver's would find there, in bytes.
    pub(crate) room: usize,
    /// Whether something of a name is in it.
    pub(crate) is_dirty: bool,
}

/// A block that holds names, or as many of them as names are put into in order.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) gaps: Vec<Gap>,
    /// Names with such hashes belong here.
    pub(crate) hashes: Range<u64>,
}

/// What was seen of a folder.
#[derive(Debug)]
pub(crate) struct Seen {
    /// How names find their block; `None` where they take the first room there is.
    pub(crate) hash: Option<Hash>,
    pub(crate) leaves: Vec<Leaf>,
    /// What was found, anywhere in the folder.
    pub(crate) left: Left,
}

/// What of names is left in a folder.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Left {
    names: HashSet<OsString>,
    /// Something that could be of any name.
    any: bool,
    /// It could not be looked at, so it may be anything.
    is_unseen: bool,
}

impl Left {
    /// Whatever is in a folder that cannot be looked at, or cleared.
    pub(crate) fn unseen() -> Self {
        Self { is_unseen: true, ..Self::default() }
    }

    /// Whether the folder could not be looked at.
    pub(crate) const fn is_unseen(&self) -> bool {
        self.is_unseen
    }

    /// Whether nothing at all is left.
    pub(crate) fn is_nothing(&self) -> bool {
        !self.any && !self.is_unseen && self.names.is_empty()
    }

    /// Whether something of that name may be left.
    pub(crate) fn has(&self, name: &OsStr) -> bool {
        self.any || self.is_unseen || self.names.contains(name)
    }
}

impl Leaf {
    pub(crate) fn is_dirty(&self) -> bool {
        self.gaps.iter().any(|gap| gap.is_dirty)
    }
}

/// Looks at a folder, which has been written to its place; `None` where it cannot be looked at. Where
/// it cannot be read, all that is known is that anything may be left in it.
pub(crate) fn look(volume: &Volume<'_>, folder: &File, wanted: &Wanted) -> Option<Seen> {
    try_look(volume, folder, wanted).unwrap_or_else(|e| {
        log::debug!("a folder cannot be looked at: {e}");
        Some(Seen { hash: None, leaves: Vec::new(), left: Left::unseen() })
    })
}

fn try_look(volume: &Volume<'_>, folder: &File, wanted: &Wanted) -> Result<Option<Seen>> {
    let marks = marks(folder);
    if marks & INLINE_MARK != 0 {
        if marks & ENCRYPTED_MARK != 0 {
            return Ok(None);
        }
        return look_inline(volume, folder, wanted);
    }
    let Some(map) = Map::of(folder)? else {
        return Ok(None);
    };
    let block_len = usize::try_from(volume.block_len()).unwrap_or(0);
    let mut blocks = Vec::new();
    for extent in &map.extents {
        let len = usize::try_from(extent.len).unwrap_or(0);
        let bytes = volume.read(extent.physical, len)?;
        blocks.extend(bytes.chunks(block_len).map(<[u8]>::to_vec));
    }
    let mut living = HashSet::new();
    for block in &blocks {
        living.extend(entries(block, volume).filter_map(|entry| entry.name(block)));
    }
    // Names that are back are no secret; the folded and the encrypted form of one is not known here.
    let names = wanted.names.iter().map(|name| name.as_bytes());
    let names = names.filter(|name| !living.contains(name));
    let is_other = marks & (CASEFOLD_MARK | ENCRYPTED_MARK) != 0;
    let any = wanted.any || is_other && !wanted.names.is_empty();
    let search = Search::new(names, any);
    let indexed = marks & INDEX_MARK != 0 && blocks.len() > 1;
    if !indexed {
        let mut left = Left::default();
        let gaps = blocks.iter().flat_map(|block| search.gaps(block, volume, &mut left)).collect();
        let leaves = vec![Leaf { gaps, hashes: 0..u64::MAX }];
        return Ok(Some(Seen { hash: None, leaves, left }));
    }
    let Some((hash, tree)) = index(&blocks) else {
        return Ok(None);
    };
    let mut seen = Seen { hash: Some(hash), leaves: Vec::new(), left: Left::default() };
    let mut reached = HashSet::new();
    for (number, hashes) in tree {
        reached.insert(number);
        if let Some(block) = blocks.get(number) {
            let gaps = search.gaps(block, volume, &mut seen.left);
            seen.leaves.push(Leaf { gaps, hashes });
        }
    }
    // Blocks of the index itself are not filled, but looked at as well.
    let others = blocks.iter().enumerate().filter(|(number, _)| !reached.contains(number));
    let only_names = Search { any: false, ..search.clone() };
    for (number, block) in others {
        only_names.gaps(block, volume, &mut seen.left);
        let head = if number == 0 { root_at(block) } else { HEAD_LEN };
        seen.left.any |= search.any && has_more(block, head, blocks.len());
    }
    Ok(Some(seen))
}

/// A folder in its inode: no filler is put there, for it might move the folder out of it. What is
/// left of names that are not known cannot be told from what else is there.
fn look_inline(volume: &Volume<'_>, folder: &File, wanted: &Wanted) -> Result<Option<Seen>> {
    use crate::error::During;
    use std::os::unix::fs::MetadataExt;
    if wanted.any {
        return Ok(None);
    }
    let number = folder.metadata().during("asking for a folder's number")?.ino();
    let Some(inode) = volume.inode(number)? else {
        return Ok(None);
    };
    let is_there = |name: &&OsString| find(&inode, name.as_bytes());
    let names = wanted.names.iter().filter(is_there).cloned().collect();
    let left = Left { names, ..Left::default() };
    Ok(Some(Seen { hash: None, leaves: Vec::new(), left }))
}

/// Whether some bytes are among others.
pub(crate) fn find(bytes: &[u8], wanted: &[u8]) -> bool {
    !wanted.is_empty() && memchr::memmem::find(bytes, wanted).is_some()
}

/// An entry of a block.
#[derive(Debug, Clone, Copy)]
struct DirEntry {
    at: usize,
    len: usize,
    name_len: usize,
    is_used: bool,
}

impl DirEntry {
    fn name(self, block: &[u8]) -> Option<&[u8]> {
        let start = self.at + HEAD_LEN;
        self.is_used.then(|| block.get(start..start + self.name_len)).flatten()
    }

    /// What it needs of its length.
    fn need(self) -> usize {
        if self.is_used { (HEAD_LEN + self.name_len).next_multiple_of(4) } else { 0 }
    }
}

/// The entries of a block, as far as they make sense.
fn entries(block: &[u8], volume: &Volume<'_>) -> impl Iterator<Item = DirEntry> {
    let checksum = if volume.superblock.has_checksums { CHECKSUM_LEN } else { 0 };
    let end = block.len().saturating_sub(checksum);
    let mut at = 0;
    std::iter::from_fn(move || {
        let head = block.get(at..at + HEAD_LEN).filter(|_| at + ENTRY_LEN_MIN <= end)?;
        let inode = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let len = match u16::from_le_bytes([head[4], head[5]]) {
            // Blocks of 64 KiB.
            0 | u16::MAX => block.len(),
            len => usize::from(len),
        };
        let len = len.min(end - at);
        let entry = DirEntry { at, len, name_len: usize::from(head[6]), is_used: inode != 0 };
        at += len.max(ENTRY_LEN_MIN);
        Some(entry)
    })
}

/// What is looked for in gaps.
#[derive(Clone)]
struct Search<'a> {
    /// Names by what they begin with.
    by_begin: HashMap<&'a [u8], Vec<&'a [u8]>>,
    /// Names that are shorter than that.
    short: HashSet<&'a [u8]>,
    any: bool,
}

impl<'a> Search<'a> {
    fn new(names: impl Iterator<Item = &'a [u8]>, any: bool) -> Self {
        let mut search = Self { by_begin: HashMap::new(), short: HashSet::new(), any };
        for name in names {
            match name.get(..TAIL_LEN_MIN) {
                Some(begin) => search.by_begin.entry(begin).or_default().push(name),
                None => {
                    search.short.insert(name);
                }
            }
        }
        search
    }

    /// The gaps of a block; what is found in them goes into `left`.
    fn gaps(&self, block: &[u8], volume: &Volume<'_>, left: &mut Left) -> Vec<Gap> {
        entries(block, volume)
            .map(|entry| {
                let from = entry.at + if entry.is_used { entry.need() } else { HEAD_LEN };
                let to = entry.at + entry.len;
                let is_dirty = self.look_in(block, from.min(to)..to, left);
                Gap { room: entry.len.saturating_sub(entry.need()), is_dirty }
            })
            .collect()
    }

    /// Whether the room holds a name, or at its begin the end of one. Of an entry that stood there
    /// anything may be overwritten from its begin on, its head before its name.
    fn look_in(&self, block: &[u8], room: Range<usize>, left: &mut Left) -> bool {
        let Some(bytes) = block.get(room).filter(|bytes| bytes.iter().any(|b| *b != 0)) else {
            return false;
        };
        if self.any {
            left.any = true;
            return true;
        }
        let mut found: Vec<&[u8]> = Vec::new();
        for at in (0..bytes.len()).step_by(4) {
            let rest = &bytes[at..];
            let same = rest.get(..TAIL_LEN_MIN).and_then(|begin| self.by_begin.get(begin));
            found.extend(same.into_iter().flatten().filter(|name| rest.starts_with(name)));
            let name_len = rest.get(6).map_or(0, |len| usize::from(*len));
            let name = rest.get(HEAD_LEN..HEAD_LEN + name_len);
            found.extend(name.filter(|name| self.short.contains(name)));
        }
        let all = self.short.iter().chain(self.by_begin.values().flatten());
        found.extend(all.filter(|name| begins_with_tail(bytes, name)));
        let is_dirty = !found.is_empty();
        left.names.extend(found.into_iter().map(|name| OsStr::from_bytes(name).to_owned()));
        is_dirty
    }
}

/// Whether bytes begin with the end of a name, or all of it.
fn begins_with_tail(bytes: &[u8], name: &[u8]) -> bool {
    let least = TAIL_LEN_MIN.min(name.len());
    bytes.len() >= least && (0..=name.len() - least).any(|from| bytes.starts_with(&name[from..]))
}

/// A part of an index: the number of its block, and the hashes that belong there.
type Branch = (usize, Range<u64>);

/// The hash of an indexed folder, and its leaves with the hashes that belong there.
fn index(blocks: &[Vec<u8>]) -> Option<(Hash, Vec<Branch>)> {
    let root = blocks.first()?;
    let head = root.get(INDEX_HEAD..INDEX_HEAD + HEAD_LEN)?;
    let hash = Hash::of(head[4])?;
    let mut nodes = parts(root, root_at(root), 0..u64::from(u32::MAX) + 1)?;
    for _ in 0..head[6] {
        let below =
            nodes.into_iter().map(|(number, hashes)| parts(blocks.get(number)?, HEAD_LEN, hashes));
        nodes = below.collect::<Option<Vec<_>>>()?.concat();
    }
    Some((hash, nodes))
}

/// Where the parts of the root of an index lie in its block.
fn root_at(block: &[u8]) -> usize {
    INDEX_HEAD + block.get(INDEX_HEAD + 5).map_or(0, |len| usize::from(*len))
}

/// Whether a block of an index holds anything behind its parts that has never been one: as blocks
/// are numbered by less than their count, the head of an entry is none.
fn has_more(block: &[u8], at: usize, block_count: usize) -> bool {
    let word = |at: usize| {
        let bytes = block.get(at..at + 4)?;
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    };
    let (limit, count) = word(at).map_or((0, 0), |word| (word & 0xffff, word >> 16));
    let is_part = |index: u32| {
        let number = word(at + 8 * index as usize + 4)? & BLOCK_MASK;
        Some((number as usize) < block_count)
    };
    !(count..limit).all(|index| is_part(index).unwrap_or(false))
}

/// The parts of a node of an index: the numbers of their blocks, and their hashes.
fn parts(block: &[u8], at: usize, hashes: Range<u64>) -> Option<Vec<Branch>> {
    let word = |at: usize| {
        let bytes = block.get(at..at + 4)?;
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    };
    let count = usize::from(u16::try_from(word(at)? >> 16).ok()?);
    let mut parts: Vec<Branch> = Vec::new();
    for index in 0..count {
        let place = at + 8 * index;
        let start = if index == 0 { hashes.start } else { u64::from(word(place)? & !1) };
        let number = usize::try_from(word(place + 4)? & BLOCK_MASK).ok()?;
        if let Some(last) = parts.last_mut() {
            last.1.end = start;
        }
        parts.push((number, start..hashes.end));
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_known_whatever_of_its_head_is_left() {
        let names: [&[u8]; 2] = [b"secretname", b"abc"];
        let search = Search::new(names.into_iter(), false);
        let is_in = |bytes: &[u8], from: usize| {
            let mut left = Left::default();
            let is_dirty = search.look_in(bytes, from..bytes.len(), &mut left);
            assert_eq!(is_dirty, !left.is_nothing());
            is_dirty
        };
        let whole = b"\x07\0\0\0\x14\0\x0a\x01secretname\0\0";
        for from in (0..=12).step_by(4) {
            assert!(is_in(whole, from), "from {from} on");
        }
        assert!(is_in(b"\x07\0\0\0\x0c\0\x03\x01abc\0", 0), "a short one");
        assert!(!is_in(b"\x07\0\0\0\x14\0\x0a\x01othername_\0\0", 0));
        assert!(!is_in(&[0; 20], 0));
    }

    #[test]
    fn the_end_of_a_name_is_known_again() {
        assert!(begins_with_tail(b"name\0\0", b"secretname"));
        assert!(begins_with_tail(b"a\0\0\0", b"a"));
        assert!(!begins_with_tail(b"ame\0", b"secretname"), "as good as anything");
        assert!(!begins_with_tail(b"\0\0\0\0", b"secretname"));
    }
}
