//! What clients that share an anchor remember together: the bytes. docs/spec/oram-store.md.
//!
//! They are kept where all of these clients can compare and swap them, by somebody who does not act
//! together with the server. Whoever keeps them cannot make others, for they are tagged, and learns how many
//! queries there have been.

use std::ops::Range;

use tacita_secret::Digest;

use crate::anchor::Mark;
use crate::error::{Error, Kind, Result};
use crate::keys::Keys;
use crate::root::{GROUP_LEN, array};

/// Bytes of an agreement.
pub const AGREEMENT_LEN: usize = 160;
const TAGGED_LEN: usize = 128;
/// Where in the bytes it stands who builds.
pub const BUILDER: Range<usize> = 88..104;
const MAGIC: &[u8; 8] = b"TACITAGR";
const VERSION: u16 = 1;

/// Bytes of a client's name within its group.
pub const MEMBER_LEN: usize = 16;
/// A client's name within its group, chosen at random when it comes; zeros are nobody's.
pub type Member = [u8; MEMBER_LEN];

/// What clients have agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreement {
    /// The clients that have, by the random name that stands in the root, too.
    pub group: [u8; GROUP_LEN],
    /// What one of them has seen of the log; the others look nothing up in a log that does not begin so.
    pub mark: Mark,
    /// Who builds; zeros: nobody.
    pub builder: Member,
    /// Who builds says with each change of this number that it is there.
    pub beat: u64,
    /// Queries from this one on are not to be asked yet: builds are not as far.
    pub admitted: u64,
}

impl Agreement {
    /// What a new group has agreed on: what there was to remember before it, and no more.
    pub const fn new(group: [u8; GROUP_LEN], mark: Mark) -> Self {
        Self { group, mark, builder: [0; MEMBER_LEN], beat: 0, admitted: 0 }
    }

    /// The bytes, tagged by the store's key.
    pub fn encode(&self, keys: &Keys) -> [u8; AGREEMENT_LEN] {
        let mut bytes = [0; AGREEMENT_LEN];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.mark.store_id);
        bytes[32..48].copy_from_slice(&self.group);
        bytes[48..56].copy_from_slice(&self.mark.sequence.to_le_bytes());
        bytes[56..88].copy_from_slice(&self.mark.head);
        bytes[BUILDER].copy_from_slice(&self.builder);
        bytes[104..112].copy_from_slice(&self.beat.to_le_bytes());
        bytes[112..120].copy_from_slice(&self.admitted.to_le_bytes());
        let tag: Digest = keys.agreement_mac(&bytes[..TAGGED_LEN]);
        bytes[TAGGED_LEN..].copy_from_slice(&tag);
        bytes
    }

    /// What `bytes` say.
    ///
    /// # Errors
    /// [`Kind::RolledBack`] if they belong to another store; [`Kind::Hostile`] if no client with these keys
    /// has made them.
    pub fn decode(keys: &Keys, store_id: &[u8; 16], bytes: &[u8]) -> Result<Self> {
        let refuse =
            |what: &str| Err(Error::new(Kind::Hostile, format!("the shared anchor {what}")));
        let Ok(bytes) = <&[u8; AGREEMENT_LEN]>::try_from(bytes) else {
            return refuse("does not have the length of one");
        };
        if &bytes[..8] != MAGIC || bytes[8..10] != VERSION.to_le_bytes() {
            return refuse("is none, or of another version");
        }
        if bytes[16..32] != *store_id {
            let other = "the shared anchor belongs to another store than the server shows";
            return Err(Error::new(Kind::RolledBack, other));
        }
        let agreement = Self {
            group: array(&bytes[32..48]),
            mark: Mark {
                store_id: *store_id,
                sequence: u64::from_le_bytes(array(&bytes[48..56])),
                head: array(&bytes[56..88]),
            },
            builder: array(&bytes[BUILDER]),
            beat: u64::from_le_bytes(array(&bytes[104..112])),
            admitted: u64::from_le_bytes(array(&bytes[112..120])),
        };
        if agreement.encode(keys) != *bytes {
            return refuse("was not made with this store's key");
        }
        Ok(agreement)
    }
}

#[cfg(test)]
mod tests {
    use tacita_secret::Key;

    use super::*;

    const STORE: [u8; 16] = [5; 16];

    fn agreement() -> Agreement {
        let mark = Mark { store_id: STORE, sequence: 77, head: [6; 32] };
        Agreement { builder: [1; 16], beat: 3, admitted: 1000, ..Agreement::new([4; 16], mark) }
    }

    fn keys(byte: u8) -> Keys {
        Keys::new(&Key::take(&mut [byte; 32]), &STORE)
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = agreement().encode(&keys(1));
        assert_eq!(Agreement::decode(&keys(1), &STORE, &bytes).unwrap(), agreement());
    }

    #[test]
    fn the_documents_example_is_one() {
        let spec = include_str!("../../../docs/spec/oram-store.md");
        let (_, rest) = spec.split_once("```tag\n").unwrap();
        let mark = Mark { store_id: [7; 16], sequence: 9, head: [6; 32] };
        let keys = Keys::new(&Key::take(&mut [1; 32]), &[7; 16]);
        let bytes = Agreement::new([4; 16], mark).encode(&keys);
        let tag = rest.split('\n').next().unwrap().as_bytes().as_chunks::<2>().0;
        let byte = |digits: &[u8; 2]| {
            u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap()
        };
        assert_eq!(tag.iter().map(byte).collect::<Vec<_>>(), bytes[TAGGED_LEN..]);
    }

    #[test]
    fn nobody_else_makes_one() {
        let bytes = agreement().encode(&keys(1));
        for at in 0..AGREEMENT_LEN {
            let mut altered = bytes;
            altered[at] ^= 1;
            assert!(Agreement::decode(&keys(1), &STORE, &altered).is_err(), "byte {at}");
        }
        let refused = |keys: &Keys, store: &[u8; 16], bytes: &[u8]| {
            Agreement::decode(keys, store, bytes).unwrap_err().kind()
        };
        assert_eq!(refused(&keys(2), &STORE, &bytes), Kind::Hostile);
        assert_eq!(refused(&keys(1), &[9; 16], &bytes), Kind::RolledBack);
        assert_eq!(refused(&keys(1), &STORE, &bytes[1..]), Kind::Hostile);
    }
}
