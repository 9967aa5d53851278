//! Each planted fault must be caught by a game; without one, the same game passes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tacita_hifs::faults::{Fault, plant};
use tacita_hifs::geometry::{Layout, Parameters};

use crate::images::parameters;
use crate::{crash, fills, metamorphic, permutation, salvage};

/// Whether a game fails with the fault planted.
pub(crate) fn catches(fault: Option<Fault>, game: impl Fn()) -> bool {
    let _planted = fault.map(plant);
    catch_unwind(AssertUnwindSafe(game)).is_err()
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
    for fault in [
        Fault::CounterInSuperblock,
        Fault::JournalResidue,
        Fault::FreedBucketResidue,
        Fault::SlackResidue,
        Fault::InsertionOrder,
        Fault::MapResidue,
        Fault::ClockTimes,
    ] {
        assert!(catches(Some(fault), permutation_game), "{fault:?} was not caught");
    }
}

#[test]
fn what_is_left_at_the_ends_of_files_is_caught() {
    assert!(!catches(None, metamorphic::ends_game), "the game passes without a fault");
    assert!(catches(Some(Fault::ShortenedResidue), metamorphic::ends_game));
}

#[test]
fn faults_of_salvaging_are_caught() {
    let games: [(Fault, fn()); 3] = [
        (Fault::SalvagedFree, salvage::what_the_map_calls_free_is_not_looked_at),
        (Fault::SalvagedDeleted, salvage::a_file_that_was_deleted_in_use_stays_deleted),
        (Fault::SalvagedUnproven, salvage::missing_content_is_told_by_whoever_copies_it),
    ];
    for (fault, game) in games {
        assert!(catches(Some(fault), game), "{fault:?} was not caught");
    }
}

#[test]
fn a_skipped_flush_is_caught() {
    assert!(!catches(None, crash_game), "the game passes without a fault");
    assert!(catches(Some(Fault::SkippedFlush), crash_game));
}

#[test]
fn faults_of_filling_are_caught() {
    let game = || {
        fills::game(Layout::D, 2, 3);
    };
    assert!(!catches(None, game), "the game passes without a fault");
    for fault in [Fault::UnannouncedFill, Fault::UnflushedFill, Fault::KeptFill] {
        assert!(catches(Some(fault), game), "{fault:?} was not caught");
    }
}

#[test]
fn faults_of_clearing_are_caught() {
    let game = || (0..3).for_each(|seed| assert!(fills::clearing_game(Layout::D, seed, 3) > 0));
    assert!(!catches(None, game), "the game passes without a fault");
    for fault in [Fault::UnflushedLayer, Fault::KeptClear, Fault::UnflushedFill] {
        assert!(catches(Some(fault), game), "{fault:?} was not caught");
    }
}
