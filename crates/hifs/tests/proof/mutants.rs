//! Each planted fault must be caught by a game; without one, the same game passes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tacita_hifs::geometry::{Layout, Parameters};
use tacita_hifs::mutant::{Mutant, plant};

use crate::images::parameters;
use crate::{crash, permutation};

/// Whether a game fails with the fault planted.
pub(crate) fn catches(mutant: Option<Mutant>, game: impl Fn()) -> bool {
    plant(mutant);
    let outcome = catch_unwind(AssertUnwindSafe(game));
    plant(None);
    outcome.is_err()
}

fn permutation_game() {
    for seed in 0..4 {
        permutation::game(&parameters(Layout::D), seed, 120);
    }
}

fn crash_game() {
    let parameters = Parameters { len_bytes: 1 << 20, groups: Some(2), ..parameters(Layout::D) };
    for seed in 0..3 {
        crash::game(&parameters, seed, 4, 4);
    }
}

#[test]
fn every_fault_at_rest_is_caught() {
    assert!(!catches(None, permutation_game), "the game passes without a fault");
    for mutant in [
        Mutant::CounterInSuperblock,
        Mutant::JournalResidue,
        Mutant::FreedBucketResidue,
        Mutant::SlackResidue,
        Mutant::InsertionOrder,
        Mutant::MapResidue,
        Mutant::ClockTimes,
    ] {
        assert!(catches(Some(mutant), permutation_game), "{mutant:?} was not caught");
    }
}

#[test]
fn a_skipped_flush_is_caught() {
    assert!(!catches(None, crash_game), "the game passes without a fault");
    assert!(catches(Some(Mutant::SkippedFlush), crash_game));
}
