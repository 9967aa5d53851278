//! Where keys lie: in one place while a device is open, and nowhere after; round keys of any key at all
//! nowhere while nobody uses it. What leaves one behind is found.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

use std::hint::black_box;
use std::sync::Arc;

use tacita_block::{BlockDevice, BlockNo, Geometry, MemoryDevice};
use tacita_pddm::{Entropy, Options, Parameters, Session, Source, Unlock, init};
#[cfg(feature = "faults")]
use tacita_secret::faults::{Fault, plant};
use tacita_secret::{Key, digest};
use tacita_testkit::own_memory::{Finding, deep, is_key_schedule, search};

/// Keys of one byte, over and over: easily found, and in no other memory than that of keys.
const PUBLIC_WRAP: u8 = 0xa7;
const HIDDEN_WRAP: u8 = 0xb6;
const PUBLIC_MASTER: u8 = 0xc5;
const HIDDEN_MASTER: u8 = 0xd4;

fn key(byte: u8) -> Key {
    Key::take(&mut [black_box(byte); 32])
}

/// The second or third value is the master key; all others are digests.
fn source(number: u64, byte: u8, domain: u8) -> Source {
    let mut count = 0u64;
    Box::new(move || {
        count += 1;
        let random = digest(&[&[domain][..], &count.to_le_bytes()].concat());
        Ok(if count == number { [black_box(byte); 32] } else { random })
    })
}

/// By key: where it lies.
fn found() -> Vec<(u8, Finding)> {
    let keys = [PUBLIC_WRAP, HIDDEN_WRAP, PUBLIC_MASTER, HIDDEN_MASTER];
    let found = keys.map(|key| {
        let places = search(|bytes: &[u8; 32]| bytes.iter().all(|byte| *byte == key));
        places.into_iter().map(move |finding| (key, finding)).collect::<Vec<_>>()
    });
    found.concat()
}

fn use_it(device: &Arc<dyn BlockDevice>) -> Session {
    let hidden = key(HIDDEN_WRAP);
    let session = Session::open(device, Unlock::Wrap(&hidden), Options::default()).unwrap();
    for volume in session.volumes() {
        for at in 0..40 {
            volume.write(BlockNo(at), &[1; 4096]).unwrap();
        }
        volume.flush().unwrap();
        volume.read(BlockNo(0), &mut [0; 4096]).unwrap();
    }
    session.beat().unwrap();
    session
}

fn make() -> Arc<dyn BlockDevice> {
    let shape = Geometry { block_len_bytes: 4096, blocks: 2000 };
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(shape));
    let (public, hidden) = (key(PUBLIC_WRAP), key(HIDDEN_WRAP));
    let entropy = Entropy {
        // Two salts come before the public master.
        public: source(3, PUBLIC_MASTER, 0),
        hidden: source(1, HIDDEN_MASTER, 1),
    };
    let unlocks = [Unlock::Wrap(&hidden)];
    let parameters = Parameters::default();
    init(&device, &parameters, Unlock::Wrap(&public), &unlocks, entropy).unwrap();
    device
}

/// One test, for all of it is about the memory of the one process.
#[test]
fn keys_lie_in_one_place_and_are_gone_at_the_end() {
    let device = deep(make);
    let session = deep(|| use_it(&device));
    let open = found();
    for byte in [HIDDEN_WRAP, PUBLIC_MASTER, HIDDEN_MASTER] {
        assert!(open.iter().any(|(found, _)| *found == byte), "{byte:x}: the search finds nothing");
    }
    let mut mappings: Vec<&String> = open.iter().map(|(_, finding)| &finding.mapping).collect();
    mappings.dedup();
    assert_eq!(mappings.len(), 1, "{open:#x?}");
    // Round keys of any key at all: those of units are derived when they are needed.
    assert_eq!(search(is_key_schedule), []);
    deep(|| session.close().unwrap());
    drop(session);
    assert_eq!(found(), []);
    assert_eq!(search(is_key_schedule), []);

    // What else can be left behind is planted where keys are used, in `tacita-secret`.
    #[cfg(feature = "faults")]
    {
        let planted = plant(Fault::UsedPlaces);
        drop(use_it(&device));
        drop(planted);
        assert!(!found().is_empty() && !search(is_key_schedule).is_empty());
    }
}
