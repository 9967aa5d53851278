//! Full images: what is refused changes nothing, and is refused for the state's sake alone.

use std::ffi::OsStr;

use tacita_hifs::Hifs;
use tacita_hifs::geometry::{Layout, Parameters, Table};
use tacita_testkit::by_name;
use tacita_testkit::env_number;
use tacita_testkit::history::{Limits, Rng, Tree, clear, step, tree, walk};
use tacita_vfs::{
    Change, Exchange, FileSystem, FileType, Kind, NewNode, NodeId, Stamps, XattrMode,
};

use crate::images::{
    LAYOUTS, NOW, assert_same, fresh, memory_device, new, open, parameters, plainly,
};

fn small(layout: Layout) -> Parameters {
    Parameters { len_bytes: 1 << 20, groups: Some(2), ..parameters(layout) }
}

/// Whether there was room; any other failure is one of the test.
fn room<T>(result: tacita_vfs::Result<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) if error.kind() == Kind::NoSpace => None,
        Err(error) => panic!("{error:?}"),
    }
}

/// A way to fill one of the tables a little more; `false` when there is no room.
type Filler = fn(&Hifs, u64) -> bool;

const FILLERS: [(&str, Filler); 7] = [
    ("content", |fs, n| {
        let name = format!("file-{}", n / 8);
        let node = match fs.lookup(fs.root(), name.as_ref()) {
            Ok((node, _)) => node,
            Err(_) => match room(fs.create(fs.root(), name.as_ref(), &new(FileType::File))) {
                Some((node, _)) => node,
                None => return false,
            },
        };
        room(fs.write(node, n % 8 * 4096, &[7; 4096], Stamps::NONE)).is_some()
    }),
    ("directory entries", |fs, n| {
        let name = format!("{n:0200}");
        if fs.lookup(fs.root(), name.as_ref()).is_ok() {
            return true;
        }
        room(fs.create(fs.root(), name.as_ref(), &new(FileType::Fifo))).is_some()
    }),
    ("directories", |fs, n| {
        let name = format!("{n}");
        let dir = match fs.lookup(fs.root(), name.as_ref()) {
            Ok((dir, _)) => Some(dir),
            Err(_) => room(fs.create(fs.root(), name.as_ref(), &new(FileType::Directory)))
                .map(|(dir, _)| dir),
        };
        let Some(dir) = dir else {
            return false;
        };
        let x = OsStr::new("x");
        fs.lookup(dir, x).is_ok() || room(fs.create(dir, x, &new(FileType::Fifo))).is_some()
    }),
    ("attributes", |fs, n| {
        let node = some_file(fs, n / 4);
        node.is_some_and(|node| {
            let name = format!("user.{}", n % 4);
            room(fs.set_xattr(node, name.as_ref(), &[3; 700], XattrMode::Any)).is_some()
        })
    }),
    ("short content", |fs, n| {
        some_file(fs, n)
            .is_some_and(|node| room(fs.write(node, 0, &[1; 190], Stamps::NONE)).is_some())
    }),
    ("short content that grows a hole", |fs, n| {
        some_file(fs, n).is_some_and(|node| {
            let size = Some(10_000);
            room(fs.write(node, 0, &[1; 19], Stamps::NONE)).is_some()
                && room(fs.change(node, &Change { size, ..Change::default() })).is_some()
        })
    }),
    ("long links", |fs, n| {
        let target = "t".repeat(1000).into();
        if fs.lookup(fs.root(), format!("l{n}").as_ref()).is_ok() {
            return true;
        }
        let link = NewNode { target, ..new(FileType::Symlink) };
        room(fs.create(fs.root(), format!("l{n}").as_ref(), &link)).is_some()
    }),
];

fn some_file(fs: &Hifs, n: u64) -> Option<NodeId> {
    file(fs, &format!("f{n}"))
}

