//! Content is written, truncated and punched: all of it waits in memory until the commit.

use std::ops::Range;
use std::sync::Arc;

use tacita_block::is_zero;
use tacita_vfs::{Error, Kind, NodeId, Result, Seek};

use super::walks::AHEAD_LEN;
use super::{Name, Node, State};
use crate::content::{Block, Content, Found, Growth, Source, to_bucket};
use crate::faults::{Fault, planted};
use crate::geometry::{BLOCK_LEN, Table};
use crate::journal::SECTORS;
use crate::record::INLINE_LEN_MAX;

const BLOCK: u64 = BLOCK_LEN as u64;
/// Longest piece of a write, in blocks: 1 MiB, which is as much as comes in one request.
const PIECE_BLOCKS_MAX: usize = 256;

/// A node's content, to be changed, beside where it is read from.
macro_rules! content_and_source {
    ($state:expr, $id:expr) => {{
        let State { nodes, buckets, superblock, medium, in_flight, .. } = $state;
        let source = Source { engine: buckets, geometry: &superblock.geometry, medium, in_flight };
        let node = nodes.get_mut($id).ok_or(Kind::Stale)?;
        let content = node.content_mut().ok_or(Kind::Invalid)?;
        (content, source)
    }};
}

impl State {
    /// Most bytes that a file can have.
    pub(crate) fn size_max(&self) -> u64 {
        let buckets = u64::from(u32::MAX) - 64;
        (buckets * self.superblock.geometry.bucket_len_bytes()).min(i64::MAX.cast_unsigned())
    }

    /// Reads into `buf`; less than asked only at the end of the file.
    ///
    /// # Errors
    /// [`Kind::Io`].
    pub(crate) fn read(&self, id: NodeId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let node = self.node(id)?;
        let content = node.content().ok_or(Kind::Invalid)?;
        let left = node.size.saturating_sub(offset);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        if len == 0 {
            return Ok(0);
        }
        let first = offset / BLOCK;
        let ahead = self.streams.note(id, offset..offset + len as u64, node.size);
        if !ahead.is_empty() {
            content.will_read(self.source(), ahead.start / BLOCK..ahead.end.div_ceil(BLOCK));
        }
        if offset == 0 {
            self.will_read_behind(node);
        }
        if offset.is_multiple_of(BLOCK) && buf.len().is_multiple_of(BLOCK_LEN) {
            let whole = len.next_multiple_of(BLOCK_LEN);
            content.read_blocks(self.source(), first, &mut buf[..whole])?;
            return Ok(len);
        }
        let skip = usize::try_from(offset % BLOCK).expect("less than a block");
        let mut blocks = vec![0; (skip + len).next_multiple_of(BLOCK_LEN)];
        content.read_blocks(self.source(), first, &mut blocks)?;
        buf[..len].copy_from_slice(&blocks[skip..skip + len]);
        Ok(len)
    }

    /// Tells the device of the files that are probably read behind this one.
    fn will_read_behind(&self, node: &Node) {
        let Some((dir, name)) = node.owner_link() else { return };
        let Some((dir_id, entries)) =
            self.nodes.get(*dir).and_then(|folder| Some((folder.id, folder.directory()?)))
        else {
            return;
        };
        let (_, hash) = self.names.entry(dir_id, name);
        let len = |node| self.nodes.get(node).map_or(0, |node| node.size);
        for node in self.walks.begin(*dir, entries, (hash, Name::clone(name)), len) {
            if let Some(node) = self.nodes.get(node)
                && let Some(content) = node.content()
            {
                content.will_read(self.source(), 0..node.size.min(AHEAD_LEN).div_ceil(BLOCK));
            }
        }
    }

