//! Several mounts of one store: they see one file system, whoever ends or stands still in the middle.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use tacita_clock::{Clock, Simulated};
use tacita_privatefs::blocks::Way;
use tacita_privatefs::register::SLOTS;
use tacita_privatefs::{Error, Kind, Options, PrivateFs, facts};
use tacita_testkit::history::{Rng, Tree, step, tree};
use tacita_testkit::{MemoryFs, env_number};
use tacita_vfs::{FileSystem, FileType, NewNode, Stamps, Timestamp};

use crate::world::{LIMITS, TAKE_OVER, World, key};

/// What a ticking thread does at its beginning: the place to plant a fault in it.
pub(crate) type Begin<'a> = &'a (dyn Fn() -> Box<dyn std::any::Any> + Sync);

pub(crate) const NOTHING: Begin<'static> = &|| Box::new(());

/// Does something while mounts look whose turn it is, and time passes so fast.
pub(crate) fn ticking<T>(
    mounts: &[&PrivateFs],
    (clock, time): (&Arc<Simulated>, Duration),
    begin: Begin<'_>,
    game: impl FnOnce() -> T,
) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _begun = begin();
            while !is_over.load(Ordering::SeqCst) {
                for mount in mounts {
                    // What it cannot do shows in what is asked of it.
                    let _ = mount.tick();
                }
                clock.advance(time);
                std::thread::yield_now();
            }
        });
        let done = catch_unwind(AssertUnwindSafe(game));
        is_over.store(true, Ordering::SeqCst);
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Mounts work in one tree, in any order; each sees at once what the others do.
pub(crate) fn fight(seed: u64, mounts: u64, steps: u32, begin: Begin<'_>) {
    let world = World::new();
    let all: Vec<PrivateFs> = (0..mounts).map(|n| world.share(seed + n).0).collect();
    let model = MemoryFs::default();
    let mut rng = Rng::new(seed);
    let refs: Vec<&PrivateFs> = all.iter().collect();
    ticking(&refs, (&world.clock, Duration::ZERO), begin, || {
        for number in 0..steps {
            let fs = *rng.pick(&refs).unwrap();
            step(&model, &mut rng.clone(), &LIMITS);
            step(fs, &mut rng, &LIMITS);
            if rng.below(4) == 0 {
                let other = *rng.pick(&refs).unwrap();
                assert!(tree(other) == tree(&model), "seed {seed}, step {number}");
            }
        }
        for fs in &refs {
            assert!(tree(*fs) == tree(&model), "seed {seed}, at the end");
            fs.sync().unwrap();
        }
    });
    for fs in &all {
        fs.close().unwrap();
    }
    world.check(&format!("seed {seed}"));
}

#[test]
fn mounts_that_work_in_one_tree_see_one_file_system() {
    for seed in 0..env_number("TACITA_GAMES", 3) {
        fight(seed, 2 + seed % 2, 60, NOTHING);
    }
}

/// Threads of two mounts add to one directory at the same time; nobody's names are lost.
#[test]
fn mounts_at_work_at_once_lose_nothing() {
    let world = World::new();
    let (one, two) = (world.share(1).0, world.share(2).0);
    let now = Timestamp::default();
    ticking(&[&one, &two], (&world.clock, Duration::ZERO), NOTHING, || {
        std::thread::scope(|scope| {
            for (which, fs) in [("one", &one), ("two", &two)] {
                for thread in 0..3 {
                    scope.spawn(move || {
                        for number in 0..15 {
                            let name = format!("{which}-{thread}-{number}");
                            let new = NewNode::new(FileType::File, 0o600, now);
                            let (node, _) = fs.create(fs.root(), name.as_ref(), &new).unwrap();
                            fs.write(node, 0, name.as_bytes(), Stamps::NONE).unwrap();
                            // The same name, by everybody: one has it.
                            let same = format!("same-{number}");
                            let _ = fs.create(fs.root(), same.as_ref(), &new);
                        }
                    });
                }
            }
        });
        let found = tree(&two);
        assert_eq!(found.len(), 1 + 2 * 3 * 15 + 15);
        assert!(found.contains_key(&b"/one-2-14"[..]) && tree(&one) == found);
    });
    one.close().unwrap();
    two.close().unwrap();
    world.check("two at once");
}

