//! Content of files: blocks of a node's length, each a node.

use std::borrow::Cow;
use std::ops::Range;

use tacita_dnefs_format::node;
use tacita_dnefs_format::record::{IndexKey, Kind as RecordKind, Removal, encode_truncation};

use crate::checkpoint::fitting;
use crate::error::Result;
use crate::inodes::Node;
use crate::store::{Store, Write, block_of};

/// Nodes that are sealed in one go: they wait in memory until they are appended.
const WRITE_NODES: usize = 64;
/// Nodes that one removal names, at most, and what each takes in it, in bytes.
const REMOVED_MAX: usize = 256;
const REMOVED_LEN: usize = 16;

impl Store {
    fn node_len(&self) -> u64 {
        self.parameters.node_len_bytes.into()
    }

    /// Reads at `offset` into `buf`, all of which is within the file.
    pub(crate) fn read_content(&self, ino: u64, offset: u64, buf: &mut [u8]) -> Result<()> {
        let len = self.node_len();
        let end = offset + buf.len() as u64;
        buf.fill(0);
        let blocks = IndexKey::data(ino, offset / len)..IndexKey::data(ino, end.div_ceil(len));
        self.read(blocks, |at, opened| {
            let start = block_of(at).unwrap_or(0) * len;
            let has = start..start + u64::from(opened.len_bytes).min(len);
            let wanted = has.start.max(offset)..has.end.min(end);
            if wanted.is_empty() {
                return Ok(());
            }
            let part = &mut buf[within(&wanted, offset)];
            if wanted == has {
                return opened.payload_into(part);
            }
            let payload = opened.payload(self.parameters.node_len_bytes as usize)?;
            part.copy_from_slice(&payload[within(&wanted, start)]);
            Ok(())
        })
    }

    /// Writes `data` at `offset`. After an error the file is as long as it was; what was within it may
    /// have been written over.
    pub(crate) fn write_content(&self, node: &mut Node, offset: u64, data: &[u8]) -> Result<()> {
        let written = self.write_blocks(node, offset, data);
        if written.is_ok() {
            node.inode.size = node.inode.size.max(offset + data.len() as u64);
            node.is_dirty = true;
        } else {
            self.forget_beyond(node);
        }
        written
    }

    fn write_blocks(&self, node: &Node, offset: u64, data: &[u8]) -> Result<()> {
        let len = self.node_len();
        let end = offset + data.len() as u64;
        // No more at once than begins two erase blocks: so many can always be made free where there is
        // room. For more of them collection would move what is needed to and fro.
        let at_once = (u64::from(self.layout.leb_len_bytes) - 1) / (len + node::OVERHEAD as u64);
        let most = usize::try_from(at_once.clamp(1, WRITE_NODES as u64)).expect("it is few");
        let mut writes = Vec::with_capacity(most);
        let mut at = offset;
        while at < end {
            let block = at / len;
            let part = at..end.min((block + 1) * len);
            let bytes = &data[within(&part, offset)];
            let payload = if part.end - part.start == len {
                Cow::Borrowed(bytes)
            } else {
                self.merged(node, block, within(&part, block * len).start, bytes)?
            };
            writes.push(Write {
                kind: RecordKind::Data,
                at: IndexKey::data(node.ino, block),
                payload,
            });
            at = part.end;
            if writes.len() == most || at == end {
                self.write_data(&writes)?;
                writes.clear();
            }
        }
        Ok(())
    }

    /// What a write that failed has left beyond the end is not to be seen when the file grows, nor after a
    /// power cut, which leaves the file as long as it is by then.
    fn forget_beyond(&self, node: &mut Node) {
        let size = node.inode.size;
        let has_more = self.erase_blocks(node.ino, size.div_ceil(self.node_len()));
        // The last block may have more, too. A record that frees something finds room on a full volume.
        let Ok(mut writes) = self.truncation(node, size) else { return };
        if has_more || writes.len() > 1 {
            writes.push(node.record());
            node.is_dirty &= self.write_group(&writes).is_err();
        }
    }