    /// Writes all of `data`; the file grows as needed. `accept` is done with it; when it is asked
    /// nothing but it can fail any more.
    ///
    /// # Errors
    /// [`Kind::NoSpace`], [`Kind::FileTooBig`]: nothing has changed. [`Kind::Io`].
    pub(crate) fn write(
        &mut self,
        id: NodeId,
        offset: u64,
        data: &[u8],
        accept: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        self.check_write(id, offset, data)?;
        let end = offset + data.len() as u64;
        let size_before = self.node(id)?.size;
        let size = size_before.max(end);
        let before = self.node(id)?.buckets_counted();
        let mut grown = self.thawed(id, size)?;
        self.resize(id, size)?;
        // What is left of a block that is written in part may have to be read.
        let is_whole = offset.is_multiple_of(BLOCK) && end.is_multiple_of(BLOCK);
        let (early, late) = if is_whole { (Some(accept), None) } else { (None, Some(accept)) };
        if let Err(error) = early.map_or(Ok(()), |accept| accept(self)) {
            self.resize(id, size_before)?;
            return Err(error);
        }
        let (content, source) = content_and_source!(self, id);
        content.thaw_inline(source);
        let per_bucket = u64::from(source.geometry.bucket_blocks);
        let mut at = offset;
        let mut found = content.find(source, to_bucket(at / BLOCK / per_bucket));
        let mut failed = None;
        while at < end && failed.is_none() {
            let block = at / BLOCK;
            if to_bucket(block / per_bucket) != found.bucket {
                found = content.find(source, to_bucket(block / per_bucket));
            }
            let stop = ((block + 1) * BLOCK).min(end);
            let piece = &data[index(at - offset)..index(stop - offset)];
            let mut last = [0; BLOCK_LEN];
            // Behind the end of the file all is zero.
            let piece = if piece.len() < BLOCK_LEN && at == block * BLOCK && stop >= size_before {
                last[..piece.len()].copy_from_slice(piece);
                &last
            } else {
                piece
            };
            match write_block(content, source, &mut found, block, index(at % BLOCK), piece) {
                Ok(more) => {
                    grown += more;
                    at = stop;
                }
                Err(error) => failed = Some(error),
            }
        }
        // What was written before a failure is accounted for as well.
        self.note_content(id, grown, before)?;
        if let Some(error) = failed {
            self.resize(id, size_before.max(at.min(size)))?;
            return Err(error);
        }
        late.map_or(Ok(()), |accept| accept(self))
    }

    /// Refuses what would take more buckets than the fixed limit: those that `data`, written at
    /// `offset`, needs anew. Zeros need none.
    ///
    /// # Errors
    /// [`Kind::NoSpace`].
    fn check_room(&self, id: NodeId, offset: u64, data: &[u8], size: u64) -> Result<()> {
        if size <= INLINE_LEN_MAX {
            return Ok(());
        }
        let node = self.node(id)?;
        let content = node.content().ok_or(Kind::Invalid)?;
        let bucket_len = self.superblock.geometry.bucket_len_bytes();
        let end = offset + data.len() as u64;
        let buckets = to_bucket(offset / bucket_len)..to_bucket(end.div_ceil(bucket_len));
        let max = self.superblock.geometry.cells_max(Table::Buckets);
        // Short content leaves the inode when the file outgrows it.
        let inline = node.size <= INLINE_LEN_MAX;
        let held = inline && (content.is_frozen() || content.has_bucket(self.source(), 0));
        let thawed = u64::from(held);
        if self.buckets_used + thawed + u64::from(buckets.end - buckets.start) <= max {
            return Ok(());
        }
        let missing = |bucket: &u32| {
            if inline { *bucket > 0 || !held } else { !content.has_bucket(self.source(), *bucket) }
        };
        let filled = |bucket: &u32| {
            let start = u64::from(*bucket) * bucket_len;
            let within = start.max(offset)..(start + bucket_len).min(end);
            !is_zero(&data[index(within.start - offset)..index(within.end - offset)])
        };
        let new = thawed + buckets.filter(missing).filter(filled).count() as u64;
        if new > 0 && self.buckets_used + new > max {
            return Err(Error::new(Kind::NoSpace, "all buckets are in use"));
        }
        Ok(())
    }

    /// Most bytes to be written before the next look at what is pending: a quarter of what one
    /// commit may change, so that there is room for the buckets that are split at both ends, too.
    pub(crate) fn piece_len(&self) -> usize {
        let quarter = self.superblock.geometry.commit_blocks() / 4;
        usize::try_from(quarter).unwrap_or(PIECE_BLOCKS_MAX).clamp(1, PIECE_BLOCKS_MAX) * BLOCK_LEN
    }

    /// Blocks of the buckets that a write of `len` bytes touches at most, wherever it begins, or
    /// that a range splits at both ends.
    pub(crate) fn write_blocks(&self, len: usize) -> u64 {
        let blocks = len.div_ceil(BLOCK_LEN) as u64;
        blocks + 2 * u64::from(self.superblock.geometry.bucket_blocks)
    }