/// A mount whose way is cut in the middle is taken over from: what it synced is there, what it was about
/// to commit is there or not, and when its way is mended it can do nothing.
#[test]
fn a_mount_that_is_gone_is_taken_over_from() {
    for seed in 0..env_number("TACITA_GAMES", 6) {
        let world = World::new();
        let (one, way) = world.share(seed);
        let (two, _) = world.share(seed + 1);
        let model = MemoryFs::default();
        let mut rng = Rng::new(seed);
        let mut allowed: Vec<Tree> = Vec::new();
        ticking(&[&one, &two], (&world.clock, Duration::ZERO), NOTHING, || {
            for _ in 0..20 {
                step(&model, &mut rng.clone(), &LIMITS);
                step(&one, &mut rng, &LIMITS);
            }
            one.sync().unwrap();
        });
        // Files that come whole with their names.
        allowed.push(tree(&one));
        for number in 0..3 {
            let now = Timestamp::default();
            let name = format!("late {number}");
            let new = NewNode::new(FileType::File, 0o600, now);
            let (node, _) = one.create(one.root(), name.as_ref(), &new).unwrap();
            one.write(node, 0, &rng.bytes(10_000), Stamps::NONE).unwrap();
        }
        allowed.push(tree(&one));
        way.cut_at(way.asked() + rng.below(30));
        let synced = one.sync().is_ok();
        way.cut_at(0);
        let seconds = Duration::from_secs(1);
        let found = ticking(&[&two], (&world.clock, seconds), NOTHING, || tree(&two));
        if synced {
            allowed.remove(0);
        }
        assert!(allowed.contains(&found), "seed {seed}: half of a commit");
        way.mend();
        assert!(one.attr(one.root()).is_err() && one.sync().is_err(), "seed {seed}");
        ticking(&[&two], (&world.clock, Duration::ZERO), NOTHING, || {
            step(&two, &mut rng, &LIMITS);
            assert!(one.failure().is_some());
        });
        two.close().unwrap();
        world.check(&format!("seed {seed}"));
    }
}

/// Clocks of machines say what they like: a mount counts how long another one has been silent by its own.
#[test]
fn clocks_that_differ_by_an_hour_take_no_turn_away() {
    let world = World::new();
    let (one, two) = (world.share(1).0, world.share_ahead(2, Duration::from_hours(1)).0);
    let new = NewNode::new(FileType::File, 0o600, Timestamp::default());
    let time = Duration::from_millis(10);
    ticking(&[&one, &two], (&world.clock, time), NOTHING, || {
        for number in 0..10 {
            for (which, fs) in [("one", &one), ("two", &two)] {
                let name = format!("{which}-{number}");
                let (node, _) = fs.create(fs.root(), name.as_ref(), &new).unwrap();
                fs.write(node, 0, name.as_bytes(), Stamps::NONE).unwrap();
            }
            assert!(tree(&two) == tree(&one), "round {number}");
        }
        one.sync().unwrap();
    });
    assert!(one.has_turn());
    assert!(one.failure().is_none() && two.failure().is_none());
    // Who is silent by the other one's clock is taken over from.
    ticking(&[&two], (&world.clock, Duration::from_secs(1)), NOTHING, || {
        assert_eq!(tree(&two).len(), 21);
    });
    assert!(one.attr(one.root()).is_err());
    two.close().unwrap();
    world.check("clocks that differ");
}

