//! Devices that fail: at any write, flush or read of a commit, while recovering, while formatting.

use std::sync::Arc;

use tacita_block::{Fault, FaultDevice, Kind as DeviceKind};
use tacita_hifs::geometry::{Layout, Parameters};
use tacita_hifs::{Hifs, Kind, Recovery, RootOwner, format};
use tacita_testkit::by_name;
use tacita_testkit::env_number;
use tacita_testkit::history::{Limits, Rng, Tree, clear, step, tree};
use tacita_vfs::{Exchange, FileSystem, FileType, NewNode, Stamps};

use crate::fills;
use crate::images::{
    LAYOUTS, assert_same, fault_device, fresh, memory_device, open, options, parameters,
};

const LIMITS: Limits = Limits { names: 8, size_max: 50_000, write_max: 20_000 };

/// A committed state, changes that wait, and what the image is before and after their commit.
struct Story {
    parameters: Parameters,
    seed: u64,
    before: Vec<u8>,
    after: Vec<u8>,
    tree_before: Tree,
    tree_after: Tree,
    writes: u64,
    flushes: u64,
}

impl Story {
    fn new(layout: Layout, seed: u64) -> Option<Self> {
        let parameters = Parameters { len_bytes: 1 << 20, groups: Some(2), ..parameters(layout) };
        let device = fresh(&parameters);
        let hifs = open(device.clone());
        let mut rng = Rng::new(seed);
        for _ in 0..60 {
            step(&hifs, &mut rng, &LIMITS);
        }
        if seed.is_multiple_of(3) {
            // A folder of many buckets, for a rename that moves them all.
            clear(&hifs, &mut rng);
            let (dir, _) = hifs.create(hifs.root(), "d".as_ref(), &folder()).unwrap();
            let new = NewNode { kind: FileType::File, ..folder() };
            for n in 0..6 {
                let (file, _) = hifs.create(dir, format!("{n}").as_ref(), &new).unwrap();
                hifs.write(file, 0, &rng.bytes(45_000), Stamps::NONE).unwrap();
            }
        }
        if seed % 3 == 1 {
            clear(&hifs, &mut rng);
            fills::crowd(&hifs, &mut rng, 100);
        }
        hifs.sync().unwrap();
        let mut story = Self {
            parameters,
            seed,
            before: device.snapshot(),
            after: Vec::new(),
            tree_before: tree(&hifs),
            tree_after: Tree::new(),
            writes: 0,
            flushes: 0,
        };
        drop(hifs);
        let (device, hifs) = story.pending();
        if device.writes() > 0 {
            return None;
        }
        story.tree_after = tree(&hifs);
        hifs.sync().unwrap();
        story.after = device.content();
        (story.writes, story.flushes) = (device.writes(), device.flushes());
        (story.before != story.after).then_some(story)
    }

    /// The committed image on a device that can fail, and the changes waiting.
    fn pending(&self) -> (Arc<FaultDevice>, Hifs) {
        let device = fault_device(self.before.clone());
        let hifs = Hifs::open(device.clone(), options(1)).unwrap();
        device.restart_recording();
        self.change(&hifs);
        (device, hifs)
    }

    fn change(&self, hifs: &Hifs) {
        if self.seed.is_multiple_of(3) {
            let (root, now) = (hifs.root(), tacita_vfs::Timestamp::default());
            by_name::rename(hifs, (root, "d".as_ref()), (root, "e".as_ref()), Exchange::No, now)
                .unwrap();
            return;
        }
        let mut rng = Rng::new(self.seed + 1000);
        if self.seed % 3 == 1 {
            // New content, for which much must give way.
            for n in 0..3 {
                fills::write(hifs, &format!("new {n}"), &rng.bytes(30_000));
            }
            return;
        }
        for _ in 0..6 {
            step(hifs, &mut rng, &LIMITS);
        }
    }

    /// After a failed commit: nothing is half done, in memory or on the medium.
    fn examine(&self, device: &Arc<FaultDevice>, hifs: Hifs, what: &str) {
        let what = &format!("{:?}, seed {}: {what}", self.parameters.layout, self.seed);
        // A crash now, with any of the unflushed writes lost.
        for seed in 0..4 {
            self.settles(&device.crash_image(seed), &format!("{what}, crash {seed}"));
        }
        self.settles(&device.content(), what);
        device.clear_faults();
        if hifs.attr(hifs.root()).is_ok() {
            assert!(tree(&hifs) == self.tree_after, "{what}: pending changes are lost");
            hifs.sync().unwrap_or_else(|e| panic!("{what}: a second commit fails: {e}"));
            assert_same(&self.after, &device.content(), what);
            for seed in 0..4 {
                self.is_after(&device.crash_image(seed), &format!("{what}, committed, {seed}"));
            }
            assert!(hifs.check(&mut |_, _| {}).unwrap().is_canonical(), "{what}");
        } else {
            Self::is_dead(&hifs, what);
            drop(hifs);
            // The failed device works again: what a flush has lost must be written anew.
            let hifs = Hifs::open(device.clone(), options(2)).unwrap();
            assert!(tree(&hifs) == self.tree_after, "{what}: a durable commit is lost");
            assert_same(&self.after, &device.content(), what);
            for seed in 0..4 {
                self.is_after(&device.crash_image(seed), &format!("{what}, reopened, {seed}"));
            }
        }
    }

