//! The control: the same stories on an ordinary file system must give away what HIFS does not.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Evidence;
use super::ward::{Event, count, marker, play, record, search};
use crate::exit::Outcome;

const IMAGE_LEN: u64 = 16 << 20;
/// Both images get the same identity, so that they differ by their stories alone.
const UUID: &str = "7ac17a00-0000-4000-8000-000000000000";

/// What is seen, and the images.
type Control = (Vec<Evidence>, Option<[Vec<u8>; 2]>);

/// Tells both stories on ext4, where the machine can make one.
pub(super) fn control(folder: &Path, a: &[Event], b: &[Event]) -> Outcome<Control> {
    let what = "ordinary ext4 images of the same two stories give them away";
    let images = [(folder.join("ext4-a.img"), a), (folder.join("ext4-b.img"), b)];
    let mut way = "";
    for (image, events) in &images {
        if !make(image)? {
            let why = "mkfs.ext4 is not installed (package e2fsprogs)";
            return Ok((vec![Evidence::skipped(what, why)], None));
        }
        way = if let Some(way) = tell(folder, image, events)? {
            way
        } else {
            let why = "neither a loop mount nor debugfs works here";
            return Ok((vec![Evidence::skipped(what, why)], None));
        };
    }
    let (image_a, image_b) = (fs::read(&images[0].0)?, fs::read(&images[1].0)?);
    let blocks = image_a.chunks(4096).zip(image_b.chunks(4096));
    let differing = blocks.filter(|(a, b)| a != b).count();
    let kept = count(&image_a, &marker("special", "rick"));
    let seen = vec![
        Evidence::new(
            "ordinary ext4 images of the same two stories differ",
            format!("{differing} blocks differ ({way})"),
            differing > 0 && kept > 0,
        ),
        search(&image_a, "the ext4 image of story A", 1),
    ];
    Ok((seen, Some([image_a, image_b])))
}

pub(super) fn quiet(program: &str, arguments: &[&str]) -> std::io::Result<bool> {
    // Administrators' tools are not on every user's path.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let done =
        Command::new(program).args(arguments).env("PATH", path).stdin(Stdio::null()).output();
    match done {
        Ok(output) => Ok(output.status.success()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn make(image: &Path) -> Outcome<bool> {
    let file = fs::File::create(image)?;
    file.set_len(IMAGE_LEN)?;
    let seed = format!("hash_seed={UUID}");
    let image = image.to_string_lossy();
    Ok(quiet("mkfs.ext4", &["-q", "-F", "-b", "4096", "-U", UUID, "-E", &seed, &image])?)
}

/// Returns by which way the story was told.
fn tell(folder: &Path, image: &Path, events: &[Event]) -> Outcome<Option<&'static str>> {
    let dir: PathBuf = folder.join("mount-ext4");
    fs::create_dir_all(&dir)?;
    let (image_name, dir_name) = (image.to_string_lossy(), dir.to_string_lossy());
    if quiet("mount", &["-o", "loop", &image_name, &dir_name])? {
        let played = play(events, &dir);
        let unmounted = quiet("umount", &[&dir_name])?;
        played?;
        return Ok(unmounted.then_some("the kernel's ext4"));
    }
    Ok(tell_by_debugfs(folder, &image_name, events)?.then_some("ext4 by debugfs"))
}

fn tell_by_debugfs(folder: &Path, image: &str, events: &[Event]) -> Outcome<bool> {
    let mut script = String::from("mkdir general\nmkdir special\n");
    for (number, event) in events.iter().enumerate() {
        match event {
            Event::Admit(ward, patient) => {
                let source = folder.join(format!("record-{number}"));
                fs::write(&source, record(ward, patient))?;
                script.extend(["write ", &source.to_string_lossy(), " ", ward, "/", patient, "\n"]);
            }
            Event::Discharge(ward, patient) => {
                script.extend(["rm ", ward, "/", patient, "\n"]);
            }
        }
    }
    let commands = folder.join("debugfs-commands");
    fs::write(&commands, script)?;
    Ok(quiet("debugfs", &["-w", "-f", &commands.to_string_lossy(), image])?)
}
