//! Damage, wrong passwords, failing and shrinking devices.

use std::sync::Arc;

use tacita_block::{BlockDevice, BlockNo, BlockRange, Fault, FaultDevice};
use tacita_pddm::{Error, Kind, Level, Options, Session, Unlock, Unread, change_password};
use tacita_secret::Key;

use crate::devices::{
    BLOCK, blocks, content, contents, entropy, make, memory, open, parameters, read, shape, volume,
    wrap,
};

const UNITS: u64 = 40;
const UNIT: usize = 8 * BLOCK;

/// A device with something on both volumes: public block n and hidden block n, version 1.
pub(crate) fn example() -> Vec<u8> {
    let device = Arc::new(FaultDevice::new(shape(blocks(UNITS))));
    let dynamic: Arc<dyn BlockDevice> = device.clone();
    make(&dynamic, &parameters(1), 1, entropy(1, 1));
    let session = open(&dynamic, 1, entropy(2, 2));
    for id in 0..40 {
        volume(&session, 1).write(BlockNo(id), &content(id, 1)).unwrap();
    }
    for id in 0..60 {
        volume(&session, 0).write(BlockNo(id), &content(id, 1)).unwrap();
    }
    session.close().unwrap();
    device.content()
}

fn device_of(image: &[u8]) -> Arc<dyn BlockDevice> {
    Arc::new(FaultDevice::from_bytes(image.to_vec(), 4096).unwrap())
}

fn opened(image: &[u8], level: u8) -> Result<Session, Error> {
    let options = Options { entropy: entropy(3, 3), ..Options::default() };
    Session::open(&device_of(image), Unlock::Wrap(&wrap(level)), options)
}

/// A session that writes nothing, not even a superblock where a device has grown.
fn open_to_read(device: &Arc<dyn BlockDevice>, level: u8) -> Session {
    let options = Options { read_only: true, ..Options::default() };
    Session::open(device, Unlock::Wrap(&wrap(level)), options).unwrap()
}

fn kind_of(image: &[u8], level: u8) -> Option<Kind> {
    opened(image, level).err().map(|e| e.kind())
}

fn text_of(image: &[u8], level: u8) -> String {
    opened(image, level).unwrap_err().to_string()
}

#[test]
fn wrong_password_no_volume_and_damage_are_one() {
    let good = example();
    let mut no_superblock = good.clone();
    no_superblock[..BLOCK].fill(0);
    let end = no_superblock.len() - BLOCK;
    assert_eq!(kind_of(&no_superblock, 0), None, "the copy is used");
    no_superblock[end..].fill(0);
    let wrong = text_of(&good, 77);
    assert_eq!(kind_of(&good, 77), Some(Kind::NoVolume));
    assert_eq!(text_of(&good, 2), wrong, "no such volume");
    assert_eq!(text_of(&no_superblock, 0), wrong, "a damaged superblock");
    assert_eq!(text_of(&vec![0; good.len()], 0), wrong, "nothing at all");
}

#[test]
fn another_version_is_refused() {
    let mut image = example();
    let copy = image.len() - BLOCK;
    image[8] += 1;
    assert_eq!(kind_of(&image, 0), None, "the copy is used");
    image[copy + 8] += 1;
    for level in [0, 1, 2, 77] {
        assert_eq!(kind_of(&image, level), Some(Kind::Version), "{level}");
        assert_eq!(text_of(&image, level), text_of(&image, 0), "{level}");
    }
}

#[test]
fn a_shorter_device_is_refused() {
    let mut image = example();
    image.truncate(image.len() - 3 * UNIT);
    // The public password, a hidden one, one of nothing, and a wrong one: the same is said.
    for level in [0, 1, 2, 77] {
        assert_eq!(kind_of(&image, level), Some(Kind::TooShort), "{level}");
        assert_eq!(text_of(&image, level), text_of(&image, 0), "{level}");
    }
}

