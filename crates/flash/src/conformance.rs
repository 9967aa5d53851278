//! What every volume must do, as one check for their tests.

use crate::random::Random;
use crate::{Error, Geometry, Kind, Leb, Result, Volume};

/// Steps of the random walk: enough to meet every pair of operations on the few blocks it uses.
const WALK_STEPS: u64 = 600;
/// The walk keeps to so many blocks, so that it comes back to each.
const WALK_LEBS: u32 = 8;
/// Rounds of each thread.
const ROUNDS: u64 = 12;

/// Checks a volume, whose content is lost.
///
/// # Panics
/// If it breaks the contract of [`Volume`]; the message says where.
pub fn check(volume: &dyn Volume) {
    let geometry = volume.geometry();
    assert!(geometry.lebs >= 4, "a volume of four erase blocks at least");
    assert!(geometry.leb_len_bytes.is_multiple_of(geometry.page_len_bytes), "whole pages");
    for leb in all(geometry) {
        volume.unmap(leb).expect("unmap");
        assert!(!volume.is_mapped(leb).expect("is mapped"), "{leb:?} is unmapped");
        assert_eq!(content(volume, leb), erased(geometry), "{leb:?} reads as erased");
    }
    check_ends(volume);
    check_refusals(volume);
    check_pages(volume);
    check_change(volume);
    check_mapping(volume);
    check_walk(volume);
    check_threads(volume);
    check_readers(volume);
    for leb in all(geometry) {
        volume.unmap(leb).expect("unmap");
    }
    volume.flush_erases().expect("flush erases");
}

/// Checks a volume that was opened for reading.
///
/// # Panics
/// If it lets anything be written; the message says what.
pub fn check_read_only(volume: &dyn Volume) {
    let geometry = volume.geometry();
    let state = || -> Vec<_> {
        let of = |leb| (volume.is_mapped(leb).expect("is mapped"), content(volume, leb));
        all(geometry).map(of).collect()
    };
    let (before, page) = (state(), vec![7; geometry.page_len_bytes as usize]);
    let refused = Err(Kind::ReadOnly);
    for leb in all(geometry) {
        let end = geometry.leb_len_bytes - geometry.page_len_bytes;
        assert_eq!(kind(volume.append(leb, end, &page)), refused, "append {leb:?}");
        assert_eq!(kind(volume.append(leb, 0, &[])), refused, "append nothing {leb:?}");
        assert_eq!(kind(volume.change(leb, &page)), refused, "change {leb:?}");
        assert_eq!(kind(volume.map(leb)), refused, "map {leb:?}");
        assert_eq!(kind(volume.unmap(leb)), refused, "unmap {leb:?}");
    }
    assert_eq!(kind(volume.flush_erases().map(drop)), refused, "flush erases");
    let beyond = Leb(geometry.lebs);
    assert_eq!(kind(volume.append(beyond, 0, &page)), Err(Kind::OutOfRange), "beyond the end");
    volume.sync().expect("nothing is to be synced");
    assert!(state() == before, "it is as it was");
}

/// The first and the last block hold a whole block each, and no more.
fn check_ends(volume: &dyn Volume) {
    let geometry = volume.geometry();
    let last = Leb(geometry.lebs - 1);
    for (leb, seed) in [(Leb(0), 1), (last, 2)] {
        let data = bytes(seed, geometry.leb_len_bytes as usize);
        volume.append(leb, 0, &data).expect("fill a block");
        assert!(volume.is_mapped(leb).expect("is mapped"), "what is written to is mapped");
        assert!(content(volume, leb) == data, "{leb:?} reads back");
        let mut part = vec![0; 5];
        let end = geometry.leb_len_bytes - 5;
        volume.read(leb, end, &mut part).expect("read the end");
        assert!(part == data[end as usize..], "the end of {leb:?}");
        volume.read(leb, geometry.leb_len_bytes, &mut []).expect("read nothing");
    }
    volume.sync().expect("sync");
    let others: Vec<Leb> = all(geometry).filter(|leb| *leb != Leb(0) && *leb != last).collect();
    for leb in others {
        assert_eq!(content(volume, leb), erased(geometry), "{leb:?} is not concerned");
    }
}

