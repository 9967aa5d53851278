//! How worn the blocks of a chip are, and when they are erased.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

use tacita_flash::{Behaviour, Emulator, EmulatorOptions, EraseMode, Kind, Leb, Volume};

fn options(behaviour: Behaviour) -> EmulatorOptions {
    EmulatorOptions {
        page_len_bytes: 512,
        pages_per_block: 4,
        blocks: 16,
        reserve_per_1024: 0,
        behaviour,
        ..EmulatorOptions::default()
    }
}

fn make(erase_mode: EraseMode) -> Emulator {
    Emulator::in_memory(&options(Behaviour { erase_mode, ..Behaviour::default() })).unwrap()
}

fn counters(flash: &Emulator) -> Vec<u64> {
    flash.wear().iter().map(|block| block.erase_counter).collect()
}

fn copies(flash: &Emulator, page: &[u8]) -> usize {
    let mut dump = Vec::new();
    flash.dump(&mut dump).unwrap();
    dump.chunks(page.len()).filter(|found| *found == page).count()
}

#[test]
fn blocks_are_erased_when_the_mode_says() {
    for (mode, after_change) in [(EraseMode::Eager, 0), (EraseMode::Lazy, 1), (EraseMode::Never, 1)]
    {
        let flash = make(mode);
        flash.append(Leb(0), 0, &[1; 512]).unwrap();
        flash.change(Leb(0), &[2; 512]).unwrap();
        assert_eq!(copies(&flash, &[1; 512]), after_change, "{mode:?} after a change");
        flash.sync().unwrap();
        assert_eq!(copies(&flash, &[1; 512]), after_change, "{mode:?} after a sync");
        flash.flush_erases().unwrap();
        assert_eq!(copies(&flash, &[1; 512]), 0, "{mode:?} after a flush");
        assert_eq!(copies(&flash, &[2; 512]), 1, "{mode:?}");
    }
}

#[test]
fn without_erases_blocks_run_out_until_a_flush() {
    let flash = make(EraseMode::Never);
    let mut changes = 0;
    let kind = loop {
        match flash.change(Leb(0), &[3; 512]) {
            Ok(()) => changes += 1,
            Err(e) => break e.kind(),
        }
    };
    assert_eq!(kind, Kind::WornOut);
    // Sixteen blocks, less the two of the volume table and the empty one that came first.
    assert_eq!(changes, 13);
    flash.flush_erases().unwrap();
    flash.change(Leb(0), &[4; 512]).unwrap();
    let lazy = make(EraseMode::Lazy);
    (0..100).for_each(|n| lazy.change(Leb(0), &[n; 512]).unwrap());
}

#[test]
fn the_least_worn_block_is_taken() {
    let flash = make(EraseMode::Lazy);
    for _ in 0..1000 {
        flash.change(Leb(0), &[1; 512]).unwrap();
    }
    let counters = counters(&flash);
    let used = counters.iter().filter(|counter| **counter > 0);
    let (least, most) = (used.clone().min().unwrap(), used.max().unwrap());
    assert!(most - least <= 1, "{counters:?}");
}

/// Ten blocks that stay, one that changes: the former lie still until the spread is too wide.
#[test]
fn what_stays_moves_when_others_are_worn() {
    for threshold in [4, 40, 4096] {
        let behaviour = Behaviour { wear_threshold: threshold, ..Behaviour::default() };
        let flash = Emulator::in_memory(&options(behaviour)).unwrap();
        for leb in 1..11 {
            flash.append(Leb(leb), 0, &[9; 1024]).unwrap();
        }
        for _ in 0..600 {
            flash.change(Leb(0), &[1; 512]).unwrap();
        }
        let counters = counters(&flash);
        let spread = counters.iter().max().unwrap() - counters.iter().min().unwrap();
        let is_level = spread <= threshold + 1;
        assert!(is_level, "threshold {threshold}: {counters:?}");
        let is_still = counters.iter().filter(|counter| **counter == 0).count() >= 12;
        assert_eq!(is_still, threshold == 4096, "threshold {threshold}: {counters:?}");
        for leb in 1..11 {
            let mut found = [0; 1536];
            flash.read(Leb(leb), 0, &mut found).unwrap();
            assert!(found[..1024] == [9; 1024] && found[1024..] == [0xff; 512]);
        }
        assert_eq!(flash.power_on().unwrap().wear().len(), 16);
    }
}

#[test]
fn counters_survive() {
    let flash = make(EraseMode::Lazy);
    for n in 0..50 {
        flash.change(Leb(n % 3), &[1; 512]).unwrap();
    }
    flash.flush_erases().unwrap();
    let before = flash.wear();
    assert_eq!(flash.power_on().unwrap().wear(), before);
    assert!(before.iter().map(|block| block.erase_counter).sum::<u64>() >= 40);
}