/// Each block of the log, damaged: what lay in it cannot be read, all else can, and `check` names
/// the unit.
#[test]
fn a_damaged_block_is_an_error_of_its_own() {
    let good = example();
    let written = open(&device_of(&good), 0, entropy(4, 4)).written_units();
    let (mut lost, units) = (0, usize::try_from(written.min(UNITS)).unwrap());
    for (unit, block) in (0..units).flat_map(|unit| (0..8).map(move |block| (unit, block))) {
        let mut image = good.clone();
        image[(unit + 1) * UNIT + block * BLOCK + 100] ^= 1;
        lost += lost_with(&device_of(&image), written, unit, block);
    }
    assert!(lost > 100, "{lost}");
}

/// The same of bad sectors. Where whoever writes has to know what lies there it is opened for reading alone,
/// unless that is given up: it may be there the next time, and nothing is lost then.
#[test]
fn a_bad_sector_anywhere_is_an_error_of_its_block() {
    let good = example();
    let written = open(&device_of(&good), 0, entropy(4, 4)).written_units();
    let (mut lost, mut refused, units) = (0, 0, usize::try_from(UNITS).unwrap());
    for (unit, block) in (0..units).flat_map(|unit| (0..8).map(move |block| (unit, block))) {
        let faulty = Arc::new(FaultDevice::from_bytes(good.clone(), 4096).unwrap());
        let sector = ((unit + 1) * UNIT + block * BLOCK + 512) as u64;
        faulty.inject(Fault::FailReads(sector..sector + 512));
        let device: Arc<dyn BlockDevice> = faulty.clone();
        let opened = [0, 1].map(|level| {
            let options = Options { entropy: entropy(5, 5), ..Options::default() };
            Session::open(&device, Unlock::Wrap(&wrap(level)), options)
        });
        if let [_, Ok(session)] = &opened {
            assert_eq!(session.written_units(), written, "unit {unit}, block {block}");
            drop(opened);
            lost += lost_with(&device, written, unit, block);
            continue;
        }
        refused += 1;
        let refusals = opened.into_iter().filter_map(Result::err);
        assert!(refusals.map(|e| e.kind()).all(|kind| kind == Kind::Unread));
        drop(open_to_read(&device, 0));
        drop(open_to_read(&device, 1));
        assert!(faulty.content() == good, "nothing is written");
        let options =
            || Options { unread: Unread::GivenUp, entropy: entropy(5, 5), ..Options::default() };
        drop(Session::open(&device, Unlock::Wrap(&wrap(1)), options()).unwrap());
        faulty.clear_faults();
        let session = open(&device, 1, entropy(5, 5));
        let all = [(0, 60), (1, 40)]
            .into_iter()
            .flat_map(|(level, count)| (0..count).map(move |id| (level, id)));
        for (level, id) in all {
            assert_eq!(read(&volume(&session, level), id), content(id, 1), "it was there");
        }
    }
    assert!(lost >= 100 && refused > 3, "{lost} lost, {refused} refused");
}

/// What a page of a map alone tells is there the next time, wherever the bad sector lies: zeros that were written, also
/// on a hidden volume that was closed meanwhile.
#[test]
fn what_a_page_alone_tells_is_not_written_over() {
    let device = device_of(&example());
    let session = open(&device, 1, entropy(5, 5));
    for (level, start, count) in [(0, 40, 20), (1, 30, 10)] {
        let zeroed = BlockRange { start: BlockNo(start), count };
        volume(&session, level).write_zeroes(zeroed).unwrap();
    }
    session.close().unwrap();
    drop(session);
    let session = open(&device, 0, entropy(6, 6));
    session.beat().unwrap();
    let written = session.written_units();
    assert!(written < UNITS - 8, "the tail has left nothing");
    drop(session);
    let mut good = vec![0; usize::try_from(blocks(UNITS)).unwrap() * BLOCK];
    device.read(BlockNo(0), &mut good).unwrap();
    let mut refused = 0;
    for (unit, block) in (0..written).flat_map(|unit| (0..8).map(move |block| (unit, block))) {
        let faulty = Arc::new(FaultDevice::from_bytes(good.clone(), 4096).unwrap());
        let sector = ((unit + 1) * 8 + block) * BLOCK as u64;
        faulty.inject(Fault::FailReads(sector..sector + 512));
        let device: Arc<dyn BlockDevice> = faulty.clone();
        let options = Options { entropy: entropy(7, 7), ..Options::default() };
        match Session::open(&device, Unlock::Wrap(&wrap(1)), options) {
            Ok(session) => session.beat().unwrap(),
            Err(error) => {
                assert_eq!(error.kind(), Kind::Unread);
                refused += 1;
            }
        }
        faulty.clear_faults();
        let session = open(&device, 1, entropy(8, 8));
        for (level, id) in (0..60).map(|id| (0, id)).chain((0..40).map(|id| (1, id))) {
            let is_zeroed = id >= if level == 0 { 40 } else { 30 };
            let was = if is_zeroed { vec![0; BLOCK] } else { content(id, 1) };
            let mut found = vec![1; BLOCK];
            let read = volume(&session, level).read(BlockNo(id), &mut found);
            assert!(
                read.is_ok() && found == was,
                "unit {unit}, block {block}: level {level}, block {id}"
            );
        }
    }
    assert!((5..60).contains(&refused), "{refused} of {}", written * 8);
}

