//! The bound of a commit: whatever is pending, it fits in the journal, and a full image can be
//! emptied.

use tacita_hifs::Hifs;
use tacita_hifs::faults::Fault;
use tacita_hifs::geometry::{Ids, Layout, Parameters, Table};
use tacita_testkit::by_name;
use tacita_testkit::env_number;
use tacita_testkit::history::{Rng, tree, walk};
use tacita_vfs::{Exchange, FileSystem, FileType, Kind, NodeId, Stamps};

use crate::images::{LAYOUTS, NOW, assert_same, fresh, memory_device, new, open, parameters};
use crate::planted::catches;

/// Shapes with few and many buckets a commit.
fn shapes() -> Vec<Parameters> {
    let mut shapes = Vec::new();
    for layout in LAYOUTS {
        for (len_bytes, bucket) in [(8 << 20, 4 << 10), (32 << 20, 16 << 10), (64 << 20, 1 << 20)] {
            for ids in [Ids::Path, Ids::Random] {
                let bucket_len_bytes = Some(bucket);
                shapes.push(Parameters { len_bytes, bucket_len_bytes, ids, ..parameters(layout) });
            }
        }
    }
    shapes
}

fn write_all(hifs: &Hifs, name: &str, content: &[u8]) -> tacita_vfs::Result<NodeId> {
    let (node, _) = hifs.create(hifs.root(), name.as_ref(), &new(FileType::File))?;
    hifs.write(node, 0, content, Stamps::NONE)?;
    Ok(node)
}

/// Copies of one file until there is no room; returns how many.
fn fill(hifs: &Hifs, contents: &[Vec<u8>], from: u64, what: &str) -> u64 {
    for n in from..from + 100_000 {
        let content = &contents[usize::try_from(n).unwrap() % contents.len()];
        match write_all(hifs, &format!("copy {n}"), content) {
            Ok(_) => {}
            Err(error) if error.kind() == Kind::NoSpace => return n,
            Err(error) => panic!("{what}: {error}"),
        }
        if n % 7 == 0 {
            hifs.sync().unwrap_or_else(|e| panic!("{what}, {n} copies: {e}"));
        }
    }
    panic!("{what}: never full");
}

fn remove(hifs: &Hifs, name: &str, what: &str) {
    let node = by_name::remove(hifs, hifs.root(), name.as_ref(), NOW)
        .unwrap_or_else(|e| panic!("{what}, removing {name}: {e}"));
    hifs.forget(node);
}

/// Equal contents fill an image, the first of them go, and more come: every cell's content is
/// another's too, so moves form long paths and circles.
fn equal_contents(parameters: &Parameters, seed: u64) {
    let what = format!("{parameters:?}, seed {seed}");
    let device = fresh(parameters);
    let hifs = open(device.clone());
    let mut rng = Rng::new(seed);
    let cells = hifs.load(Table::Buckets).1 * hifs.superblock().geometry.bucket_len_bytes();
    // Prefixes of one file: equal buckets at equal and at different places.
    let whole = rng.bytes(usize::try_from(cells / 20).unwrap());
    let contents: Vec<Vec<u8>> =
        (1..=5).map(|share| whole[..whole.len() * share / 5].to_vec()).collect();
    let full = fill(&hifs, &contents, 0, &what);
    hifs.sync().unwrap_or_else(|e| panic!("{what}: {e}"));
    for n in 0..full / 2 {
        remove(&hifs, &format!("copy {n}"), &what);
    }
    fill(&hifs, &contents, full + 1, &what);
    // A rename moves everything at once; so does an exchange of two halves.
    for n in full / 2..full {
        let (from, to) = (format!("copy {n}"), format!("moved {n}"));
        let root = hifs.root();
        by_name::rename(&hifs, (root, from.as_ref()), (root, to.as_ref()), Exchange::No, NOW)
            .unwrap_or_else(|e| panic!("{what}: {e}"));
    }
    hifs.sync().unwrap_or_else(|e| panic!("{what}: {e}"));
    let durability = tree(&hifs);
    drop(hifs);
    let hifs = open(memory_device(&device.snapshot()));
    assert!(tree(&hifs) == durability, "{what}");
    drop(hifs);
    // Deleting never fails for want of room, and leaves nothing.
    let hifs = open(device.clone());
    for place in walk(&hifs) {
        remove(&hifs, place.name.to_str().unwrap(), &what);
    }
    hifs.sync().unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_same(&device.snapshot(), &fresh(parameters).snapshot(), &what);
}

