//! A second reader, written in Python from the specification alone, sees in an image what a mount
//! shows: after an unmount, without one, and after a power cut.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tacita_clock::System;
use tacita_dnefs::{CipherChoice, Compression, Dnefs, FormatOptions, PurgeScope, check, format};
use tacita_flash::emulator::CutMode;
use tacita_flash::{Behaviour, Emulator};
use tacita_secret::Password;
use tacita_testkit::env_number;
use tacita_testkit::history::{Rng, step, tree, walk};
use tacita_testkit::second_reader::tree_of;
use tacita_vfs::{FileSystem, FileType, Timestamp};

use crate::volumes::{LIMITS, chip, dump, volume};

const PYTHON: &str = "/usr/bin/python3";
const READER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/second_reader/read_volume.py");
const CIPHERS: [CipherChoice; 3] =
    [CipherChoice::Aes128Ctr, CipherChoice::Aes128Gcm, CipherChoice::Aes256Gcm];
const COMPRESSIONS: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];
/// Operations of a history, twice: the power may be cut in the second half.
const STEPS: u32 = 100;
/// Physical blocks of a chip: few enough for garbage collection.
const BLOCKS: u32 = 40;

#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Unmounted,
    NotUnmounted,
    /// The power is cut at this operation of the chip.
    Cut(u64, CutMode),
}

/// One test at a time: a process that has not become Python yet holds the locks of all images.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// In memory: a chip is written by its operations, each of which a file on a disk would wait for.
fn new_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Whether the reader cannot run here; says so loudly.
fn cannot(test: &str) -> bool {
    let modules = ["-c", "import argon2, cryptography, zstandard"];
    let output = Command::new(PYTHON).args(modules).output();
    let can = output.is_ok_and(|output| output.status.success());
    if !can {
        eprintln!(
            "SKIPPED: {test}: needs {PYTHON} with argon2, cryptography and zstandard \
             (python3-argon2, python3-cryptography, python3-zstandard)"
        );
    }
    !can
}

fn read(image: &Path, folder: &Path, password: Option<&Path>) -> Output {
    fs::create_dir_all(folder).unwrap();
    Command::new(PYTHON).arg(READER).arg(image).arg(folder).args(password).output().unwrap()
}

/// A volume that so many operations of a history were done with; how many the chip did before the
/// second half, and at the end.
fn history(
    image: &Path,
    options: &FormatOptions,
    password: Option<&Password>,
    (seed, end): (u64, End),
) -> (u64, u64) {
    let chip = Arc::new(Emulator::create(image, &chip(BLOCKS)).unwrap());
    format(&volume(&chip), options, password).unwrap();
    let fs = Dnefs::open(volume(&chip), password, Arc::new(System)).unwrap();
    let mut rng = Rng::new(seed);
    for number in 0..STEPS {
        step(&fs, &mut rng, &LIMITS);
        if number % 20 == 19 {
            fs.purge(PurgeScope::Deleted).unwrap();
        }
    }
    let half = chip.operations();
    if let End::Cut(number, mode) = end {
        chip.cut_at(number, mode);
    }
    for number in 0..STEPS {
        // A step panics when the power is gone.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            step(&fs, &mut rng, &LIMITS);
            if number % 9 == 8 {
                fs.sync().unwrap();
            }
        }));
        if done.is_err() {
            assert!(matches!(end, End::Cut(..)), "a step fails without a cut");
            break;
        }
    }
    match end {
        End::Unmounted => drop(fs.close().unwrap()),
        End::NotUnmounted => fs.sync().unwrap(),
        End::Cut(..) => {}
    }
    (half, chip.operations())
}

/// What the reader sees is what a mount shows.
fn compare(image: &Path, password: Option<(&Password, &Path)>, end: End, what: &str) {
    let folder = image.with_extension("read");
    let file = password.map(|(_, file)| file);
    let (seen, lines) = tree_of(&read(image, &folder, file), &folder);
    let chip = Arc::new(Emulator::open(image, Behaviour::default()).unwrap());
    if matches!(end, End::Unmounted) {
        let dumped = image.with_extension("dump");
        fs::write(&dumped, dump(&chip)).unwrap();
        let (from_dump, _) = tree_of(&read(&dumped, &folder, file), &folder);
        assert!(from_dump == seen, "{what}: from a raw dump");
    }
    let found =
        check(&volume(&chip), password.map(|(password, _)| password), &mut |_, _| {}).unwrap();
    assert_eq!(found.was_unmounted, matches!(end, End::Unmounted), "{what}");
    assert!(found.wrong.is_empty(), "{what}: {:?}", found.wrong);
    let fs = Dnefs::open(volume(&chip), password.map(|(password, _)| password), Arc::new(System))
        .unwrap();
    assert!(seen == tree(&fs), "{what}");
    assert!(seen.len() > 3, "{what}: there is something to compare");
    for place in walk(&fs) {
        let attr = fs.attr(place.node).unwrap();
        let time = |time: Timestamp| json!([time.secs, time.nanos]);
        let line = &lines[&place.path];
        let times = json!([time(attr.atime), time(attr.mtime), time(attr.ctime)]);
        let path = OsStr::from_bytes(&place.path).display();
        assert_eq!(line["times"], times, "{what}: {path}");
        assert_eq!(line["links"], Value::from(attr.nlink), "{what}: {path}");
        if attr.kind == FileType::File {
            assert_eq!(line["size"], Value::from(attr.size), "{what}: {path}");
        }
    }
}

