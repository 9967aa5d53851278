//! What a witness is shown and told.

use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{Advice, fadvise};

use crate::extents::Map;
use crate::verdict::Verdict;
use crate::xattrs;

/// What a witness hears of.
#[derive(Debug)]
pub enum Event {
    /// A file, or a range of it, is about to be overwritten.
    Purging(Evidence),
    /// A verdict is final.
    Told(Verdict),
}

/// What is to be gone when a verdict holds.
#[derive(Debug, Default)]
pub struct Evidence {
    /// The inode number that the verdict will name.
    pub inode: u64,
    /// It is a range of a file that lives on.
    pub is_range: bool,
    /// The name that it has lost.
    pub name: Vec<u8>,
    /// What it holds, as far as it is not longer than anybody wants to search for.
    pub content: Vec<u8>,
    /// Values of its attributes.
    pub values: Vec<Vec<u8>>,
}

type Witness = Box<dyn Fn(Event) + Send + Sync>;

static WITNESS: Mutex<Option<Witness>> = Mutex::new(None);

/// Content that a witness is shown at most, in bytes.
const CONTENT_LEN_MAX: u64 = 4 << 20;

/// Calls `witness` with whatever is purged in this process, and with each verdict, from now on.
pub fn call_witness(witness: impl Fn(Event) + Send + Sync + 'static) {
    *WITNESS.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(witness));
}

/// Shows the witness what is about to be overwritten: a file, or a range of one that lives on.
pub(crate) fn show(file: &File, inode: u64, name: Option<&OsStr>, range: Option<Range<u64>>) {
    let witness = WITNESS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(witness) = &*witness else {
        return;
    };
    let is_range = range.is_some();
    let range = range.unwrap_or_else(|| 0..file.metadata().map_or(0, |meta| meta.len()));
    let range = range.start..range.end.min(range.start + CONTENT_LEN_MAX);
    let content = content(file, &range).unwrap_or_default();
    let names = if is_range { Vec::new() } else { xattrs::names(file).unwrap_or_default() };
    let data = names.iter().filter(|name| xattrs::is_data(name));
    let values = data.filter_map(|name| xattrs::value(file, name).ok()).collect();
    let name = name.map(|name| name.as_bytes().to_vec()).unwrap_or_default();
    witness(Event::Purging(Evidence { inode, is_range, name, content, values }));
}

/// What a file holds in a range, without its holes. What nobody has written to is not read: as it is
/// in memory then, it would be taken for content.
fn content(file: &File, range: &Range<u64>) -> Option<Vec<u8>> {
    fadvise(file, 0, None, Advice::Random).ok()?;
    let mut content = Vec::new();
    for extent in Map::of_data(file).ok()?.within(range).extents {
        let mut part = vec![0; usize::try_from(extent.len).ok()?];
        file.read_exact_at(&mut part, extent.logical).ok()?;
        content.extend(part);
    }
    fadvise(file, 0, None, Advice::Normal).ok()?;
    Some(content)
}

/// Tells the witness a verdict.
pub(crate) fn told(verdict: &Verdict) {
    if let Some(witness) = &*WITNESS.lock().unwrap_or_else(PoisonError::into_inner) {
        witness(Event::Told(verdict.clone()));
    }
}
