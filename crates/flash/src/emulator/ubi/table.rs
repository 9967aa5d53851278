//! The volume table: which volumes there are.

use super::super::shape::Shape;
use super::checksum::checksum;
use super::header::DYNAMIC;

/// Length of an entry.
const ENTRY_LEN: usize = 172;
/// The most volumes that UBI has.
const ENTRIES_MAX: usize = 128;
const CRC_AT: usize = ENTRY_LEN - 4;
/// What the volume is called.
const NAME: &[u8; NAME_LEN as usize] = b"dnefs";
const NAME_LEN: u16 = 5;

/// The table with one volume of so many blocks, in whole pages.
pub(super) fn encode(shape: Shape, lebs: u32) -> Vec<u8> {
    let mut table = Vec::with_capacity(entries(shape) * ENTRY_LEN);
    for slot in 0..entries(shape) {
        let mut entry = [0; ENTRY_LEN];
        if slot == 0 {
            entry[..4].copy_from_slice(&lebs.to_be_bytes());
            entry[4..8].copy_from_slice(&1u32.to_be_bytes());
            entry[12] = DYNAMIC;
            entry[14..16].copy_from_slice(&NAME_LEN.to_be_bytes());
            entry[16..16 + NAME.len()].copy_from_slice(NAME);
        }
        let crc = checksum(&[&entry[..CRC_AT]]);
        entry[CRC_AT..].copy_from_slice(&crc.to_be_bytes());
        table.extend(entry);
    }
    let page = shape.page_len_bytes as usize;
    table.resize(table.len().next_multiple_of(page), 0xff);
    table
}

/// Length of the table in whole pages.
pub(super) fn len(shape: Shape) -> usize {
    (entries(shape) * ENTRY_LEN).next_multiple_of(shape.page_len_bytes as usize)
}

/// Number of blocks of the volume, if this is the table of one with it alone.
pub(super) fn decode(table: &[u8], shape: Shape) -> Option<u32> {
    let lebs = u32::from_be_bytes(*table.first_chunk()?);
    let fits = (1..=shape.blocks).contains(&lebs);
    (fits && encode(shape, lebs) == table).then_some(lebs)
}

fn entries(shape: Shape) -> usize {
    (shape.leb_len_bytes() as usize / ENTRY_LEN).min(ENTRIES_MAX)
}
