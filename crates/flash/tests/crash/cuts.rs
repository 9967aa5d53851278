//! The power is cut at every operation.

use tacita_flash::emulator::CutMode;
use tacita_flash::{Behaviour, Emulator, EmulatorOptions, EraseMode, Leb, Volume};

use crate::workload::{Expected, Step, run};

const MODES: [CutMode; 3] = [CutMode::Clean, CutMode::Torn, CutMode::Garbled];

/// A small chip, so that blocks are used again and again.
pub(crate) fn options(behaviour: Behaviour) -> EmulatorOptions {
    EmulatorOptions {
        page_len_bytes: 512,
        pages_per_block: 6,
        blocks: 14,
        reserve_per_1024: 0,
        behaviour,
        ..EmulatorOptions::default()
    }
}

/// Erasing when needed and at once, without and with content that moves all the time.
pub(crate) fn behaviours(seed: u64) -> [Behaviour; 3] {
    let lazy = Behaviour { seed, ..Behaviour::default() };
    let eager = Behaviour { erase_mode: EraseMode::Eager, ..lazy };
    [lazy, eager, Behaviour { wear_threshold: 1, ..lazy }]
}

/// Steps that follow from a seed, all of them possible.
pub(crate) fn steps(seed: u64, count: usize) -> Vec<Step> {
    const LEBS: usize = 6;
    const PAGES: u32 = 5;
    let mut state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut below = |end: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from((state >> 33) % end).unwrap()
    };
    let mut programmed = [0; LEBS];
    let mut steps = Vec::new();
    while steps.len() < count {
        let leb = below(LEBS as u64);
        let held = &mut programmed[leb as usize];
        let leb = Leb(leb);
        steps.push(match below(12) {
            0 => Step::Sync,
            1 => Step::FlushErases,
            2 => Step::Map(leb),
            3 | 4 => {
                *held = 0;
                Step::Unmap(leb)
            }
            5..8 => {
                *held = below(u64::from(PAGES) + 1);
                Step::Change(leb, *held)
            }
            _ => {
                let at = *held + below(2);
                if at >= PAGES {
                    continue;
                }
                let count = 1 + below(u64::from(PAGES - at));
                *held = at + count;
                Step::Append(leb, at, count)
            }
        });
    }
    steps
}

/// Cuts the power at every operation of a workload, and once more when what is left is flushed.
pub(crate) fn play(behaviour: Behaviour, steps: &[Step]) {
    for mode in MODES {
        for number in 0.. {
            let flash = Emulator::in_memory(&options(behaviour)).unwrap();
            flash.cut_at(number, mode);
            let mut expected = Expected::default();
            let cut = run(&flash, steps, &mut expected);
            assert_eq!(expected.gone_bad, 0, "a whole chip");
            let cut = cut.map(|step| (step, &steps[step as usize]));
            let again = flash.power_on().unwrap();
            expected.check(&again, cut);
            cut_again(&again, &expected, cut, mode);
            expected.check_flush(&again, cut);
            expected.check_dump(&again);
            if cut.is_none() {
                break;
            }
        }
    }
}

/// Cuts the power of copies at every operation of the flush that follows.
fn cut_again(flash: &Emulator, expected: &Expected, cut: Option<(u32, &Step)>, mode: CutMode) {
    for number in 0.. {
        let copy = flash.snapshot().unwrap();
        copy.cut_at(number, mode);
        if copy.flush_erases().is_ok() {
            break;
        }
        expected.check(&copy.power_on().unwrap(), cut);
    }
}

#[test]
fn the_power_is_cut_at_every_operation() {
    let games = std::env::var("TACITA_GAMES").map_or(4, |n| n.parse().unwrap());
    for seed in 0..games {
        for behaviour in behaviours(seed) {
            println!("{behaviour:?}");
            play(behaviour, &steps(seed, 40));
        }
    }
}

/// The workload that each planted fault must fail: every kind of step, and old content to come back.
pub(crate) fn short() -> Vec<Step> {
    let leb = Leb(0);
    vec![
        Step::Append(leb, 0, 2),
        Step::Change(leb, 3),
        Step::Append(leb, 3, 1),
        Step::Change(leb, 2),
        Step::Sync,
        Step::Map(Leb(1)),
        Step::Append(Leb(1), 1, 2),
        Step::Unmap(Leb(1)),
        Step::FlushErases,
        Step::Change(leb, 4),
    ]
}

#[test]
fn the_short_workload_passes() {
    play(Behaviour::default(), &short());
}

/// What was unmapped may come back until erases are flushed, which is why there is a flush.
#[test]
fn what_was_unmapped_comes_back_before_a_flush_and_not_after_it() {
    let flash = Emulator::in_memory(&options(Behaviour::default())).unwrap();
    flash.append(Leb(2), 0, &[7; 512]).unwrap();
    flash.unmap(Leb(2)).unwrap();
    flash.sync().unwrap();
    let again = flash.power_on().unwrap();
    assert!(again.is_mapped(Leb(2)).unwrap(), "it is still there");
    again.unmap(Leb(2)).unwrap();
    again.flush_erases().unwrap();
    assert!(!again.power_on().unwrap().is_mapped(Leb(2)).unwrap());
}