/// Of a superblock, too, it costs that one alone; of both the device says what is wrong with it.
#[test]
fn a_bad_sector_of_a_superblock_leaves_the_other() {
    let good = example();
    let end = good.len() - BLOCK;
    let with = |bad: &[usize]| -> Arc<dyn BlockDevice> {
        let device = FaultDevice::from_bytes(good.clone(), 4096).unwrap();
        let sectors = bad.iter().map(|at| *at as u64..*at as u64 + 512);
        sectors.for_each(|sector| device.inject(Fault::FailReads(sector)));
        Arc::new(device)
    };
    for bad in [0, end] {
        let device = with(&[bad]);
        drop(open(&device, 0, entropy(5, 5)));
        let session = open(&device, 1, entropy(5, 5));
        for level in [0, 1] {
            assert_eq!(read(&volume(&session, level), 7), content(7, 1));
        }
        assert_eq!(session.check(&mut |_| {}).unwrap().superblocks, [bad as u64]);
    }
    let refused =
        Session::open(&with(&[0, end]), Unlock::Wrap(&wrap(0)), Options::default()).unwrap_err();
    assert_eq!(refused.kind(), Kind::Device);
}

/// Where one block of a unit is damaged: how many of the volumes cannot be read. All others can.
fn lost_with(device: &Arc<dyn BlockDevice>, written: u64, unit: usize, block: usize) -> usize {
    let session = open(device, 1, entropy(5, 5));
    if session.written_units() < written {
        // The end of the log: what was not known to be durable may go.
        return 0;
    }
    let mut unreadable = 0;
    for (level, count) in [(0, 60), (1, 40)] {
        let volume = volume(&session, level);
        for id in 0..count {
            let mut buf = vec![0; BLOCK];
            match volume.read(BlockNo(id), &mut buf) {
                Ok(()) => assert!(
                    buf == content(id, 1) || (level == 1 && buf.iter().all(|b| *b == 0)),
                    "unit {unit}, block {block}: level {level}, block {id} is wrong"
                ),
                Err(_) => unreadable += 1,
            }
        }
    }
    assert!(unreadable <= if block == 0 { 7 } else { 1 }, "unit {unit}, block {block}");
    let damaged = session.check(&mut |_| {}).unwrap().units;
    assert!(damaged.len() <= 1, "unit {unit}, block {block}: {damaged:?}");
    if unreadable > 0 {
        assert_eq!(damaged, [u32::try_from(unit).unwrap()]);
    }
    unreadable
}

