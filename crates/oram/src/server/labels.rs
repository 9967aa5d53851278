//! Where the items of a generation's buckets lie: labels are read once and kept within a bound.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::OnceCell;

use super::timed::Timed;
use crate::error::{Error, Kind, Result};
use crate::geometry::{ITEMS_HEADER_LEN, LABEL_LEN, items_header};
use crate::object::Object;

/// Labels of objects of items, those that were asked for last.
#[derive(Debug)]
pub(super) struct Labels {
    len_max: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    objects: HashMap<Object, Entry>,
    len: usize,
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    labels: Arc<OnceCell<Bytes>>,
    len: usize,
    last_use: u64,
}

impl Labels {
    /// Keeps `len_max` bytes at most, but what is asked for always.
    pub(super) fn new(len_max: usize) -> Self {
        Self { len_max, kept: Mutex::default() }
    }

    /// Where the item with `label` begins in `object`, which has `slots` items of `item_len` bytes; `None` if
    /// there is no such label or object. And whether the labels were in memory.
    ///
    /// # Errors
    /// [`Kind::Storage`], also if the object is not what it is called by.
    pub(super) async fn find(
        &self,
        store: &Timed,
        object: Object,
        (slots, item_len): (u32, usize),
        label: &[u8; LABEL_LEN],
    ) -> Result<(Option<u64>, bool)> {
        let len = slots as usize * LABEL_LEN;
        let cell = self.cell(object, len);
        let was_there = cell.initialized();
        let labels = match cell.get_or_try_init(|| read(store, object, slots, item_len)).await {
            Ok(labels) => labels,
            Err(error) => {
                self.forget(object);
                return error.map_or(Ok((None, was_there)), Err);
            }
        };
        let (labels, _) = labels.as_chunks::<LABEL_LEN>();
        let place = labels.binary_search(label).ok();
        let begin = (ITEMS_HEADER_LEN + len) as u64;
        Ok((place.map(|place| begin + (place * item_len) as u64), was_there))
    }

    /// The object is no more, or has to be read again.
    pub(super) fn forget(&self, object: Object) {
        let mut kept = self.lock();
        if let Some(entry) = kept.objects.remove(&object) {
            kept.len -= entry.len;
        }
    }

    /// Where the labels of `object` are, or will be as soon as somebody has read them: whoever else asks
    /// meanwhile waits for the same reading.
    fn cell(&self, object: Object, len: usize) -> Arc<OnceCell<Bytes>> {
        let mut kept = self.lock();
        kept.uses += 1;
        let now = kept.uses;
        if let Some(entry) = kept.objects.get_mut(&object) {
            entry.last_use = now;
            return entry.labels.clone();
        }
        while kept.len + len > self.len_max {
            let oldest = kept.objects.iter().min_by_key(|(_, entry)| entry.last_use);
            let Some(oldest) = oldest.map(|(object, _)| *object) else { break };
            let entry = kept.objects.remove(&oldest).expect("it was just found");
            kept.len -= entry.len;
        }
        let labels = Arc::new(OnceCell::new());
        kept.objects.insert(object, Entry { labels: labels.clone(), len, last_use: now });
        kept.len += len;
        labels
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The labels of `object`; the error `None` if there is no such object.
async fn read(
    store: &Timed,
    object: Object,
    slots: u32,
    item_len: usize,
) -> std::result::Result<Bytes, Option<Error>> {
    let end = (ITEMS_HEADER_LEN + slots as usize * LABEL_LEN) as u64;
    let bytes = store.get(object, 0..end).await.map_err(Some)?.ok_or(None)?;
    if !is_sound(&bytes, slots, item_len) {
        let what = format!("{object} does not begin with its header and sorted labels");
        return Err(Some(Error::new(Kind::Storage, what)));
    }
    Ok(bytes.slice(ITEMS_HEADER_LEN..))
}

/// Whether `bytes` begin with the header of an object of `slots` items of `item_len` bytes and as many
/// labels, each greater than the one before.
pub(super) fn is_sound(bytes: &[u8], slots: u32, item_len: usize) -> bool {
    let end = ITEMS_HEADER_LEN + slots as usize * LABEL_LEN;
    let Some((header, rest)) = bytes.split_at_checked(ITEMS_HEADER_LEN) else { return false };
    if header != items_header(slots, item_len) || bytes.len() < end {
        return false;
    }
    let (labels, _) = rest[..end - ITEMS_HEADER_LEN].as_chunks::<LABEL_LEN>();
    labels.is_sorted_by(|a, b| a < b)
}
