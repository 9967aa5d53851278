//! Names within a directory or of attributes: found by a keyed hash, told apart by what their nodes hold.

use tacita_dnefs_format::Malformed;
use tacita_dnefs_format::record::{Dentry, IndexKey, Part, Xattr};
use tacita_secret::Prf;

use crate::error::{Error, Kind, Result};
use crate::store::Store;

/// What the function is used for: hashes of names.
const NAMES: u8 = 1;

/// The hash of names: nobody without the master key knows which name has which.
#[derive(Debug)]
pub(crate) struct NameHash(Prf);

impl NameHash {
    pub(crate) const fn new(key: [u8; 32]) -> Self {
        Self(Prf::new(key))
    }

    /// The first place that a name has within an inode.
    fn first_place(&self, ino: u64, name: &[u8]) -> u64 {
        let value = self.0.value(NAMES, &[&ino.to_le_bytes(), name]);
        let hash = u64::from_le_bytes(*value.first_chunk().expect("a digest is longer"));
        #[cfg(test)]
        let hash = hash & tests_mask();
        IndexKey::hashed(hash)
    }
}

/// In tests names collide often.
#[cfg(test)]
const fn tests_mask() -> u64 {
    0xf
}

/// What kind of name.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Named {
    /// An entry of a directory.
    Dentry,
    /// An extended attribute.
    Xattr,
}

impl Named {
    const fn at(self, ino: u64, place: u64) -> IndexKey {
        match self {
            Self::Dentry => IndexKey::dentry(ino, place),
            Self::Xattr => IndexKey::xattr(ino, place),
        }
    }

    fn has_name(self, payload: &[u8], name: &[u8]) -> std::result::Result<bool, Malformed> {
        Ok(match self {
            Self::Dentry => Dentry::decode(payload)?.name == name,
            Self::Xattr => Xattr::decode(payload)?.name == name,
        })
    }
}

/// Where a name is, or could be.
#[derive(Debug)]
pub(crate) struct Sought {
    /// Where it is, and the payload of its node.
    pub(crate) found: Option<(IndexKey, Vec<u8>)>,
    /// Where it could be put, if it is nowhere.
    free: Option<IndexKey>,
}

impl Sought {
    /// Where a node of this name belongs.
    pub(crate) fn place(&self) -> Result<IndexKey> {
        let place = self.found.as_ref().map(|(at, _)| *at).or(self.free);
        place.ok_or_else(|| Error::new(Kind::NoSpace, "too many names have the same hash"))
    }
}

/// Looks for a name.
pub(crate) fn seek(
    store: &Store,
    hash: &NameHash,
    named: Named,
    ino: u64,
    name: &[u8],
) -> Result<Sought> {
    let first = hash.first_place(ino, name);
    let start = named.at(ino, first);
    let end = IndexKey { sub: start.sub + IndexKey::SLOTS, ..start };
    let most = store.layout.leb_len_bytes as usize;
    let mut sought = Sought { found: None, free: None };
    let mut next = start;
    store.read(start..end, |at, opened| {
        if at > next {
            sought.free.get_or_insert(next);
        }
        next = IndexKey { sub: at.sub + 1, ..at };
        let payload = opened.payload(most)?;
        if named.has_name(&payload, name)? {
            sought.found = Some((at, payload));
        }
        Ok(())
    })?;
    if next < end {
        sought.free.get_or_insert(next);
    }
    Ok(sought)
}

/// The place of an entry within its directory, as a number that stays.
pub(crate) const fn place_of(at: IndexKey) -> Option<u64> {
    match at.part() {
        Some(Part::Dentry(place)) => Some(place),
        _ => None,
    }
}
