//! Checkpoints: the index and the maps of keys on the medium, so that mounting need not read all nodes,
//! and so that nothing of what was deleted is needed any more.
//!
//! What has not changed since the last one stays where it is.

use tacita_dnefs_format::checkpoint::{IndexChunk, Location, NodeRef, Orphans, Root, Table};
use tacita_dnefs_format::node::{self, Class, Header, Record, Standing};
use tacita_dnefs_format::record::{IndexKey, Kind as RecordKind};
use tacita_dnefs_format::{Compression, Layout, Parameters};
use tacita_flash::{Leb, Volume};
use tacita_secret::{FreshKey, Traces};

use crate::error::{Error, Kind, Result};
use crate::faults::{Fault, planted};
use crate::index::{CHUNK_LEN_MAX, Chunk};
use crate::keys::{KeyId, KeyLeb, State};
use crate::log::Head;
use crate::store::Core;

/// References in a table, at most.
const TABLE_LEN: usize = 512;
/// What a reference takes, and an inode number in a list of orphans, in bytes.
const REFERENCE_LEN: usize = 20;
const ORPHAN_LEN: usize = 8;
/// Nodes that a checkpoint may need besides those that are counted: tables that are not full, orphans,
/// its root.
const FIXED_NODES: usize = 8;
/// What an entry of a chunk of the index takes, in bytes.
const ENTRY_LEN: usize = 24;
/// Orphans in a list, at most.
const ORPHANS_LEN: usize = 1024;

/// How many entries of `len` bytes a node may hold: so many as `most`, or as fit into an erase block.
pub(crate) fn fitting(layout: &Layout, most: usize, len: usize) -> usize {
    let room = (layout.leb_len_bytes - layout.page_len_bytes) as usize;
    most.min(room.saturating_sub(node::OVERHEAD + COUNTS_LEN) / len).max(1)
}

/// What may stand before entries, or between them, in bytes.
const COUNTS_LEN: usize = 32;

/// How many entries a chunk of the index may have.
pub(crate) fn chunk_len_max(layout: &Layout) -> usize {
    fitting(layout, CHUNK_LEN_MAX, ENTRY_LEN)
}

/// Most bytes that a node of a checkpoint holds. Where erase blocks are short, chunks were as long as elsewhere once,
/// and compressed they may have found room.
pub(crate) fn payload_len_max(layout: &Layout) -> usize {
    (layout.leb_len_bytes as usize).max(CHUNK_LEN_MAX * ENTRY_LEN + COUNTS_LEN)
}

fn table_len(layout: &Layout) -> usize {
    fitting(layout, TABLE_LEN, REFERENCE_LEN)
}

fn orphans_len(layout: &Layout) -> usize {
    fitting(layout, ORPHANS_LEN, ORPHAN_LEN)
}

impl Core {
    /// Writes a checkpoint. Nobody is writing nodes meanwhile.
    ///
    /// When it returns, all keys that were obsolete may be purged: nothing on the medium needs their
    /// nodes.
    ///
    /// # Errors
    /// [`Kind::NoKeys`], [`Kind::NoSpace`]: then nothing has changed.
    pub(crate) fn checkpoint(
        &mut self,
        volume: &dyn Volume,
        parameters: &Parameters,
    ) -> Result<()> {
        if self.keys.fresh() < self.checkpoint_keys() {
            return Err(Error::new(Kind::NoKeys, "no keys are left for a checkpoint"));
        }
        if self.log.free_lebs() < self.checkpoint_lebs() {
            return Err(Error::new(Kind::NoSpace, "no room is left for a checkpoint"));
        }
        self.write_checkpoint(volume, parameters).map_err(|e| match e.kind() {
            Kind::NoSpace | Kind::NoKeys => {
                Error::new(Kind::Damaged, format!("in the middle of a checkpoint: {e}"))
            }
            _ => e,
        })
    }

    /// Keys that a checkpoint needs now, at most.
    pub(crate) fn checkpoint_keys(&self) -> u32 {
        self.keys_for(self.index.changed(), self.keys.changed())
    }