    fn settles(&self, image: &[u8], what: &str) {
        let device = memory_device(image);
        let hifs = Hifs::open(device.clone(), options(2))
            .unwrap_or_else(|e| panic!("{what}: does not open: {e}"));
        let result = device.snapshot();
        if result == self.before {
            assert!(tree(&hifs) == self.tree_before, "{what}");
        } else {
            assert_same(&self.after, &result, what);
            assert!(tree(&hifs) == self.tree_after, "{what}");
        }
    }

    fn is_after(&self, image: &[u8], what: &str) {
        let device = memory_device(image);
        Hifs::open(device.clone(), options(2)).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_same(&self.after, &device.snapshot(), what);
    }

    fn is_dead(hifs: &Hifs, what: &str) {
        use tacita_vfs::Kind::Io;
        let root = hifs.root();
        assert_eq!(hifs.attr(root).unwrap_err().kind(), Io, "{what}");
        assert_eq!(hifs.sync().unwrap_err().kind(), Io, "{what}");
        assert_eq!(hifs.sync_node(root).unwrap_err().kind(), Io, "{what}");
        assert_eq!(hifs.lookup(root, "x".as_ref()).unwrap_err().kind(), Io, "{what}");
        let now = tacita_vfs::Timestamp::default();
        assert_eq!(
            by_name::remove(hifs, root, "x".as_ref(), now).unwrap_err().kind(),
            Io,
            "{what}"
        );
        assert_eq!(hifs.commit().unwrap_err().kind(), Kind::Poisoned, "{what}");
    }
}

fn folder() -> NewNode {
    let now = tacita_vfs::Timestamp::default();
    let kind = FileType::Directory;
    NewNode { kind, perm: 0o755, uid: 1, gid: 1, rdev: 0, target: "".into(), now }
}

fn stories() -> impl Iterator<Item = Story> {
    let more = env_number("TACITA_GAMES", 3);
    LAYOUTS.into_iter().flat_map(move |layout| (0..more).filter_map(move |s| Story::new(layout, s)))
}

#[test]
fn every_write_fails() {
    let mut looked_at = 0;
    for story in stories() {
        for write in 0..story.writes {
            for kind in [DeviceKind::Io, DeviceKind::NoSpace] {
                for fault in
                    [Fault::FailWrite { write, kind }, Fault::FailWritesFrom { write, kind }]
                {
                    let (device, hifs) = story.pending();
                    device.inject(fault.clone());
                    let error = hifs.sync().expect_err("a failed write is told");
                    assert_eq!(error.kind(), tacita_vfs::Kind::Io);
                    story.examine(&device, hifs, &format!("{fault:?} of {}", story.writes));
                    looked_at += 1;
                }
            }
        }
    }
    assert!(looked_at > 100, "{looked_at}");
}

#[test]
fn every_flush_fails() {
    for story in stories() {
        for flush in 0..story.flushes {
            let (device, hifs) = story.pending();
            device.inject(Fault::FailFlush(flush));
            hifs.sync().expect_err("a failed flush is told");
            story.examine(&device, hifs, &format!("flush {flush} of {}", story.flushes));
        }
    }
}

/// The stories that rename move buckets from cell to cell, layer by layer; those that bring new
/// content clear cells for it; the others copy.
#[test]
fn some_stories_move_buckets() {
    let records = |story: &Story| {
        let (device, hifs) = story.pending();
        hifs.sync().unwrap();
        [1, 6].map(|kind| fills::records(&device, kind))
    };
    let counts: Vec<[usize; 2]> = stories().map(|story| records(&story)).collect();
    for kind in [0, 1] {
        assert!(counts.iter().filter(|counts| counts[kind] > 8).count() >= 2, "{counts:?}");
    }
}

/// With `durable`, the end of a commit waits for the next one; its failure must not be taken for
/// success later.
#[test]
fn a_delayed_end_fails() {
    for story in stories() {
        for flush in 0..3 {
            let device = fault_device(story.before.clone());
            let durable =
                tacita_hifs::OpenOptions { sync: tacita_hifs::Sync::Durable, ..options(1) };
            let hifs = Hifs::open(device.clone(), durable).unwrap();
            device.restart_recording();
            story.change(&hifs);
            hifs.sync_node(hifs.root()).unwrap();
            for seed in 0..4 {
                story.is_after(&device.crash_image(seed), "after fsync");
            }
            device.inject(Fault::FailFlush(device.flushes() + flush));
            let first = hifs.sync();
            let second = hifs.sync();
            for seed in 0..4 {
                let what = format!("flush {flush}: {first:?}, {second:?}, crash {seed}");
                story.is_after(&device.crash_image(seed), &what);
            }
        }
    }
}

