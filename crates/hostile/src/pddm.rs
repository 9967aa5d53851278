//! Hostile PD-DM devices from bytes that a fuzzer chooses.

use std::sync::{Arc, LazyLock};

use tacita_block::{BlockDevice, Geometry, MemoryDevice};
use tacita_pddm::hostile::{Numbers, exercise, plant};
use tacita_pddm::{Entropy, Parameters, Unlock, init};
use tacita_secret::{Key, digest};

/// A small device with nothing in it.
static BASE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let shape = Geometry { block_len_bytes: 4096, blocks: 8 * 37 + 1 };
    let memory = Arc::new(MemoryDevice::new(shape));
    let device: Arc<dyn BlockDevice> = memory.clone();
    let parameters =
        Parameters { public_slots: 4, hidden_slots: 3, heartbeat_ms: 0, ..Parameters::default() };
    init(&device, &parameters, Unlock::Wrap(&key()), &[], Entropy::default()).unwrap();
    memory.snapshot()
});

fn key() -> Key {
    Key::take(&mut [5; 32])
}

fn device(image: &[u8]) -> Arc<dyn BlockDevice> {
    Arc::new(MemoryDevice::from_bytes(image, 4096).unwrap())
}

/// The bytes as a superblock whose hash is right.
pub fn superblock(bytes: &[u8]) {
    let mut image = BASE.clone();
    let len = bytes.len().min(160);
    image[..len].copy_from_slice(&bytes[..len]);
    let hash = digest(&image[..4064]);
    image[4064..4096].copy_from_slice(&hash);
    exercise(&device(&image), Unlock::Wrap(&key()));
}

/// The bytes as units that are whole by every seal, with any numbers in them: 32 bytes each.
pub fn units(bytes: &[u8]) {
    let device = device(&BASE);
    for unit in bytes.chunks_exact(32).take(8) {
        let word = |at: usize| u32::from_le_bytes(unit[at..at + 4].try_into().unwrap());
        let numbers = Numbers {
            seq: u64::from(word(0) >> (word(28) % 32)),
            durable: u64::from(word(4)),
            replay_from: u64::from(word(8)),
            ids: vec![word(12), word(16), word(20)],
            word: word(24),
        };
        let _ = plant(&device, Unlock::Wrap(&key()), &numbers);
    }
    exercise(&device, Unlock::Wrap(&key()));
}
