//! Level A: exact non-interference. Two worlds have the same public history; in one of them a hidden
//! volume is used as well. With what only a hidden key can tell left out, the adversary's view must
//! be equal: every write, every public byte, recovery at every cut. (Design note, section 5.2.)

use std::sync::Arc;

use tacita_block::{BlockDevice, BlockNo, BlockRange, Event, FaultDevice};
use tacita_pddm::examine::{View, examine};
use tacita_pddm::{Session, Unlock};
use tacita_testkit::env_number;
use tacita_testkit::history::Rng;

use crate::devices::{
    blocks, contents, entropy, has_room, make, open, open_if_there, parameters, read, shape,
    volume, wrap,
};

/// What is done in both worlds.
#[derive(Debug, Clone)]
enum Public {
    Write {
        id: u64,
        len: u64,
    },
    Discard {
        id: u64,
        len: u64,
    },
    Read {
        id: u64,
    },
    Flush,
    Beat,
    /// The device is closed and opened again, with all that is open in its world.
    Reopen,
    /// The device is used with the public password for a while.
    Alone,
}

/// What is done before it in the world with a hidden volume.
#[derive(Debug, Clone)]
enum Hidden {
    Write { id: u64, len: u64 },
    Discard { id: u64, len: u64 },
    Flush,
}

/// Two worlds with one public history.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    units: u64,
    steps: Vec<(Vec<Hidden>, Public)>,
}

impl Scenario {
    /// A random one: kinds of traffic and their shares are drawn, too.
    pub(crate) fn random(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let units = 36 + rng.below(30);
        let (span, long) = ([10, 60, 200][rng.pick_index(3)], 1 + rng.below(8));
        let (hidden_share, hidden_span) = (rng.below(5), [4, 40, 100][rng.pick_index(3)]);
        let flushes = rng.below(4);
        let discards = rng.below(3);
        let mut steps = Vec::new();
        for _ in 0..60 + rng.below(140) {
            let mut hidden = Vec::new();
            for _ in 0..rng.below(hidden_share + 1) {
                let (id, len) = (rng.below(hidden_span), 1 + rng.below(4));
                hidden.push(match rng.below(10) {
                    0 => Hidden::Discard { id, len },
                    1 => Hidden::Flush,
                    _ => Hidden::Write { id, len },
                });
            }
            let (id, len) = (rng.below(span), 1 + rng.below(long));
            let public = match rng.below(40) {
                0 => Public::Beat,
                2 if rng.below(3) == 0 => Public::Reopen,
                3 if rng.below(6) == 0 => Public::Alone,
                4 => Public::Read { id },
                n if n < 5 + flushes => Public::Flush,
                n if n < 10 + discards => Public::Discard { id, len },
                _ => Public::Write { id, len },
            };
            steps.push((hidden, public));
        }
        Self { seed, units, steps }
    }
}

impl Scenario {
    /// A random one with hidden traffic.
    pub(crate) fn busy(seed: u64) -> Self {
        let scenarios = (0..).map(|n| Self::random(seed + n));
        let busy = |s: &Self| s.steps.iter().filter(|(hidden, _)| !hidden.is_empty()).count() > 20;
        scenarios.into_iter().find(busy).unwrap()
    }
}

trait Index {
    fn pick_index(&mut self, count: u64) -> usize;
}

impl Index for Rng {
    fn pick_index(&mut self, count: u64) -> usize {
        usize::try_from(self.below(count)).unwrap()
    }
}

/// What the adversary gets from one world.
pub(crate) struct World {
    pub(crate) device: Arc<FaultDevice>,
    replies: Vec<String>,
}

