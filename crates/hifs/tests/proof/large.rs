//! Large directories, sparse offsets at the limits, links and renames, files without a name.

#![allow(clippy::disallowed_methods, reason = "it measures on the clock of the machine")]

use std::time::Instant;

use tacita_block::{BlockDevice, Geometry, MemoryDevice};
use tacita_hifs::geometry::{Ids, Layout, Parameters, Times};
use tacita_hifs::{Hifs, OpenOptions, RootOwner, format};
use tacita_testkit::by_name;
use tacita_testkit::history::{Commits, Rng, build, step, tree};
use tacita_vfs::{Change, Exchange, FileSystem, FileType, Kind, NodeId, Reserve, Seek, Stamps};

use crate::images::{
    LAYOUTS, NOW, assert_same, fresh, memory_device, new, open, options, parameters,
};
use crate::permutation::LIMITS;

fn make(fs: &Hifs, dir: NodeId, name: &str, kind: FileType) -> NodeId {
    fs.create(dir, name.as_ref(), &new(kind)).unwrap().0
}

/// A directory of `count` entries, made in an order of its own, with a few that come and go.
fn crowd(device: std::sync::Arc<dyn BlockDevice>, count: u32, backwards: bool) -> Hifs {
    let hifs = open(device);
    let dir = make(&hifs, hifs.root(), "crowd", FileType::Directory);
    for n in 0..count {
        let n = if backwards { count - 1 - n } else { n };
        make(&hifs, dir, &format!("entry number {n}"), FileType::Fifo);
        if backwards && n % 1000 == 0 {
            make(&hifs, dir, "a detour", FileType::Fifo);
            hifs.sync().unwrap();
            let gone = by_name::remove(&hifs, dir, "a detour".as_ref(), NOW).unwrap();
            hifs.forget(gone);
        }
    }
    hifs.sync().unwrap();
    hifs
}

fn on_memory(parameters: &Parameters) -> std::sync::Arc<MemoryDevice> {
    let shape = Geometry { block_len_bytes: 4096, blocks: parameters.len_bytes / 4096 };
    let device = std::sync::Arc::new(MemoryDevice::new(shape));
    format(device.clone(), parameters, RootOwner::default(), &mut |_, _| {}).unwrap();
    device
}

#[test]
fn twenty_thousand_entries_in_two_orders() {
    let parameters = Parameters { len_bytes: 160 << 20, groups: Some(4), ..parameters(Layout::D) };
    let devices = [on_memory(&parameters), on_memory(&parameters)];
    let first = crowd(devices[0].clone(), 20_000, false);
    crowd(devices[1].clone(), 20_000, true);
    assert!(devices[0].hash() == devices[1].hash(), "the images differ");
    // Too much for one commit: a program copies instead, and nothing has changed.
    let root = first.root();
    let before = devices[0].hash();
    let to = (root, "elsewhere".as_ref());
    let error =
        by_name::rename(&first, (root, "crowd".as_ref()), to, Exchange::No, NOW).unwrap_err();
    assert_eq!(error.kind(), Kind::CrossDevice);
    first.sync().unwrap();
    assert!(devices[0].hash() == before, "a refused rename has changed the image");
    let (dir, _) = first.lookup(root, "crowd".as_ref()).unwrap();
    let mut count = 0;
    first
        .list(dir, 0, &mut |_| {
            count += 1;
            true
        })
        .unwrap();
    assert_eq!(count, 20_000);
    drop(first);
    let again = open(devices[0].clone());
    assert!(again.check(&mut |_, _| {}).unwrap().is_canonical());
}

/// A million entries in one directory; minutes, so only when asked for.
#[test]
fn a_million_entries() {
    if std::env::var_os("TACITA_LARGE").is_none() {
        eprintln!("SKIPPED: a_million_entries: set TACITA_LARGE=1");
        return;
    }
    let parameters = Parameters {
        len_bytes: 8 << 30,
        bucket_len_bytes: None,
        groups: None,
        ..parameters(Layout::D)
    };
    let mut hashes = Vec::new();
    for backwards in [false, true] {
        let (start, device) = (Instant::now(), on_memory(&parameters));
        drop(crowd(device.clone(), 1_000_000, backwards));
        let made = start.elapsed();
        let start = Instant::now();
        drop(open(device.clone()));
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        eprintln!("a million entries: made in {made:?}, opened in {:?}, {peak}", start.elapsed());
        hashes.push(device.hash());
    }
    assert!(hashes[0] == hashes[1], "the images differ");
}