#[test]
fn a_second_reader_sees_what_a_mount_shows() {
    if cannot("a_second_reader_sees_what_a_mount_shows") {
        return;
    }
    let _alone = alone();
    let folder = new_folder();
    let file = folder.path().join("password");
    fs::write(&file, "a password\n").unwrap();
    let password = Password::new(b"a password".to_vec());
    let modes = [CutMode::Clean, CutMode::Torn, CutMode::Garbled];
    let mut seed = env_number("TACITA_SEED", 0);
    for cipher in CIPHERS {
        for (at, compression) in COMPRESSIONS.into_iter().enumerate() {
            let options = FormatOptions {
                node_len_bytes: [1024, 4096, 2048][at],
                cipher,
                compression,
                ..FormatOptions::default()
            };
            seed += 1;
            let image = folder.path().join(format!("{seed}"));
            let (half, all) = history(&image, &options, None, (seed, End::NotUnmounted));
            let count = env_number("TACITA_CUTS", 2);
            let cuts =
                (1..=count).map(|n| End::Cut(half + (all - half) * n / (count + 1), modes[at]));
            for end in [End::Unmounted, End::NotUnmounted].into_iter().chain(cuts) {
                // The key of a password takes its time.
                let asks = if seed.is_multiple_of(2) { End::Unmounted } else { End::NotUnmounted };
                let with = (at == 1 && end == asks).then_some(&password);
                history(&image, &options, with, (seed, end));
                let what = format!("seed {seed}, {options:?}, {end:?}");
                compare(&image, with.map(|password| (password, &*file)), end, &what);
            }
        }
    }
}

/// It does not take everything: neither what was changed, nor a wrong password.
#[test]
fn a_second_reader_refuses_what_is_not_what_was_written() {
    if cannot("a_second_reader_refuses_what_is_not_what_was_written") {
        return;
    }
    let _alone = alone();
    let folder = new_folder();
    let (right, wrong) = (folder.path().join("right"), folder.path().join("wrong"));
    fs::write(&right, "right").unwrap();
    fs::write(&wrong, "wrong").unwrap();
    let image = folder.path().join("image");
    let options = FormatOptions::default();
    let password = Password::new(b"right".to_vec());
    history(&image, &options, Some(&password), (1, End::Unmounted));
    let out = folder.path().join("out");
    let output = read(&image, &out, Some(&right));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for (file, says) in [(Some(&*wrong), "a wrong password"), (None, "there is a password")] {
        let output = read(&image, &out, file);
        assert!(!output.status.success());
        assert_eq!(String::from_utf8_lossy(&output.stderr).trim(), says);
    }
}

/// Bits changed anywhere: both refuse it, or both take it.
#[test]
fn both_refuse_the_same() {
    if cannot("both_refuse_the_same") {
        return;
    }
    let _alone = alone();
    let folder = new_folder();
    let (image, out) = (folder.path().join("image"), folder.path().join("out"));
    history(&image, &FormatOptions::default(), None, (2, End::Unmounted));
    let bytes = fs::read(&image).unwrap();
    let mut rng = Rng::new(3);
    let (mut taken, mut refused) = (0, 0);
    while taken + refused < env_number("TACITA_GAMES", 60) {
        let mut bytes = bytes.clone();
        let block = 4096 + usize::try_from(rng.below(BLOCKS.into())).unwrap() * 16384;
        let at = block + 512 + usize::try_from(rng.below(15_872)).unwrap();
        if bytes[at] == 0 || bytes[at] == 0xff {
            continue;
        }
        bytes[at] ^= 1 << rng.below(8);
        fs::write(&image, bytes).unwrap();
        let output = read(&image, &out, None);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("Traceback"), "byte {at}: {said}");
        let chip = Arc::new(Emulator::open(&image, Behaviour::default()).unwrap());
        let is_whole =
            check(&volume(&chip), None, &mut |_, _| {}).is_ok_and(|found| found.wrong.is_empty());
        assert_eq!(output.status.success(), is_whole, "byte {at}: {said}");
        *if is_whole { &mut taken } else { &mut refused } += 1;
    }
    assert!(refused > 10 && taken > 10, "{refused} refused, {taken} taken");
}