    /// A block with `bytes` at `from` of it, and what it has besides.
    fn merged<'a>(
        &self,
        node: &Node,
        block: u64,
        from: usize,
        bytes: &'a [u8],
    ) -> Result<Cow<'a, [u8]>> {
        let start = block * self.node_len();
        let has = node.inode.size.saturating_sub(start).min(self.node_len());
        if from == 0 && bytes.len() as u64 >= has {
            return Ok(Cow::Borrowed(bytes));
        }
        let mut whole = self.get(IndexKey::data(node.ino, block))?.unwrap_or_default();
        // What is beyond the end reads as zero, whatever an interrupted write left there.
        whole.truncate(usize::try_from(has).expect("a block is short"));
        whole.resize(whole.len().max(from + bytes.len()), 0);
        whole[from..from + bytes.len()].copy_from_slice(bytes);
        Ok(Cow::Owned(whole))
    }

    /// The records that make a file shorter: its last block is encrypted anew without what is cut off.
    pub(crate) fn truncation(&self, node: &Node, size: u64) -> Result<Vec<Write<'static>>> {
        let len = self.node_len();
        let at = IndexKey::inode(node.ino);
        let payload = encode_truncation(size).to_vec().into();
        let mut writes = vec![Write { kind: RecordKind::Truncation, at, payload }];
        let kept = usize::try_from(size % len).expect("a block is short");
        if kept > 0 {
            let at = IndexKey::data(node.ino, size / len);
            if let Some(mut last) = self.get(at)?.filter(|last| last.len() > kept) {
                last.truncate(kept);
                writes.push(Write { kind: RecordKind::Data, at, payload: last.into() });
            }
        }
        Ok(writes)
    }

    /// Makes a range of a file read as zeros: whole blocks go, others are encrypted anew.
    pub(crate) fn punch(&self, node: &mut Node, range: Range<u64>) -> Result<()> {
        let len = self.node_len();
        let range = range.start..range.end.min(node.inode.size);
        if range.is_empty() {
            return Ok(());
        }
        let whole = range.start.div_ceil(len)..range.end / len;
        // The last block is whole where the file ends within it.
        let whole = whole.start..if range.end == node.inode.size {
            range.end.div_ceil(len)
        } else {
            whole.end
        };
        let mut edges = vec![range.start / len, (range.end - 1) / len];
        edges.dedup();
        for block in edges.into_iter().filter(|block| !whole.contains(block)) {
            let part = range.start.max(block * len)..range.end.min((block + 1) * len);
            let Some(mut bytes) = self.get(IndexKey::data(node.ino, block))? else { continue };
            let part = within(&part, block * len);
            let end = part.end.min(bytes.len());
            if let Some(zeroed) = bytes.get_mut(part.start..end) {
                zeroed.fill(0);
                let at = IndexKey::data(node.ino, block);
                self.write_data(&[Write { kind: RecordKind::Data, at, payload: bytes.into() }])?;
            }
        }
        let end = IndexKey::data(node.ino, whole.end);
        let most = fitting(&self.layout, REMOVED_MAX, REMOVED_LEN);
        loop {
            let removed = self.list(IndexKey::data(node.ino, whole.start)..end, most);
            if whole.is_empty() || removed.is_empty() {
                return Ok(());
            }
            let removal = Removal { removed, orphans: Vec::new() };
            self.write_group(&[removal_of(node.ino, &removal)])?;
        }
    }

    /// Blocks that a range of a file has.
    pub(crate) fn stored_blocks(&self, ino: u64) -> u64 {
        let end = IndexKey::dentry(ino, 0);
        self.core().index.count(IndexKey::data(ino, 0)..end) as u64
    }

    /// The first byte at or behind `offset` that is in a block (or in none).
    pub(crate) fn seek_content(&self, ino: u64, offset: u64, size: u64, data: bool) -> u64 {
        let len = self.node_len();
        let end = IndexKey::dentry(ino, 0);
        let core = self.core();
        let mut block = offset / len;
        let mut stored =
            core.index.range(IndexKey::data(ino, block)..end).filter_map(|(at, _)| block_of(at));
        if data {
            return stored.next().map_or(size, |found| offset.max(found * len));
        }
        while stored.next() == Some(block) {
            block += 1;
        }
        offset.max(block * len).min(size)
    }
}

/// A removal as a record.
pub(crate) fn removal_of(ino: u64, removal: &Removal) -> Write<'static> {
    let at = IndexKey::inode(ino);
    Write { kind: RecordKind::Removal, at, payload: removal.encode().into() }
}

/// A range of a file as one of a buffer that begins at `start`.
#[allow(clippy::cast_possible_truncation, reason = "it is within the buffer")]
const fn within(range: &Range<u64>, start: u64) -> Range<usize> {
    (range.start - start) as usize..(range.end - start) as usize
}
