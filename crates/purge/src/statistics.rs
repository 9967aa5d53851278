//! What an overlay has done so far. No names: what is purged is not to live on here.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use crate::verdict::{Content, Verdict};
use crate::witness;

/// Verdicts that are remembered.
const VERDICTS_KEPT: usize = 32;

/// Counters and the last verdicts.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    pub(crate) files: Counter,
    pub(crate) folders: Counter,
    pub(crate) ranges: Counter,
    pub(crate) attributes: Counter,
    pub(crate) bytes_deleted: Counter,
    pub(crate) bytes_overwritten: Counter,
    pub(crate) bytes_in_memory: Counter,
    pub(crate) verified: Counter,
    pub(crate) in_place: Counter,
    pub(crate) never_stored: Counter,
    pub(crate) unproven: Counter,
    pub(crate) not_in_place: Counter,
    pub(crate) kept: Counter,
    pub(crate) links: Counter,
    pub(crate) epochs: Counter,
    pub(crate) recovered: Counter,
    /// Folders that an earlier mount had taken names from.
    pub(crate) folders_recovered: Counter,
    /// Folders in which something of a name is left.
    pub(crate) names_left: Counter,
    last: Mutex<VecDeque<Value>>,
    report: Mutex<Option<File>>,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Statistics {
    /// Every verdict is appended to `report` too, one line of JSON each.
    pub(crate) fn new(report: Option<File>) -> Self {
        Self { report: Mutex::new(report), ..Self::default() }
    }

    /// Counts a verdict's content, which is known before the rest of it.
    pub(crate) fn count(&self, verdict: &Verdict) {
        let counter = match verdict.content {
            Content::Verified(_) => &self.verified,
            Content::InPlace => &self.in_place,
            Content::NothingStored => &self.never_stored,
            Content::Unproven(_) => &self.unproven,
            Content::Shared(_) | Content::NotInPlace(_) => &self.not_in_place,
            Content::Kept(_) => &self.kept,
        };
        counter.add(1);
        self.bytes_overwritten.add(verdict.overwritten);
        self.bytes_in_memory.add(verdict.in_memory);
    }

    /// Tells a verdict that is final.
    pub(crate) fn tell(&self, verdict: &Verdict) {
        witness::told(verdict);
        let value = verdict.json();
        if let Some(report) = &mut *self.report.lock().unwrap_or_else(PoisonError::into_inner)
            && let Err(e) = writeln!(report, "{value}")
        {
            log::warn!("the report cannot be written: {e}");
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() == VERDICTS_KEPT {
            last.pop_front();
        }
        last.push_back(value);
    }

    /// Everything, for programs; verdicts that are not final come last.
    pub(crate) fn json(&self, pending: &[Verdict]) -> Value {
        let told = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let all = told.into_iter().chain(pending.iter().map(Verdict::json));
        let all: Vec<Value> = all.collect();
        let last = &all[all.len().saturating_sub(VERDICTS_KEPT)..];
        json!({
            "files": self.files.get(),
            "folders": self.folders.get(),
            "ranges": self.ranges.get(),
            "attributes": self.attributes.get(),
            "bytes_deleted": self.bytes_deleted.get(),
            "bytes_overwritten": self.bytes_overwritten.get(),
            "bytes_in_memory": self.bytes_in_memory.get(),
            "verified": self.verified.get(),
            "in_place": self.in_place.get(),
            "never_stored": self.never_stored.get(),
            "unproven": self.unproven.get(),
            "not_in_place": self.not_in_place.get(),
            "kept": self.kept.get(),
            "long_links": self.links.get(),
            "epochs": self.epochs.get(),
            "recovered": self.recovered.get(),
            "folders_recovered": self.folders_recovered.get(),
            "names_left": self.names_left.get(),
            "last": last,
        })
    }
}
