//! Images in memory for the games.

use std::sync::Arc;

use tacita_block::{BlockDevice, FaultDevice, Geometry, MemoryDevice};
use tacita_hifs::geometry::{Ids, Layout, Parameters, Times};
use tacita_hifs::{Hifs, OpenOptions, RootOwner, format};

/// Size of a game's image.
pub(crate) const LEN: u64 = 4 << 20;

pub(crate) const LAYOUTS: [Layout; 4] = [Layout::A, Layout::B, Layout::C, Layout::D];

pub(crate) fn parameters(layout: Layout) -> Parameters {
    Parameters {
        len_bytes: LEN,
        layout,
        ids: Ids::Path,
        times: Times::None,
        bucket_len_bytes: Some(4096),
        groups: Some(3),
        seed: *b"the seed of all games is fixed..",
    }
}

fn shape(parameters: &Parameters) -> Geometry {
    Geometry { block_len_bytes: 4096, blocks: parameters.len_bytes / 4096 }
}

/// A formatted image.
pub(crate) fn fresh(parameters: &Parameters) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(shape(parameters)));
    format(device.clone(), parameters, RootOwner::default(), &mut |_, _| {}).unwrap();
    device
}

/// The same on a device that can lose power.
pub(crate) fn fault_device(bytes: Vec<u8>) -> Arc<FaultDevice> {
    Arc::new(FaultDevice::from_bytes(bytes, 4096).unwrap())
}

pub(crate) fn memory_device(bytes: &[u8]) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::from_bytes(bytes, 4096).unwrap())
}

/// Options with a random source that can be replayed.
pub(crate) fn options(seed: u64) -> OpenOptions {
    let mut rng = tacita_testkit::history::Rng::new(seed);
    let random_id = move || u128::from(rng.next()) << 64 | u128::from(rng.next());
    OpenOptions { random_id: Box::new(random_id), ..OpenOptions::default() }
}

pub(crate) fn open(device: Arc<dyn BlockDevice>) -> Hifs {
    Hifs::open(device, options(1)).unwrap()
}

/// Where two images differ first, by block.
pub(crate) fn assert_same(a: &[u8], b: &[u8], what: &str) {
    assert_eq!(a.len(), b.len());
    let differing: Vec<usize> =
        (0..a.len() / 4096).filter(|i| a[i * 4096..][..4096] != b[i * 4096..][..4096]).collect();
    assert!(
        differing.is_empty(),
        "{what}: {} blocks differ, the first are {:?}",
        differing.len(),
        &differing[..differing.len().min(8)]
    );
}

/// A number from the environment, so that a soak run can do more than `./test` does.
pub(crate) fn env_number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