fn check_refusals(volume: &dyn Volume) {
    let geometry = volume.geometry();
    let (page, len) = (geometry.page_len_bytes, geometry.leb_len_bytes);
    volume.unmap(Leb(1)).expect("unmap");
    volume.append(Leb(1), 0, &bytes(3, page as usize)).expect("append");
    let before = content(volume, Leb(1));
    let page_of = |count: u32| vec![7; (count * page) as usize];
    let out_of_range = Err(Kind::OutOfRange);
    for leb in [geometry.lebs, geometry.lebs + 1, u32::MAX].map(Leb) {
        assert_eq!(kind(volume.read(leb, 0, &mut [0])), out_of_range, "read {leb:?}");
        assert_eq!(kind(volume.append(leb, 0, &page_of(1))), out_of_range, "append {leb:?}");
        assert_eq!(kind(volume.change(leb, &page_of(1))), out_of_range, "change {leb:?}");
        assert_eq!(kind(volume.map(leb)), out_of_range, "map {leb:?}");
        assert_eq!(kind(volume.unmap(leb)), out_of_range, "unmap {leb:?}");
        let is_mapped = volume.is_mapped(leb).map(drop);
        assert_eq!(kind(is_mapped), out_of_range, "is mapped {leb:?}");
    }
    for (offset, len_bytes) in [(len, 1), (len - 1, 2), (u32::MAX, 1), (0, len as usize + 1)] {
        let read = volume.read(Leb(1), offset, &mut vec![0; len_bytes]);
        assert_eq!(kind(read), out_of_range, "read {len_bytes} at {offset}");
    }
    let whole = (len / page + 1) * page;
    for (offset, len_bytes) in [
        (len, page),
        (len - page, 2 * page),
        (page + 1, page),
        (page, page - 1),
        (page, 1),
        (0, whole),
    ] {
        let append = volume.append(Leb(1), offset, &vec![7; len_bytes as usize]);
        assert_eq!(kind(append), out_of_range, "append {len_bytes} at {offset}");
    }
    for len_bytes in [1, page - 1, page + 1, whole] {
        let change = volume.change(Leb(1), &vec![7; len_bytes as usize]);
        assert_eq!(kind(change), out_of_range, "change to {len_bytes}");
    }
    assert!(content(volume, Leb(1)) == before, "what is refused changes nothing");
}

/// A page is programmed once, and none before one that is programmed.
fn check_pages(volume: &dyn Volume) {
    let geometry = volume.geometry();
    let page = geometry.page_len_bytes;
    let pages = geometry.leb_len_bytes / page;
    volume.unmap(Leb(1)).expect("unmap");
    let one = bytes(4, page as usize);
    volume.append(Leb(1), page, &one).expect("append behind a page that is skipped");
    let programmed = Err(Kind::Programmed);
    assert_eq!(kind(volume.append(Leb(1), page, &one)), programmed, "the same page");
    assert_eq!(kind(volume.append(Leb(1), 0, &one)), programmed, "a page that was skipped");
    let two = [&one[..], &one[..]].concat();
    assert_eq!(kind(volume.append(Leb(1), 0, &two)), programmed, "from a skipped page on");
    volume.append(Leb(1), 0, &[]).expect("append nothing");
    let mut model = erased(geometry);
    model[page as usize..2 * page as usize].copy_from_slice(&one);
    assert!(content(volume, Leb(1)) == model, "what is refused changes nothing");
    let blank = vec![0xff; page as usize];
    let last = (pages - 1) * page;
    volume.append(Leb(1), last, &blank).expect("append what looks erased");
    assert_eq!(kind(volume.append(Leb(1), last, &one)), programmed, "what looks erased");
    assert!(content(volume, Leb(1)) == model, "what looks erased is kept");
}

