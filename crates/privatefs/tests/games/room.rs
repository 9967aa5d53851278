//! Full stores, and limits.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::SystemTime;

use tacita_clock::{Clock, Simulated};
use tacita_privatefs::blocks::{Memory, Way};
use tacita_privatefs::register::SLOTS;
use tacita_privatefs::{Kind, Options, PrivateFs, facts};
use tacita_testkit::by_name;
use tacita_testkit::history::read_all;
use tacita_vfs::{
    Change, FileSystem, FileType, NewNode, Reserve, Seek, Stamps, Timestamp, XattrMode,
};

use crate::world::{CAPACITY, World, key};

fn file(fs: &PrivateFs, name: &str) -> tacita_vfs::Result<tacita_vfs::NodeId> {
    let new = NewNode::new(FileType::File, 0o600, Timestamp::default());
    Ok(fs.create(fs.root(), name.as_ref(), &new)?.0)
}

/// Writes until there is no room, then deletes, again and again.
#[test]
fn a_full_store_says_so_and_is_of_use_again_when_something_is_deleted() {
    let world = World::of(512);
    let (fs, _) = world.mount(1);
    for round in 0..4 {
        let node = file(&fs, "large").unwrap();
        let mut written = 0_u64;
        let error = loop {
            if let Err(error) = fs.write(node, written * 4096, &[7; 4096], Stamps::NONE) {
                break error;
            }
            written += 1;
            assert!(written < 600, "a store of 512 blocks");
        };
        assert_eq!(error.kind(), tacita_vfs::Kind::NoSpace, "round {round}");
        assert!(written > 200, "round {round}: {written}");
        fs.sync().unwrap();
        assert!(read_all(&fs, node).iter().all(|byte| *byte == 7));
        let stats = fs.stats().unwrap();
        assert!(stats.blocks_available < 16 && stats.blocks == 512, "{stats:?}");
        let node = by_name::remove(&fs, fs.root(), "large".as_ref(), Timestamp::default()).unwrap();
        fs.forget(node);
        fs.sync().unwrap();
    }
    fs.close().unwrap();
    world.check("emptied");
    assert!(world.store.count() <= 4, "{}", world.store.count());
}

/// What is punched is a hole for whoever looks for data, and counts no more.
#[test]
fn what_is_punched_is_a_hole() {
    const BLOCK: u64 = 4096;
    let world = World::new();
    let (fs, _) = world.mount(1);
    let node = file(&fs, "file").unwrap();
    fs.write(node, 0, &vec![7; 20 * 4096], Stamps::NONE).unwrap();
    let full = fs.attr(node).unwrap().blocks;
    fs.reserve(node, BLOCK..2 * BLOCK, Reserve::Punch).unwrap();
    fs.reserve(node, 3 * BLOCK + 1..10 * BLOCK - 1, Reserve::Zero { keep_size: true }).unwrap();
    let look = |at, what| fs.seek(node, at, what).unwrap();
    let holes = [(1, 2), (4, 9)].map(|(from, to)| (from * BLOCK, to * BLOCK));
    for (from, to) in holes {
        assert_eq!((look(from - 1, Seek::Hole), look(from, Seek::Data)), (from, to));
    }
    assert_eq!(look(9 * BLOCK, Seek::Hole), 20 * BLOCK);
    assert_eq!((full - fs.attr(node).unwrap().blocks) * 512, 6 * BLOCK);
    // In more places than are remembered: some are zeros then, and no hole.
    for n in 0..200 {
        let from = (20 + 2 * n) * BLOCK;
        fs.write(node, from, &[7; 2 * 4096], Stamps::NONE).unwrap();
        fs.reserve(node, from..from + BLOCK, Reserve::Punch).unwrap();
    }
    let read = read_all(&fs, node);
    let is_zero = |n: usize| read[n * 4096..(n + 1) * 4096].iter().all(|byte| *byte == 0);
    assert!((20..420).all(|n| is_zero(n) == (n % 2 == 0)));
    let node = by_name::remove(&fs, fs.root(), "file".as_ref(), Timestamp::default()).unwrap();
    fs.forget(node);
    fs.close().unwrap();
    world.check("punched");
    assert!(world.store.count() <= 4, "{}: all of it is freed", world.store.count());
}