    fn keys_for(&self, changed_chunks: usize, changed_maps: usize) -> u32 {
        let (chunks, maps) = (self.index.chunk_count(), self.keys.lebs().len());
        let layout = self.log.layout();
        let table_len = table_len(layout);
        let lists = self.orphans.len() / orphans_len(layout);
        let tables = chunks / table_len + maps / table_len + lists;
        let nodes = changed_chunks + changed_maps + tables + FIXED_NODES;
        u32::try_from(nodes).unwrap_or(u32::MAX)
    }

    /// Whether there would be room and keys for a checkpoint that writes everything anew.
    fn could_write_all(&self) -> bool {
        let (chunks, maps) = (self.index.chunk_count(), self.keys.lebs().len());
        self.log.free_lebs() >= self.checkpoint_lebs_max()
            && self.keys.fresh() >= self.keys_for(chunks, maps)
    }

    /// Erase blocks that a checkpoint needs now, at most.
    pub(crate) fn checkpoint_lebs(&self) -> u32 {
        self.lebs_for(self.index.changed(), self.keys.changed())
    }

    /// Erase blocks that a checkpoint could need, whatever is deleted until then.
    pub(crate) fn checkpoint_lebs_max(&self) -> u32 {
        self.lebs_for(self.index.chunk_count(), self.keys.lebs().len())
    }

    fn lebs_for(&self, chunks: usize, maps: usize) -> u32 {
        let layout = self.log.layout();
        let tables = (self.index.chunk_count() + self.keys.lebs().len()) as u64 * 24;
        let chunk_len = chunk_len_max(layout) * ENTRY_LEN + node::OVERHEAD + COUNTS_LEN;
        let len = (chunks * chunk_len) as u64
            + maps as u64 * u64::from(layout.keys_per_leb) * 16
            + tables
            + self.orphans.len() as u64 * 8;
        // Nodes are not split: up to a half of each block may stay empty.
        u32::try_from(len * 2 / u64::from(layout.leb_len_bytes)).unwrap_or(u32::MAX) + 1
    }

    fn write_checkpoint(&mut self, volume: &dyn Volume, parameters: &Parameters) -> Result<()> {
        if self.could_write_all() {
            let sparse = self.log.sparse_checkpoint_lebs();
            self.index.rewrite(|node| sparse.contains(&node.location.leb));
            self.keys.rewrite(|node| sparse.contains(&node.location.leb));
        }
        let writer = Writer { volume, parameters };
        writer.write_index(self)?;
        writer.write_maps(self)?;
        let chunks: Vec<_> = self.index.chunks().filter_map(Chunk::stored).collect();
        let maps: Vec<_> = self.keys.lebs().filter_map(KeyLeb::stored).collect();
        let index = writer.write_tables(self, &chunks)?;
        let key_maps = writer.write_tables(self, &maps)?;
        let orphans = writer.write_orphans(self)?;
        self.log.sync(volume)?;

        let replaced = self.replaced();
        let (root_key, fresh) = self.keys.take(volume)?;
        let sqnum = self.log.take_sqnums(1);
        let tables: Vec<_> = [&index, &key_maps, &orphans].into_iter().flatten().copied().collect();
        let root = Root {
            next_sqnum: sqnum + 1,
            next_ino: self.next_ino,
            epoch: self.epoch,
            last_receipt: self.last_receipt,
            open: self.log.open_lebs(),
            index,
            key_maps,
            orphans,
        };
        let node = writer.seal(self, (root_key, fresh), sqnum, RecordKind::Root, &root.encode());
        self.roots.write(volume, &node)?;

        for key in replaced {
            if planted(Fault::CheckpointKept) {
                continue;
            }
            if Some(key) == self.root_key {
                self.keys.obsolete(key);
            } else {
                self.obsolete(key);
            }
        }
        self.keys.settle();
        self.log.covered();
        self.tables = tables;
        let nowhere =
            Location { leb: tacita_dnefs_format::MainLeb(u32::MAX), offset: 0, len_bytes: 0 };
        self.keys.is_at(root_key, State::Passing, nowhere);
        self.root_key = Some(root_key);
        self.checkpoint_sqnum = sqnum + 1;
        for leb in self.log.empty_lebs(self.checkpoint_sqnum) {
            volume.unmap(Leb(self.log.layout().main_leb(leb)))?;
            self.log.release(leb);
        }
        Ok(())
    }

