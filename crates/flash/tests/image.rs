//! The file of an emulator: kept, locked, refused when it is damaged, and whole when whoever writes it
//! is killed.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[cfg(feature = "faults")]
use tacita_flash::faults::{Fault, plant};
use tacita_flash::{Behaviour, Emulator, EmulatorOptions, Kind, Leb, Volume, conformance};

/// Names the image that a child is to write.
const CHILD_IMAGE: &str = "FLASH_TEST_IMAGE";

/// Names the image that a child may read only.
const CHILD_READS: &str = "FLASH_TEST_READS";

const HEADER_LEN: usize = 4096;

/// What is done to an image.
type Change<'a> = &'a dyn Fn(&mut Vec<u8>);

fn options() -> EmulatorOptions {
    EmulatorOptions {
        page_len_bytes: 512,
        pages_per_block: 8,
        blocks: 24,
        ..EmulatorOptions::default()
    }
}

fn make(folder: &Path) -> (PathBuf, Emulator) {
    let path = folder.join("image");
    let flash = Emulator::create(&path, &options()).unwrap();
    (path, flash)
}

fn open(path: &Path) -> Result<Emulator, (Kind, String)> {
    Emulator::open(path, Behaviour::default()).map_err(|e| (e.kind(), e.to_string()))
}

fn dump_of(flash: &Emulator) -> Vec<u8> {
    let mut dump = Vec::new();
    flash.dump(&mut dump).unwrap();
    dump
}

#[test]
fn options_tell_the_geometry_of_what_they_make() {
    let bad = EmulatorOptions { factory_bad_per_1024: 300, ..options() };
    for options in [options(), bad, EmulatorOptions::default()] {
        let flash = Emulator::in_memory(&options).unwrap();
        assert_eq!(options.geometry().unwrap(), flash.geometry());
    }
    let absurd = EmulatorOptions { page_len_bytes: 100, ..options() };
    assert_eq!(absurd.geometry().unwrap_err().kind(), Kind::OutOfRange);
}

#[test]
fn all_is_there_again() {
    let folder = tempfile::tempdir().unwrap();
    let (path, flash) = make(folder.path());
    flash.append(Leb(1), 512, &[5; 1024]).unwrap();
    flash.append(Leb(2), 0, &[0xff; 512]).unwrap();
    flash.change(Leb(3), &[6; 512]).unwrap();
    flash.unmap(Leb(3)).unwrap();
    flash.flush_erases().unwrap();
    let (geometry, wear, dump) = (flash.geometry(), flash.wear(), dump_of(&flash));
    drop(flash);
    let again = open(&path).unwrap();
    assert_eq!(again.geometry(), geometry);
    assert_eq!(again.wear(), wear);
    assert!(dump_of(&again) == dump);
    let mut found = [0; 2048];
    again.read(Leb(1), 0, &mut found).unwrap();
    assert!(found[..512] == [0xff; 512] && found[512..1536] == [5; 1024]);
    let twice = again.append(Leb(2), 0, &[0; 512]).map_err(|e| e.kind());
    assert_eq!(twice, Err(Kind::Programmed), "what looks erased is programmed, also later");
    assert!(!again.is_mapped(Leb(3)).unwrap());
}

/// A dump is the blocks of the file, with `0xff` where nothing has been programmed.
#[test]
fn the_file_holds_the_dump() {
    let folder = tempfile::tempdir().unwrap();
    let (path, flash) = make(folder.path());
    flash.append(Leb(1), 512, &[5; 1024]).unwrap();
    let dump = dump_of(&flash);
    drop(flash);
    let file = fs::read(&path).unwrap();
    let blocks = &file[HEADER_LEN..HEADER_LEN + dump.len()];
    let is_same = |(byte, dumped): (&u8, &u8)| byte == dumped || (*byte == 0 && *dumped == 0xff);
    assert!(blocks.iter().zip(&dump).all(is_same));
}

