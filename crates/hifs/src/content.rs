//! The content of one file: what lies in the image and what waits for the next commit.

mod ranges;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use tacita_block::is_zero;

use crate::error::Result;
use crate::geometry::{BLOCK_LEN, Geometry, Table};
use crate::journal::{InFlight, SECTORS, sectors};
use crate::medium::Medium;
use crate::names::FileId;
use crate::placement::Engine;
use ranges::Ranges;

const BLOCK: u64 = BLOCK_LEN as u64;

/// One block of content, which a file and the commit that brings it into the image share.
pub(crate) type Block = Arc<[u8; BLOCK_LEN]>;

/// One block that waits; `None` is zeros.
pub(crate) type Pending = Option<Block>;

/// What a change adds to what waits.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Growth {
    /// Blocks that the next commit may have to write more.
    pub(crate) blocks: u64,
    /// Sectors of these up to the last in each that holds something.
    pub(crate) sectors: u64,
    /// Blocks in memory.
    pub(crate) held: u64,
}

impl std::ops::AddAssign for Growth {
    fn add_assign(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.sectors += other.sectors;
        self.held += other.held;
    }
}

/// Where content that waits for no commit is read from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) geometry: &'a Geometry,
    pub(crate) medium: &'a Medium,
    pub(crate) in_flight: &'a InFlight,
}

/// A bucket whose blocks are written, as it was found: looked up once for all of them.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) bucket: u32,
    /// The base holds it for the file.
    in_base: bool,
    /// Some of its blocks wait.
    waits: bool,
}

/// Content of a file or symbolic link.
#[derive(Debug, Default)]
pub(crate) struct Content {
    /// See [`Content::base`]; 0 for none.
    base: FileId,
    waiting: Option<Box<Waiting>>,
    /// Content of a short file as the image holds it.
    inline: Box<[u8]>,
    /// Number of buckets the file has. A bucket whose waiting blocks are all zero counts until the
    /// commit looks.
    pub(crate) buckets: u32,
    /// Number of buckets that the inode in the image tells.
    pub(crate) told_buckets: u32,
}

/// What of a file's content waits for the next commit. Most files have nothing of it.
#[derive(Debug, Default)]
struct Waiting {
    /// Buckets of the base that the file no longer has.
    dropped: Ranges,
    /// Blocks by number. Nothing lies behind the end of the file.
    overlay: BTreeMap<u64, Pending>,
}

static NOTHING: Waiting = Waiting { dropped: Ranges::NONE, overlay: BTreeMap::new() };

impl Content {
    /// The id under which the image holds buckets of this file; after a rename not the file's id.
    pub(crate) fn base(&self) -> Option<FileId> {
        Some(self.base).filter(|id| *id != 0)
    }

    fn waiting(&self) -> &Waiting {
        self.waiting.as_deref().unwrap_or(&NOTHING)
    }

    /// Whether nothing waits: the image has all of it, and nothing else.
    pub(crate) const fn is_settled(&self) -> bool {
        self.waiting.is_none()
    }

    fn waiting_mut(&mut self) -> &mut Waiting {
        self.waiting.get_or_insert_default()
    }

    fn overlay(&self) -> &BTreeMap<u64, Pending> {
        &self.waiting().overlay
    }

    /// The content of a file just read from the image.
    pub(crate) fn stored(id: FileId, inline: Vec<u8>, buckets: u32) -> Self {
        let base = if buckets > 0 { id } else { 0 };
        Self { base, inline: inline.into(), buckets, told_buckets: buckets, ..Self::default() }
    }

    /// Buckets that have blocks waiting, ascending.
    pub(crate) fn pending_buckets(&self, geometry: &Geometry) -> Vec<u32> {
        let per_bucket = u64::from(geometry.bucket_blocks);
        let mut buckets: Vec<u32> = Vec::new();
        for block in self.overlay().keys() {
            let bucket = to_bucket(block / per_bucket);
            if buckets.last() != Some(&bucket) {
                buckets.push(bucket);
            }
        }
        buckets
    }

