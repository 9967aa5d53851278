//! A second reader, written in Python from the specification alone, sees the same files in an
//! image, finds every block where it must be, and refuses what this program refuses.

use std::path::Path;
use std::process::{Command, Output};

use tacita_hifs::geometry::{Ids, Parameters, Times};
use tacita_hifs::{Hifs, OpenOptions};
use tacita_testkit::env_number;
use tacita_testkit::history::{Limits, Rng, Tree, step, tree};
use tacita_testkit::second_reader::tree_of;
use tacita_vfs::FileSystem;

use crate::images::{LAYOUTS, fresh, memory_device, open, options, parameters};

const READER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/second_reader/read_image.py");

/// Runs the reader; `None` where there is no Python.
fn read(image: &[u8], folder: &Path) -> Option<Output> {
    let path = folder.join("image");
    std::fs::write(&path, image).unwrap();
    let output = Command::new("python3").arg(READER).arg(&path).arg(folder).output();
    if output.is_err() {
        eprintln!("SKIPPED: the second reader of HIFS: no python3");
    }
    output.ok()
}

fn reading() -> OpenOptions {
    OpenOptions { read_only: true, ..options(3) }
}

fn history(parameters: &Parameters, seed: u64) -> (Vec<u8>, Tree) {
    let device = fresh(parameters);
    let hifs = open(device.clone());
    let mut rng = Rng::new(seed);
    let limits = Limits { names: 14, size_max: 150_000, write_max: 60_000 };
    for _ in 0..60 + rng.below(60) {
        step(&hifs, &mut rng, &limits);
    }
    hifs.sync().unwrap();
    (device.snapshot(), tree(&hifs))
}

#[test]
fn both_see_the_same() {
    for layout in LAYOUTS {
        for seed in 0..env_number("TACITA_GAMES", 2) {
            for (ids, times) in [(Ids::Path, Times::None), (Ids::Random, Times::Full)] {
                let bucket_len_bytes = Some([4096, 16 << 10][usize::from(seed % 2 == 1)]);
                let len_bytes = 2 << 20;
                let parameters =
                    Parameters { ids, times, bucket_len_bytes, len_bytes, ..parameters(layout) };
                let (image, want) = history(&parameters, seed);
                let folder = tempfile::tempdir().unwrap();
                let Some(output) = read(&image, folder.path()) else { return };
                assert!(tree_of(&output, folder.path()).0 == want, "{parameters:?}, seed {seed}");
            }
        }
    }
}

/// Every block changed somewhere: both refuse it, or both take it, for content has no checksum.
#[test]
fn both_refuse_the_same() {
    let (image, _) = history(&Parameters { len_bytes: 1 << 20, ..parameters(LAYOUTS[3]) }, 5);
    let mut rng = Rng::new(9);
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..env_number("TACITA_GAMES", 1) * 24 {
        let mut image = image.clone();
        let block = rng.below(image.len() as u64 / 4096);
        let at = usize::try_from(block * 4096 + rng.below(96)).unwrap();
        image[at] ^= 1 << rng.below(8);
        let folder = tempfile::tempdir().unwrap();
        let Some(output) = read(&image, folder.path()) else { return };
        let canonical = Hifs::open(memory_device(&image), reading()).is_ok_and(|hifs| {
            hifs.warning().is_none() && hifs.check(&mut |_, _| {}).unwrap().is_canonical()
        });
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("Traceback"), "byte {at}: {said}");
        assert_eq!(output.status.success(), canonical, "byte {at}: {said}");
        *if canonical { &mut taken } else { &mut refused } += 1;
    }
    assert!(refused > 10, "{refused} refused, {taken} taken");
}