#[test]
fn an_image_of_equal_contents_fills_and_empties() {
    for parameters in shapes() {
        for seed in 0..env_number("TACITA_GAMES", 1) {
            equal_contents(&parameters, seed);
        }
    }
}

/// Every other block of each bucket holds a byte and the others become zero: the most records for
/// the least content.
fn sparse(parameters: &Parameters, what: &str) {
    let device = fresh(parameters);
    let hifs = open(device.clone());
    let bucket = hifs.superblock().geometry.bucket_len_bytes();
    let mut rng = Rng::new(11);
    let full = rng.bytes(usize::try_from(bucket).unwrap());
    let mut count = 0;
    // Rather the buckets than the inode table are to be full.
    while hifs.stats().unwrap().files_free > 200
        && write_all(&hifs, &format!("full {count}"), &full).is_ok()
    {
        count += 1;
    }
    hifs.sync().unwrap_or_else(|e| panic!("{what}: {e}"));
    for n in 0..count {
        remove(&hifs, &format!("full {n}"), what);
        let (file, _) = hifs
            .create(hifs.root(), format!("thin {n}").as_ref(), &new(FileType::File))
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        for at in (0..bucket).step_by(8192) {
            let byte = [1 + u8::try_from(n % 200).unwrap()];
            hifs.write(file, at + 200, &byte, Stamps::NONE)
                .unwrap_or_else(|e| panic!("{what}: {e}"));
        }
    }
    hifs.sync().unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(hifs.check(&mut |_, _| {}).unwrap().is_canonical(), "{what}");
}

#[test]
fn sparse_content_in_place_of_full_fits() {
    let shapes = shapes().into_iter().filter(|shape| shape.ids == Ids::Path);
    for parameters in shapes.filter(|shape| matches!(shape.layout, Layout::A | Layout::D)) {
        sparse(&parameters, &format!("{parameters:?}"));
    }
}

/// An adversary looks for the largest commit: from state to state, keeping what made the journal
/// fuller. None is refused, and none takes more than the journal.
fn search(parameters: &Parameters, seed: u64, rounds: u64) -> u64 {
    let mut rng = Rng::new(seed);
    let device = fresh(parameters);
    let hifs = open(device);
    let root = hifs.root();
    let journal = hifs.superblock().geometry.journal_blocks;
    let cells = hifs.load(Table::Buckets).1 * hifs.superblock().geometry.bucket_len_bytes();
    let content = rng.bytes(usize::try_from(cells / 40).unwrap());
    for n in 0..30u64 {
        let dir = if n % 3 == 0 { "d" } else { "e" };
        let dir = match hifs.lookup(root, dir.as_ref()) {
            Ok((dir, _)) => dir,
            Err(_) => hifs.create(root, dir.as_ref(), &new(FileType::Directory)).unwrap().0,
        };
        let (file, _) = hifs.create(dir, format!("{n}").as_ref(), &new(FileType::File)).unwrap();
        let from = usize::try_from(rng.below(3)).unwrap() * 4096;
        match hifs.write(file, 0, &content[from.min(content.len() / 2)..], Stamps::NONE) {
            Ok(()) => {}
            Err(error) if error.kind() == Kind::NoSpace => break,
            Err(error) => panic!("{parameters:?}: {error}"),
        }
    }
    hifs.sync().unwrap();
    let mut largest = 0;
    for round in 0..rounds {
        let before = hifs.cost().journal_blocks;
        let moves: [&dyn Fn(); 3] = [
            &|| {
                let _ = by_name::rename(
                    &hifs,
                    (root, "d".as_ref()),
                    (root, "e".as_ref()),
                    Exchange::Yes,
                    NOW,
                );
            },
            &|| {
                let places = walk(&hifs);
                let files = places.iter().filter(|p| p.kind == FileType::File);
                for (i, place) in files.enumerate() {
                    let to = format!("{:?}", (i + usize::try_from(round).unwrap()) % 30);
                    let _ = by_name::rename(
                        &hifs,
                        (place.dir, &place.name),
                        (place.dir, to.as_ref()),
                        Exchange::Yes,
                        NOW,
                    );
                }
            },
            &|| {
                for place in walk(&hifs).iter().filter(|p| p.kind == FileType::File) {
                    let _ =
                        hifs.write(place.node, 4096 * (round % 5), &content[..4096], Stamps::NONE);
                }
            },
        ];
        for _ in 0..=rng.below(3) {
            moves[usize::try_from(rng.below(3)).unwrap()]();
        }
        hifs.sync().unwrap_or_else(|e| panic!("{parameters:?}, seed {seed}, round {round}: {e}"));
        let taken = hifs.cost().journal_blocks - before;
        largest = largest.max(taken.min(journal));
    }
    largest * 100 / journal
}

