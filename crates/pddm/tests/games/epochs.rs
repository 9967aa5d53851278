//! Hidden flushes are barriers: after a cut the hidden volume holds all that was written before one of
//! them, and possibly some of what was written before the next.

use std::collections::BTreeMap;
use std::sync::Arc;

use tacita_block::{BlockDevice, BlockNo, BlockRange, FaultDevice};
use tacita_testkit::env_number;
use tacita_testkit::history::Rng;

use crate::devices::{
    BLOCK, blocks, content, entropy, has_room, make, open, parameters, shape, volume,
};

/// What was written to a block, `None` for zeros, in the order of epochs.
type Epoch = BTreeMap<u64, Vec<Option<u64>>>;

fn holds(block: &[u8], id: u64, version: Option<u64>) -> bool {
    match version {
        Some(version) => block == content(id, version),
        None => block.iter().all(|byte| *byte == 0),
    }
}

/// Whether a volume holds all epochs up to one, and nothing but blocks of the next beside.
fn is_prefix(found: &[Vec<u8>], epochs: &[Epoch]) -> bool {
    let mut state: Vec<Option<u64>> = vec![None; found.len()];
    (0..=epochs.len()).any(|count| {
        if let Some(done) = count.checked_sub(1).map(|last| &epochs[last]) {
            for (id, versions) in done {
                state[usize::try_from(*id).unwrap()] = *versions.last().unwrap();
            }
        }
        let next = epochs.get(count);
        (0u64..).zip(found).zip(&state).all(|((id, block), version)| {
            let later = next.and_then(|next| next.get(&id));
            holds(block, id, *version)
                || later.is_some_and(|later| later.iter().any(|v| holds(block, id, *v)))
        })
    })
}

/// Cuts a life with many hidden flushes at many places; returns what is wrong.
pub(crate) fn game(seed: u64) -> Vec<String> {
    const IDS: u64 = 24;
    let device = Arc::new(FaultDevice::new(shape(blocks(60))));
    let dynamic: Arc<dyn BlockDevice> = device.clone();
    make(&dynamic, &parameters(1), 1, entropy(seed, seed));
    let made = device.recording().events().len();
    let session = open(&dynamic, 1, entropy(seed + 1, seed + 1));
    let (public, hidden) = (volume(&session, 0), volume(&session, 1));
    let mut rng = Rng::new(seed);
    let mut epochs = vec![Epoch::new()];
    for step in 1..400 {
        let id = rng.below(IDS);
        match rng.below(12) {
            0 | 1 => {
                hidden.flush().unwrap();
                epochs.push(Epoch::new());
            }
            2 => public.flush().unwrap(),
            3 if has_room(&hidden, 8) => {
                let count = 1 + rng.below(IDS - id);
                hidden.discard(BlockRange { start: BlockNo(id), count }).unwrap();
                for id in id..id + count {
                    epochs.last_mut().unwrap().entry(id).or_default().push(None);
                }
            }
            4..8 if has_room(&hidden, 8) => {
                hidden.write(BlockNo(id), &content(id, step)).unwrap();
                epochs.last_mut().unwrap().entry(id).or_default().push(Some(step));
            }
            _ => public.write(BlockNo(rng.below(60)), &content(0, step)).unwrap(),
        }
    }
    session.flush().unwrap();
    drop((public, hidden, session));
    let recording = device.recording();
    let mut found = Vec::new();
    for _ in 0..env_number("TACITA_CUTS", 8) {
        let last = recording.events().len();
        let cut = made + usize::try_from(rng.below((last - made) as u64 + 1)).unwrap();
        let image = recording.crash_image(cut, rng.below(40));
        let device: Arc<dyn BlockDevice> = Arc::new(FaultDevice::from_bytes(image, 4096).unwrap());
        let session = open(&device, 1, entropy(seed + 2, seed + 2));
        let hidden = volume(&session, 1);
        let read = |id| {
            let mut buf = vec![0; BLOCK];
            hidden.read(BlockNo(id), &mut buf).map(|()| buf)
        };
        match (0..IDS).map(read).collect::<Result<Vec<_>, _>>() {
            Ok(all) if is_prefix(&all, &epochs) => {}
            Ok(_) => found.push(format!("cut {cut}: no prefix of epochs")),
            Err(error) => found.push(format!("cut {cut}: {error}")),
        }
    }
    found
}

#[test]
fn after_a_cut_there_is_a_prefix_of_epochs() {
    for seed in 0..env_number("TACITA_GAMES", 30) {
        assert_eq!(game(seed), Vec::<String>::new(), "seed {seed}");
    }
}

/// Hidden volumes are closed before a session ends; the public one is not.
#[test]
fn a_hidden_volume_that_is_closed_serves_nobody() {
    let device: Arc<dyn BlockDevice> = Arc::new(FaultDevice::new(shape(blocks(44))));
    make(&device, &parameters(1), 1, entropy(1, 1));
    let session = open(&device, 1, entropy(2, 2));
    let (public, hidden) = (volume(&session, 0), volume(&session, 1));
    hidden.write(BlockNo(3), &content(3, 1)).unwrap();
    session.close_hidden();
    let mut block = content(3, 1);
    hidden.read(BlockNo(3), &mut block).unwrap_err();
    hidden.write(BlockNo(4), &block).unwrap_err();
    hidden.discard(BlockRange { start: BlockNo(3), count: 1 }).unwrap_err();
    hidden.flush().unwrap_err();
    public.write(BlockNo(3), &block).unwrap();
    public.flush().unwrap();
    public.read(BlockNo(3), &mut block).unwrap();
    // What waits is still there for a sweep.
    assert_eq!(hidden.waiting_blocks(), 0, "the flush has carried it");
    session.close().unwrap();
}
