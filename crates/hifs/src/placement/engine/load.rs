//! From stored cells back to an engine, verified: a table that is not canonical is not loaded.

use super::runs::Finals;
use super::{Change, Engine, Volume, Work};
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
    /// Takes over the cells of `entries`, and sorts these by owner and bucket; `home` tells each owner's home.
    ///
    /// # Errors
    /// A cell that is not where the canonical layout of the same buckets has it, or that holds a
    /// bucket twice.
    pub fn load(
        &mut self,
        entries: &mut [Entry],
        home: impl Fn(u128) -> u64,
    ) -> std::result::Result<(), Cell> {
        let k = self.procedures.order_max();
        entries.sort_unstable_by_key(|entry| (entry.owner, entry.bucket, entry.cell));
        let alike = |a: &Entry, b: &Entry| (a.owner, a.bucket) == (b.owner, b.bucket);
        if let Some(twice) = entries.windows(2).find(|pair| alike(&pair[0], &pair[1])) {
            return Err(twice[1].cell);
        }
        let by_owner = |a: &Entry, b: &Entry| a.owner == b.owner;
        let owners = entries.chunk_by(by_owner).count();
        // At least so many: what is loaded mostly stays.
        self.slots.reserve_exact(owners);
        self.waiters.reserve(owners);
        self.volumes.reserve(owners);
        for buckets in entries.chunk_by(by_owner) {
            let owner = Owner { id: buckets[0].owner, home: home(buckets[0].owner) };
            let mut slots = Vec::new();
            for chunk in buckets.chunk_by(|a, b| a.bucket >> k == b.bucket >> k) {
                self.load_chunk(&owner, chunk, &mut slots)?;
            }
            self.volumes.extend(Volume::of(slots).map(|volume| (owner.id, volume)));
        }
        self.verify_all()
    }

    /// Takes over the cells of `entries` as they are, to be read from: of a table that need not be canonical.
    /// They are sorted by owner and bucket, and no cell or bucket is there twice.
    pub fn hold(&mut self, entries: &[Entry]) {
        for buckets in entries.chunk_by(|a, b| a.owner == b.owner) {
            let owner = Owner { id: buckets[0].owner, home: 0 };
            let mut slots = Vec::with_capacity(buckets.len());
            for entry in buckets {
                let slot = self.new_slot(self.procedures.piece(&owner, entry.bucket, 0, 0));
                self.occupy(slot, entry.cell);
                slots.push(slot);
            }
            self.volumes.extend(Volume::of(slots).map(|volume| (owner.id, volume)));
        }
    }

    fn load_chunk(
        &mut self,
        owner: &Owner,
        buckets: &[Entry],
        slots: &mut Vec<u32>,
    ) -> Result<(), Cell> {
        let k = self.procedures.order_max();
        let first = buckets[0].bucket >> k << k;
        let mask = buckets.iter().fold(0, |mask, entry| mask | 1 << (entry.bucket - first));
        let (pieces, envelope) = pieces_of_chunk(mask, k);
        let mut at = buckets.iter();
        for (offset, order) in pieces {
            let piece = self.procedures.piece(owner, first + offset, order, envelope);
            let frame = at.as_slice()[0].cell;
            for (i, entry) in (0..).zip(at.by_ref().take(piece.buckets() as usize)) {
                if u64::from(entry.cell.0) != u64::from(frame.0) + i {
                    return Err(entry.cell);
                }
            }
            let slot = self.new_slot(piece);
            self.occupy(slot, frame);
            slots.push(slot);
        }
        Ok(())
    }

    /// Each piece must lie in its first frame that no more preferred piece holds. By induction
    /// along the ranking that is the canonical layout.
    fn verify_all(&mut self) -> Result<(), Cell> {
        let count = u32::try_from(self.slots.len()).expect("no more pieces than cells");
        let mut order: Vec<u32> = (0..count).collect();
        if self.cyclic {
            order.sort_unstable_by_key(|&slot| self.rank(slot));
        }
        let (mut finals, mut work) = (Finals::default(), Work::default());
        for slot in order {
            let at = self.slots[slot as usize].at;
            let frame = if self.cyclic {
                self.first_cell(slot, &mut finals, &mut work)
            } else {
                self.first_frame(slot, &mut work)
            };
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
