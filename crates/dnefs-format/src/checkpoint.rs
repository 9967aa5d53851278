//! What a checkpoint holds: the index, and where nodes lie.
//!
//! A root leads to tables, tables lead to chunks of the index and to maps of keys. A chunk says which
//! key which node has; a map, where the nodes lie whose keys are in one erase block. So garbage
//! collection, which moves nodes, changes maps alone.

use crate::fields::{Fields, Malformed, Put};
use crate::layout::{KeyPos, MainLeb};
use crate::record::IndexKey;

/// Where a node lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Location {
    /// Which erase block.
    pub leb: MainLeb,
    /// Where in it, in bytes.
    pub offset: u32,
    /// Length in bytes, without the zeros behind it.
    pub len_bytes: u32,
}

/// A node of a checkpoint, from its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeRef {
    /// Where its key is.
    pub key: KeyPos,
    /// Where it lies.
    pub location: Location,
}

const REF_LEN: usize = 20;

fn put_key(out: &mut Vec<u8>, key: KeyPos) {
    out.put_u32(key.leb);
    out.put_u32(key.slot);
}

fn key(fields: &mut Fields<'_>) -> Result<KeyPos, Malformed> {
    Ok(KeyPos { leb: fields.u32()?, slot: fields.u32()? })
}

fn put_location(out: &mut Vec<u8>, location: Location) {
    out.put_u32(location.leb.0);
    out.put_u32(location.offset);
    out.put_u32(location.len_bytes);
}

fn location(fields: &mut Fields<'_>) -> Result<Location, Malformed> {
    Ok(Location { leb: MainLeb(fields.u32()?), offset: fields.u32()?, len_bytes: fields.u32()? })
}

fn put_refs(out: &mut Vec<u8>, refs: &[NodeRef]) {
    out.put_count(refs.len());
    for node in refs {
        put_key(out, node.key);
        put_location(out, node.location);
    }
}

fn refs(fields: &mut Fields<'_>) -> Result<Vec<NodeRef>, Malformed> {
    let count = fields.count(REF_LEN)?;
    (0..count).map(|_| Ok(NodeRef { key: key(fields)?, location: location(fields)? })).collect()
}

/// A part of the index, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IndexChunk(pub Vec<(IndexKey, KeyPos)>);

impl IndexChunk {
    /// As payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4 + self.0.len() * 24);
        out.put_count(self.0.len());
        for (at, key) in &self.0 {
            out.put_u64(at.ino);
            out.put_u64(at.sub);
            put_key(&mut out, *key);
        }
        out
    }

    /// From a payload.
    ///
    /// # Errors
    /// [`Malformed`], also if it is not in order.
    pub fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(payload);
        let count = fields.count(24)?;
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            let at = IndexKey { ino: fields.u64()?, sub: fields.u64()? };
            entries.push((at, key(&mut fields)?));
        }
        fields.end()?;
        if !entries.is_sorted_by(|a, b| a.0 < b.0) || entries.iter().any(|e| e.0.part().is_none()) {
            return Err(Malformed("it is not in order"));
        }
        Ok(Self(entries))
    }
}

/// Where the nodes lie whose keys are in one erase block of keys, in the order of slots.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyMap {
    /// Which erase block of keys.
    pub key_leb: u32,
    /// Slots and places.
    pub nodes: Vec<(u32, Location)>,
}

impl KeyMap {
    /// As payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(8 + self.nodes.len() * 16);
        out.put_u32(self.key_leb);
        out.put_count(self.nodes.len());
        for (slot, location) in &self.nodes {
            out.put_u32(*slot);
            put_location(&mut out, *location);
        }
        out
    }

    /// From a payload.
    ///
    /// # Errors
    /// [`Malformed`], also if it is not in order.
    pub fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(payload);
        let key_leb = fields.u32()?;
        let count = fields.count(16)?;
        let mut nodes = Vec::with_capacity(count);
        for _ in 0..count {
            nodes.push((fields.u32()?, location(&mut fields)?));
        }
        fields.end()?;
        if !nodes.is_sorted_by(|a, b| a.0 < b.0) {
            return Err(Malformed("it is not in order"));
        }
        Ok(Self { key_leb, nodes })
    }
}

/// Nodes of a checkpoint, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table(pub Vec<NodeRef>);

impl Table {
    /// As payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4 + self.0.len() * REF_LEN);
        put_refs(&mut out, &self.0);
        out
    }

    /// From a payload.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(payload);
        let table = Self(refs(&mut fields)?);
        fields.end()?;
        Ok(table)
    }
}

