//! Emulators beside a plain model, with the power going and coming.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

use proptest::prelude::*;
use tacita_flash::{Behaviour, Emulator, EmulatorOptions, EraseMode, Kind, Leb, Volume};

const PAGE_LEN: u32 = 512;
const PAGES: u32 = 5;
const LEBS: u32 = 7;

#[derive(Debug, Clone)]
enum Step {
    Append {
        leb: u32,
        page: u32,
        count: u32,
        fill: u8,
    },
    Change {
        leb: u32,
        count: u32,
        fill: u8,
    },
    Map(u32),
    Unmap(u32),
    Sync,
    FlushErases,
    /// After a flush of erases, so that nothing comes back.
    PowerOff,
    /// Another chip is gone on with; the first is written to.
    Fork,
}

fn step() -> impl Strategy<Value = Step> {
    let leb = || 0..LEBS;
    prop_oneof![
        6 => (leb(), 0..PAGES, 0..=PAGES, any::<u8>())
            .prop_map(|(leb, page, count, fill)| Step::Append { leb, page, count, fill }),
        3 => (leb(), 0..=PAGES, any::<u8>())
            .prop_map(|(leb, count, fill)| Step::Change { leb, count, fill }),
        1 => leb().prop_map(Step::Map),
        2 => leb().prop_map(Step::Unmap),
        1 => Just(Step::Sync),
        1 => Just(Step::FlushErases),
        1 => Just(Step::PowerOff),
        1 => Just(Step::Fork),
    ]
}

fn behaviour() -> impl Strategy<Value = Behaviour> {
    let mode = prop_oneof![Just(EraseMode::Eager), Just(EraseMode::Lazy)];
    (mode, prop_oneof![Just(1), Just(3), Just(4096)]).prop_map(|(erase_mode, wear_threshold)| {
        Behaviour { erase_mode, wear_threshold, ..Behaviour::default() }
    })
}

/// The pages of a block, as far as it has been programmed; `None` if it is not mapped.
type Block = Option<Vec<u8>>;

fn take(flash: &mut Emulator, model: &mut [Block], step: &Step) {
    let data = |count: u32, fill: u8| vec![fill; (count * PAGE_LEN) as usize];
    match *step {
        Step::Append { leb, page, count, fill } => {
            let at = page * PAGE_LEN;
            let result = flash.append(Leb(leb), at, &data(count, fill)).map_err(|e| e.kind());
            let held = model[leb as usize].as_ref().map_or(0, Vec::len);
            if page + count > PAGES {
                assert_eq!(result, Err(Kind::OutOfRange));
            } else if count == 0 {
                assert_eq!(result, Ok(()));
            } else if (at as usize) < held {
                assert_eq!(result, Err(Kind::Programmed));
            } else {
                assert_eq!(result, Ok(()));
                let block = model[leb as usize].get_or_insert_default();
                block.resize(at as usize, 0xff);
                block.extend(data(count, fill));
            }
        }
        Step::Change { leb, count, fill } => {
            flash.change(Leb(leb), &data(count, fill)).unwrap();
            model[leb as usize] = Some(data(count, fill));
        }
        Step::Map(leb) => {
            flash.map(Leb(leb)).unwrap();
            model[leb as usize].get_or_insert_default();
        }
        Step::Unmap(leb) => {
            flash.unmap(Leb(leb)).unwrap();
            model[leb as usize] = None;
        }
        Step::Sync => flash.sync().unwrap(),
        Step::FlushErases => drop(flash.flush_erases().unwrap()),
        Step::PowerOff => {
            flash.flush_erases().unwrap();
            *flash = flash.power_on().unwrap();
        }
        Step::Fork => {
            flash.flush_erases().unwrap();
            let fork = flash.snapshot().unwrap();
            (0..LEBS).for_each(|leb| flash.change(Leb(leb), &data(1, 0xee)).unwrap());
            *flash = fork;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_emulator_does_as_a_model(
        behaviour in behaviour(),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let options = EmulatorOptions {
            page_len_bytes: PAGE_LEN,
            pages_per_block: PAGES + 1,
            blocks: LEBS + 5,
            behaviour,
            ..EmulatorOptions::default()
        };
        let mut flash = Emulator::in_memory(&options).unwrap();
        prop_assert_eq!(flash.geometry().lebs, LEBS);
        let mut model = vec![None; LEBS as usize];
        for step in &steps {
            take(&mut flash, &mut model, step);
            for (leb, block) in (0..).map(Leb).zip(&model) {
                prop_assert_eq!(flash.is_mapped(leb).unwrap(), block.is_some());
                let mut expected = block.clone().unwrap_or_default();
                expected.resize((PAGES * PAGE_LEN) as usize, 0xff);
                let mut found = vec![0; expected.len()];
                flash.read(leb, 0, &mut found).unwrap();
                prop_assert!(found == expected, "{:?} after {:?}", leb, step);
            }
        }
    }
}
