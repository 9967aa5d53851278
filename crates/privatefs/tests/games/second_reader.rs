//! A second reader, written in Python from the specification alone, lists in a store what a mount shows:
//! after an unmount, and where a mount ended in the middle.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use tacita_testkit::history::{Rng, step, tree};
use tacita_testkit::second_reader::tree_of;
use tacita_testkit::{env_number, skip_without};
use tacita_vfs::{FileSystem, FileType, NewNode, Timestamp};

use crate::world::{LIMITS, World};

const PYTHON: &str = "python3";
const READER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/second_reader/list_store.py");
/// The key of all worlds.
const KEY: &str = "0707070707070707070707070707070707070707070707070707070707070707";

#[test]
fn it_lists_what_a_mount_shows() {
    if skip_without("it_lists_what_a_mount_shows", &[PYTHON]) {
        return;
    }
    let mut rng = Rng::new(1);
    for seed in 0..env_number("TACITA_GAMES", 8) {
        let world = World::new();
        let (fs, way) = world.mount(seed);
        let new = NewNode::new(FileType::Fifo, 0o600, Timestamp::default());
        for number in 0..80 {
            fs.create(fs.root(), format!("many {number}").as_ref(), &new).unwrap();
        }
        fs.sync().unwrap();
        if seed % 2 == 1 {
            way.cut_at(way.asked() + 30 + rng.below(200));
        }
        let steps = || {
            for number in 0..40 {
                step(&fs, &mut rng, &LIMITS);
                if number % 10 == 9 {
                    fs.sync().unwrap();
                }
            }
            fs.close().unwrap();
        };
        // A step panics when the store is gone.
        let done = catch_unwind(AssertUnwindSafe(steps));
        assert!(done.is_ok() || seed % 2 == 1, "seed {seed}");
        let folder = tempfile::tempdir().unwrap();
        let blocks = folder.path().join("blocks");
        fs::write(&blocks, world.store.dump()).unwrap();
        let contents = folder.path().join("contents");
        fs::create_dir(&contents).unwrap();
        let mut reader = Command::new(PYTHON);
        let output = reader.arg(READER).arg(&blocks).arg(KEY).arg(&contents).output().unwrap();
        let (listed, _) = tree_of(&output, &contents);
        assert!(listed == tree(&world.mount(seed).0), "seed {seed}");
    }
}
