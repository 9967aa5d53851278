//! New content of large commits goes straight to cells that were free, or that are cleared for it:
//! whatever a power cut keeps of it, recovery takes it back or the commit is whole. And images of
//! older versions, which know none of this.

use std::ffi::OsStr;

use tacita_block::{Event, Fault as DeviceFault, FaultDevice, Kind};
use tacita_hifs::geometry::{Layout, Parameters};
use tacita_hifs::{Hifs, Recovery};
use tacita_testkit::history::{Rng, tree};
use tacita_testkit::{env_number, search};
use tacita_vfs::{FileSystem, FileType, Stamps};

use crate::crash::cut_everywhere;
use crate::images::{
    LAYOUTS, assert_same, fault_device, fresh, memory_device, new, open, options, parameters,
};

/// Large enough for one commit, small enough for that to be a large one.
fn shape(layout: Layout) -> Parameters {
    Parameters { len_bytes: 16 << 20, ..parameters(layout) }
}

/// An image with some files, open on a device that can lose power.
fn begun(layout: Layout, rng: &mut Rng) -> (std::sync::Arc<FaultDevice>, Hifs) {
    let device = fault_device(fresh(&shape(layout)).snapshot());
    let hifs = Hifs::open(device.clone(), options(1)).unwrap();
    for n in 0..12 {
        write(&hifs, &format!("old {n}"), &rng.bytes(9000));
    }
    hifs.sync().unwrap();
    (device, hifs)
}

pub(crate) fn write(hifs: &Hifs, name: &str, content: &[u8]) {
    let (file, _) = hifs.create(hifs.root(), OsStr::new(name), &new(FileType::File)).unwrap();
    hifs.write(file, 0, content, Stamps::NONE).unwrap();
}

/// More new content than a small commit has: short files and a long one.
fn change(hifs: &Hifs, rng: &mut Rng) {
    for n in 0..40 {
        write(hifs, &format!("short {n}"), &rng.bytes(1000));
    }
    write(hifs, "long", &rng.bytes(90_000));
}

/// Bytes written to the journal at once, and to the groups, before the second flush.
fn phases(device: &FaultDevice, journal_blocks: u64) -> (usize, usize) {
    let recording = device.recording();
    let (mut flushes, mut journal, mut filled) = (0, 0, 0);
    for event in recording.events() {
        match event {
            Event::Flush => flushes += 1,
            Event::Write { offset, data } if *offset <= journal_blocks * 4096 && flushes == 0 => {
                journal += data.len();
            }
            Event::Write { data, .. } if flushes == 1 => filled += data.len(),
            _ => {}
        }
    }
    (journal, filled)
}

/// One large commit, cut everywhere; what its first two phases wrote.
pub(crate) fn game(layout: Layout, seed: u64, subsets: u64) -> (usize, usize) {
    let mut rng = Rng::new(seed);
    let (device, hifs) = begun(layout, &mut rng);
    let before = device.content();
    device.restart_recording();
    change(&hifs, &mut rng);
    assert!(device.content() == before, "it was to be one commit");
    hifs.sync().unwrap();
    let after = device.content();
    cut_everywhere(&device, &before, &after, (seed, 0), subsets);
    assert!(tree(&hifs) == tree(&open(memory_device(&after))));
    phases(&device, hifs.superblock().geometry.journal_blocks)
}

/// Files of so many blocks together, so that what is new finds its cells taken.
pub(crate) fn crowd(hifs: &Hifs, rng: &mut Rng, blocks: u64) {
    let mut left = blocks;
    for n in 0.. {
        let len = 1 + rng.below(12).min(left);
        write(hifs, &format!("crowd {n}"), &rng.bytes(usize::try_from(len).unwrap() * 4096));
        left = left.saturating_sub(len);
        if left == 0 {
            return;
        }
    }
}

/// An image of which most is taken.
fn crowded(layout: Layout, rng: &mut Rng) -> std::sync::Arc<FaultDevice> {
    let parameters = Parameters { len_bytes: 2 << 20, groups: Some(2), ..parameters(layout) };
    let device = fault_device(fresh(&parameters).snapshot());
    let hifs = Hifs::open(device.clone(), options(1)).unwrap();
    crowd(&hifs, rng, 250);
    hifs.sync().unwrap();
    device
}

