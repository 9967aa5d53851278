//! Reading an input, one bucket after the other.

use crate::build::{Objects, Pace};
use crate::error::Result;
use crate::geometry::{Generation, Geometry, ITEMS_HEADER_LEN, LABEL_LEN};
use crate::item::{Item, open_item_at};
use crate::keys::GenerationKeys;
use crate::object::Object;

/// Items that are opened before others get the processor.
const ITEMS_AT_ONCE: usize = 256;

/// What is real among the items of a bucket.
pub(crate) async fn items(
    geometry: &Geometry,
    (generation, bucket): (Generation, u32),
    keys: &GenerationKeys,
    objects: &dyn Objects,
    pace: &dyn Pace,
) -> Result<Vec<Item>> {
    let shape = keys.shape();
    let begin = ITEMS_HEADER_LEN as u64;
    let len = shape.items_len(geometry.item_len()) - begin;
    let bytes = objects.get(Object::Items { generation, bucket }, begin, len).await?;
    let slots = shape.slots as usize;
    let (labels, sealed) = bytes.split_at(slots * LABEL_LEN);
    let mut items = Vec::new();
    let mut opened = 0;
    let pairs = labels.as_chunks().0.iter().zip(sealed.chunks_exact(geometry.item_len()));
    for (slot, (label, sealed)) in (0..).zip(pairs) {
        items.extend(open_item_at(keys, (bucket, slot), label, sealed)?);
        opened += 1;
        if opened == ITEMS_AT_ONCE {
            pace.moved(std::mem::take(&mut opened) as u64).await?;
        }
    }
    pace.moved(opened as u64).await?;
    Ok(items)
}
