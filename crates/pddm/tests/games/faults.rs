//! Each planted fault is noticed. (Design note, section 5.5.)

use std::sync::Arc;

use tacita_block::{BlockDevice, BlockNo, FaultDevice};
use tacita_pddm::faults::{Fault, plant};
use tacita_testkit::history::Rng;

use crate::content::{findings, units};
use crate::devices::{blocks, content, entropy, make, open, parameters, shape, volume};
use crate::worlds::{Scenario, difference, play};

const GAMES: u64 = 40;

/// Whether any of so many games ends with something found.
fn caught(fault: Fault, game: impl Fn(u64) -> Vec<String>) {
    for seed in 0..GAMES {
        let _planted = plant(fault);
        if !game(seed).is_empty() {
            return;
        }
    }
    panic!("{fault:?} was not noticed in {GAMES} games");
}

fn two_worlds(seed: u64) -> Vec<String> {
    difference(&Scenario::random(seed * 1000))
}

fn written_bytes(seed: u64) -> Vec<String> {
    findings(&units(&play(&Scenario::random(seed * 1000 + 77), true).device))
}

/// A power cut loses units; other content is written under the same numbers. No two units of
/// different content have the same salt.
fn repeated_salts(seed: u64) -> Vec<String> {
    let device = Arc::new(FaultDevice::new(shape(blocks(40))));
    let dynamic: Arc<dyn BlockDevice> = device.clone();
    make(&dynamic, &parameters(1), 1, entropy(seed, seed));
    let mut all = Vec::new();
    let mut image = device.content();
    for life in 0..2 {
        let device = Arc::new(FaultDevice::from_bytes(image.clone(), 4096).unwrap());
        let dynamic: Arc<dyn BlockDevice> = device.clone();
        let session = open(&dynamic, 1, entropy(seed + life + 1, seed + life + 1));
        let mut rng = Rng::new(seed + life);
        for step in 0..60 {
            let id = rng.below(60);
            volume(&session, 0).write(BlockNo(id), &content(id, step + 1000 * life)).unwrap();
        }
        drop(session);
        all.extend(units(&device));
        // Nothing of it was flushed: all is lost.
        let recording = device.recording();
        image = recording.crash_image(recording.events().len(), 0);
    }
    let mut salts = std::collections::HashMap::new();
    let mut found = Vec::new();
    for unit in all {
        let salt = unit[..32].to_vec();
        if salts.insert(salt, unit.clone()).is_some_and(|other| other != unit) {
            found.push("a salt comes with two contents".to_owned());
        }
    }
    found
}

/// Somebody who has the password of the first hidden volume learns of the second.
#[test]
fn a_leak_between_hidden_volumes() {
    caught(Fault::SharedClass, crate::levels::difference);
}

/// The guesser is no worse than it must be: it sees a leak that is there.
#[test]
fn the_guesser_sees_a_leak() {
    let _planted = plant(Fault::ZeroDummies);
    let score = crate::guess::score(7, 100);
    assert!(score.accuracy >= 0.95, "{score:?}");
}

/// Promises that a power cut shows to be broken.
#[test]
fn faults_that_a_cut_shows() {
    for fault in [Fault::SkippedFlush, Fault::EarlyReuse, Fault::BlindRecovery] {
        caught(fault, |seed| {
            let held = std::panic::catch_unwind(|| crate::crash::game(seed)).is_ok();
            if held { Vec::new() } else { vec!["a promise is broken".to_owned()] }
        });
    }
}

/// Promises on stale and damaged units, on public-only sessions and on hidden flushes.
#[test]
fn faults_that_break_promises() {
    caught(Fault::StaleUnits, crate::stale::game);
    caught(Fault::ForgottenPages, crate::stale::damaged_headers);
    caught(Fault::ForgottenGap, |seed| crate::gap::game(seed, 5));
    caught(Fault::OpenEpochs, crate::epochs::game);
}

#[test]
fn a_change_of_password_that_shows() {
    caught(Fault::QuietPassword, crate::maintenance::passwords);
}

#[test]
fn salts_never_repeat() {
    assert_eq!(repeated_salts(3), Vec::<String>::new());
}

#[test]
fn leaks_in_what_is_written_where() {
    for fault in [
        Fault::FlushWrites,
        Fault::SkippedUnits,
        Fault::SharedPages,
        Fault::HiddenRecovery,
        Fault::ForwardedDiscard,
        Fault::CountedVolumes,
        Fault::HiddenPressure,
    ] {
        caught(fault, two_worlds);
    }
    caught(Fault::HiddenUnread, crate::bad_sectors::difference);
}

#[test]
fn leaks_in_what_is_written() {
    for fault in [
        Fault::CopiedCiphertext,
        Fault::ZeroDummies,
        Fault::StaleCell,
        Fault::WeakDummies,
        Fault::ZeroTags,
    ] {
        caught(fault, written_bytes);
    }
    caught(Fault::RepeatedSalt, repeated_salts);
}
