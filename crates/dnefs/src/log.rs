//! The main area: nodes are appended to erase blocks by several heads, and never written over.
//!
//! The erase blocks that are being appended to are in memory as a whole until they are full, so that
//! what is in them is read from there.

use tacita_dnefs_format::checkpoint::Location;
use tacita_dnefs_format::node::{self, Class};
use tacita_dnefs_format::{Layout, MainLeb, NODE_ALIGN};
use tacita_flash::{Leb, Volume};

use crate::error::{Error, Kind, Result};

/// Bytes that a head collects before it writes them.
const WRITE_LEN: usize = 64 << 10;
/// Erase blocks that only garbage collection and checkpoints may take.
pub(crate) const RESERVED_LEBS: u32 = 4;

/// Who appends: nodes that live equally long lie together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Head {
    /// Inodes, names, attributes.
    Meta,
    /// Content of files.
    Data,
    /// What garbage collection moves.
    Moved,
    /// Checkpoints.
    Checkpoint,
}

const HEADS: usize = HEADS_U32 as usize;
const HEADS_U32: u32 = 4;
/// What a key takes in a checkpoint, at most, in bytes: an entry of the index and one of a map.
const CHECKPOINT_LEN_PER_KEY: u64 = 40;

/// An erase block of the main area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    /// Nothing is in it.
    Free,
    /// A head appends to it.
    Open(Head),
    /// Full, since the node with this number.
    Full { closed: u64, head: Head },
}

/// An erase block that is being appended to.
#[derive(Debug)]
struct Open {
    leb: MainLeb,
    /// All of it, so far.
    image: Vec<u8>,
    /// How much of it is written.
    written: usize,
}

/// The main area.
#[derive(Debug)]
pub(crate) struct Log {
    layout: Layout,
    blocks: Vec<Block>,
    /// Bytes of nodes that are needed, by erase block.
    live: Vec<u32>,
    live_total: u64,
    free: Vec<MainLeb>,
    open: [Option<Open>; HEADS],
    next_sqnum: u64,
    /// Bytes appended since the newest checkpoint.
    uncovered: u64,
}

impl Log {
    /// A log without a node.
    pub(crate) fn new(layout: Layout) -> Self {
        let count = layout.main_lebs;
        Self {
            layout,
            blocks: vec![Block::Free; count as usize],
            live: vec![0; count as usize],
            live_total: 0,
            free: (0..count).rev().map(MainLeb).collect(),
            open: [const { None }; HEADS],
            next_sqnum: 1,
            uncovered: 0,
        }
    }

    /// Where everything lies.
    pub(crate) const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether nothing in an erase block is needed.
    pub(crate) fn is_empty(&self, leb: MainLeb) -> bool {
        self.live[leb.0 as usize] == 0
    }

    /// Bytes of nodes in an erase block that are needed.
    pub(crate) fn live_in(&self, leb: MainLeb) -> u32 {
        self.live[leb.0 as usize]
    }

    /// An erase block holds nodes that cannot be found in it: it stays as it is.
    pub(crate) fn leave(&mut self, leb: MainLeb) {
        self.blocks[leb.0 as usize] = Block::Full { closed: u64::MAX, head: Head::Data };
    }

    /// The number that the next node will have.
    pub(crate) const fn next_sqnum(&self) -> u64 {
        self.next_sqnum
    }

    /// Numbers for `count` nodes, one after the other: the first.
    pub(crate) const fn take_sqnums(&mut self, count: u64) -> u64 {
        let first = self.next_sqnum;
        self.next_sqnum += count;
        first
    }

    /// Goes on behind all numbers below `next`.
    pub(crate) fn skip_to(&mut self, next: u64) {
        self.next_sqnum = self.next_sqnum.max(next);
    }

    /// Longest node, with the zeros behind it, in bytes.
    pub(crate) fn node_len_max(&self) -> u32 {
        self.layout.leb_len_bytes - self.layout.page_len_bytes
    }

    /// How many erase blocks are free.
    pub(crate) fn free_lebs(&self) -> u32 {
        u32::try_from(self.free.len()).expect("there are fewer than 2^32")
    }

    /// Bytes that a mount after a power cut has to replay.
    pub(crate) const fn uncovered_bytes(&self) -> u64 {
        self.uncovered
    }

    /// A checkpoint holds all that was appended until now.
    pub(crate) const fn covered(&mut self) {
        self.uncovered = 0;
    }

    /// Bytes of nodes that are needed.
    pub(crate) const fn live_bytes(&self) -> u64 {
        self.live_total
    }

