//! What follows from the one key that all clients of a store share.

use std::fmt;

use tacita_secret::{Digest, Key, Opening, PLACE_LEN, Places, Prf, Sealing};

use crate::faults::{Fault, planted};
use crate::geometry::{Generation, ID_LEN, LABEL_LEN, Shape};

/// Identifier of a block.
pub type Id = [u8; ID_LEN];
/// By what the server finds an item.
pub type Label = [u8; LABEL_LEN];
/// Hash of all records of the log up to one of them.
pub type Head = Digest;

// Domains of derivation. Keys of builds follow from the version of the format, too: two versions that
// build differently must not seal different bytes at the same place.
const ROOT: u8 = 1;
const RECORD: u8 = 2;
const RESULT: u8 = 3;
const MANIFEST: u8 = 4;
const GENERATION: u8 = 5;
const LABELS: u8 = 6;
const FILTER: u8 = 7;
const ITEMS: u8 = 8;
const CHAIN: u8 = 9;
const MANIFEST_SALT: u8 = 10;
const ENGINE: u8 = 11;
const AGREEMENT: u8 = 12;
const FORMAT_VERSION: u8 = 1;

/// What an engine and its users know each other by.
pub(crate) fn engine_key(key: &Key) -> Key {
    key.derive(ENGINE, &[])
}

/// The key of one store: of all that its key file opens, what belongs to one store's id.
#[derive(Clone)]
pub struct Keys {
    store: Key,
    chain: Prf,
}

impl Keys {
    /// What follows from `key` for the store `store_id`.
    pub fn new(key: &Key, store_id: &[u8; 16]) -> Self {
        let store = key.derive(0, &[store_id]);
        let chain = Prf::new(store.value(CHAIN, &[]));
        Self { store, chain }
    }

    /// What authenticates the root.
    pub fn root_mac(&self, root: &[u8]) -> Digest {
        self.store.value(ROOT, &[root])
    }

    /// What authenticates what clients have agreed on.
    pub fn agreement_mac(&self, agreement: &[u8]) -> Digest {
        self.store.value(AGREEMENT, &[agreement])
    }

    /// The head before the first record.
    pub fn genesis(&self) -> Head {
        self.chain.value(0, &[])
    }

    /// The head after `record`, sealed, which follows `head`.
    pub fn next_head(&self, head: &Head, record: &[u8]) -> Head {
        // The tag stands for all of the record.
        let tag = &record[record.len() - tacita_secret::TAG_LEN..];
        self.chain.value(1, &[head, &record[..16], tag])
    }

    pub(crate) fn seal_record(&self, salt: &[u8; 16]) -> Sealing {
        Sealing::under(&self.store, RECORD, &[salt])
    }

    pub(crate) fn open_record(&self, salt: &[u8; 16]) -> Opening {
        Opening::under(&self.store, RECORD, &[salt])
    }

    pub(crate) fn seal_result(&self, salt: &[u8; 16]) -> Sealing {
        Sealing::under(&self.store, RESULT, &[salt])
    }

    pub(crate) fn open_result(&self, salt: &[u8; 16]) -> Opening {
        Opening::under(&self.store, RESULT, &[salt])
    }

    /// What makes the key of a manifest its own: it follows from all that the manifest says, so that two
    /// logs that part never have two manifests under one key.
    pub(crate) fn manifest_salt(&self, period: u64, content: &[u8]) -> [u8; 16] {
        truncated(&self.store.value(MANIFEST_SALT, &[&period.to_le_bytes(), content]))
    }

    pub(crate) fn seal_manifest(&self, period: u64, salt: &[u8; 16]) -> Sealing {
        Sealing::under(&self.store, MANIFEST, &[&period.to_le_bytes(), salt])
    }

    pub(crate) fn open_manifest(&self, period: u64, salt: &[u8; 16]) -> Opening {
        Opening::under(&self.store, MANIFEST, &[&period.to_le_bytes(), salt])
    }

