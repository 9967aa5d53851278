//! From stored cells back to an engine, verified: a table that is not canonical is not loaded.

use std::collections::HashMap;

use super::{Change, Engine};
use crate::placement::{Cell, Owner, Piece, pieces_of_chunk};

/// One occupied cell as it stands in a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Where.
    pub cell: Cell,
    /// Who.
    pub owner: u128,
    /// Which of its buckets.
    pub bucket: u32,
}

impl Engine {
    /// Takes over the cells of `entries`; `home` tells each owner's home.
    ///
    /// # Errors
    /// The first cell, in ascending order of owners, that is not where the canonical layout of the
    /// same buckets has it, or that holds a bucket twice.
    pub fn load(
        &mut self,
        entries: &[Entry],
        home: impl Fn(u128) -> u64,
    ) -> std::result::Result<(), Cell> {
        let k = self.procedures.order_max();
        let mut by_owner: HashMap<u128, Vec<(u32, Cell)>> = HashMap::new();
        for entry in entries {
            by_owner.entry(entry.owner).or_default().push((entry.bucket, entry.cell));
        }
        let mut owners: Vec<u128> = by_owner.keys().copied().collect();
        owners.sort_unstable();
        for id in owners {
            let mut buckets = by_owner.remove(&id).unwrap_or_default();
            buckets.sort_unstable();
            if let Some(twice) = buckets.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                return Err(twice[1].1);
            }
            let owner = Owner { id, home: home(id) };
            for chunk in buckets.chunk_by(|a, b| a.0 >> k == b.0 >> k) {
                self.load_chunk(&owner, chunk)?;
            }
        }
        self.verify_all()
    }

    fn load_chunk(&mut self, owner: &Owner, buckets: &[(u32, Cell)]) -> Result<(), Cell> {
        let k = self.procedures.order_max();
        let first = buckets[0].0 >> k << k;
        let mask = buckets.iter().fold(0, |mask, (bucket, _)| mask | 1 << (bucket - first));
        let (pieces, envelope) = pieces_of_chunk(mask, k);
        let mut at = buckets.iter();
        for (offset, order) in pieces {
            let piece = self.procedures.piece(owner, first + offset, order, envelope);
            let frame = at.as_slice()[0].1;
            for (i, (_, cell)) in at.by_ref().take(piece.buckets() as usize).enumerate() {
                if u64::from(cell.0) != u64::from(frame.0) + i as u64 {
                    return Err(*cell);
                }
            }
            let slot = self.new_slot(piece);
            self.occupy(slot, frame);
            let volume = self.volumes.entry(owner.id).or_default();
            volume.home = owner.home;
            volume.slots.push(slot);
        }
        Ok(())
    }

    /// Each piece must lie in its first frame that no more preferred piece holds. By induction
    /// along the ranking that is the canonical layout.
    fn verify_all(&mut self) -> Result<(), Cell> {
        let count = u32::try_from(self.slots.len()).expect("no more pieces than cells");
        for slot in 0..count {
            let at = self.slots[slot as usize].at;
            let frame = self.first_frame(slot, &mut super::Work::default());
            if at != Some(frame) {
                return Err(at.unwrap_or(frame));
            }
        }
        Ok(())
    }

    /// All pieces, for the oracle.
    pub fn all_pieces(&self) -> Vec<Piece> {
        self.slots.iter().filter(|slot| slot.alive).map(|slot| slot.piece).collect()
    }

    /// The changes that make this engine's set of buckets from nothing.
    pub fn as_changes(&self) -> Vec<Change> {
        let change = |id: u128| Change {
            owner: Owner { id, home: self.home(id).unwrap_or_default() },
            chunks: self.chunks(id),
        };
        self.owners().map(change).collect()
    }
}