#[test]
fn offsets_at_the_limits() {
    for layout in LAYOUTS {
        let device = fresh(&parameters(layout));
        let empty = device.snapshot();
        let hifs = open(device.clone());
        let file = make(&hifs, hifs.root(), "sparse", FileType::File);
        let max = (u64::from(u32::MAX) - 64) * 4096;
        let resize = |size| Change { size: Some(size), ..Change::default() };
        let too_big = |result: tacita_vfs::Result<()>| {
            assert_eq!(result.unwrap_err().kind(), Kind::FileTooBig);
        };
        for at in [max, max - 2, u64::MAX, u64::MAX - 5, i64::MAX.cast_unsigned()] {
            too_big(hifs.write(file, at, b"abc", Stamps::NONE));
        }
        too_big(hifs.write(file, max - 4096, &vec![1; 600_000], Stamps::NONE));
        too_big(hifs.change(file, &resize(max + 1)).map(drop));
        too_big(hifs.change(file, &resize(u64::MAX)).map(drop));
        assert_eq!(hifs.attr(file).unwrap().size, 0);
        hifs.write(file, max - 3, b"end", Stamps::NONE).unwrap();
        hifs.write(file, 1 << 40, b"middle", Stamps::NONE).unwrap();
        hifs.sync().unwrap();
        assert_eq!(hifs.attr(file).unwrap().size, max);
        assert_eq!(hifs.attr(file).unwrap().blocks, 16);
        assert_eq!(hifs.seek(file, 0, Seek::Data).unwrap(), 1 << 40);
        assert_eq!(hifs.seek(file, 1 << 40, Seek::Hole).unwrap(), (1 << 40) + 4096);
        assert_eq!(hifs.seek(file, (1 << 40) + 4096, Seek::Data).unwrap(), max - 4096);
        assert_eq!(hifs.seek(file, max - 1, Seek::Hole).unwrap(), max);
        drop(hifs);
        let hifs = open(device.clone());
        let (file, _) = hifs.lookup(hifs.root(), "sparse".as_ref()).unwrap();
        let mut buffer = [9; 8];
        assert_eq!(hifs.read(file, max - 5, &mut buffer).unwrap(), 5);
        assert_eq!(&buffer[..5], b"\0\0end");
        assert_eq!(hifs.read(file, u64::MAX, &mut buffer).unwrap(), 0);
        hifs.reserve(file, 0..u64::MAX, Reserve::Punch).unwrap();
        hifs.sync().unwrap();
        assert_eq!(hifs.attr(file).unwrap().blocks, 0);
        assert!(hifs.reserve(file, 0..u64::MAX, Reserve::Zero { keep_size: false }).is_err());
        assert!(hifs.reserve(file, 0..u64::MAX, Reserve::Allocate { keep_size: true }).is_err());
        hifs.change(file, &resize(0)).unwrap();
        let gone = by_name::remove(&hifs, hifs.root(), "sparse".as_ref(), NOW).unwrap();
        hifs.forget(gone);
        hifs.sync().unwrap();
        assert_same(&empty, &device.snapshot(), "emptied");
    }
}

/// The least path owns a file of several names: renames of folders above change which that is.
#[test]
fn links_across_folders_that_move() {
    for layout in LAYOUTS {
        for seed in 0..6 {
            let device = fresh(&parameters(layout));
            let hifs = open(device.clone());
            let (root, mut rng) = (hifs.root(), Rng::new(seed));
            let mut names: Vec<String> = Vec::new();
            for name in ["c", "f", "k", "p"] {
                let dir = make(&hifs, root, name, FileType::Directory);
                let below = make(&hifs, dir, "below", FileType::Directory);
                let file = make(&hifs, below, "file", FileType::File);
                hifs.write(file, 0, &rng.bytes(9000), Stamps::NONE).unwrap();
                names.push(name.into());
                for (n, other) in names.iter().enumerate() {
                    let (other, _) = hifs.lookup(root, other.as_ref()).unwrap();
                    let link = format!("link {name} {n}");
                    hifs.link(file, other, link.as_ref(), NOW).unwrap();
                }
            }
            for n in 0..20u32 {
                let which = usize::try_from(rng.below(4)).unwrap();
                let to = char::from(b'a' + u8::try_from(rng.below(26)).unwrap());
                let to = format!("{to}{n}");
                let from = std::mem::replace(&mut names[which], to.clone());
                let (from, to) = ((root, from.as_ref()), (root, to.as_ref()));
                by_name::rename(&hifs, from, to, Exchange::No, NOW).unwrap();
                if rng.below(3) == 0 {
                    hifs.sync().unwrap();
                }
            }
            hifs.sync().unwrap();
            let durability = tree(&hifs);
            let other = fresh(&parameters(layout));
            let again = open(other.clone());
            build(&again, &durability, &mut rng, Commits::Often);
            again.sync().unwrap();
            let what = format!("{layout:?}, seed {seed}");
            assert_same(&device.snapshot(), &other.snapshot(), &what);
            assert!(tree(&open(memory_device(&device.snapshot()))) == durability, "{what}");
        }
    }
}