#[test]
fn the_largest_commit_fits() {
    let mut largest = 0;
    for parameters in shapes() {
        largest = largest.max(search(&parameters, 7, env_number("TACITA_GAMES", 1) * 12));
    }
    assert!(largest >= 25, "the search came to {largest}% of a journal only");
}

/// Without parking a commit of many small circles does not fit.
#[test]
fn copied_cycles_are_caught() {
    let parameters = Parameters {
        len_bytes: 32 << 20,
        bucket_len_bytes: Some(16 << 10),
        ..parameters(Layout::D)
    };
    assert!(!catches(None, || exchanges(&parameters)), "the game passes without a fault");
    assert!(catches(Some(Fault::CyclesCopied), || exchanges(&parameters)));
}

/// Two trees of different contents change places: each bucket's place may be another's.
fn exchanges(parameters: &Parameters) {
    let device = fresh(parameters);
    let hifs = open(device);
    let root = hifs.root();
    let mut rng = Rng::new(3);
    for dir in ["a", "b"] {
        let (dir, _) = hifs.create(root, dir.as_ref(), &new(FileType::Directory)).unwrap();
        let share = hifs.stats().unwrap().blocks_free * 45 / 100;
        for n in 0..4 {
            let (file, _) =
                hifs.create(dir, format!("{n}").as_ref(), &new(FileType::File)).unwrap();
            let len = share * hifs.superblock().geometry.bucket_len_bytes() / 4;
            hifs.write(file, 0, &rng.bytes(usize::try_from(len).unwrap()), Stamps::NONE).unwrap();
        }
    }
    hifs.sync().unwrap();
    for _ in 0..3 {
        by_name::rename(&hifs, (root, "a".as_ref()), (root, "b".as_ref()), Exchange::Yes, NOW)
            .unwrap();
        hifs.sync().unwrap();
    }
}

/// A full inode table: deleting one of several names still works, and so does every other deletion.
#[test]
fn a_full_inode_table_can_be_emptied() {
    for layout in [Layout::B, Layout::D] {
        let parameters = Parameters { len_bytes: 2 << 20, groups: Some(2), ..parameters(layout) };
        let device = fresh(&parameters);
        let hifs = open(device.clone());
        let root = hifs.root();
        let mut n = 0;
        loop {
            let name = format!("file {n:0100}");
            let Ok((node, _)) = hifs.create(root, name.as_ref(), &new(FileType::File)) else {
                break;
            };
            let second = format!("also {n:0100}");
            if hifs.link(node, root, second.as_ref(), NOW).is_err() {
                break;
            }
            n += 1;
        }
        hifs.sync().unwrap();
        for name in ["also", "file"] {
            for place in walk(&hifs).iter().filter(|p| p.name.to_string_lossy().starts_with(name)) {
                let what = format!("{layout:?}");
                remove(&hifs, place.name.to_str().unwrap(), &what);
                hifs.sync().unwrap();
            }
        }
        assert_same(&device.snapshot(), &fresh(&parameters).snapshot(), "emptied");
    }
}

/// A file with as many names as it can have: each name can be removed, and one more is refused.
#[test]
fn a_file_of_many_names_loses_them_one_by_one() {
    let parameters = Parameters { len_bytes: 32 << 20, ..parameters(Layout::D) };
    let device = fresh(&parameters);
    let hifs = open(device.clone());
    let root = hifs.root();
    let (node, _) = hifs.create(root, "m".as_ref(), &new(FileType::File)).unwrap();
    hifs.write(node, 0, &[9; 10_000], Stamps::NONE).unwrap();
    let mut names = 1u64;
    let refused = loop {
        match hifs.link(node, root, format!("{names}").as_ref(), NOW) {
            Ok(_) => names += 1,
            Err(error) => break error.kind(),
        }
    };
    assert_eq!(refused, Kind::TooManyLinks);
    assert!(names > 100, "{names}");
    hifs.sync().unwrap();
    let mut places = walk(&hifs);
    places.sort_by(|a, b| a.name.cmp(&b.name));
    for place in places {
        let node = by_name::remove(&hifs, root, &place.name, NOW).unwrap();
        if hifs.attr(node).is_ok_and(|attr| attr.nlink == 0) {
            hifs.forget(node);
        }
    }
    hifs.sync().unwrap();
    assert_same(&device.snapshot(), &fresh(&parameters).snapshot(), "all names gone");
}
