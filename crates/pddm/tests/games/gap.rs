//! Sessions with the public password alone pass what lies on hidden volumes: what they have not
//! overwritten is carried when the volume is open again, and what they have is lost, and counted.

use std::sync::Arc;

use tacita_block::{BlockDevice, BlockNo};
use tacita_testkit::env_number;
use tacita_testkit::history::Rng;

use crate::devices::{
    BLOCK, blocks, content, entropy, make, make_room, memory, open, parameters, volume,
};

const UNITS: u64 = 60;
const GAP: u64 = 8;

/// A public-only session of so many units; returns what is wrong after it.
pub(crate) fn game(seed: u64, alone: u64) -> Vec<String> {
    let mut rng = Rng::new(seed);
    let device: Arc<dyn BlockDevice> = memory(blocks(UNITS));
    make(&device, &parameters(1), 1, entropy(seed, seed));
    let session = open(&device, 1, entropy(seed + 1, seed + 1));
    let count = volume(&session, 1).geometry().blocks - rng.below(20);
    for id in 0..count {
        let volume = volume(&session, 1);
        make_room(&session, &volume);
        volume.write(BlockNo(id), &content(id, 1)).unwrap();
    }
    for _ in 0..2 * UNITS + rng.below(UNITS) {
        session.beat().unwrap();
    }
    session.close().unwrap();
    drop(session);
    let session = open(&device, 0, entropy(seed + 2, seed + 2));
    for _ in 0..alone {
        session.beat().unwrap();
    }
    drop(session);
    let mut found = Vec::new();
    let session = open(&device, 1, entropy(seed + 3, seed + 3));
    let hidden = volume(&session, 1);
    let mut compare = |what: &str| {
        let mut lost = 0;
        for id in 0..hidden.geometry().blocks {
            let mut buf = vec![0; BLOCK];
            match hidden.read(BlockNo(id), &mut buf) {
                Ok(()) if id < count && buf == content(id, 1) => {}
                Ok(()) if id >= count && buf.iter().all(|byte| *byte == 0) => {}
                Ok(()) => found.push(format!("{what}: block {id} holds something else")),
                Err(_) => lost += 1,
            }
        }
        lost
    };
    let lost = [compare("reopened"), {
        for _ in 0..2 * UNITS {
            session.beat().unwrap();
        }
        compare("a round later")
    }];
    if lost[0] != lost[1] || (alone <= GAP && lost[0] > 0) || lost[0] != hidden.lost_blocks() {
        found.push(format!("{alone} units alone: {lost:?} lost, {} counted", hidden.lost_blocks()));
    }
    found.truncate(5);
    found
}

#[test]
fn what_was_passed_is_carried() {
    for seed in 0..env_number("TACITA_GAMES", 12) {
        for alone in [1, 3, 5, 8] {
            assert_eq!(game(seed, alone), Vec::<String>::new(), "seed {seed}, {alone} units");
        }
    }
}

#[test]
fn what_was_overwritten_is_lost_and_counted() {
    for seed in 0..env_number("TACITA_GAMES", 6) {
        for alone in [9, 14, 25, 40] {
            assert_eq!(game(seed, alone), Vec::<String>::new(), "seed {seed}, {alone} units");
        }
    }
}
