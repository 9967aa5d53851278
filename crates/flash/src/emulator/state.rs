//! What is known of a physical block besides its content.

use super::shape::Shape;

/// Length of an entry of the table in a file.
pub(super) const STATE_LEN: usize = 8;

/// Whether a block can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Good,
    /// From the beginning.
    FactoryBad,
    /// It could not be erased or programmed any more.
    GrownBad,
}

/// How far a block has been programmed, and whether it can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    /// Everything before this byte has been programmed, or can no longer be; nothing behind it has.
    pub(super) programmed: u32,
    pub(super) mark: Mark,
}

impl State {
    pub(super) const NEW: Self = Self { programmed: 0, mark: Mark::Good };

    pub(super) fn encode(self) -> [u8; STATE_LEN] {
        let mut bytes = [0; STATE_LEN];
        bytes[..4].copy_from_slice(&self.programmed.to_le_bytes());
        bytes[4] = match self.mark {
            Mark::Good => 0,
            Mark::FactoryBad => 1,
            Mark::GrownBad => 2,
        };
        bytes
    }

    /// `None` if these bytes are no state of a block of this shape.
    pub(super) fn decode(bytes: [u8; STATE_LEN], shape: Shape) -> Option<Self> {
        let (programmed, rest) = bytes.split_first_chunk().expect("eight bytes");
        let programmed = u32::from_le_bytes(*programmed);
        let mark = match rest {
            [0, 0, 0, 0] => Mark::Good,
            [1, 0, 0, 0] => Mark::FactoryBad,
            [2, 0, 0, 0] => Mark::GrownBad,
            _ => return None,
        };
        let within = if programmed < shape.data_offset() {
            programmed.is_multiple_of(shape.sub_page_len_bytes())
        } else {
            programmed <= shape.block_len_bytes() && programmed.is_multiple_of(shape.page_len_bytes)
        };
        within.then_some(Self { programmed, mark })
    }
}
