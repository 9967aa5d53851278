//! Mounting: from the newest checkpoint and what was written after it to what is known in memory.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use tacita_dnefs_format::checkpoint::{
    IndexChunk, KeyMap, Location, NodeRef, Orphans, Root, Table,
};
use tacita_dnefs_format::node::{self, Class, Header};
use tacita_dnefs_format::receipt::Receipt;
use tacita_dnefs_format::record::{IndexKey, Inode, Kind as RecordKind};
use tacita_dnefs_format::{Layout, MainLeb, Malformed, NODE_ALIGN, Parameters, Unlocked};
use tacita_flash::{Leb, Volume};
use tacita_secret::Traces;

use crate::checkpoint::{chunk_len_max, payload_len_max};
use crate::collection;
use crate::error::{Error, Kind, Result, damaged};
use crate::faults::{Fault, planted};
use crate::index::{Chunk, Index};
use crate::keys::{KeyLeb, Keys, State};
use crate::log::Log;
use crate::roots::{Found, Roots};
use crate::store::{Core, block_of};
use crate::unread::read_block;

/// A volume in memory.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) core: Core,
    /// It was unmounted, and nothing was written since.
    pub(crate) is_clean: bool,
    /// Files whose content reaches beyond the size that their inodes have: the size it needs.
    pub(crate) sizes: BTreeMap<u64, u64>,
    /// The receipt of the last purge, which is not in the index yet.
    pub(crate) receipt: Option<Receipt>,
    /// Nodes that were written after the checkpoint, and are damaged, lie behind damaged ones, or have their keys in
    /// damaged pages.
    pub(crate) lost: u64,
    /// What is newer than the checkpoint may not be all there, for something cannot be read. It may be there
    /// the next time: nothing is to be written.
    pub(crate) unread: Option<Error>,
}

/// Reads a volume, and changes nothing on it.
pub(crate) fn load(volume: &Arc<dyn Volume>, unlocked: Unlocked) -> Result<Loaded> {
    let parameters = unlocked.superblock.parameters;
    let layout = Layout::new(&parameters).map_err(damaged("the superblock"))?;
    let survey = Roots::survey(&**volume, layout)?;
    let loader = Loader { volume: &**volume, layout, parameters };
    let mut keys = Keys::new(layout, parameters.cipher, unlocked.master);
    let (found, root) = match loader.newest(&mut keys, &survey.roots) {
        // It may be there where nothing can be read.
        Err(e) if e.kind() == Kind::Damaged => return Err(survey.unread.unwrap_or(e)),
        newest => newest?,
    };
    let marked = survey.unmounted.max(survey.mounted);
    let is_clean = !survey.is_torn && marked == survey.unmounted && marked >= root.next_sqnum;
    let root_key = keys.id(found.header.key).map_err(damaged("the root"))?;
    let mut core = Core {
        index: Index::new(chunk_len_max(&layout)),
        keys,
        log: Log::new(layout),
        roots: survey.next,
        next_ino: root.next_ino,
        epoch: root.epoch,
        last_receipt: root.last_receipt,
        orphans: std::collections::BTreeSet::new(),
        obsolete_bytes: 0,
        collected: 0,
        until_checkpoint: Vec::new(),
        tables: Vec::new(),
        root_key: Some(root_key),
        checkpoint_sqnum: root.next_sqnum,
    };
    core.keys.is_at(root_key, State::Passing, NOWHERE);
    loader.checkpoint(&mut core, &root)?;
    core.log.skip_to(root.next_sqnum.max(marked + 1));
    let Replayed { mut sizes, lost, unread } =
        if is_clean { Replayed::default() } else { loader.replay(&mut core, &root)? };
    finish(&mut core, is_clean);
    let receipt = loader.last_receipt(&mut core, &survey.receipts, root.next_sqnum);
    sizes.retain(|ino, _| core.index.get(IndexKey::inode(*ino)).is_some());
    let unread = survey.unread.or(unread);
    Ok(Loaded { core, is_clean, sizes, receipt, lost, unread })
}

/// Where a node is not.
const NOWHERE: Location = Location { leb: MainLeb(u32::MAX), offset: 0, len_bytes: 0 };

struct Loader<'a> {
    volume: &'a dyn Volume,
    layout: Layout,
    parameters: Parameters,
}

/// A node that was written after the checkpoint.
struct Written {
    header: Header,
    location: Location,
    bytes: Vec<u8>,
}

/// What a replay found besides records.
#[derive(Default)]
struct Replayed {
    /// As in [`Loaded`].
    sizes: BTreeMap<u64, u64>,
    lost: u64,
    unread: Option<Error>,
}

