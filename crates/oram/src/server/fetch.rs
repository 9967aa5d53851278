//! Reading for clients: steps of lookups, pieces of objects, names.

use bytes::Bytes;

use super::Core;
use crate::error::Result;
use crate::geometry::PAGE_LEN;
use crate::object::Object;
use crate::wire::{Answer, ItemAddress, NAMES_MAX, PageAddress, Refusal};

impl Core {
    /// A page and an item, read at the same time. If either is not there nothing is told.
    pub(super) async fn fetch(
        &self,
        page: Option<PageAddress>,
        item: Option<ItemAddress>,
    ) -> Answer {
        let (page, item) = tokio::join!(self.page(page), self.item(item));
        match (page, item) {
            (Ok(Found::Absent), Ok(_)) | (Ok(_), Ok(Found::Absent)) => {
                Answer::Refused(Refusal::Absent)
            }
            (Ok(page), Ok(item)) => Answer::Fetched { page: page.bytes(), item: item.bytes() },
            _ => Answer::Refused(Refusal::Storage),
        }
    }

    async fn page(&self, address: Option<PageAddress>) -> Result<Found> {
        let Some(PageAddress { generation, page }) = address else { return Ok(Found::Unasked) };
        let geometry = self.geometry.get().filter(|geometry| geometry.has(generation));
        let Some(shape) = geometry.map(|geometry| geometry.shape(generation)) else {
            return Ok(Found::Absent);
        };
        if page >= shape.pages {
            return Ok(Found::Absent);
        }
        let (part, offset) = shape.part_of(page);
        let object = Object::Filter { generation, part };
        self.part(object, offset, PAGE_LEN).await
    }

    async fn item(&self, address: Option<ItemAddress>) -> Result<Found> {
        let Some(ItemAddress { generation, label }) = address else { return Ok(Found::Unasked) };
        let Some(geometry) = self.geometry.get().filter(|geometry| geometry.has(generation)) else {
            return Ok(Found::Absent);
        };
        let shape = geometry.shape(generation);
        let object = Object::Items { generation, bucket: shape.bucket_of(&label) };
        let form = (shape.slots, geometry.item_len());
        let (offset, was_there) = self.labels.find(&self.store, object, form, &label).await?;
        self.metrics.labels[usize::from(!was_there)].add(1);
        let Some(offset) = offset else { return Ok(Found::Absent) };
        self.part(object, offset, geometry.item_len()).await
    }

    async fn part(&self, object: Object, offset: u64, len: usize) -> Result<Found> {
        let bytes = self.store.get(object, offset..offset + len as u64).await?;
        Ok(bytes.map_or(Found::Absent, Found::Bytes))
    }

    pub(super) async fn get(&self, object: Object, offset: u64, len: u32) -> Answer {
        let Some(end) = offset.checked_add(u64::from(len)) else {
            return Answer::Refused(Refusal::Absent);
        };
        match self.store.get(object, offset..end).await {
            Ok(Some(bytes)) => return Answer::Bytes(bytes),
            Ok(None) => return Answer::Refused(Refusal::Absent),
            Err(_) => {}
        }
        match self.store.len(object).await {
            Ok(whole) if whole.is_none_or(|whole| whole < end) => Answer::Refused(Refusal::Absent),
            _ => Answer::Refused(Refusal::Storage),
        }
    }

    /// Removes an object, but not what queries may need in the next moment.
    pub(super) async fn delete(&self, object: Object) -> Answer {
        let is_needed = match object {
            Object::Log { first } => {
                let period = self.geometry.get().map(|geometry| first / geometry.period());
                !period.is_some_and(|period| self.feed().is_past(period))
            }
            // Without a root there is no store that needs it.
            Object::Results { period } | Object::Manifest { period } => {
                self.geometry.get().is_some() && !self.feed().is_past(period)
            }
            _ => false,
        };
        if is_needed {
            return Answer::Refused(Refusal::Malformed);
        }
        if self.store.delete(object).await.is_err() {
            return Answer::Refused(Refusal::Storage);
        }
        match object {
            Object::Log { first } => self.feed().forget(first),
            Object::Items { .. } => self.labels.forget(object),
            _ => {}
        }
        Answer::Done
    }

    pub(super) async fn names(&self, prefix: &str, after: Option<Object>) -> Answer {
        let Ok(mut names) = self.store.list(prefix).await else {
            return Answer::Refused(Refusal::Storage);
        };
        let after = after.map(|object| object.encode());
        names.retain(|name| after.is_none_or(|after| name.encode() > after));
        names.sort_unstable_by_key(Object::encode);
        names.truncate(NAMES_MAX);
        Answer::Names(names)
    }
}

/// What came of one half of a step.
enum Found {
    Unasked,
    Absent,
    Bytes(Bytes),
}

impl Found {
    fn bytes(self) -> Option<Bytes> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Unasked | Self::Absent => None,
        }
    }
}
