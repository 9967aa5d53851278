//! The bytes of the log of intents: docs/spec/purge.md, section 3.
//!
//! An intent is on the medium before the first file of its folders is overwritten whose name a loss
//! of power could bring back. It says under which key the sectors of such files carry tags.

use std::fmt;

use super::record::{Damage, checksum};

/// Length of a slot.
pub const INTENT_LEN: usize = 4096;

/// First bytes of a slot in use.
const MAGIC: [u8; 4] = *b"PINT";

/// Version of the log.
const VERSION: u8 = 1;

/// Where the key lies.
const KEY_AT: usize = 8;

/// Where the folders begin: the length of a handle as one byte, then the handle.
const FOLDERS_AT: usize = 40;

/// Where the checksum begins: it covers what is before it.
const CHECKSUM_AT: usize = 4080;

/// What is about to be overwritten.
#[derive(Clone, PartialEq, Eq)]
pub struct Intent {
    /// What the tags are made with.
    pub key: [u8; 32],
    /// Handles of the folders that the files were deleted from.
    pub folders: Vec<Vec<u8>>,
}

impl Intent {
    /// Of no folder yet.
    pub const fn new(key: [u8; 32]) -> Self {
        Self { key, folders: Vec::new() }
    }

    /// The same with one more folder; `None` if there is no room for it.
    #[must_use]
    pub fn with(&self, folder: &[u8]) -> Option<Self> {
        let taken: usize = self.folders.iter().map(|folder| 1 + folder.len()).sum();
        let fits = !folder.is_empty()
            && u8::try_from(folder.len()).is_ok()
            && FOLDERS_AT + taken + 1 + folder.len() <= CHECKSUM_AT;
        fits.then(|| {
            let mut more = self.clone();
            more.folders.push(folder.to_vec());
            more
        })
    }

    /// Its bytes; folders that do not fit are left out, see [`Intent::with`].
    pub fn encode(&self) -> [u8; INTENT_LEN] {
        let mut bytes = [0; INTENT_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[KEY_AT..FOLDERS_AT].copy_from_slice(&self.key);
        let (mut at, mut count) = (FOLDERS_AT, 0_u16);
        for folder in &self.folders {
            let end = at + 1 + folder.len();
            let Some(len) = u8::try_from(folder.len()).ok().filter(|_| end <= CHECKSUM_AT) else {
                break;
            };
            bytes[at] = len;
            bytes[at + 1..end].copy_from_slice(folder);
            (at, count) = (end, count + 1);
        }
        bytes[6..8].copy_from_slice(&count.to_le_bytes());
        let sum = checksum(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(&sum);
        bytes
    }

    /// Reads a slot back; `None` if it is free, which is all zeros.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn decode(bytes: &[u8; INTENT_LEN]) -> Result<Option<Self>, Damage> {
        if tacita_block::is_zero(bytes) {
            return Ok(None);
        }
        if !bytes.starts_with(&MAGIC) {
            return Err(Damage::Magic);
        }
        if checksum(&bytes[..CHECKSUM_AT]) != bytes[CHECKSUM_AT..] {
            return Err(Damage::Checksum);
        }
        if bytes[4] != VERSION {
            return Err(Damage::Version);
        }
        let mut key = [0; 32];
        key.copy_from_slice(&bytes[KEY_AT..FOLDERS_AT]);
        let mut intent = Self::new(key);
        let mut rest = &bytes[FOLDERS_AT..CHECKSUM_AT];
        for _ in 0..u16::from_le_bytes([bytes[6], bytes[7]]) {
            let (len, after) = rest.split_first().ok_or(Damage::Field)?;
            let (folder, after) = after.split_at_checked(usize::from(*len)).ok_or(Damage::Field)?;
            if folder.is_empty() {
                return Err(Damage::Field);
            }
            intent.folders.push(folder.to_vec());
            rest = after;
        }
        if bytes[5] != 0 || rest.iter().any(|b| *b != 0) {
            return Err(Damage::Field);
        }
        Ok(Some(intent))
    }
}

impl fmt::Debug for Intent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intent").field("folders", &self.folders).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn intent() -> Intent {
        Intent { key: [9; 32], folders: vec![vec![1; 12], vec![2; 128], vec![3]] }
    }

    fn seal(mut bytes: [u8; INTENT_LEN]) -> [u8; INTENT_LEN] {
        let sum = checksum(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(&sum);
        bytes
    }

    #[test]
    fn what_is_written_is_read_back() {
        assert_eq!(Intent::decode(&[0; INTENT_LEN]), Ok(None));
        assert_eq!(Intent::decode(&intent().encode()), Ok(Some(intent())));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let whole = intent().encode();
        for bit in 0..INTENT_LEN * 8 {
            let mut bytes = whole;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Intent::decode(&bytes).is_err(), "bit {bit}");
        }
    }

    /// A slot that power was cut in the midst of: nothing was overwritten under it yet.
    #[test]
    fn a_torn_slot_is_none() {
        let (old, new) = (Intent::new([1; 32]).with(&[7; 12]).unwrap(), intent());
        let (old, new) = (old.encode(), new.encode());
        for sectors in 1..INTENT_LEN / 512 {
            let mut torn = old;
            torn[..sectors * 512].copy_from_slice(&new[..sectors * 512]);
            assert!(Intent::decode(&torn).is_err(), "{sectors} sectors");
        }
    }

    #[test]
    fn it_holds_as_many_folders_as_fit() {
        let mut full = Intent::new([5; 32]);
        while let Some(more) = full.with(&[1; 12]) {
            full = more;
        }
        assert_eq!(full.folders.len(), (CHECKSUM_AT - FOLDERS_AT) / 13);
        assert_eq!(Intent::decode(&full.encode()), Ok(Some(full)));
        assert_eq!(intent().with(&[]), None);
        assert_eq!(intent().with(&[0; 256]), None);
    }

    #[test]
    fn fields_are_checked_even_under_a_right_checksum() {
        for (at, byte) in [(5, 1), (6, 2), (6, 4), (FOLDERS_AT, 0), (CHECKSUM_AT - 1, 1)] {
            let mut bytes = intent().encode();
            bytes[at] = byte;
            assert_eq!(Intent::decode(&seal(bytes)), Err(Damage::Field), "byte {at}");
        }
        let mut bytes = intent().encode();
        bytes[4] = 2;
        assert_eq!(Intent::decode(&seal(bytes)), Err(Damage::Version));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..200), count in 0..4_u16
        ) {
            let mut slot = intent().encode();
            slot[FOLDERS_AT..FOLDERS_AT + bytes.len()].copy_from_slice(&bytes);
            slot[6..8].copy_from_slice(&count.to_le_bytes());
            prop_assert!(Intent::decode(&slot).is_err() || slot == intent().encode());
            if let Ok(Some(intent)) = Intent::decode(&seal(slot)) {
                prop_assert_eq!(intent.encode(), seal(slot));
            }
        }
    }
}
