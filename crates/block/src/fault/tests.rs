use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::conformance;

const BLOCK: usize = 1024;
const BLOCKS: usize = 6;
const SECTORS: usize = BLOCK / SECTOR_LEN_BYTES * BLOCKS;

fn device() -> FaultDevice {
    FaultDevice::new(Geometry::within((BLOCKS * BLOCK) as u64, 1024).unwrap())
}

fn kind(result: Result<()>) -> Kind {
    result.unwrap_err().kind()
}

#[test]
fn conforms() {
    conformance::check(|geometry| Box::new(FaultDevice::new(geometry)));
}

#[test]
fn nothing_works_after_a_cut() {
    let device = device();
    device.inject(Fault::CutAtWrite(1));
    device.write(BlockNo(0), &[1; BLOCK]).unwrap();
    assert_eq!(kind(device.write(BlockNo(1), &[2; BLOCK])), Kind::PowerCut);
    assert!(device.is_cut());
    assert_eq!(kind(device.write(BlockNo(0), &[3; BLOCK])), Kind::PowerCut);
    assert_eq!(kind(device.read(BlockNo(0), &mut [0; BLOCK])), Kind::PowerCut);
    assert_eq!(kind(device.flush()), Kind::PowerCut);
    let range = BlockRange { start: BlockNo(0), count: 1 };
    assert_eq!(kind(device.discard(range)), Kind::PowerCut);
    assert_eq!(device.recording().events().len(), 2);
}

#[test]
fn a_write_under_the_cut_tears_between_sectors() {
    let device = device();
    device.inject(Fault::CutAtWrite(0));
    device.write(BlockNo(0), &[1; BLOCK]).unwrap_err();
    let firsts: BTreeSet<(u8, u8)> = (0..64)
        .map(|seed| device.crash_image(seed))
        .inspect(|image| {
            for sector in image.chunks(SECTOR_LEN_BYTES) {
                assert!(sector.iter().all(|b| b == &sector[0]), "a sector is whole");
            }
        })
        .map(|image| (image[0], image[SECTOR_LEN_BYTES]))
        .collect();
    assert_eq!(firsts, BTreeSet::from([(0, 0), (0, 1), (1, 0), (1, 1)]));
}

#[test]
fn a_cut_in_a_flush_makes_nothing_durable() {
    let device = device();
    device.inject(Fault::CutAtFlush(1));
    device.write(BlockNo(0), &[1; BLOCK]).unwrap();
    device.flush().unwrap();
    device.write(BlockNo(1), &[2; BLOCK]).unwrap();
    assert_eq!(kind(device.flush()), Kind::PowerCut);
    let image = device.crash_image(0);
    assert_eq!((image[0], image[BLOCK]), (1, 0));
}

#[test]
fn writes_fail_by_number_and_change_nothing() {
    let device = device();
    let no_space = Kind::NoSpace;
    device.inject(Fault::FailWrite { write: 1, kind: Kind::Io });
    device.inject(Fault::FailWritesFrom { write: 3, kind: no_space });
    device.write(BlockNo(0), &[1; BLOCK]).unwrap();
    assert_eq!(kind(device.write(BlockNo(0), &[2; BLOCK])), Kind::Io);
    device.write(BlockNo(1), &[3; BLOCK]).unwrap();
    assert_eq!(kind(device.write(BlockNo(1), &[4; BLOCK])), no_space);
    assert_eq!(kind(device.write(BlockNo(1), &[4; BLOCK])), no_space);
    let content = device.content();
    assert_eq!((content[0], content[BLOCK]), (1, 3));
    device.clear_faults();
    device.write(BlockNo(1), &[5; BLOCK]).unwrap();
    assert_eq!((device.writes(), device.flushes()), (6, 0));
}

#[test]
fn reads_fail_where_they_touch_the_range() {
    let device = device();
    device.inject(Fault::FailReads(1500..1501));
    device.read(BlockNo(0), &mut [0; BLOCK]).unwrap();
    device.read(BlockNo(2), &mut [0; BLOCK]).unwrap();
    assert_eq!(kind(device.read(BlockNo(1), &mut [0; BLOCK])), Kind::Io);
    assert_eq!(kind(device.read(BlockNo(0), &mut [0; 3 * BLOCK])), Kind::Io);
}

#[test]
fn a_failed_flush_loses_writes_for_good() {
    let device = device();
    device.inject(Fault::FailFlush(0));
    device.write(BlockNo(0), &[1; BLOCK]).unwrap();
    assert_eq!(kind(device.flush()), Kind::Io);
    device.write(BlockNo(1), &[2; BLOCK]).unwrap();
    device.flush().unwrap();
    let image = device.crash_image(0);
    assert_eq!((image[0], image[BLOCK]), (0, 2));
    assert_eq!(device.content()[0], 1, "the cache still has it");
}

#[test]
fn a_skipped_flush_leaves_writes_in_flight() {
    let device = device();
    device.inject(Fault::SkipFlush(0));
    device.write(BlockNo(0), &[1; BLOCK]).unwrap();
    device.flush().unwrap();
    let recording = device.recording();
    let end = recording.events().len();
    assert_eq!(recording.in_flight(end).len(), 2);
    assert_eq!(device.crash_image(0)[0], 0);
    device.flush().unwrap();
    assert_eq!(device.crash_image(0)[0], 1);
}

#[test]
fn a_new_recording_starts_from_the_content() {
    let device = device();
    device.write(BlockNo(0), &[1; BLOCK]).unwrap();
    device.restart_recording();
    assert_eq!(device.crash_image(0)[0], 1);
    assert_eq!(device.writes(), 0);
}