/// Plays a scenario; `hidden` says whether there is a hidden volume.
pub(crate) fn play(scenario: &Scenario, hidden: bool) -> World {
    let device = Arc::new(FaultDevice::new(shape(blocks(scenario.units))));
    let dynamic: Arc<dyn BlockDevice> = device.clone();
    let mut seed = scenario.seed;
    make(&dynamic, &parameters(1), hidden.into(), entropy(seed, seed * 2 + u64::from(hidden)));
    seed += 1;
    let mut level = u8::from(hidden);
    let mut session = open(&dynamic, level, entropy(seed, seed * 2 + u64::from(hidden)));
    let mut world = World { device, replies: Vec::new() };
    for (step, (before, public)) in (1..).zip(&scenario.steps) {
        if level == 1 {
            before.iter().for_each(|op| play_hidden(&session, op, step));
        }
        let volume = volume(&session, 0);
        let count = volume.geometry().blocks;
        let clip = |id: u64, len: u64| (id % count, len.min(count - id % count));
        let reply = match public {
            Public::Write { id, len } => {
                let (id, len) = clip(*id, *len);
                let bytes = contents(id..id + len, step);
                format!("{:?}", volume.write(BlockNo(id), &bytes).is_ok())
            }
            Public::Discard { id, len } => {
                let (id, len) = clip(*id, *len);
                format!(
                    "{:?}",
                    volume.discard(BlockRange { start: BlockNo(id), count: len }).is_ok()
                )
            }
            Public::Read { id } => {
                let bytes = read(&volume, id % count);
                String::from_utf8_lossy(&bytes[..24]).into_owned()
            }
            Public::Flush => format!("{:?}", volume.flush().is_ok()),
            Public::Beat => format!("{:?}", session.beat().is_ok()),
            Public::Reopen | Public::Alone => {
                drop(volume);
                drop(session);
                let alone = matches!(public, Public::Alone);
                level = if alone { 0 } else { u8::from(hidden) };
                seed += 1;
                let random = || entropy(seed, seed * 2 + u64::from(hidden));
                (session, level) = open_if_there(&dynamic, level, random);
                format!("opened, next is unit {}", session.written_units())
            }
        };
        world.replies.push(reply);
    }
    session.flush().unwrap();
    drop(session);
    world
}

fn play_hidden(session: &Session, op: &Hidden, step: u64) {
    let volume = volume(session, 1);
    let count = volume.geometry().blocks;
    let clip = |id: u64, len: u64| (id % count, len.min(count - id % count));
    if !has_room(&volume, 8) {
        return;
    }
    match op {
        Hidden::Write { id, len } => {
            let (id, len) = clip(*id, *len);
            let bytes = contents(id..id + len, step);
            volume.write(BlockNo(id), &bytes).unwrap();
        }
        Hidden::Discard { id, len } => {
            let (id, len) = clip(*id, *len);
            volume.discard(BlockRange { start: BlockNo(id), count: len }).unwrap();
        }
        Hidden::Flush => volume.flush().unwrap(),
    }
}

/// Order, place and length of every write, and every flush and discard.
pub(crate) fn write_log(device: &FaultDevice) -> Vec<(char, u64, u64)> {
    let recording = device.recording();
    let line = |event: &Event| match event {
        Event::Write { offset, data } => ('w', *offset, data.len() as u64),
        Event::Discard { offset, len_bytes } => ('d', *offset, *len_bytes),
        Event::Flush => ('f', 0, 0),
        Event::FailedFlush => ('F', 0, 0),
    };
    recording.events().iter().map(line).collect()
}

fn device_of(image: &[u8]) -> Arc<dyn BlockDevice> {
    Arc::new(FaultDevice::from_bytes(image.to_vec(), 4096).unwrap())
}

fn view(image: &[u8]) -> View {
    examine(&device_of(image), Unlock::Wrap(&wrap(0))).unwrap()
}

/// What two images differ in beyond hidden slots, and what covers them; empty if nothing.
pub(crate) fn public_difference(a: &[u8], b: &[u8]) -> Vec<String> {
    let (va, vb) = (view(a), view(b));
    let mut found = Vec::new();
    if va.next != vb.next {
        found.push(format!("the log ends at unit {} or {}", va.next, vb.next));
    }
    for (n, (a, b)) in va.units.iter().zip(&vb.units).enumerate() {
        match (a, b) {
            (Some(a), Some(b)) => {
                let public = |unit: &tacita_pddm::examine::UnitView| {
                    let mut unit = unit.clone();
                    // What covers hidden slots is only right or wrong.
                    (unit.previous, unit.hash) = Default::default();
                    unit.hidden_part.clear();
                    unit.hidden_slots.clear();
                    unit
                };
                if public(a) != public(b) {
                    found.push(format!("unit {n}"));
                }
            }
            (None, None) => {}
            _ => found.push(format!("unit {n} can be opened in one world only")),
        }
    }
    // Outside the log everything is equal.
    let log = 8 * 4096..(va.geometry.units() as usize + 1) * 8 * 4096;
    if a[..log.start] != b[..log.start] || a[log.end..] != b[log.end..] {
        found.push("superblock".to_owned());
    }
    let chained = |view: &View| {
        let units = view.units.iter().flatten();
        let by_seq: std::collections::BTreeMap<u64, _> = units.map(|u| (u.seq, u)).collect();
        by_seq.values().all(|unit| {
            let before = unit.seq.checked_sub(1).and_then(|seq| by_seq.get(&seq));
            before.is_none_or(|before| before.hash == unit.previous || unit.seq >= view.next)
        })
    };
    if chained(&va) != chained(&vb) {
        found.push("the chain of headers".to_owned());
    }
    found
}

