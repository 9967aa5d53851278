//! Units that are not what was written last: from a write that was lost, or from an older copy of the
//! device. What they should hold cannot be read, and nothing else is ever given for it.

use std::sync::Arc;

use tacita_block::{BlockDevice, BlockNo, FaultDevice};
use tacita_pddm::Session;
use tacita_testkit::env_number;
use tacita_testkit::history::Rng;

use crate::devices::{
    BLOCK, blocks, content, entropy, make, make_room, open, parameters, shape, volume,
};

const UNITS: u64 = 60;
const UNIT: usize = 8 * BLOCK;
const IDS: u64 = 50;

/// By level and block: the version it holds.
type Versions = [Vec<u64>; 2];

/// Writes so much that the log goes round.
fn go_round(session: &Session, versions: &mut Versions, rng: &mut Rng, version: u64) {
    let end = session.written_units() + UNITS + rng.below(UNITS);
    while session.written_units() < end {
        for _ in 0..4 {
            let level = u8::from(rng.below(3) == 0);
            let volume = volume(session, level);
            make_room(session, &volume);
            let id = rng.below(IDS);
            volume.write(BlockNo(id), &content(id, version)).unwrap();
            versions[usize::from(level)][usize::try_from(id).unwrap()] = version;
        }
        session.flush().unwrap();
    }
    for _ in 0..20 {
        session.beat().unwrap();
    }
}

fn device_of(image: &[u8]) -> Arc<dyn BlockDevice> {
    Arc::new(FaultDevice::from_bytes(image.to_vec(), 4096).unwrap())
}

/// Blocks that cannot be read; what is read otherwise than it was written is found.
fn compare(session: &Session, versions: &Versions, found: &mut Vec<String>) -> Vec<(u8, u64)> {
    let mut lost = Vec::new();
    for (level, versions) in (0..).zip(versions) {
        let volume = volume(session, level);
        for (id, version) in (0..).zip(versions) {
            let mut buf = vec![0; BLOCK];
            match volume.read(BlockNo(id), &mut buf) {
                Err(_) => lost.push((level, id)),
                Ok(()) if *version == 0 && buf.iter().all(|byte| *byte == 0) => {}
                Ok(()) if buf == content(id, *version) => {}
                Ok(()) => {
                    let text = String::from_utf8_lossy(&buf[..24]);
                    found.push(format!("level {level}, block {id}, version {version}: {text:?}"));
                }
            }
        }
    }
    lost
}

/// Puts units of an older copy back; returns what is wrong.
pub(crate) fn game(seed: u64) -> Vec<String> {
    let mut rng = Rng::new(seed);
    let device = Arc::new(FaultDevice::new(shape(blocks(UNITS))));
    let dynamic: Arc<dyn BlockDevice> = device.clone();
    make(&dynamic, &parameters(1), 1, entropy(seed, seed));
    let count = usize::try_from(IDS).unwrap();
    let mut versions = [vec![0; count], vec![0; count]];
    let session = open(&dynamic, 1, entropy(seed + 1, seed + 1));
    go_round(&session, &mut versions, &mut rng, 1);
    session.close().unwrap();
    let old = device.content();
    go_round(&session, &mut versions, &mut rng, 2);
    session.close().unwrap();
    let written = session.written_units();
    drop(session);
    let mut image = device.content();
    // The last unit may be lost, for nobody knows yet that it was durable.
    let closing = (written - 1) % UNITS;
    for _ in 0..=rng.below(6) {
        let (unit, run) = (rng.below(UNITS), 1 + rng.below(3));
        for unit in (unit..(unit + run).min(UNITS)).filter(|unit| *unit != closing) {
            let at = (usize::try_from(unit).unwrap() + 1) * UNIT;
            image[at..at + UNIT].copy_from_slice(&old[at..at + UNIT]);
        }
    }
    let mut found = Vec::new();
    let dynamic = device_of(&image);
    let session = open(&dynamic, 1, entropy(seed + 2, seed + 2));
    if session.written_units() != written {
        found.push(format!("the log ends at {} of {written}", session.written_units()));
        return found;
    }
    let lost = compare(&session, &versions, &mut found);
    for _ in 0..2 * UNITS {
        session.beat().unwrap();
    }
    let later = compare(&session, &versions, &mut found);
    if later != lost {
        found.push(format!("lost {lost:?}, later {later:?}"));
    }
    session.close().unwrap();
    drop(session);
    let session = open(&dynamic, 1, entropy(seed + 3, seed + 3));
    if compare(&session, &versions, &mut found) != lost {
        found.push("what is lost does not stay lost".to_owned());
    }
    let counted: u32 = session.volumes().iter().map(tacita_pddm::Volume::lost_blocks).sum();
    if (counted as usize) < lost.len() {
        found.push(format!("{} lost, {counted} counted", lost.len()));
    }
    for (level, id) in &lost {
        let volume = volume(&session, *level);
        make_room(&session, &volume);
        volume.write(BlockNo(*id), &content(*id, 3)).unwrap();
        versions[usize::from(*level)][usize::try_from(*id).unwrap()] = 3;
    }
    if !compare(&session, &versions, &mut found).is_empty() {
        found.push("written again, and still lost".to_owned());
    }
    found.truncate(6);
    found
}

#[test]
fn a_stale_unit_cannot_be_read() {
    for seed in 0..env_number("TACITA_GAMES", 40) {
        assert_eq!(game(seed), Vec::<String>::new(), "seed {seed}");
    }
}

/// One damaged header costs what lay in its unit, also where a page of the map was in it.
pub(crate) fn damaged_headers(seed: u64) -> Vec<String> {
    let mut rng = Rng::new(seed);
    let device = Arc::new(FaultDevice::new(shape(blocks(UNITS))));
    let dynamic: Arc<dyn BlockDevice> = device.clone();
    make(&dynamic, &parameters(1), 1, entropy(seed, seed));
    let count = usize::try_from(IDS).unwrap();
    let mut versions = [vec![0; count], vec![0; count]];
    let session = open(&dynamic, 1, entropy(seed + 1, seed + 1));
    go_round(&session, &mut versions, &mut rng, 1);
    session.close().unwrap();
    let written = session.written_units();
    drop(session);
    let (good, mut found) = (device.content(), Vec::new());
    for unit in (0..UNITS).filter(|unit| *unit != (written - 1) % UNITS) {
        let mut image = good.clone();
        image[(usize::try_from(unit).unwrap() + 1) * UNIT + 9] ^= 1;
        let session = open(&device_of(&image), 1, entropy(seed + 2, seed + 2));
        let lost = compare(&session, &versions, &mut found);
        if lost.len() > 7 {
            found.push(format!("unit {unit}: {} blocks are lost", lost.len()));
        }
    }
    found.truncate(6);
    found
}

#[test]
fn a_damaged_header_costs_its_unit() {
    for seed in 0..env_number("TACITA_GAMES", 4) {
        assert_eq!(damaged_headers(seed), Vec::<String>::new(), "seed {seed}");
    }
}