#[test]
fn what_is_erased_takes_no_room() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let flash = Emulator::create(&path, &EmulatorOptions::default()).unwrap();
    let room = || fs::metadata(&path).unwrap().blocks() * 512;
    assert!(room() < 1 << 20, "a new image of 128 MiB takes {} bytes", room());
    for leb in 0..100 {
        flash.append(Leb(leb), 0, &vec![1; 129_024]).unwrap();
    }
    flash.sync().unwrap();
    assert!(room() > 12 << 20);
    (0..100).for_each(|leb| flash.unmap(Leb(leb)).unwrap());
    flash.flush_erases().unwrap();
    assert!(room() < 2 << 20, "an erased image of 128 MiB takes {} bytes", room());
}

#[test]
fn an_open_image_is_locked() {
    let folder = tempfile::tempdir().unwrap();
    let (path, flash) = make(folder.path());
    flash.append(Leb(0), 0, &[1; 512]).unwrap();
    let (kind, text) = open(&path).unwrap_err();
    assert_eq!(kind, Kind::Busy);
    assert!(text.contains("in use") && text.contains("image"), "{text}");
    let again = Emulator::create(&path, &options()).unwrap_err();
    assert_eq!(again.kind(), Kind::Busy);
    drop(flash);
    let mut found = [0; 512];
    open(&path).unwrap().read(Leb(0), 0, &mut found).unwrap();
    assert_eq!(found, [1; 512], "what was refused has changed nothing");
}

#[test]
fn readers_let_each_other_in_and_no_writer() {
    let folder = tempfile::tempdir().unwrap();
    let (path, flash) = make(folder.path());
    flash.append(Leb(0), 0, &[1; 512]).unwrap();
    let busy = |opened: tacita_flash::Result<Emulator>| {
        let error = opened.unwrap_err();
        assert_eq!(error.kind(), Kind::Busy);
        assert!(error.to_string().contains("in use by another process"), "{error}");
    };
    busy(Emulator::open_read_only(&path));
    drop(flash);
    let readers = [Emulator::open_read_only(&path), Emulator::open_read_only(&path)];
    for reader in readers.iter().map(|reader| reader.as_ref().unwrap()) {
        conformance::check_read_only(reader);
    }
    busy(Emulator::open(&path, Behaviour::default()));
    drop(readers);
    open(&path).unwrap();
}

/// Whoever reads sees what a writer finds, and leaves the file as it is: after an unmount, after a crash
/// with pages torn and erases to do, and with what no dump shows.
fn a_reader_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (path, flash) = make(folder.path());
    flash.append(Leb(0), 0, &[1; 1024]).unwrap();
    flash.change(Leb(1), &[2; 512]).unwrap();
    flash.change(Leb(1), &[3; 512]).unwrap();
    flash.cut_at(flash.operations() + 2, tacita_flash::emulator::CutMode::Garbled);
    flash.change(Leb(0), &[4; 1024]).unwrap_err();
    drop(flash);
    let mut image = fs::read(&path).unwrap();
    let end = image.len() - 24 * 8;
    image[end - 512..end].copy_from_slice(&[0x77; 512]);
    fs::write(&path, &image).unwrap();
    let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1);
    fs::File::options().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
    let reader = Emulator::open_read_only(&path).unwrap();
    conformance::check_read_only(&reader);
    let content = |flash: &Emulator| {
        let mut found = vec![0; 3 * 512];
        [Leb(0), Leb(1), Leb(2)].map(|leb| {
            flash.read(leb, 0, &mut found).unwrap();
            found.clone()
        })
    };
    let (wear, dump, seen) = (reader.wear(), dump_of(&reader), content(&reader));
    drop(reader);
    assert!(fs::read(&path).unwrap() == image, "a reader has changed the file");
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), long_ago);
    let writer = open(&path).unwrap();
    assert!(writer.wear() == wear && dump_of(&writer) == dump && content(&writer) == seen);
    assert!(seen[0][..1024] == [1; 1024] && seen[1][..512] == [3; 512]);
}

#[test]
fn a_reader_changes_nothing_of_the_file() {
    a_reader_changes_nothing();
}

#[cfg(feature = "faults")]
#[test]
fn a_reader_that_writes_is_noticed() {
    let _planted = plant(Fault::ReadersWrite);
    assert!(std::panic::catch_unwind(a_reader_changes_nothing).is_err());
}