/// A file in use without a name is in the image if there was a commit; a crash leaves it there, a
/// check tells, and the next mount erases it.
#[test]
fn nameless_files_do_not_outlive_a_crash() {
    for layout in LAYOUTS {
        for ids in [Ids::Path, Ids::Random] {
            let parameters = Parameters { ids, ..parameters(layout) };
            let device = fresh(&parameters);
            let hifs = Hifs::open(device.clone(), options(3)).unwrap();
            let root = hifs.root();
            let kept = make(&hifs, root, "kept", FileType::File);
            hifs.write(kept, 0, &vec![5; 20_000], Stamps::NONE).unwrap();
            hifs.sync().unwrap();
            let without = device.snapshot();
            for (n, len) in [100, 30_000, 0].into_iter().enumerate() {
                let name = format!("doomed {n}");
                let file = make(&hifs, root, &name, FileType::File);
                hifs.write(file, 0, &vec![b'#'; len], Stamps::NONE).unwrap();
                hifs.sync().unwrap();
                by_name::remove(&hifs, root, name.as_ref(), NOW).unwrap();
                hifs.write(file, 1000, b"still in use", Stamps::NONE).unwrap();
            }
            hifs.sync().unwrap();
            let crashed = device.snapshot();
            let readable = OpenOptions { read_only: true, ..options(1) };
            let reader = Hifs::open(memory_device(&crashed), readable).unwrap();
            assert_eq!(tree(&reader).len(), 2);
            let report = reader.check(&mut |_, _| {}).unwrap();
            assert_eq!(report.count, 3, "{report:?}");
            let again = memory_device(&crashed);
            drop(open(again.clone()));
            assert_same(&without, &again.snapshot(), &format!("{layout:?}, {ids:?}"));
            assert!(again.snapshot().windows(3).all(|three| three != b"###"));
        }
    }
}

/// Times are part of the state with `times=user` and `times=full`; when commits happen is not.
#[test]
fn kept_times_do_not_tell_commits() {
    for times in [Times::User, Times::Full] {
        for seed in 0..4 {
            let parameters = Parameters { times, ..parameters(Layout::D) };
            let images = [1, 7, 1000].map(|every| {
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
                assert!(tree(&open(memory_device(&device.snapshot()))) == tree(&hifs));
                device.snapshot()
            });
            assert_same(&images[0], &images[1], &format!("{times:?}, seed {seed}"));
            assert_same(&images[0], &images[2], &format!("{times:?}, seed {seed}"));
        }
    }
}

/// With random ids a rename moves nothing, and numbers and order survive it and a remount.
#[test]
fn random_ids_are_stable() {
    let parameters = Parameters { ids: Ids::Random, ..parameters(Layout::D) };
    let device = fresh(&parameters);
    let hifs = Hifs::open(device.clone(), options(9)).unwrap();
    let root = hifs.root();
    let dir = make(&hifs, root, "dir", FileType::Directory);
    for n in 0..50 {
        let file = make(&hifs, dir, &format!("{n}"), FileType::File);
        hifs.write(file, 0, &[1; 5000], Stamps::NONE).unwrap();
    }
    hifs.sync().unwrap();
    let seen = |hifs: &Hifs, name: &str| {
        let (dir, attr) = hifs.lookup(hifs.root(), name.as_ref()).unwrap();
        let mut entries = vec![(name.len().to_string(), attr.ino)];
        hifs.list(dir, 0, &mut |entry| {
            entries.push((entry.name.to_string_lossy().into_owned(), entry.ino));
            true
        })
        .unwrap();
        entries
    };
    let before = seen(&hifs, "dir");
    let mut numbers: Vec<u64> = before.iter().map(|(_, ino)| *ino).collect();
    numbers.sort_unstable();
    assert!(numbers[0] > 2 && numbers.windows(2).all(|pair| pair[0] != pair[1]));
    let copied = hifs.cost().buckets.copied;
    by_name::rename(&hifs, (root, "dir".as_ref()), (root, "new".as_ref()), Exchange::No, NOW)
        .unwrap();
    hifs.sync().unwrap();
    assert_eq!(hifs.cost().buckets.copied, copied, "a rename has moved content");
    assert_eq!(seen(&hifs, "new"), before);
    drop(hifs);
    assert_eq!(seen(&Hifs::open(device, options(10)).unwrap(), "new"), before);
}
