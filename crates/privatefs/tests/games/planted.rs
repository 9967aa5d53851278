//! Each planted fault makes a game fail.

use std::panic::catch_unwind;

use tacita_privatefs::faults::{Fault, plant};
use tacita_privatefs::{Kind, Options};

use crate::counts::{are_equal, of_one_class, of_one_kind, padded};
use crate::crashes::{cut_everywhere, holes_stay_holes};
use crate::turns::{NOTHING, fight, join_killed, join_living, stand_still};
use crate::world::World;

#[test]
fn reading_ahead_to_the_end_of_a_file_shows() {
    let _planted = plant(Fault::ReadAheadToTheEnd);
    assert!(are_equal(&Options::default(), of_one_kind()).unwrap_err().starts_with("a read"));
}

#[test]
fn freeing_only_what_is_there_shows() {
    let _planted = plant(Fault::FreesTheLiving);
    let error = are_equal(&Options::default(), of_one_kind()).unwrap_err();
    assert!(error.starts_with("a file is deleted"), "{error}");
}

#[test]
fn a_hit_that_asks_nothing_shows() {
    let _planted = plant(Fault::HitUnpadded);
    assert!(are_equal(&padded(), of_one_class()).is_err());
}

#[test]
fn writing_over_what_was_not_read_shows() {
    let _planted = plant(Fault::OverwritesUnread);
    let error = are_equal(&padded(), of_one_class()).unwrap_err();
    assert!(error.starts_with("blocks that are there"), "{error}");
}

#[test]
fn a_journal_over_the_one_before_loses_that_commit() {
    let _planted = plant(Fault::JournalOverwritten);
    assert!(catch_unwind(|| cut_everywhere(0..4, 3)).is_err());
}

#[test]
fn a_commit_without_a_journal_is_half_done_after_a_crash() {
    let _planted = plant(Fault::JournalSkipped);
    assert!(catch_unwind(|| cut_everywhere(0..4, 3)).is_err());
}

#[test]
fn content_that_comes_after_its_commit_is_lost_in_a_crash() {
    let _planted = plant(Fault::ContentLate);
    assert!(catch_unwind(|| cut_everywhere(0..4, 3)).is_err());
}

#[test]
fn a_journal_that_nobody_replays_leaves_half_a_commit() {
    let _planted = plant(Fault::ReplaySkipped);
    assert!(catch_unwind(|| cut_everywhere(0..4, 3)).is_err());
}

#[test]
fn what_is_left_in_a_hole_that_is_covered_comes_up() {
    let _planted = plant(Fault::LeftUncovered);
    assert!(catch_unwind(holes_stay_holes).is_err());
}

#[test]
fn a_mount_that_does_not_look_whose_turn_it_is_does_harm() {
    let begin = || -> Box<dyn std::any::Any> { Box::new(plant(Fault::TurnUnchecked)) };
    assert!(catch_unwind(|| stand_still(begin)).is_err());
}

#[test]
fn a_cache_that_outlives_a_turn_shows_what_was() {
    let begin = || -> Box<dyn std::any::Any> { Box::new(plant(Fault::CacheKept)) };
    assert!(catch_unwind(|| fight(0, 2, 60, &begin)).is_err());
    fight(0, 2, 20, NOTHING);
}

#[test]
fn places_that_stay_with_the_dead_keep_others_out() {
    let begin = || -> Box<dyn std::any::Any> { Box::new(plant(Fault::PlacesStay)) };
    let joined = join_killed(&World::new(), &begin);
    assert_eq!(joined.unwrap_err().kind(), Kind::Busy);
}

#[test]
fn a_mount_that_sees_no_signs_of_life_takes_places_of_the_living() {
    let _planted = plant(Fault::LifeUnseen);
    let (_all, joined) = join_living(&World::new());
    assert!(joined.is_ok());
}
