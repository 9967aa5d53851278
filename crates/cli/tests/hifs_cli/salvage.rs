//! What is left of a damaged image, by the program.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Output;

use tempfile::TempDir;

use crate::{expect, hifs, path};

const NAMES: [&str; 3] = ["a", "b", "short"];

/// A folder, its image, and copies of that which are damaged.
struct Place {
    dir: TempDir,
    image: Vec<u8>,
    /// Blocks of descriptors.
    descriptors: Vec<u64>,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (folder, image) = (dir.path().join("folder"), dir.path().join("i.img"));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("a"), vec![1; 40_000]).unwrap();
        fs::write(folder.join("b"), vec![2; 70_000]).unwrap();
        fs::write(folder.join("short"), "in its inode").unwrap();
        expect(0, &hifs(&["pack", path(&folder), path(&image), "--size", "2M"]));
        let image = fs::read(image).unwrap();
        let blocks = (0..).zip(image.chunks(4096));
        let descriptors = blocks.filter(|(_, block)| block.starts_with(b"TACITAGR"));
        let descriptors: Vec<u64> = descriptors.map(|(number, _)| number).collect();
        assert_eq!(descriptors.len(), 4);
        Self { dir, image, descriptors }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn is_zero(&self, block: u64) -> bool {
        let at = usize::try_from(block).unwrap() * 4096;
        self.image[at..at + 4096].iter().all(|byte| *byte == 0)
    }

    /// What is taken out of an image with this block damaged, which stays as it is.
    fn salvage(&self, block: u64) -> Output {
        let (damaged, out) = (self.at("d.img"), self.at("out"));
        let _ = fs::remove_dir_all(&out);
        fs::write(&damaged, &self.image).unwrap();
        let file = fs::OpenOptions::new().write(true).open(&damaged).unwrap();
        file.write_all_at(&[0xa5; 4096], block * 4096).unwrap();
        let before = fs::read(&damaged).unwrap();
        let done = hifs(&["unpack", "--salvage", path(&damaged), path(&out)]);
        assert!(fs::read(&damaged).unwrap() == before, "it was written");
        done
    }

    /// Files that are not there as they were.
    fn different(&self) -> Vec<&'static str> {
        let read = |folder: &str, name: &str| fs::read(self.at(folder).join(name)).ok();
        NAMES.into_iter().filter(|name| read("folder", name) != read("out", name)).collect()
    }
}

/// Descriptors, and the maps behind them.
#[test]
fn what_follows_from_the_rest_costs_nothing() {
    let place = Place::new();
    let mut refused = 0;
    for descriptor in &place.descriptors {
        for block in [*descriptor, descriptor + 1, descriptor + 2] {
            if place.is_zero(block) {
                continue;
            }
            let done = place.salvage(block);
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(said.contains(&format!("block {block}")), "{said}");
            assert_eq!(done.status.code(), Some(0), "{said}");
            assert_eq!(place.different(), [""; 0], "block {block}");
            let other = place.at("other");
            let said = expect(4, &hifs(&["unpack", path(&place.at("d.img")), path(&other)]));
            assert!(said.contains("damaged") && said.contains("unpack --salvage"), "{said}");
            assert!(!other.exists());
            refused += 1;
        }
    }
    assert!(refused >= 6, "{refused}");
}

#[test]
fn a_damaged_page_takes_what_is_in_it() {
    let place = Place::new();
    let mut lost = Vec::new();
    for block in place.descriptors[0]..place.image.len() as u64 / 4096 - 1 {
        if place.is_zero(block) {
            continue;
        }
        let done = place.salvage(block);
        if !String::from_utf8_lossy(&done.stderr).contains("lost: ") {
            continue;
        }
        let said = expect(4, &done);
        assert!(said.contains("holds all others"), "{said}");
        let checked = hifs(&["check", path(&place.at("d.img"))]);
        let findings = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(expect(1, &checked).contains("--salvage"), "{findings}");
        assert!(findings.contains("lost: "), "{findings}");
        assert!(findings.contains(&format!("block {block}")), "{findings}");
        if said.contains("lost: names in it") {
            let found = place.at("out").join("lost+found");
            assert_eq!(fs::metadata(&found).unwrap().permissions().mode() & 0o777, 0o700);
            let entries = fs::read_dir(&found).unwrap();
            let mut lens: Vec<u64> =
                entries.map(|entry| entry.unwrap().metadata().unwrap().len()).collect();
            lens.sort_unstable();
            assert_eq!(lens, [12, 40_000, 70_000], "{said}");
        } else {
            assert_eq!(place.different(), ["short"], "{said}");
            assert!(said.contains("out/short: lost: all but its name"), "{said}");
        }
        lost.push(block);
    }
    assert!(lost.len() == 2, "a page of names and one of inodes: {lost:?}");
}