#[test]
fn names_sizes_and_attributes_have_limits() {
    let world = World::new();
    let (fs, _) = world.mount(1);
    let node = file(&fs, &"n".repeat(255)).unwrap();
    let kind = |result: tacita_vfs::Result<()>| result.unwrap_err().kind();
    let end = 1_u64 << 60;
    let too_far = fs.write(node, end, b"x", Stamps::NONE);
    assert_eq!(kind(too_far), tacita_vfs::Kind::FileTooBig);
    let change = |size| Change { size: Some(size), ..Change::default() };
    let too_far = fs.change(node, &change(end + 1)).map(drop);
    assert_eq!(kind(too_far), tacita_vfs::Kind::FileTooBig);
    // The last byte that can be.
    fs.write(node, end - 1, b"x", Stamps::NONE).unwrap();
    assert_eq!(fs.attr(node).unwrap().size, end);
    fs.reserve(node, 0..end, Reserve::Punch).unwrap();
    fs.change(node, &change(5)).unwrap();
    assert_eq!(read_all(&fs, node), [0; 5]);
    // Holes in more places than are remembered are too many.
    let sparse = file(&fs, "sparse").unwrap();
    let mut scattered = (0..200_u64).map(|n| fs.write(sparse, n << 40, b"x", Stamps::NONE));
    let refused = scattered.find_map(Result::err).unwrap();
    assert_eq!(refused.kind(), tacita_vfs::Kind::FileTooBig);
    let set = |name: &str, len| fs.set_xattr(node, name.as_ref(), &vec![1; len], XattrMode::Any);
    set("user.a", 900).unwrap();
    assert_eq!(kind(set("user.b", 900)), tacita_vfs::Kind::NoSpace);
    assert_eq!(kind(set(&format!("user.{}", "c".repeat(300)), 1)), tacita_vfs::Kind::NoSpace);
    let target = OsString::from("t".repeat(4095));
    let new = NewNode { target, ..NewNode::new(FileType::Symlink, 0o777, Timestamp::default()) };
    let (link, _) = fs.create(fs.root(), "link".as_ref(), &new).unwrap();
    assert_eq!(fs.read_link(link).unwrap(), new.target);
    fs.close().unwrap();
    world.check("limits");
}

#[test]
fn a_file_has_so_many_names_and_no_more() {
    const NAMES: u32 = 65_000;
    let world = World::new();
    let (fs, _) = world.mount(1);
    let node = file(&fs, "0").unwrap();
    let now = Timestamp::default();
    for number in 1..NAMES {
        let name = number.to_string();
        assert_eq!(fs.link(node, fs.root(), name.as_ref(), now).unwrap().nlink, number + 1);
    }
    let refused = fs.link(node, fs.root(), "more".as_ref(), now).unwrap_err();
    assert_eq!(refused.kind(), tacita_vfs::Kind::TooManyLinks);
    assert_eq!(by_name::remove(&fs, fs.root(), "7".as_ref(), now).unwrap(), node);
    assert_eq!(fs.link(node, fs.root(), "more".as_ref(), now).unwrap().nlink, NAMES);
    fs.close().unwrap();
    world.check("many names");
}

#[test]
fn what_is_no_file_system_is_refused() {
    let world = World::new();
    let way = world.store.way(1);
    let clock: Arc<dyn Clock> = Arc::new(tacita_clock::System);
    let again = tacita_privatefs::format(&*way, &key(), &clock, (0, 0)).unwrap_err();
    assert_eq!(again.kind(), Kind::Exists);
    let other = tacita_secret::Key::take(&mut [8; 32]);
    let open = PrivateFs::open(way, &other, clock, &Options::default());
    assert_eq!(open.unwrap_err().kind(), Kind::NotFormatted);
}

/// Of two who format at once, wherever one of them stands still meanwhile: who comes too late says so, and takes
/// nothing of what is in the file system by then.
#[test]
fn who_formats_too_late_changes_nothing() {
    for held_at in 0..7 {
        let clock = Arc::new(Simulated::at(SystemTime::UNIX_EPOCH));
        let world = World { store: Memory::new(CAPACITY), clock };
        let clock: Arc<dyn Clock> = Arc::<Simulated>::clone(&world.clock);
        let format = |way: &Way| tacita_privatefs::format(way, &key(), &clock, (0, 0));
        let way = world.store.way(1);
        way.hold_at(held_at);
        std::thread::scope(|scope| {
            let late = scope.spawn(|| format(&way));
            while !way.has_held() && !late.is_finished() {
                std::thread::yield_now();
            }
            if late.is_finished() {
                late.join().unwrap().unwrap();
                return;
            }
            format(&world.store.way(2)).unwrap();
            let (fs, _) = world.mount(3);
            file(&fs, "file").unwrap();
            fs.close().unwrap();
            way.let_go();
            assert_eq!(late.join().unwrap().unwrap_err().kind(), Kind::Exists, "{held_at}");
            let (fs, _) = world.mount(4);
            assert!(fs.lookup(fs.root(), "file".as_ref()).is_ok(), "{held_at}: it is gone");
            fs.close().unwrap();
        });
        world.check("two have formatted it");
    }
}