/// A change takes all of the block, and what is behind it can be appended to.
fn check_change(volume: &dyn Volume) {
    let geometry = volume.geometry();
    let page = geometry.page_len_bytes as usize;
    let whole = geometry.leb_len_bytes as usize;
    for leb in [Leb(0), Leb(2)] {
        for (seed, len) in [(5, page), (6, whole), (7, 2 * page), (8, 0), (9, page)] {
            let data = bytes(seed, len);
            volume.change(leb, &data).expect("change");
            let mut model = erased(geometry);
            model[..len].copy_from_slice(&data);
            assert!(content(volume, leb) == model, "{leb:?} after a change to {len} bytes");
            assert!(volume.is_mapped(leb).expect("is mapped"), "what is changed is mapped");
        }
        let behind = bytes(10, page);
        let at = geometry.page_len_bytes;
        assert_eq!(kind(volume.append(leb, 0, &behind)), Err(Kind::Programmed), "{leb:?}");
        volume.append(leb, at, &behind).expect("append behind a change");
        assert!(content(volume, leb)[page..2 * page] == behind, "{leb:?} behind a change");
    }
}

fn check_mapping(volume: &dyn Volume) {
    let geometry = volume.geometry();
    let page = bytes(11, geometry.page_len_bytes as usize);
    let leb = Leb(3);
    volume.unmap(leb).expect("unmap what is not mapped, or is");
    volume.map(leb).expect("map");
    assert!(volume.is_mapped(leb).expect("is mapped"));
    assert_eq!(content(volume, leb), erased(geometry), "what is mapped is erased");
    volume.append(leb, 0, &page).expect("append");
    volume.map(leb).expect("map what is mapped");
    assert!(content(volume, leb).starts_with(&page), "mapping again changes nothing");
    volume.unmap(leb).expect("unmap");
    assert!(!volume.is_mapped(leb).expect("is mapped"));
    assert_eq!(content(volume, leb), erased(geometry), "what is unmapped reads as erased");
    let report = volume.flush_erases().expect("flush erases");
    assert!(report.bad_before <= report.bad_after, "{report:?}");
    assert_eq!(content(volume, leb), erased(geometry), "and after a flush, too");
    volume.append(leb, 0, &page).expect("append to what was unmapped");
    assert!(content(volume, leb).starts_with(&page), "what is unmapped can be used again");
}

/// A block as it should be: its content, and how far it has been programmed.
struct Block {
    content: Vec<u8>,
    programmed: u32,
}

/// Random operations beside a plain array.
fn check_walk(volume: &dyn Volume) {
    let geometry = volume.geometry();
    let page = geometry.page_len_bytes;
    let pages = u64::from(geometry.leb_len_bytes / page);
    let lebs = geometry.lebs.min(WALK_LEBS);
    let mut model: Vec<Option<Block>> = (0..lebs).map(|_| None).collect();
    (0..lebs).for_each(|leb| volume.unmap(Leb(leb)).expect("unmap"));
    let mut random = Random::new(u64::from(geometry.leb_len_bytes), 0);
    let empty = || Block { content: erased(geometry), programmed: 0 };
    for step in 0..WALK_STEPS {
        let leb = random.below(u64::from(lebs));
        let block = &mut model[usize::try_from(leb).expect("few blocks")];
        let leb = Leb(u32::try_from(leb).expect("few blocks"));
        let place = format!("step {step}, {leb:?}");
        match random.below(16) {
            0 => volume.sync().expect("sync"),
            1 => drop(volume.flush_erases().expect("flush erases")),
            2 => {
                volume.unmap(leb).expect(&place);
                *block = None;
            }
            3 => {
                volume.map(leb).expect(&place);
                block.get_or_insert_with(empty);
            }
            4..6 => {
                let data = some_pages(&mut random, page, pages + 1);
                volume.change(leb, &data).expect(&place);
                let mut changed = Block { programmed: len_of(&data), ..empty() };
                changed.content[..data.len()].copy_from_slice(&data);
                *block = Some(changed);
            }
            6..11 => {
                let at = u32::try_from(random.below(pages)).expect("few pages");
                let data = some_pages(&mut random, page, pages - u64::from(at));
                let held = block.get_or_insert_with(empty);
                let is_free = at * page >= held.programmed || data.is_empty();
                let expected = if is_free { Ok(()) } else { Err(Kind::Programmed) };
                assert_eq!(kind(volume.append(leb, at * page, &data)), expected, "{place}");
                if is_free && !data.is_empty() {
                    held.programmed = at * page + len_of(&data);
                    let start = (at * page) as usize;
                    held.content[start..start + data.len()].copy_from_slice(&data);
                }
            }
            _ => {
                let at = random.below(u64::from(geometry.leb_len_bytes));
                let len = random.below(u64::from(geometry.leb_len_bytes) - at + 1);
                let [at, len] = [at, len].map(|n| usize::try_from(n).expect("a small block"));
                let mut buf = vec![0; len];
                volume
                    .read(leb, u32::try_from(at).expect("a small block"), &mut buf)
                    .expect(&place);
                let held =
                    block.as_ref().map_or(&erased(geometry), |b| &b.content)[at..at + len].to_vec();
                assert!(buf == held, "{place}: {len} bytes at {at}");
            }
        }
    }
    for (leb, block) in (0..).map(Leb).zip(&model) {
        let expected = block.as_ref().map_or(erased(geometry), |block| block.content.clone());
        assert!(content(volume, leb) == expected, "{leb:?} after a random walk");
    }
}

