//! The paper's own story: a hospital's wards, told twice.
//!
//! Paper: HIFS, section 3.1.1, figures 3(a) and 3(b).

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use tacita_block::{Access, FileDevice};
use tacita_hifs::geometry::{Ids, Layout, Parameters, Times};
use tacita_hifs::{Hifs, Kind, OpenOptions, RootOwner};

use super::blocks::{self, Device};
use super::{Chapter, Evidence, ext4};
use crate::exit::{self, Failure, Outcome};
use crate::output;

const IMAGE_LEN: u64 = 16 << 20;
/// The patient of the general ward who is discharged, and must leave nothing.
const DELETED: (&str, &str) = ("general", "rick");

/// Something that happens in the hospital.
#[derive(Debug, Clone, Copy)]
pub(super) enum Event {
    Admit(&'static str, &'static str),
    Discharge(&'static str, &'static str),
}

use Event::{Admit, Discharge};

/// Figure 3(a): Rick is admitted to the general ward and discharged again.
const STORY_A: [Event; 7] = [
    Admit("general", "katy"),
    Admit("general", "chad"),
    Admit("special", "adam"),
    Admit("general", "rick"),
    Admit("special", "jane"),
    Admit("special", "rick"),
    Discharge("general", "rick"),
];

/// Figure 3(b): another order, and Rick was never there.
const STORY_B: [Event; 5] = [
    Admit("general", "katy"),
    Admit("special", "adam"),
    Admit("general", "chad"),
    Admit("special", "jane"),
    Admit("special", "rick"),
];

/// A patient's record: long enough to fill buckets, and unlike any other.
pub(super) fn record(ward: &str, patient: &str) -> Vec<u8> {
    format!("{}: blood pressure, diagnosis, medication; ", marker(ward, patient)).repeat(900).into()
}

/// What an examiner searches for.
pub(super) fn marker(ward: &str, patient: &str) -> String {
    format!("RECORD OF {} IN THE {} WARD", patient.to_uppercase(), ward.to_uppercase())
}

/// Plays a story with ordinary file operations below `root`, everything synced after each event.
pub(super) fn play(events: &[Event], root: &Path) -> Outcome<()> {
    for ward in ["general", "special"] {
        match fs::create_dir(root.join(ward)) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(e.into()),
            _ => {}
        }
    }
    for event in events {
        let folder = match event {
            Admit(ward, patient) => {
                fs::write(root.join(ward).join(patient), record(ward, patient))?;
                fs::File::open(root.join(ward).join(patient))?.sync_all()?;
                root.join(ward)
            }
            Discharge(ward, patient) => {
                fs::remove_file(root.join(ward).join(patient))?;
                root.join(ward)
            }
        };
        fs::File::open(folder)?.sync_all()?;
    }
    Ok(())
}

pub(super) fn chapter(folder: &Path) -> Outcome<Chapter> {
    let (a, b) = (folder.join("story-a.img"), folder.join("story-b.img"));
    let mounted = tell_both(folder, &a, &b)?;
    let way = if mounted {
        "mounted and used with ordinary file operations"
    } else {
        "without a mount (no FUSE here)"
    };
    let mut chapter = Chapter {
        done: format!(
            "Story A: Katy, Chad and Rick are admitted to the general ward, Adam, Jane and Rick to \
             the special one; then Rick is discharged from the general ward: his record is deleted. \
             Story B: the same patients in another order, and Rick was never in the general ward. \
             Each story went into a HIFS image of its own, {way}, synced after every step."
        ),
        ..Chapter::default()
    };
    let (image_a, image_b) = (fs::read(&a)?, fs::read(&b)?);
    let (sum_a, sum_b) = (sum(&image_a), sum(&image_b));
    chapter.evidence.push(Evidence::new(
        "both images are the same, byte for byte",
        format!("SHA-256 {sum_a} and {sum_b}"),
        image_a == image_b,
    ));
    chapter.evidence.push(search(&image_a, "the HIFS image of story A", 0));
    chapter.evidence.push(kept_records(&image_a));
    chapter.evidence.push(canonical(&a)?);
    chapter.evidence.push(planted_residue(&a, &folder.join("planted.img"))?);
    let (control, plain) = ext4::control(folder, &STORY_A, &STORY_B)?;
    chapter.evidence.extend(control);
    let mut devices = Vec::from(pair("HIFS", &image_a, &image_b));
    if let Some([plain_a, plain_b]) = plain {
        devices.extend(pair("ext4", &plain_a, &plain_b));
    }
    let title = "The same files, by two histories";
    chapter.pictures = vec![("images.svg", blocks::picture(title, &devices))];
    Ok(chapter)
}

