//! Power cuts: at every write, with any subset of what was in flight, and inside recovery.

use std::ffi::OsStr;

use tacita_block::{Event, FaultDevice};
use tacita_hifs::geometry::{Layout, Parameters};
use tacita_hifs::{Hifs, Losses, Recovery};
use tacita_testkit::env_number;
use tacita_testkit::history::{Commits, Rng, build, clear, step, tree};

use tacita_vfs::{FileSystem, FileType, Stamps};

use crate::images::{
    LAYOUTS, assert_same, fault_device, fresh, memory_device, new, open, options, parameters,
};
use crate::permutation::LIMITS;

/// Recovers `image` and returns what it became.
fn recovered(image: &[u8]) -> (Vec<u8>, Recovery) {
    let device = memory_device(image);
    let hifs = Hifs::open(device.clone(), options(5)).unwrap();
    let found = hifs.recovery();
    hifs.sync().unwrap();
    drop(hifs);
    (device.snapshot(), found)
}

/// A history of a few commits, each cut everywhere. Returns how many crash images were looked at.
pub(crate) fn game(parameters: &Parameters, seed: u64, commits: u32, seeds_a_cut: u64) -> u32 {
    let mut rng = Rng::new(seed);
    let device = fault_device(fresh(parameters).snapshot());
    let hifs = Hifs::open(device.clone(), options(1)).unwrap();
    let mut looked_at = 0;
    for commit in 0..commits {
        let before = device.content();
        for _ in 0..=rng.below(12) {
            step(&hifs, &mut rng, &LIMITS);
        }
        if device.content() != before {
            // A commit for lack of room: only commits of their own are cut here.
            hifs.sync().unwrap();
        }
        let before = device.content();
        device.restart_recording();
        hifs.sync().unwrap();
        let after = device.content();
        looked_at += cut_everywhere(&device, &before, &after, (seed, commit), seeds_a_cut);
    }
    assert!(tree(&hifs) == tree(&open(memory_device(&device.content()))));
    looked_at
}

/// Cuts a recorded commit at every event. Returns how many crash images were looked at.
pub(crate) fn cut_everywhere(
    device: &FaultDevice,
    before: &[u8],
    after: &[u8],
    name: (u64, u32),
    seeds: u64,
) -> u32 {
    let recording = device.recording();
    let mut looked_at = 0;
    let mut durable = false;
    for cut in 0..=recording.events().len() {
        for seed in 0..=seeds {
            let image = match seed {
                0 => recording.prefix_image(cut),
                _ => recording.crash_image(cut, seed),
            };
            let (result, _) = recovered(&image);
            let what = format!("seed and commit {name:?}, cut {cut}, subset {seed}");
            if result == after && before != after {
                durable |= seed == 0;
            } else {
                assert_same(before, &result, &what);
                assert!(seed != 0 || !durable, "{what}: a durable commit was lost");
            }
            looked_at += 1;
            if seed == 1 && cut % 3 == 0 {
                cut_recovery(&image, &result, &what);
            }
        }
    }
    assert!(durable || before == after, "the commit never became durable");
    looked_at
}

/// A crash inside recovery: recovering again leads to the same image. What is taken out without a recovery is
/// what that leads to.
fn cut_recovery(image: &[u8], want: &[u8], what: &str) {
    let device = memory_device(image);
    let salvaged = Hifs::salvage(device.clone(), options(5)).unwrap();
    assert_eq!(*salvaged.losses(), Losses::default(), "{what}");
    assert!(tree(&salvaged) == tree(&open(memory_device(want))), "{what}");
    assert!(device.snapshot() == image, "{what}: written");
    let device = fault_device(image.to_vec());
    device.restart_recording();
    drop(Hifs::open(device.clone(), options(5)).unwrap());
    let recording = device.recording();
    let cuts = recording.events().len();
    for cut in (0..=cuts).step_by(1 + cuts / 5) {
        let (result, _) = recovered(&recording.crash_image(cut, cut as u64 + 17));
        assert_same(want, &result, &format!("{what}, recovery cut at {cut}"));
    }
}