impl Loader<'_> {
    /// The newest root that opens. Older ones do not, once they were purged.
    fn newest<'f>(&self, keys: &mut Keys, found: &'f [Found]) -> Result<(&'f Found, Root)> {
        for root in found {
            let opened = self.open(keys, &root.header, &mut root.bytes.clone(), RecordKind::Root);
            match opened {
                Ok(payload) => {
                    return Ok((root, Root::decode(&payload).map_err(damaged("the root"))?));
                }
                Err(e) if e.kind() == Kind::Damaged => {}
                Err(e) => return Err(e),
            }
        }
        let none = "no root opens: erase blocks 2 and 3 hold none that is whole";
        Err(self.volume.missed().map_or_else(|| Error::new(Kind::Damaged, none), Error::from))
    }

    /// The receipt of the purge at unmount, unless it is in the index.
    fn last_receipt(&self, core: &mut Core, found: &[Found], next_sqnum: u64) -> Option<Receipt> {
        let newer = found.iter().filter(|found| found.header.sqnum >= next_sqnum);
        let found = newer.max_by_key(|found| found.header.sqnum)?;
        let mut bytes = found.bytes.clone();
        let payload =
            self.open(&mut core.keys, &found.header, &mut bytes, RecordKind::Receipt).ok()?;
        let receipt = Receipt::decode(&payload).ok()?;
        if core.index.get(IndexKey::receipt(receipt.epoch)).is_some() {
            return None;
        }
        // Its key has encrypted something.
        let key = core.keys.id(found.header.key).ok()?;
        core.keys.obsolete(key);
        Some(receipt)
    }

    /// The payload of a node.
    fn open(
        &self,
        keys: &mut Keys,
        header: &Header,
        bytes: &mut [u8],
        kind: RecordKind,
    ) -> Result<Vec<u8>> {
        let what = || format!("a node of the checkpoint ({kind:?})");
        let key = keys.id(header.key).map_err(damaged(what()))?;
        let key = keys.for_opening(self.volume, key)?;
        let (mut traces, authenticates) = (Traces::new(), self.parameters.cipher.authenticates());
        let opened =
            node::open(bytes, header, &key, &mut traces, authenticates).map_err(damaged(what()))?;
        if opened.kind != kind {
            return Err(Error::new(Kind::Damaged, format!("{}: it is something else", what())));
        }
        opened.payload(payload_len_max(&self.layout)).map_err(damaged(what()))
    }

    /// A node of the checkpoint, which its parent names.
    fn read(&self, core: &mut Core, node: NodeRef, kind: RecordKind) -> Result<Vec<u8>> {
        let damage = |why| damaged(format!("a node of the checkpoint ({kind:?})"))(Malformed(why));
        if !core.log.is_inside(node.location) {
            return Err(damage("it lies outside of the volume"));
        }
        let mut bytes = vec![0; node.location.len_bytes as usize];
        let leb = Leb(self.layout.main_leb(node.location.leb));
        self.volume.read(leb, node.location.offset, &mut bytes)?;
        let header = Header::parse(&bytes).ok().flatten();
        let header =
            header.filter(|header| header.key == node.key && header.class == Class::Checkpoint);
        let header = header.ok_or_else(|| damage("it is not there"))?;
        let payload = self.open(&mut core.keys, &header, &mut bytes, kind)?;
        let key = core.keys.known(node.key);
        if core.keys.state(key) != State::Deleted {
            return Err(damage("another node has its key"));
        }
        core.keys.is_at(key, State::Passing, node.location);
        core.log.count(node.location);
        Ok(payload)
    }

    /// What the root leads to.
    fn checkpoint(&self, core: &mut Core, root: &Root) -> Result<()> {
        for table in &root.key_maps {
            let payload = self.read(core, *table, RecordKind::Table)?;
            for node in Table::decode(&payload).map_err(damaged("a table of key maps"))?.0 {
                self.key_map(core, node)?;
            }
        }
        for table in &root.index {
            let payload = self.read(core, *table, RecordKind::Table)?;
            for node in Table::decode(&payload).map_err(damaged("a table of the index"))?.0 {
                self.chunk(core, node)?;
            }
        }
        for list in &root.orphans {
            let payload = self.read(core, *list, RecordKind::Orphans)?;
            let orphans = Orphans::decode(&payload).map_err(damaged("a list of orphans"))?;
            core.orphans.extend(orphans.0);
        }
        core.tables =
            [&root.index, &root.key_maps, &root.orphans].into_iter().flatten().copied().collect();
        if core.key_state_map_is_sound() {
            Ok(())
        } else {
            Err(Error::new(Kind::Damaged, "the index and the maps of keys do not agree"))
        }
    }

    fn key_map(&self, core: &mut Core, node: NodeRef) -> Result<()> {
        let what = || damaged("a map of keys");
        let payload = self.read(core, node, RecordKind::KeyMap)?;
        let map = KeyMap::decode(&payload).map_err(what())?;
        for (slot, location) in map.nodes {
            let position = tacita_dnefs_format::KeyPos { leb: map.key_leb, slot };
            let key = core.keys.id(position).map_err(what())?;
            if !core.log.is_inside(location) || core.keys.state(key) != State::Deleted {
                return Err(what()(Malformed("two nodes have one key, or none")));
            }
            core.keys.is_at(key, State::Used, location);
            core.log.count(location);
        }
        core.keys.store(map.key_leb, node);
        Ok(())
    }

    fn chunk(&self, core: &mut Core, node: NodeRef) -> Result<()> {
        let what = || damaged("a chunk of the index");
        let payload = self.read(core, node, RecordKind::IndexChunk)?;
        let chunk = IndexChunk::decode(&payload).map_err(what())?;
        let mut entries = Vec::with_capacity(chunk.0.len());
        for (at, position) in chunk.0 {
            entries.push((at, core.keys.id(position).map_err(what())?));
        }
        if core.index.push_chunk(&entries, node) {
            Ok(())
        } else {
            Err(what()(Malformed("chunks are not in order")))
        }
    }

    /// Plays what was written after the checkpoint: moved nodes first, then everything in the order of
    /// numbers. What was cut short, and whose key is gone, does not count; what has its key in a damaged
    /// page is lost, and nothing else.
    fn replay(&self, core: &mut Core, root: &Root) -> Result<Replayed> {
        let mut replayed = Replayed::default();
        let mut written = self.written(core, root, &mut replayed)?;
        written.retain(|node| {
            let is_moved = node.header.sqnum < root.next_sqnum;
            if is_moved {
                relocate(core, node);
            }
            !is_moved && node.header.class == Class::Record
        });
        written.sort_by_key(|node| node.header.sqnum);
        // Nothing that is written from now on completes a group that was cut short.
        let last = written.last().map_or(0, |node| node.header.sqnum);
        core.log.skip_to(last + 2);
        for group in whole_groups(written) {
            for mut node in group {
                self.play(core, &mut node, &mut replayed)?;
            }
        }
        // Content reached the medium, but what created the file did not.
        for ino in replayed.sizes.keys() {
            if core.index.get(IndexKey::inode(*ino)).is_none() {
                core.drop_range(IndexKey::inode(*ino)..IndexKey::end_of(*ino));
            }
        }
        Ok(replayed)
    }

    fn play(&self, core: &mut Core, node: &mut Written, replayed: &mut Replayed) -> Result<()> {
        let Ok(key) = core.keys.id(node.header.key) else { return Ok(()) };
        let opening = match core.keys.for_opening(self.volume, key) {
            Err(e) if e.is_of_medium() => {
                replayed.lost += 1;
                if e.device().is_some() {
                    replayed.unread = Some(e);
                }
                return Ok(());
            }
            opening => opening?,
        };
        let sizes = &mut replayed.sizes;
        let (mut traces, authenticates) = (Traces::new(), self.parameters.cipher.authenticates());
        let opened =
            node::open(&mut node.bytes, &node.header, &opening, &mut traces, authenticates);
        let Ok(opened) = opened else { return Ok(()) };
        let payload = opened
            .payload(self.layout.leb_len_bytes as usize)
            .map_err(damaged("a node written after the checkpoint"))?;
        let (kind, at) = (opened.kind, opened.at);
        if core.keys.state(key) != State::Deleted {
            return Err(Error::new(Kind::Damaged, "two nodes were written under one key"));
        }
        match kind {
            RecordKind::Data => {
                if let Some(block) = block_of(at) {
                    let end =
                        block * u64::from(self.parameters.node_len_bytes) + payload.len() as u64;
                    let size = sizes.entry(at.ino).or_default();
                    *size = end.max(*size);
                }
            }
            RecordKind::Inode => {
                sizes.remove(&at.ino);
                core.next_ino = core.next_ino.max(at.ino + 1);
                Inode::decode(&payload).map_err(damaged("an inode"))?;
            }
            RecordKind::Truncation => {
                sizes.remove(&at.ino);
            }
            _ => {}
        }
        core.apply(kind, at, &payload, key, node.location, &self.parameters)
    }

    /// All nodes in erase blocks that were begun, or appended to, after the checkpoint.
    fn written(
        &self,
        core: &mut Core,
        root: &Root,
        replayed: &mut Replayed,
    ) -> Result<Vec<Written>> {
        if root.open.iter().any(|(_, from)| !from.is_multiple_of(NODE_ALIGN)) {
            return Err(damaged("the root")(Malformed("no node begins where it says")));
        }
        let mut all = Vec::new();
        for leb in (0..self.layout.main_lebs).map(MainLeb) {
            let at = Leb(self.layout.main_leb(leb));
            if !self.volume.is_mapped(at)? {
                continue;
            }
            let mut head = [0; node::HEADER_LEN];
            match self.volume.read(at, 0, &mut head) {
                Err(e) if e.kind() == tacita_flash::Kind::Io => replayed.unread = Some(e.into()),
                read => read?,
            }
            let head = Header::parse(&head).ok().flatten().filter(|h| h.class == Class::BlockHead);
            let open = root.open.iter().find(|(open, _)| *open == leb).map(|(_, from)| *from);
            let from = match head {
                Some(head) if head.sqnum >= root.next_sqnum => {
                    core.log.skip_to(head.sqnum + 1);
                    0
                }
                _ => match open {
                    Some(from) => from,
                    None => continue,
                },
            };
            let mut image = vec![0; self.layout.leb_len_bytes as usize];
            let unread = read_block(self.volume, at, &mut image)?;
            let is_read = unread.is_none();
            replayed.unread = unread.map(|unread| unread.why).or(replayed.unread.take());
            let Some(part) = image.get(from as usize..) else { continue };
            let mut end = 0;
            for (offset, header) in collection::nodes(part) {
                end = (offset + header.stored_len_bytes()) as usize;
                let location = Location { leb, offset: from + offset, len_bytes: header.len_bytes };
                let bytes = image[location.offset as usize..][..header.len_bytes as usize].to_vec();
                all.push(Written { header, location, bytes });
            }
            if is_read {
                replayed.lost += lost_behind(&part[end..]);
            }
        }
        Ok(all)
    }
}

