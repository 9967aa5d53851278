//! Permutation and scratch: any two histories to the same tree give the same image.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use tacita_clock::Simulated;
use tacita_hifs::geometry::{Ids, Layout, Parameters, Times};
use tacita_hifs::{Hifs, OpenOptions};
use tacita_testkit::MemoryFs;
use tacita_testkit::env_number;
use tacita_testkit::history::{Commits, Limits, Rng, build, step, tree};
use tacita_vfs::posix::{Caller, OpenMode, WriteMode};
use tacita_vfs::{Attr, Cookie, FileSystem, FileType, FsStats, Kind, Posix, Timestamp};

use crate::images::{LAYOUTS, assert_same, fresh, memory_device, open, options, parameters};

pub(crate) const LIMITS: Limits = Limits { names: 12, size_max: 90_000, write_max: 30_000 };

/// What `stat`, `readdir` and `statfs` show, but for times: for each directory its entries in their
/// order, with their positions.
fn visible(hifs: &Hifs) -> (Vec<(Cookie, Attr)>, FsStats) {
    let timeless = |node| {
        let none = Timestamp::default();
        Attr { atime: none, mtime: none, ctime: none, ..hifs.attr(node).unwrap() }
    };
    let mut seen = vec![(0, timeless(hifs.root()))];
    let mut dirs = vec![hifs.root()];
    while let Some(dir) = dirs.pop() {
        let mut found = Vec::new();
        let mut each = |entry: tacita_vfs::Entry<'_>| {
            found.push((entry.cookie, entry.node));
            true
        };
        hifs.list(dir, 0, &mut each).unwrap();
        for (cookie, node) in found {
            let attr = timeless(node);
            if attr.kind == FileType::Directory {
                dirs.push(node);
            }
            seen.push((cookie, attr));
        }
    }
    (seen, hifs.stats().unwrap())
}

/// One game: a random history with commits and remounts against a model in memory, then another
/// history to the same tree on a fresh image. Panics if the images differ.
pub(crate) fn game(parameters: &Parameters, seed: u64, steps: u64) {
    let device = fresh(parameters);
    let model = MemoryFs::default();
    let mut rng = Rng::new(seed);
    let mut hifs = open(device.clone());
    for n in 0..steps {
        let mut same = rng.clone();
        step(&hifs, &mut rng, &LIMITS);
        step(&model, &mut same, &LIMITS);
        match rng.below(40) {
            0..4 => hifs.sync().unwrap(),
            4 => {
                hifs.sync().unwrap();
                drop(hifs);
                hifs = open(device.clone());
            }
            _ => {}
        }
        if n % 16 == 0 {
            assert!(tree(&hifs) == tree(&model), "seed {seed}: the model disagrees after step {n}");
        }
    }
    hifs.sync().unwrap();
    let durability = tree(&hifs);
    assert!(durability == tree(&model), "seed {seed}: the model disagrees");
    let first = device.snapshot();
    // What a mount reads and verifies shows the same tree.
    let again = open(memory_device(&first));
    assert!(tree(&again) == durability, "seed {seed}: a remount disagrees");
    let shown = visible(&hifs);
    assert!(visible(&again) == shown, "seed {seed}: a remount shows something else");
    assert_same(&first, &memory_device(&first).snapshot(), "a remount");

    for other in 0..2 {
        let device = fresh(parameters);
        let hifs = open(device.clone());
        build(&hifs, &durability, &mut Rng::new(seed ^ (other + 1) << 32), Commits::Often);
        assert!(tree(&hifs) == durability, "seed {seed}: another way led elsewhere");
        hifs.sync().unwrap();
        assert_same(&first, &device.snapshot(), &format!("seed {seed}, way {other}"));
        assert!(visible(&hifs) == shown, "seed {seed}, way {other}: programs see a difference");
    }
}

#[test]
fn any_history_gives_the_same_image() {
    for layout in LAYOUTS {
        for seed in 0..env_number("TACITA_GAMES", 12) {
            game(&parameters(layout), seed, 160);
        }
    }
}

#[test]
fn with_larger_buckets() {
    for (bucket, groups) in [(16 << 10, 2), (64 << 10, 1)] {
        for seed in 100..100 + env_number("TACITA_GAMES", 6) {
            let parameters = Parameters {
                bucket_len_bytes: Some(bucket),
                groups: Some(groups),
                len_bytes: 16 << 20,
                ..parameters(Layout::D)
            };
            game(&parameters, seed, 200);
        }
    }
}

