//! Records of the query log and results: what clients leave for each other, each of one length whatever
//! is asked and found. docs/spec/oram-store.md.

use bytes::Bytes;
use tacita_secret::{Digest, TAG_LEN};

use crate::error::Result;
use crate::faults::{Fault, planted};
use crate::geometry::{RECORD_OVERHEAD, RESULT_OVERHEAD};
use crate::item::forged;
use crate::keys::{Head, Id, Keys};

const SALT_LEN: usize = 16;
const FIELDS_LEN: usize = RECORD_OVERHEAD - SALT_LEN - TAG_LEN;
const RESULT_FIELDS_LEN: usize = RESULT_OVERHEAD - SALT_LEN - TAG_LEN;

/// What a client calls a query: random.
pub type RequestId = [u8; 16];

/// What a query is to do with its block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Tell the content.
    Read,
    /// Make this the content.
    Write(Bytes),
    /// Let there be no such block.
    Free,
    /// Make this the content if it is now what is expected: nothing, or content with this digest.
    CompareAndWrite {
        /// [`digest_of`] the expected content; `None`: there is no such block.
        expected: Option<Digest>,
        /// The new content.
        new: Bytes,
    },
    /// Nothing; it looks like every other query.
    Dummy,
}

/// What [`Operation::CompareAndWrite`] compares.
pub fn digest_of(block: &[u8]) -> Digest {
    tacita_secret::digest(block)
}

/// A query as its client has recorded it: all that is needed to finish it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Chosen at random by the client: tells whether the record is its own, and whether it came twice.
    pub request: RequestId,
    /// Which block.
    pub id: Id,
    /// What to do.
    pub operation: Operation,
    /// How many records the client had seen,
    pub seen: u64,
    /// and the head after them.
    pub head: Head,
}

const READ: u8 = 1;
const WRITE: u8 = 2;
const FREE: u8 = 3;
const COMPARE_ABSENT: u8 = 4;
const COMPARE_DIGEST: u8 = 5;
const DUMMY: u8 = 6;

impl Operation {
    /// As records and messages have it: its code, what it expects, what it writes.
    pub(crate) const fn parts(&self) -> (u8, Option<Digest>, Option<&Bytes>) {
        match self {
            Self::Read => (READ, None, None),
            Self::Write(block) => (WRITE, None, Some(block)),
            Self::Free => (FREE, None, None),
            Self::CompareAndWrite { expected: None, new } => (COMPARE_ABSENT, None, Some(new)),
            Self::CompareAndWrite { expected, new } => (COMPARE_DIGEST, *expected, Some(new)),
            Self::Dummy => (DUMMY, None, None),
        }
    }

    /// The operation of these parts; `None` if no operation has this code.
    pub(crate) fn of_parts(
        code: u8,
        expected: Digest,
        block: impl FnOnce() -> Bytes,
    ) -> Option<Self> {
        Some(match code {
            READ => Self::Read,
            WRITE => Self::Write(block()),
            FREE => Self::Free,
            COMPARE_ABSENT => Self::CompareAndWrite { expected: None, new: block() },
            COMPARE_DIGEST => Self::CompareAndWrite { expected: Some(expected), new: block() },
            DUMMY => Self::Dummy,
            _ => return None,
        })
    }
}

impl Record {
    /// The record, sealed under a key that follows from `salt`, which no other record has.
    pub fn seal(&self, keys: &Keys, salt: [u8; SALT_LEN], block_len: usize) -> Vec<u8> {
        let mut sealed = vec![0; RECORD_OVERHEAD + block_len];
        sealed[..SALT_LEN].copy_from_slice(&salt);
        let content = &mut sealed[SALT_LEN..RECORD_OVERHEAD - TAG_LEN + block_len];
        let (code, expected, block) = self.operation.parts();
        content[..16].copy_from_slice(&self.request);
        content[16..48].copy_from_slice(&self.id);
        content[48..80].copy_from_slice(&expected.unwrap_or_default());
        content[80..88].copy_from_slice(&self.seen.to_le_bytes());
        content[88..120].copy_from_slice(&self.head);
        content[120] = code;
        if let Some(block) = block {
            content[FIELDS_LEN..].copy_from_slice(block);
        }
        if block.is_none() && planted(Fault::LengthShown) {
            sealed.truncate(RECORD_OVERHEAD);
            return sealed;
        }
        let tag = keys.seal_record(&salt).seal(0, &[], content);
        sealed[RECORD_OVERHEAD - TAG_LEN + block_len..].copy_from_slice(&tag);
        sealed
    }

