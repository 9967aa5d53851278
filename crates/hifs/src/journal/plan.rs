//! What a commit does to the image, collected before anything is written, and then put into the
//! form of the journal.
//!
//! The journal is a function of the old and the new image alone, so that a crash does not tell by
//! which way the one became the other: blocks that do not differ are left out, and whether a bucket
//! moves or is written follows from contents, not from how the file got them.
//!
//! Content that only overwrites content need not be in the journal: whichever of its sectors a crash
//! keeps, the image is the canonical one of some content. Small commits go through the journal all
//! the same and are whole or not at all; in large ones such blocks are *loose*.

use std::collections::BTreeMap;

use tacita_block::BlockNo;
use tacita_secret::{Digest, digest};

use super::{
    HASH_AT, KIND_MOVE, KIND_PUT, KIND_ZERO, MAGIC, Move, RECORD_LEN, Run, Sealed, coalesce,
    is_zero, layers,
};
use crate::content::Pending;
use crate::error::{Error, Kind, Result};
use crate::geometry::{BLOCK_LEN, Geometry};
use crate::medium::Medium;
use crate::superblock::u64_at;

/// Blocks compared with the image, or written loosely, at once.
const COMPARE_BLOCKS: usize = 256;
/// Up to so many blocks of overwritten content go through the journal with the rest of a commit.
const WHOLE_BLOCKS_MAX: u64 = 256;
/// In a small image it is less: this share of the journal.
const WHOLE_SHARE: u64 = 8;
const SECTOR_LEN: usize = 512;

/// The new content of one bucket.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// Where it goes: first block.
    pub(crate) to: BlockNo,
    /// Nothing lay there: all its blocks are zero.
    pub(crate) fresh: bool,
    /// Where the image holds what `blocks` does not give; zeros if nowhere.
    pub(crate) base: Option<BlockNo>,
    /// Blocks with new content, by index.
    pub(crate) blocks: Vec<(u32, Pending)>,
    /// How many of its blocks lie wholly before the end of the file.
    pub(crate) within: u32,
}

/// What a commit does to the image.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    buckets: Vec<Bucket>,
    /// Buckets that lie elsewhere, or nowhere, from now on: first blocks.
    left: Vec<BlockNo>,
    /// Blocks that may differ from the image.
    blocks: Vec<(u64, Box<[u8; BLOCK_LEN]>)>,
    zeros: Vec<Run>,
}

/// Blocks to be written, and runs to be zeroed, that differ from the image.
#[derive(Default)]
struct Differing {
    puts: Vec<(u64, Box<[u8; BLOCK_LEN]>)>,
    zeros: Vec<Run>,
    /// Still to be compared.
    unsure: Vec<(u64, Box<[u8; BLOCK_LEN]>)>,
    /// Overwritten content.
    loose: Vec<(u64, Box<[u8; BLOCK_LEN]>)>,
}

impl Plan {
    /// This block gets this content.
    pub(crate) fn put(&mut self, at: BlockNo, block: Box<[u8; BLOCK_LEN]>) {
        self.blocks.push((at.0, block));
    }

    /// These blocks, which held something, become zero.
    pub(crate) fn zero(&mut self, at: BlockNo, count: u32) {
        self.zeros.push(Run { at: at.0, count });
    }

    /// A cell gets this content.
    pub(crate) fn bucket(&mut self, bucket: Bucket) {
        if bucket.base != Some(bucket.to) || !bucket.blocks.is_empty() {
            self.buckets.push(bucket);
        }
    }

    /// The bucket in this cell moves or goes.
    pub(crate) fn leave(&mut self, from: BlockNo) {
        self.left.push(from);
    }

    /// Puts the plan into the form of the journal, reading what moves and what may be equal.
    ///
    /// # Errors
    /// [`Kind::NoSpace`] if it does not fit in the journal; [`Kind::Device`].
    pub(crate) fn seal(mut self, medium: &Medium, geometry: &Geometry) -> Result<Sealed> {
        let mut out = Differing { zeros: std::mem::take(&mut self.zeros), ..Differing::default() };
        out.unsure = std::mem::take(&mut self.blocks);
        let moves = self.divide(medium, geometry, &mut out)?;
        let whole = WHOLE_BLOCKS_MAX.min(geometry.journal_blocks / WHOLE_SHARE);
        if out.loose.len() as u64 <= whole {
            let loose = std::mem::take(&mut out.loose);
            out.unsure.extend(loose);
        }
        let room =
            geometry.journal_blocks.saturating_sub((out.puts.len() + out.unsure.len()) as u64);
        let pairs: Vec<(u64, u64)> = moves.keys().copied().collect();
        let mut layered = Vec::with_capacity(pairs.len());
        let order = layers::order(&pairs, room / 2 / u64::from(geometry.bucket_blocks));
        for ((from, to), layer) in order {
            if let Some(layer) = layer {
                let (count, tag) = (geometry.bucket_blocks, moves[&(from, to)]);
                layered.push(Move { layer, count, from, to, tag });
            } else {
                let bucket = Bucket {
                    to: BlockNo(to),
                    fresh: false,
                    base: Some(BlockNo(from)),
                    blocks: vec![],
                    within: 0,
                };
                let content = bucket.content(medium, geometry)?;
                out.write_all(&bucket, &content);
            }
        }
        layered.sort_by_key(|m| (m.layer, m.to));
        out.compare(medium)?;
        out.puts.sort_unstable_by_key(|(at, _)| *at);
        out.zeros.sort_unstable_by_key(|run| run.at);
        out.loose.sort_unstable_by_key(|(at, _)| *at);
        let empty = layered.is_empty() && out.puts.is_empty() && out.zeros.is_empty();
        let bytes = if empty { Vec::new() } else { encode(&layered, &out.puts, &out.zeros) };
        let sealed = Sealed { bytes, loose: join(out.loose) };
        if sealed.blocks() > geometry.journal_blocks {
            let text = format!(
                "one commit of {} blocks is larger than the journal of {}",
                sealed.blocks(),
                geometry.journal_blocks
            );
            return Err(Error::new(Kind::NoSpace, text));
        }
        Ok(sealed)
    }