/// Inodes without names that were in use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Orphans(pub Vec<u64>);

impl Orphans {
    /// As payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4 + self.0.len() * 8);
        out.put_count(self.0.len());
        for ino in &self.0 {
            out.put_u64(*ino);
        }
        out
    }

    /// From a payload.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(payload);
        let count = fields.count(8)?;
        let inos = (0..count).map(|_| fields.u64()).collect::<Result<_, _>>()?;
        fields.end()?;
        Ok(Self(inos))
    }
}

/// Where a checkpoint begins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Root {
    /// The number that the next node has.
    pub next_sqnum: u64,
    /// The number that the next inode has.
    pub next_ino: u64,
    /// The purging epoch that the checkpoint is of.
    pub epoch: u64,
    /// The digest of the newest receipt; zero before the first.
    pub last_receipt: [u8; 32],
    /// Erase blocks that were being appended to, and up to where: what is behind that is newer.
    pub open: Vec<(MainLeb, u32)>,
    /// Tables of the chunks of the index, in order.
    pub index: Vec<NodeRef>,
    /// Tables of the maps of keys.
    pub key_maps: Vec<NodeRef>,
    /// Lists of inodes without names.
    pub orphans: Vec<NodeRef>,
}

impl Root {
    /// As payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u64(self.next_sqnum);
        out.put_u64(self.next_ino);
        out.put_u64(self.epoch);
        out.put(&self.last_receipt);
        out.put_count(self.open.len());
        for (leb, offset) in &self.open {
            out.put_u32(leb.0);
            out.put_u32(*offset);
        }
        for list in [&self.index, &self.key_maps, &self.orphans] {
            put_refs(&mut out, list);
        }
        out
    }

    /// From a payload.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(payload);
        let mut root = Self {
            next_sqnum: fields.u64()?,
            next_ino: fields.u64()?,
            epoch: fields.u64()?,
            last_receipt: fields.array()?,
            ..Self::default()
        };
        for _ in 0..fields.count(8)? {
            root.open.push((MainLeb(fields.u32()?), fields.u32()?));
        }
        root.index = refs(&mut fields)?;
        root.key_maps = refs(&mut fields)?;
        root.orphans = refs(&mut fields)?;
        fields.end()?;
        Ok(root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(n: u32) -> NodeRef {
        let location = Location { leb: MainLeb(n), offset: n + 1, len_bytes: n + 2 };
        NodeRef { key: KeyPos { leb: n, slot: n + 3 }, location }
    }

    #[test]
    fn parts_come_back_from_their_bytes() {
        let at = |block| IndexKey::data(4, block);
        let chunk = IndexChunk(vec![(at(1), node(1).key), (at(2), node(2).key)]);
        assert_eq!(IndexChunk::decode(&chunk.encode()), Ok(chunk));
        let nodes = vec![(1, node(1).location), (5, node(2).location)];
        let map = KeyMap { key_leb: 3, nodes };
        assert_eq!(KeyMap::decode(&map.encode()), Ok(map));
        let table = Table(vec![node(3), node(1)]);
        assert_eq!(Table::decode(&table.encode()), Ok(table));
        let orphans = Orphans(vec![1, 2]);
        assert_eq!(Orphans::decode(&orphans.encode()), Ok(orphans));
        let root = Root {
            next_sqnum: 1,
            next_ino: 2,
            epoch: 3,
            last_receipt: [4; 32],
            open: vec![(MainLeb(5), 6)],
            index: vec![node(7)],
            key_maps: vec![node(8), node(9)],
            orphans: vec![],
        };
        assert_eq!(Root::decode(&root.encode()), Ok(root));
    }

    #[test]
    fn what_is_out_of_order_or_too_short_is_refused() {
        let at = |block| (IndexKey::data(4, block), node(1).key);
        IndexChunk::decode(&IndexChunk(vec![at(2), at(2)]).encode()).unwrap_err();
        let nodes = vec![(2, node(1).location), (1, node(1).location)];
        KeyMap::decode(&KeyMap { key_leb: 0, nodes }.encode()).unwrap_err();
        for bytes in [&b""[..], &[0xff; 30], &[0; 3]] {
            IndexChunk::decode(bytes).unwrap_err();
            Table::decode(bytes).unwrap_err();
            Orphans::decode(bytes).unwrap_err();
            Root::decode(bytes).unwrap_err();
        }
    }
}
