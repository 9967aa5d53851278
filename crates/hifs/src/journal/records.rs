//! The records of a journal and its bytes. Layout: docs/spec/hifs.md.

use tacita_secret::{digest, digest_of};

use super::layers::Way;
use super::packed;
use super::plan::{Differing, Moves};
use super::{
    HASH_AT, KIND_FILL, KIND_MOVE, KIND_PARK, KIND_PUT, KIND_ZERO, MAGIC, RECORD_LEN, Run,
};
use crate::content::Block;
use crate::geometry::BLOCK_LEN;
use crate::superblock::u64_at;

/// One record, as it is written.
pub(super) struct Record {
    pub(super) kind: u8,
    pub(super) layer: u32,
    pub(super) count: u32,
    pub(super) at: u64,
    pub(super) from: u64,
    pub(super) tag: u64,
}

impl Record {
    const fn of_run(kind: u8, run: Run) -> Self {
        Self { kind, layer: 0, count: run.count, at: run.at, from: 0, tag: 0 }
    }
}

/// The records of moves and parking, from layer `first` on. `place_of` gives a parking place's first
/// block.
pub(super) fn records_of(
    moves: &Moves,
    ways: &[Way],
    first: u32,
    place_of: impl Fn(u64) -> u64,
) -> Vec<Record> {
    let mut records = Vec::new();
    for ((step, tag), way) in moves.iter().zip(ways) {
        let mut push = |kind, layer, from, at| {
            let layer = first + layer;
            records.push(Record { kind, layer, count: step.count, at, from, tag: *tag });
        };
        match *way {
            Way::Copied => {}
            Way::Layer(layer) => push(KIND_MOVE, layer, step.from, step.to),
            Way::Parked { place, layers: [park, fetch] } => {
                push(KIND_PARK, park, step.from, place_of(place));
                push(KIND_MOVE, fetch, place_of(place), step.to);
            }
        }
    }
    records
}

/// The bytes of the journal: its head, the records, and what is put.
pub(super) fn encode(
    mut records: Vec<Record>,
    out: &Differing,
    fills: &[(u64, Vec<Block>)],
    pack: bool,
) -> Vec<u8> {
    let mut content = Vec::new();
    let mut blocks = out.puts.iter().map(|(_, block)| block);
    for run in out.put_runs(pack) {
        let blocks = blocks.by_ref().take(run.count as usize);
        let mut record = Record::of_run(KIND_PUT, run);
        if pack {
            record.from = packed::push(&mut content, blocks);
        } else {
            blocks.for_each(|block| content.extend_from_slice(&block[..]));
        }
        records.push(record);
    }
    records.extend(out.zero_runs().into_iter().map(|run| Record::of_run(KIND_ZERO, run)));
    records.extend(fills.iter().map(|(at, blocks)| {
        let count = u32::try_from(blocks.len()).expect("1 MiB at most");
        let tag = u64_at(&digest_of(blocks.iter().map(|block| &block[..])), 0);
        Record { tag, ..Record::of_run(KIND_FILL, Run { at: *at, count }) }
    }));
    let head = BLOCK_LEN + (records.len() * RECORD_LEN).next_multiple_of(BLOCK_LEN);
    let mut bytes = vec![0; head + content.len().next_multiple_of(BLOCK_LEN)];
    bytes[..8].copy_from_slice(&MAGIC);
    let count = u32::try_from(records.len()).expect("fewer records than blocks");
    bytes[8..12].copy_from_slice(&count.to_le_bytes());
    let data = u32::try_from((bytes.len() - head) / BLOCK_LEN).expect("fewer blocks than 2^32");
    bytes[12..16].copy_from_slice(&data.to_le_bytes());
    for (slot, record) in bytes[BLOCK_LEN..head].chunks_exact_mut(RECORD_LEN).zip(&records) {
        slot[..4].copy_from_slice(&(record.layer << 8 | u32::from(record.kind)).to_le_bytes());
        slot[4..8].copy_from_slice(&record.count.to_le_bytes());
        slot[8..16].copy_from_slice(&record.at.to_le_bytes());
        slot[16..24].copy_from_slice(&record.from.to_le_bytes());
        slot[24..32].copy_from_slice(&record.tag.to_le_bytes());
    }
    bytes[head..head + content.len()].copy_from_slice(&content);
    let hash = digest(&bytes);
    bytes[HASH_AT..HASH_AT + 32].copy_from_slice(&hash);
    bytes
}
