//! What every block device must do, as one check for their tests.

use crate::{Allocation, BlockDevice, BlockNo, BlockRange, ByteDevice, Geometry, Kind};

/// Steps of the random walk: enough to meet every pair of operations on the small device.
const WALK_STEPS: u32 = 400;

/// Checks the devices that `make` gives for several geometries.
///
/// The content of a new device does not matter, nor does what discarded blocks read as.
///
/// # Panics
/// If a device breaks the contract of [`BlockDevice`]; the message says where.
pub fn check(make: impl Fn(Geometry) -> Box<dyn BlockDevice>) {
    for (block_len_bytes, blocks) in [(512, 64), (512, 300), (4096, 33), (65_536, 5)] {
        let geometry = Geometry { block_len_bytes, blocks };
        let device = make(geometry);
        assert_eq!(device.geometry(), geometry, "geometry");
        check_ends(&*device);
        check_refusals(&*device);
        check_walk(&*device);
        check_threads(&*device);
        check_bytes(&*device);
        check_neighbours(&*device);
    }
}

fn check_ends(device: &dyn BlockDevice) {
    let geometry = device.geometry();
    let whole = bytes(1, len(geometry.blocks, geometry));
    device.write(BlockNo(0), &whole).expect("write the whole device");
    device.flush().expect("flush");
    assert!(content(device) == whole, "the whole device reads back");
    let last = bytes(2, len(1, geometry));
    device.write(BlockNo(geometry.blocks - 1), &last).expect("write the last block");
    let mut expected = whole;
    let start = expected.len() - last.len();
    expected[start..].copy_from_slice(&last);
    assert!(content(device) == expected, "only the last block changed");
    device.read(BlockNo(0), &mut []).expect("read nothing");
    device.write(BlockNo(0), &[]).expect("write nothing");
}

fn check_refusals(device: &dyn BlockDevice) {
    let geometry = device.geometry();
    let before = content(device);
    let block = len(1, geometry);
    let mut cases = vec![
        (geometry.blocks, block),
        (geometry.blocks - 1, 2 * block),
        (u64::MAX, block),
        (u64::MAX / u64::from(geometry.block_len_bytes), block),
        (0, block - 1),
        (0, 1),
    ];
    cases.push((0, before.len() + block));
    for (at, len_bytes) in cases {
        let mut buf = bytes(3, len_bytes);
        let write = device.write(BlockNo(at), &buf).map_err(|e| e.kind());
        assert_eq!(write, Err(Kind::OutOfRange), "write {len_bytes} at {at}");
        let parts: Vec<&[u8]> = buf.chunks(block).collect();
        let gathered = device.write_gathered(BlockNo(at), &parts).map_err(|e| e.kind());
        assert_eq!(gathered, Err(Kind::OutOfRange), "write {len_bytes} at {at} from parts");
        let read = device.read(BlockNo(at), &mut buf).map_err(|e| e.kind());
        assert_eq!(read, Err(Kind::OutOfRange), "read {len_bytes} at {at}");
    }
    for (at, count) in [(geometry.blocks, 1), (1, geometry.blocks), (1, u64::MAX)] {
        let start = BlockNo(at);
        let discard = device.discard(BlockRange { start, count });
        let kind = discard.map_err(|e| e.kind());
        assert_eq!(kind, Err(Kind::OutOfRange), "discard {count} at {at}");
        let zeroes = device.write_zeroes(BlockRange { start, count });
        let kind = zeroes.map_err(|e| e.kind());
        assert_eq!(kind, Err(Kind::OutOfRange), "write {count} zeroes at {at}");
        let extent = device.extent(BlockRange { start, count });
        let kind = extent.map_err(|e| e.kind());
        assert_eq!(kind, Err(Kind::OutOfRange), "extent of {count} at {at}");
    }
    assert!(content(device) == before, "what is refused changes nothing");
}