#[test]
fn every_cut_leads_to_one_of_both_images() {
    let mut looked_at = 0;
    for layout in LAYOUTS {
        let parameters = Parameters { len_bytes: 1 << 20, groups: Some(2), ..parameters(layout) };
        for seed in 0..env_number("TACITA_GAMES", 3) {
            looked_at += game(&parameters, seed, 5, 3);
        }
    }
    assert!(looked_at > 1000, "{looked_at} crash images");
}

/// A commit that overwrites much content does not put it in the journal. Whatever a cut keeps, the
/// image is canonical, and every sector is of the old image or of the new one.
#[test]
fn large_overwrites_tear_into_content_alone() {
    // Large enough for one commit, small enough for that to be a large one.
    let parameters = Parameters { len_bytes: 16 << 20, ..parameters(Layout::D) };
    for seed in 0..3 {
        let mut rng = Rng::new(seed);
        let device = fault_device(fresh(&parameters).snapshot());
        let hifs = Hifs::open(device.clone(), options(1)).unwrap();
        let new = new(FileType::File);
        let (file, _) = hifs.create(hifs.root(), OsStr::new("f"), &new).unwrap();
        hifs.write(file, 0, &rng.bytes(200_000), Stamps::NONE).unwrap();
        hifs.sync().unwrap();
        let before = device.content();
        device.restart_recording();
        // Content and a name in one commit; for one seed also growth and a new hole, which move
        // buckets.
        hifs.write(file, 5_000, &rng.bytes(150_000), Stamps::NONE).unwrap();
        if seed == 2 {
            hifs.write(file, 200_000, &rng.bytes(9_000), Stamps::NONE).unwrap();
            hifs.write(file, 40_960, &[0; 8192], Stamps::NONE).unwrap();
        }
        hifs.create(hifs.root(), OsStr::new("g"), &new).unwrap();
        hifs.sync().unwrap();
        let after = device.content();
        let recording = device.recording();
        let loose = recording.events().iter().filter_map(|event| match event {
            Event::Write { offset, data } => Some((*offset > 4096 * 100, data.len())),
            _ => None,
        });
        let journal_len = loose.clone().find(|(in_place, _)| !in_place).map_or(0, |(_, len)| len);
        assert!(
            seed == 2 || journal_len < 80_000,
            "the content is not in the journal: {journal_len} bytes"
        );
        for cut in 0..=recording.events().len() {
            for subset in 0..4 {
                let (result, _) = recovered(&recording.crash_image(cut, subset));
                let device = memory_device(&result);
                let hifs = open(device);
                let report = hifs.check(&mut |_, _| {}).unwrap();
                assert!(report.is_canonical(), "cut {cut}, {subset}: {:?}", report.findings);
                let sectors = result.chunks(512).zip(before.chunks(512)).zip(after.chunks(512));
                let foreign = sectors.filter(|((r, b), a)| r != b && r != a).count();
                assert_eq!(foreign, 0, "cut {cut}, {subset}: sectors of neither image");
                let names = tree(&hifs).len();
                assert!(names == 2 || names == 3, "the tree is the old one or the new one");
            }
        }
        let (result, _) = recovered(&recording.prefix_image(recording.events().len()));
        assert_same(&after, &result, "nothing was cut");
    }
}

