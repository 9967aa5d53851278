//! Changes of passwords and sweeps: the same writes whatever is hidden.

use std::sync::Arc;

use tacita_block::{BlockDevice, BlockNo, BlockRange, FaultDevice};
use tacita_pddm::{Kind, Level, Options, Parameters, Session, Unlock, change_password};
use tacita_secret::Password;
use tacita_testkit::env_number;
use tacita_testkit::history::Rng;

use crate::devices::{
    blocks, content, entropy, has_room, make, memory, open, parameters, read, shape, volume, wrap,
};
use crate::worlds::{public_difference, write_log};

const UNITS: u64 = 44;

/// A world with some public traffic, and hidden traffic if there is a hidden volume.
fn world(seed: u64, hidden: u8) -> Arc<FaultDevice> {
    let device = Arc::new(FaultDevice::new(shape(blocks(UNITS))));
    let dynamic: Arc<dyn BlockDevice> = device.clone();
    make(&dynamic, &parameters(1), hidden, entropy(seed, seed * 2 + u64::from(hidden)));
    let session = open(&dynamic, hidden, entropy(seed + 1, seed * 2 + 5 + u64::from(hidden)));
    let mut rng = Rng::new(seed);
    for step in 0..rng.below(120) {
        let id = rng.below(60);
        volume(&session, 0).write(BlockNo(id), &content(id, step)).unwrap();
        if hidden > 0 && has_room(&volume(&session, 1), 8) {
            volume(&session, 1).write(BlockNo(id % 20), &content(id % 20, step)).unwrap();
        }
        if step % 9 == 0 {
            session.flush().unwrap();
        }
    }
    session.close().unwrap();
    device
}

/// What tells a change of the public password from one of the hidden password.
pub(crate) fn passwords(seed: u64) -> Vec<String> {
    let devices = [0u8, 1].map(|hidden| {
        let device = world(seed, hidden);
        let dynamic: Arc<dyn BlockDevice> = device.clone();
        let (old, new) = (wrap(hidden), wrap(50));
        let random = entropy(seed + 2, seed * 2 + 9 + u64::from(hidden));
        change_password(&dynamic, Unlock::Wrap(&old), None, Unlock::Wrap(&new), random).unwrap();
        if hidden == 0 {
            // And back, so that both can be compared under one password; in the other world once
            // more, too.
            let random = entropy(seed + 3, seed);
            change_password(&dynamic, Unlock::Wrap(&new), None, Unlock::Wrap(&old), random)
        } else {
            let random = entropy(seed + 3, seed + 77);
            change_password(&dynamic, Unlock::Wrap(&new), None, Unlock::Wrap(&old), random)
        }
        .unwrap();
        device
    });
    compare(&devices)
}

fn compare(devices: &[Arc<FaultDevice>; 2]) -> Vec<String> {
    let mut found = Vec::new();
    if write_log(&devices[0]) != write_log(&devices[1]) {
        found.push("the write logs differ".to_owned());
    }
    if found.is_empty() {
        found.extend(public_difference(&devices[0].content(), &devices[1].content()));
    }
    found
}

