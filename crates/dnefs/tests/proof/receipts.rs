//! Receipts: one for each purge, in a chain that lives through unmounting, power cuts and much else.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use tacita_clock::Simulated;
use tacita_dnefs::{Dnefs, FormatOptions, PurgeScope, Receipt, check, format, receipts};
use tacita_dnefs_audit::audit;
use tacita_flash::Emulator;
use tacita_flash::emulator::Damage;
use tacita_testkit::history::{Rng, step};
use tacita_vfs::{FileSystem, FileType, Kind, NewNode, Stamps, Timestamp};

use crate::deletion::{make, remove};
use crate::volumes::{LIMITS, dump, fresh, open, options, volume};

fn offline(chip: &Arc<Emulator>) -> Vec<Receipt> {
    receipts(&volume(chip), None).unwrap()
}

pub(crate) fn game() {
    let chip = fresh(80, 0);
    let mut given: Vec<Receipt> = Vec::new();
    for round in 0..6 {
        let fs = open(&chip);
        make(&fs, "file", &[round; 5000]);
        remove(&fs, "file");
        let scope = [PurgeScope::Deleted, PurgeScope::All][usize::from(round % 2)];
        let receipt = fs.purge(scope).unwrap();
        assert!(receipt.keys >= 4 && receipt.key_lebs > 0 && receipt.is_complete(), "{receipt:?}");
        assert_eq!(receipt.of_all, scope == PurgeScope::All);
        given.push(receipt);
        assert_eq!(fs.receipts().unwrap(), given, "while it is mounted");
        if round == 3 {
            // Power is cut; the next mount purges, and gives a receipt of its own.
            drop(fs);
            assert_eq!(offline(&chip), given, "after a power cut");
            let fs = open(&chip);
            let all = fs.receipts().unwrap();
            assert_eq!(all[..given.len()], given);
            assert_eq!(all.len(), given.len() + 1);
            given = all;
            given.push(fs.close().unwrap());
        } else {
            given.push(fs.close().unwrap());
        }
        assert_eq!(offline(&chip), given, "after unmounting");
        let dump = dump(&chip);
        let report = audit(&dump, &dump, &[], &|_, _| ()).unwrap();
        assert_eq!((report.receipts, report.receipts_whole), (given.clone(), true));
        assert!(check(&volume(&chip), None, &mut |_, _| {}).unwrap().wrong.is_empty());
    }
    assert!(given.is_sorted_by(|a, b| a.epoch < b.epoch));
}

#[test]
fn every_purge_gives_a_receipt_that_stays() {
    game();
}

#[test]
fn the_oldest_receipts_go_where_there_are_many() {
    let chip = fresh(80, 1);
    let fs = open(&chip);
    let mut rng = Rng::new(1);
    let mut last = Vec::new();
    for _ in 0..400 {
        step(&fs, &mut rng, &LIMITS);
        last.push(fs.purge(PurgeScope::Deleted).unwrap());
    }
    let kept = fs.receipts().unwrap();
    assert!(kept.len() >= 16 && kept.len() < 400, "{}", kept.len());
    assert!(last.ends_with(&kept));
    fs.close().unwrap();
    assert!(check(&volume(&chip), None, &mut |_, _| {}).unwrap().wrong.is_empty());
}

#[test]
fn a_receipt_tells_when_and_of_blocks_that_could_not_be_erased() {
    let chip = fresh(80, 0);
    let clock = Arc::new(Simulated::at(UNIX_EPOCH));
    let fs = Dnefs::open(volume(&chip), None, clock.clone()).unwrap();
    make(&fs, "file", &[1; 5000]);
    remove(&fs, "file");
    let first = fs.purge(PurgeScope::Deleted).unwrap();
    clock.advance(Duration::from_secs(77));
    make(&fs, "file", &[1; 5000]);
    remove(&fs, "file");
    for block in 0..80 {
        chip.damage(Damage::EraseFails { block });
    }
    let second = fs.purge(PurgeScope::Deleted).unwrap();
    assert_eq!(second.time.secs, first.time.secs + 77);
    assert!(!second.is_complete() && second.bad_after > second.bad_before, "{second:?}");
    assert_eq!(fs.receipts().unwrap(), [first, second]);
}

/// Where keys run out they are purged in between, without a receipt: the next one tells of those too.
#[test]
fn a_receipt_tells_of_all_keys_since_the_one_before() {
    let chip = fresh(80, 0);
    format(&volume(&chip), &FormatOptions { key_lebs: Some(2), ..options(0) }, None).unwrap();
    let fs = open(&chip);
    fs.purge(PurgeScope::Deleted).unwrap();
    let node = make(&fs, "file", &[1; 100]);
    for value in 0..3000u32 {
        fs.write(node, 0, &value.to_le_bytes(), Stamps::NONE).unwrap();
    }
    assert!(fs.usage().keys < 1500);
    assert!(fs.keys_waiting() >= 3000 && fs.bytes_waiting() >= 3000 * 72, "none is erased yet");
    let receipt = fs.purge(PurgeScope::Deleted).unwrap();
    assert_eq!((fs.keys_waiting(), fs.bytes_waiting()), (0, 0));
    assert!(receipt.keys >= 3000 && receipt.key_lebs > 2, "{receipt:?}");
}

/// Where nothing can be written any more, deletions are purged all the same, again and again.
#[test]
fn a_full_volume_is_purged_with_receipts() {
    for (key_lebs, len, why) in [(None, 4000, Kind::NoSpace), (Some(2), 100, Kind::Quota)] {
        let chip = fresh(80, 0);
        let limited = FormatOptions { key_lebs, ..options(0) };
        format(&volume(&chip), &limited, None).unwrap();
        let fs = open(&chip);
        let mut number = 0;
        let noise = Rng::new(1).bytes(len);
        let mut fill = || {
            let before = number;
            loop {
                let name = format!("file {number}");
                let new = NewNode::new(FileType::File, 0o600, Timestamp::default());
                let made = fs.create(fs.root(), name.as_ref(), &new);
                let full = made.and_then(|(node, _)| fs.write(node, 0, &noise, Stamps::NONE));
                number += 1;
                if let Err(e) = full {
                    assert_eq!(e.kind(), why);
                    return before..number - 1;
                }
            }
        };
        let mut there = fill();
        assert!(there.len() > 100, "{there:?}");
        for _ in 0..20 {
            let receipt = fs.purge(PurgeScope::Deleted).unwrap();
            assert_eq!(fs.receipts().unwrap().last(), Some(&receipt));
            for _ in 0..3 {
                remove(&fs, &format!("file {}", there.start));
                there.start += 1;
            }
            let receipt = fs.purge(PurgeScope::Deleted).unwrap();
            assert!(receipt.keys >= 9, "{receipt:?}");
            there.end = fill().end.max(there.end);
        }
        fs.close().unwrap();
        assert!(check(&volume(&chip), None, &mut |_, _| {}).unwrap().wrong.is_empty());
        let fs = open(&chip);
        let oldest = format!("file {}", there.start);
        assert!(fs.is_sound() && fs.lookup(fs.root(), oldest.as_ref()).is_ok());
        remove(&fs, &oldest);
        assert!(fs.purge(PurgeScope::Deleted).unwrap().keys >= 3);
        fs.close().unwrap();
    }
}