/// Threads on blocks of their own do not disturb each other.
fn check_threads(volume: &dyn Volume) {
    let geometry = volume.geometry();
    let page = geometry.page_len_bytes as usize;
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                let leb = Leb(thread);
                for round in 0..ROUNDS {
                    let data = bytes(u64::from(thread) * 1000 + round, 2 * page);
                    match round % 3 {
                        0 => volume.change(leb, &data).expect("change"),
                        1 => {
                            volume.unmap(leb).expect("unmap");
                            volume.append(leb, 0, &data).expect("append");
                        }
                        _ => {
                            volume.change(leb, &data[..page]).expect("change");
                            volume.flush_erases().expect("flush erases");
                            let at = geometry.page_len_bytes;
                            volume.append(leb, at, &data[page..]).expect("append");
                        }
                    }
                    let mut buf = vec![0; data.len()];
                    volume.read(leb, 0, &mut buf).expect("read");
                    assert!(buf == data, "{leb:?} of a thread in round {round}");
                }
            });
        }
    });
}

/// Who reads while a block is changed sees the old content or the new.
fn check_readers(volume: &dyn Volume) {
    let geometry = volume.geometry();
    let data_of = |round: u64| bytes(round, geometry.leb_len_bytes as usize);
    volume.change(Leb(0), &data_of(0)).expect("change");
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            for round in 1..=ROUNDS {
                volume.change(Leb(0), &data_of(round)).expect("change");
            }
        });
        let mut seen = 0;
        loop {
            let is_over = writer.is_finished();
            let found = content(volume, Leb(0));
            let round = (seen..=ROUNDS).find(|round| found == data_of(*round));
            seen = round.expect("a read sees one change, and none before one that was seen");
            if is_over {
                break;
            }
        }
        assert_eq!(seen, ROUNDS, "the last change stays");
    });
}

fn all(geometry: Geometry) -> impl Iterator<Item = Leb> {
    (0..geometry.lebs).map(Leb)
}

fn content(volume: &dyn Volume, leb: Leb) -> Vec<u8> {
    let mut buf = vec![0; volume.geometry().leb_len_bytes as usize];
    volume.read(leb, 0, &mut buf).expect("read a block");
    buf
}

fn erased(geometry: Geometry) -> Vec<u8> {
    vec![0xff; geometry.leb_len_bytes as usize]
}

fn kind(result: Result<()>) -> std::result::Result<(), Kind> {
    result.map_err(|e: Error| e.kind())
}

fn len_of(data: &[u8]) -> u32 {
    u32::try_from(data.len()).expect("no more than a block")
}

/// Fewer than `end` pages, mostly a few.
fn some_pages(random: &mut Random, page: u32, end: u64) -> Vec<u8> {
    let end = if random.below(4) == 0 { end } else { end.min(4) };
    let count = usize::try_from(random.below(end)).expect("few pages");
    bytes(random.next(), count * page as usize)
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed, 0);
    let mut buf = vec![0; len];
    random.fill(&mut buf);
    buf
}
