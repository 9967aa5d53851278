//! Beside a file system in memory: the same operations, the same tree.

use std::ffi::OsString;
use std::time::Duration;

use tacita_privatefs::Options;
use tacita_testkit::history::{Rng, step, tree};
use tacita_testkit::{MemoryFs, Watchdog, by_name, env_number};
use tacita_vfs::{FileSystem, FileType, NewNode, Stamps, Timestamp};

use crate::world::{LIMITS, World};

const TIME_MAX: Duration = Duration::from_mins(20);

/// Plays a history; the mount is ended and begun anew now and then.
fn play(seed: u64, steps: u32, options: &Options) {
    let mut rng = Rng::new(seed);
    let world = World::new();
    let (mut fs, _) = world.mount_with(seed, options);
    let model = MemoryFs::default();
    for number in 0..steps {
        let what = format!("seed {seed}, step {number}");
        step(&model, &mut rng.clone(), &LIMITS);
        step(&fs, &mut rng, &LIMITS);
        match rng.below(40) {
            0..3 => fs.sync().unwrap(),
            3 => {
                fs.close().unwrap();
                fs = world.mount_with(seed + u64::from(number), options).0;
            }
            4 => fs.sync_node(fs.root()).unwrap(),
            _ => continue,
        }
        assert!(tree(&fs) == tree(&model), "{what}");
    }
    assert!(tree(&fs) == tree(&model), "seed {seed}");
    fs.close().unwrap();
    world.check(&format!("seed {seed}"));
}

#[test]
fn does_what_a_file_system_in_memory_does() {
    for seed in 0..env_number("TACITA_GAMES", 8) {
        play(seed, 300, &Options::default());
    }
}

#[test]
fn does_so_with_next_to_nothing_in_memory() {
    let options = Options { cache_blocks: 24, changed_max: 8, read_ahead: 1, ..Options::default() };
    let _watchdog = Watchdog::start("does_so_with_next_to_nothing_in_memory", TIME_MAX);
    for seed in 100..100 + env_number("TACITA_GAMES", 11) {
        play(seed, 200, &options);
    }
}

/// What one operation needs is more than may stay in memory: it ends all the same.
#[test]
fn an_operation_may_need_more_than_may_stay_in_memory() {
    let _watchdog = Watchdog::start("an_operation_may_need_more_than_may_stay", TIME_MAX);
    let options = Options { cache_blocks: 3, read_ahead: 1, ..Options::default() };
    let world = World::new();
    let content: Vec<u8> = (0..100_000u32).map(|n| n.to_le_bytes()[n as usize % 3]).collect();
    let (fs, _) = world.mount_with(1, &options);
    let new = NewNode::new(FileType::File, 0o600, Timestamp::default());
    let (file, _) = fs.create(fs.root(), "long".as_ref(), &new).unwrap();
    fs.write(file, 0, &content, Stamps::NONE).unwrap();
    fs.close().unwrap();
    let fs = world.mount_with(2, &options).0;
    // Two at a time, each in the way of the other.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let (file, _) = fs.lookup(fs.root(), "long".as_ref()).unwrap();
                let mut read = vec![0; content.len()];
                assert_eq!(fs.read(file, 0, &mut read).unwrap(), content.len());
                assert!(read == content);
            });
        }
    });
    fs.close().unwrap();
    world.check("read");
}

#[test]
fn does_so_where_operations_are_padded() {
    let options = Options { pad: true, ..Options::default() };
    play(200, 120, &options);
}

/// A directory with many names, listed in parts while names come and go.
#[test]
fn large_directories_are_listed_whole_and_leave_nothing() {
    let world = World::new();
    let (fs, _) = world.mount(1);
    let now = Timestamp::default();
    let names: Vec<OsString> =
        (0..3000).map(|n| OsString::from(format!("{n}-{}", "x".repeat(n % 200)))).collect();
    for name in &names {
        fs.create(fs.root(), name, &NewNode::new(FileType::Fifo, 0o600, now)).unwrap();
    }
    fs.sync().unwrap();
    let (mut listed, mut from) = (Vec::new(), 0);
    loop {
        let mut some = Vec::new();
        fs.list(fs.root(), from, &mut |entry| {
            some.push((entry.name.to_owned(), entry.cookie));
            some.len() < 100
        })
        .unwrap();
        let Some((_, cookie)) = some.last() else { break };
        assert!(*cookie > from);
        from = *cookie;
        // What comes in between moves nothing.
        let extra = OsString::from(format!("extra {from}"));
        fs.create(fs.root(), &extra, &NewNode::new(FileType::Fifo, 0o600, now)).unwrap();
        listed.extend(some.into_iter().map(|(name, _)| name));
    }
    for name in &names {
        assert_eq!(listed.iter().filter(|other| *other == name).count(), 1);
    }
    let mut all = Vec::new();
    fs.list(fs.root(), 0, &mut |entry| {
        all.push(entry.name.to_owned());
        true
    })
    .unwrap();
    for name in &all {
        let node = by_name::remove(&fs, fs.root(), name, now).unwrap();
        fs.forget(node);
    }
    fs.close().unwrap();
    world.check("emptied");
    // The register, the root, and what remembers the nameless with its buckets.
    assert!(world.store.count() <= 3, "{} blocks are left", world.store.count());
}