fn file(fs: &Hifs, name: &str) -> Option<NodeId> {
    match fs.lookup(fs.root(), name.as_ref()) {
        Ok((node, _)) => Some(node),
        Err(_) => room(fs.create(fs.root(), name.as_ref(), &new(FileType::File))).map(|(n, _)| n),
    }
}

/// Fills until there is no room, with a commit now and then, and checks that the refused operation
/// has changed nothing.
fn fill(hifs: &Hifs, filler: Filler, from: u64, commits: u64, what: &str) -> u64 {
    for n in from..from + 100_000 {
        within_limits(hifs, what);
        let before = tree(hifs);
        if !filler(hifs, n) {
            hifs.sync().unwrap_or_else(|e| panic!("{what}: commit of a full image: {e}"));
            // A filler of several steps may have done the first ones.
            assert!(before.len() <= tree(hifs).len(), "{what}");
            return n;
        }
        if n % commits == 0 {
            hifs.sync().unwrap_or_else(|e| panic!("{what}, step {n}: {e}"));
        }
    }
    panic!("{what}: never full");
}

/// Tables are never filled beyond their limits, so that a commit never fails for lack of room.
fn within_limits(hifs: &Hifs, what: &str) {
    for table in [Table::Buckets, Table::Pages] {
        let (used, _) = hifs.load(table);
        let max = hifs.superblock().geometry.cells_max(table);
        assert!(used <= max, "{what}: {used} of {max} in {table:?}");
    }
}

fn rebuilt(parameters: &Parameters, durability: &Tree, seed: u64) -> (Hifs, Vec<u8>) {
    let device = fresh(parameters);
    let hifs = open(device.clone());
    plainly(&hifs, durability, seed);
    assert!(tree(&hifs) == *durability);
    hifs.sync().unwrap();
    (hifs, device.snapshot())
}

#[test]
fn every_table_fills_and_stays_canonical() {
    for layout in LAYOUTS {
        for (what, filler) in FILLERS {
            let what = &format!("{layout:?}, {what}");
            let parameters = small(layout);
            let device = fresh(&parameters);
            let empty = device.snapshot();
            let hifs = open(device.clone());
            let steps = fill(&hifs, filler, 0, 13, what);
            assert!(steps > 3, "{what}: full after {steps}");
            let durability = tree(&hifs);
            let full = device.snapshot();
            let (again, other) = rebuilt(&parameters, &durability, steps);
            assert_same(&full, &other, what);
            assert!(hifs.check(&mut |_, _| {}).unwrap().is_canonical(), "{what}");

            // The same next operations are refused and accepted, with or without pending changes,
            // and what was refused has changed nothing.
            for (_, next) in FILLERS {
                let (first, second) = (next(&hifs, 5000), next(&again, 5000));
                assert_eq!(first, second, "{what}: refusal depends on more than the state");
                assert!(tree(&hifs) == tree(&again), "{what}");
                hifs.sync().unwrap_or_else(|e| panic!("{what}: {e}"));
                again.sync().unwrap();
            }
            assert!(tree(&open(memory_device(&device.snapshot()))) == tree(&hifs), "{what}");

            clear(&hifs, &mut Rng::new(1));
            hifs.sync().unwrap();
            assert_same(&empty, &device.snapshot(), &format!("{what}, emptied"));
        }
    }
}