/// A mount whose machine has slept for an hour while another one took over: its programs hear of it at once, and are
/// not told what was there before. That it looks again and again, once it is awake, would be too late.
#[test]
fn a_mount_whose_machine_has_slept_believes_in_no_turn() {
    let world = World::new();
    let sleeper = Arc::new(Simulated::at(SystemTime::UNIX_EPOCH));
    let (one, two) = (world.share_apart(1, &sleeper).0, world.share(2).0);
    let new = NewNode::new(FileType::File, 0o600, Timestamp::default());
    ticking(&[&one], (&sleeper, Duration::ZERO), NOTHING, || {
        one.create(one.root(), "before".as_ref(), &new).unwrap();
        one.sync().unwrap();
    });
    assert_eq!(tree(&one).len(), 2, "nobody else can have the turn yet");
    ticking(&[&two], (&world.clock, Duration::from_secs(1)), NOTHING, || {
        two.create(two.root(), "meanwhile".as_ref(), &new).unwrap();
        two.sync().unwrap();
    });
    sleeper.sleep(Duration::from_hours(1));
    assert!(one.attr(one.root()).is_err(), "it shows what it remembers");
    assert!(one.failure().is_some());
    two.close().unwrap();
    world.check("after a sleep");
}

/// A mount of a machine that slept while another one took over, with what it did before: programs hear of it at
/// once. Returns both, and the sleeper's clock.
fn slept(world: &World, before: impl FnOnce(&PrivateFs)) -> (PrivateFs, PrivateFs, Arc<Simulated>) {
    let sleeper = Arc::new(Simulated::at(SystemTime::UNIX_EPOCH));
    let (one, two) = (world.share_apart(1, &sleeper).0, world.share(2).0);
    let new = NewNode::new(FileType::File, 0o600, Timestamp::default());
    ticking(&[&one], (&sleeper, Duration::ZERO), NOTHING, || before(&one));
    ticking(&[&two], (&world.clock, Duration::from_secs(1)), NOTHING, || {
        two.create(two.root(), "meanwhile".as_ref(), &new).unwrap();
        two.sync().unwrap();
    });
    sleeper.sleep(Duration::from_hours(1));
    assert!(one.attr(one.root()).is_err(), "it shows what it remembers");
    (one, two, sleeper)
}

/// If nothing was lost it takes its turns again, as a new one.
#[test]
fn a_mount_that_was_taken_over_from_comes_back_if_nothing_was_lost() {
    let world = World::new();
    let new = NewNode::new(FileType::File, 0o600, Timestamp::default());
    let (one, two, _) = slept(&world, |one| {
        one.create(one.root(), "before".as_ref(), &new).unwrap();
        one.sync().unwrap();
    });
    let mut looks = 0;
    while one.failure().is_some() {
        one.tick().unwrap();
        looks += 1;
        assert!(looks < 3, "it does not come back");
    }
    // The other one was alone, and looks seldom.
    world.clock.advance(Duration::from_secs(5));
    ticking(&[&one, &two], (&world.clock, Duration::ZERO), NOTHING, || {
        assert!(tree(&one).contains_key(&b"/meanwhile"[..]));
        let (node, _) = one.create(one.root(), "after".as_ref(), &new).unwrap();
        one.write(node, 0, b"content", Stamps::NONE).unwrap();
        one.sync().unwrap();
        assert!(tree(&two) == tree(&one));
    });
    two.close().unwrap();
    one.close().unwrap();
    world.check("after it came back");
}

/// If something was lost its programs are told so until it is mounted again.
#[test]
fn a_mount_that_has_lost_something_does_not_come_back() {
    let world = World::new();
    let new = NewNode::new(FileType::File, 0o600, Timestamp::default());
    let (one, two, _) = slept(&world, |one| {
        one.create(one.root(), "not synced".as_ref(), &new).unwrap();
    });
    for _ in 0..100 {
        let _ = one.tick();
        two.tick().unwrap();
    }
    assert!(one.failure().is_some() && one.sync().is_err() && one.attr(one.root()).is_err());
    two.close().unwrap();
    world.check("after something was lost");
}

