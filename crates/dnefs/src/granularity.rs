//! What the length of nodes costs: erase blocks of keys, copies for a small deletion, memory, the
//! time of a purge.

use tacita_flash::Geometry;

use crate::error::Result;
use crate::format::{FormatOptions, plan};
use crate::{index, keys};

/// Bytes of nodes that the paper counts erase blocks of keys for.
const GIB: f64 = 1_073_741_824.0;

/// The time that a purge of one erase block of keys took on the paper's device, in milliseconds,
/// and how long that block was in bytes. Paper: DNEFS, Table 4.
pub const PAPER_PURGE: (f64, u32) = (21.2, 128 << 10);

/// The shape of a chip, as far as the paper's Table 5 needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChipShape {
    /// Length of a page in bytes.
    pub page_len_bytes: u32,
    /// Pages in a physical erase block.
    pub pages_per_block: u32,
}

impl ChipShape {
    /// Erase blocks that keys take for each GiB of full nodes, keys alone being counted.
    ///
    /// Paper: DNEFS, Table 5.
    pub fn key_blocks_per_gib(self, node_len_bytes: u32, key_len_bytes: u32) -> f64 {
        let block = f64::from(self.page_len_bytes) * f64::from(self.pages_per_block);
        GIB / f64::from(node_len_bytes) * f64::from(key_len_bytes) / block
    }

    /// Erase blocks that are copied when one page of a node is deleted: its other pages go under
    /// another key.
    ///
    /// Paper: DNEFS, Table 5. Deviation: D-07 in docs/design/dnefs.md.
    pub fn copied_blocks(self, node_len_bytes: u32) -> f64 {
        let pages = node_len_bytes.div_ceil(self.page_len_bytes);
        f64::from(pages.saturating_sub(1)) / f64::from(self.pages_per_block)
    }
}

/// What a volume with nodes of one length has and takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeCost {
    /// Erase blocks of keys.
    pub key_lebs: u32,
    /// Keys.
    pub keys: u32,
    /// Erase blocks of nodes.
    pub main_lebs: u32,
    /// Memory for the index and the states of all keys in bytes, when the volume is full of nodes
    /// of this length.
    pub memory_bytes: u64,
}

impl VolumeCost {
    /// The cost of a volume of this shape.
    ///
    /// # Errors
    /// [`crate::Kind::Parameters`] if there is none.
    pub fn of(geometry: Geometry, options: &FormatOptions) -> Result<Self> {
        let (parameters, layout) = plan(geometry, options)?;
        let room = u64::from(layout.main_lebs) * u64::from(layout.leb_len_bytes);
        let nodes = room / u64::from(parameters.node_len_bytes);
        let keys = u64::from(layout.keys());
        Ok(Self {
            key_lebs: layout.key_lebs,
            keys: layout.keys(),
            main_lebs: layout.main_lebs,
            memory_bytes: nodes * index::ENTRY_LEN + keys * keys::len_of_each(&layout),
        })
    }

    /// Time to purge all erase blocks of keys in milliseconds, at the rate of the paper's device.
    pub fn purge_ms(&self, leb_len_bytes: u32) -> f64 {
        let (ms, len) = PAPER_PURGE;
        ms / f64::from(len) * f64::from(leb_len_bytes) * f64::from(self.key_lebs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_table_5_comes_out_as_its_text_has_it() {
        let chip = ChipShape { page_len_bytes: 2048, pages_per_block: 64 };
        let nodes = [1, 8, 64, 512, 4096].map(|pages| pages * 2048);
        let rounded = |value: f64, decimals| format!("{value:.decimals$}");
        let copied = nodes.map(|node| rounded(chip.copied_blocks(node), 2));
        assert_eq!(copied, ["0.00", "0.11", "0.98", "7.98", "63.98"]);
        let keys = nodes.map(|node| rounded(chip.key_blocks_per_gib(node, 16), 3));
        assert_eq!(keys, ["64.000", "8.000", "1.000", "0.125", "0.016"]);
    }

    #[test]
    fn nodes_shorter_than_a_page_copy_nothing_and_longer_keys_take_more() {
        let chip = ChipShape { page_len_bytes: 4096, pages_per_block: 64 };
        assert!(chip.copied_blocks(1024).abs() < f64::EPSILON);
        let twice = chip.key_blocks_per_gib(4096, 32) / chip.key_blocks_per_gib(4096, 16);
        assert!((twice - 2.0).abs() < f64::EPSILON);
    }

    #[test]
    fn larger_nodes_need_less_of_everything() {
        let geometry = Geometry { leb_len_bytes: 63 * 2048, lebs: 8024, page_len_bytes: 2048 };
        let cost = |node_len_bytes| {
            let options = FormatOptions { node_len_bytes, ..FormatOptions::default() };
            VolumeCost::of(geometry, &options).unwrap()
        };
        let costs = [2048, 4096, 16384, 32768].map(cost);
        assert!(costs.is_sorted_by(|a, b| a.key_lebs > b.key_lebs
            && a.memory_bytes > b.memory_bytes
            && a.main_lebs < b.main_lebs));
        assert!(costs[1].memory_bytes <= 64 * u64::from(costs[1].keys) / 2);
        let per_block = costs[1].purge_ms(128 << 10) / f64::from(costs[1].key_lebs);
        assert!((per_block - 21.2).abs() < 1e-9);
        let options = FormatOptions { node_len_bytes: 128 << 10, ..FormatOptions::default() };
        assert_eq!(VolumeCost::of(geometry, &options).unwrap_err().kind(), crate::Kind::Parameters);
    }
}