    /// The record in `sealed`.
    ///
    /// # Errors
    /// [`crate::Kind::Hostile`] if no client has sealed it.
    pub fn open(keys: &Keys, sealed: &[u8]) -> Result<Self> {
        let salt = sealed[..SALT_LEN].try_into().expect("a salt");
        let (content, tag) = sealed[SALT_LEN..].split_at(sealed.len() - SALT_LEN - TAG_LEN);
        let mut content = content.to_vec();
        let tag = tag.try_into().expect("the rest is a tag");
        let damaged = || forged("a record of the query log");
        keys.open_record(&salt).open(0, &[], &mut content, tag).map_err(|_| damaged())?;
        let content = Bytes::from(content);
        let block = || content.slice(FIELDS_LEN..);
        let expected: Digest = content[48..80].try_into().expect("a digest");
        let operation = Operation::of_parts(content[120], expected, block).ok_or_else(damaged)?;
        Ok(Self {
            request: content[..16].try_into().expect("an identifier"),
            id: content[16..48].try_into().expect("an id"),
            operation,
            seen: u64::from_le_bytes(content[80..88].try_into().expect("eight bytes")),
            head: content[88..120].try_into().expect("a head"),
        })
    }
}

/// What the lookups of a query have found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The query looked for nothing: an earlier record that lives is for the same block, or it is a
    /// dummy.
    Nothing,
    /// What the block was before the period's queries: `None` if there was no such block.
    Block(Option<Bytes>),
}

/// Where a result belongs: the query's sequence number, and the head after its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Sequence number.
    pub sequence: u64,
    /// Head.
    pub head: Head,
}

impl Position {
    fn context(&self) -> [u8; 40] {
        let mut context = [0; 40];
        context[..8].copy_from_slice(&self.sequence.to_le_bytes());
        context[8..].copy_from_slice(&self.head);
        context
    }
}

impl Found {
    /// The result, sealed for the query at `position` under a key that follows from `salt`.
    pub fn seal(
        &self,
        keys: &Keys,
        position: &Position,
        salt: [u8; SALT_LEN],
        block_len: usize,
    ) -> Vec<u8> {
        let mut sealed = vec![0; RESULT_OVERHEAD + block_len];
        sealed[..SALT_LEN].copy_from_slice(&salt);
        let content = &mut sealed[SALT_LEN..RESULT_OVERHEAD - TAG_LEN + block_len];
        match self {
            Self::Nothing => {}
            Self::Block(None) => content[0] = 1,
            Self::Block(Some(block)) => {
                content[0] = 2;
                content[RESULT_FIELDS_LEN..].copy_from_slice(block);
            }
        }
        let tag = keys.seal_result(&salt).seal(0, &position.context(), content);
        sealed[RESULT_OVERHEAD - TAG_LEN + block_len..].copy_from_slice(&tag);
        sealed
    }

    /// The result in `sealed`, for the query at `position`.
    ///
    /// # Errors
    /// [`crate::Kind::Hostile`] if no client has sealed it for this query.
    pub fn open(keys: &Keys, position: &Position, sealed: &[u8]) -> Result<Self> {
        let salt = sealed[..SALT_LEN].try_into().expect("a salt");
        let (content, tag) = sealed[SALT_LEN..].split_at(sealed.len() - SALT_LEN - TAG_LEN);
        let mut content = content.to_vec();
        let tag = tag.try_into().expect("the rest is a tag");
        let damaged = || forged("a result");
        keys.open_result(&salt)
            .open(0, &position.context(), &mut content, tag)
            .map_err(|_| damaged())?;
        match content[0] {
            0 => Ok(Self::Nothing),
            1 => Ok(Self::Block(None)),
            2 => Ok(Self::Block(Some(Bytes::from(content).slice(RESULT_FIELDS_LEN..)))),
            _ => Err(damaged()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tacita_secret::Key;

    fn keys() -> Keys {
        Keys::new(&Key::take(&mut [1; 32]), &[2; 16])
    }

    #[test]
    fn records_of_all_operations_have_one_length_and_come_back() {
        let block = Bytes::from(vec![7; 512]);
        let operations = [
            Operation::Read,
            Operation::Write(block.clone()),
            Operation::Free,
            Operation::CompareAndWrite { expected: None, new: block.clone() },
            Operation::CompareAndWrite { expected: Some([0; 32]), new: block },
            Operation::Dummy,
        ];
        for operation in operations {
            let record =
                Record { request: [1; 16], id: [2; 32], operation, seen: 77, head: [3; 32] };
            let sealed = record.seal(&keys(), [4; 16], 512);
            assert_eq!(sealed.len(), 512 + RECORD_OVERHEAD);
            assert_eq!(Record::open(&keys(), &sealed).unwrap(), record);
            for at in [0, 17, 300, sealed.len() - 1] {
                let mut altered = sealed.clone();
                altered[at] ^= 1;
                Record::open(&keys(), &altered).unwrap_err();
            }
        }
    }

    #[test]
    fn results_belong_to_their_queries() {
        let position = Position { sequence: 5, head: [6; 32] };
        let results =
            [Found::Nothing, Found::Block(None), Found::Block(Some(Bytes::from(vec![7; 512])))];
        for found in results {
            let sealed = found.seal(&keys(), &position, [4; 16], 512);
            assert_eq!(sealed.len(), 512 + RESULT_OVERHEAD);
            assert_eq!(Found::open(&keys(), &position, &sealed).unwrap(), found);
            for other in
                [Position { sequence: 6, ..position }, Position { head: [7; 32], ..position }]
            {
                Found::open(&keys(), &other, &sealed).unwrap_err();
            }
        }
    }
}
