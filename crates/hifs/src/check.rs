//! Is an image the canonical image of its files? Every block is compared with what it must be.

use std::collections::HashMap;
use std::ops::Range;

use tacita_block::{AlignedBuf, BlockNo, is_zero};

use crate::commit::encode_map;
use crate::error::Result;
use crate::geometry::{BLOCK_LEN, MAP_ENTRIES, Table};
use crate::hifs::Hifs;
use crate::medium::Medium;
use crate::names::FileId;
use crate::placement::Cell;
use crate::tree::State;

/// Blocks that are read at once.
const READ_BLOCKS: usize = 256;
/// Findings beyond this are counted, not listed.
const FINDINGS_MAX: usize = 100;

/// What a check has found.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Blocks looked at.
    pub blocks: u64,
    /// What differs, with its place: the first hundred.
    pub findings: Vec<String>,
    /// How many differ.
    pub count: u64,
}

impl Report {
    fn add(&mut self, finding: impl FnOnce() -> String) {
        self.count += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding());
        }
    }

    /// Whether the image is canonical.
    pub const fn is_canonical(&self) -> bool {
        self.count == 0
    }
}

impl Hifs {
    /// Compares every block of the image with the canonical image of its files. `progress` is told
    /// the blocks looked at and their total.
    ///
    /// What pages and maps say has been verified by opening; here is what opening does not read:
    /// that all that is free is zero, that no byte lies behind the end of a file, that no stored
    /// bucket is empty. A block that cannot be read is a finding, too.
    ///
    /// # Errors
    /// [`crate::Kind::Device`].
    pub fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Report> {
        let state = self.shared();
        let mut check = Check {
            state: &state,
            sizes: state.nodes.iter().map(|(_, node)| (node.id, node.size)).collect(),
            buffer: AlignedBuf::new(READ_BLOCKS * BLOCK_LEN),
            report: Report::default(),
            progress,
        };
        check.fixed_blocks();
        check.behind();
        check.nameless();
        for group in 0..state.superblock.geometry.buckets.groups {
            check.maps(group);
            check.pages(group)?;
            check.buckets(group);
        }
        Ok(check.report)
    }
}

struct Check<'a> {
    state: &'a State,
    /// In bytes, of every file.
    sizes: HashMap<FileId, u64>,
    buffer: AlignedBuf,
    report: Report,
    progress: &'a mut dyn FnMut(u64, u64),
}