/// Zeros are never stored, so they are taken however full the image is, in requests of any length.
#[test]
fn zeros_need_no_room() {
    for layout in LAYOUTS {
        let device = fresh(&small(layout));
        let hifs = open(device.clone());
        fill(&hifs, FILLERS[0].1, 0, 1000, "content");
        let full = device.snapshot();
        let root = hifs.root();
        let (hole, _) = hifs.create(root, "hole".as_ref(), &new(FileType::File)).unwrap();
        let zeros = vec![0; 3 << 20];
        hifs.write(hole, 5, &zeros, Stamps::NONE).unwrap();
        hifs.write(hole, 9 << 20, &zeros[..1000], Stamps::NONE).unwrap();
        let (short, _) = hifs.create(root, "short".as_ref(), &new(FileType::File)).unwrap();
        hifs.write(short, 0, &zeros[..100], Stamps::NONE).unwrap();
        hifs.write(short, 50, &zeros, Stamps::NONE).unwrap();
        // One byte among them does need room.
        let mut zeros = zeros;
        zeros[2 << 20] = 1;
        let refused = hifs.write(hole, 5, &zeros, Stamps::NONE);
        assert_eq!(refused.unwrap_err().kind(), Kind::NoSpace, "{layout:?}");
        hifs.sync().unwrap_or_else(|e| panic!("{layout:?}: {e}"));
        for name in ["hole", "short"] {
            let gone = by_name::remove(&hifs, root, name.as_ref(), NOW).unwrap();
            hifs.forget(gone);
        }
        hifs.sync().unwrap();
        assert_same(&full, &device.snapshot(), &format!("{layout:?}"));
    }
}

/// A refused operation leaves tree and image alone, whatever it is.
#[test]
fn what_is_refused_has_changed_nothing() {
    for layout in LAYOUTS {
        for (what, filler) in FILLERS {
            let parameters = small(layout);
            let device = fresh(&parameters);
            let hifs = open(device.clone());
            fill(&hifs, filler, 0, 1000, what);
            for (_, filler) in FILLERS {
                fill(&hifs, filler, 10_000, 7, what);
            }
            let (before, image) = (tree(&hifs), device.snapshot());
            let refused = |what: &str, done: tacita_vfs::Result<()>| {
                if done.is_err() {
                    assert!(tree(&hifs) == before, "{layout:?}, {what}: the tree has changed");
                    hifs.sync().unwrap();
                    assert_same(&image, &device.snapshot(), &format!("{layout:?}, {what}"));
                    return;
                }
                hifs.sync().unwrap_or_else(|e| panic!("{layout:?}, accepted {what}: {e}"));
            };
            let root = hifs.root();
            let places = walk(&hifs);
            let Some(file) = places.iter().find(|place| place.kind == FileType::File) else {
                continue;
            };
            let long = "l".repeat(250);
            refused("write", hifs.write(file.node, 0, &vec![9; 200_000], Stamps::NONE).map(drop));
            if tree(&hifs) != before {
                continue;
            }
            refused("link", hifs.link(file.node, root, long.as_ref(), NOW).map(drop));
            if tree(&hifs) != before {
                continue;
            }
            let to = (root, long.as_ref());
            let from = (file.dir, file.name.as_os_str());
            refused("rename", by_name::rename(&hifs, from, to, Exchange::No, NOW).map(drop));
        }
    }
}

/// Renames may shift the shape of pages, so a table at its limit could be filled beyond what there
/// is: then they must be refused, not the commit.
#[test]
fn no_commit_fails_for_lack_of_room() {
    for layout in LAYOUTS {
        for seed in 0..env_number("TACITA_GAMES", 6) {
            let hifs = open(fresh(&small(layout)));
            let mut rng = Rng::new(seed);
            let limits = Limits { names: 60, size_max: 200_000, write_max: 150_000 };
            for n in 0..300 {
                step(&hifs, &mut rng, &limits);
                if n % 9 == 0 {
                    hifs.sync().unwrap_or_else(|e| panic!("{layout:?}, {seed}, step {n}: {e}"));
                }
            }
        }
    }
}

/// One large write on every geometry that can be asked for.
#[test]
fn every_geometry_takes_large_writes() {
    let sizes = [1 << 20, 2 << 20, 5 << 20, 20 << 20];
    for len_bytes in sizes {
        for bucket in [12, 14, 16, 18, 20].map(|shift| 1u32 << shift) {
            for groups in [1, 3] {
                for layout in [Layout::B, Layout::D] {
                    let parameters = Parameters {
                        len_bytes,
                        bucket_len_bytes: Some(bucket),
                        groups: Some(groups),
                        ..parameters(layout)
                    };
                    if tacita_hifs::Superblock::new(&parameters).is_err() {
                        continue;
                    }
                    large_writes(&parameters);
                }
            }
        }
    }
}