/// A mount that stands still at any query of a commit, and goes on when another has taken over, changes
/// nothing any more. Whether it does as told after that.
pub(crate) fn stand_still(begin: impl Fn() -> Box<dyn std::any::Any> + Sync) -> u32 {
    let now = Timestamp::default();
    let new = NewNode::new(FileType::File, 0o600, now);
    let mut stops = 0;
    for stop in 0.. {
        let world = World::new();
        let (one, way) = world.share(stop);
        let (two, _) = world.share(stop + 1);
        ticking(&[&one], (&world.clock, Duration::ZERO), NOTHING, || {
            for number in 0..4 {
                let name = format!("before {number}");
                let (node, _) = one.create(one.root(), name.as_ref(), &new).unwrap();
                one.write(node, 0, name.as_bytes(), Stamps::NONE).unwrap();
            }
            one.sync().unwrap();
            for number in 0..4 {
                let name = format!("while {number}");
                let (node, _) = one.create(one.root(), name.as_ref(), &new).unwrap();
                one.write(node, 0, name.as_bytes(), Stamps::NONE).unwrap();
            }
        });
        way.hold_at(way.asked() + stop);
        let was_held = std::thread::scope(|scope| {
            let syncing = scope.spawn(|| {
                let _begun = begin();
                one.sync().is_ok()
            });
            while !way.has_held() && !syncing.is_finished() {
                std::thread::yield_now();
            }
            if !way.has_held() {
                assert!(syncing.join().unwrap());
                return false;
            }
            let seconds = (&world.clock, Duration::from_secs(1));
            let seen = ticking(&[&two], seconds, NOTHING, || {
                for number in 0..4 {
                    let name = format!("after {number}");
                    let (node, _) = two.create(two.root(), name.as_ref(), &new).unwrap();
                    two.write(node, 0, name.as_bytes(), Stamps::NONE).unwrap();
                }
                two.sync().unwrap();
                tree(&two)
            });
            way.let_go();
            let is_told_done = syncing.join().unwrap();
            // What it was told to be durable has to be.
            assert!(!is_told_done || seen.contains_key(&b"/while 3"[..]), "stop {stop}: lost");
            let (three, _) = world.share(stop + 2);
            let found = ticking(&[&two, &three], seconds, NOTHING, || tree(&three));
            assert!(found == seen, "stop {stop}: changed by a mount whose turn was over");
            three.close().unwrap();
            two.close().unwrap();
            true
        });
        if !was_held {
            return stops;
        }
        world.check(&format!("stop {stop}"));
        stops += 1;
    }
    stops
}

#[test]
fn a_mount_that_stood_still_changes_nothing_when_it_goes_on() {
    let stops = stand_still(|| Box::new(()));
    assert!(stops > 8, "{stops}");
}

/// One more mount, where all places are those of mounts that were killed.
pub(crate) fn join_killed(world: &World, begin: Begin<'_>) -> Result<PrivateFs, Error> {
    for seed in 0..SLOTS {
        drop(world.share(seed as u64));
    }
    std::thread::scope(|scope| {
        let joining = scope.spawn(|| {
            let _begun = begin();
            world.try_share(100)
        });
        while !joining.is_finished() {
            world.clock.advance(Duration::from_secs(1));
            std::thread::yield_now();
        }
        joining.join().unwrap()
    })
}

/// Mounts that are killed leave their places; when all are taken so, nobody is there to notice but who comes.
#[test]
fn killed_mounts_keep_nobody_out() {
    let world = World::new();
    let fs = join_killed(&world, NOTHING).unwrap();
    let made = ticking(&[&fs], (&world.clock, Duration::ZERO), NOTHING, || {
        let new = NewNode::new(FileType::File, 0o600, Timestamp::default());
        fs.create(fs.root(), "file".as_ref(), &new).unwrap();
        tree(&fs)
    });
    assert_eq!(made.len(), 2);
    // One that is there keeps its place, and the next one finds one at once.
    let next = world.try_share(101).unwrap();
    fs.close().unwrap();
    next.close().unwrap();
    world.check("after those that were killed");
}