/// What is frozen to make room is brought into the image beside programs, which go on. A cut keeps
/// neither, or that alone, or what came after it as well.
#[test]
fn what_was_frozen_comes_before_what_came_after() {
    for layout in LAYOUTS {
        let parameters = Parameters { len_bytes: 2 << 20, groups: Some(2), ..parameters(layout) };
        let device = fault_device(fresh(&parameters).snapshot());
        let hifs = Hifs::open(device.clone(), options(1)).unwrap();
        let (mut rng, new) = (Rng::new(9), new(FileType::File));
        let (file, _) = hifs.create(hifs.root(), OsStr::new("old"), &new).unwrap();
        hifs.write(file, 0, &rng.bytes(20_000), Stamps::NONE).unwrap();
        hifs.sync().unwrap();
        let mut states = vec![tree(&hifs)];
        let left = hifs.left_to_do().unwrap();
        let seen = left.seen();
        device.restart_recording();
        let (grows, _) = hifs.create(hifs.root(), OsStr::new("grows"), &new).unwrap();
        let mut frozen = tree(&hifs);
        for piece in 0.. {
            hifs.write(grows, piece * 8192, &rng.bytes(8192), Stamps::NONE).unwrap();
            if left.seen() != seen {
                break;
            }
            frozen = tree(&hifs);
        }
        states.push(frozen);
        assert!(device.recording().events().is_empty(), "nobody has come to it");
        hifs.write(grows, 10, &rng.bytes(100), Stamps::NONE).unwrap();
        hifs.write(file, 10, &rng.bytes(100), Stamps::NONE).unwrap();
        hifs.create(hifs.root(), OsStr::new("new"), &new).unwrap();
        states.push(tree(&hifs));
        hifs.catch_up();
        assert!(tree(&hifs) == states[2], "{layout:?}");
        hifs.sync().unwrap();
        let recording = device.recording();
        let (mut shown, mut last) = (vec![0; states.len()], 0);
        for cut in 0..=recording.events().len() {
            for subset in 0..4 {
                let image = match subset {
                    0 => recording.prefix_image(cut),
                    _ => recording.crash_image(cut, subset),
                };
                let hifs = open(memory_device(&recovered(&image).0));
                let what = format!("{layout:?}, cut {cut}, subset {subset}");
                assert!(hifs.check(&mut |_, _| {}).unwrap().is_canonical(), "{what}");
                let state = states.iter().position(|state| *state == tree(&hifs)).expect(&what);
                shown[state] += 1;
                if subset == 0 {
                    assert!(state >= last, "{what}: what was durable is gone");
                    last = state;
                }
            }
        }
        assert!(last == 2 && shown.iter().all(|count| *count > 0), "{layout:?}: {shown:?}");
    }
}

/// Two histories with the same committed pair of states give the same set of crash images.
#[test]
fn crash_images_do_not_tell_histories_apart() {
    // Large enough for its journal to hold either way in one commit.
    let parameters = Parameters { len_bytes: 256 << 20, groups: Some(2), ..parameters(Layout::D) };
    for seed in 0..env_number("TACITA_GAMES", 4) {
        let mut events = Vec::new();
        for way in 0..2 {
            let mut rng = Rng::new(seed);
            let device = fault_device(fresh(&parameters).snapshot());
            let hifs = Hifs::open(device.clone(), options(1)).unwrap();
            for _ in 0..20 {
                step(&hifs, &mut rng, &LIMITS);
            }
            hifs.sync().unwrap();
            // The same change by two ways: with and without a detour, in one commit.
            device.restart_recording();
            let durability = {
                let scratch = memory_device(&device.content());
                let hifs = open(scratch);
                let mut rng = Rng::new(seed + 1000);
                for _ in 0..10 {
                    step(&hifs, &mut rng, &LIMITS);
                }
                tree(&hifs)
            };
            if way == 0 {
                let mut rng = Rng::new(seed + 1000);
                for _ in 0..10 {
                    step(&hifs, &mut rng, &LIMITS);
                }
            } else {
                clear(&hifs, &mut rng);
                build(&hifs, &durability, &mut rng, Commits::Never);
            }
            assert!(tree(&hifs) == durability);
            hifs.sync().unwrap();
            events.push(summary(&device));
        }
        assert_eq!(events[0], events[1], "seed {seed}: the device saw different writes");
    }
}

/// What the device saw: where each write went and a hash of it.
fn summary(device: &FaultDevice) -> Vec<String> {
    let show = |event: &Event| match event {
        Event::Write { offset, data } => {
            let hash = tacita_secret::digest(data);
            format!("{} blocks at {}: {:02x?}", data.len() / 4096, offset / 4096, &hash[..4])
        }
        Event::Flush => "flush".into(),
        other => format!("{other:?}"),
    };
    device.recording().events().iter().map(show).collect()
}