/// A mount has made a file in it and was killed; and how many blocks there were before.
fn world_of_a_killed_mount() -> (World, usize) {
    let world = World::of(512);
    let before = world.store.count();
    let (killed, _) = world.mount(1);
    file(&killed, "file").unwrap();
    killed.sync().unwrap();
    drop(killed);
    (world, before)
}

fn remove_what_it_made(world: &World) {
    let (fs, _) = world.mount(3);
    let node = by_name::remove(&fs, fs.root(), "file".as_ref(), Timestamp::default()).unwrap();
    fs.forget(node);
    fs.close().unwrap();
}

/// As much room as before, whoever mounts it next, and wherever the store is away while it is freed.
#[test]
fn what_a_killed_mount_has_left_is_freed() {
    for (read_only, cut) in [false, true].into_iter().flat_map(|ro| (0..48).map(move |n| (ro, n))) {
        let (world, before) = world_of_a_killed_mount();
        assert!(world.store.count() > before + 2, "there is no journal");
        let (fs, way) = world.mount_with(2, &Options { read_only, ..Options::default() });
        way.cut_at(way.asked() + cut);
        let _ = fs.sync();
        way.mend();
        fs.close().unwrap();
        remove_what_it_made(&world);
        assert_eq!(world.store.count(), before, "read only: {read_only}, cut after {cut}");
    }
}

/// Also where whoever was to free it is killed meanwhile; and however many are killed, there is a place.
#[test]
fn what_killed_mounts_have_left_is_freed_by_who_lives() {
    for cut in 0..48 {
        let (world, before) = world_of_a_killed_mount();
        let (killed, way) = world.mount(2);
        way.cut_at(way.asked() + cut);
        let _ = killed.sync();
        drop(killed);
        remove_what_it_made(&world);
        assert_eq!(world.store.count(), before, "killed after {cut}");
        assert_eq!(facts(&*world.store.way(4), &key()).unwrap().register.slots, [], "after {cut}");
    }
    let world = World::of(4096);
    for seed in 0..SLOTS as u64 + 8 {
        let (killed, _) = world.mount(seed);
        let node = file(&killed, &seed.to_string()).unwrap();
        killed.sync_node(node).unwrap();
    }
    world.mount(99).0.close().unwrap();
}

/// Of a commit that was begun nobody knows whether it counts until it does.
#[test]
fn what_is_being_committed_waits_still() {
    let world = World::new();
    let (fs, way) = world.mount(1);
    file(&fs, "file").unwrap();
    way.cut_at(way.asked());
    assert!(fs.waiting() > 0);
    fs.sync().unwrap_err();
    assert!(fs.waiting() > 0, "nothing of it is durable");
    way.mend();
    fs.sync().unwrap();
    assert_eq!(fs.waiting(), 0);
    fs.close().unwrap();
}

#[test]
fn a_read_only_mount_changes_nothing() {
    let world = World::new();
    let (fs, _) = world.mount(1);
    let node = file(&fs, "file").unwrap();
    fs.write(node, 0, b"content", Stamps::NONE).unwrap();
    fs.close().unwrap();
    let (fs, _) = world.mount_with(1, &Options { read_only: true, ..Options::default() });
    let (node, _) = fs.lookup(fs.root(), "file".as_ref()).unwrap();
    assert_eq!(read_all(&fs, node), b"content");
    let error = fs.write(node, 0, b"other", Stamps::NONE).unwrap_err();
    assert_eq!(error.kind(), tacita_vfs::Kind::ReadOnly);
    assert_eq!(file(&fs, "more").unwrap_err().kind(), tacita_vfs::Kind::ReadOnly);
    fs.close().unwrap();
}
