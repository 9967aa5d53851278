//! What is said of keys in memory, and in files.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Says that keys may be swapped out, if the system did not let them be locked in memory: whatever the
/// keys are for, as all are in one place.
pub(crate) fn warn_of_swap() {
    if !tacita_secret::keys_are_locked() {
        log::warn!(
            "keys may be swapped out: the limit of locked memory is too low; raise it (`ulimit -l`, \
             LimitMEMLOCK= of a unit) before the next start, or encrypt the swap"
        );
    }
}

/// Says so if others than its owner can read a file with a key, as of one that was copied to and fro.
pub(crate) fn warn_of_readers(key: &Path) {
    // A special file is no place where a key lies.
    let is_open = |found: &std::fs::Metadata| found.is_file() && found.mode() & 0o077 != 0;
    if std::fs::metadata(key).is_ok_and(|found| is_open(&found)) {
        // What is logged names no files.
        log::warn!("the file of the key (--key) can be read by others: chmod 600 it");
    }
}
