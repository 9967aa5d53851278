//! What is said of keys in memory.

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
