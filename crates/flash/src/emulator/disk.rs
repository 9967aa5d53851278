//! A file on a disk whose machine crashes; with the feature `faults` only.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::random::Random;

/// A disk writes so many bytes at once.
const SECTOR_LEN: usize = 512;

/// A file that is written in any order until it is synced.
#[derive(Debug, Default)]
pub struct Disk {
    content: Mutex<Content>,
}

#[derive(Debug, Default)]
struct Content {
    synced: Vec<u8>,
    now: Vec<u8>,
    /// What each sector has held since the last sync.
    since: BTreeMap<usize, Vec<Vec<u8>>>,
    /// So many writes and syncs are still done.
    left: Option<u64>,
    /// What cannot be read.
    unreadable: Option<Range<usize>>,
}

impl Content {
    /// Whether one more write or sync is done.
    fn is_alive(&mut self) -> bool {
        if let Some(left) = &mut self.left {
            let is_alive = *left > 0;
            *left = left.saturating_sub(1);
            return is_alive;
        }
        true
    }
}

impl Disk {
    /// The machine dies after so many writes and syncs: what comes then is lost, and nobody notices.
    pub fn die_after(&self, count: u64) {
        self.lock().left = Some(count);
    }

    /// From now on these bytes cannot be read; all others can, and all can be written.
    pub fn fail_reads(&self, bytes: Range<usize>) {
        self.lock().unreadable = Some(bytes);
    }

    /// Everything can be read again.
    pub fn heal(&self) {
        self.lock().unreadable = None;
    }

    /// Whether it has no write left.
    pub fn is_dead(&self) -> bool {
        self.lock().left == Some(0)
    }

    /// The disk after a crash now: each sector holds what was synced, or anything written since.
    #[must_use]
    pub fn crashed(&self, seed: u64) -> Self {
        let content = self.lock();
        let mut random = Random::new(seed, 0);
        let mut found = content.synced.clone();
        for (sector, versions) in &content.since {
            let chosen = random.below(versions.len() as u64 + 1);
            let chosen = usize::try_from(chosen).expect("versions are in memory");
            if let Some(version) = versions.get(chosen) {
                let at = sector * SECTOR_LEN;
                found[at..at + version.len()].copy_from_slice(version);
            }
        }
        let content = Content { synced: found.clone(), now: found, ..Content::default() };
        Self { content: Mutex::new(content) }
    }

    /// Everything on it.
    pub fn bytes(&self) -> Vec<u8> {
        self.lock().now.clone()
    }

    pub(super) fn len_bytes(&self) -> u64 {
        self.lock().now.len() as u64
    }

    pub(super) fn reset(&self, len_bytes: u64) {
        let zeros = vec![0; index(len_bytes)];
        *self.lock() = Content { synced: zeros.clone(), now: zeros, ..Content::default() };
    }

    pub(super) fn read(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        let at = index(at);
        let content = self.lock();
        let is_hit = |bad: &Range<usize>| bad.start < at + buf.len() && at < bad.end;
        if content.unreadable.as_ref().is_some_and(is_hit) {
            return Err(rustix::io::Errno::IO.into());
        }
        buf.copy_from_slice(&content.now[at..at + buf.len()]);
        Ok(())
    }

    pub(super) fn write(&self, data: &[u8], at: u64) {
        let mut content = self.lock();
        let content = &mut *content;
        if !content.is_alive() {
            return;
        }
        let at = index(at);
        content.now[at..at + data.len()].copy_from_slice(data);
        let touched = at / SECTOR_LEN..(at + data.len()).div_ceil(SECTOR_LEN);
        for sector in touched {
            let end = content.now.len().min((sector + 1) * SECTOR_LEN);
            let version = content.now[sector * SECTOR_LEN..end].to_vec();
            content.since.entry(sector).or_default().push(version);
        }
    }

    pub(super) fn sync(&self) {
        let mut content = self.lock();
        let content = &mut *content;
        if !content.is_alive() {
            return;
        }
        content.synced.clone_from(&content.now);
        content.since.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn index(at: u64) -> usize {
    usize::try_from(at).expect("a small disk")
}