/// What is lost stays lost, and says so, also after the head has gone over it; and comes back to
/// life when it is written.
#[test]
fn what_is_lost_says_so_until_it_is_written() {
    let mut image = example();
    image[UNIT * 4 + 2 * BLOCK] ^= 1;
    let device = device_of(&image);
    let session = open(&device, 1, entropy(5, 5));
    let unreadable = |session: &Session| -> Vec<u64> {
        let volume = volume(session, 0);
        let fails = |id: &u64| volume.read(BlockNo(*id), &mut vec![0; BLOCK]).is_err();
        (0..60).filter(fails).collect()
    };
    let lost = unreadable(&session);
    assert_eq!(lost.len(), 1);
    for _ in 0..3 * UNITS {
        session.beat().unwrap();
    }
    assert_eq!(unreadable(&session), lost);
    drop(session);
    let session = open(&device, 1, entropy(6, 6));
    assert_eq!(unreadable(&session), lost, "after reopening");
    volume(&session, 0).write(BlockNo(lost[0]), &content(lost[0], 2)).unwrap();
    session.flush().unwrap();
    assert_eq!(unreadable(&session), Vec::<u64>::new());
}

/// A copy of the superblock that is lost, or that of another password, is named by who looks, and
/// written again by a sweep. Nothing else is written where none is.
#[test]
fn superblocks_are_looked_at_and_written_again() {
    let good = example();
    let old = good[..BLOCK].to_vec();
    let device = device_of(&good);
    change_password(&device, Unlock::Wrap(&wrap(0)), None, Unlock::Wrap(&wrap(50)), entropy(7, 7))
        .unwrap();
    let mut image = vec![0; good.len()];
    device.read(BlockNo(0), &mut image).unwrap();
    let new = image[..BLOCK].to_vec();
    let last = image.len() - BLOCK;
    for level in [50, 1] {
        let places = |image: &[u8]| {
            let damage = open_to_read(&device_of(image), level).check(&mut |_| {}).unwrap();
            assert_eq!(damage.units, Vec::<u32>::new());
            damage.superblocks
        };
        assert_eq!(places(&image), Vec::<u64>::new());
        for (at, bytes) in [(0, vec![0x55; BLOCK]), (last, vec![0; BLOCK]), (last, old.clone())] {
            let mut damaged = image.clone();
            damaged[at..][..BLOCK].copy_from_slice(&bytes);
            assert_eq!(places(&damaged), [at as u64]);
            let device = device_of(&damaged);
            let session = open(&device, level, entropy(8, 8));
            assert!(session.sweep(&mut |_, _| true).unwrap());
            session.close().unwrap();
            let mut after = vec![0; damaged.len()];
            device.read(BlockNo(0), &mut after).unwrap();
            assert!(after[..BLOCK] == new && after[last..] == new);
            assert_eq!(places(&after), Vec::<u64>::new());
        }
        let device = device_of(&image);
        open(&device, level, entropy(8, 8)).restore_superblocks().unwrap();
        let mut after = vec![0; image.len()];
        device.read(BlockNo(0), &mut after).unwrap();
        assert!(after == image, "nothing to write");
    }
}

/// A bad sector costs its block, and only that, when the tail comes by.
#[test]
fn a_bad_sector_costs_its_block() {
    let device = Arc::new(FaultDevice::from_bytes(example(), 4096).unwrap());
    let dynamic: Arc<dyn BlockDevice> = device.clone();
    let sector = (UNIT * 4 + 2 * BLOCK + 512) as u64;
    device.inject(Fault::FailReads(sector..sector + 512));
    let session = open(&dynamic, 1, entropy(5, 5));
    let unreadable = |session: &Session, level: u8| -> Vec<u64> {
        let volume = volume(session, level);
        let fails = |id: &u64| volume.read(BlockNo(*id), &mut vec![0; BLOCK]).is_err();
        (0..40).filter(fails).collect()
    };
    let lost = unreadable(&session, 0);
    assert_eq!(lost.len(), 1);
    while session.written_units() < UNITS {
        session.beat().unwrap();
    }
    // Written again, a sector gets another place on the disk.
    device.clear_faults();
    for _ in 0..2 * UNITS {
        session.beat().unwrap();
    }
    drop(session);
    let session = open(&dynamic, 1, entropy(6, 6));
    assert_eq!((unreadable(&session, 0), unreadable(&session, 1)), (lost, Vec::new()));
}