    /// The keys of `generation`, whose content is decided by all records up to `head`.
    pub fn generation(&self, generation: Generation, shape: Shape, head: &Head) -> GenerationKeys {
        let number = generation.number.to_le_bytes();
        let own =
            self.store.derive(GENERATION, &[&[FORMAT_VERSION, generation.level], &number, head]);
        let labels = if planted(Fault::UntouchedStays) { &self.store } else { &own };
        GenerationKeys {
            shape,
            labels: Prf::new(labels.value(LABELS, &[])),
            filter: Prf::new(own.value(FILTER, &[])),
            places: Places::new(&own.derive(ITEMS, &[])),
        }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// The keys of one generation: where its items are found, and what seals them.
#[derive(Debug)]
pub struct GenerationKeys {
    shape: Shape,
    labels: Prf,
    filter: Prf,
    places: Places,
}

/// What lies under the keys of a generation, each with places of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Item = 0,
    Page = 1,
    Cell = 2,
    Entries = 3,
}

/// A place: kind, object and number within it.
pub(crate) fn place(kind: Kind, object: u32, number: u32) -> [u8; PLACE_LEN] {
    let mut place = [0; PLACE_LEN];
    place[..4].copy_from_slice(&object.to_le_bytes());
    place[4..8].copy_from_slice(&number.to_le_bytes());
    place[8] = kind as u8;
    place
}

impl GenerationKeys {
    /// What the generation consists of.
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    pub(crate) const fn places(&self) -> &Places {
        &self.places
    }

    /// The label of block `id`.
    pub fn label(&self, id: &Id) -> Label {
        truncated(&self.labels.value(0, &[id]))
    }

    /// The label that the query asks which is number `index` in the generation's life, if it looks for
    /// nothing here.
    pub fn fake_label(&self, index: u64) -> Label {
        truncated(&self.labels.value(1, &[&index.to_le_bytes()]))
    }

    /// The label of padding number `index` of `bucket`: nobody asks for it.
    pub fn padding_label(&self, bucket: u32, index: u32) -> Label {
        let value = self.labels.value(2, &[&bucket.to_le_bytes(), &index.to_le_bytes()]);
        let mut label: Label = truncated(&value);
        let buckets = u64::from(self.shape.buckets);
        let begin = |bucket: u64| (bucket << 32).div_ceil(buckets);
        let (from, to) = (begin(u64::from(bucket)), begin(u64::from(bucket) + 1));
        let random = u64::from(u32::from_be_bytes([label[0], label[1], label[2], label[3]]));
        let prefix = from + ((random * (to - from)) >> 32);
        let prefix = u32::try_from(prefix).expect("a bucket's prefixes are below 2^32");
        label[..4].copy_from_slice(&prefix.to_be_bytes());
        label
    }

    /// What the filter knows of block `id`.
    pub(crate) fn filter_entry(&self, id: &Id) -> [u8; 16] {
        let mut entry: [u8; 16] = truncated(&self.filter.value(0, &[id]));
        if planted(Fault::FilterByNumber) {
            entry[7] = (entry[7] & 0x7f) | (id[0] << 7);
        }
        entry
    }

    /// The page that the query asks which is number `index` in the generation's life, if it looks for
    /// nothing here.
    pub fn fake_page(&self, index: u64) -> u32 {
        self.page_of(&truncated(&self.filter.value(1, &[&index.to_le_bytes()])))
    }

    /// The page that an entry belongs to.
    pub(crate) fn page_of(&self, entry: &[u8; 16]) -> u32 {
        let random = u64::from_le_bytes(entry[..8].try_into().expect("eight bytes")) >> 32;
        ((random * u64::from(self.shape.pages)) >> 32) as u32
    }
}

fn truncated<const N: usize>(digest: &Digest) -> [u8; N] {
    digest[..N].try_into().expect("a digest is longer")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Geometry;

    #[test]
    fn padding_belongs_to_its_bucket() {
        let geometry = Geometry::new(4096, 256, 4, 1 << 20).unwrap();
        let generation = Generation { level: 6, number: 40 };
        let shape = geometry.shape(generation);
        assert!(shape.buckets > 100);
        let keys = Keys::new(&Key::take(&mut [1; 32]), &[2; 16]);
        let keys = keys.generation(generation, shape, &[3; 32]);
        for bucket in [0, 1, 77, shape.buckets - 1] {
            for index in 0..200 {
                assert_eq!(shape.bucket_of(&keys.padding_label(bucket, index)), bucket);
            }
        }
    }
}