/// Mounts that have all places, and one more while they live.
pub(crate) fn join_living(world: &World) -> (Vec<PrivateFs>, Result<PrivateFs, Error>) {
    let all: Vec<PrivateFs> = (0..SLOTS).map(|seed| world.share(seed as u64).0).collect();
    let refs: Vec<&PrivateFs> = all.iter().collect();
    let second = Duration::from_secs(1);
    let joined = ticking(&refs, (&world.clock, second), NOTHING, || world.try_share(100));
    (all, joined)
}

/// As many as there can be, all alive: the next one is refused, and nobody is taken over from.
#[test]
fn mounts_that_live_keep_their_places() {
    let world = World::new();
    let (all, joined) = join_living(&world);
    assert_eq!(joined.unwrap_err().kind(), Kind::Busy);
    for fs in &all {
        assert!(fs.failure().is_none());
        fs.close().unwrap();
    }
    world.check("after as many as there can be");
}

/// A mount whose programs sync all the time gives its turn up after a fair time, too.
#[test]
fn a_mount_that_syncs_all_the_time_lets_others_have_the_turn() {
    let world = World::new();
    let options = Options { shared: true, ..Options::default() };
    let (one, two) = (world.mount_with(1, &options).0, world.mount_with(2, &options).0);
    let new = NewNode::new(FileType::File, 0o600, Timestamp::default());
    let time = Duration::from_millis(10);
    let node = ticking(&[&one], (&world.clock, time), NOTHING, || {
        one.create(one.root(), "one".as_ref(), &new).unwrap().0
    });
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| two.create(two.root(), "two".as_ref(), &new).map(drop));
        let way = world.store.way(3);
        let is_heard =
            || facts(&*way, &key()).unwrap().register.slots.iter().any(|s| s.waits_since > 0);
        while !is_heard() {
            two.tick().unwrap();
            std::thread::yield_now();
        }
        let gets_its_turn = (0..200_u32).any(|round| {
            one.write(node, 0, &round.to_le_bytes(), Stamps::NONE).unwrap();
            one.sync_node(node).unwrap();
            world.clock.advance(time);
            one.tick().unwrap();
            two.tick().unwrap();
            two.has_turn()
        });
        if !gets_its_turn {
            // Its program gives up.
            world.clock.advance(Duration::from_hours(1));
        }
        let done = waits.join().unwrap();
        assert!(gets_its_turn && done.is_ok(), "two seconds of syncs, and no turn: {done:?}");
    });
    two.close().unwrap();
    one.close().unwrap();
    world.check("after many syncs");
}

/// While the store is away nobody can give a sign of life: who waits does not take that for a sign of death when
/// it is back, whoever comes to it first.
#[test]
fn a_store_that_was_away_takes_no_turn_away() {
    let world = World::new();
    let all: Vec<(PrivateFs, Arc<Way>)> = (0..3).map(|seed| world.share(seed)).collect();
    let refs: Vec<&PrivateFs> = all.iter().map(|(fs, _)| fs).collect();
    let new = NewNode::new(FileType::File, 0o600, Timestamp::default());
    ticking(&refs, (&world.clock, Duration::ZERO), NOTHING, || {
        refs[0].create(refs[0].root(), "not synced".as_ref(), &new).unwrap();
    });
    let second = Duration::from_secs(1);
    for round in 0..3 {
        // All have looked at each other.
        for _ in 0..8 {
            world.clock.advance(second);
            for fs in &refs {
                fs.tick().unwrap();
            }
        }
        for (_, way) in &all {
            way.cut_at(0);
        }
        for _ in 0..2 * TAKE_OVER.as_secs() {
            world.clock.advance(second);
            for fs in &refs {
                drop(fs.tick());
            }
        }
        for (_, way) in &all {
            way.mend();
        }
        for _ in 0..5 {
            world.clock.advance(second);
            for fs in &refs[1..] {
                fs.tick().unwrap();
            }
        }
        assert!(refs[0].has_turn(), "round {round}");
    }
    refs[0].sync().unwrap();
    assert!(refs.iter().all(|fs| fs.failure().is_none()));
    // One that is gone is found out all the same.
    let found = ticking(&refs[1..], (&world.clock, second), NOTHING, || tree(refs[1]));
    assert_eq!(found.len(), 2);
    for fs in &refs[1..] {
        fs.close().unwrap();
    }
    world.check("after a store that was away");
}