/// How many nodes are lost where `rest` does not begin with a whole one. What was cut short is the last that was
/// written: where whole ones are behind it, it is damaged, and nobody knows what they follow.
fn lost_behind(rest: &[u8]) -> u64 {
    let is_node = |at: &usize| {
        let bytes = &rest[*at..];
        let header = Header::parse(bytes).ok().flatten();
        header.is_some_and(|header| header.class.is_sealed() && header.is_whole(bytes))
    };
    let count = (0..rest.len()).step_by(NODE_ALIGN as usize).filter(is_node).count() as u64;
    count + u64::from(count > 0)
}

/// What follows from all that was read: free erase blocks, fresh keys.
fn finish(core: &mut Core, is_clean: bool) {
    let orphans: Vec<_> = std::mem::take(&mut core.orphans).into_iter().collect();
    for ino in orphans {
        core.drop_range(IndexKey::inode(ino)..IndexKey::end_of(ino));
    }
    let passing: HashSet<_> = core
        .index
        .chunks()
        .filter_map(Chunk::stored)
        .chain(core.keys.lebs().filter_map(KeyLeb::stored))
        .chain(core.tables.iter().copied())
        .map(|node| node.location.leb)
        .collect();
    // What was replayed must stay where it is until it is in a checkpoint.
    let closed = if is_clean { 0 } else { core.log.next_sqnum() };
    core.log.loaded(closed, |leb| passing.contains(&leb));
    core.keys.loaded(is_clean || planted(Fault::KeysTrusted));
    core.epoch += 1;
}

