//! Files that ordinary programs delete, on ext4 plain and under Purgefs: what the raw image gives
//! back.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::blocks::{self, Class, Device};
use super::{Chapter, Evidence};
use crate::exit::Outcome;

const IMAGE_LEN: u64 = 48 << 20;

const OVERWRITTEN: Class = ("overwritten", "#a6d854");

/// Files that are made and deleted.
const FILE_COUNT: usize = 100;

/// What the examiner searches for, in content and in names.
const CONTENT: &str = "DIARY OF NOBODY";
const NAME: &str = "diary-of-nobody";

/// What stays, so that a search that finds nothing proves something.
const KEPT: &str = "LETTER TO EVERYBODY";

pub(super) fn chapter(folder: &Path) -> Outcome<Chapter> {
    let mut chapter = Chapter {
        done: format!(
            "{FILE_COUNT} files are written to an ext4 image and synced. Later they are deleted by \
             ordinary programs: rm, mv over them, a truncation, rm -r of a folder. Once plainly, \
             once through `tacita purge mount`; then the raw images are searched."
        ),
        ..Chapter::default()
    };
    let (plain, purged) = (folder.join("plain.img"), folder.join("purged.img"));
    for (image, under_purge) in [(&plain, false), (&purged, true)] {
        if let Some(why) = tell(folder, image, under_purge)? {
            let what = "deleted files are in the plain image, and not in the purged one";
            chapter.evidence.push(Evidence::skipped(what, why));
            return Ok(chapter);
        }
    }
    let (plain, purged) = (fs::read(&plain)?, fs::read(&purged)?);
    let pages = |image: &[u8], mark: &str| super::ward::count(image, mark);
    for (what, mark) in [("content", CONTENT), ("names", NAME)] {
        let (before, after) = (pages(&plain, mark), pages(&purged, mark));
        chapter.evidence.push(Evidence::new(
            format!("the plain image gives {what} of deleted files back"),
            format!("\"{mark}\" found {before} times"),
            before > 0,
        ));
        chapter.evidence.push(Evidence::new(
            format!("the purged image gives no {what} of them back"),
            format!("\"{mark}\" found {after} times"),
            after == 0,
        ));
    }
    chapter.pictures = vec![("disks.svg", disks_drawn(&plain, &purged))];
    let kept = pages(&purged, KEPT);
    chapter.evidence.push(Evidence::new(
        "what was not deleted is still there",
        format!("\"{KEPT}\" found {kept} times"),
        kept > 0,
    ));
    Ok(chapter)
}

/// Both disks, block by block.
fn disks_drawn(plain: &[u8], purged: &[u8]) -> String {
    let holds = |block: &[u8], mark: &str| super::ward::count(block, mark) > 0;
    let class = |_: usize, block: &[u8]| match block {
        block if holds(block, CONTENT) || holds(block, NAME) => blocks::DELETED,
        block if tacita_block::is_zero(block) => blocks::EMPTY,
        block if block.chunks(512).all(is_overwritten) => OVERWRITTEN,
        _ => blocks::IN_USE,
    };
    let devices = [("deleted plainly", plain), ("deleted under Purgefs", purged)];
    let devices = devices.map(|(name, image)| Device::new(name, image, 4096, class));
    blocks::picture("ext4 after 100 files have been deleted", &devices)
}

/// Whether a sector holds zeros alone, behind a mark by which it is known again when it is read back.
fn is_overwritten(sector: &[u8]) -> bool {
    let (mark, rest) = sector.split_at(16);
    mark.iter().any(|byte| *byte != 0) && tacita_block::is_zero(rest)
}

/// Makes an image, fills it, and has it deleted from; why not, where the machine cannot.
fn tell(folder: &Path, image: &Path, under_purge: bool) -> Outcome<Option<String>> {
    let (lower, upper) = (folder.join("lower"), folder.join("upper"));
    fs::create_dir_all(&lower)?;
    fs::create_dir_all(&upper)?;
    fs::File::create(image)?.set_len(IMAGE_LEN)?;
    let (image_name, lower_name) = (image.to_string_lossy(), lower.to_string_lossy());
    if !super::ext4::quiet("mkfs.ext4", &["-q", "-F", "-b", "4096", &image_name])? {
        return Ok(Some("mkfs.ext4 is not installed (package e2fsprogs)".into()));
    }
    let mount = || super::ext4::quiet("mount", &["-o", "loop", &image_name, &lower_name]);
    let unmount = || super::ext4::quiet("umount", &[&lower_name]);
    if !mount()? {
        return Ok(Some("a loop mount is not possible here: it needs root".into()));
    }
    fill(&lower)?;
    unmount()?;
    mount()?;
    let told = if under_purge { delete_purged(&lower, &upper)? } else { delete(&lower)? };
    unmount()?;
    Ok(told)
}

fn fill(dir: &Path) -> Outcome<()> {
    let page = |mark: &str| format!("{mark}, a page like any other; ").repeat(300);
    fs::create_dir(dir.join("folder"))?;
    for number in 0..FILE_COUNT {
        let place = if number % 2 == 0 { "." } else { "folder" };
        fs::write(dir.join(place).join(format!("{NAME}-{number:02}.txt")), page(CONTENT))?;
    }
    fs::write(dir.join("letter.txt"), page(KEPT))?;
    Ok(())
}

/// Deletes through a mount of `tacita purge`; why not, where the machine cannot.
fn delete_purged(lower: &Path, upper: &Path) -> Outcome<Option<String>> {
    let program = std::env::current_exe()?;
    let run = |arguments: &[&std::ffi::OsStr]| {
        Command::new(&program).args(arguments).stdin(Stdio::null()).output()
    };
    let words = ["purge".as_ref(), "mount".as_ref(), lower.as_os_str(), upper.as_os_str()];
    let mounted = run(&words)?;
    if !mounted.status.success() {
        let why = String::from_utf8_lossy(&mounted.stderr).trim().to_owned();
        return Ok(Some(why));
    }
    let deleted = delete(upper);
    let ended = run(&["umount".as_ref(), upper.as_os_str()])?;
    let told = deleted?;
    if !ended.status.success() {
        return Ok(Some(String::from_utf8_lossy(&ended.stderr).trim().to_owned()));
    }
    Ok(told)
}

/// What ordinary programs do.
fn delete(dir: &Path) -> Outcome<Option<String>> {
    let script = format!(
        "set -e; \
         for n in 00 02 04; do echo new > new; sync new; mv new {NAME}-$n.txt; mv {NAME}-$n.txt calm-$n; done; \
         for n in 06 08; do : > {NAME}-$n.txt; done; \
         rm {NAME}-*.txt; rm -r folder"
    );
    let done = Command::new("sh").args(["-c", &script]).current_dir(dir).output()?;
    if done.status.success() {
        return Ok(None);
    }
    Ok(Some(String::from_utf8_lossy(&done.stderr).trim().to_owned()))
}