#[test]
fn every_read_fails() {
    let mut failed = 0;
    for story in stories() {
        for block in 0..(story.before.len() as u64 / 4096) {
            let (device, hifs) = story.pending();
            device.inject(Fault::FailReads(block * 4096..(block + 1) * 4096));
            match hifs.sync() {
                Ok(()) => {
                    assert_same(&story.after, &device.content(), "a commit that needed nothing");
                }
                Err(error) => {
                    assert_eq!(error.kind(), tacita_vfs::Kind::Io);
                    failed += 1;
                    story.examine(&device, hifs, &format!("reads of block {block}"));
                }
            }
        }
    }
    assert!(failed > 0, "no commit needs anything");
}

/// A crash image whose journal is whole, on a device that fails while recovering.
#[test]
fn recovery_fails() {
    for story in stories().filter(|story| story.seed < 2) {
        let (device, hifs) = story.pending();
        hifs.sync().unwrap();
        let recording = device.recording();
        let cuts = recording.events().len();
        for cut in (0..=cuts).step_by(1 + cuts / 6) {
            let image = recording.crash_image(cut, 3);
            let (writes, flushes) = {
                let device = fault_device(image.clone());
                let hifs = Hifs::open(device.clone(), options(2)).unwrap();
                if hifs.recovery() == Recovery::Clean {
                    continue;
                }
                (device.writes(), device.flushes())
            };
            let want = {
                let device = memory_device(&image);
                drop(open(device.clone()));
                device.snapshot()
            };
            let kind = DeviceKind::Io;
            let faults = (0..writes)
                .step_by(1 + usize::try_from(writes / 6).unwrap())
                .map(|write| Fault::FailWrite { write, kind })
                .chain((0..flushes).map(Fault::FailFlush));
            for fault in faults {
                let what = format!("cut {cut}, {fault:?} while recovering");
                let device = fault_device(image.clone());
                // Zeros of the journal that a failed flush has lost are lost for ever, unseen; the
                // next recovery finds what they were to erase.
                let lost = matches!(fault, Fault::FailFlush(_));
                device.inject(fault);
                let error = Hifs::open(device.clone(), options(2)).expect_err(&what);
                assert_eq!(error.kind(), Kind::Device, "{what}: {error}");
                device.clear_faults();
                for seed in 0..3 {
                    let again = memory_device(&device.crash_image(seed));
                    drop(open(again.clone()));
                    assert_same(&want, &again.snapshot(), &what);
                }
                drop(Hifs::open(device.clone(), options(2)).unwrap());
                assert_same(&want, &device.content(), &what);
                for seed in 0..3 {
                    let again = memory_device(&device.crash_image(seed));
                    assert!(lost || again.snapshot() == want, "{what}: not durable");
                    drop(open(again.clone()));
                    assert_same(&want, &again.snapshot(), &what);
                }
            }
        }
    }
}

/// A format that fails leaves no image that could be taken for the one asked for; at first the old
/// one is still whole.
#[test]
fn format_fails() {
    let story = (0..).find_map(|seed| Story::new(Layout::D, seed)).unwrap();
    let parameters = Parameters { seed: [7; 32], ..story.parameters };
    let new = fresh(&parameters).snapshot();
    let format_on = |device: &Arc<FaultDevice>| {
        format(device.clone(), &parameters, RootOwner::default(), &mut |_, _| {})
    };
    let device = fault_device(story.before.clone());
    format_on(&device).unwrap();
    assert_same(&new, &device.content(), "formatted over an old image");
    let (writes, flushes) = (device.writes(), device.flushes());
    let kind = DeviceKind::Io;
    let faults = (0..writes)
        .flat_map(|write| [Fault::FailWrite { write, kind }, Fault::FailWritesFrom { write, kind }])
        .chain((0..flushes).map(Fault::FailFlush));
    for fault in faults {
        let device = fault_device(story.before.clone());
        device.inject(fault.clone());
        let error = format_on(&device).expect_err("a failure is told");
        assert_eq!(error.kind(), Kind::Device, "{fault:?}: {error}");
        for seed in 0..4 {
            match Hifs::open(memory_device(&device.crash_image(seed)), options(2)) {
                Err(error) => assert!(
                    matches!(error.kind(), Kind::NotAnImage | Kind::Damaged),
                    "{fault:?}: {error}"
                ),
                Ok(hifs) => {
                    let seen = tree(&hifs);
                    assert!(seen == story.tree_before || seen.len() == 1, "{fault:?}");
                }
            }
        }
        device.clear_faults();
        format_on(&device).unwrap();
        assert_same(&new, &device.content(), "formatted again");
    }
    // A device that is too small is left as it is.
    let small = fault_device(story.before[..story.before.len() - 4096].to_vec());
    assert_eq!(format_on(&small).unwrap_err().kind(), Kind::Geometry);
    assert_eq!(small.writes(), 0);
}
