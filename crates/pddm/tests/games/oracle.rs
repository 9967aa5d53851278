//! The paper's scheme and ours under the same traffic: the same content, at a fraction of the cost;
//! and the invariants that hold of any traffic.

use std::collections::VecDeque;
use std::sync::Arc;

use tacita_block::{BlockDevice, BlockNo, FaultDevice};
use tacita_pddm::classic::Classic;
use tacita_pddm::{Session, Volume};
use tacita_testkit::env_number;
use tacita_testkit::history::Rng;

use crate::devices::{
    blocks, content, entropy, make, memory, open, parameters, read, shape, volume,
};

/// Blocks that are used of each volume: less than either has.
const BLOCKS: u64 = 60;

/// `classic` with a queue before it, since it takes one hidden block at a time.
struct Oracle {
    classic: Classic,
    queue: VecDeque<(u32, u64)>,
}

impl Oracle {
    fn write_public(&mut self, id: u64, version: u64) {
        let next = self.queue.pop_front();
        let left = self.classic.write(u32::try_from(id).unwrap(), version, next);
        if let Some(left) = left {
            self.queue.push_front(left);
        }
    }

    fn hidden_read(&self, id: u64) -> Option<u64> {
        let id = u32::try_from(id).unwrap();
        let queued = self.queue.iter().rev().find(|(other, _)| *other == id);
        queued.map_or_else(|| self.classic.hidden_read(id), |(_, version)| Some(*version))
    }
}

fn write(volume: &Volume, id: u64, version: u64) {
    volume.write(BlockNo(id), &content(id, version)).unwrap();
}

fn compare(oracle: &Oracle, session: &Session, what: &str) {
    let (public, hidden) = (volume(session, 0), volume(session, 1));
    for id in 0..BLOCKS {
        let number = u32::try_from(id).unwrap();
        for (volume, version) in
            [(&public, oracle.classic.public_read(number)), (&hidden, oracle.hidden_read(id))]
        {
            let wanted = version.map_or_else(|| vec![0; 4096], |version| content(id, version));
            let level = volume.level();
            assert!(read(volume, id) == wanted, "{what}: {level:?}, block {id}");
        }
    }
}

/// Random writes to both; what can be read is the same after each hundred. When both are old, ours
/// writes less than half of what the paper's layout does for each public block.
#[test]
fn the_papers_scheme_agrees() {
    for seed in 0..env_number("TACITA_GAMES", 3) {
        let device: Arc<dyn BlockDevice> = memory(blocks(40));
        make(&device, &parameters(1), 1, entropy(seed, seed));
        let session = open(&device, 1, entropy(seed + 1, seed + 1));
        let (public, hidden) = (volume(&session, 0), volume(&session, 1));
        let classic = Classic::new(usize::try_from(BLOCKS).unwrap(), 3, 8, 0.3);
        let mut oracle = Oracle { classic, queue: VecDeque::new() };
        let mut rng = Rng::new(seed);
        let mut aged = (0, 0);
        let steps = 3000;
        for step in 0..steps {
            let id = rng.below(BLOCKS);
            oracle.write_public(id, step);
            write(&public, id, step);
            if rng.below(4) == 0 {
                let id = rng.below(BLOCKS);
                oracle.queue.push_back((u32::try_from(id).unwrap(), step));
                write(&hidden, id, step);
            }
            if step % 100 == 0 {
                compare(&oracle, &session, &format!("seed {seed}, step {step}"));
            }
            if step == steps / 2 {
                aged = (oracle.classic.cost().total(), session.written_units());
            }
        }
        let paper = oracle.classic.cost().total() - aged.0;
        let ours = (session.written_units() - aged.1) * 8;
        assert!(ours * 2 < paper, "seed {seed}: {ours} blocks written, {paper} by the paper's");
    }
}

/// I7: reading writes nothing, however much is read.
#[test]
fn reading_writes_nothing() {
    let device = Arc::new(FaultDevice::new(shape(blocks(40))));
    let dynamic: Arc<dyn BlockDevice> = device.clone();
    make(&dynamic, &parameters(1), 1, entropy(1, 1));
    let session = open(&dynamic, 1, entropy(2, 2));
    for id in 0..BLOCKS {
        write(&volume(&session, 0), id, 1);
        write(&volume(&session, 1), id, 1);
    }
    session.flush().unwrap();
    let before = device.writes();
    let mut rng = Rng::new(7);
    for _ in 0..2000 {
        let level = u8::try_from(rng.below(2)).unwrap();
        read(&volume(&session, level), rng.below(BLOCKS));
    }
    assert_eq!(device.writes(), before);
}

/// Without a single flush, from the first unit on, what is not durable stays within the gap: all of
/// it is read after a crash. A unit is written in one write here.
#[test]
fn little_is_ever_not_durable() {
    let device = Arc::new(FaultDevice::new(shape(blocks(200))));
    let dynamic: Arc<dyn BlockDevice> = device.clone();
    make(&dynamic, &parameters(1), 1, entropy(1, 1));
    let session = open(&dynamic, 1, entropy(2, 2));
    let gap = u64::from(session.geometry().gap());
    let public = volume(&session, 0);
    let start = (session.written_units(), device.flushes());
    let mut rng = Rng::new(1);
    while session.written_units() < 190 {
        write(&public, rng.below(public.geometry().blocks), 1);
        let units = session.written_units() - start.0;
        let flushes = device.flushes() - start.1;
        assert!(units <= (flushes + 1) * gap, "{units} units, {flushes} flushes");
    }
}

/// I6: a hidden block waits for no more than the public traffic of one sweep, though both volumes
/// are full and every hidden block is carried.
#[test]
fn a_hidden_block_waits_for_a_sweep_at_most() {
    let units = 40;
    for seed in 0..env_number("TACITA_GAMES", 3) {
        let device = Arc::new(FaultDevice::new(shape(blocks(units))));
        let dynamic: Arc<dyn BlockDevice> = device.clone();
        make(&dynamic, &parameters(1), 1, entropy(seed, seed));
        let session = open(&dynamic, 1, entropy(seed + 1, seed + 1));
        let (public, hidden) = (volume(&session, 0), volume(&session, 1));
        let counts = [&public, &hidden].map(|volume| volume.geometry().blocks);
        let mut rng = Rng::new(seed);
        for id in 0..counts[1] {
            crate::devices::make_room(&session, &hidden);
            write(&hidden, id, 1);
        }
        while session.written_units() < 3 * units {
            write(&public, rng.below(counts[0]), 1);
        }
        for round in 0..20 {
            let id = rng.below(counts[1]);
            write(&hidden, id, 2 + round);
            let start = session.written_units();
            while session.written_units() < start + units {
                write(&public, rng.below(counts[0]), 2 + round);
            }
            session.flush().unwrap();
            // What is on the medium alone, as after a power cut.
            let copy: Arc<dyn BlockDevice> =
                Arc::new(FaultDevice::from_bytes(device.content(), 4096).unwrap());
            let after = open(&copy, 1, entropy(90, 90));
            assert!(read(&volume(&after, 1), id) == content(id, 2 + round), "seed {seed}");
        }
    }
}
