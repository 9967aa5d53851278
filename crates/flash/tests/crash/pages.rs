//! The power is cut at every page of an append.

use tacita_flash::emulator::CutMode;
use tacita_flash::{Behaviour, Emulator, Kind, Leb, Volume};

use crate::cuts::options;
use crate::workload::page;

const PAGE_LEN: usize = 512;

#[test]
fn pages_before_the_cut_are_there_and_pages_after_it_are_not() {
    let data: Vec<u8> = (0..5).flat_map(|number| page(1, number, PAGE_LEN)).collect();
    for mode in [CutMode::Clean, CutMode::Torn, CutMode::Garbled] {
        for done in 0..5 {
            let flash = Emulator::in_memory(&options(Behaviour::default())).unwrap();
            flash.map(Leb(1)).unwrap();
            flash.cut_at(flash.operations() + done as u64, mode);
            let kind = flash.append(Leb(1), 0, &data).unwrap_err().kind();
            assert_eq!(kind, Kind::PowerCut);
            let again = flash.power_on().unwrap();
            let mut found = vec![0; data.len()];
            again.read(Leb(1), 0, &mut found).unwrap();
            let (whole, rest) = found.split_at(done * PAGE_LEN);
            assert!(whole == &data[..whole.len()], "{mode:?} at page {done}: what was before");
            let (torn, behind) = rest.split_at(PAGE_LEN);
            assert!(behind.iter().all(|byte| *byte == 0xff), "{mode:?} at page {done}: behind");
            let is_blank = torn.iter().all(|byte| *byte == 0xff);
            assert!(mode != CutMode::Clean || is_blank, "a page that was not begun");
            assert!(torn != &data[whole.len()..][..PAGE_LEN], "a page that was cut");
            // Whether it looks blank or not, a page that was begun is not programmed again.
            let at = u32::try_from(whole.len()).unwrap();
            let again = again.append(Leb(1), at, &[1; PAGE_LEN]).map_err(|e| e.kind());
            let expected = if mode == CutMode::Clean { Ok(()) } else { Err(Kind::Programmed) };
            assert_eq!(again, expected, "{mode:?} at page {done}");
        }
    }
}

#[test]
fn without_power_nothing_works_but_looking_at_the_chip() {
    let flash = Emulator::in_memory(&options(Behaviour::default())).unwrap();
    flash.append(Leb(0), 0, &page(1, 0, PAGE_LEN)).unwrap();
    flash.cut_at(flash.operations(), CutMode::Clean);
    let blank = [0; PAGE_LEN];
    for round in 0..2 {
        let kinds = [
            flash.append(Leb(0), 512, &blank).map_err(|e| e.kind()),
            flash.change(Leb(0), &blank).map_err(|e| e.kind()),
            flash.read(Leb(0), 0, &mut [0]).map_err(|e| e.kind()),
            flash.read(Leb(1), 0, &mut [0]).map_err(|e| e.kind()),
            flash.map(Leb(0)).map_err(|e| e.kind()),
            flash.unmap(Leb(0)).map_err(|e| e.kind()),
            flash.is_mapped(Leb(0)).map(drop).map_err(|e| e.kind()),
            flash.sync().map_err(|e| e.kind()),
            flash.flush_erases().map(drop).map_err(|e| e.kind()),
        ];
        assert_eq!(kinds, [Err(Kind::PowerCut); 9], "round {round}");
        flash.cut_at(u64::MAX, CutMode::Clean);
    }
    let mut dump = Vec::new();
    flash.dump(&mut dump).unwrap();
    assert_eq!(dump.len(), 14 * 6 * PAGE_LEN);
    let again = flash.power_on().unwrap();
    again.append(Leb(0), 512, &blank).unwrap();
}