    /// The blocks of a bucket that wait.
    pub(crate) fn pending_blocks(
        &self,
        geometry: &Geometry,
        bucket: u32,
    ) -> impl Iterator<Item = (u32, &Pending)> {
        let per_bucket = u64::from(geometry.bucket_blocks);
        let first = u64::from(bucket) * per_bucket;
        self.overlay().range(first..first + per_bucket).map(move |(block, pending)| {
            (u32::try_from(block - first).expect("within a bucket"), pending)
        })
    }

    /// Whether the base holds this bucket for the file.
    pub(crate) fn in_base(&self, engine: &Engine, bucket: u32) -> bool {
        !self.waiting().dropped.contains(bucket)
            && self.base().is_some_and(|base| engine.locate(base, bucket).is_some())
    }

    /// Whether any bucket has been dropped from the base.
    pub(crate) fn has_dropped(&self) -> bool {
        !self.waiting().dropped.is_empty()
    }

    /// Whether `bucket` has been dropped from the base.
    pub(crate) fn is_dropped(&self, bucket: u32) -> bool {
        self.waiting().dropped.contains(bucket)
    }

    /// Whether the file has this bucket: it waits with content, or the base holds it.
    pub(crate) fn has_bucket(&self, source: Source<'_>, bucket: u32) -> bool {
        self.waits(source.geometry, bucket) || self.in_base(source.engine, bucket)
    }

    /// Whether any block of it waits with content.
    fn waits(&self, geometry: &Geometry, bucket: u32) -> bool {
        self.pending_blocks(geometry, bucket).any(|(_, pending)| pending.is_some())
    }

    /// Whether the bucket of a file of this size will be stored: whether any byte of it is not zero, or may
    /// not be, for it cannot be read. Behind the end all is zero.
    pub(crate) fn is_stored(&self, source: Source<'_>, bucket: u32, size: u64) -> bool {
        let mut waiting = 0;
        for (_, pending) in self.pending_blocks(source.geometry, bucket) {
            if pending.as_ref().is_some_and(|block| !is_zero(&block[..])) {
                return true;
            }
            waiting += 1;
        }
        let in_base = self.in_base(source.engine, bucket);
        if waiting == 0 || waiting == source.geometry.bucket_blocks || !in_base {
            return in_base && waiting == 0;
        }
        let per_bucket = source.geometry.bucket_blocks;
        let first = u64::from(bucket) * u64::from(per_bucket);
        for block in first..(first + u64::from(per_bucket)).min(size.div_ceil(BLOCK)) {
            let is_zero = |block: Box<[u8; BLOCK_LEN]>| is_zero(&block[..]);
            if !self.overlay().contains_key(&block) && !self.block(source, block).is_ok_and(is_zero)
            {
                return true;
            }
        }
        false
    }

    /// One block as the file has it now.
    ///
    /// # Errors
    /// [`crate::Kind::Device`].
    pub(crate) fn block(&self, source: Source<'_>, block: u64) -> Result<Box<[u8; BLOCK_LEN]>> {
        let mut content = Box::new([0; BLOCK_LEN]);
        self.read_blocks(source, block, &mut content[..])?;
        Ok(content)
    }

    /// Whole blocks from `first` on. Blocks behind the end of the file are zero.
    ///
    /// # Errors
    /// [`crate::Kind::Device`].
    pub(crate) fn read_blocks(&self, source: Source<'_>, first: u64, buf: &mut [u8]) -> Result<()> {
        let count = (buf.len() / BLOCK_LEN) as u64;
        let whole = self.overlay().range(first..first + count).count() as u64 == count;
        if !whole {
            self.read_base(source, first, buf)?;
        }
        for (block, pending) in self.overlay().range(first..first + count) {
            let at = usize::try_from(block - first).expect("within the buffer") * BLOCK_LEN;
            let target = &mut buf[at..at + BLOCK_LEN];
            match pending {
                Some(content) => target.copy_from_slice(&content[..]),
                None => target.fill(0),
            }
        }
        Ok(())
    }