fn large_writes(parameters: &Parameters) {
    let device = fresh(parameters);
    let hifs = open(device.clone());
    let buckets = hifs.stats().unwrap().blocks_free / 3;
    let root = hifs.root();
    let what = format!("{parameters:?}");
    let third = buckets * u64::from(parameters.bucket_len_bytes.unwrap());
    let third = usize::try_from(third).unwrap();
    for name in ["a", "b", "c"] {
        let (file, _) = hifs.create(root, name.as_ref(), &new(FileType::File)).unwrap();
        if let Err(error) = hifs.write(file, 0, &vec![5; third], Stamps::NONE) {
            panic!("{what}, {name}: {error}");
        }
    }
    hifs.sync().unwrap_or_else(|e| panic!("{what}: {e}"));
    let (a, _) = hifs.lookup(root, "a".as_ref()).unwrap();
    // Everything moves, and part of it is written in the same commit.
    for (from, to) in [("b", "z"), ("c", "y")] {
        by_name::rename(&hifs, (root, from.as_ref()), (root, to.as_ref()), Exchange::No, NOW)
            .unwrap();
    }
    hifs.write(a, 10, &[1; 10], Stamps::NONE).unwrap_or_else(|e| panic!("{what}: {e}"));
    let (z, _) = hifs.lookup(root, "z".as_ref()).unwrap();
    hifs.write(z, 4100, &[1; 10], Stamps::NONE).unwrap_or_else(|e| panic!("{what}: {e}"));
    hifs.sync().unwrap_or_else(|e| panic!("{what}: {e}"));
    let durability = tree(&hifs);
    assert!(tree(&open(memory_device(&device.snapshot()))) == durability);
    let other = fresh(parameters);
    let again = open(other.clone());
    plainly(&again, &durability, 3);
    again.sync().unwrap();
    assert_same(&device.snapshot(), &other.snapshot(), &what);
}

/// Random churn on an image that is nearly full stays canonical.
#[test]
fn churn_at_high_load() {
    for layout in LAYOUTS {
        for seed in 0..env_number("TACITA_GAMES", 2) {
            let parameters = small(layout);
            let device = fresh(&parameters);
            let hifs = open(device.clone());
            let mut rng = Rng::new(seed);
            let limits = Limits { names: 20, size_max: 120_000, write_max: 60_000 };
            let mut highest = 0;
            for n in 0..150 {
                // Ballast keeps the load high whatever the steps do; they may trade its name for a folder's.
                let is_file = |node: &NodeId| hifs.attr(*node).unwrap().kind == FileType::File;
                if let Some(node) = file(&hifs, "ballast").filter(is_file) {
                    for _ in 0..20 {
                        let (used, all) = hifs.load(Table::Buckets);
                        if used * 100 >= all * 95 {
                            break;
                        }
                        let at = rng.below(150) * 4096;
                        room(hifs.write(node, at, &rng.bytes(20_000), Stamps::NONE));
                    }
                }
                step(&hifs, &mut rng, &limits);
                if n % 5 == 0 {
                    hifs.sync().unwrap_or_else(|e| panic!("{layout:?}, {seed}, {n}: {e}"));
                    within_limits(&hifs, "churn");
                    let (used, all) = hifs.load(Table::Buckets);
                    highest = highest.max(used * 100 / all);
                }
            }
            hifs.sync().unwrap();
            assert!(highest >= 93, "{layout:?}, seed {seed}: the load was {highest}% at most");
            let durability = tree(&hifs);
            let (_, other) = rebuilt(&parameters, &durability, seed);
            assert_same(&device.snapshot(), &other, &format!("{layout:?}, seed {seed}"));
        }
    }
}
