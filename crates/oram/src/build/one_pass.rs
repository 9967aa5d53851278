//! Building what fits in memory.

use std::collections::BTreeMap;

use crate::build::{Job, Objects, Pace, bucket, filter_parts, slots, source};
use crate::error::Result;
use crate::item::Item;
use crate::keys::Label;

/// Builds a generation of one bucket.
pub(super) async fn run(job: &Job, objects: &dyn Objects, pace: &dyn Pace) -> Result<()> {
    let mut newest: BTreeMap<Label, Item> = BTreeMap::new();
    // What is newer comes later.
    for (chunk, _) in source::chunks(job) {
        let items = chunk.items(job, objects, pace).await?;
        newest.extend(items.into_iter().map(|item| (job.keys.label(&item.id), item)));
    }
    let reals: Vec<(Label, Item)> =
        newest.into_iter().filter(|(_, item)| job.keeps(item)).collect();
    let entries: Vec<_> = reals.iter().map(|(_, item)| job.keys.filter_entry(&item.id)).collect();
    let fakes: Vec<Label> =
        (0..job.keys.shape().fakes).map(|index| job.keys.fake_label(index)).collect();
    bucket::put(job, 0, reals, &fakes, objects, pace).await?;
    // Not so near the end as it looks: the filter, and what follows on the build, take their time.
    let left = slots(&job.geometry, job.build.generation).div_ceil(2);
    pace.moved(left / 2).await?;
    for turn in filter_parts::turns(job) {
        let mut pages = turn.begin();
        for entry in &entries {
            pages.insert(job, entry);
        }
        pages.put(job, objects).await?;
    }
    pace.moved(left - left / 2).await
}
