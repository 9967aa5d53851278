//! Volumes against plain arrays: any traffic, with reopening in between.

use std::collections::BTreeMap;
use std::sync::Arc;

use tacita_block::{BlockDevice, BlockNo, BlockRange};
use tacita_pddm::Session;
use tacita_testkit::env_number;
use tacita_testkit::history::Rng;

use crate::devices::{
    BLOCK, blocks, content, contents, entropy, make, make_room, memory, open, parameters, read,
    volume,
};

/// What a volume holds: version by block; absent blocks are zero.
type Model = BTreeMap<u64, u64>;

fn check(session: &Session, level: u8, model: &Model, what: &str) {
    let volume = volume(session, level);
    let count = volume.geometry().blocks;
    let mut all = vec![0; usize::try_from(count).unwrap() * BLOCK];
    volume.read(BlockNo(0), &mut all).unwrap();
    for (id, block) in (0..).zip(all.chunks_exact(BLOCK)) {
        let want = model.get(&id).map_or_else(|| vec![0; BLOCK], |version| content(id, *version));
        assert!(block == want, "{what}: level {level}, block {id}: {:?}", &block[..24]);
        if id % 7 == 0 {
            assert!(read(&volume, id) == want, "{what}: level {level}, block {id} alone");
        }
    }
}

/// Random writes, discards, flushes, heartbeats and reopenings on all levels.
fn game(seed: u64, units: u64, classes: u8, steps: u64) {
    let mut rng = Rng::new(seed);
    let device: Arc<dyn BlockDevice> = memory(blocks(units));
    make(&device, &parameters(classes.into()), classes, entropy(seed, seed));
    let mut session = open(&device, classes, entropy(seed + 1, seed + 1));
    let mut models = vec![Model::new(); usize::from(classes) + 1];
    for step in 0..steps {
        let level = u8::try_from(rng.below(u64::from(classes) + 1)).unwrap();
        let volume = volume(&session, level);
        let count = volume.geometry().blocks;
        let hot = rng.below(2) == 0;
        let id = rng.below(if hot { count / 4 } else { count });
        let len = 1 + rng.below(6.min(count - id));
        let model = &mut models[usize::from(level)];
        make_room(&session, &volume);
        match rng.below(24) {
            0 => session.flush().unwrap(),
            1 => session.beat().unwrap(),
            2 => {
                let range = BlockRange { start: BlockNo(id), count: len };
                volume.discard(range).unwrap();
                (id..id + len).for_each(|id| _ = model.remove(&id));
            }
            3 if step % 5 == 0 => {
                // Everything that waits must be out before the device is closed.
                for _ in 0..400 {
                    session.beat().unwrap();
                }
                drop((volume, session));
                session = open(&device, classes, entropy(seed + step + 2, seed + step + 2));
                for (level, model) in (0..).zip(&models) {
                    check(&session, level, model, &format!("seed {seed}, reopened at {step}"));
                }
            }
            _ => {
                let bytes = contents(id..id + len, step);
                volume.write(BlockNo(id), &bytes).unwrap();
                (id..id + len).for_each(|id| _ = model.insert(id, step));
            }
        }
        if step % 64 == 0 {
            for (level, model) in (0..).zip(&models) {
                check(&session, level, model, &format!("seed {seed}, step {step}"));
            }
        }
    }
}

#[test]
fn volumes_hold_what_is_written() {
    for seed in 0..env_number("TACITA_GAMES", 6) {
        game(seed * 100, 40 + seed * 7, 1, 800);
    }
}

#[test]
fn several_hidden_volumes() {
    for seed in 0..env_number("TACITA_GAMES", 3) {
        game(5000 + seed * 100, 64, 3, 800);
    }
}

/// Pages of the map are due again in each session; many short ones must not put them off for ever.
#[test]
fn many_short_sessions() {
    let device: Arc<dyn BlockDevice> = memory(blocks(40));
    make(&device, &parameters(1), 1, entropy(3, 3));
    let mut models = [Model::new(), Model::new()];
    for round in 0..150 {
        let session = open(&device, 1, entropy(round + 10, round + 10));
        for (level, model) in (0..).zip(&mut models) {
            check(&session, level, model, &format!("session {round}"));
            let volume = volume(&session, level);
            let id = round * 7 % volume.geometry().blocks;
            make_room(&session, &volume);
            if round % 4 == 3 {
                let range = BlockRange { start: BlockNo(id), count: 1 };
                volume.discard(range).unwrap();
                model.remove(&id);
            } else {
                volume.write(BlockNo(id), &content(id, round)).unwrap();
                model.insert(id, round);
            }
        }
        // What waits on the hidden volume goes with it.
        session.beat().unwrap();
        session.close().unwrap();
    }
}

/// Threads that write, read and flush at once: each finds its own blocks as it left them, now and
/// after reopening.
#[test]
fn many_threads_at_once() {
    const THREADS: u64 = 4;
    let device: Arc<dyn BlockDevice> = memory(blocks(200));
    make(&device, &parameters(1), 1, entropy(1, 1));
    let session = open(&device, 1, entropy(2, 2));
    let work = |thread: u64| -> [Model; 2] {
        let mut rng = Rng::new(thread);
        let mut models = [Model::new(), Model::new()];
        for step in 0..env_number("TACITA_GAMES", 3) * 700 {
            let level = usize::from(rng.below(4) == 0);
            let volume = volume(&session, u8::try_from(level).unwrap());
            // Each has every fourth block.
            let id = rng.below(volume.geometry().blocks / THREADS) * THREADS + thread;
            if let Some(version) = models[level].get(&id).filter(|_| rng.below(3) == 0) {
                assert!(read(&volume, id) == content(id, *version), "thread {thread}, block {id}");
            } else if rng.below(200) == 0 {
                session.flush().unwrap();
            } else {
                make_room(&session, &volume);
                volume.write(BlockNo(id), &content(id, step)).unwrap();
                models[level].insert(id, step);
            }
        }
        models
    };
    let models = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|n| {
                scope.spawn({
                    let work = &work;
                    move || work(n)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let all = |level: usize| -> Model { models.iter().flat_map(|m| m[level].clone()).collect() };
    check(&session, 0, &all(0), "together");
    check(&session, 1, &all(1), "together");
    for _ in 0..400 {
        session.beat().unwrap();
    }
    drop(session);
    let session = open(&device, 1, entropy(3, 3));
    check(&session, 0, &all(0), "reopened");
    check(&session, 1, &all(1), "reopened");
}