/// New content, a large commit of it.
pub(crate) fn change_crowded(hifs: &Hifs, rng: &mut Rng) {
    for n in 0..4 {
        write(hifs, &format!("new {n}"), &rng.bytes(30_000));
    }
}

/// Records of a kind in the journal of the commit that was recorded.
pub(crate) fn records(device: &FaultDevice, kind: u8) -> usize {
    let recording = device.recording();
    let Some(Event::Write { data, .. }) = recording.events().first() else {
        panic!("a commit begins with its journal");
    };
    let count = u32::from_le_bytes(data[8..12].try_into().unwrap());
    let records = data[4096..].chunks_exact(32).take(usize::try_from(count).unwrap());
    records.filter(|record| record[0] == kind).count()
}

/// New content for which cells are cleared, cut everywhere; how many cells that were.
pub(crate) fn clearing_game(layout: Layout, seed: u64, subsets: u64) -> usize {
    let mut rng = Rng::new(seed);
    let before = crowded(layout, &mut rng).content();
    let device = fault_device(before.clone());
    let hifs = Hifs::open(device.clone(), options(1)).unwrap();
    device.restart_recording();
    change_crowded(&hifs, &mut rng);
    assert!(device.content() == before, "it was to be one commit");
    hifs.sync().unwrap();
    let after = device.content();
    let cleared = records(&device, 6);
    cut_everywhere(&device, &before, &after, (seed, 0), subsets);
    assert!(tree(&hifs) == tree(&open(memory_device(&after))));
    cleared
}

#[test]
fn a_cut_moves_back_what_gave_way() {
    let mut cleared = Vec::new();
    for layout in LAYOUTS {
        for seed in 0..env_number("TACITA_GAMES", 2) {
            cleared.push(clearing_game(layout, seed, 2));
        }
    }
    assert!(cleared.iter().filter(|cells| **cells > 10).count() >= 4, "{cleared:?}");
}

#[test]
fn a_cut_takes_new_content_back_or_keeps_all_of_it() {
    for layout in [Layout::B, Layout::D] {
        let (journal, filled) = game(layout, 1, 1);
        assert!(filled > 120_000, "{filled} bytes went straight to their places");
        assert!(journal < filled, "{journal} bytes of journal beside {filled}");
    }
}

/// The device fails while free cells are filled: the commit is taken back, and made when the
/// device works again, or by nobody.
#[test]
fn a_failed_fill_is_taken_back() {
    for (flush, write) in [(None, Some(1)), (None, Some(3)), (Some(0), None), (Some(1), None)] {
        let mut rng = Rng::new(3);
        let (device, hifs) = begun(Layout::D, &mut rng);
        let before = device.content();
        change(&hifs, &mut rng);
        let wanted = tree(&hifs);
        let (writes, flushes) = (device.writes(), device.flushes());
        if let Some(n) = write {
            device.inject(DeviceFault::FailWrite { write: writes + n, kind: Kind::Io });
        }
        if let Some(n) = flush {
            device.inject(DeviceFault::FailFlush(flushes + n));
        }
        hifs.sync().unwrap_err();
        let what = format!("flush {flush:?}, write {write:?}");
        let crashes: Vec<Vec<u8>> = (0..6).map(|seed| device.crash_image(seed)).collect();
        hifs.sync().unwrap();
        let after = device.content();
        for crash in crashes {
            let again = memory_device(&crash);
            let finished = open(again.clone()).recovery() == Recovery::Finished;
            // If only the last flush fails, everything may be there.
            assert!(!finished || flush == Some(1), "{what}");
            assert_same(if finished { &after } else { &before }, &again.snapshot(), &what);
        }
        assert!(tree(&hifs) == wanted, "{what}");
        assert!(hifs.check(&mut |_, _| {}).unwrap().is_canonical(), "{what}");
    }
}