/// Whoever waits for a turn in vain hears why: another mount keeps it, or nobody knows whose it is.
#[test]
fn whoever_waits_in_vain_hears_why() {
    let world = World::new();
    let (one, (two, way)) = (world.share(1).0, world.share(2));
    ticking(&[&one], (&world.clock, Duration::ZERO), NOTHING, || one.attr(one.root()).unwrap());
    let wait = |ticked: &[&PrivateFs]| {
        let time = Duration::from_secs(10);
        let told = ticking(ticked, (&world.clock, time), NOTHING, || two.attr(two.root()));
        format!("{:?}", told.unwrap_err())
    };
    // Of whoever says nothing nobody knows that it waits.
    let told = wait(&[&one]);
    assert!(told.contains("another mount keeps it"), "{told}");
    way.cut_at(0);
    let told = wait(&[&one, &two]);
    assert!(told.contains("the way to the store is cut"), "{told}");
    way.mend();
    // It may have been taken for gone meanwhile.
    let _ = two.close();
    one.close().unwrap();
}

/// As long as the store may take to answer, and not as long as another mount may keep the turn.
#[test]
fn whoever_waits_for_a_store_that_is_away_hears_so_in_time() {
    // So long that nobody waits for it here, and no longer than a test may last that finds it out.
    const LONG: Duration = Duration::from_secs(50_000_000);
    let world = World::new();
    let way = world.store.way(2);
    let options = Options { patience: LONG, ..World::shared() };
    let clock = Arc::<Simulated>::clone(&world.clock);
    let fs = PrivateFs::open(Arc::clone(&way) as _, &key(), clock, &options).unwrap();
    way.cut_at(0);
    let begin = world.clock.monotonic();
    let time = Duration::from_secs(10);
    let told = ticking(&[&fs], (&world.clock, time), NOTHING, || fs.attr(fs.root()));
    let waited = world.clock.elapsed(begin);
    assert!(waited > options.patience_away && waited < LONG, "{waited:?}: {told:?}");
    assert!(format!("{:?}", told.unwrap_err()).contains("the way to the store is cut"));
    way.mend();
    let _ = fs.close();
}

/// Nor does who comes where all places are taken.
#[test]
fn a_store_that_was_away_takes_no_places_of_the_living() {
    let world = World::new();
    let all: Vec<PrivateFs> = (0..SLOTS).map(|seed| world.share(seed as u64).0).collect();
    let refs: Vec<&PrivateFs> = all.iter().collect();
    let second = Duration::from_secs(1);
    let way = world.store.way(100);
    // The first look for signs of life is answered after a minute.
    way.hold_at(1);
    let joined = std::thread::scope(|scope| {
        let blocks = Arc::clone(&way);
        let clock = Arc::<Simulated>::clone(&world.clock);
        let joining = scope.spawn(|| PrivateFs::open(blocks, &key(), clock, &World::shared()));
        while !way.has_held() {
            std::thread::yield_now();
        }
        world.clock.advance(2 * TAKE_OVER);
        let asked = way.asked();
        way.let_go();
        // The others need a little longer: two more queries of the one who comes.
        while way.asked() < asked + 2 && !joining.is_finished() {
            world.clock.advance(second);
            std::thread::yield_now();
        }
        while !joining.is_finished() {
            for fs in &refs {
                drop(fs.tick());
            }
            world.clock.advance(second);
            std::thread::yield_now();
        }
        joining.join().unwrap()
    });
    assert_eq!(joined.unwrap_err().kind(), Kind::Busy);
    assert!(all.iter().all(|fs| fs.failure().is_none()));
    for fs in &all {
        fs.close().unwrap();
    }
    world.check("after a store that was away");
}
