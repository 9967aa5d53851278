//! Programs and erases that fail, and bits that flip.

use tacita_flash::emulator::Damage;
use tacita_flash::{Behaviour, Emulator, EraseReport, Kind, Leb, Volume};

use crate::cuts::{behaviours, options, steps};
use crate::workload::{Expected, page, run};

const PAGE_LEN: usize = 512;

fn make() -> Emulator {
    Emulator::in_memory(&options(Behaviour::default())).unwrap()
}

fn block_of(flash: &Emulator, leb: Leb) -> u32 {
    let place = flash.wear().iter().position(|block| block.leb == Some(leb));
    u32::try_from(place.unwrap()).unwrap()
}

fn bad_blocks(flash: &Emulator) -> usize {
    flash.wear().iter().filter(|block| block.is_bad).count()
}

fn holds(flash: &Emulator, data: &[u8]) -> bool {
    let mut dump = Vec::new();
    flash.dump(&mut dump).unwrap();
    dump.chunks(data.len()).any(|page| page == data)
}

/// Whatever operation of a workload fails: nobody who reads notices, now or later.
#[test]
fn an_operation_that_fails_is_made_good() {
    for seed in 0..3 {
        for behaviour in behaviours(seed) {
            let steps = steps(seed, 40);
            let mut has_gone_bad = false;
            for number in 0.. {
                let flash = Emulator::in_memory(&options(behaviour)).unwrap();
                flash.damage(Damage::FailsAt(number));
                let mut expected = Expected::default();
                assert_eq!(run(&flash, &steps, &mut expected), None);
                if flash.operations() <= number {
                    break;
                }
                expected.check(&flash, None);
                let bad = bad_blocks(&flash);
                assert!(bad <= 1, "one failure, {bad} bad blocks");
                has_gone_bad |= bad == 1;
                if bad == 0 {
                    expected.check_dump(&flash);
                }
                let report = flash.flush_erases().unwrap();
                let reported = expected.gone_bad + report.bad_after - report.bad_before;
                assert_eq!(reported as usize, bad_blocks(&flash), "what goes bad is reported");
                expected.check(&flash.power_on().unwrap(), None);
            }
            assert!(has_gone_bad, "an erase has failed");
        }
    }
}

#[test]
fn a_page_that_cannot_be_programmed_takes_its_block_out_of_use() {
    let flash = make();
    let pages: Vec<Vec<u8>> = (0..4).map(|number| page(1, number, PAGE_LEN)).collect();
    flash.append(Leb(0), 0, &pages[..2].concat()).unwrap();
    let block = block_of(&flash, Leb(0));
    flash.damage(Damage::ProgramFails { block, page: 4 });
    flash.append(Leb(0), 1024, &pages[2..].concat()).unwrap();
    assert_ne!(block_of(&flash, Leb(0)), block, "the content has moved");
    let mut found = vec![0; 4 * PAGE_LEN];
    flash.read(Leb(0), 0, &mut found).unwrap();
    assert!(found == pages.concat());
    let report = flash.flush_erases().unwrap();
    assert_eq!(report, EraseReport { bad_before: 0, bad_after: 1 });
    assert!(flash.wear()[block as usize].is_bad);
    let again = flash.power_on().unwrap();
    again.read(Leb(0), 0, &mut found).unwrap();
    assert!(found == pages.concat());
    assert!(again.wear()[block as usize].is_bad, "for good");
    assert_eq!(again.flush_erases().unwrap(), EraseReport { bad_before: 1, bad_after: 1 });
}

#[test]
fn a_page_that_fails_once_leaves_its_block_in_use() {
    let flash = make();
    flash.map(Leb(0)).unwrap();
    let block = block_of(&flash, Leb(0));
    flash.damage(Damage::FailsAt(flash.operations()));
    flash.append(Leb(0), 0, &[7; PAGE_LEN]).unwrap();
    assert_ne!(block_of(&flash, Leb(0)), block);
    flash.flush_erases().unwrap();
    assert_eq!(bad_blocks(&flash), 0, "it has stood its trial");
    assert_eq!(flash.wear()[block as usize].erase_counter, 1);
}

#[test]
fn a_block_that_cannot_be_erased_keeps_what_is_in_it_and_is_reported() {
    let flash = make();
    let secret = page(1, 0, PAGE_LEN);
    flash.append(Leb(0), 0, &secret).unwrap();
    let block = block_of(&flash, Leb(0));
    flash.damage(Damage::EraseFails { block });
    flash.change(Leb(0), &page(2, 0, PAGE_LEN)).unwrap();
    let report = flash.flush_erases().unwrap();
    assert_eq!(report, EraseReport { bad_before: 0, bad_after: 1 });
    assert!(holds(&flash, &secret), "on the dump it is still there");
    let again = flash.power_on().unwrap();
    let mut found = vec![0; PAGE_LEN];
    again.read(Leb(0), 0, &mut found).unwrap();
    assert!(found == page(2, 0, PAGE_LEN), "and nobody attaches it");
}

#[test]
fn few_flipped_bits_are_corrected_and_many_are_not() {
    let flash = make();
    let data = page(1, 0, PAGE_LEN);
    flash.append(Leb(0), 0, &data).unwrap();
    let block = block_of(&flash, Leb(0));
    let mut found = vec![0; PAGE_LEN];
    flash.damage(Damage::FlippedBits { block, page: 1, bits: 4 });
    flash.read(Leb(1), 0, &mut found).unwrap();
    assert_eq!(block_of(&flash, Leb(0)), block, "nobody has read it");
    flash.read(Leb(0), 0, &mut found).unwrap();
    assert!(found == data, "corrected");
    assert_ne!(block_of(&flash, Leb(0)), block, "its content has moved");
    flash.flush_erases().unwrap();
    assert_eq!(bad_blocks(&flash), 0, "which is not the fault of the block");

    let block = block_of(&flash, Leb(0));
    flash.damage(Damage::FlippedBits { block, page: 1, bits: 5 });
    let lost = flash.read(Leb(0), 0, &mut found).map_err(|e| e.kind());
    assert_eq!(lost, Err(Kind::Io));
    flash.change(Leb(0), &data).unwrap();
    flash.read(Leb(0), 0, &mut found).unwrap();
    assert!(found == data, "what is written anew can be read");
}

/// With every block but those in use bad, there is an error and no loss.
#[test]
fn a_chip_without_good_blocks_is_worn_out() {
    let flash = make();
    let data = page(1, 0, PAGE_LEN);
    flash.append(Leb(0), 0, &data).unwrap();
    for block in 0..14 {
        flash.damage(Damage::EraseFails { block });
    }
    let mut number = 0;
    let failed = loop {
        number += 1;
        match flash.change(Leb(1), &page(2, number, PAGE_LEN)) {
            Ok(()) => assert!(number < 14, "a change takes a block"),
            Err(e) => break e.kind(),
        }
    };
    assert_eq!(failed, Kind::WornOut);
    let mut found = vec![0; PAGE_LEN];
    flash.read(Leb(0), 0, &mut found).unwrap();
    assert!(found == data);
    flash.read(Leb(1), 0, &mut found).unwrap();
    assert!(found == page(2, number - 1, PAGE_LEN), "the last change that was done");
}
