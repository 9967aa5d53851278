//! Content of a file: blocks that are stored, and holes between them.

use std::collections::BTreeMap;
use std::ops::Range;

use tacita_vfs::{Reserve, Seek};

/// Bytes of a block.
pub(super) const BLOCK_LEN_BYTES: u64 = 4096;

const BLOCK_LEN: usize = 4096;

type Block = Box<[u8; BLOCK_LEN]>;

/// Content of a file. Bytes of a stored block beyond the size are zero.
#[derive(Debug, Default)]
pub(super) struct Content {
    size: u64,
    blocks: BTreeMap<u64, Block>,
}

/// The part of a block that a range covers.
struct Part {
    block: u64,
    within: Range<usize>,
}

/// The parts of blocks that `range` covers, in order.
fn parts(range: &Range<u64>) -> impl Iterator<Item = Part> {
    let Range { start, end } = *range;
    let blocks =
        if start < end { start / BLOCK_LEN_BYTES..(end - 1) / BLOCK_LEN_BYTES + 1 } else { 0..0 };
    blocks.map(move |block| {
        let base = block * BLOCK_LEN_BYTES;
        let first = start.saturating_sub(base);
        let last = (end - base).min(BLOCK_LEN_BYTES);
        let index = |at: u64| usize::try_from(at).unwrap_or(BLOCK_LEN);
        Part { block, within: index(first)..index(last) }
    })
}

fn zeroed() -> Block {
    Box::new([0; BLOCK_LEN])
}

impl Content {
    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn block_count(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// How many blocks would have to be added to store all of `range`.
    pub(super) fn missing(&self, range: &Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let first = range.start / BLOCK_LEN_BYTES;
        let last = (range.end - 1) / BLOCK_LEN_BYTES;
        let stored = self.blocks.range(first..=last).count() as u64;
        last - first + 1 - stored
    }

    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let end = self.size.min(offset.saturating_add(buf.len() as u64));
        let mut done = 0;
        for Part { block, within } in parts(&(offset..end)) {
            let to = &mut buf[done..done + within.len()];
            done += within.len();
            match self.blocks.get(&block) {
                Some(bytes) => to.copy_from_slice(&bytes[within]),
                None => to.fill(0),
            }
        }
        done
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        let mut done = 0;
        for Part { block, within } in parts(&(offset..end)) {
            let from = &data[done..done + within.len()];
            done += within.len();
            self.blocks.entry(block).or_insert_with(zeroed)[within].copy_from_slice(from);
        }
        if !data.is_empty() {
            self.size = self.size.max(end);
        }
    }

    pub(super) fn set_size(&mut self, size: u64) {
        if size < self.size {
            self.punch(&(size..self.size.next_multiple_of(BLOCK_LEN_BYTES)));
            drop(self.blocks.split_off(&size.div_ceil(BLOCK_LEN_BYTES)));
        }
        self.size = size;
    }

    pub(super) fn reserve(&mut self, range: &Range<u64>, how: Reserve) {
        match how {
            Reserve::Allocate { keep_size } => {
                self.store(range);
                self.grow(range, keep_size);
            }
            Reserve::Punch => self.punch(range),
            Reserve::Zero { keep_size } => {
                self.punch(range);
                self.store(range);
                self.grow(range, keep_size);
            }
            Reserve::Collapse => self.splice(range, 0),
            Reserve::Insert => self.splice(&(range.start..range.start), range.end - range.start),
        }
    }

    pub(super) fn seek(&self, offset: u64, what: Seek) -> Option<u64> {
        if offset >= self.size {
            return None;
        }
        let first = offset / BLOCK_LEN_BYTES;
        match what {
            Seek::Data => self
                .blocks
                .range(first..)
                .next()
                .map(|(block, _)| offset.max(block * BLOCK_LEN_BYTES))
                .filter(|at| *at < self.size),
            Seek::Hole => {
                let mut hole = first;
                while self.blocks.contains_key(&hole) {
                    hole += 1;
                }
                Some(offset.max(hole * BLOCK_LEN_BYTES).min(self.size))
            }
        }
    }