/// The images of both stories, block by block.
fn pair(what: &str, a: &[u8], b: &[u8]) -> [Device; 2] {
    let deleted = marker(DELETED.0, DELETED.1);
    let class = |other: &[u8], at: usize, block: &[u8]| match block {
        block if count(block, &deleted) > 0 => blocks::DELETED,
        block if block != &other[at * 4096..][..4096] => blocks::DIFFERENT,
        block if tacita_block::is_zero(block) => blocks::EMPTY,
        _ => blocks::IN_USE,
    };
    [("A", a, b), ("B", b, a)].map(|(story, image, other)| {
        Device::new(format!("{what}, story {story}"), image, 4096, |at, block| {
            class(other, at, block)
        })
    })
}

fn sum(image: &[u8]) -> String {
    output::hex(&tacita_secret::sha256(image))
}

pub(super) fn count(image: &[u8], marker: &str) -> usize {
    image.windows(marker.len()).filter(|window| *window == marker.as_bytes()).count()
}

/// How often the deleted record is found; `want` is 0 for never, else at least once.
pub(super) fn search(image: &[u8], what: &str, want: usize) -> Evidence {
    let found = count(image, &marker(DELETED.0, DELETED.1));
    let promise = if want == 0 { "nothing of" } else { "the content of" };
    Evidence::new(
        format!("{promise} the deleted record is in {what}"),
        format!("\"{}\" found {found} times", marker(DELETED.0, DELETED.1)),
        (found == 0) == (want == 0),
    )
}

/// The search finds what is there: otherwise it would prove nothing.
fn kept_records(image: &[u8]) -> Evidence {
    let found = count(image, &marker("special", "rick"));
    Evidence::new(
        "the records that were kept are there",
        format!("\"{}\" found {found} times", marker("special", "rick")),
        found > 0,
    )
}

fn canonical(image: &Path) -> Outcome<Evidence> {
    let report = check(image)?;
    Ok(Evidence::new(
        "every block is what the files alone make it",
        format!("{} blocks compared, {} differ", report.blocks, report.count),
        report.count == 0,
    ))
}

/// One forgotten byte in free space must be found, or the check would prove nothing.
fn planted_residue(image: &Path, copy: &Path) -> Outcome<Evidence> {
    fs::copy(image, copy)?;
    let file = fs::OpenOptions::new().write(true).open(copy)?;
    let mut at = IMAGE_LEN / 2;
    while fs::read(copy)?[usize::try_from(at).unwrap_or(0)..][..4096].iter().any(|&b| b != 0) {
        at += 4096;
    }
    file.write_all_at(b"R", at)?;
    let report = check(copy)?;
    Ok(Evidence::new(
        "one byte left behind in free space would be found",
        format!("planted in block {}: {}", at / 4096, report.findings.join("; ")),
        report.count == 1,
    ))
}

fn check(image: &Path) -> Outcome<tacita_hifs::Report> {
    let device =
        FileDevice::open(image, Access::ReadOnly, 4096).map_err(|e| exit::of_device(image, &e))?;
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let refuse = |e: &tacita_hifs::Error| exit::of_image(image, e);
    match Hifs::open(Arc::new(device), options) {
        Ok(hifs) => hifs.check(&mut |_, _| {}).map_err(|e| refuse(&e)),
        Err(error) if matches!(error.kind(), Kind::Damaged | Kind::Interrupted) => {
            Ok(tacita_hifs::Report { blocks: 0, findings: vec![error.to_string()], count: 1 })
        }
        Err(error) => Err(refuse(&error)),
    }
}

