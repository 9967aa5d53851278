//! Who lies where: what every erase block of a volume holds. Nothing on the volume is changed.

use std::sync::Arc;

use tacita_dnefs_format::record::Part;
use tacita_dnefs_format::{Layout, MainLeb, NODE_ALIGN, ROOT_LEBS, SUPERBLOCK_LEBS};
use tacita_flash::{Leb, Volume};
use tacita_secret::Password;

use crate::error::Result;
use crate::format::unlock;
use crate::load;
use crate::store::Core;

pub use crate::keys::KeyUse;

/// What an erase block is there for.
///
/// Which head has appended to one is not on the medium: what is needed in it tells, so that blocks
/// that garbage collection has filled count as what most of them is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// One of the two superblocks.
    Superblock,
    /// Roots of checkpoints, and marks.
    Roots,
    /// Keys.
    Keys,
    /// Content of files, for the most part.
    Content,
    /// Inodes, names and attributes, for the most part.
    Metadata,
    /// Parts of the newest checkpoint, for the most part.
    Checkpoint,
    /// Nodes, none of which is needed.
    Stale,
    /// Nothing.
    Free,
}

impl Role {
    /// All roles, in the order of the volume.
    pub const ALL: [Self; 8] = [
        Self::Superblock,
        Self::Roots,
        Self::Keys,
        Self::Content,
        Self::Metadata,
        Self::Checkpoint,
        Self::Stale,
        Self::Free,
    ];
}

/// An erase block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockUse {
    /// What it is there for.
    pub role: Role,
    /// Nodes in it that are needed, in bytes; 0 outside of the main area.
    pub live_bytes: u32,
}

/// A volume, erase block by erase block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    /// Length of an erase block in bytes.
    pub leb_len_bytes: u32,
    /// Whether it was unmounted. If not, all keys that no node has are to be purged.
    pub was_unmounted: bool,
    /// All erase blocks, by number.
    pub blocks: Vec<BlockUse>,
    /// Those of keys, by number.
    pub keys: Vec<KeyUse>,
}

/// What every erase block of a volume holds.
///
/// # Errors
/// [`crate::Kind::NotAVolume`]; [`crate::Kind::WrongPassword`]; [`crate::Kind::Damaged`]; [`crate::Kind::Device`].
pub fn map(volume: &Arc<dyn Volume>, password: Option<&Password>) -> Result<Map> {
    let loaded = load::load(volume, unlock(&**volume, password)?)?;
    let core = &loaded.core;
    let layout = *core.log.layout();
    let mut blocks =
        vec![BlockUse { role: Role::Superblock, live_bytes: 0 }; SUPERBLOCK_LEBS.len()];
    blocks.resize(blocks.len() + ROOT_LEBS.len(), BlockUse { role: Role::Roots, live_bytes: 0 });
    let keys = BlockUse { role: Role::Keys, live_bytes: 0 };
    blocks.resize(blocks.len() + layout.key_lebs as usize, keys);
    for (leb, needed) in (0..layout.main_lebs).map(MainLeb).zip(needed(core, &layout)) {
        blocks.push(block_use(&**volume, core, leb, needed)?);
    }
    Ok(Map {
        leb_len_bytes: layout.leb_len_bytes,
        was_unmounted: loaded.is_clean,
        blocks,
        keys: (0..layout.key_lebs).map(|leb| core.keys.use_of(leb)).collect(),
    })
}

/// What of an erase block the index needs, in bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Needed {
    content: u32,
    metadata: u32,
}

fn needed(core: &Core, layout: &Layout) -> Vec<Needed> {
    let mut needed = vec![Needed::default(); layout.main_lebs as usize];
    for (at, key) in core.index.entries() {
        let location = core.keys.location(key);
        let of = &mut needed[location.leb.0 as usize];
        let bytes = match at.part() {
            Some(Part::Data(_)) => &mut of.content,
            _ => &mut of.metadata,
        };
        *bytes += location.len_bytes.next_multiple_of(NODE_ALIGN);
    }
    needed
}

fn block_use(volume: &dyn Volume, core: &Core, leb: MainLeb, needed: Needed) -> Result<BlockUse> {
    let live_bytes = core.log.live_in(leb);
    let Needed { content, metadata } = needed;
    let of_checkpoint = live_bytes - content - metadata;
    let most = content.max(metadata).max(of_checkpoint);
    let role = match most {
        0 if volume.is_mapped(Leb(core.log.layout().main_leb(leb)))? => Role::Stale,
        0 => Role::Free,
        _ if most == content => Role::Content,
        _ if most == metadata => Role::Metadata,
        _ => Role::Checkpoint,
    };
    Ok(BlockUse { role, live_bytes })
}