    /// Decides which buckets move and which are written. A bucket moves if one that leaves its cell
    /// has the same content, whosever it was. Returns source, target and hash of the moves.
    fn divide(
        &mut self,
        medium: &Medium,
        geometry: &Geometry,
        out: &mut Differing,
    ) -> Result<BTreeMap<(u64, u64), u64>> {
        // What is read is read in the order of the medium.
        self.left.sort_unstable();
        self.buckets.sort_unstable_by_key(|bucket| (bucket.base, bucket.to));
        if self.left.is_empty() || self.buckets.is_empty() {
            for bucket in &self.buckets {
                out.write(bucket, None, medium, geometry)?;
            }
            return Ok(BTreeMap::new());
        }
        let mut sources: BTreeMap<Digest, Vec<u64>> = BTreeMap::new();
        let mut content = vec![0; bucket_len(geometry)];
        for from in &self.left {
            medium.read(*from, &mut content)?;
            sources.entry(digest(&content)).or_default().push(from.0);
        }
        let mut targets: BTreeMap<Digest, Vec<&Bucket>> = BTreeMap::new();
        for bucket in &self.buckets {
            let content = bucket.content(medium, geometry)?;
            let hash = digest(&content);
            if sources.contains_key(&hash) {
                targets.entry(hash).or_default().push(bucket);
            } else {
                out.write(bucket, Some(&content), medium, geometry)?;
            }
        }
        let mut moves = BTreeMap::new();
        for (hash, mut targets) in targets {
            let mut from = sources.remove(&hash).unwrap_or_default();
            from.sort_unstable();
            targets.sort_by_key(|bucket| bucket.to);
            // What is there already stays.
            targets.retain(|bucket| match from.binary_search(&bucket.to.0) {
                Ok(i) => {
                    from.remove(i);
                    false
                }
                Err(_) => true,
            });
            let mut from = from.into_iter();
            for bucket in targets {
                match from.next() {
                    Some(from) => {
                        moves.insert((from, bucket.to.0), u64_at(&hash, 0));
                    }
                    None => out.write(bucket, None, medium, geometry)?,
                }
            }
        }
        Ok(moves)
    }
}

impl Bucket {
    /// Whether any mixture of the old sectors and the new ones is some content of the file in its
    /// canonical form: nothing lies at or behind the end of the file, and every new sector holds
    /// something, so that no mixture is an empty bucket.
    fn only_overwrites(&self) -> bool {
        self.blocks.iter().all(|(index, block)| {
            *index < self.within
                && block
                    .as_ref()
                    .is_some_and(|block| block.chunks_exact(SECTOR_LEN).all(|s| !is_zero(s)))
        })
    }

    /// The whole content.
    fn content(&self, medium: &Medium, geometry: &Geometry) -> Result<Vec<u8>> {
        let mut content = vec![0; bucket_len(geometry)];
        if let Some(base) =
            self.base.filter(|_| self.blocks.len() < geometry.bucket_blocks as usize)
        {
            medium.read(base, &mut content)?;
        }
        for (index, block) in &self.blocks {
            let target = &mut content[*index as usize * BLOCK_LEN..][..BLOCK_LEN];
            match block {
                Some(block) => target.copy_from_slice(&block[..]),
                None => target.fill(0),
            }
        }
        Ok(content)
    }
}

impl Differing {
    /// A bucket is written: only the blocks it gives where it stays, else all.
    fn write(
        &mut self,
        bucket: &Bucket,
        content: Option<&[u8]>,
        medium: &Medium,
        geometry: &Geometry,
    ) -> Result<()> {
        if bucket.base == Some(bucket.to) {
            let target = if bucket.only_overwrites() { &mut self.loose } else { &mut self.unsure };
            for (index, block) in &bucket.blocks {
                let block = block.clone().unwrap_or_else(|| Box::new([0; BLOCK_LEN]));
                target.push((bucket.to.0 + u64::from(*index), block));
            }
            return Ok(());
        }
        match content {
            Some(content) => self.write_all(bucket, content),
            None => self.write_all(bucket, &bucket.content(medium, geometry)?),
        }
        Ok(())
    }

