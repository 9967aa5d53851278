//! Ephemeral volumes: whatever is on the flash, no key of it is.

use std::sync::Arc;

use tacita_clock::System;
use tacita_dnefs::{Dnefs, Kind, PurgeScope, check, make_ephemeral};
use tacita_dnefs_audit::{audit, audit_memory, keys_used_twice};
use tacita_flash::Emulator;
use tacita_flash::emulator::Damage;
use tacita_testkit::MemoryFs;
use tacita_testkit::history::{Rng, step, tree};
use tacita_vfs::FileSystem;

use crate::deletion::{make, remove};
use crate::volumes::{LIMITS, dump, fresh, open, volume};

fn open_ephemeral(chip: &Arc<Emulator>, owner: (u32, u32)) -> Dnefs {
    Dnefs::open_ephemeral(volume(chip), owner, Arc::new(System)).unwrap()
}

/// A volume that held something and was made ephemeral, and its dump of before.
fn made_ephemeral(seed: u64) -> (Arc<Emulator>, Vec<u8>) {
    let chip = fresh(110, seed);
    let fs = open(&chip);
    make(&fs, "of before", &[7; 12_000]);
    fs.close().unwrap();
    drop(fs);
    let before = dump(&chip);
    make_ephemeral(&*chip).unwrap();
    (chip, before)
}

pub(crate) fn game() {
    for seed in 0..3 {
        let (chip, before) = made_ephemeral(seed);
        let report = audit(&before, &dump(&chip), &[], &|_, _| ()).unwrap();
        assert!(report.holds() && report.deleted > 10, "what it held is gone: {report:?}");
        for round in 0..3 {
            let fs = open_ephemeral(&chip, (0, 0));
            let mut rng = Rng::new(seed * 10 + round);
            let model = MemoryFs::default();
            for _ in 0..200 {
                step(&model, &mut rng.clone(), &LIMITS);
                step(&fs, &mut rng, &LIMITS);
            }
            fs.purge(PurgeScope::Deleted).unwrap();
            assert!(tree(&fs) == tree(&model), "it is used like any other");
            let during = dump(&chip);
            let report = audit(&during, &during, &[], &|_, _| ()).unwrap();
            assert!(report.holds() && report.deleted > 50, "while it is mounted: {report:?}");
            if round == 1 {
                fs.close().unwrap();
            }
            drop(fs);
            assert!(audit(&during, &dump(&chip), &[], &|_, _| ()).unwrap().holds(), "afterwards");
            assert!(keys_used_twice(&dump(&chip)).is_empty());
        }
    }
}

#[test]
fn no_key_of_an_ephemeral_volume_is_on_the_flash() {
    game();
}

#[test]
fn an_ephemeral_volume_is_empty_at_each_mount_and_opens_in_no_other_way() {
    let chip = fresh(110, 0);
    let ordinary = Dnefs::open_ephemeral(volume(&chip), (1, 2), Arc::new(System));
    assert_eq!(ordinary.unwrap_err().kind(), Kind::Parameters);
    make_ephemeral(&*chip).unwrap();
    for _ in 0..2 {
        let fs = open_ephemeral(&chip, (1, 2));
        assert!(fs.lookup(fs.root(), "file".as_ref()).is_err());
        let root = fs.attr(fs.root()).unwrap();
        assert_eq!((root.uid, root.gid), (1, 2));
        make(&fs, "file", &[1; 100]);
        fs.sync().unwrap();
    }
    let kind = Dnefs::open(volume(&chip), None, Arc::new(System)).unwrap_err().kind();
    assert_eq!(kind, Kind::Ephemeral);
    assert_eq!(check(&volume(&chip), None, &mut |_, _| {}).unwrap_err().kind(), Kind::Ephemeral);
}

/// No key is in a block that goes bad, so that a purge is complete all the same.
#[test]
fn blocks_that_cannot_be_erased_keep_no_key_of_an_ephemeral_volume() {
    let chip = fresh(110, 0);
    make_ephemeral(&*chip).unwrap();
    let fs = open_ephemeral(&chip, (0, 0));
    (0..110).for_each(|block| chip.damage(Damage::EraseFails { block }));
    make(&fs, "file", &[7; 12_000]);
    remove(&fs, "file");
    let receipt = fs.purge(PurgeScope::Deleted).unwrap();
    assert!(receipt.is_complete() && receipt.keys > 3, "{receipt:?}");
    assert!(fs.close().unwrap().is_complete() && !fs.was_incomplete());
}

/// Where no node is seen there is no key to look for: that nothing was found says nothing.
#[test]
fn an_audit_that_had_nothing_to_look_for_says_nothing() {
    let (chip, before) = made_ephemeral(0);
    let erased = dump(&chip);
    let report = audit(&erased, &erased, &[], &|_, _| ()).unwrap();
    assert_eq!((report.nodes, report.recoverable.len()), (0, 0), "{report:?}");
    assert!(!report.holds() && report.undecided.unwrap().contains("no node was found"));
    let report = audit_memory(&[], (&before, &erased), &[], &|_, _| ()).unwrap();
    assert!(report.deleted > 10 && report.windows == 0, "{report:?}");
    assert!(!report.holds() && report.undecided.unwrap().contains("too short"));
    assert!(audit(&before, &erased, &[], &|_, _| ()).unwrap().holds());
    // The wrong way round.
    let report = audit(&erased, &before, &[], &|_, _| ()).unwrap();
    assert!(!report.holds() && report.undecided.unwrap().contains("is newer"));
    // Where nothing was deleted, nothing of it is left.
    let dump = dump(&fresh(110, 0));
    let report = audit(&dump, &dump, &[], &|_, _| ()).unwrap();
    assert!(report.nodes > 0 && report.deleted == 0 && report.holds(), "{report:?}");
}