#[test]
fn nobody_can_tell_whose_password_changed() {
    for seed in 0..env_number("TACITA_GAMES", 20) {
        assert_eq!(passwords(seed), Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn a_password_opens_one_volume_and_is_not_empty() {
    let device = world(5, 1);
    let device: Arc<dyn BlockDevice> = device;
    let content = || {
        let mut all = vec![0; usize::try_from(device.geometry().len_bytes()).unwrap()];
        device.read(BlockNo(0), &mut all).unwrap();
        all
    };
    let before = content();
    for volume in [None, Some(Level::PUBLIC), Some(Level::hidden(1))] {
        for taken in [wrap(0), wrap(1)] {
            let (with, new) = (wrap(1), Unlock::Wrap(&taken));
            let changed = change_password(&device, Unlock::Wrap(&with), volume, new, entropy(1, 1));
            assert_eq!(changed.unwrap_err().kind(), Kind::Password, "{volume:?}");
        }
        let (with, empty) = (wrap(1), Password::new(Vec::new()));
        let empty = Unlock::Password(&empty);
        let changed = change_password(&device, Unlock::Wrap(&with), volume, empty, entropy(1, 1));
        assert_eq!(changed.unwrap_err().kind(), Kind::Password, "{volume:?}");
    }
    assert!(content() == before, "nothing is written");
}

/// Units that are not written anew still open by the password that a hidden volume had before: if it were
/// given to another one, whoever has that would have both.
#[test]
fn the_password_of_before_becomes_that_of_no_other_volume() {
    let device = Arc::new(FaultDevice::new(shape(blocks(UNITS))));
    let device: Arc<dyn BlockDevice> = device;
    make(&device, &parameters(2), 2, entropy(7, 7));
    let (old, other, new) = (wrap(1), wrap(2), wrap(50));
    let mut random = 1;
    let mut change = |with, volume, new| {
        random += 1;
        let random = entropy(random, random);
        change_password(&device, Unlock::Wrap(with), Some(volume), Unlock::Wrap(new), random)
            .map_err(|e| e.kind())
    };
    change(&other, Level::hidden(1), &new).unwrap();
    for volume in [Level::PUBLIC, Level::hidden(2)] {
        assert_eq!(change(&other, volume, &old), Err(Kind::Password), "{volume:?}");
    }
    assert_eq!(change(&new, Level::PUBLIC, &old), Err(Kind::Password));
    // Its own volume may have it back.
    change(&other, Level::hidden(1), &old).unwrap();
    change(&other, Level::hidden(1), &new).unwrap();
    // When all units have been written anew it is nobody's.
    let session = open(&device, 2, entropy(90, 90));
    assert!(session.sweep(&mut |_, _| true).unwrap());
    session.close().unwrap();
    drop(session);
    change(&other, Level::PUBLIC, &old).unwrap();
    let session = open(&device, 1, entropy(91, 91));
    assert_eq!(session.volumes().len(), 1);
}

/// A public password that becomes the hidden one without anybody knowing: the hidden volume is what
/// opens, so that it is not destroyed.
#[test]
fn the_highest_volume_opens() {
    let device: Arc<dyn BlockDevice> = world(6, 1);
    let (public, hidden) = (wrap(0), wrap(1));
    change_password(&device, Unlock::Wrap(&public), None, Unlock::Wrap(&hidden), entropy(1, 1))
        .unwrap();
    let session = open(&device, 1, entropy(2, 2));
    assert_eq!(session.volumes().len(), 2);
}

/// What is left of a sweep that was interrupted may be less than what waits by now needs: whoever wants
/// that on the device has a whole round, in every world.
#[test]
fn a_whole_sweep_carries_what_waits_after_one_that_was_interrupted() {
    let written = [0u8, 1].map(|hidden| {
        let device: Arc<dyn BlockDevice> = world(9, hidden);
        let session = open(&device, hidden, entropy(11, 11 + u64::from(hidden)));
        assert!(!session.sweep(&mut |done, units| done + 2 < units).unwrap());
        session.close().unwrap();
        drop(session);
        let session = open(&device, hidden, entropy(12, 12 + u64::from(hidden)));
        if hidden > 0 {
            let mut at = 0;
            while has_room(&volume(&session, 1), 2) && at < 40 {
                volume(&session, 1).write(BlockNo(at), &content(at, 77)).unwrap();
                at += 1;
            }
            assert!(volume(&session, 1).waiting_blocks() > 20);
        }
        let before = session.written_units();
        assert!(session.sweep_whole(&mut |_, _| true).unwrap());
        assert!(session.volumes().iter().all(|volume| volume.waiting_blocks() == 0));
        let whole = session.written_units();
        assert_eq!(whole - before, UNITS);
        // There is nothing left to go on with.
        assert!(session.sweep(&mut |_, _| true).unwrap());
        assert_eq!(session.written_units() - whole, UNITS);
        session.written_units()
    });
    assert_eq!(written[0], written[1]);
}

/// However little each discards: what that takes is to be little beside what a unit does.
#[test]
fn small_discards_leave_with_several_units() {
    let device: Arc<dyn BlockDevice> = memory(61 * 32 + 1);
    let parameters = Parameters { heartbeat_ms: 0, ..Parameters::default() };
    make(&device, &parameters, 1, entropy(1, 1));
    let session = open(&device, 1, entropy(2, 2));
    let hidden = volume(&session, 1);
    for id in 0..200 {
        hidden.write(BlockNo(id), &content(id, 1)).unwrap();
    }
    assert!(session.sweep_whole(&mut |_, _| true).unwrap());
    for id in (0..200).step_by(2) {
        hidden.discard(BlockRange { start: BlockNo(id), count: 1 }).unwrap();
    }
    assert_eq!(hidden.waiting_blocks(), 100);
    session.beat().unwrap();
    assert!(hidden.waiting_blocks() >= 100 - 64, "{}", hidden.waiting_blocks());
    session.beat().unwrap();
    assert_eq!(hidden.waiting_blocks(), 0);
}

/// As a file system leaves it that discards what it has freed with each commit.
#[test]
fn a_sweep_carries_what_waits_in_many_epochs() {
    let device: Arc<dyn BlockDevice> = memory(61 * 32 + 1);
    let parameters = Parameters { heartbeat_ms: 0, ..Parameters::default() };
    make(&device, &parameters, 1, entropy(1, 1));
    let session = open(&device, 1, entropy(2, 2));
    let hidden = volume(&session, 1);
    for id in 0..150 {
        hidden.write(BlockNo(id), &content(id, 1)).unwrap();
    }
    assert!(session.sweep_whole(&mut |_, _| true).unwrap());
    let mut pairs = 0;
    while hidden.waiting_blocks() + 2 < hidden.queue_blocks() && pairs < 150 {
        hidden.write(BlockNo(200 + pairs), &content(pairs, 2)).unwrap();
        hidden.flush().unwrap();
        hidden.discard(BlockRange { start: BlockNo(pairs), count: 1 }).unwrap();
        hidden.flush().unwrap();
        pairs += 1;
    }
    assert!(pairs > 100, "{pairs}");
    assert!(session.sweep_whole(&mut |_, _| true).unwrap());
    assert_eq!(hidden.waiting_blocks(), 0);
    session.close().unwrap();
    drop((hidden, session));
    let session = open(&device, 1, entropy(3, 3));
    let hidden = volume(&session, 1);
    for pair in 0..pairs {
        assert!(read(&hidden, 200 + pair) == content(pair, 2), "block {pair}");
        assert!(read(&hidden, pair).iter().all(|byte| *byte == 0), "block {pair}");
    }
}

/// A unit cannot drop what it holds, so each of these takes one of its own.
#[test]
fn a_sweep_carries_what_is_written_and_discarded_again_and_again() {
    let device: Arc<dyn BlockDevice> = memory(61 * 32 + 1);
    let parameters = Parameters { heartbeat_ms: 0, ..Parameters::default() };
    make(&device, &parameters, 1, entropy(1, 1));
    let session = open(&device, 1, entropy(2, 2));
    let hidden = volume(&session, 1);
    let mut rounds = 0;
    while has_room(&hidden, 2) && rounds < 100 {
        for id in [0, 1 + rounds] {
            hidden.write(BlockNo(id), &content(id, rounds)).unwrap();
        }
        hidden.flush().unwrap();
        hidden.discard(BlockRange { start: BlockNo(0), count: 1 }).unwrap();
        hidden.flush().unwrap();
        rounds += 1;
    }
    assert!((10..60).contains(&rounds), "{rounds}");
    assert!(session.sweep_whole(&mut |_, _| true).unwrap());
    assert_eq!((hidden.waiting_blocks(), hidden.room_blocks()), (0, hidden.queue_blocks()));
}

/// A sweep in a world with a busy hidden volume and in one without: the same round, and all that
/// waited is on the device.
#[test]
fn a_sweep_is_one_round_in_every_world() {
    for seed in 0..env_number("TACITA_GAMES", 12) {
        let devices = [0u8, 1].map(|hidden| {
            let device = world(seed, hidden);
            let dynamic: Arc<dyn BlockDevice> = device.clone();
            let random = entropy(seed + 2, seed + u64::from(hidden));
            let session = open(&dynamic, hidden, random);
            let mut written = 0;
            if hidden > 0 {
                while has_room(&volume(&session, 1), 2) && written < 60 {
                    let bytes = content(written, 99);
                    volume(&session, 1).write(BlockNo(written), &bytes).unwrap();
                    volume(&session, 1).flush().unwrap();
                    written += 1;
                }
                assert!(written > 8, "{written}");
            }
            let before = session.written_units();
            // Interrupted, closed, and taken up where it was.
            let mut left = 3;
            assert!(
                !session
                    .sweep(&mut |_, _| {
                        left -= 1;
                        left > 0
                    })
                    .unwrap()
            );
            assert!(session.written_units() < before + UNITS);
            assert!(session.sweep(&mut |_, _| true).unwrap());
            assert_eq!(session.written_units(), before + UNITS);
            assert!(session.volumes().iter().all(|volume| volume.waiting_blocks() == 0));
            session.close().unwrap();
            drop(session);
            let session = open(&dynamic, hidden, entropy(seed + 3, seed + 3));
            for id in 0..written {
                assert!(read(&volume(&session, 1), id) == content(id, 99), "block {id}");
            }
            device
        });
        assert_eq!(compare(&devices), Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn an_interrupted_sweep_goes_on_in_another_session() {
    let device: Arc<dyn BlockDevice> = world(3, 0);
    let session = open(&device, 0, entropy(1, 1));
    let end = session.written_units() + UNITS;
    assert!(!session.sweep(&mut |_, _| false).unwrap());
    session.close().unwrap();
    drop(session);
    let session = open(&device, 0, entropy(2, 2));
    assert!(session.sweep(&mut |_, _| true).unwrap());
    assert_eq!(session.written_units(), end);
}

/// A device may grow by any number of blocks, and again: once it has been opened for writing, or its
/// password been changed, its last block has the superblock that counts.
#[test]
fn a_second_superblock_follows_a_device_that_grows() {
    let device = Arc::new(FaultDevice::new(shape(512)));
    let dynamic: Arc<dyn BlockDevice> = device.clone();
    make(&dynamic, &parameters(1), 1, entropy(1, 1));
    let mut image = device.content();
    let mut password = wrap(0);
    for (growth, seed) in [(1, 3u8), (77, 5), (4096, 7), (300, 9)] {
        image.resize(image.len() + growth * 4096, 0);
        let grown = Arc::new(FaultDevice::from_bytes(image.clone(), 4096).unwrap());
        let dynamic: Arc<dyn BlockDevice> = grown.clone();
        let look = Options { read_only: true, ..Options::default() };
        drop(Session::open(&dynamic, Unlock::Wrap(&password), look).unwrap());
        assert!(grown.content() == image, "whoever only reads writes nothing");
        let options = Options { entropy: entropy(seed.into(), 1), ..Options::default() };
        drop(Session::open(&dynamic, Unlock::Wrap(&password), options).unwrap());
        let written: Vec<bool> =
            grown.content().chunks(4096).zip(image.chunks(4096)).map(|(a, b)| a != b).collect();
        assert_eq!(written.iter().filter(|written| **written).count(), 1);
        assert!(written.last().unwrap(), "nothing but the last block");
        // Another password, and then the first superblock is lost.
        let new = wrap(seed + 40);
        let random = entropy(u64::from(seed) + 1, 2);
        change_password(&dynamic, Unlock::Wrap(&password), None, Unlock::Wrap(&new), random)
            .unwrap();
        image = grown.content();
        let mut damaged = image.clone();
        damaged[..4096].fill(0);
        let damaged: Arc<dyn BlockDevice> =
            Arc::new(FaultDevice::from_bytes(damaged, 4096).unwrap());
        let opens = |with| Session::open(&damaged, Unlock::Wrap(with), Options::default()).is_ok();
        assert!(opens(&new), "{growth} blocks more");
        password = new;
    }
}

/// On a device that has grown and was not opened since the second superblock is where it was.
#[test]
fn a_grown_device_keeps_its_second_superblock() {
    let device = Arc::new(FaultDevice::new(shape(512)));
    let dynamic: Arc<dyn BlockDevice> = device.clone();
    make(&dynamic, &parameters(1), 1, entropy(1, 1));
    let mut image = device.content();
    image.resize(image.len() + (7 << 20) + 4096, 0);
    image[..4096].fill(0);
    let grown: Arc<dyn BlockDevice> = Arc::new(FaultDevice::from_bytes(image, 4096).unwrap());
    assert_eq!(open(&grown, 1, entropy(2, 2)).volumes().len(), 2);
}