/// Random operations beside a plain array.
fn check_walk(device: &dyn BlockDevice) {
    let geometry = device.geometry();
    let mut model = content(device);
    let mut random = Random(u64::from(geometry.block_len_bytes) ^ geometry.blocks);
    for step in 0..WALK_STEPS {
        let start = random.below(geometry.blocks);
        let count = 1 + random.below((geometry.blocks - start).min(8));
        let (from, size) = (len(start, geometry), len(count, geometry));
        let part = from..from + size;
        let range = BlockRange { start: BlockNo(start), count };
        match random.below(10) {
            0 => device.flush().expect("flush"),
            1 => {
                device.discard(range).expect("discard");
                // Whatever they read as now is their content from now on.
                device.read(range.start, &mut model[part]).expect("read");
            }
            2 => {
                device.write_zeroes(range).expect("write zeroes");
                model[part].fill(0);
            }
            3 => {
                let extent = device.extent(range).expect("extent");
                assert!((1..=count).contains(&extent.count), "step {step}: {extent:?}");
                let held = &model[part][..len(extent.count, geometry)];
                let is_zero = held.iter().all(|b| *b == 0);
                assert!(
                    is_zero || extent.allocation == Allocation::Data,
                    "step {step}: {extent:?}"
                );
            }
            4..7 => {
                let data = bytes(u64::from(step), size);
                if step % 2 == 0 {
                    device.write(BlockNo(start), &data).expect("write");
                } else {
                    let parts: Vec<&[u8]> = data.chunks(len(1, geometry)).collect();
                    device.write_gathered(BlockNo(start), &parts).expect("write from parts");
                }
                model[part].copy_from_slice(&data);
            }
            _ => {
                let mut buf = vec![0; size];
                device.read(BlockNo(start), &mut buf).expect("read");
                assert!(buf == model[part], "step {step}: {count} blocks at {start}");
            }
        }
    }
    assert!(content(device) == model, "the device after a random walk");
}

/// Two threads on blocks of their own do not disturb each other.
fn check_threads(device: &dyn BlockDevice) {
    let geometry = device.geometry();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || {
                for round in 0..20 {
                    for block in (thread..geometry.blocks).step_by(2).take(16) {
                        let data = bytes(block * 1000 + round, len(1, geometry));
                        device.write(BlockNo(block), &data).expect("write");
                        let mut buf = vec![0; data.len()];
                        device.read(BlockNo(block), &mut buf).expect("read");
                        assert!(buf == data, "block {block} of thread {thread}");
                    }
                }
            });
        }
    });
}

/// Random bytes beside a plain array, with no regard to blocks.
fn check_bytes(device: &dyn BlockDevice) {
    let bytes_of = ByteDevice::new(device);
    let mut model = content(device);
    let mut random = Random(bytes_of.len_bytes());
    let block = u64::from(device.geometry().block_len_bytes);
    for step in 0..WALK_STEPS / 4 {
        let offset = random.below(bytes_of.len_bytes());
        let len_bytes = random.below((bytes_of.len_bytes() - offset).min(3 * block) + 1);
        let size = usize::try_from(len_bytes).expect("a small device");
        let from = usize::try_from(offset).expect("a small device");
        let part = from..from + size;
        match random.below(4) {
            0 => {
                bytes_of.write_zeroes(offset, len_bytes).expect("write zeroes");
                model[part].fill(0);
            }
            1 => {
                let mut buf = vec![0; size];
                bytes_of.read(offset, &mut buf).expect("read");
                assert!(buf == model[part], "step {step}: {len_bytes} bytes at {offset}");
            }
            _ => {
                let data = bytes(u64::from(step), size);
                bytes_of.write(offset, &data).expect("write");
                model[part].copy_from_slice(&data);
            }
        }
    }
    assert!(content(device) == model, "the device after a random walk by bytes");
}

/// Threads that write parts of the same blocks lose nothing.
fn check_neighbours(device: &dyn BlockDevice) {
    const THREADS: u64 = 3;
    let bytes_of = ByteDevice::new(device);
    let step = u64::from(device.geometry().block_len_bytes) / 4 + 1;
    let places = (bytes_of.len_bytes() / step).min(24);
    let data_of = |place: u64| bytes(place, usize::try_from(step).expect("a small device"));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (bytes_of, data_of) = (&bytes_of, &data_of);
            scope.spawn(move || {
                for place in (0..places).filter(|place| place % THREADS == thread) {
                    bytes_of.write(place * step, &data_of(place)).expect("write");
                }
            });
        }
    });
    let written = content(device);
    let expected: Vec<u8> = (0..places).flat_map(data_of).collect();
    assert!(written[..expected.len()] == expected, "parts of blocks by several threads");
}

fn content(device: &dyn BlockDevice) -> Vec<u8> {
    let geometry = device.geometry();
    let mut buf = vec![0; len(geometry.blocks, geometry)];
    device.read(BlockNo(0), &mut buf).expect("read the whole device");
    buf
}

fn len(blocks: u64, geometry: Geometry) -> usize {
    usize::try_from(blocks * u64::from(geometry.block_len_bytes)).expect("a small device")
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random(seed);
    (0..len).map(|_| random.next().to_le_bytes()[0]).collect()
}

/// `SplitMix64`: the same walk in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        crate::fault::mix(self.0)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
