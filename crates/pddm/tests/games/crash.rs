//! Power cuts: what was flushed is there, on both volumes; recovery is a function of public state
//! and writes nothing. (Design note, section 2.5.)

use std::collections::BTreeMap;
use std::sync::Arc;

use tacita_block::{BlockDevice, BlockNo, BlockRange, FaultDevice};
use tacita_testkit::env_number;
use tacita_testkit::history::Rng;

use crate::devices::{
    BLOCK, blocks, content, entropy, make, make_room, open, parameters, shape, volume,
};

/// By level and block: all versions that may be read after a cut; `None` is zeros.
type Allowed = BTreeMap<(u8, u64), Vec<Option<u64>>>;

/// What must hold after so many events of the device.
struct Point {
    events: usize,
    allowed: Allowed,
}

/// Blocks for the recording at `start`, versions counted from `base`.
struct Life {
    device: Arc<FaultDevice>,
    points: Vec<Point>,
}

fn note(allowed: &mut Allowed, key: (u8, u64), version: Option<u64>) {
    allowed.entry(key).or_insert_with(|| vec![None]).push(version);
}

/// Random traffic on both volumes, and what may be found after each step.
fn live(image: Vec<u8>, allowed: Allowed, seed: u64, steps: u64) -> Life {
    let device = Arc::new(FaultDevice::from_bytes(image, 4096).unwrap());
    let dynamic: Arc<dyn BlockDevice> = device.clone();
    let session = open(&dynamic, 1, entropy(seed, seed));
    let mut rng = Rng::new(seed);
    let mut allowed = allowed;
    let mut points = vec![Point { events: 0, allowed: allowed.clone() }];
    for step in 1..=steps {
        let version = seed * 10_000 + step;
        // Some lives flush often, some hardly ever: then the head laps what is not durable.
        match rng.below(if seed.is_multiple_of(2) { 12 } else { 120 }) {
            0 => {
                session.flush().unwrap();
                // Of the public volume only the last version is left.
                allowed.iter_mut().filter(|((level, _), _)| *level == 0).for_each(
                    |(_, versions)| {
                        versions.drain(..versions.len() - 1);
                    },
                );
            }
            1 => {
                // Enough units for everything hidden that waits.
                for _ in 0..40 {
                    session.beat().unwrap();
                }
                allowed.values_mut().for_each(|versions| {
                    versions.drain(..versions.len() - 1);
                });
            }
            op => {
                let level = u8::from(rng.below(3) == 0);
                let volume = volume(&session, level);
                let id = rng.below(volume.geometry().blocks.min(90));
                make_room(&session, &volume);
                if op == 2 {
                    note(&mut allowed, (level, id), None);
                    volume.discard(BlockRange { start: BlockNo(id), count: 1 }).unwrap();
                } else {
                    note(&mut allowed, (level, id), Some(version));
                    volume.write(BlockNo(id), &content(id, version)).unwrap();
                }
            }
        }
        // What the writer has done by now, and no less, is durable as far as it was flushed.
        points.push(Point { events: device.recording().events().len(), allowed: allowed.clone() });
    }
    drop(session);
    points.push(Point { events: device.recording().events().len(), allowed });
    Life { device, points }
}

/// Opens an image; every block of both volumes is one of those allowed. Returns what is there.
fn verify(image: &[u8], allowed: &Allowed, what: &str) -> Allowed {
    let device = Arc::new(FaultDevice::from_bytes(image.to_vec(), 4096).unwrap());
    let dynamic: Arc<dyn BlockDevice> = device.clone();
    let public = open(&dynamic, 0, entropy(0, 0)).written_units();
    let session = open(&dynamic, 1, entropy(0, 0));
    assert_eq!(
        session.written_units(),
        public,
        "{what}: the hidden key changes the end of the log"
    );
    let mut found = Allowed::new();
    for level in 0..2 {
        let volume = volume(&session, level);
        let mut all = vec![0; usize::try_from(volume.geometry().blocks.min(90)).unwrap() * BLOCK];
        volume.read(BlockNo(0), &mut all).unwrap_or_else(|e| panic!("{what}: level {level}: {e}"));
        for (id, block) in (0..).zip(all.chunks_exact(BLOCK)) {
            let versions = allowed.get(&(level, id)).map_or(&[None][..], |versions| versions);
            let holds = |version: &Option<u64>| match version {
                Some(version) => block == content(id, *version),
                None => block.iter().all(|byte| *byte == 0),
            };
            let version = versions.iter().rev().find(|version| holds(version));
            let head = String::from_utf8_lossy(&block[..40]);
            let version = version.unwrap_or_else(|| {
                panic!("{what}: level {level}, block {id} holds {head:?}, allowed {versions:?}")
            });
            found.insert((level, id), vec![*version]);
        }
    }
    assert_eq!(device.writes(), 0, "{what}: recovery writes");
    found
}

/// Cuts a life at many places; goes on living from some of the images.
pub(crate) fn game(seed: u64) {
    let device: Arc<FaultDevice> = Arc::new(FaultDevice::new(shape(blocks(40))));
    let dynamic: Arc<dyn BlockDevice> = device.clone();
    make(&dynamic, &parameters(1), 1, entropy(seed, seed));
    let mut rng = Rng::new(seed ^ 0xdead);
    let (mut image, mut allowed) = (device.content(), Allowed::new());
    for life in 0..3 {
        let Life { device, points } = live(image, allowed, seed * 10 + life, 150);
        let recording = device.recording();
        let mut next = None;
        for _ in 0..env_number("TACITA_CUTS", 12) {
            let cut = usize::try_from(rng.below(recording.events().len() as u64 + 1)).unwrap();
            // What was true at the last step before the cut, and all that came in the next ones.
            let before = points.iter().rposition(|point| point.events <= cut).unwrap();
            let after = points.iter().position(|point| point.events >= cut).unwrap();
            let mut allowed = points[before.min(after)].allowed.clone();
            for point in &points[before.min(after)..=before.max(after)] {
                for (key, versions) in &point.allowed {
                    let known = allowed.entry(*key).or_insert_with(|| vec![None]);
                    for version in versions {
                        if !known.contains(version) {
                            known.push(*version);
                        }
                    }
                }
            }
            let kind = rng.below(40);
            let image = recording.crash_image(cut, kind);
            let what = format!("seed {seed}, life {life}, cut {cut}, loss {kind}");
            let found = verify(&image, &allowed, &what);
            next = Some((image, found));
        }
        (image, allowed) = next.unwrap();
    }
}

#[test]
fn what_was_flushed_survives() {
    for seed in 0..env_number("TACITA_GAMES", 12) {
        game(seed);
    }
}