    fn grow(&mut self, range: &Range<u64>, keep_size: bool) {
        if !keep_size {
            self.size = self.size.max(range.end);
        }
    }

    fn store(&mut self, range: &Range<u64>) {
        for Part { block, .. } in parts(range) {
            self.blocks.entry(block).or_insert_with(zeroed);
        }
    }

    fn punch(&mut self, range: &Range<u64>) {
        let whole = range.start.div_ceil(BLOCK_LEN_BYTES)..range.end / BLOCK_LEN_BYTES;
        if whole.start < whole.end {
            let mut tail = self.blocks.split_off(&whole.start);
            self.blocks.append(&mut tail.split_off(&whole.end));
        }
        // What is left of the range is at most two parts of blocks at its ends.
        let ends = [
            range.start..range.end.min(range.start.next_multiple_of(BLOCK_LEN_BYTES)),
            range.start.max(range.end / BLOCK_LEN_BYTES * BLOCK_LEN_BYTES)..range.end,
        ];
        for end in ends {
            for Part { block, within } in parts(&end) {
                if let Some(bytes) = self.blocks.get_mut(&block) {
                    bytes[within].fill(0);
                }
            }
        }
    }

    /// Replaces `out` by a hole of `hole_len` bytes; what follows moves.
    fn splice(&mut self, out: &Range<u64>, hole_len: u64) {
        let mut tail = vec![0; usize::try_from(self.size - out.end).unwrap_or(0)];
        self.read(out.end, &mut tail);
        let size = self.size - (out.end - out.start) + hole_len;
        self.set_size(out.start);
        self.write(out.start + hole_len, &tail);
        self.size = size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_read_as_zeros_and_are_found() {
        let mut content = Content::default();
        content.write(10_000, b"abc");
        assert_eq!(content.size(), 10_003);
        assert_eq!(content.block_count(), 1);
        assert_eq!(content.seek(0, Seek::Data), Some(8192));
        assert_eq!(content.seek(8192, Seek::Hole), Some(10_003));
        assert_eq!(content.seek(10_003, Seek::Hole), None);
        let mut buf = [1; 8];
        assert_eq!(content.read(9_998, &mut buf), 5);
        assert_eq!(&buf[..5], b"\0\0abc");
    }

    #[test]
    fn truncated_bytes_do_not_come_back() {
        let mut content = Content::default();
        content.write(0, &[7; 5000]);
        content.set_size(10);
        content.set_size(5000);
        let mut buf = [1; 5000];
        assert_eq!(content.read(0, &mut buf), 5000);
        assert!(buf[10..].iter().all(|b| *b == 0));
        assert_eq!(content.block_count(), 1);
    }

    #[test]
    fn collapse_and_insert_move_the_tail() {
        let mut content = Content::default();
        content.write(0, b"abcdef");
        content.reserve(&(1..3), Reserve::Collapse);
        content.reserve(&(2..4), Reserve::Insert);
        let mut buf = [1; 10];
        assert_eq!(content.read(0, &mut buf), 6);
        assert_eq!(&buf[..6], b"ad\0\0ef");
    }

    #[test]
    fn punching_keeps_the_neighbours() {
        let mut content = Content::default();
        content.write(0, &vec![7; 5 * 4096]);
        content.reserve(&(100..3 * 4096 + 100), Reserve::Punch);
        assert_eq!(content.block_count(), 3);
        let mut buf = vec![1; 5 * 4096];
        content.read(0, &mut buf);
        for (at, byte) in buf.iter().enumerate() {
            let hole = (100..3 * 4096 + 100).contains(&at);
            assert_eq!(*byte, if hole { 0 } else { 7 }, "byte {at}");
        }
    }
}