    /// Whether there is room for a write that will come in pieces.
    ///
    /// # Errors
    /// [`Kind::NoSpace`], [`Kind::FileTooBig`].
    pub(crate) fn check_write(&self, id: NodeId, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= self.size_max());
        let end = end.ok_or(Kind::FileTooBig)?;
        self.check_room(id, offset, data, self.node(id)?.size.max(end))
    }

    /// What a file that outgrows its inode held there: the first sector of its first block, or all of
    /// the first bucket where the image still has one.
    fn thawed(&self, id: NodeId, size: u64) -> Result<Growth> {
        let node = self.node(id)?;
        if node.size == 0 || node.size > INLINE_LEN_MAX || size <= INLINE_LEN_MAX {
            return Ok(Growth::default());
        }
        let is_stored = node.content().is_some_and(|content| content.base().is_some());
        let blocks = self.superblock.geometry.bucket_blocks.into();
        Ok(if is_stored {
            Growth { blocks, sectors: blocks * SECTORS, held: 1 }
        } else {
            Growth { blocks: 1, sectors: 1, held: 1 }
        })
    }

    /// Notes that content has changed. `counted` buckets of the file were counted before.
    fn note_content(&mut self, id: NodeId, grown: Growth, counted: u64) -> Result<()> {
        self.pending.files.insert(id);
        let in_inode = self.node(id)?.size <= INLINE_LEN_MAX;
        let written =
            if in_inode { Growth { held: grown.held, ..Growth::default() } } else { grown };
        self.pending.content += written;
        self.buckets_used = self.buckets_used + self.node(id)?.buckets_counted() - counted;
        Ok(())
    }

    /// Sets the size. The inode holds short content, so it may need another page.
    ///
    /// # Errors
    /// [`Kind::NoSpace`]: nothing has changed.
    fn resize(&mut self, id: NodeId, size: u64) -> Result<()> {
        let node = self.node_mut(id)?;
        let old = std::mem::replace(&mut node.size, size);
        if old == size {
            return Ok(());
        }
        let done = self.index_again(id);
        if done.is_err() {
            self.node_mut(id)?.size = old;
            self.index_again(id)?;
        }
        done
    }

    /// Truncates, or grows by a hole.
    ///
    /// # Errors
    /// [`Kind::FileTooBig`], [`Kind::Io`]: nothing has changed.
    pub(crate) fn truncate(&mut self, id: NodeId, size: u64) -> Result<()> {
        if size > self.size_max() {
            return Err(Kind::FileTooBig.into());
        }
        let old = self.node(id)?.size;
        self.check_room(id, 0, &[], size)?;
        let bucket_len = self.superblock.geometry.bucket_len_bytes();
        let cut = size..old.next_multiple_of(bucket_len);
        if size < old {
            self.check_edges(id, cut.clone())?;
        }
        let before = self.node(id)?.buckets_counted();
        let grown = self.thawed(id, size)?;
        self.resize(id, size)?;
        let (content, source) = content_and_source!(self, id);
        if size > INLINE_LEN_MAX {
            content.thaw_inline(source);
        }
        self.note_content(id, grown, before)?;
        if size < old {
            self.zero(id, cut)?;
        }
        Ok(())
    }

    /// Refuses to zero a range of which blocks stay in part that cannot be read.
    ///
    /// # Errors
    /// [`Kind::Io`].
    fn check_edges(&self, id: NodeId, range: Range<u64>) -> Result<()> {
        let content = self.node(id)?.content().ok_or(Kind::Invalid)?;
        for edge in [range.start, range.end].into_iter().filter(|at| !at.is_multiple_of(BLOCK)) {
            content.block(self.source(), edge / BLOCK)?;
        }
        Ok(())
    }

    /// Makes a range read as zeros: whole buckets go, the rest is zeroed.
    ///
    /// # Errors
    /// [`Kind::Io`]: nothing has changed.
    pub(crate) fn zero(&mut self, id: NodeId, range: Range<u64>) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        // Behind the end of the file all is zero.
        let is_to_end = range.end == self.node(id)?.size;
        let end = if is_to_end { range.end.next_multiple_of(BLOCK) } else { range.end };
        let range = range.start..end;
        self.check_edges(id, range.clone())?;
        let before = self.node(id)?.buckets_counted();
        let (content, source) = content_and_source!(self, id);
        content.thaw_inline(source);
        let bucket_len = source.geometry.bucket_len_bytes();
        let first = range.start.div_ceil(bucket_len).min(range.end / bucket_len + 1);
        let whole = first * bucket_len..range.end / bucket_len * bucket_len;
        let mut grown = Growth::default();
        if whole.start < whole.end {
            content
                .drop_buckets(source.geometry, to_bucket(first)..to_bucket(whole.end / bucket_len));
            grown += zero_within_bucket(content, source, range.start..whole.start)?;
            grown += zero_within_bucket(content, source, whole.end..range.end)?;
        } else {
            // Less than a whole bucket; it may straddle two.
            let middle = first * bucket_len;
            let split = if range.contains(&middle) { middle } else { range.end };
            grown += zero_within_bucket(content, source, range.start..split)?;
            grown += zero_within_bucket(content, source, split..range.end)?;
        }
        content.recount(source);
        self.note_content(id, grown, before)
    }

    /// `lseek` for data or holes, in whole buckets.
    ///
    /// # Errors
    /// [`Kind::NoMore`] at or beyond the end, or where no data follows.
    pub(crate) fn seek(&self, id: NodeId, offset: u64, what: Seek) -> Result<u64> {
        let node = self.node(id)?;
        let content = node.content().ok_or(Kind::Invalid)?;
        if offset >= node.size {
            return Err(Kind::NoMore.into());
        }
        if node.size <= INLINE_LEN_MAX {
            return Ok(if what == Seek::Data { offset } else { node.size });
        }
        let bucket_len = self.superblock.geometry.bucket_len_bytes();
        let end = to_bucket(node.size.div_ceil(bucket_len));
        let wanted = what == Seek::Data;
        let mut bucket = to_bucket(offset / bucket_len);
        while bucket < end {
            if content.has_bucket(self.source(), bucket) == wanted {
                return Ok((u64::from(bucket) * bucket_len).max(offset));
            }
            bucket = match self.next_present(content, bucket + 1, end) {
                Some(next) if wanted => next,
                None if wanted => break,
                _ => bucket + 1,
            };
        }
        if wanted { Err(Kind::NoMore.into()) } else { Ok(node.size) }
    }

    /// The first bucket from `from` on that may be there, so that holes are skipped at once.
    fn next_present(&self, content: &Content, from: u32, end: u32) -> Option<u32> {
        let geometry = &self.superblock.geometry;
        let waiting = content.pending_buckets(geometry).into_iter().find(|b| *b >= from);
        let stored = content.base().and_then(|base| {
            let later = self.buckets.extents(base).find(|(first, _, len)| first + len > from);
            later.map(|(first, ..)| first.max(from))
        });
        waiting.into_iter().chain(stored).min().filter(|next| *next < end)
    }
}