/// What can be read and not written is told from what cannot be opened. Whoever may do everything is let
/// in whatever the mode says, but for what is immutable, or on a file system that is read-only.
#[test]
fn what_cannot_be_written_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (path, flash) = make(folder.path());
    drop(flash);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut child = Command::new(program);
    child.args(["--exact", "reading_child", "--nocapture"]).env(CHILD_READS, &path);
    if rustix::process::geteuid().is_root() {
        child.uid(65_534).gid(65_534);
    }
    let output = child.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The child of the test before, which may only read.
#[test]
fn reading_child() {
    let Some(path) = std::env::var_os(CHILD_READS) else { return };
    let path = Path::new(&path);
    let (kind, text) = open(path).unwrap_err();
    assert_eq!(kind, Kind::ReadOnly, "{text}");
    assert!(text.contains("for writing"), "{text}");
    conformance::check_read_only(&Emulator::open_read_only(path).unwrap());
    assert_eq!(open(Path::new("/etc/shadow")).unwrap_err().0, Kind::Unavailable);
}

#[test]
fn what_is_no_image_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (path, flash) = make(folder.path());
    flash.append(Leb(0), 0, &[1; 512]).unwrap();
    drop(flash);
    let whole = fs::read(&path).unwrap();
    let state = whole.len() - 24 * 8;
    let block = |n: usize| HEADER_LEN + n * 4096;
    let broken = |change: Change| {
        let mut image = whole.clone();
        change(&mut image);
        fs::write(&path, image).unwrap();
        match open(&path) {
            Err((kind, text)) => {
                assert_eq!(kind, Kind::Corrupt, "{text}");
                text
            }
            Ok(flash) => panic!("{flash:?} opens"),
        }
    };
    let cases: [(&str, Change); 11] = [
        ("0 bytes", &Vec::clear),
        ("100 bytes", &|image| image.truncate(100)),
        ("has 102591 bytes, its header says 102592", &|image| image.truncate(102_591)),
        ("has 102593 bytes", &|image| image.push(0)),
        ("no image", &|image| image[0] ^= 1),
        ("version 2", &|image| image[8] = 2),
        ("header of the image is damaged", &|image| image[12] ^= 1),
        ("state of block 3", &|image| image[state + 3 * 8 + 4] = 9),
        ("state of block 0", &|image| image[state] = 1),
        ("no block has a header", &|image| image[state..].fill(0)),
        ("no volume table", &|image| {
            image[block(0) + 512] ^= 1;
            image[block(1) + 512] ^= 1;
        }),
    ];
    for (expected, change) in cases {
        let text = broken(change);
        assert!(text.contains(expected), "{text:?} does not say {expected:?}");
    }
    let folder = open(folder.path()).unwrap_err();
    assert_eq!(folder.0, Kind::Unavailable);
    assert_eq!(open(Path::new("/nowhere/image")).unwrap_err().0, Kind::Unavailable);
}

#[test]
fn impossible_options_are_named() {
    let usual = options();
    for (options, expected) in [
        (EmulatorOptions { page_len_bytes: 256, ..usual }, "pages of 256"),
        (EmulatorOptions { page_len_bytes: 1000, ..usual }, "pages of 1000"),
        (EmulatorOptions { page_len_bytes: 32_768, ..usual }, "pages of 32768"),
        (EmulatorOptions { pages_per_block: 3, ..usual }, "3 pages"),
        (EmulatorOptions { pages_per_block: 2000, ..usual }, "2000 pages"),
        (EmulatorOptions { blocks: 7, ..usual }, "7 erase blocks"),
        (EmulatorOptions { blocks: 1 << 21, ..usual }, "2097152 erase blocks"),
        (EmulatorOptions { factory_bad_per_1024: 900, ..usual }, "900 of 1024"),
        (EmulatorOptions { blocks: 8, reserve_per_1024: 512, ..usual }, "too few"),
        (usual.len_bytes(0), "0 erase blocks"),
    ] {
        let error = Emulator::in_memory(&options).unwrap_err();
        assert_eq!(error.kind(), Kind::OutOfRange);
        assert!(error.to_string().contains(expected), "{error} does not say {expected}");
    }
    let mib = EmulatorOptions::default().len_bytes(64 << 20);
    assert_eq!(mib.blocks, 512);
}

