//! Every window of a key's length as a key.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

use tacita_dnefs_format::{CipherChoice, key_page};
use tacita_secret::{CheckValue, check_value_of};

use crate::Progress;
use crate::dump::Dump;

/// Windows between two tellings of progress.
const TOLD_EVERY: usize = 1 << 20;

/// Where a key was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the dump as it is, so many bytes from its start.
    Raw(usize),
    /// In a page of keys that a master key opens.
    KeyPage {
        /// Which erase block of the key storage area.
        leb: u32,
        /// Which page of it.
        page: u32,
        /// The epoch in which it was written.
        epoch: u64,
    },
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) keys: HashMap<CheckValue, Place>,
    pub(crate) windows: u64,
}

/// Looks for keys in a dump, as it is and in its pages of keys.
pub(crate) fn search(
    dump: &Dump<'_>,
    cipher: CipherChoice,
    wanted: &HashSet<CheckValue>,
    progress: Progress<'_>,
) -> Found {
    let mut found = windows(dump.bytes, cipher, wanted, progress);
    for page in &dump.key_pages {
        let keys = &page.bytes[key_page::HEADER_LEN..];
        for window in keys.windows(cipher.key_len()) {
            found.windows += 1;
            let value = check_value_of(cipher, window);
            if wanted.contains(&value) {
                let key_page::Place { leb, page, epoch } = page.place;
                found.keys.insert(value, Place::KeyPage { leb, page, epoch });
            }
        }
    }
    found
}

/// Looks for keys in bytes as they are, on all processors.
pub(crate) fn windows(
    bytes: &[u8],
    cipher: CipherChoice,
    wanted: &HashSet<CheckValue>,
    progress: Progress<'_>,
) -> Found {
    let searched = AtomicU64::new(0);
    let told = |windows: usize| {
        let before = searched.fetch_add(windows as u64, Ordering::Relaxed);
        progress(before + windows as u64, bytes.len() as u64);
    };
    let told = &told;
    let len = cipher.key_len();
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let part = bytes.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let parts: Vec<_> = (0..bytes.len())
            .step_by(part)
            .map(|start| {
                let end = bytes.len().min(start + part + len - 1);
                scope.spawn(move || part_windows(&bytes[start..end], start, cipher, wanted, told))
            })
            .collect();
        let mut all = Found::default();
        for part in parts {
            let found = part.join().expect("it only computes");
            all.windows += found.windows;
            all.keys.extend(found.keys);
        }
        all
    })
}

fn part_windows(
    bytes: &[u8],
    start: usize,
    cipher: CipherChoice,
    wanted: &HashSet<CheckValue>,
    told: &dyn Fn(usize),
) -> Found {
    let mut found = Found::default();
    // How many bytes before this one are equal to it: erased flash is one such run.
    let mut equal = 0;
    for (at, window) in bytes.windows(cipher.key_len()).enumerate() {
        found.windows += 1;
        if at % TOLD_EVERY == TOLD_EVERY - 1 {
            told(TOLD_EVERY);
        }
        let last = window[window.len() - 1];
        equal = if at > 0 && last == window[window.len() - 2] { equal + 1 } else { 0 };
        if equal > window.len() {
            continue;
        }
        let value = check_value_of(cipher, window);
        if wanted.contains(&value) {
            found.keys.insert(value, Place::Raw(start + at));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_at_any_byte_and_at_the_seams() {
        for cipher in [CipherChoice::Aes128Ctr, CipherChoice::Aes256Gcm] {
            let len = cipher.key_len();
            let key: Vec<u8> = (0..32u8).map(|n| n.wrapping_mul(37)).take(len).collect();
            let wanted = HashSet::from([check_value_of(cipher, &key)]);
            for at in (0..3000 - len).step_by(7).chain([1500 - len / 2, 1500, 3000 - len]) {
                let mut bytes = vec![0xff; 3000];
                bytes[at..at + len].copy_from_slice(&key);
                let found = windows(&bytes, cipher, &wanted, &|_, _| ());
                assert_eq!(found.keys.values().collect::<Vec<_>>(), [&Place::Raw(at)]);
                assert_eq!(found.windows, 3000 - len as u64 + 1);
            }
            assert!(windows(&[0xff; 3000], cipher, &wanted, &|_, _| ()).keys.is_empty());
            let erased = HashSet::from([check_value_of(cipher, &vec![0xff; len])]);
            assert_eq!(windows(&[0xff; 3000], cipher, &erased, &|_, _| ()).keys.len(), 1);
        }
    }
}
