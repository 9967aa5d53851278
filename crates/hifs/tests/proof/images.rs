//! Images in memory for the games.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::Arc;

use tacita_block::{BlockDevice, FaultDevice, Geometry, MemoryDevice};
use tacita_hifs::geometry::{Ids, Layout, Parameters, Times};
use tacita_hifs::{Hifs, OpenOptions, RootOwner, format};
use tacita_testkit::history::{Rng, Tree};
use tacita_vfs::{Change, FileSystem, FileType, NewNode, NodeId, Stamps, Timestamp, XattrMode};

/// The time of everything that a game makes.
pub(crate) const NOW: Timestamp = Timestamp { secs: 9, nanos: 9 };

/// Something new without a target.
pub(crate) fn new(kind: FileType) -> NewNode {
    NewNode { kind, perm: 0o644, uid: 5, gid: 6, rdev: 0, target: "".into(), now: NOW }
}

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
    let mut rng = Rng::new(seed);
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

/// Builds a tree without detours, for which a full image has no room, in a shuffled order.
pub(crate) fn plainly(hifs: &Hifs, durability: &Tree, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut paths: Vec<&Vec<u8>> = durability.keys().filter(|path| !path.is_empty()).collect();
    rng.shuffle(&mut paths);
    paths.sort_by_key(|path| path.split(|b| *b == b'/').count());
    let mut made_already: BTreeMap<Vec<u8>, NodeId> = BTreeMap::new();
    for path in paths {
        let wanted = &durability[path];
        let mut dir = hifs.root();
        let mut parts: Vec<&[u8]> = path.split(|b| *b == b'/').skip(1).collect();
        let name: &OsStr = std::os::unix::ffi::OsStrExt::from_bytes(parts.pop().unwrap());
        for part in parts {
            let part: &OsStr = std::os::unix::ffi::OsStrExt::from_bytes(part);
            dir = hifs.lookup(dir, part).unwrap().0;
        }
        let target: &OsStr = std::os::unix::ffi::OsStrExt::from_bytes(&wanted.content[..]);
        let target = if wanted.kind == FileType::Symlink { target.into() } else { "".into() };
        let made = NewNode {
            kind: wanted.kind,
            perm: wanted.perm,
            uid: wanted.owner.0,
            gid: wanted.owner.1,
            rdev: wanted.rdev,
            target,
            now: NOW,
        };
        if let Some(twin) = made_already.get(&wanted.same_as) {
            hifs.link(*twin, dir, name, NOW).unwrap();
            continue;
        }
        let (node, _) = hifs.create(dir, name, &made).unwrap();
        made_already.insert(wanted.same_as.clone(), node);
        if wanted.kind == FileType::File {
            // Zeros take no room, so they are not written.
            for (n, piece) in (0..).zip(wanted.content.chunks(4096)) {
                if piece.iter().any(|b| *b != 0) {
                    hifs.write(node, n * 4096, piece, Stamps::NONE).unwrap();
                }
            }
            let size = Some(wanted.content.len() as u64);
            hifs.change(node, &Change { size, ..Change::default() }).unwrap();
        }
        for (name, value) in &wanted.xattrs {
            hifs.set_xattr(node, name, value, XattrMode::Any).unwrap();
        }
        if rng.below(20) == 0 {
            hifs.sync().unwrap();
        }
    }
}
