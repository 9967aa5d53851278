//! Writing a bucket: its real items, the fakes that belong to it and padding, sorted by label.

use bytes::Bytes;

use crate::build::{ITEMS_AT_ONCE, Job, Objects, Pace};
use crate::error::{Error, Kind, Result};
use crate::geometry::{ITEMS_HEADER_LEN, items_header};
use crate::item::{Item, seal_item};
use crate::keys::Label;
use crate::object::Object;

/// Puts `bucket` with `reals` and the labels of its `fakes`, and tells `pace` of half of its items: when the
/// rest is as good as moved depends on what else there is to do. Items are sealed and given back one by one:
/// there is never more than one bucket of them in memory, sealed or not.
pub(super) async fn put(
    job: &Job,
    bucket: u32,
    reals: Vec<(Label, Item)>,
    fakes: &[Label],
    objects: &dyn Objects,
    pace: &dyn Pace,
) -> Result<()> {
    let shape = job.keys.shape();
    let slots = shape.slots as usize;
    let Some(padding) = slots.checked_sub(reals.len() + fakes.len()) else {
        return Err(overfull());
    };
    let mut all: Vec<(Label, Option<Item>)> = Vec::with_capacity(slots);
    all.extend(reals.into_iter().map(|(label, item)| (label, Some(item))));
    all.extend(fakes.iter().map(|label| (*label, None)));
    let padding = u32::try_from(padding).expect("slots are numbered by 32 bits");
    all.extend((0..padding).map(|index| (job.keys.padding_label(bucket, index), None)));
    all.sort_unstable_by_key(|(label, _)| *label);

    let item_len = job.geometry.item_len();
    let mut object = Vec::with_capacity(ITEMS_HEADER_LEN + slots * (16 + item_len));
    object.extend_from_slice(&items_header(shape.slots, item_len));
    object.extend(all.iter().flat_map(|(label, _)| label));
    let mut sealed = 0;
    for (slot, (label, item)) in (0..).zip(all) {
        let block_len = job.geometry.block_len();
        seal_item(&job.keys, (bucket, slot), &label, item.as_ref(), block_len, &mut object);
        sealed += 1;
        if sealed == ITEMS_AT_ONCE {
            pace.moved(std::mem::take(&mut sealed) / 2).await?;
        }
    }
    pace.moved(sealed / 2).await?;
    let generation = job.build.generation;
    objects.put(Object::Items { generation, bucket }, Bytes::from(object)).await
}

/// More has come than there is room for: by chance less often than once in 2^80 builds.
pub(super) fn overfull() -> Error {
    Error::new(Kind::NoSpace, "a build has more blocks than the store was made for")
}
