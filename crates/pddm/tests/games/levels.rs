//! Several hidden volumes: somebody has the password of the first, and wants to know of a second.
//! (Design note, game G3.)

use std::sync::Arc;

use tacita_block::{BlockDevice, BlockNo, FaultDevice};
use tacita_pddm::Unlock;
use tacita_pddm::examine::{UnitView, examine};
use tacita_testkit::env_number;
use tacita_testkit::history::Rng;

use crate::devices::{
    blocks, content, entropy, has_room, make, open, parameters, shape, volume, wrap,
};

/// One world: public traffic and traffic on the first hidden volume, the same in both; in one of
/// them a second hidden volume is used, too.
fn play(seed: u64, second: bool) -> Vec<u8> {
    let device = Arc::new(FaultDevice::new(shape(blocks(44))));
    let dynamic: Arc<dyn BlockDevice> = device.clone();
    let top = 1 + u8::from(second);
    make(&dynamic, &parameters(3), top, entropy(seed, seed * 2 + u64::from(second)));
    let session = open(&dynamic, top, entropy(seed + 1, seed * 2 + 7 + u64::from(second)));
    let mut rng = Rng::new(seed);
    for step in 0..240 {
        let (id, extra) = (rng.below(50), rng.below(20));
        let has_room = |level| has_room(&volume(&session, level), 1);
        if second && rng.below(2) == 0 && has_room(2) {
            volume(&session, 2).write(BlockNo(extra), &content(extra, step)).unwrap();
        }
        // The draws are the same in both worlds.
        let mut common = Rng::new(seed * 1000 + step);
        match common.below(10) {
            0 => session.flush().unwrap(),
            1..5 => {
                let id = id % 20;
                if has_room(1) {
                    volume(&session, 1).write(BlockNo(id), &content(id, step)).unwrap();
                }
            }
            _ => volume(&session, 0).write(BlockNo(id), &content(id, step)).unwrap(),
        }
        if !second {
            let _ = rng.below(2);
        }
    }
    session.flush().unwrap();
    drop(session);
    device.content()
}

fn view(image: &[u8]) -> Vec<Option<UnitView>> {
    let device: Arc<dyn BlockDevice> =
        Arc::new(FaultDevice::from_bytes(image.to_vec(), 4096).unwrap());
    examine(&device, Unlock::Wrap(&wrap(1))).unwrap().units
}

/// What tells the worlds apart with the password of the first hidden volume; empty if nothing.
pub(crate) fn difference(seed: u64) -> Vec<String> {
    let views = [view(&play(seed, false)), view(&play(seed, true))];
    let known = |unit: &UnitView| {
        let mut unit = unit.clone();
        (unit.previous, unit.hash) = Default::default();
        // What is known of the first volume has been opened; the rest is noise or looks like it.
        unit.hidden_part.clear();
        unit.hidden_slots.clear();
        for (_, content) in unit.hidden.iter_mut().flatten().flatten() {
            // An empty slot is noise, which is not the same twice.
            content.get_or_insert_default();
        }
        unit
    };
    let pairs = views[0].iter().zip(&views[1]).enumerate();
    let differ = pairs.filter(|(_, (a, b))| a.as_ref().map(known) != b.as_ref().map(known));
    differ.map(|(unit, _)| format!("seed {seed}: unit {unit} differs")).take(5).collect()
}

#[test]
fn a_second_hidden_volume_does_not_show() {
    for seed in 0..env_number("TACITA_GAMES", 20) {
        assert_eq!(difference(seed), Vec::<String>::new());
    }
}
