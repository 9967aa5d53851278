//! Where the node of each key lies, in ten bytes: there is a place for every key, in use or not.

use tacita_dnefs_format::checkpoint::Location;
use tacita_dnefs_format::{MainLeb, NODE_ALIGN};

/// Bits of the length of a node in bytes; erase blocks are 16 MiB at most.
const LEN_BITS: u32 = 25;

/// A location, packed. Nodes begin at multiples of [`NODE_ALIGN`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    leb: [u8; 4],
    /// Where it begins, in units of the alignment, and how long it is.
    within: [u8; 6],
}

impl Place {
    /// Where a node is not.
    pub(super) const NOWHERE: Self = Self { leb: [0xff; 4], within: [0; 6] };

    pub(super) fn of(at: Location) -> Self {
        debug_assert!(at.offset.is_multiple_of(NODE_ALIGN) && at.len_bytes >> LEN_BITS == 0);
        let within = u64::from(at.offset / NODE_ALIGN) << LEN_BITS | u64::from(at.len_bytes);
        let [bytes @ .., _, _] = within.to_le_bytes();
        Self { leb: at.leb.0.to_le_bytes(), within: bytes }
    }

    #[allow(clippy::cast_possible_truncation, reason = "both were 32 bits long")]
    pub(super) fn location(self) -> Location {
        let mut within = [0; 8];
        within[..self.within.len()].copy_from_slice(&self.within);
        let within = u64::from_le_bytes(within);
        Location {
            leb: MainLeb(u32::from_le_bytes(self.leb)),
            offset: (within >> LEN_BITS) as u32 * NODE_ALIGN,
            len_bytes: within as u32 & ((1 << LEN_BITS) - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_comes_back_and_takes_ten_bytes() {
        let longest = (1 << 24) - NODE_ALIGN;
        for leb in [0, 1, u32::MAX] {
            for (offset, len_bytes) in [(0, 0), (8, 48), (longest, 1 << 24), (1 << 23, 4097)] {
                let at = Location { leb: MainLeb(leb), offset, len_bytes };
                assert_eq!(Place::of(at).location(), at);
            }
        }
        assert_eq!(Place::NOWHERE.location().leb, MainLeb(u32::MAX));
        assert_eq!(size_of::<Place>(), 10);
    }
}