    /// Bytes of nodes that there may be: garbage collection has to find blocks that are not full, and
    /// a checkpoint has to have room beside the one before it.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        let lebs = u64::from(self.layout.main_lebs - RESERVED_LEBS - HEADS_U32);
        let usable = u64::from(self.layout.leb_len_bytes - 2 * self.layout.page_len_bytes);
        let checkpoint = u64::from(self.layout.keys()) * CHECKPOINT_LEN_PER_KEY;
        (lebs * usable / 16 * 15).saturating_sub(checkpoint)
    }

    /// How many nodes of `len` bytes there is room for where `kept` erase blocks are to stay free: erase
    /// blocks with garbage can be written anew, but a node is in one of them as a whole.
    pub(crate) fn room_for(&self, len: usize, kept: u32) -> u64 {
        let usable = self.layout.leb_len_bytes - NODE_HEAD_LEN;
        let beside = |live: u32| usable.saturating_sub(live) as usize / len;
        let lebs = (0..self.layout.main_lebs).map(MainLeb).filter(|leb| !self.is_checkpoint(*leb));
        let all: u64 = lebs.map(|leb| beside(self.live_in(leb)) as u64).sum();
        all.saturating_sub(u64::from(kept) * beside(0) as u64)
    }

    /// Whether a head can append `len` bytes without another erase block.
    pub(crate) fn has_room(&self, head: Head, len: usize) -> bool {
        self.open[head as usize]
            .as_ref()
            .is_some_and(|open| open.image.len() + len <= self.layout.leb_len_bytes as usize)
    }

    /// Erase blocks that so many bytes of nodes begin, at most.
    pub(crate) fn lebs_for(&self, len: usize) -> u32 {
        u32::try_from(len / (self.layout.leb_len_bytes as usize / 2)).unwrap_or(u32::MAX) + 1
    }

    /// Appends nodes that belong together, `len` a multiple of [`NODE_ALIGN`]: where the first lies.
    pub(crate) fn append(
        &mut self,
        volume: &dyn Volume,
        head: Head,
        nodes: &[u8],
    ) -> Result<(MainLeb, u32)> {
        debug_assert!(nodes.len().is_multiple_of(NODE_ALIGN as usize));
        if nodes.len() > self.node_len_max() as usize {
            return Err(Error::new(Kind::TooLarge, "it does not fit into an erase block"));
        }
        if !self.has_room(head, nodes.len()) {
            self.close(volume, head)?;
            self.begin(head)?;
        }
        let open = self.open[head as usize].as_mut().expect("it was just begun");
        let offset = open.image.len();
        self.uncovered += nodes.len() as u64;
        open.image.extend_from_slice(nodes);
        let leb = open.leb;
        if open.image.len() - open.written >= WRITE_LEN {
            self.write_pages(volume, head)?;
        }
        Ok((leb, u32::try_from(offset).expect("erase blocks are shorter")))
    }

    fn begin(&mut self, head: Head) -> Result<()> {
        let kept = match head {
            Head::Meta | Head::Data => RESERVED_LEBS / 2,
            Head::Moved | Head::Checkpoint => 0,
        };
        if self.free_lebs() <= kept {
            return Err(Error::new(Kind::NoSpace, "no erase block is free"));
        }
        let leb = self.free.pop().expect("there are some");
        self.blocks[leb.0 as usize] = Block::Open(head);
        let mut image = Vec::with_capacity(self.layout.leb_len_bytes as usize);
        let sqnum = self.take_sqnums(1);
        node::put_mark(&mut image, Class::BlockHead, sqnum, NODE_HEAD_LEN);
        self.open[head as usize] = Some(Open { leb, image, written: 0 });
        Ok(())
    }

    /// Writes the whole pages of a head that are not written.
    fn write_pages(&mut self, volume: &dyn Volume, head: Head) -> Result<()> {
        let Some(open) = &mut self.open[head as usize] else { return Ok(()) };
        let end = open.image.len() - open.image.len() % self.layout.page_len_bytes as usize;
        if end > open.written {
            let offset = u32::try_from(open.written).expect("erase blocks are shorter");
            let leb = Leb(self.layout.main_leb(open.leb));
            volume.append(leb, offset, &open.image[open.written..end])?;
            open.written = end;
        }
        Ok(())
    }

    /// Pads a head to a whole page and writes it.
    fn write_all(&mut self, volume: &dyn Volume, head: Head) -> Result<()> {
        let sqnum = self.next_sqnum;
        let page = self.layout.page_len_bytes as usize;
        let len_max = self.layout.leb_len_bytes as usize;
        if let Some(open) = &mut self.open[head as usize] {
            if open.written == open.image.len() {
                return Ok(());
            }
            let len = open.image.len();
            let mut end = len.next_multiple_of(page);
            if len != end && end - len < node::HEADER_LEN && end < len_max {
                end += page;
            }
            if end - len >= node::HEADER_LEN {
                let padding = u32::try_from(end - len).expect("erase blocks are shorter");
                node::put_mark(&mut open.image, Class::Padding, sqnum, padding);
            } else {
                open.image.resize(end, 0);
            }
        }
        self.write_pages(volume, head)
    }

    /// Ends the erase block of a head.
    fn close(&mut self, volume: &dyn Volume, head: Head) -> Result<()> {
        self.write_all(volume, head)?;
        if let Some(open) = self.open[head as usize].take() {
            let full = Block::Full { closed: self.next_sqnum, head };
            self.blocks[open.leb.0 as usize] = full;
        }
        Ok(())
    }

    /// Everything appended until now is on the medium.
    pub(crate) fn sync(&mut self, volume: &dyn Volume) -> Result<()> {
        for head in [Head::Meta, Head::Data, Head::Moved, Head::Checkpoint] {
            self.write_all(volume, head)?;
        }
        Ok(volume.sync()?)
    }

    /// Erase blocks that are being appended to, and up to where.
    pub(crate) fn open_lebs(&self) -> Vec<(MainLeb, u32)> {
        let end = |open: &Open| u32::try_from(open.image.len()).expect("erase blocks are shorter");
        self.open.iter().flatten().map(|open| (open.leb, end(open))).collect()
    }

    /// What lies there, if it is in memory.
    pub(crate) fn in_memory(&self, at: Location) -> Option<&[u8]> {
        let open = self.open.iter().flatten().find(|open| open.leb == at.leb)?;
        open.image.get(at.offset as usize..(at.offset + at.len_bytes) as usize)
    }

    /// A node there is needed.
    pub(crate) fn count(&mut self, at: Location) {
        let len = at.len_bytes.next_multiple_of(NODE_ALIGN);
        self.live[at.leb.0 as usize] += len;
        self.live_total += u64::from(len);
    }

    /// A node there is not needed any more.
    pub(crate) fn uncount(&mut self, at: Location) {
        let len = at.len_bytes.next_multiple_of(NODE_ALIGN);
        self.live[at.leb.0 as usize] -= len;
        self.live_total -= u64::from(len);
    }

    /// Whether a location lies within the main area, for those that come from the medium.
    pub(crate) fn is_inside(&self, at: Location) -> bool {
        at.leb.0 < self.layout.main_lebs
            && at.len_bytes as usize >= node::HEADER_LEN
            && at.len_bytes <= self.layout.leb_len_bytes
            && at.offset.is_multiple_of(NODE_ALIGN)
            && at.offset <= self.layout.leb_len_bytes - at.len_bytes
    }

    /// After loading: erase blocks with nodes that are needed are full, and have been since the node
    /// `closed`; the others are free.
    pub(crate) fn loaded(&mut self, closed: u64, is_checkpoint: impl Fn(MainLeb) -> bool) {
        self.free.clear();
        for leb in (0..self.layout.main_lebs).rev().map(MainLeb) {
            if self.live[leb.0 as usize] == 0 {
                self.blocks[leb.0 as usize] = Block::Free;
                self.free.push(leb);
            } else {
                let head = if is_checkpoint(leb) { Head::Checkpoint } else { Head::Data };
                self.blocks[leb.0 as usize] = Block::Full { closed, head };
            }
        }
    }

    /// Full erase blocks that nothing needs, closed before the node with this number: they are free
    /// from now on. The caller unmaps them first.
    pub(crate) fn empty_lebs(&self, before: u64) -> Vec<MainLeb> {
        (0..self.layout.main_lebs)
            .map(MainLeb)
            .filter(|leb| self.live[leb.0 as usize] == 0 && self.is_closed(*leb, before))
            .collect()
    }

    /// An unmapped erase block can be taken again.
    pub(crate) fn release(&mut self, leb: MainLeb) {
        self.blocks[leb.0 as usize] = Block::Free;
        self.free.push(leb);
    }

    fn is_closed(&self, leb: MainLeb, before: u64) -> bool {
        matches!(self.blocks[leb.0 as usize], Block::Full { closed, .. } if closed <= before)
    }

    /// The erase block that gives the most room for what has to be moved, closed before the node with
    /// this number; never one of checkpoints, which move with the next.
    pub(crate) fn victim(&self, before: u64) -> Option<MainLeb> {
        let usable = self.layout.leb_len_bytes - self.layout.page_len_bytes;
        (0..self.layout.main_lebs)
            .map(MainLeb)
            .filter(|leb| self.is_closed(*leb, before) && !self.is_checkpoint(*leb))
            .filter(|leb| self.live[leb.0 as usize] <= usable / 16 * 15)
            .min_by_key(|leb| self.live[leb.0 as usize])
    }

    fn is_checkpoint(&self, leb: MainLeb) -> bool {
        matches!(self.blocks[leb.0 as usize], Block::Full { head: Head::Checkpoint, .. })
    }

    /// Erase blocks of checkpoints that are half empty.
    pub(crate) fn sparse_checkpoint_lebs(&self) -> Vec<MainLeb> {
        let half = self.layout.leb_len_bytes / 2;
        (0..self.layout.main_lebs)
            .map(MainLeb)
            .filter(|leb| self.is_checkpoint(*leb) && self.live[leb.0 as usize] <= half)
            .collect()
    }
}

/// Length of the first node of an erase block.
#[allow(clippy::cast_possible_truncation, reason = "a header is shorter")]
const NODE_HEAD_LEN: u32 = node::HEADER_LEN as u32;
