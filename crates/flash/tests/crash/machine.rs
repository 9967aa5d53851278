//! The machine crashes: of what was written since the last sync each sector of the file is there, or
//! not, in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tacita_flash::emulator::disk::Disk;
use tacita_flash::{Behaviour, Emulator, Leb, Volume};

use crate::cuts::{behaviours, options, steps};
use crate::workload::{Step, page};

const PAGE_LEN: usize = 512;
const STEPS: usize = 60;
/// Not every write, for each takes a workload of its own.
const STRIDE: u64 = 5;
const CRASHES: u64 = 3;

type Content = Vec<u8>;

/// What is known of a block since the last sync.
#[derive(Debug, Clone, Default)]
struct Known {
    /// What it held then, or holds if nothing has been done to it since.
    synced: Content,
    now: Content,
    /// Whole contents that may be there instead: of changes, and of what was unmapped.
    others: Vec<Content>,
    /// It was appended to, and since when nothing else was done.
    is_appended: bool,
    /// It was unmapped or mapped, and appended to: anything may be there.
    is_open: bool,
}

#[derive(Debug, Clone, Default)]
struct Expected {
    blocks: BTreeMap<Leb, Known>,
    written: BTreeSet<Content>,
    /// Pages that a flush has erased.
    gone: BTreeSet<Content>,
}

impl Expected {
    fn take(&mut self, flash: &Emulator, number: u32, step: &Step) {
        let pages = |first: u32, count: u32| -> Content {
            (first..first + count).flat_map(|at| page(number, at, PAGE_LEN)).collect()
        };
        let page_len = u32::try_from(PAGE_LEN).unwrap();
        match *step {
            Step::Append(leb, at, count) => {
                let data = pages(at, count);
                flash.append(leb, at * page_len, &data).unwrap();
                self.written.extend(data.chunks(PAGE_LEN).map(<[u8]>::to_vec));
                let known = self.blocks.entry(leb).or_default();
                known.is_open |= !known.others.is_empty() || known.now.is_empty();
                known.is_appended = true;
                known.now.resize((at * page_len) as usize, 0xff);
                known.now.extend(data);
            }
            Step::Change(leb, count) => {
                let data = pages(0, count);
                flash.change(leb, &data).unwrap();
                self.written.extend(data.chunks(PAGE_LEN).map(<[u8]>::to_vec));
                let known = self.blocks.entry(leb).or_default();
                known.is_open |= known.is_appended;
                known.others.extend([Content::new(), data.clone()]);
                known.now = data;
            }
            Step::Map(leb) => flash.map(leb).unwrap(),
            Step::Unmap(leb) => {
                flash.unmap(leb).unwrap();
                let known = self.blocks.entry(leb).or_default();
                known.is_open |= known.is_appended;
                let old = std::mem::take(&mut known.now);
                known.others.extend([Content::new(), old]);
            }
            Step::Sync => {
                flash.sync().unwrap();
                self.synced(false);
            }
            Step::FlushErases => {
                flash.flush_erases().unwrap();
                self.synced(true);
            }
        }
    }

    fn synced(&mut self, is_flushed: bool) {
        for known in self.blocks.values_mut() {
            let is_unmapped = known.now.is_empty() && !is_flushed;
            // What is not mapped may come back, in any of its states, until it is erased.
            let before = [known.others.clone(), vec![known.synced.clone()]].concat();
            *known = Known {
                synced: known.now.clone(),
                now: known.now.clone(),
                others: if is_unmapped { before } else { Vec::new() },
                is_open: is_unmapped && (known.is_open || known.is_appended),
                is_appended: false,
            };
        }
        if is_flushed {
            let held: BTreeSet<&[u8]> =
                self.blocks.values().flat_map(|known| known.now.chunks(PAGE_LEN)).collect();
            let is_gone = |page: &&Content| !held.contains(&page[..]);
            self.gone = self.written.iter().filter(is_gone).cloned().collect();
        }
    }

    fn check(&self, disk: Disk, behaviour: Behaviour) {
        let disk = Arc::new(disk);
        let flash = Emulator::open_on_disk(disk.clone(), behaviour).unwrap();
        for (leb, known) in &self.blocks {
            let mut found = vec![0; flash.geometry().leb_len_bytes as usize];
            flash.read(*leb, 0, &mut found).unwrap();
            let holds = |content: &Content| {
                let (head, tail) = found.split_at(content.len());
                head == content && tail.iter().all(|byte| *byte == 0xff)
            };
            let is_whole = holds(&known.synced) || known.others.iter().any(holds);
            let is_longer = known.is_appended && found.starts_with(&known.synced);
            assert!(is_whole || is_longer || known.is_open, "{leb:?} holds something else");
        }
        for page in disk.bytes().chunks(PAGE_LEN) {
            assert!(!self.gone.contains(page), "what a flush has erased is on the disk");
        }
        flash.flush_erases().unwrap();
        for leb in (0..flash.geometry().lebs).map(Leb) {
            flash.change(leb, &[1; PAGE_LEN]).unwrap();
        }
    }
}

/// Has the machine crash at many of the writes of random workloads, in several ways.
pub(crate) fn play(games: u64) {
    for seed in 0..games {
        for behaviour in behaviours(seed) {
            let mut count = seed;
            while is_cut_short(seed, behaviour, count) {
                count += STRIDE;
            }
        }
    }
}

/// Plays until the machine dies after so many writes, and looks at what is left; whether it died.
fn is_cut_short(seed: u64, behaviour: Behaviour, count: u64) -> bool {
    let disk = Arc::new(Disk::default());
    let flash = Emulator::create_on_disk(disk.clone(), &options(behaviour)).unwrap();
    disk.die_after(count);
    let mut expected = Expected::default();
    for (number, step) in (0..).zip(&steps(seed, STEPS)) {
        let mut taken = expected.clone();
        taken.take(&flash, number, step);
        if disk.is_dead() {
            println!("{behaviour:?}: dead after {count} writes, in step {number}, {step:?}");
            if let Step::Append(leb, ..) | Step::Change(leb, _) | Step::Unmap(leb) = step {
                expected.blocks.entry(*leb).or_default().is_open = true;
            }
            for crash in 0..CRASHES {
                expected.check(disk.crashed(count * CRASHES + crash), behaviour);
            }
            return true;
        }
        expected = taken;
    }
    false
}

#[test]
fn what_was_synced_survives_and_what_was_flushed_does_not() {
    let games = std::env::var("TACITA_GAMES").map_or(4, |n| n.parse().unwrap());
    play(games);
}