/// Makes a volume that was read ready to be written to: what is in erase blocks that nothing needs
/// goes, and there are fresh keys.
pub(crate) fn prepare(core: &mut Core, volume: &dyn Volume) -> Result<()> {
    let layout = *core.log.layout();
    for leb in (0..layout.main_lebs).map(MainLeb) {
        let at = Leb(layout.main_leb(leb));
        if core.log.is_empty(leb) && volume.is_mapped(at)? {
            volume.unmap(at)?;
        }
    }
    while core.keys.fresh() < core.checkpoint_keys() * 2 {
        let Some(leb) = core.keys.most_deleted() else { break };
        let before = core.keys.fresh();
        core.keys.purge(volume, leb, core.epoch)?;
        // In a damaged page they stay what they are.
        if core.keys.fresh() == before {
            break;
        }
    }
    Ok(())
}

/// A node that garbage collection has moved: it is there now, if it still is needed.
fn relocate(core: &mut Core, node: &Written) {
    let Ok(key) = core.keys.id(node.header.key) else { return };
    let old = core.keys.location(key);
    if core.keys.state(key) == State::Used && old.len_bytes == node.location.len_bytes {
        core.log.uncount(old);
        core.log.count(node.location);
        core.keys.is_at(key, State::Used, node.location);
    }
}

/// Groups of nodes that are all there, of nodes in the order of their numbers.
fn whole_groups(written: Vec<Written>) -> Vec<Vec<Written>> {
    let mut groups = Vec::new();
    let mut group: Vec<Written> = Vec::new();
    for node in written {
        let follows = group.last().is_none_or(|last| last.header.sqnum + 1 == node.header.sqnum);
        if !follows {
            group.clear();
        }
        let more = node.header.more_of_group;
        group.push(node);
        if !more || planted(Fault::HalfGroups) {
            groups.push(std::mem::take(&mut group));
        }
    }
    groups
}