#[test]
fn factory_bad_blocks_follow_from_the_seed_and_are_never_used() {
    let bad_of = |seed| {
        let behaviour = Behaviour { seed, ..Behaviour::default() };
        let options =
            EmulatorOptions { factory_bad_per_1024: 100, behaviour, blocks: 200, ..options() };
        let flash = Emulator::in_memory(&options).unwrap();
        let lebs = flash.geometry().lebs;
        (0..lebs).for_each(|leb| flash.append(Leb(leb), 0, &[1; 512]).unwrap());
        let bad: Vec<usize> =
            (0..).zip(flash.wear()).filter(|(_, block)| block.is_bad).map(|(n, _)| n).collect();
        let dump = dump_of(&flash);
        for block in &bad {
            assert!(dump[block * 4096..][..4096].iter().all(|byte| *byte == 0xff));
        }
        bad
    };
    assert_eq!(bad_of(1), bad_of(1));
    assert_ne!(bad_of(1), bad_of(2));
    assert!((5..50).contains(&bad_of(1).len()), "{:?}", bad_of(1));
}

#[test]
fn an_image_can_be_made_without_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = tempfile::tempfile_in(folder.path()).unwrap();
    let flash = Emulator::create_in(file.try_clone().unwrap(), &options()).unwrap();
    flash.change(Leb(0), &[1; 512]).unwrap();
    drop(flash);
    let again = Emulator::open_in(file, Behaviour::default()).unwrap();
    assert!(again.is_mapped(Leb(0)).unwrap());
}

/// What lies behind the programmed part of a block, as a crash of the machine may leave it, is gone
/// from the file when it has been opened: on no dump would it be seen.
#[test]
fn what_no_dump_shows_does_not_stay_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let (path, flash) = make(folder.path());
    flash.append(Leb(0), 0, &[1; 512]).unwrap();
    drop(flash);
    let mut image = fs::read(&path).unwrap();
    let end = image.len() - 24 * 8;
    image[end - 512..end].copy_from_slice(&[0x77; 512]);
    fs::write(&path, &image).unwrap();
    drop(open(&path).unwrap());
    assert!(!fs::read(&path).unwrap().contains(&0x77));
}

/// The child of the next test: changes a block again and again, and says each change that is done.
#[test]
fn child() {
    let Some(path) = std::env::var_os(CHILD_IMAGE) else { return };
    let flash = open(Path::new(&path)).unwrap();
    for number in 0u32.. {
        flash.change(Leb(0), &number.to_le_bytes().repeat(3 * 128)).unwrap();
        flash.append(Leb(0), 3 * 512, &number.to_le_bytes().repeat(128)).unwrap();
        println!("\ndone {number}.");
    }
}

#[test]
fn whoever_is_killed_leaves_the_old_content_or_the_new() {
    let folder = tempfile::tempdir().unwrap();
    let (path, flash) = make(folder.path());
    drop(flash);
    for round in 0..12 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .env(CHILD_IMAGE, &path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let done =
            |line: String| line.strip_prefix("done ")?.strip_suffix('.')?.parse::<u32>().ok();
        let mut last = None;
        while last < Some(40 + round) {
            last = done(lines.next().expect("it goes on").unwrap()).or(last);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let last = lines.map_while(Result::ok).filter_map(done).last().or(last).unwrap();
        let flash = open(&path).unwrap();
        let mut found = [0; 4 * 512];
        flash.read(Leb(0), 0, &mut found).unwrap();
        let (changed, appended) = found.split_at(3 * 512);
        let number = u32::from_le_bytes(changed[..4].try_into().unwrap());
        assert!(number == last || number == last + 1, "round {round}: {number}, after {last}");
        assert!(changed == number.to_le_bytes().repeat(3 * 128), "round {round}: a mixture");
        assert!(number > last || appended == number.to_le_bytes().repeat(128), "round {round}");
        flash.change(Leb(0), &[0; 512]).unwrap();
    }
}