    fn write_all(&mut self, bucket: &Bucket, content: &[u8]) {
        for (at, block) in (bucket.to.0..).zip(content.chunks_exact(BLOCK_LEN)) {
            if bucket.fresh && is_zero(block) {
                continue;
            }
            let block: Box<[u8; BLOCK_LEN]> = Box::new(block.try_into().expect("one block"));
            if bucket.fresh { &mut self.puts } else { &mut self.unsure }.push((at, block));
        }
    }

    /// Keeps of the unsure blocks those that differ from the image.
    fn compare(&mut self, medium: &Medium) -> Result<()> {
        let mut unsure = std::mem::take(&mut self.unsure);
        unsure.sort_unstable_by_key(|(at, _)| *at);
        let mut old = vec![0; COMPARE_BLOCKS * BLOCK_LEN];
        let mut rest = unsure.into_iter().peekable();
        while let Some(first) = rest.next() {
            let start = first.0;
            let mut run = vec![first];
            while run.len() < COMPARE_BLOCKS
                && let Some(next) = rest.next_if(|(at, _)| *at == start + run.len() as u64)
            {
                run.push(next);
            }
            let old = &mut old[..run.len() * BLOCK_LEN];
            medium.read(BlockNo(start), old)?;
            for ((at, block), old) in run.into_iter().zip(old.chunks_exact(BLOCK_LEN)) {
                if block[..] == *old {
                    continue;
                }
                if is_zero(&block[..]) {
                    self.zeros.push(Run { at, count: 1 });
                } else {
                    self.puts.push((at, block));
                }
            }
        }
        Ok(())
    }
}

/// Joins adjacent blocks into longer writes.
fn join(blocks: Vec<(u64, Box<[u8; BLOCK_LEN]>)>) -> Vec<(u64, Vec<u8>)> {
    let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
    for (at, block) in blocks {
        match runs.last_mut() {
            Some((start, run))
                if *start + (run.len() / BLOCK_LEN) as u64 == at
                    && run.len() < COMPARE_BLOCKS * BLOCK_LEN =>
            {
                run.extend_from_slice(&block[..]);
            }
            _ => runs.push((at, block.to_vec())),
        }
    }
    runs
}

fn bucket_len(geometry: &Geometry) -> usize {
    usize::try_from(geometry.bucket_len_bytes()).expect("1 MiB at most")
}

fn encode(moves: &[Move], puts: &[(u64, Box<[u8; BLOCK_LEN]>)], zeros: &[Run]) -> Vec<u8> {
    let put_runs = coalesce(puts.iter().map(|(at, _)| Run { at: *at, count: 1 }));
    let zeros = coalesce(zeros.iter().copied());
    let records = moves.len() + put_runs.len() + zeros.len();
    let head = BLOCK_LEN + (records * RECORD_LEN).next_multiple_of(BLOCK_LEN);
    let mut bytes = vec![0; head + puts.len() * BLOCK_LEN];
    bytes[..8].copy_from_slice(&MAGIC);
    let count = u32::try_from(records).expect("fewer records than blocks");
    bytes[8..12].copy_from_slice(&count.to_le_bytes());
    let data = u32::try_from(puts.len()).expect("fewer data blocks than 2^32");
    bytes[12..16].copy_from_slice(&data.to_le_bytes());
    let moves = moves.iter().map(|m| (KIND_MOVE, m.layer, m.count, m.to, m.from, m.tag));
    let put_runs = put_runs.iter().map(|run| (KIND_PUT, 0, run.count, run.at, 0, 0));
    let zeros = zeros.iter().map(|run| (KIND_ZERO, 0, run.count, run.at, 0, 0));
    let slots = bytes[BLOCK_LEN..head].chunks_exact_mut(RECORD_LEN);
    for (slot, record) in slots.zip(moves.chain(put_runs).chain(zeros)) {
        let (kind, layer, count, at, from, tag) = record;
        slot[0] = kind;
        slot[1] = layer;
        slot[4..8].copy_from_slice(&count.to_le_bytes());
        slot[8..16].copy_from_slice(&at.to_le_bytes());
        slot[16..24].copy_from_slice(&from.to_le_bytes());
        slot[24..32].copy_from_slice(&tag.to_le_bytes());
    }
    for (slot, (_, block)) in bytes[head..].chunks_exact_mut(BLOCK_LEN).zip(puts) {
        slot.copy_from_slice(&block[..]);
    }
    let hash = digest(&bytes);
    bytes[HASH_AT..HASH_AT + 32].copy_from_slice(&hash);
    bytes
}
