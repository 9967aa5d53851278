//! Power cuts: at programs and erases, in every way. What was synced is there, what was not is there as
//! it was at some time or not at all, no key has encrypted twice, and what is deleted stays so.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use tacita_clock::System;
use tacita_dnefs::{Dnefs, PurgeScope, check};
use tacita_dnefs_audit::keys_used_twice;
use tacita_flash::Emulator;
use tacita_flash::emulator::CutMode;
use tacita_testkit::MemoryFs;
use tacita_testkit::env_number;
use tacita_testkit::history::{Rng, Tree, step, tree};
use tacita_vfs::{Change, FileSystem, Link, NodeId, Stamps, Timestamp};

use crate::deletion::make;
use crate::volumes::{LIMITS, dump, fresh, open, volume};

/// Blocks of the chips of these games.
const BLOCKS: u32 = 80;
const MODES: [CutMode; 3] = [CutMode::Clean, CutMode::Torn, CutMode::Garbled];

/// What the history may have left, from the last sync on.
struct Allowed {
    trees: Vec<Tree>,
}

impl Allowed {
    /// Names in the order of changes; content and attributes as they were at some time.
    fn check(&self, found: &Tree, what: &str) {
        let names = |tree: &Tree| -> Vec<_> {
            tree.iter()
                .map(|(path, seen)| (path.clone(), seen.kind, seen.same_as.clone()))
                .collect()
        };
        let paths = names(found);
        assert!(self.trees.iter().any(|tree| names(tree) == paths), "{what}: other names");
        // The same file may have had other names since the last sync.
        let mut contents: BTreeSet<&[u8]> = BTreeSet::new();
        for seen in self.trees.iter().flat_map(|tree| tree.values()) {
            contents.insert(&seen.content);
        }
        for (path, seen) in found {
            let known = |at: usize, byte: u8| {
                byte == 0 || contents.iter().any(|content| content.get(at) == Some(&byte))
            };
            let path = String::from_utf8_lossy(path);
            let all = seen.content.iter().enumerate().all(|(at, byte)| known(at, *byte));
            assert!(all, "{what}: {path} has content that no file had there");
        }
        // What nothing changed since the last sync is as it was.
        let (synced, later) = self.trees.split_first().expect("there is one");
        for (path, seen) in synced {
            if later.iter().all(|tree| tree.get(path) == Some(seen)) {
                let path_text = String::from_utf8_lossy(path);
                assert!(found.get(path) == Some(seen), "{what}: {path_text} was synced");
            }
        }
    }
}

/// What is played, again and again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Workload {
    seed: u64,
    /// Steps during which the power stays on.
    warm_up: u32,
    steps: u32,
    /// Bytes of a file without a name, of which some are overwritten at each step, so that garbage has
    /// to be collected.
    filler_len_bytes: u64,
}

impl Workload {
    /// Steps on a new volume.
    pub(crate) const fn new(seed: u64, steps: u32) -> Self {
        Self { seed, warm_up: 0, steps, filler_len_bytes: 0 }
    }

    /// Steps on a volume that is nearly full.
    pub(crate) const fn full(seed: u64, steps: u32) -> Self {
        Self { seed, warm_up: 45, steps, filler_len_bytes: 450_000 }
    }

    fn make_filler(self, fs: &Dnefs) -> Option<Filler> {
        (self.filler_len_bytes > 0).then(|| {
            let len = usize::try_from(self.filler_len_bytes).unwrap();
            let bytes = Rng::new(self.seed).bytes(len);
            let filler = make(fs, "filler", &bytes);
            let link = Link { dir: fs.root(), name: "filler".as_ref(), node: filler };
            assert_eq!(fs.remove(link, Timestamp::default()).unwrap(), 0);
            (filler, self.filler_len_bytes)
        })
    }
}

/// A file without a name, and its length.
type Filler = (NodeId, u64);

/// What was played.
struct Played {
    chip: Arc<Emulator>,
    /// What it may have left.
    allowed: Allowed,
    /// Programs and erases before the power could be cut, and until the end.
    operations: Range<u64>,
    /// Erase blocks that garbage collection has emptied meanwhile.
    collected: u64,
}

/// One step of a workload; returns whether all before it is on the medium now.
fn act(fs: &Dnefs, filler: Option<Filler>, rng: &mut Rng, number: u32) -> Option<bool> {
    match number % 9 {
        4 => fs.sync().ok().map(|()| true),
        8 => fs.purge(PurgeScope::Deleted).ok().map(|_| true),
        _ => {
            if let Some((filler, len_bytes)) = filler {
                let mut noise = rng.clone();
                for _ in 0..10 {
                    let offset = noise.below(len_bytes - 2000);
                    fs.write(filler, offset, &noise.bytes(2000), Stamps::NONE).ok()?;
                }
            }
            // A step panics when the power is gone.
            let done =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| step(fs, rng, &LIMITS)));
            done.ok().map(|()| false)
        }
    }
}

