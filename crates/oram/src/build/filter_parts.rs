//! Writing the filter of a generation, some pages at a time.

use std::ops::Range;

use bytes::Bytes;

use crate::build::{Job, Objects};
use crate::error::Result;
use crate::filter::{Entry, Page};
use crate::geometry::PAGE_LEN;
use crate::object::Object;

/// Parts of a filter that are made at once: 32 MiB.
const PARTS_AT_ONCE: u32 = 4;

/// Some parts, whose pages have no memory yet.
pub(super) struct Turn {
    parts: Range<u32>,
    first: u32,
    count: u32,
}

/// Pages of some parts, under construction.
pub(super) struct Pages {
    parts: Range<u32>,
    first: u32,
    made: Vec<Page>,
}

/// All pages of the filter, in turns that fit in memory.
pub(super) fn turns(job: &Job) -> impl Iterator<Item = Turn> {
    let shape = *job.keys.shape();
    (0..shape.parts).step_by(PARTS_AT_ONCE as usize).map(move |part| {
        let parts = part..(part + PARTS_AT_ONCE).min(shape.parts);
        let first = (0..part).map(|part| shape.pages_in(part)).sum();
        let count: u32 = parts.clone().map(|part| shape.pages_in(part)).sum();
        Turn { parts, first, count }
    })
}

impl Turn {
    /// The pages, empty.
    pub(super) fn begin(self) -> Pages {
        let made = (0..self.count).map(|_| Page::empty()).collect();
        Pages { parts: self.parts, first: self.first, made }
    }
}

impl Pages {
    /// Adds `entry`, if its page is among these.
    pub(super) fn insert(&mut self, job: &Job, entry: &Entry) {
        let page = job.keys.page_of(entry).checked_sub(self.first);
        if let Some(page) = page.and_then(|page| self.made.get_mut(page as usize)) {
            page.insert(entry);
        }
    }

    /// Seals the pages and puts their objects.
    pub(super) async fn put(self, job: &Job, objects: &dyn Objects) -> Result<()> {
        let mut numbered = (self.first..).zip(self.made);
        for part in self.parts {
            let count = job.keys.shape().pages_in(part) as usize;
            let mut object = Vec::with_capacity(count * PAGE_LEN);
            for (number, page) in numbered.by_ref().take(count) {
                object.extend_from_slice(&page.seal(&job.keys, number));
            }
            let generation = job.build.generation;
            objects.put(Object::Filter { generation, part }, Bytes::from(object)).await?;
        }
        Ok(())
    }
}