/// Makes both images; through mounts if this machine has FUSE. Returns whether it has.
fn tell_both(folder: &Path, a: &Path, b: &Path) -> Outcome<bool> {
    let seed = tacita_secret::random()?;
    let mut mounted = true;
    for (image, events) in [(a, &STORY_A[..]), (b, &STORY_B[..])] {
        format(image, seed)?;
        mounted = tell_mounted(folder, image, events)?;
        if !mounted {
            tell_packed(folder, image, events)?;
        }
    }
    Ok(mounted)
}

fn format(image: &Path, seed: [u8; 32]) -> Outcome<()> {
    let parameters = Parameters {
        len_bytes: IMAGE_LEN,
        layout: Layout::D,
        ids: Ids::Path,
        times: Times::None,
        bucket_len_bytes: None,
        groups: None,
        seed,
    };
    let device =
        FileDevice::create(image, IMAGE_LEN, 4096).map_err(|e| exit::of_device(image, &e))?;
    let owner = RootOwner {
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
    };
    tacita_hifs::format(Arc::new(device), &parameters, owner, &mut |_, _| {})
        .map_err(|e| exit::of_image(image, &e))
}

fn tacita(arguments: &[&OsStr]) -> Outcome<std::process::Output> {
    let program = std::env::current_exe()?;
    Ok(Command::new(program).args(arguments).stdin(Stdio::null()).output()?)
}

/// Returns `false` where mounting is not possible.
fn tell_mounted(folder: &Path, image: &Path, events: &[Event]) -> Outcome<bool> {
    let dir: PathBuf = folder.join("mount");
    fs::create_dir_all(&dir)?;
    let (hifs, mount) = (OsStr::new("hifs"), OsStr::new("mount"));
    let done = tacita(&[hifs, mount, image.as_os_str(), dir.as_os_str()])?;
    if done.status.code() == Some(exit::NOT_HERE.into()) {
        return Ok(false);
    }
    if !done.status.success() {
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        return Err(Failure::new(exit::DEVICE, format!("mounting failed: {text}")));
    }
    let played = play(events, &dir);
    let done = tacita(&[OsStr::new("umount"), dir.as_os_str()])?;
    played?;
    if !done.status.success() {
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        return Err(Failure::new(exit::DEVICE, format!("unmounting failed: {text}")));
    }
    Ok(true)
}

/// Without FUSE: the story happens on the image's own operations, a commit after each step.
fn tell_packed(folder: &Path, image: &Path, events: &[Event]) -> Outcome<()> {
    let device =
        FileDevice::open(image, Access::ReadWrite, 4096).map_err(|e| exit::of_device(image, &e))?;
    let hifs = Hifs::open(Arc::new(device), OpenOptions::default())
        .map_err(|e| exit::of_image(image, &e))?;
    let outside = folder.join("outside");
    for step in 1..=events.len() {
        // The folder as it is after this step replaces what the image holds.
        if outside.exists() {
            fs::remove_dir_all(&outside)?;
        }
        fs::create_dir(&outside)?;
        play(&events[..step], &outside)?;
        clear(&hifs)?;
        tacita_hifs::pack::pack(&hifs, &outside, &mut |_| {})
            .map_err(|e| Failure::new(exit::DEVICE, e.to_string()))?;
    }
    fs::remove_dir_all(&outside)?;
    Ok(())
}

fn clear(hifs: &Hifs) -> Outcome<()> {
    use tacita_vfs::{FileSystem, Link, Timestamp};
    let names = |dir| {
        let mut names = Vec::new();
        let listed = hifs.list(dir, 0, &mut |entry| {
            names.push((entry.name.to_owned(), entry.node));
            true
        });
        listed.map(|()| names)
    };
    let inner = || -> tacita_vfs::Result<()> {
        for (ward, dir) in names(hifs.root())? {
            for (patient, node) in names(dir)? {
                hifs.remove(Link { dir, name: &patient, node }, Timestamp::default())?;
                hifs.forget(node);
            }
            let link = Link { dir: hifs.root(), name: &ward, node: dir };
            hifs.remove(link, Timestamp::default())?;
            hifs.forget(dir);
        }
        hifs.sync()
    };
    inner().map_err(|e| exit::of_mount(&e))
}