    /// Tells the device that these blocks will probably be read next, wherever their pieces lie.
    pub(crate) fn will_read(&self, source: Source<'_>, blocks: Range<u64>) {
        let per_bucket = u64::from(source.geometry.bucket_blocks);
        let mut at = blocks.start;
        while at < blocks.end {
            let (bucket, within) = (to_bucket(at / per_bucket), at % per_bucket);
            let (run, place) = self.base_run(source, bucket, within, blocks.end - at);
            if let Some(place) = place {
                source.medium.will_read(place, run);
            }
            at += run;
        }
    }

    fn read_base(&self, source: Source<'_>, first: u64, buf: &mut [u8]) -> Result<()> {
        let per_bucket = u64::from(source.geometry.bucket_blocks);
        let count = (buf.len() / BLOCK_LEN) as u64;
        let mut at = 0;
        while at < count {
            let block = first + at;
            let (bucket, within) = (to_bucket(block / per_bucket), block % per_bucket);
            let (run, place) = self.base_run(source, bucket, within, count - at);
            let bytes = |n: u64| usize::try_from(n * BLOCK).expect("within the buffer");
            let target = &mut buf[bytes(at)..bytes(at + run)];
            match place {
                Some(place) => source.in_flight.read(source.medium, place, target)?,
                None => target.fill(0),
            }
            at += run;
        }
        if first == 0 && !self.inline.is_empty() {
            buf[..self.inline.len()].copy_from_slice(&self.inline);
        }
        Ok(())
    }

    /// How many blocks from `within` a bucket on lie together in the image, and where.
    fn base_run(
        &self,
        source: Source<'_>,
        bucket: u32,
        within: u64,
        wanted: u64,
    ) -> (u64, Option<tacita_block::BlockNo>) {
        let per_bucket = u64::from(source.geometry.bucket_blocks);
        let located = self
            .base()
            .filter(|_| !self.waiting().dropped.contains(bucket))
            .and_then(|base| source.engine.locate(base, bucket));
        let Some((cell, cells)) = located else {
            return (wanted.min(per_bucket - within), None);
        };
        let mut buckets = 1;
        while buckets < cells
            && u64::from(buckets) * per_bucket < within + wanted
            && !self.waiting().dropped.contains(bucket + buckets)
        {
            buckets += 1;
        }
        let start = source.geometry.cell_start(Table::Buckets, cell).0 + within;
        let run = (u64::from(buckets) * per_bucket - within).min(wanted);
        (run, Some(tacita_block::BlockNo(start)))
    }

    /// A bucket of which blocks are to be written.
    pub(crate) fn find(&self, source: Source<'_>, bucket: u32) -> Found {
        let in_base = self.in_base(source.engine, bucket);
        Found {
            bucket,
            in_base,
            waits: self.pending_blocks(source.geometry, bucket).next().is_some(),
        }
    }

    /// Puts a block of a bucket into the waiting ones. Returns what the next commit may have to write
    /// more: with the first block that changes in a stored bucket the whole of it, for it may move.
    pub(crate) fn set_block(
        &mut self,
        source: Source<'_>,
        found: &mut Found,
        block: u64,
        content: Pending,
    ) -> Growth {
        let is_held = content.is_some();
        let waits = std::mem::replace(&mut found.waits, true);
        if found.in_base {
            let before = self.waiting_mut().overlay.insert(block, content).flatten();
            let held = u64::from(is_held && before.is_none());
            let blocks = if waits { 0 } else { source.geometry.bucket_blocks.into() };
            return Growth { blocks, sectors: blocks * SECTORS, held };
        }
        if is_held && !self.waits(source.geometry, found.bucket) {
            self.buckets += 1;
        }
        let len = |pending: &Pending| pending.as_ref().map_or(0, |block| sectors(block));
        let new = len(&content);
        let before = self.waiting_mut().overlay.insert(block, content).flatten();
        let held = u64::from(is_held && before.is_none());
        Growth { blocks: held, sectors: new.saturating_sub(len(&before)), held }
    }

