//! Building what fits in memory.

use std::collections::BTreeMap;

use crate::build::{Input, Job, Objects, Pace, bucket, filter_parts, source};
use crate::error::Result;
use crate::item::Item;
use crate::keys::Label;

/// Builds a generation of one bucket.
pub(super) async fn run(job: &Job, objects: &dyn Objects, pace: &dyn Pace) -> Result<()> {
    let mut newest: BTreeMap<Label, Item> = BTreeMap::new();
    let mut add = |items: Vec<Item>| {
        newest.extend(items.into_iter().map(|item| (job.keys.label(&item.id), item)));
    };
    if let (Some(current), Some(keys)) = (job.build.current, &job.current) {
        for bucket in 0..keys.shape().buckets {
            add(source::items(&job.geometry, (current, bucket), keys, objects, pace).await?);
        }
    }
    match &job.batch {
        Input::Log(items) => add(items.clone()),
        Input::Full(full, keys) => {
            for bucket in 0..keys.shape().buckets {
                add(source::items(&job.geometry, (*full, bucket), keys, objects, pace).await?);
            }
        }
    }
    // At the bottom there is nothing below that what is not there would have to hide.
    let is_bottom = job.is_bottom();
    let reals: Vec<(Label, Item)> =
        newest.into_iter().filter(|(_, item)| !is_bottom || item.block.is_some()).collect();
    let fakes: Vec<Label> =
        (0..job.keys.shape().fakes).map(|index| job.keys.fake_label(index)).collect();
    bucket::put(job, 0, &reals, &fakes, objects, pace).await?;
    for mut pages in filter_parts::turns(job) {
        for (_, item) in &reals {
            pages.insert(job, &job.keys.filter_entry(&item.id));
        }
        pages.put(job, objects).await?;
    }
    Ok(())
}
