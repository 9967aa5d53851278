//! `tacita hifs ...`.

mod create;
mod facts;
mod map_view;
mod mount;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tacita_block::{Access, FileOptions};
use tacita_hifs::geometry::BLOCK_LEN;
use tacita_hifs::pack::PackError;
use tacita_hifs::{Hifs, Loss, OpenOptions, Superblock};

use crate::arguments::Hifs as Command;
use crate::exit::{self, Failure, Outcome};
use crate::new_folder::NewFolder;
use crate::output::{self, shown_name};

pub(crate) fn run(command: &Command) -> Outcome<()> {
    match command {
        Command::Format { image, size, shape, json } => create::format(image, *size, shape, *json),
        Command::Mount { image, dir, sync, commit_every, foreground, options } => {
            let commit_every = Duration::from_secs((*commit_every).into());
            mount::run(image, dir, (*sync, commit_every), *foreground, options)
        }
        Command::Check { image, json } => facts::check(image, *json),
        Command::Info { image, json } => facts::info(image, *json),
        Command::Map { image, svg, json } => map_view::run(image, svg.as_deref(), *json),
        Command::Pack { folder, image, size, shape, json } => {
            create::pack(folder, image, *size, shape, *json)
        }
        Command::Unpack { image, folder, salvage, json } => unpack(image, folder, *salvage, *json),
    }
}

/// Whether the copy of the superblock is there that the last block of an image is.
pub(crate) fn has_superblock(path: &Path) -> bool {
    let copy = || -> std::io::Result<bool> {
        let mut file = File::open(path)?;
        tacita_block::keep_access_time(&file);
        let len_bytes = file.seek(SeekFrom::End(0))?;
        let mut block = [0; BLOCK_LEN];
        let last = (len_bytes / BLOCK_LEN as u64).saturating_sub(1);
        file.read_exact_at(&mut block, last * BLOCK_LEN as u64)?;
        let copy = Superblock::decode(&block).ok().map(|found| found.geometry.image_blocks);
        Ok(copy.is_some_and(|blocks| blocks == last + 1))
    };
    copy().unwrap_or(false)
}

/// What can be done with an image that is not opened.
const SALVAGE: &str = "`tacita hifs unpack --salvage IMAGE FOLDER` takes what is left";

/// Opens an image, locked. With `random` it is to be read in no order.
fn open(image: &Path, access: Access, mut options: OpenOptions, random: bool) -> Outcome<Hifs> {
    let device = FileOptions::new(4096).random(random).open(image, access);
    let device = device.map_err(|e| {
        exit::or_reading(exit::of_device(image, &e), "mount it for reading: `-o ro`")
    })?;
    options.read_only |= access == Access::ReadOnly;
    let hifs = Hifs::open(Arc::new(device), options).map_err(|e| {
        let failure = exit::of_image(image, &e);
        // What stands in its way may be one bad sector.
        if e.device().is_some_and(|device| device.kind() == tacita_block::Kind::Io) {
            return failure.with_remedy(format!("{}; {SALVAGE}", exit::MEDIUM));
        }
        failure
    })?;
    if let Some(warning) = hifs.warning() {
        output::say(&format!(
            "tacita: {}: damaged: {warning}\n  opened read-only; copy the files off with `tacita hifs \
             unpack` and make a new image",
            shown_name(image)
        ));
    }
    Ok(hifs)
}

fn open_to_read(image: &Path) -> Outcome<Hifs> {
    open(image, Access::ReadOnly, OpenOptions::default(), false)
}

/// Opens what is left of a damaged image, and tells what is damaged.
fn open_damaged(image: &Path) -> Outcome<Hifs> {
    let device = FileOptions::new(4096).open(image, Access::ReadOnly);
    let device = device.map_err(|e| exit::of_device(image, &e))?;
    let hifs = Hifs::salvage(Arc::new(device), OpenOptions::default())
        .map_err(|e| exit::of_image(image, &e))?;
    for damage in &hifs.losses().damage {
        output::say(&format!("tacita: {}: damaged: {damage}", shown_name(image)));
    }
    Ok(hifs)
}

fn unpack(image: &Path, folder: &Path, salvage: bool, json: bool) -> Outcome<()> {
    let hifs = if salvage { open_damaged(image)? } else { open_to_read(image)? };
    let bar = output::progress("unpacking", hifs.survey().content_bytes);
    let failed = |e: &PackError| match create::of_pack(e) {
        full if full.code == exit::NO_SPACE => full.with_remedy("make room there"),
        other => other,
    };
    let at = |source: std::io::Error| {
        failed(&PackError { path: folder.to_owned(), source: source.into() })
    };
    let new = NewFolder::prepare_closed(folder).map_err(at)?;
    let filled = new.path();
    let mut progress = |bytes| bar.set_position(bytes);
    // Of what has failed its name is told as it was to be: what was begun is gone.
    let to_be = |e: PackError| match e.path.strip_prefix(&filled) {
        Ok(rest) if rest.as_os_str().is_empty() => PackError { path: folder.to_owned(), ..e },
        Ok(rest) => PackError { path: folder.join(rest), ..e },
        Err(_) => e,
    };
    let carried =
        tacita_hifs::pack::unpack(&hifs, &filled, &mut progress).map_err(|e| failed(&to_be(e)))?;
    let within = |path: &Path| path.strip_prefix(&filled).unwrap_or(path).to_owned();
    let unread: Vec<_> =
        carried.unread.iter().map(|(path, bytes)| (within(path), *bytes)).collect();
    let devices: Vec<_> = carried.devices_left_out.iter().map(|path| within(path)).collect();
    new.publish().map_err(at)?;
    bar.finish_and_clear();
    for path in &devices {
        let path = shown_name(folder.join(path));
        output::say(&format!("{path}: a device, which this user may not make, is left out"));
    }
    let lost = &hifs.losses().lost;
    if !unread.is_empty() || !lost.is_empty() {
        return Err(tell_losses(image, folder, &unread, lost));
    }
    if !devices.is_empty() {
        let text = format!("{}: {} devices are left out", shown_name(folder), devices.len());
        let remedy = "all others are there; for these, too, run it as root, and in no container";
        return Err(Failure::new(exit::NOT_HERE, text).with_remedy(remedy));
    }
    let what = format!("unpacked into {}", shown_name(folder));
    create::report_carried(json, &carried, &what)
}

/// Tells what of an image could not be read, and what stands for it.
fn tell_losses(image: &Path, folder: &Path, unread: &[(PathBuf, u64)], lost: &[Loss]) -> Failure {
    for Loss { path, what } in lost {
        let path = folder.join(path.strip_prefix("/").unwrap_or(path));
        output::say(&format!("{}: lost: {what}", shown_name(&path)));
    }
    for (path, bytes) in unread {
        let path = folder.join(path);
        let is_there = path.symlink_metadata().is_ok();
        let instead = if is_there { "zeros stand for them" } else { "the link is left out" };
        output::say(&format!("{}: {bytes} bytes could not be read: {instead}", shown_name(&path)));
    }
    let files: BTreeSet<&Path> = unread
        .iter()
        .map(|(path, _)| path.as_path())
        .chain(lost.iter().map(|loss| loss.path.strip_prefix("/").unwrap_or(&loss.path)))
        .collect();
    let text = format!("{}: {} files could not be read as a whole", shown_name(image), files.len());
    Failure::new(exit::DEVICE, text).with_remedy(format!("{} holds all others", shown_name(folder)))
}