/// Plays a workload on a new volume, whose power is cut at `cut`.
fn play(workload: Workload, cut: Option<(u64, CutMode)>) -> Played {
    let chip = fresh(BLOCKS, workload.seed);
    let fs = open(&chip);
    let model = MemoryFs::default();
    let filler = workload.make_filler(&fs);
    let mut rng = Rng::new(workload.seed);
    let mut allowed = Allowed { trees: vec![tree(&model)] };
    if let Some((number, mode)) = cut {
        chip.cut_at(number, mode);
    }
    let (mut begin, mut collected) = (chip.operations(), 0);
    for number in 0..workload.warm_up + workload.steps {
        if number == workload.warm_up {
            (begin, collected) = (chip.operations(), fs.usage().collected);
        }
        let mut ahead = rng.clone();
        if number % 9 != 4 && number % 9 != 8 {
            step(&model, &mut ahead, &LIMITS);
            allowed.trees.push(tree(&model));
        }
        match act(&fs, filler, &mut rng, number) {
            Some(true) => allowed.trees = vec![tree(&model)],
            Some(false) => {}
            None => break,
        }
    }
    let operations = begin..chip.operations();
    collected = fs.usage().collected - collected;
    assert!(cut.is_some() || !operations.is_empty());
    drop(fs);
    Played { chip, allowed, operations, collected }
}

/// What whoever opens a volume for reading sees. Nothing is programmed or erased for that, and nothing
/// can be changed.
fn read_only(chip: &Arc<Emulator>, what: &str) -> Tree {
    let before = chip.operations();
    let fs = Dnefs::open_read_only(volume(chip), None, Arc::new(System))
        .unwrap_or_else(|e| panic!("{what}: for reading: {e}"));
    assert!(fs.is_sound(), "{what}");
    let seen = tree(&fs);
    let refused = fs.change(fs.root(), &Change { perm: Some(0o700), ..Change::default() });
    assert_eq!(refused.unwrap_err().kind(), tacita_vfs::Kind::ReadOnly, "{what}");
    assert!(fs.purge(PurgeScope::Deleted).is_err() && fs.close().is_err(), "{what}");
    fs.sync().unwrap();
    fs.receipts().unwrap_or_else(|e| panic!("{what}: {e}"));
    drop(fs);
    assert_eq!(chip.operations(), before, "{what}: a reader has written");
    seen
}

/// Cuts the power at every so many operations of a workload, in all ways. How often that was, and how
/// many erase blocks the workload collects.
pub(crate) fn cut_everywhere(workload: Workload, every: u64) -> (u64, u64) {
    let seed = workload.seed;
    let Played { chip, operations: Range { start: first, end: operations }, collected, .. } =
        play(workload, None);
    assert!(keys_used_twice(&dump(&chip)).is_empty());
    let mut cuts = 0;
    for number in (first + seed % every..operations).step_by(usize::try_from(every).unwrap()) {
        for mode in MODES {
            let what = format!("seed {seed}, cut at {number} of {operations}, {mode:?}");
            let Played { chip, allowed, .. } = play(workload, Some((number, mode)));
            let chip = Arc::new(chip.power_on().unwrap());
            let shown = read_only(&chip, &what);
            let fs = Dnefs::open(volume(&chip), None, Arc::new(System))
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            assert!(fs.is_sound(), "{what}");
            assert_eq!(fs.lost_nodes(), 0, "{what}: what is cut short is not damaged");
            let recovered = tree(&fs);
            assert!(shown == recovered, "{what}: a reader sees something else");
            allowed.check(&recovered, &what);
            // It can be worked on, and no key is used twice for that.
            let mut rng = Rng::new(number);
            for _ in 0..4 {
                step(&fs, &mut rng, &LIMITS);
            }
            let left = tree(&fs);
            fs.close().unwrap();
            let found = check(&volume(&chip), None, &mut |_, _| {}).unwrap();
            assert!(found.wrong.is_empty() && found.was_unmounted, "{what}: {found:?}");
            assert!(keys_used_twice(&dump(&chip)).is_empty(), "{what}: a key has encrypted twice");
            drop(fs);
            assert!(read_only(&chip, &what) == left, "{what}: for whoever reads");
            assert!(tree(&open(&chip)) == left, "{what}: after the next mount");
            cuts += 1;
        }
    }
    (cuts, collected)
}

#[test]
fn a_power_cut_anywhere_leaves_what_was_synced_and_no_key_used_twice() {
    let every = env_number("TACITA_CUT_EVERY", 7);
    let workloads = (0..env_number("TACITA_SEEDS", 3)).map(|seed| Workload::new(seed, 40));
    let cuts: u64 = workloads.map(|workload| cut_everywhere(workload, every).0).sum();
    assert!(cuts > 60);
}

#[test]
fn a_power_cut_while_garbage_is_collected_does_so_too() {
    let every = env_number("TACITA_CUT_EVERY", 23);
    for seed in 0..env_number("TACITA_FULL_SEEDS", 2) {
        let (cuts, collected) = cut_everywhere(Workload::full(seed, 9), every);
        assert!(cuts > 20 && collected > 1, "{cuts} cuts, {collected} erase blocks collected");
    }
}