    /// Keys of all nodes that the new checkpoint makes needless.
    fn replaced(&mut self) -> Vec<KeyId> {
        let mut nodes = self.index.take_dropped();
        nodes.extend(self.keys.take_dropped());
        nodes.append(&mut self.tables);
        let mut keys: Vec<_> = nodes.iter().map(|node| self.keys.known(node.key)).collect();
        keys.append(&mut self.until_checkpoint);
        keys.extend(self.root_key);
        keys
    }
}

/// Writes nodes of checkpoints.
struct Writer<'a> {
    volume: &'a dyn Volume,
    parameters: &'a Parameters,
}

impl Writer<'_> {
    fn write_index(&self, core: &mut Core) -> Result<()> {
        let position = |(at, key): (IndexKey, KeyId)| (at, core.keys.position(key));
        let changed: Vec<_> = core
            .index
            .chunks()
            .filter(|chunk| chunk.stored().is_none())
            .map(|chunk| IndexChunk(chunk.entries().map(position).collect()).encode())
            .collect();
        let mut nodes = Vec::with_capacity(changed.len());
        for payload in changed {
            nodes.push(self.write(core, RecordKind::IndexChunk, &payload)?);
        }
        core.index.store(nodes);
        Ok(())
    }

    fn write_maps(&self, core: &mut Core) -> Result<()> {
        let changed: Vec<_> = (0u32..)
            .zip(core.keys.lebs())
            .filter(|(_, leb)| leb.stored().is_none())
            .map(|(number, _)| core.keys.map_of(number))
            .filter(|map| !map.nodes.is_empty())
            .collect();
        for map in changed {
            let node = self.write(core, RecordKind::KeyMap, &map.encode())?;
            core.keys.store(map.key_leb, node);
        }
        Ok(())
    }

    fn write_tables(&self, core: &mut Core, nodes: &[NodeRef]) -> Result<Vec<NodeRef>> {
        let len = table_len(core.log.layout());
        let tables = nodes.chunks(len).map(|part| Table(part.to_vec()).encode());
        tables.map(|payload| self.write(core, RecordKind::Table, &payload)).collect()
    }

    fn write_orphans(&self, core: &mut Core) -> Result<Vec<NodeRef>> {
        let all: Vec<_> = core.orphans.iter().copied().collect();
        let len = orphans_len(core.log.layout());
        let lists = all.chunks(len).map(|part| Orphans(part.to_vec()).encode());
        lists.map(|payload| self.write(core, RecordKind::Orphans, &payload)).collect()
    }

    fn write(&self, core: &mut Core, kind: RecordKind, payload: &[u8]) -> Result<NodeRef> {
        let (key, fresh) = core.keys.take(self.volume)?;
        let sqnum = core.log.take_sqnums(1);
        let node = self.seal(core, (key, fresh), sqnum, kind, payload);
        let (leb, offset) = core.log.append(self.volume, Head::Checkpoint, &node)?;
        let header = Header::parse(&node).ok().flatten().expect("it was just made");
        let location = Location { leb, offset, len_bytes: header.len_bytes };
        core.keys.is_at(key, State::Passing, location);
        core.log.count(location);
        Ok(NodeRef { key: core.keys.position(key), location })
    }

    fn seal(
        &self,
        core: &Core,
        (key, fresh): (KeyId, FreshKey),
        sqnum: u64,
        kind: RecordKind,
        payload: &[u8],
    ) -> Vec<u8> {
        let standing = Standing {
            class: Class::Checkpoint,
            more_of_group: false,
            sqnum,
            key: core.keys.position(key),
        };
        let record =
            Record { kind, at: IndexKey::inode(0), compression: Compression::Lz4, payload };
        let (mut out, mut traces) = (Vec::new(), Traces::new());
        let authenticates = self.parameters.cipher.authenticates();
        node::seal(&mut out, standing, fresh, &mut traces, authenticates, &record);
        out
    }
}
