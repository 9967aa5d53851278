//! Items: blocks as generations keep them, all of one length whatever they are.
//!
//! Sealed: number of the object, number within it (both in clear), then under AES-256-GCM the block's
//! id, kind and age, and the block; then the tag.

use bytes::Bytes;

use crate::error::{Error, Kind as ErrorKind, Result};
use crate::geometry::{ID_LEN, ITEM_OVERHEAD};
use crate::keys::{self, GenerationKeys, Id, Label};

const CLEAR_LEN: usize = 8;
const META_LEN: usize = ID_LEN + 8;
const TAG_LEN: usize = tacita_secret::TAG_LEN;
const _: () = assert!(CLEAR_LEN + META_LEN + TAG_LEN == ITEM_OVERHEAD);

const NOTHING: u8 = 0;
const PRESENT: u8 = 1;
const ABSENT: u8 = 2;

/// A block that was asked for, and its content: `None` if there is no such block (any more).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Which block.
    pub id: Id,
    /// Its content, as long as blocks of the store are.
    pub block: Option<Bytes>,
}

/// What is sealed: an item, or nothing of the same length.
pub(crate) type Sealable<'a> = Option<&'a Item>;

/// Appends `item` to `out`, sealed as number `slot` of the items of `bucket`, to be found by `label`.
pub(crate) fn seal_item(
    keys: &GenerationKeys,
    (bucket, slot): (u32, u32),
    label: &Label,
    item: Sealable<'_>,
    block_len: usize,
    out: &mut Vec<u8>,
) {
    seal(keys, keys::Kind::Item, (bucket, slot), label, (item, 0), block_len, out);
}

/// Opens an item that the server gave for `label`; `None` if it is none.
///
/// # Errors
/// [`ErrorKind::Hostile`] if it is not what was sealed for this label.
pub(crate) fn open_item(
    keys: &GenerationKeys,
    label: &Label,
    sealed: &[u8],
) -> Result<Option<Item>> {
    let bucket = u32::from_le_bytes(sealed[..4].try_into().expect("four bytes"));
    if bucket != keys.shape().bucket_of(label) {
        return Err(forged("an item"));
    }
    Ok(open(keys, keys::Kind::Item, label, sealed)?.map(|(item, _)| item))
}

/// Opens number `slot` of the items of `bucket`, which has `label`.
///
/// # Errors
/// [`ErrorKind::Hostile`] if it is not what was sealed there.
pub(crate) fn open_item_at(
    keys: &GenerationKeys,
    (bucket, slot): (u32, u32),
    label: &Label,
    sealed: &[u8],
) -> Result<Option<Item>> {
    if sealed[..CLEAR_LEN] != keys::place(keys::Kind::Item, bucket, slot)[..CLEAR_LEN] {
        return Err(forged("an item"));
    }
    open_item(keys, label, sealed)
}

/// Appends `item` to `out`, sealed as number `index` of the cells of `chunk`; `age` tells apart what
/// comes from where.
pub(crate) fn seal_cell(
    keys: &GenerationKeys,
    (chunk, index): (u32, u32),
    item: Option<(&Item, u8)>,
    block_len: usize,
    out: &mut Vec<u8>,
) {
    let (item, age) = item.unzip();
    seal(keys, keys::Kind::Cell, (chunk, index), &[], (item, age.unwrap_or(0)), block_len, out);
}

/// Opens number `index` of the cells of `chunk`.
///
/// # Errors
/// [`ErrorKind::Hostile`] if it is not what was sealed there.
pub(crate) fn open_cell(
    keys: &GenerationKeys,
    (chunk, index): (u32, u32),
    sealed: &[u8],
) -> Result<Option<(Item, u8)>> {
    let place = keys::place(keys::Kind::Cell, chunk, index);
    if sealed[..CLEAR_LEN] != place[..CLEAR_LEN] {
        return Err(forged("an item between two passes"));
    }
    open(keys, keys::Kind::Cell, &[], sealed)
}

fn seal(
    keys: &GenerationKeys,
    kind: keys::Kind,
    (object, number): (u32, u32),
    context: &[u8],
    (item, age): (Sealable<'_>, u8),
    block_len: usize,
    out: &mut Vec<u8>,
) {
    let place = keys::place(kind, object, number);
    out.extend_from_slice(&place[..CLEAR_LEN]);
    let begin = out.len();
    out.resize(begin + META_LEN + block_len, 0);
    let fields = &mut out[begin..];
    if let Some(item) = item {
        fields[..ID_LEN].copy_from_slice(&item.id);
        fields[ID_LEN] = if item.block.is_some() { PRESENT } else { ABSENT };
        fields[ID_LEN + 1] = age;
        if let Some(block) = &item.block {
            fields[META_LEN..].copy_from_slice(block);
        }
    }
    let tag = keys.places().seal(&place, context, fields);
    out.extend_from_slice(&tag);
}

fn open(
    keys: &GenerationKeys,
    kind: keys::Kind,
    context: &[u8],
    sealed: &[u8],
) -> Result<Option<(Item, u8)>> {
    let mut place = keys::place(kind, 0, 0);
    place[..CLEAR_LEN].copy_from_slice(&sealed[..CLEAR_LEN]);
    let (fields, tag) = sealed[CLEAR_LEN..].split_at(sealed.len() - CLEAR_LEN - TAG_LEN);
    let tag = tag.try_into().expect("the rest is a tag");
    let mut fields = fields.to_vec();
    keys.places().open(&place, context, &mut fields, tag).map_err(|_| forged("an item"))?;
    let is_present = match fields[ID_LEN] {
        NOTHING => return Ok(None),
        PRESENT => true,
        ABSENT => false,
        _ => return Err(forged("an item")),
    };
    let age = fields[ID_LEN + 1];
    let id = fields[..ID_LEN].try_into().expect("an id");
    let block = is_present.then(|| Bytes::from(fields).slice(META_LEN..));
    Ok(Some((Item { id, block }, age)))
}

/// What the server gave is not what a client has sealed.
pub(crate) fn forged(what: &str) -> Error {
    Error::new(
        ErrorKind::Hostile,
        format!("{what} from the server is not what was sealed: altered, or from elsewhere"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{Generation, Geometry};
    use crate::keys::Keys;
    use tacita_secret::Key;

    #[test]
    fn items_open_at_their_labels_alone_and_have_one_length() {
        let geometry = Geometry::new(512, 16, 2, 100).unwrap();
        let generation = Generation { level: 1, number: 1 };
        let keys = Keys::new(&Key::take(&mut [1; 32]), &[2; 16]);
        let keys = keys.generation(generation, geometry.shape(generation), &[3; 32]);
        let present = Item { id: [5; 32], block: Some(Bytes::from(vec![9; 512])) };
        let absent = Item { id: [6; 32], block: None };
        for item in [Some(&present), Some(&absent), None] {
            let mut sealed = Vec::new();
            seal_item(&keys, (0, 3), &[4; 16], item, 512, &mut sealed);
            assert_eq!(sealed.len(), geometry.item_len());
            assert_eq!(open_item(&keys, &[4; 16], &sealed).unwrap().as_ref(), item);
            open_item(&keys, &[5; 16], &sealed).unwrap_err();
            for at in [0, 5, 9, 60, sealed.len() - 1] {
                let mut altered = sealed.clone();
                altered[at] ^= 1;
                assert_eq!(
                    open_item(&keys, &[4; 16], &altered).unwrap_err().kind(),
                    ErrorKind::Hostile
                );
            }
        }
    }
}