impl Check<'_> {
    fn seen(&mut self, blocks: u64) {
        self.report.blocks += blocks;
        (self.progress)(self.report.blocks, self.state.superblock.geometry.image_blocks);
    }

    fn expect(&mut self, at: BlockNo, want: &[u8; BLOCK_LEN], what: &str) {
        let mut block = [0; BLOCK_LEN];
        if read(&self.state.medium, at.0, &mut block, &mut self.report) && block != *want {
            self.report.add(|| format!("block {}: {what} differs from the canonical one", at.0));
        }
        self.seen(1);
    }

    /// Reads a run in long pieces; `look` is shown the number of each one's first block, and the piece.
    fn read_run(&mut self, run: Range<u64>, mut look: impl FnMut(&mut Report, u64, &[u8])) {
        for first in run.clone().step_by(READ_BLOCKS) {
            let count = usize::try_from(run.end - first).unwrap_or(READ_BLOCKS).min(READ_BLOCKS);
            let piece = &mut self.buffer[..count * BLOCK_LEN];
            read(&self.state.medium, first, piece, &mut self.report);
            look(&mut self.report, first, piece);
        }
    }

    fn expect_zero(&mut self, at: BlockNo, count: u64, what: &str) {
        self.read_run(at.0..at.0 + count, |report, first, piece| {
            for (block, content) in (first..).zip(piece.chunks_exact(BLOCK_LEN)) {
                if !is_zero(content) {
                    report.add(|| format!("block {block}: {what} is not zero"));
                }
            }
        });
        self.seen(count);
    }

    fn fixed_blocks(&mut self) {
        let superblock = &self.state.superblock;
        let geometry = superblock.geometry;
        let block = superblock.encode();
        self.expect(BlockNo(0), &block, "the superblock");
        self.expect(geometry.superblock_copy(), &block, "the copy of the superblock");
        self.expect_zero(geometry.journal(), geometry.journal_blocks, "the journal at rest");
        for group in 0..geometry.buckets.groups {
            let want = superblock.descriptor(group);
            self.expect(geometry.descriptor(group), &want, "the group descriptor");
        }
        let end = geometry.descriptor(geometry.buckets.groups);
        let rest = geometry.superblock_copy().0 - end.0;
        self.expect_zero(end, rest, "the rest behind the groups");
    }

    /// What holds the image may be longer, but tells nothing there.
    fn behind(&mut self) {
        let image_blocks = self.state.superblock.geometry.image_blocks;
        let blocks = self.state.medium.blocks();
        let mut look = |report: &mut Report, first: u64, piece: &[u8]| {
            if !is_zero(piece) {
                report.add(|| format!("behind the image, from block {first} on: not zero"));
            }
        };
        self.read_run(image_blocks..blocks, &mut look);
        match self.state.medium.rest() {
            Ok(rest) => look(&mut self.report, blocks, &rest),
            Err(error) => self.report.add(|| format!("behind the image, block {blocks}: {error}")),
        }
    }

    /// A crash leaves files that were in use without a name; they are not part of the tree.
    fn nameless(&mut self) {
        let state = self.state;
        for id in state.nameless_after_load() {
            let Some(node) = state.nodes.get(id).filter(|node| node.record_len > 0) else {
                continue;
            };
            let id = node.id;
            self.report.add(|| {
                format!(
                    "inode {id:032x}: deleted while in use, and still there since a crash; \
                     mounting the image once erases it"
                )
            });
        }
    }

    fn maps(&mut self, group: u32) {
        let geometry = &self.state.superblock.geometry;
        for table in [Table::Buckets, Table::Pages] {
            let engine = match table {
                Table::Buckets => &self.state.buckets,
                Table::Pages => &self.state.pages,
            };
            let start = geometry.map_start(table, group);
            for index in 0..geometry.map_blocks(table) {
                let offset = u32::try_from(index).expect("within a group") * MAP_ENTRIES;
                let first = Cell(group * geometry.shape(table).cells_per_group + offset);
                let want = encode_map(geometry, table, engine, first);
                self.expect(BlockNo(start.0 + index), &want, "the map");
            }
        }
    }

    fn cells(&self, table: Table, group: u32) -> Range<u32> {
        let len = self.state.superblock.geometry.shape(table).cells_per_group;
        group * len..(group + 1) * len
    }

    /// Expects zeros in these cells of a group up to the first that is occupied: which that is, and what
    /// lies there.
    fn pass_free(&mut self, table: Table, mut cells: Range<u32>) -> Option<(Cell, (FileId, u32))> {
        let state = self.state;
        let geometry = &state.superblock.geometry;
        let (engine, blocks, what) = match table {
            Table::Buckets => (&state.buckets, geometry.bucket_blocks, "a free bucket"),
            Table::Pages => (&state.pages, 1, "a free page"),
        };
        let first = cells.start;
        let found = cells.find_map(|cell| Some((Cell(cell), engine.occupant(Cell(cell))?)));
        let free = found.map_or(cells.end, |(cell, _)| cell.0) - first;
        if free > 0 {
            let at = geometry.cell_start(table, Cell(first));
            self.expect_zero(at, u64::from(free) * u64::from(blocks), what);
        }
        found
    }

    fn pages(&mut self, group: u32) -> Result<()> {
        let state = self.state;
        let mut cells = self.cells(Table::Pages, group);
        while let Some((cell, (id, _))) = self.pass_free(Table::Pages, cells.clone()) {
            let at = state.superblock.geometry.cell_start(Table::Pages, cell);
            match state.page_keys.get(&id) {
                Some(key) => {
                    let want = state.encode_page(*key)?;
                    self.expect(at, &want, "a page of the inode table");
                }
                None => self.report.add(|| format!("block {}: a page of nothing", at.0)),
            }
            cells.start = cell.0 + 1;
        }
        Ok(())
    }

    fn buckets(&mut self, group: u32) {
        let state = self.state;
        let geometry = state.superblock.geometry;
        let bucket_len = geometry.bucket_len_bytes();
        let mut content = vec![0; usize::try_from(bucket_len).expect("1 MiB at most")];
        let mut cells = self.cells(Table::Buckets, group);
        while let Some((cell, (owner, bucket))) = self.pass_free(Table::Buckets, cells.clone()) {
            let at = geometry.cell_start(Table::Buckets, cell);
            let whole = read(&state.medium, at.0, &mut content, &mut self.report);
            let size = self.sizes.get(&owner).copied().unwrap_or(0);
            let left = size.saturating_sub(u64::from(bucket) * bucket_len).min(bucket_len);
            let left = usize::try_from(left).expect("1 MiB at most");
            if !is_zero(&content[left..]) {
                self.report
                    .add(|| format!("block {}: bytes behind the end of file {owner:032x}", at.0));
            }
            if whole && is_zero(&content) {
                self.report.add(|| format!("block {}: an empty bucket is stored", at.0));
            }
            self.seen(geometry.bucket_blocks.into());
            cells.start = cell.0 + 1;
        }
    }
}

/// Reads blocks that lie in a row, each for itself if need be; whether all of them were read. The others are
/// findings, and zero.
fn read(medium: &Medium, first: u64, blocks: &mut [u8], report: &mut Report) -> bool {
    if medium.read(BlockNo(first), blocks).is_ok() {
        return true;
    }
    let mut whole = true;
    for (block, content) in (first..).zip(blocks.chunks_exact_mut(BLOCK_LEN)) {
        if let Err(error) = medium.read(BlockNo(block), content) {
            content.fill(0);
            report.add(|| format!("block {block}: {error}"));
            whole = false;
        }
    }
    whole
}