/// Writes a piece of one block of a bucket.
fn write_block(
    content: &mut Content,
    source: Source<'_>,
    found: &mut Found,
    block: u64,
    within: usize,
    piece: &[u8],
) -> Result<Growth> {
    if let Some(grown) = content.change_block(found, block, within, piece) {
        return Ok(grown);
    }
    if is_zero(piece) && !content.has_bucket(source, found.bucket) {
        // Zeros into a hole: it stays one.
        return Ok(Growth::default());
    }
    let buffer: Block = if piece.len() == BLOCK_LEN {
        Arc::<[u8]>::from(piece).try_into().expect("a whole block")
    } else {
        let mut buffer = Arc::new([0; BLOCK_LEN]);
        let bytes = Arc::make_mut(&mut buffer);
        content.read_blocks(source, block, &mut bytes[..])?;
        bytes[within..within + piece.len()].copy_from_slice(piece);
        buffer
    };
    let pending = if is_zero(&buffer[..]) { None } else { Some(buffer) };
    Ok(content.set_block(source, found, block, pending))
}

/// Zeroes a range that lies within one bucket.
fn zero_within_bucket(
    content: &mut Content,
    source: Source<'_>,
    range: Range<u64>,
) -> Result<Growth> {
    let bucket = to_bucket(range.start / source.geometry.bucket_len_bytes());
    if range.is_empty() || !content.has_bucket(source, bucket) {
        return Ok(Growth::default());
    }
    if planted(Fault::SlackResidue) {
        return Ok(Growth::default());
    }
    let mut found = content.find(source, bucket);
    let mut grown = Growth::default();
    let mut at = range.start;
    while at < range.end {
        let block = at / BLOCK;
        let stop = ((block + 1) * BLOCK).min(range.end);
        grown += if stop - at == BLOCK {
            content.set_block(source, &mut found, block, None)
        } else {
            let zeros = [0; BLOCK_LEN];
            let zeros = &zeros[..index(stop - at)];
            write_block(content, source, &mut found, block, index(at % BLOCK), zeros)?
        };
        at = stop;
    }
    Ok(grown)
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("an offset within a buffer")
}
