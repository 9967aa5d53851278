//! Changes of the superblock that are cut short: what was to be taken away is gone with the next mount.

use std::sync::Arc;

use tacita_clock::System;
use tacita_dnefs::{Dnefs, check, make_ephemeral, set_password};
use tacita_dnefs_audit::{Closed, audit};
use tacita_flash::emulator::{CutMode, Damage};
use tacita_flash::{Emulator, Leb, Volume};
use tacita_secret::Password;

use crate::deletion::make;
use crate::volumes::{dump, fresh, open, volume};

/// Where superblocks are: docs/spec/dnefs.md, section 1.
const SUPERBLOCK_LEBS: [u32; 2] = [0, 1];

/// A volume that holds something, unmounted.
fn filled() -> Arc<Emulator> {
    let chip = fresh(110, 0);
    let fs = open(&chip);
    make(&fs, "of before", &[7; 12_000]);
    fs.close().unwrap();
    drop(fs);
    Arc::new(chip.power_on().unwrap())
}

/// Does something on copies of a chip, each without power from another operation on, until one has all
/// the power that it takes; the chips when the power has come back.
fn cut_short(chip: &Emulator, mode: CutMode, act: impl Fn(&Emulator)) -> Vec<Arc<Emulator>> {
    let mut cut = Vec::new();
    loop {
        let copy = chip.snapshot().unwrap();
        let first = copy.operations();
        copy.cut_at(first + cut.len() as u64, mode);
        act(&copy);
        if copy.operations() <= first + cut.len() as u64 {
            return cut;
        }
        cut.push(Arc::new(copy.power_on().unwrap()));
    }
}

/// Whether there is a superblock in a dump that needs no password.
fn opens_without(dump: &[u8]) -> bool {
    match audit(dump, dump, &[], &|_, _| ()) {
        Ok(_) => true,
        Err(Closed::WrongPassword) => false,
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn a_change_of_password_that_is_cut_short_is_finished_by_the_next_mount() {
    let password = Password::new(b"new".to_vec());
    let chips = cut_short(&filled(), CutMode::Torn, |chip| {
        let _ = set_password(chip, None, Some(&password));
    });
    assert!(chips.len() > 6, "{}", chips.len());
    let mut halves = 0;
    for (at, chip) in chips.iter().enumerate() {
        if let Ok(found) = check(&volume(chip), None, &mut |_, _| {}) {
            assert!(found.wrong.is_empty(), "cut at {at}: {:?}", found.wrong);
            continue;
        }
        let found = check(&volume(chip), Some(&password), &mut |_, _| {}).unwrap();
        let is_told = found.wrong.iter().any(|wrong| wrong.contains("the superblock in block 1"));
        halves += u32::from(is_told);
        assert!(is_told || found.wrong.is_empty(), "cut at {at}: {:?}", found.wrong);
        let fs = Dnefs::open(volume(chip), Some(&password), Arc::new(System)).unwrap();
        assert!(!is_told || !opens_without(&dump(chip)), "cut at {at}: while it is mounted");
        fs.close().unwrap();
        assert!(!opens_without(&dump(chip)), "cut at {at}: after it");
        let found = check(&volume(chip), Some(&password), &mut |_, _| {}).unwrap();
        assert!(found.wrong.is_empty(), "cut at {at}: {:?}", found.wrong);
    }
    assert!(halves > 1, "only one of the superblocks was changed: {halves}");
}

#[test]
fn a_copy_of_the_superblock_that_is_lost_is_told_and_made_again() {
    for lost in SUPERBLOCK_LEBS {
        let chip = filled();
        chip.unmap(Leb(lost)).unwrap();
        chip.flush_erases().unwrap();
        let wrong = || check(&volume(&chip), None, &mut |_, _| {}).unwrap().wrong;
        assert_eq!(wrong().len(), 1, "{:?}", wrong());
        open(&chip).close().unwrap();
        assert!(wrong().is_empty(), "{:?}", wrong());
    }
}

/// Whether a mount of an ephemeral volume tells of blocks of keys that cannot be erased.
fn is_told_of_bad(chip: &Emulator) -> bool {
    let chip = Arc::new(chip.snapshot().unwrap());
    for block in 0..110 {
        chip.damage(Damage::EraseFails { block });
    }
    Dnefs::open_ephemeral(volume(&chip), (0, 0), Arc::new(System))
        .is_ok_and(|fs| fs.was_incomplete())
}

#[test]
fn what_an_ephemeral_volume_held_is_gone_though_its_end_was_cut_short() {
    let chip = filled();
    let before = dump(&chip);
    let chips = cut_short(&chip, CutMode::Torn, |chip| {
        let _ = make_ephemeral(chip);
    });
    let (mut begun, mut left, mut told) = (0, 0, 0);
    for (at, chip) in chips.iter().enumerate() {
        let cut = audit(&before, &dump(chip), &[], &|_, _| ()).unwrap();
        told += u32::from(!cut.recoverable.is_empty() && is_told_of_bad(chip));
        let Ok(fs) = Dnefs::open_ephemeral(volume(chip), (0, 0), Arc::new(System)) else {
            assert!(check(&volume(chip), None, &mut |_, _| {}).unwrap().wrong.is_empty());
            continue;
        };
        begun += 1;
        // As long as keys are left, all that there was can be decrypted.
        assert!(cut.in_use == 0 && cut.undecided.is_none(), "cut at {at}: {cut:?}");
        left += u32::from(!cut.recoverable.is_empty());
        let report = audit(&before, &dump(chip), &[], &|_, _| ()).unwrap();
        assert!(report.holds() && report.deleted > 10, "cut at {at}: {report:?}");
        drop(fs);
    }
    assert!(begun > 6 && left > 2, "{begun} and {left} of {}", chips.len());
    assert_eq!(told, left, "a block that went bad meanwhile is told");
}
