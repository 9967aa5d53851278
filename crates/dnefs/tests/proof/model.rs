//! DNEFS beside a file system in memory: the same operations, the same tree, and at every step keys
//! that are used as the index says.

use std::sync::Arc;

use tacita_dnefs::PurgeScope;
use tacita_testkit::MemoryFs;
use tacita_testkit::env_number;
use tacita_testkit::history::{Rng, step, tree};
use tacita_vfs::FileSystem;

use crate::volumes::{LIMITS, fresh, open};

pub(crate) fn play(seed: u64, steps: u32, blocks: u32) {
    let mut rng = Rng::new(seed);
    let mut chip = fresh(blocks, seed);
    let mut dnefs = open(&chip);
    let model = MemoryFs::default();
    for number in 0..steps {
        let what = format!("seed {seed}, step {number}");
        step(&model, &mut rng.clone(), &LIMITS);
        step(&dnefs, &mut rng, &LIMITS);
        assert!(dnefs.is_sound(), "{what}");
        match rng.below(60) {
            0..3 => dnefs.sync().unwrap(),
            3 => {
                let scope = [PurgeScope::Deleted, PurgeScope::All][(number % 2) as usize];
                dnefs.purge(scope).unwrap();
                assert_eq!(dnefs.keys_waiting(), 0, "{what}");
            }
            4 => {
                dnefs.close().unwrap();
                drop(dnefs);
                dnefs = open(&chip);
            }
            5 => {
                dnefs.sync().unwrap();
                drop(dnefs);
                chip = Arc::new(chip.power_on().unwrap());
                dnefs = open(&chip);
            }
            _ => continue,
        }
        assert!(dnefs.is_sound(), "{what}");
        assert!(tree(&dnefs) == tree(&model), "{what}");
    }
    assert!(tree(&dnefs) == tree(&model), "seed {seed}");
}

#[test]
fn does_what_a_file_system_in_memory_does() {
    for seed in 0..env_number("TACITA_SEEDS", 6) {
        play(seed, 400, 200);
    }
}

/// There is just room: garbage is collected and keys are purged all the time.
#[test]
fn does_so_on_a_small_volume_too() {
    for seed in 0..env_number("TACITA_SEEDS", 3) {
        play(seed, 1500, 110);
    }
}
