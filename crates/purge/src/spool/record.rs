//! The bytes of the spool's records: docs/spec/purge.md, section 2.
//!
//! Records only save work after a crash. What is in the spool is to be purged, whatever they say;
//! a damaged one costs a purge from the beginning by the mount's own method.

use crate::method::{METHOD_LEN_MAX, Method};

/// Length of the header and of every record.
pub const RECORD_LEN: usize = 256;

/// First bytes of the file.
const HEADER_MAGIC: [u8; 8] = *b"TCTPURGE";

/// First bytes of a record.
const RECORD_MAGIC: [u8; 4] = *b"PREC";

/// Version of header and records.
const VERSION: u8 = 1;

/// Where the checksum begins: it covers what is before it.
const CHECKSUM_AT: usize = 240;

/// Where the text of the method begins.
const METHOD_AT: usize = 48;

/// Why bytes are no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// They do not begin as one.
    Magic,
    /// They are of another version.
    Version,
    /// Their checksum is another.
    Checksum,
    /// A field has a value that it cannot have.
    Field,
}

/// The head of the file of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// A mount uses the spool, or has used it and not come to its end.
    pub in_use: bool,
}

/// How far the purge of one entry has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The entry's name in the spool.
    pub seq: u64,
    /// Its inode number.
    pub inode: u64,
    /// Its size when it was deleted.
    pub size: u64,
    /// Seconds since 1970 until which it is held (method f), else 0.
    pub hold_until: i64,
    /// Passes that are on the medium.
    pub passes_done: u8,
    /// The method.
    pub method: Method,
}

/// A checksum of 16 bytes.
pub(super) fn checksum(bytes: &[u8]) -> [u8; 16] {
    let digest = tacita_secret::digest(bytes);
    let mut short = [0; 16];
    short.copy_from_slice(&digest[..16]);
    short
}

fn seal(mut bytes: [u8; RECORD_LEN]) -> [u8; RECORD_LEN] {
    let sum = checksum(&bytes[..CHECKSUM_AT]);
    bytes[CHECKSUM_AT..].copy_from_slice(&sum);
    bytes
}

fn check(bytes: &[u8; RECORD_LEN], magic: &[u8]) -> Result<(), Damage> {
    if !bytes.starts_with(magic) {
        return Err(Damage::Magic);
    }
    if checksum(&bytes[..CHECKSUM_AT]) != bytes[CHECKSUM_AT..] {
        return Err(Damage::Checksum);
    }
    if bytes[magic.len()] != VERSION {
        return Err(Damage::Version);
    }
    Ok(())
}

fn number(bytes: &[u8; RECORD_LEN], at: usize) -> [u8; 8] {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    number
}

impl Header {
    /// Its bytes.
    pub fn encode(self) -> [u8; RECORD_LEN] {
        let mut bytes = [0; RECORD_LEN];
        bytes[..8].copy_from_slice(&HEADER_MAGIC);
        bytes[8] = VERSION;
        bytes[9] = u8::from(self.in_use);
        seal(bytes)
    }

    /// Reads it back.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn decode(bytes: &[u8; RECORD_LEN]) -> Result<Self, Damage> {
        check(bytes, &HEADER_MAGIC)?;
        if bytes[10..CHECKSUM_AT].iter().any(|b| *b != 0) || bytes[9] > 1 {
            return Err(Damage::Field);
        }
        Ok(Self { in_use: bytes[9] == 1 })
    }
}

impl Record {
    /// Its bytes.
    pub fn encode(&self) -> [u8; RECORD_LEN] {
        let mut bytes = [0; RECORD_LEN];
        let method = self.method.to_string();
        let len = method.len().min(METHOD_LEN_MAX);
        bytes[..4].copy_from_slice(&RECORD_MAGIC);
        bytes[4] = VERSION;
        bytes[5] = self.passes_done;
        bytes[6] = u8::try_from(len).unwrap_or(0);
        bytes[8..16].copy_from_slice(&self.seq.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.inode.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.size.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.hold_until.to_le_bytes());
        bytes[METHOD_AT..METHOD_AT + len].copy_from_slice(&method.as_bytes()[..len]);
        seal(bytes)
    }

    /// Reads a slot back; `None` if it is free, which is all zeros.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn decode(bytes: &[u8; RECORD_LEN]) -> Result<Option<Self>, Damage> {
        if tacita_block::is_zero(bytes) {
            return Ok(None);
        }
        check(bytes, &RECORD_MAGIC)?;
        let len = usize::from(bytes[6]);
        if len > METHOD_LEN_MAX {
            return Err(Damage::Field);
        }
        let rest = [&bytes[7..8], &bytes[40..METHOD_AT], &bytes[METHOD_AT + len..CHECKSUM_AT]];
        if rest.concat().iter().any(|b| *b != 0) {
            return Err(Damage::Field);
        }
        let text = std::str::from_utf8(&bytes[METHOD_AT..METHOD_AT + len]);
        let method: Method = text.ok().and_then(|text| text.parse().ok()).ok_or(Damage::Field)?;
        let passes_done = bytes[5];
        if usize::from(passes_done) > method.passes().len() {
            return Err(Damage::Field);
        }
        Ok(Some(Self {
            seq: u64::from_le_bytes(number(bytes, 8)),
            inode: u64::from_le_bytes(number(bytes, 16)),
            size: u64::from_le_bytes(number(bytes, 24)),
            hold_until: i64::from_le_bytes(number(bytes, 32)),
            passes_done,
            method,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record() -> Record {
        Record {
            seq: 7,
            inode: 12,
            size: 4096,
            hold_until: 0,
            passes_done: 1,
            method: "e".parse().unwrap(),
        }
    }

    #[test]
    fn a_free_slot_is_zeros() {
        assert_eq!(Record::decode(&[0; RECORD_LEN]), Ok(None));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let whole = record().encode();
        assert_eq!(Record::decode(&whole), Ok(Some(record())));
        for bit in 0..RECORD_LEN * 8 {
            let mut bytes = whole;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Record::decode(&bytes).is_err(), "bit {bit}");
        }
        for in_use in [false, true] {
            let header = Header { in_use };
            assert_eq!(Header::decode(&header.encode()), Ok(header));
        }
    }

    #[test]
    fn fields_are_checked_even_under_a_right_checksum() {
        let mut too_far = record();
        too_far.passes_done = 4;
        assert_eq!(Record::decode(&too_far.encode()), Err(Damage::Field));
        let mut bytes = record().encode();
        bytes[METHOD_AT] = b'?';
        assert_eq!(Record::decode(&seal(bytes)), Err(Damage::Field));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), RECORD_LEN)) {
            let mut slot = [0; RECORD_LEN];
            slot.copy_from_slice(&bytes);
            let _ = Record::decode(&slot);
            let _ = Header::decode(&slot);
            if let Ok(Some(record)) = Record::decode(&seal(slot)) {
                prop_assert_eq!(record.encode(), seal(slot));
            }
        }
    }
}
