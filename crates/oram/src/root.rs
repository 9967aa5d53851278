//! The bytes of the root: what a store is, and who may write to it. docs/spec/oram-store.md.
//!
//! The root is public. Clients seal it with a tag that the server does not have the key of, so the
//! server reads it and cannot make another one.

use crate::error::{Error, Kind, Result};
use crate::geometry::Geometry;

/// Bytes of the root.
pub const ROOT_LEN: usize = 128;
/// Bytes that the tag covers: all before it.
pub const TAGGED_LEN: usize = 96;
/// Bytes of the tag.
pub const TAG_LEN: usize = 32;
/// Bytes of the store's identity.
pub const STORE_ID_LEN: usize = 16;
/// Bytes of the name of those who share an anchor.
pub const GROUP_LEN: usize = 16;
/// Version of the format.
pub const VERSION: u16 = 1;
const MAGIC: &[u8; 8] = b"TACITORM";
const SCHEME_PD: u8 = 1;

/// What the root says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Root {
    /// The store's shapes.
    pub geometry: Geometry,
    /// Chosen at random when the store was made.
    pub store_id: [u8; STORE_ID_LEN],
    /// Which takeover of the store this is: records of clients with another fence are refused.
    pub fence: u64,
    /// Who shares an anchor and writes under this fence, by a random name; zeros: one client alone.
    pub group: [u8; GROUP_LEN],
}

impl Root {
    /// The bytes that the tag covers.
    pub fn tagged(&self) -> [u8; TAGGED_LEN] {
        let narrow = |n: u64| u32::try_from(n).expect("a geometry keeps its limits");
        let geometry = &self.geometry;
        let mut bytes = [0; TAGGED_LEN];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10] = SCHEME_PD;
        bytes[11] = u8::try_from(geometry.growth()).expect("levels grow by 2 or by 4");
        bytes[12..16].copy_from_slice(&narrow(geometry.block_len() as u64).to_le_bytes());
        bytes[16..20].copy_from_slice(&narrow(geometry.period()).to_le_bytes());
        bytes[20..24].copy_from_slice(&geometry.bucket_slots().to_le_bytes());
        bytes[24..32].copy_from_slice(&geometry.capacity().to_le_bytes());
        bytes[32..48].copy_from_slice(&self.store_id);
        bytes[48..56].copy_from_slice(&self.fence.to_le_bytes());
        bytes[56..72].copy_from_slice(&self.group);
        bytes
    }

    /// The whole root, with `tag` over [`Root::tagged`].
    pub fn encode(&self, tag: &[u8; TAG_LEN]) -> [u8; ROOT_LEN] {
        let mut bytes = [0; ROOT_LEN];
        bytes[..TAGGED_LEN].copy_from_slice(&self.tagged());
        bytes[TAGGED_LEN..].copy_from_slice(tag);
        bytes
    }

    /// What `bytes` say, and their tag, which is not looked at here.
    ///
    /// # Errors
    /// [`Kind::NotAStore`] for everything that [`Root::encode`] does not make, other versions and
    /// schemes among it.
    pub fn decode(bytes: &[u8]) -> Result<(Self, [u8; TAG_LEN])> {
        let refuse = |what: &'static str| Error::new(Kind::NotAStore, what);
        let bytes: &[u8; ROOT_LEN] =
            bytes.try_into().map_err(|_| refuse("the root has not the length of one"))?;
        if &bytes[..8] != MAGIC {
            return Err(refuse("the root does not begin as one"));
        }
        if u16::from_le_bytes(array(&bytes[8..10])) != VERSION || bytes[10] != SCHEME_PD {
            return Err(refuse("the store is of another version or scheme"));
        }
        let root = Self {
            geometry: Geometry::new(
                u32::from_le_bytes(array(&bytes[12..16])),
                u32::from_le_bytes(array(&bytes[16..20])),
                bytes[11],
                u64::from_le_bytes(array(&bytes[24..32])),
            )
            .and_then(|shapes| shapes.with_buckets(u32::from_le_bytes(array(&bytes[20..24]))))
            .map_err(|_| refuse("the root tells of shapes that no store has"))?,
            store_id: array(&bytes[32..48]),
            fence: u64::from_le_bytes(array(&bytes[48..56])),
            group: array(&bytes[56..72]),
        };
        let tag = array(&bytes[TAGGED_LEN..]);
        if root.encode(&tag) != *bytes {
            return Err(refuse("the root has bytes where there are none"));
        }
        Ok((root, tag))
    }
}

/// A slice that was cut to this length.
pub(crate) fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("the slice was cut to this length")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> Root {
        let geometry = Geometry::new(4096, 256, 4, 1 << 20).unwrap();
        Root { geometry, store_id: *b"sixteen bytes id", fence: 7, group: [8; 16] }
    }

    #[test]
    fn what_is_written_is_read() {
        let tag = [9; TAG_LEN];
        assert_eq!(Root::decode(&root().encode(&tag)).unwrap(), (root(), tag));
    }

    #[test]
    fn every_byte_means_something() {
        let bytes = root().encode(&[9; TAG_LEN]);
        for at in 0..ROOT_LEN {
            let mut altered = bytes;
            altered[at] ^= 1;
            match Root::decode(&altered) {
                Ok(other) => assert_ne!(other, (root(), [9; TAG_LEN]), "byte {at}"),
                Err(e) => assert_eq!(e.kind(), Kind::NotAStore),
            }
        }
        for len in [0, 1, ROOT_LEN - 1] {
            assert!(Root::decode(&bytes[..len]).is_err());
        }
        assert!(Root::decode(&[&bytes[..], &[0]].concat()).is_err());
    }
}
