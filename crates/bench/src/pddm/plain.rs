//! An encrypted volume that hides nothing: each block is sealed in place, its nonce and tag stand in
//! a block of their own for every 128. It is what deniability is measured against; a power cut can
//! leave it with wrong tags, so it is no volume for people.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use tacita_block::{self as block, BlockDevice, BlockNo, BlockRange, Geometry};
use tacita_secret::{Counted, Key, TAG_LEN};

const BLOCK_LEN: usize = 4096;
/// Blocks of a group, whose nonces and tags share a block.
const GROUP: u64 = 128;
const ENTRY_LEN: usize = 8 + TAG_LEN;

/// The volume.
pub(super) struct PlainVolume {
    inner: Arc<dyn BlockDevice>,
    blocks: u64,
    sealing: Counted,
    groups: Box<[Mutex<Group>]>,
}

struct Group {
    entries: Box<[u8; BLOCK_LEN]>,
    changed: bool,
}

impl PlainVolume {
    /// Bytes of device for so many of volume.
    pub(super) fn room(bytes: u64) -> u64 {
        bytes + bytes.div_ceil(GROUP * BLOCK_LEN as u64) * BLOCK_LEN as u64
    }

    /// A new volume of so many blocks.
    pub(super) fn new(inner: Arc<dyn BlockDevice>, blocks: u64) -> Result<Self> {
        let group = || Mutex::new(Group { entries: Box::new([0; BLOCK_LEN]), changed: false });
        let groups = (0..blocks.div_ceil(GROUP)).map(|_| group()).collect();
        Ok(Self { inner, blocks, sealing: Counted::new(&Key::random()?, 0), groups })
    }

    fn place(at: u64) -> u64 {
        at / GROUP * (GROUP + 1) + 1 + at % GROUP
    }

    /// Parts of a request that lie in one group each: group, first block, bytes of the buffer.
    fn parts(at: u64, len: usize) -> impl Iterator<Item = (usize, u64, std::ops::Range<usize>)> {
        let count = (len / BLOCK_LEN) as u64;
        let mut done = 0;
        std::iter::from_fn(move || {
            let first = at + done;
            let here = (GROUP - first % GROUP).min(count - done);
            let start = usize::try_from(done).ok()? * BLOCK_LEN;
            done += here;
            let end = usize::try_from(done).ok()? * BLOCK_LEN;
            let group = usize::try_from(first / GROUP).ok()?;
            (here > 0).then_some((group, first, start..end))
        })
    }

    fn entry(at: u64) -> std::ops::Range<usize> {
        let index = usize::try_from(at % GROUP).expect("less than a group") * ENTRY_LEN;
        index..index + ENTRY_LEN
    }
}

impl BlockDevice for PlainVolume {
    fn geometry(&self) -> Geometry {
        Geometry { block_len_bytes: 4096, blocks: self.blocks }
    }

    fn read(&self, at: BlockNo, buf: &mut [u8]) -> block::Result<()> {
        self.geometry().byte_range(at, buf.len())?;
        for (group, first, bytes) in Self::parts(at.0, buf.len()) {
            let buf = &mut buf[bytes];
            let entries = {
                let group = self.groups[group].lock().unwrap_or_else(PoisonError::into_inner);
                self.inner.read(BlockNo(Self::place(first)), buf)?;
                group.entries.clone()
            };
            for (at, block) in (first..).zip(buf.chunks_exact_mut(BLOCK_LEN)) {
                let (number, tag) = entries[Self::entry(at)].split_at(8);
                let number = u64::from_le_bytes(number.try_into().expect("8 bytes"));
                let tag = tag.try_into().expect("a tag");
                if number == 0 {
                    block.fill(0);
                } else if self.sealing.open(number, &at.to_le_bytes(), block, &tag).is_err() {
                    return Err(block::Error::new(block::Kind::Io, format!("block {at}")));
                }
            }
        }
        Ok(())
    }

    fn write(&self, at: BlockNo, buf: &[u8]) -> block::Result<()> {
        self.geometry().byte_range(at, buf.len())?;
        for (group, first, bytes) in Self::parts(at.0, buf.len()) {
            let mut sealed = buf[bytes].to_vec();
            let mut entries = Vec::with_capacity(sealed.len() / BLOCK_LEN * ENTRY_LEN);
            for (at, block) in (first..).zip(sealed.chunks_exact_mut(BLOCK_LEN)) {
                let (number, tag) = self.sealing.seal(&at.to_le_bytes(), block);
                entries.extend(number.to_le_bytes());
                entries.extend(tag);
            }
            let mut group = self.groups[group].lock().unwrap_or_else(PoisonError::into_inner);
            let start = Self::entry(first).start;
            group.entries[start..start + entries.len()].copy_from_slice(&entries);
            group.changed = true;
            self.inner.write(BlockNo(Self::place(first)), &sealed)?;
        }
        Ok(())
    }

    fn flush(&self) -> block::Result<()> {
        for (number, group) in (0..).zip(&self.groups) {
            let mut group = group.lock().unwrap_or_else(PoisonError::into_inner);
            if std::mem::take(&mut group.changed) {
                let at: u64 = number;
                self.inner.write(BlockNo(at * (GROUP + 1)), &group.entries[..])?;
            }
        }
        self.inner.flush()
    }

    fn discard(&self, range: BlockRange) -> block::Result<()> {
        self.geometry().byte_range_of(range).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tacita_block::MemoryDevice;

    #[test]
    fn it_holds_what_is_written_and_sees_damage() {
        let room = PlainVolume::room(300 * 4096);
        let inner = Arc::new(MemoryDevice::new(Geometry::within(room, 4096).unwrap()));
        let volume = PlainVolume::new(inner.clone(), 300).unwrap();
        let content: Vec<u8> = (0..300 * 4096u32).map(|i| u8::try_from(i % 249).unwrap()).collect();
        volume.write(BlockNo(0), &content).unwrap();
        volume.write(BlockNo(127), &content[..8192]).unwrap();
        let mut back = vec![0; content.len()];
        volume.read(BlockNo(0), &mut back).unwrap();
        assert!(back[..127 * 4096] == content[..127 * 4096]);
        assert!(back[127 * 4096..129 * 4096] == content[..8192]);
        assert!(back[129 * 4096..] == content[129 * 4096..]);
        inner.write(BlockNo(PlainVolume::place(200)), &[0; 4096]).unwrap();
        assert!(volume.read(BlockNo(200), &mut back[..4096]).is_err());
    }
}