/// New content that decays while a commit is brought into the image: the commit was durable, so it is
/// not taken back, and what is wrong is told. Before, nobody can tell this from content that never
/// arrived, and the commit is undone.
#[test]
fn a_fill_that_decays_is_told() {
    let mut rng = Rng::new(6);
    let (device, hifs) = begun(Layout::D, &mut rng);
    let before = device.content();
    device.restart_recording();
    change(&hifs, &mut rng);
    let needle = rng.bytes(4096);
    write(&hifs, "needle", &needle);
    hifs.sync().unwrap();
    let place = search::places(&device.content(), &needle)[0];
    let (cut, mut undone, mut told) = (device.recording(), 0, 0);
    for at in 0..=cut.events().len() {
        let mut image = cut.crash_image(at, 5);
        if open(memory_device(&image)).recovery() != Recovery::Finished {
            continue;
        }
        image[place] ^= 1;
        let damaged = memory_device(&image);
        match Hifs::open(damaged.clone(), options(1)) {
            Ok(_) => {
                assert_same(&before, &damaged.snapshot(), &format!("cut at {at}"));
                undone += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), tacita_hifs::Kind::Damaged, "cut at {at}: {error}");
                // Unless all that had been put was torn, which only its checksums tell, later.
                told += u32::from(damaged.snapshot() == image);
            }
        }
    }
    assert!(
        undone > 0 && told > 0,
        "undone {undone} times, told {told} times, and nothing changed"
    );
}

/// The image as an older version of the format has it.
fn of_version(number: u8, mut image: Vec<u8>) -> Vec<u8> {
    let last = image.len() - 4096;
    for at in [0, last] {
        image[at + 8] = number;
        crate::hostile::mend(&mut image[at..at + 4096]);
    }
    image
}

/// Images of version 2 stay at their number, hold the same, and are written as before.
#[test]
fn version_2_is_read_and_written() {
    let mut rng = Rng::new(9);
    let (device, hifs) = begun(Layout::D, &mut rng);
    let old = fault_device(of_version(2, device.content()));
    change(&hifs, &mut Rng::new(4));
    hifs.sync().unwrap();
    let hifs = Hifs::open(old.clone(), options(1)).unwrap();
    assert_eq!(hifs.superblock().version, 2);
    old.restart_recording();
    let before = old.content();
    change(&hifs, &mut Rng::new(4));
    assert!(old.content() == before, "it was to be one commit");
    hifs.sync().unwrap();
    let after = old.content();
    assert_same(&of_version(2, device.content()), &after, "the same but for its number");
    let (journal, _) = phases(&old, hifs.superblock().geometry.journal_blocks);
    assert!(journal > 200_000, "all content is in the journal: {journal}");
    let cut = old.recording();
    for at in 0..=cut.events().len() {
        let image = memory_device(&cut.crash_image(at, 5));
        let hifs = open(image.clone());
        if hifs.recovery() == Recovery::Finished || image.snapshot() != before {
            assert_same(&after, &image.snapshot(), "a cut in an image of version 2");
        }
    }
}

/// Images of version 3 fill free cells and clear none: the journal of the same commit holds what is
/// new in cells that were taken.
#[test]
fn version_3_clears_no_cells() {
    let (layout, seed) = (Layout::D, 1);
    let before = crowded(layout, &mut Rng::new(seed)).content();
    let commit = |image: Vec<u8>| {
        let device = fault_device(image);
        let hifs = Hifs::open(device.clone(), options(1)).unwrap();
        device.restart_recording();
        change_crowded(&hifs, &mut Rng::new(seed + 1));
        hifs.sync().unwrap();
        assert!(hifs.check(&mut |_, _| {}).unwrap().is_canonical());
        (device, hifs.superblock().clone())
    };
    let (new, superblock) = commit(before.clone());
    assert_eq!(superblock.version, 4);
    let (old, superblock) = commit(of_version(3, before.clone()));
    assert_eq!(superblock.version, 3);
    assert!(records(&new, 6) > 10 && records(&old, 6) == 0);
    assert!(records(&old, 2) > records(&new, 2), "new content of taken cells is in the journal");
    assert_same(&of_version(3, new.content()), &old.content(), "the same but for its number");
    let (before, after) = (of_version(3, before), old.content());
    cut_everywhere(&old, &before, &after, (seed, 0), 1);
}