    /// Writes a piece of a block that waits; `None` if it does not.
    pub(crate) fn change_block(
        &mut self,
        found: &Found,
        block: u64,
        within: usize,
        piece: &[u8],
    ) -> Option<Growth> {
        let pending =
            Arc::make_mut(self.waiting.as_deref_mut()?.overlay.get_mut(&block)?.as_mut()?);
        let before = sectors(pending);
        pending[within..within + piece.len()].copy_from_slice(piece);
        let sectors = if found.in_base { 0 } else { sectors(pending).saturating_sub(before) };
        Some(Growth { sectors, ..Growth::default() })
    }

    /// Whether the file has short content that takes no bucket yet.
    pub(crate) const fn is_frozen(&self) -> bool {
        !self.inline.is_empty()
    }

    /// Takes the short content of the image into the waiting blocks, so that buckets may follow.
    pub(crate) fn thaw_inline(&mut self, source: Source<'_>) {
        if self.inline.is_empty() {
            return;
        }
        let inline = std::mem::take(&mut self.inline);
        if !self.overlay().contains_key(&0) {
            let mut block = [0; BLOCK_LEN];
            block[..inline.len()].copy_from_slice(&inline);
            let mut first = self.find(source, 0);
            self.set_block(source, &mut first, 0, Some(Arc::new(block)));
        }
    }

    /// The file loses whole buckets.
    pub(crate) fn drop_buckets(&mut self, geometry: &Geometry, buckets: Range<u32>) {
        let per_bucket = u64::from(geometry.bucket_blocks);
        let blocks = u64::from(buckets.start) * per_bucket..u64::from(buckets.end) * per_bucket;
        let is_stored = self.base().is_some();
        let waiting = self.waiting_mut();
        if blocks.start == 0 {
            waiting.overlay = waiting.overlay.split_off(&blocks.end);
        } else {
            let mut behind = waiting.overlay.split_off(&blocks.start);
            waiting.overlay.append(&mut behind.split_off(&blocks.end));
        }
        if is_stored {
            waiting.dropped.insert(buckets);
        }
    }

    /// Counts the buckets anew, after some have been dropped.
    pub(crate) fn recount(&mut self, source: Source<'_>) {
        let base = self.base().map_or(0, |base| {
            let held = |(bucket, _, len): (u32, _, u32)| {
                (bucket..bucket + len).filter(|b| !self.waiting().dropped.contains(*b)).count()
            };
            source.engine.extents(base).map(held).sum::<usize>()
        });
        let pending = self
            .pending_buckets(source.geometry)
            .into_iter()
            .filter(|b| !self.in_base(source.engine, *b) && self.has_bucket(source, *b))
            .count();
        self.buckets = u32::try_from(base + pending).expect("no more buckets than cells");
    }

    /// The commit has brought everything into the image, under `id`.
    pub(crate) fn settle(&mut self, id: FileId, inline: Vec<u8>, buckets: u32) {
        *self = Self::stored(id, inline, buckets);
    }

    /// The first `len` bytes, for a short file.
    ///
    /// # Errors
    /// [`crate::Kind::Device`].
    pub(crate) fn head(&self, source: Source<'_>, len: usize) -> Result<Vec<u8>> {
        if len == 0 {
            return Ok(Vec::new());
        }
        Ok(self.block(source, 0)?[..len].to_vec())
    }
}

/// A bucket number; files end before numbers outgrow 32 bits.
pub(crate) fn to_bucket(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
