//! Power cuts: at programs and erases, in every way. What was synced is there, what was not is there as
//! it was at some time or not at all, no key has encrypted twice, and what is deleted stays so.

use std::collections::BTreeSet;
use std::sync::Arc;

use tacita_clock::System;
use tacita_dnefs::{Dnefs, PurgeScope, check};
use tacita_dnefs_audit::keys_used_twice;
use tacita_flash::emulator::CutMode;
use tacita_testkit::MemoryFs;
use tacita_testkit::env_number;
use tacita_testkit::history::{Rng, Tree, step, tree};
use tacita_vfs::FileSystem;

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

/// One step of a workload; returns whether all before it is on the medium now.
fn act(fs: &Dnefs, rng: &mut Rng, number: u32) -> Option<bool> {
    match number % 9 {
        4 => fs.sync().ok().map(|()| true),
        8 => fs.purge(PurgeScope::Deleted).ok().map(|_| true),
        _ => {
            // A step panics when the power is gone.
            let done =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| step(fs, rng, &LIMITS)));
            done.ok().map(|()| false)
        }
    }
}

/// Plays a workload on a chip; what it may have left when the power is cut at `cut`, and how many
/// operations there were.
fn play(
    seed: u64,
    steps: u32,
    cut: Option<(u64, CutMode)>,
) -> (Arc<tacita_flash::Emulator>, Allowed, u64) {
    let chip = fresh(BLOCKS, seed);
    let fs = open(&chip);
    let model = MemoryFs::default();
    let mut rng = Rng::new(seed);
    let mut allowed = Allowed { trees: vec![tree(&model)] };
    if let Some((number, mode)) = cut {
        chip.cut_at(number, mode);
    }
    let start = chip.operations();
    for number in 0..steps {
        let mut ahead = rng.clone();
        if number % 9 != 4 && number % 9 != 8 {
            step(&model, &mut ahead, &LIMITS);
            allowed.trees.push(tree(&model));
        }
        match act(&fs, &mut rng, number) {
            Some(true) => allowed.trees = vec![tree(&model)],
            Some(false) => {}
            None => break,
        }
    }
    let operations = chip.operations();
    assert!(cut.is_some() || operations > start);
    drop(fs);
    (chip, allowed, operations)
}

pub(crate) fn cut_everywhere(seed: u64, steps: u32, every: u64) -> u64 {
    let (chip, _, operations) = play(seed, steps, None);
    assert!(keys_used_twice(&dump(&chip)).is_empty());
    let first = {
        let chip = fresh(BLOCKS, seed);
        drop(open(&chip));
        chip.operations()
    };
    let mut cuts = 0;
    for number in (first + seed % every..operations).step_by(usize::try_from(every).unwrap()) {
        for mode in MODES {
            let what = format!("seed {seed}, cut at {number} of {operations}, {mode:?}");
            let (chip, allowed, _) = play(seed, steps, Some((number, mode)));
            let chip = Arc::new(chip.power_on().unwrap());
            let fs = Dnefs::open(volume(&chip), None, Arc::new(System))
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            assert!(fs.is_sound(), "{what}");
            allowed.check(&tree(&fs), &what);
            // It can be worked on, and no key is used twice for that.
            let mut rng = Rng::new(number);
            for _ in 0..4 {
                step(&fs, &mut rng, &LIMITS);
            }
            let left = tree(&fs);
            fs.close().unwrap();
            let found = check(&volume(&chip), None).unwrap();
            assert!(found.wrong.is_empty() && found.was_unmounted, "{what}: {found:?}");
            assert!(keys_used_twice(&dump(&chip)).is_empty(), "{what}: a key has encrypted twice");
            drop(fs);
            assert!(tree(&open(&chip)) == left, "{what}: after the next mount");
            cuts += 1;
        }
    }
    cuts
}

#[test]
fn a_power_cut_anywhere_leaves_what_was_synced_and_no_key_used_twice() {
    let cuts: u64 = (0..env_number("TACITA_SEEDS", 3))
        .map(|seed| cut_everywhere(seed, 40, env_number("TACITA_CUT_EVERY", 7)))
        .sum();
    assert!(cuts > 60);
}
