//! Where keys lie: in one place while a device is open, and nowhere after.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use tacita_block::{BlockDevice, BlockNo, Geometry, MemoryDevice};
use tacita_pddm::{Entropy, Options, Parameters, Session, Source, Unlock, init};
use tacita_secret::{Key, digest};

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

/// By key: the mappings in which it lies, and how often.
fn found() -> Vec<(u8, String, usize)> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let memory = File::open("/proc/self/mem").unwrap();
    let mut found = Vec::new();
    for line in maps.lines().filter(|line| line.contains(" rw") && !line.contains("[v")) {
        let (start, rest) = line.split_once('-').unwrap();
        let end = rest.split(' ').next().unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        let mut at = number(start);
        let mut runs = [(0u8, 0usize); 1];
        let mut counts = [0usize; 256];
        let mut page = vec![0; 1 << 16];
        while at < number(end) {
            let len = page.len().min(usize::try_from(number(end) - at).unwrap());
            if memory.read_exact_at(&mut page[..len], at).is_ok() {
                for byte in &page[..len] {
                    let run = &mut runs[0];
                    *run = if run.0 == *byte { (*byte, run.1 + 1) } else { (*byte, 1) };
                    counts[usize::from(*byte)] += usize::from(run.1 == 32);
                }
            }
            at += len as u64;
        }
        for byte in [PUBLIC_WRAP, HIDDEN_WRAP, PUBLIC_MASTER, HIDDEN_MASTER] {
            if counts[usize::from(byte)] > 0 {
                found.push((byte, line.to_owned(), counts[usize::from(byte)]));
            }
        }
    }
    found
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

#[test]
fn keys_lie_in_one_place_and_are_gone_at_the_end() {
    let shape = Geometry { block_len_bytes: 4096, blocks: 2000 };
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(shape));
    {
        let (public, hidden) = (key(PUBLIC_WRAP), key(HIDDEN_WRAP));
        let entropy = Entropy {
            // Two salts come before the public master.
            public: source(3, PUBLIC_MASTER, 0),
            hidden: source(1, HIDDEN_MASTER, 1),
        };
        let unlocks = [Unlock::Wrap(&hidden)];
        let parameters = Parameters::default();
        init(&device, &parameters, Unlock::Wrap(&public), &unlocks, entropy).unwrap();
    }
    let session = use_it(&device);
    let open = found();
    for byte in [HIDDEN_WRAP, PUBLIC_MASTER, HIDDEN_MASTER] {
        assert!(
            open.iter().any(|(found, ..)| *found == byte),
            "{byte:x}: the search finds nothing"
        );
    }
    let mut mappings: Vec<&String> = open.iter().map(|(_, mapping, _)| mapping).collect();
    mappings.dedup();
    assert_eq!(mappings.len(), 1, "{open:#x?}");
    session.close().unwrap();
    drop(session);
    assert_eq!(found(), []);
}