/// A write that fails: everything after it fails, nothing that was flushed is lost.
#[test]
fn a_failing_device_loses_nothing_that_was_flushed() {
    for write in 0..12 {
        let device = Arc::new(FaultDevice::from_bytes(example(), 4096).unwrap());
        let dynamic: Arc<dyn BlockDevice> = device.clone();
        let session = open(&dynamic, 1, entropy(7, 7));
        device.inject(Fault::FailWrite { write, kind: tacita_block::Kind::Io });
        let volume = volume(&session, 0);
        let mut failed = false;
        for id in 0..60 {
            failed |= volume.write(BlockNo(id), &content(id, 2)).is_err();
            failed |= volume.flush().is_err();
        }
        assert!(failed, "write {write}");
        assert!(volume.write(BlockNo(0), &content(0, 3)).is_err(), "nothing goes on");
        drop((volume, session));
        device.clear_faults();
        let again = open(&dynamic, 1, entropy(8, 8));
        for id in 0..60 {
            let found = read(&crate::devices::volume(&again, 0), id);
            assert!(found == content(id, 1) || found == content(id, 2), "block {id}");
        }
    }
}

/// A tail that cannot be read: what was to be written with it is not, and no flush says it was. The
/// border is met by the first unit of a run as by the second.
#[test]
fn an_unreadable_tail_ends_the_writing() {
    const GROUP: u64 = 8;
    let bytes = example();
    for beats in 0..2 {
        let device = Arc::new(FaultDevice::from_bytes(bytes.clone(), 4096).unwrap());
        let dynamic: Arc<dyn BlockDevice> = device.clone();
        let session = open(&dynamic, 1, entropy(7, 7));
        device.inject(Fault::FailReads(0..bytes.len() as u64));
        for _ in 0..beats {
            session.beat().unwrap();
        }
        let public = volume(&session, 0);
        // By block: the version that the last flush promised, and the last that was written.
        let mut versions = [(1, 1); 56];
        for round in 2..40 {
            let first = round % 7 * GROUP;
            let group = &mut versions[usize::try_from(first).unwrap()..][..8];
            let data = contents(first..first + GROUP, round);
            let written = public.write(BlockNo(first), &data).is_ok();
            let flushed = public.flush().is_ok();
            assert!(written || !flushed, "a flush after a write that failed");
            for (promised, last) in group {
                *last = if written { round } else { *last };
                *promised = if flushed { round } else { *promised };
            }
        }
        assert!(public.write(BlockNo(0), &content(0, 99)).is_err(), "the tail has been reached");
        drop((public, session));
        device.clear_faults();
        let again = open(&dynamic, 1, entropy(8, 8));
        for (id, (promised, last)) in (0..).zip(versions) {
            let found = read(&volume(&again, 0), id);
            let may_be = (promised..=last).any(|version| found == content(id, version));
            assert!(may_be, "{beats} beats, block {id}, {promised}..={last}");
        }
    }
}

#[test]
fn passwords_change_and_nothing_else() {
    let device = device_of(&example());
    for (level, new) in [(0, 50), (1, 51)] {
        let (old, new) = (wrap(level), wrap(new));
        change_password(&device, Unlock::Wrap(&old), None, Unlock::Wrap(&new), entropy(9, 9))
            .unwrap();
        let options = || Options { entropy: entropy(9, 10), ..Options::default() };
        let session = Session::open(&device, Unlock::Wrap(&new), options()).unwrap();
        assert_eq!(session.volumes().len(), usize::from(level) + 1);
        assert_eq!(read(&volume(&session, level), 7), content(7, 1));
    }
    // The public one is gone at once; the hidden one opens the others still.
    let gone = Session::open(&device, Unlock::Wrap(&wrap(0)), Options::default()).unwrap_err();
    assert_eq!(gone.kind(), Kind::NoVolume);
}

