//! The register: one block that says whether there is a file system, which mounts there are, whose turn
//! it is, and which commit was the last. It is changed by compare-and-write alone, and no content comes
//! twice, so whoever changes it has seen the newest.

use crate::error::{Error, Kind, Result};
use crate::fields::{Reader, Writer};
use crate::ids::{BLOCK_LEN, MountId};

/// What the block begins with.
const MAGIC: [u8; 8] = *b"tacitaPF";

/// The format that this program reads and writes.
pub const VERSION: u32 = 1;

/// Mounts that there can be at once.
pub const SLOTS: usize = 32;

const SLOTS_AT: usize = 256;
const SLOT_LEN: usize = 40;

/// Nobody's turn.
const NOBODY: u32 = u32::MAX;

/// A mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slot {
    /// Its name.
    pub mount: MountId,
    /// Grows while it lives.
    pub beat: u64,
    /// The writes of the register when it began to wait for its turn; 0 while it does not.
    pub waits_since: u64,
    /// Blocks that its journal may have, to be freed when it is gone.
    pub journal: u32,
}

/// The commit that the blocks may not show yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    /// Whose journal it is in.
    pub mount: MountId,
    /// Blocks that it changes.
    pub count: u32,
}

/// The content of the register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Register {
    /// Name of the file system: random.
    pub name: [u8; 16],
    /// How often it was written.
    pub writes: u64,
    /// Turns that there have been.
    pub epoch: u64,
    /// Commits that there have been.
    pub commit: u64,
    /// Whose turn it is.
    pub owner: Option<MountId>,
    /// What has to be finished before anything else.
    pub pending: Option<Pending>,
    /// The mounts.
    pub slots: Vec<Slot>,
}

impl Register {
    /// Of a new file system.
    pub const fn new(name: [u8; 16]) -> Self {
        Self { name, writes: 0, epoch: 0, commit: 0, owner: None, pending: None, slots: Vec::new() }
    }

    /// The slot of a mount.
    pub fn slot(&self, mount: &MountId) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.mount == *mount)
    }

    /// The slot of a mount, to be changed.
    pub fn slot_mut(&mut self, mount: &MountId) -> Option<&mut Slot> {
        self.slots.iter_mut().find(|slot| slot.mount == *mount)
    }

    /// The mount is gone: its slot is free, and it is nobody's turn if it was its own.
    pub fn remove(&mut self, mount: &MountId) {
        self.slots.retain(|slot| slot.mount != *mount);
        if self.owner == Some(*mount) {
            self.owner = None;
        }
    }

    /// Its bytes.
    ///
    /// # Panics
    /// With more slots than there can be.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.slots.len() <= SLOTS, "slots are counted when they are taken");
        let mut block = Writer::new();
        block.bytes(0, &MAGIC);
        block.u32(8, VERSION);
        block.bytes(16, &self.name);
        block.u64(32, self.writes);
        block.u64(40, self.epoch);
        block.u64(48, self.commit);
        let owner = self
            .owner
            .and_then(|owner| self.slots.iter().position(|slot| slot.mount == owner))
            .and_then(|at| u32::try_from(at).ok());
        block.u32(56, owner.unwrap_or(NOBODY));
        block.u32(60, self.pending.map_or(0, |pending| pending.count));
        block.bytes(64, &self.pending.map_or([0; 16], |pending| pending.mount));
        block.u32(80, u32::try_from(self.slots.len()).unwrap_or(0));
        for (number, slot) in self.slots.iter().enumerate() {
            let at = SLOTS_AT + number * SLOT_LEN;
            block.bytes(at, &slot.mount);
            block.u64(at + 16, slot.beat);
            block.u64(at + 24, slot.waits_since);
            block.u32(at + 32, slot.journal);
        }
        block.0
    }

    /// From its bytes.
    ///
    /// # Errors
    /// [`Kind::Version`]; [`Kind::Damaged`].
    pub fn decode(block: &[u8]) -> Result<Self> {
        let damaged = |what: &'static str| Error::damaged(format!("the register: {what}"));
        if block.len() != BLOCK_LEN || block[..8] != MAGIC {
            return Err(damaged("it does not begin as one"));
        }
        let fields = Reader(block);
        match fields.u32(8) {
            VERSION => {}
            version => {
                let text = format!(
                    "the file system has format {version}, and this program knows {VERSION}: \
                     use the version of tacita that made it"
                );
                return Err(Error::new(Kind::Version, text));
            }
        }
        let count = fields.u32(80) as usize;
        if count > SLOTS {
            return Err(damaged("more mounts than can be"));
        }
        if !fields.is_zero(12..16)
            || !fields.is_zero(84..SLOTS_AT)
            || !fields.is_zero(SLOTS_AT + count * SLOT_LEN..BLOCK_LEN)
        {
            return Err(damaged("something where nothing belongs"));
        }
        let slots: Vec<Slot> = (0..count)
            .map(|number| {
                let at = SLOTS_AT + number * SLOT_LEN;
                Slot {
                    mount: fields.array(at),
                    beat: fields.u64(at + 16),
                    waits_since: fields.u64(at + 24),
                    journal: fields.u32(at + 32),
                }
            })
            .collect();
        let zeros = (0..count).all(|number| {
            let at = SLOTS_AT + number * SLOT_LEN;
            fields.is_zero(at + 36..at + SLOT_LEN)
        });
        let twice = (1..count).any(|n| slots[..n].iter().any(|s| s.mount == slots[n].mount));
        if twice || !zeros {
            return Err(damaged("a mount that is none"));
        }
        let owner = match fields.u32(56) {
            NOBODY => None,
            at => Some(slots.get(at as usize).ok_or_else(|| damaged("a turn of nobody"))?.mount),
        };
        let pending = match fields.u32(60) {
            0 if !fields.is_zero(64..80) => return Err(damaged("a journal without a commit")),
            0 => None,
            count => Some(Pending { mount: fields.array(64), count }),
        };
        Ok(Self {
            name: fields.array(16),
            writes: fields.u64(32),
            epoch: fields.u64(40),
            commit: fields.u64(48),
            owner,
            pending,
            slots,
        })
    }
}