/// What the adversary can tell two worlds by; empty if nothing.
pub(crate) fn difference(scenario: &Scenario) -> Vec<String> {
    let worlds = [play(scenario, false), play(scenario, true)];
    let mut found = Vec::new();
    let logs: Vec<_> = worlds.iter().map(|world| write_log(&world.device)).collect();
    if logs[0] != logs[1] {
        let at = logs[0].iter().zip(&logs[1]).take_while(|(a, b)| a == b).count();
        found.push(format!("A1: write logs differ from event {at} on"));
    }
    if worlds[0].replies != worlds[1].replies {
        found.push("A3: public replies differ".to_owned());
    }
    if found.is_empty() {
        found.extend(snapshot_difference(scenario, &worlds));
        found.extend(crash_difference(scenario, &worlds));
    }
    found.truncate(5);
    found
}

/// A2: snapshots at the same places in both worlds.
fn snapshot_difference(scenario: &Scenario, worlds: &[World; 2]) -> Vec<String> {
    let mut rng = Rng::new(scenario.seed ^ 0x54a9);
    let recordings = [0, 1].map(|world: usize| worlds[world].device.recording());
    let last = recordings[0].events().len();
    let mut cuts = vec![last];
    cuts.extend((0..3).map(|_| 8 + rng.pick_index((last - 7) as u64)));
    let mut found = Vec::new();
    for cut in cuts {
        let images = [0, 1].map(|world: usize| recordings[world].prefix_image(cut));
        let what = public_difference(&images[0], &images[1]);
        found.extend(what.into_iter().map(|what| format!("A2: at event {cut}: {what}")));
    }
    found
}

/// A4: a power cut at the same place in both worlds; the same head, and nothing is written.
fn crash_difference(scenario: &Scenario, worlds: &[World; 2]) -> Vec<String> {
    let mut rng = Rng::new(scenario.seed ^ 0xc4a5);
    let recordings = [0, 1].map(|world: usize| worlds[world].device.recording());
    let mut found = Vec::new();
    let last = recordings[0].events().len();
    for _ in 0..3 {
        // From the first superblock on there is something to open.
        let cut = 8 + rng.pick_index((last - 7) as u64);
        let seed = rng.below(50);
        let images = [0, 1].map(|world: usize| recordings[world].crash_image(cut, seed));
        let ends = [0u8, 1].map(|world| {
            let device = Arc::new(
                FaultDevice::from_bytes(images[usize::from(world)].clone(), 4096).unwrap(),
            );
            let dynamic: Arc<dyn BlockDevice> = device.clone();
            let (session, _) = open_if_there(&dynamic, world, || entropy(0, 0));
            (session.written_units(), device.writes())
        });
        if ends[0] != ends[1] || ends[0].1 != 0 {
            found.push(format!("A4: cut {cut}, seed {seed}: recovery differs: {ends:?}"));
        }
    }
    found
}

/// One of two halves, so that they run side by side.
fn half(parity: u64) {
    for seed in (parity..env_number("TACITA_WORLDS", 500)).step_by(2) {
        let scenario = Scenario::random(seed * 1000);
        let found = difference(&scenario);
        assert!(found.is_empty(), "seed {seed}: {found:#?}");
    }
}

#[test]
fn nothing_tells_the_worlds_apart() {
    half(0);
}

#[test]
fn nothing_tells_other_worlds_apart() {
    half(1);
}