/// With the password of the highest volume all those below get new ones, and no volume loses
/// anything, on a device whose units are all in use.
#[test]
fn lower_passwords_change_from_above() {
    let device: Arc<dyn BlockDevice> = memory(blocks(40));
    make(&device, &parameters(3), 3, entropy(1, 1));
    let session = open(&device, 3, entropy(2, 2));
    for level in 0..4 {
        let volume = volume(&session, level);
        for id in 0..8 {
            volume.write(BlockNo(id), &content(id, level.into())).unwrap();
        }
    }
    for _ in 0..120 {
        session.beat().unwrap();
    }
    drop(session);
    let top = wrap(3);
    let change = |with: &Key, level: u8, new: u8| {
        let volume = if level == 0 { Level::PUBLIC } else { Level::hidden(level.into()) };
        let (with, new) = (Unlock::Wrap(with), wrap(new));
        change_password(&device, with, Some(volume), Unlock::Wrap(&new), entropy(9, 9))
    };
    for level in 0..3 {
        change(&top, level, 50 + level).unwrap();
    }
    for level in 0..3 {
        let options = Options { read_only: true, ..Options::default() };
        let session = Session::open(&device, Unlock::Wrap(&wrap(50 + level)), options).unwrap();
        assert_eq!(session.volumes().len(), usize::from(level) + 1);
    }
    let session = open(&device, 3, entropy(3, 3));
    for level in 0..4 {
        for id in 0..8 {
            assert_eq!(read(&volume(&session, level), id), content(id, level.into()));
        }
    }
    // From below nothing above can be named.
    for level in 1..4 {
        assert_eq!(change(&wrap(50), level, 60).unwrap_err().kind(), Kind::NoVolume);
    }
}

/// Whoever opens for reading only writes nothing, and can write nothing.
#[test]
fn read_only_is_read_only() {
    let device = Arc::new(FaultDevice::from_bytes(example(), 4096).unwrap());
    let dynamic: Arc<dyn BlockDevice> = device.clone();
    let options = Options { read_only: true, ..Options::default() };
    let session = Session::open(&dynamic, Unlock::Wrap(&wrap(1)), options).unwrap();
    for level in 0..2 {
        let volume = volume(&session, level);
        assert_eq!(read(&volume, 5), content(5, 1));
        let refused = volume.write(BlockNo(0), &content(0, 9)).unwrap_err();
        assert_eq!(refused.kind(), tacita_block::Kind::ReadOnly);
        volume.flush().unwrap();
    }
    drop(session);
    assert_eq!(device.writes(), 0);
}

/// A flush that fails, and takes what was written before it along: everything after it fails, and nothing that was
/// flushed is lost, on either volume.
#[test]
fn a_failing_flush_loses_nothing_that_was_flushed() {
    for flush in 0..14 {
        for seed in 0..4 {
            let device = Arc::new(FaultDevice::from_bytes(example(), 4096).unwrap());
            let dynamic: Arc<dyn BlockDevice> = device.clone();
            let session = open(&dynamic, 1, entropy(7, 7));
            device.inject(Fault::FailFlush(flush));
            let public = volume(&session, 0);
            let mut promised = [1u64; 60];
            let mut failed = false;
            for id in 0..60u64 {
                let written = public.write(BlockNo(id), &content(id, 2)).is_ok();
                let flushed = public.flush().is_ok();
                failed |= !flushed;
                if written && flushed {
                    promised[usize::try_from(id).unwrap()] = 2;
                }
                assert!(!(failed && flushed), "nothing goes on");
            }
            assert!(failed);
            let _ = session.close();
            drop((public, session));
            let again: Arc<dyn BlockDevice> =
                Arc::new(FaultDevice::from_bytes(device.crash_image(seed), 4096).unwrap());
            let again = open(&again, 1, entropy(8, 8));
            for id in 0..60u64 {
                let found = read(&volume(&again, 0), id);
                let least = promised[usize::try_from(id).unwrap()];
                let may_be = (least..=2).any(|version| found == content(id, version));
                assert!(may_be, "flush {flush}, seed {seed}, block {id}");
            }
            for id in 0..40u64 {
                assert!(read(&volume(&again, 1), id) == content(id, 1));
            }
        }
    }
}