/// With times kept, they are part of the tree: histories that set the same times agree.
#[test]
fn times_are_part_of_the_state_only_when_asked() {
    for times in [Times::None, Times::User] {
        let parameters = Parameters { times, ..parameters(Layout::D) };
        game(&parameters, 7, 100);
    }
}

/// With random ids and the same source of ids, an image still holds no trace of detours: the
/// history is replayed, once with commits after each step and once with a single one.
#[test]
fn random_ids_hide_commits() {
    let parameters = Parameters { ids: Ids::Random, ..parameters(Layout::D) };
    for seed in 0..6 {
        let images: Vec<Vec<u8>> = [1, 1000]
            .into_iter()
            .map(|every| {
                let device = fresh(&parameters);
                let hifs = open(device.clone());
                let mut rng = Rng::new(seed);
                for n in 0..80 {
                    step(&hifs, &mut rng, &LIMITS);
                    if n % every == 0 {
                        hifs.sync().unwrap();
                    }
                }
                hifs.sync().unwrap();
                device.snapshot()
            })
            .collect();
        assert_same(&images[0], &images[1], &format!("seed {seed}"));
    }
}

/// With hashes of a few bits, most names and inodes tie: pages split late and orders are settled by
/// names, and images are still the same.
#[test]
fn forced_ties_stay_canonical() {
    for bits in [4, 8] {
        for seed in 0..env_number("TACITA_GAMES", 4) {
            let parameters = parameters(Layout::D);
            let few = |seed| OpenOptions { hash_bits: bits, ..options(seed) };
            let device = fresh(&parameters);
            let hifs = Hifs::open(device.clone(), few(1)).unwrap();
            let mut rng = Rng::new(seed);
            for n in 0..120 {
                step(&hifs, &mut rng, &LIMITS);
                if n % 10 == 0 {
                    hifs.sync().unwrap();
                }
            }
            hifs.sync().unwrap();
            let durability = tree(&hifs);
            let other = fresh(&parameters);
            let hifs = Hifs::open(other.clone(), few(2)).unwrap();
            build(&hifs, &durability, &mut rng, Commits::Often);
            hifs.sync().unwrap();
            assert_same(
                &device.snapshot(),
                &other.snapshot(),
                &format!("{bits} bits, seed {seed}"),
            );
            assert!(tree(&Hifs::open(other, few(3)).unwrap()) == durability);
        }
    }
}

/// The kernel forgets a node's number a moment after its last name is gone; a commit in between
/// must not keep what nobody has open.
#[test]
fn a_commit_does_not_wait_for_the_kernel_to_forget() {
    let parameters = parameters(Layout::D);
    let device = fresh(&parameters);
    let empty = device.snapshot();
    let posix = Posix::new(
        open(device.clone()),
        Arc::new(Simulated::ticking(UNIX_EPOCH, Duration::from_secs(1))),
    );
    let caller = Caller { umask: 0o022, ..Caller::default() };
    let (root, name) = (posix.root(), OsStr::new("a"));
    let node = posix.mknod(caller, root, name, (FileType::File, 0o644), 0).unwrap().0;
    let mode = OpenMode { read: true, write: true, append: false, truncate: false };
    let (held, _) = posix.open(caller, node, mode).unwrap();
    posix.write(held, 0, &[7; 15_000], WriteMode::Program(caller)).unwrap();
    posix.sync().unwrap();
    posix.unlink(caller, root, name).unwrap();
    posix.sync().unwrap();
    let mut back = [0; 15_000];
    assert_eq!(posix.read(held, 0, &mut back).unwrap(), 15_000, "it is in use");
    assert_eq!(back, [7; 15_000]);
    let (dir, _) = (posix.opendir(root).unwrap(), posix.release(held).unwrap());
    posix.fsync(dir).unwrap();
    assert_same(&empty, &device.snapshot(), "closed, unlinked and fsynced");
    // The kernel may still ask for it, and no other node gets its number until it forgets.
    assert_eq!(posix.attr(node).unwrap_err().kind(), Kind::Stale);
    let other = posix.mknod(caller, root, name, (FileType::File, 0o644), 0).unwrap().0;
    assert_ne!(other, node);
    posix.forget(node, 1);
    posix.attr(other).unwrap();
}