#[test]
fn prefixes_grow_write_by_write() {
    let device = device();
    device.write(BlockNo(0), &[1; BLOCK]).unwrap();
    device.flush().unwrap();
    device.write(BlockNo(0), &[2; BLOCK]).unwrap();
    let recording = device.recording();
    let firsts: Vec<u8> = recording.prefix_images().map(|(_, i)| i[0]).collect();
    assert_eq!(firsts, [0, 1, 1, 2]);
    assert_eq!(recording.cut_at_write(1), Some(3));
    assert_eq!(recording.cut_at_write(2), None);
}

#[derive(Debug, Clone)]
enum Op {
    Write(usize, usize, u8),
    Discard(usize),
    Flush,
    FailedFlush,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..BLOCKS, 1..3usize, 1..200u8)
            .prop_map(|(at, n, fill)| Op::Write(at, n.min(BLOCKS - at), fill)),
        1 => (0..BLOCKS).prop_map(Op::Discard),
        2 => Just(Op::Flush),
        1 => Just(Op::FailedFlush),
    ]
}

/// For every sector the values that it may hold after a power cut; the last is what it reads as.
struct Naive {
    allowed: Vec<Vec<u8>>,
    kept: Vec<usize>,
}

impl Naive {
    fn new() -> Self {
        Self { allowed: vec![vec![0]; SECTORS], kept: vec![0; SECTORS] }
    }

    fn step(&mut self, op: &Op) {
        let per_block = BLOCK / SECTOR_LEN_BYTES;
        match *op {
            Op::Write(at, count, fill) => {
                let first = at * per_block;
                for sector in first..first + count * per_block {
                    self.allowed[sector].push(fill);
                }
            }
            Op::Discard(at) => {
                let first = at * per_block;
                for sector in first..first + per_block {
                    self.allowed[sector].push(recording::DISCARDED);
                }
            }
            // Writes since the last flush, failed or not, are certain; older doubts stay unless
            // they were overwritten.
            Op::Flush => {
                for (allowed, kept) in self.allowed.iter_mut().zip(&mut self.kept) {
                    if allowed.len() > *kept + 1 {
                        allowed.drain(..allowed.len() - 1);
                    }
                    *kept = allowed.len() - 1;
                }
            }
            Op::FailedFlush => {
                for (allowed, kept) in self.allowed.iter().zip(&mut self.kept) {
                    *kept = allowed.len() - 1;
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn crash_images_are_those_of_the_naive_model(
        ops in prop::collection::vec(op(), 0..24),
        seeds in prop::collection::vec(any::<u64>(), 6),
    ) {
        let device = device();
        let mut naive = Naive::new();
        let mut flushes = 0;
        for op in &ops {
            match *op {
                Op::Write(at, count, fill) => {
                    device.write(BlockNo(at as u64), &vec![fill; count * BLOCK]).unwrap();
                }
                Op::Discard(at) => {
                    device.discard(BlockRange { start: BlockNo(at as u64), count: 1 }).unwrap();
                }
                Op::Flush => device.flush().unwrap(),
                Op::FailedFlush => {
                    device.inject(Fault::FailFlush(flushes));
                    device.flush().unwrap_err();
                }
            }
            flushes += u64::from(matches!(op, Op::Flush | Op::FailedFlush));
            naive.step(op);
        }
        let sectors = |image: Vec<u8>| -> Vec<u8> {
            image.chunks(SECTOR_LEN_BYTES).map(|s| s[0]).collect()
        };
        for (sector, value) in sectors(device.content()).into_iter().enumerate() {
            prop_assert_eq!(Some(&value), naive.allowed[sector].last());
        }
        let all = device.crash_image(1);
        prop_assert_eq!(all, device.content());
        for (sector, value) in sectors(device.crash_image(0)).into_iter().enumerate() {
            prop_assert_eq!(value, naive.allowed[sector][0]);
        }
        for seed in seeds {
            let image = device.crash_image(seed);
            prop_assert_eq!(&image, &device.crash_image(seed), "the same seed, the same image");
            for (sector, value) in sectors(image).into_iter().enumerate() {
                prop_assert!(naive.allowed[sector].contains(&value));
            }
        }
    }

    #[test]
    fn all_subsets_reach_every_allowed_value(ops in prop::collection::vec(op(), 0..7)) {
        let mut naive = Naive::new();
        let mut recording = Recording::new(vec![0; SECTORS * SECTOR_LEN_BYTES]);
        for op in &ops {
            naive.step(op);
            recording.push(match *op {
                Op::Write(at, count, fill) => Event::Write {
                    offset: (at * BLOCK) as u64,
                    data: vec![fill; count * BLOCK].into(),
                },
                Op::Discard(at) => Event::Discard {
                    offset: (at * BLOCK) as u64,
                    len_bytes: BLOCK as u64,
                },
                Op::Flush => Event::Flush,
                Op::FailedFlush => Event::FailedFlush,
            });
        }
        let cut = recording.events().len();
        let mut reached = vec![BTreeSet::new(); SECTORS];
        // One bit an event is enough: sectors are looked at one by one.
        for subset in 0..1u32 << cut {
            let image = recording.image_at(cut, |s| subset >> s.event & 1 == 1);
            for (sector, bytes) in image.chunks(SECTOR_LEN_BYTES).enumerate() {
                reached[sector].insert(bytes[0]);
            }
        }
        for (reached, allowed) in reached.iter().zip(&naive.allowed) {
            prop_assert_eq!(reached, &allowed.iter().copied().collect());
        }
    }
}
