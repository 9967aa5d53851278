//! Each planted fault fails the check that is to notice it.

use std::panic::catch_unwind;

use tacita_flash::faults::{Fault, plant};
use tacita_flash::{Behaviour, Emulator, conformance};

use crate::cuts::{options, play, short};
use crate::machine;

fn fails(fault: Fault, check: fn()) {
    let _planted = plant(fault);
    assert!(catch_unwind(check).is_err(), "nothing notices {fault:?}");
}

fn cuts() {
    play(Behaviour::default(), &short());
}

#[test]
fn a_change_in_place_is_noticed() {
    fails(Fault::ChangeInPlace, cuts);
}

#[test]
fn a_skipped_erase_is_noticed() {
    fails(Fault::EraseSkipped, cuts);
}

#[test]
fn an_old_copy_that_wins_is_noticed() {
    fails(Fault::OldCopyWins, cuts);
}

#[test]
fn a_lone_copy_is_noticed() {
    fails(Fault::LoneCopy, || machine::play(4));
}

#[test]
fn an_erase_before_the_sync_is_noticed() {
    fails(Fault::EraseBeforeSync, || machine::play(4));
}

#[test]
fn an_erase_that_the_file_does_not_know_of_is_noticed() {
    fails(Fault::EraseUnannounced, || machine::play(4));
}

#[test]
fn a_page_that_is_programmed_twice_is_noticed() {
    fails(Fault::ProgramTwiceAllowed, || {
        conformance::check(&Emulator::in_memory(&options(Behaviour::default())).unwrap());
    });
}
