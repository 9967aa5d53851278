//! Somebody who has the public password can seal what they like: nothing of it makes the program
//! panic, hang or take all memory.

use std::sync::Arc;

use tacita_block::{BlockDevice, MemoryDevice};
use tacita_pddm::Unlock;
use tacita_pddm::hostile::{Numbers, exercise, plant};
use tacita_testkit::env_number;
use tacita_testkit::history::Rng;

use crate::devices::{blocks, entropy, make, memory, parameters, wrap};

#[test]
fn any_numbers_in_whole_units() {
    let base = memory(blocks(36));
    let dynamic: Arc<dyn BlockDevice> = base.clone();
    make(&dynamic, &parameters(1), 1, entropy(1, 1));
    let base = base.snapshot();
    let mut rng = Rng::new(5);
    let any = |rng: &mut Rng| match rng.below(5) {
        0 => u64::MAX - rng.below(3),
        1 => rng.below(1 << 40),
        _ => rng.below(80),
    };
    for _ in 0..env_number("TACITA_GAMES", 60) {
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(&base, 4096).unwrap());
        for _ in 0..=rng.below(6) {
            let seq = any(&mut rng);
            let numbers = Numbers {
                seq,
                durable: if rng.below(2) == 0 { seq } else { any(&mut rng) },
                replay_from: if rng.below(2) == 0 { seq } else { any(&mut rng) },
                ids: (0..4).map(|_| u32::try_from(any(&mut rng) & 0xffff_ffff).unwrap()).collect(),
                word: u32::try_from(any(&mut rng) & 0xffff_ffff).unwrap(),
            };
            if plant(&device, Unlock::Wrap(&wrap(0)), &numbers).is_err() {
                break;
            }
        }
        exercise(&device, Unlock::Wrap(&wrap(0)));
        exercise(&device, Unlock::Wrap(&wrap(1)));
    }
}
