//! Each planted fault must be caught by a game; without one, the same game passes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tacita_dnefs::faults::{Fault, plant};

use crate::{crash, deletion, ephemeral, model, receipts};

/// Whether a game fails with the fault planted.
fn catches(fault: Option<Fault>, game: impl Fn()) -> bool {
    let _planted = fault.map(plant);
    catch_unwind(AssertUnwindSafe(game)).is_err()
}

#[test]
fn every_fault_of_purging_is_caught() {
    assert!(!catches(None, deletion::game), "the game passes without a fault");
    for fault in [Fault::EraseSkipped, Fault::DeletedKept, Fault::CheckpointKept] {
        assert!(catches(Some(fault), deletion::game), "{fault:?} was not caught");
    }
}

#[test]
fn sensitive_files_that_wait_are_caught() {
    assert!(!catches(None, deletion::sensitive_game), "the game passes without a fault");
    assert!(catches(Some(Fault::SensitiveWaits), deletion::sensitive_game));
}

#[test]
fn unused_keys_that_stay_are_caught() {
    assert!(!catches(None, deletion::unused_game), "the game passes without a fault");
    assert!(catches(Some(Fault::UnusedKept), deletion::unused_game));
}

#[test]
fn every_fault_of_mounting_is_caught() {
    let game = || assert!(crash::cut_everywhere(crash::Workload::new(1, 40), 3).0 > 0);
    assert!(!catches(None, game), "the game passes without a fault");
    for fault in [Fault::KeysTrusted, Fault::HalfGroups, Fault::ReadersRecover] {
        assert!(catches(Some(fault), game), "{fault:?} was not caught");
    }
}

#[test]
fn a_cache_that_outlives_a_purge_is_caught() {
    let game = || model::play(0, 400, 200);
    assert!(!catches(None, game), "the game passes without a fault");
    assert!(catches(Some(Fault::CacheKept), game));
}

#[test]
fn a_receipt_that_is_not_kept_is_missed() {
    assert!(!catches(None, receipts::game), "the game passes without a fault");
    assert!(catches(Some(Fault::ReceiptLost), receipts::game));
}

#[test]
fn keys_of_an_ephemeral_volume_on_the_flash_are_caught() {
    assert!(!catches(None, ephemeral::game), "the game passes without a fault");
    assert!(catches(Some(Fault::EphemeralKept), ephemeral::game));
}

#[test]
fn names_in_clear_are_caught() {
    assert!(!catches(None, deletion::clear_game), "the game passes without a fault");
    assert!(catches(Some(Fault::NamesInClear), deletion::clear_game));
}

#[test]
fn moved_nodes_that_lose_their_keys_are_caught() {
    let game = || assert!(crash::cut_everywhere(crash::Workload::full(0, 9), 400).1 > 0);
    assert!(!catches(None, game), "the game passes without a fault");
    assert!(catches(Some(Fault::MovedRemarked), game));
}
