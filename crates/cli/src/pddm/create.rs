//! `tacita pddm init`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tacita_block::{Access, BlockDevice, BlockNo, FileDevice, FileOptions, is_zero, size};
use tacita_pddm::{DEVICE_LEN_MAX_BYTES, Entropy, Geometry, Making, Parameters, Unlock};
use tacita_secret::Password;

use super::{failure, name_of, shape};
use crate::arguments::Pddm as Command;
use crate::exit::{self, Failure, Outcome};
use crate::output::shown_name;
use crate::{output, passwords};

/// So much at the beginning of a device says whether it holds something.
const LOOK_LEN: usize = 1 << 20;
/// A day between units of padding, in milliseconds.
const HEARTBEAT_MS_MAX: u32 = 86_400_000;
/// What the superblock can say; less would be written there as never.
const HEARTBEAT_MIN: Duration = Duration::from_millis(1);

pub(super) fn run(command: &Command) -> Outcome<()> {
    let Command::Init {
        device: path,
        size,
        shape,
        heartbeat,
        password,
        hidden_password_file,
        force,
        json,
    } = command
    else {
        unreachable!("called for init");
    };
    let parameters = Parameters { heartbeat_ms: heartbeat_ms(*heartbeat)?, ..shape::of(shape)? };
    // Absurd parameters are refused before anything is touched.
    let is_new = !path.try_exists().map_err(|e| output::of_file(path, e))?;
    if is_new {
        let size = size.ok_or_else(|| {
            Failure::usage(format!("{}: there is no such file", shown_name(path)))
                .with_remedy("give --size to make it")
        })?;
        Geometry::new(parameters, size / 4096).map_err(|e| failure(path, &e))?;
    }
    let (public, hidden) = passwords(&parameters, password, hidden_password_file)?;
    let there = if is_new { None } else { Some(existing(path, *size, *force)?) };
    let new_len = size.unwrap_or_default();
    let blocks = there.as_ref().map_or(new_len / 4096, |device| device.geometry().blocks);
    let geometry = Geometry::new(parameters, blocks).map_err(|e| failure(path, &e))?;
    let unlocks: Vec<Unlock<'_>> = hidden.iter().map(Unlock::Password).collect();
    let public = Unlock::Password(&public);
    let making = Making::new(&parameters, blocks, public, &unlocks, Entropy::default());
    let making = making.map_err(|e| failure(path, &e))?;
    // Not before: how long it is from the birth of a file to its name would tell how many passwords it has.
    let device = match there {
        Some(device) => device,
        None => new_file(path, new_len)?,
    };
    let blocks: Arc<dyn BlockDevice> = device.clone();
    making.write(&blocks).map_err(|e| failure(path, &e))?;
    device.publish(&mut |_, _| {}).map_err(|e| exit::of_device(path, &e))?;
    report(path, &geometry, *json)
}

/// The same words whatever there is.
fn report(path: &Path, geometry: &Geometry, json: bool) -> Outcome<()> {
    let bytes = |level| u64::from(geometry.volume_blocks(level)) * 4096;
    let volumes: Vec<_> = geometry.levels().map(|level| (name_of(level), bytes(level))).collect();
    let parts = volumes.iter().map(|(name, bytes)| format!("{name} {}", size::show(*bytes)));
    let device_len = geometry.device_blocks() * 4096;
    let unused = if device_len > DEVICE_LEN_MAX_BYTES {
        format!(" ({} of it are used)", size::show(DEVICE_LEN_MAX_BYTES))
    } else {
        String::new()
    };
    let text = format!(
        "{}: {} device{unused}, {} units of {}; room for {}\n",
        shown_name(path),
        size::show(device_len),
        geometry.units(),
        size::show(u64::from(geometry.unit_blocks()) * 4096),
        parts.collect::<Vec<_>>().join(", ")
    );
    let room = volumes.iter().map(|(name, bytes)| json!({ "name": name, "bytes": bytes }));
    let value = json!({
        "device_bytes": device_len,
        "units": geometry.units(),
        "unit_bytes": u64::from(geometry.unit_blocks()) * 4096,
        "room": room.collect::<Vec<_>>(),
    });
    output::done(json, &value, &text)
}

/// Everybody is asked the same questions.
fn passwords(
    parameters: &Parameters,
    public: &passwords::From,
    hidden: &[std::path::PathBuf],
) -> Outcome<(Password, Vec<Password>)> {
    if hidden.len() > parameters.classes as usize {
        let text = format!("{} hidden passwords, but {} classes", hidden.len(), parameters.classes);
        return Err(Failure::usage(text).with_remedy("raise --classes"));
    }
    let first = public.read_new("Public password")?;
    let mut others = Vec::new();
    for file in hidden {
        others.push(passwords::first_line(file)?);
    }
    if !public.is_given() && hidden.is_empty() {
        for class in 1..=parameters.classes {
            let prompt = format!("Password of hidden volume {class} (empty for none)");
            let password = passwords::ask_twice(&prompt)?;
            if password.is_empty() {
                break;
            }
            others.push(password);
        }
    }
    let mut seen = vec![&first];
    for password in &others {
        if seen.contains(&password) {
            return Err(Failure::usage("two of the passwords are the same")
                .with_remedy("give every volume one of its own"));
        }
        seen.push(password);
    }
    if seen.iter().any(|password| password.is_empty()) {
        return Err(Failure::usage("a password is empty").with_remedy("give another one"));
    }
    Ok((first, others))
}

/// A new file, which has no name until it is finished.
fn new_file(path: &Path, size: u64) -> Outcome<Arc<FileDevice>> {
    let made = FileOptions::new(4096).create_unpublished(path, size);
    Ok(Arc::new(made.map_err(|e| exit::of_new_file(path, &e))?))
}

/// What is there, and becomes the device.
fn existing(path: &Path, size: Option<u64>, force: bool) -> Outcome<Arc<FileDevice>> {
    let failed = |e: tacita_block::Error| exit::of_device(path, &e);
    let device = FileDevice::open(path, Access::ReadWrite, 4096).map_err(failed)?;
    let whole_blocks = device.geometry().len_bytes();
    if let Some(size) = size
        && size != whole_blocks
    {
        let here = whole_blocks + device.rest().map_err(failed)?.len() as u64;
        let text = format!("{} has {}", shown_name(path), size::show(here));
        return Err(Failure::usage(text).with_remedy("leave --size out, or remove the file"));
    }
    // What is overwritten whatever it is may be a bad sector, too.
    if !force && !is_empty(&device).map_err(failed)? {
        let text = format!("{}: it is not empty", shown_name(path));
        return Err(Failure::usage(text).with_remedy("--force overwrites it"));
    }
    Ok(Arc::new(device))
}

/// Whether the beginning of a device holds nothing.
fn is_empty(device: &FileDevice) -> tacita_block::Result<bool> {
    let len = device.geometry().len_bytes();
    let mut head = vec![0; LOOK_LEN.min(usize::try_from(len).unwrap_or(LOOK_LEN))];
    device.read(BlockNo(0), &mut head)?;
    Ok(is_zero(&head))
}

fn heartbeat_ms(heartbeat: Duration) -> Outcome<u32> {
    if !heartbeat.is_zero() && heartbeat < HEARTBEAT_MIN {
        return Err(Failure::usage(format!("a heartbeat each {heartbeat:?}"))
            .with_remedy("a millisecond at least, or 0 for never"));
    }
    let ms = u32::try_from(heartbeat.as_millis()).ok().filter(|ms| *ms <= HEARTBEAT_MS_MAX);
    ms.ok_or_else(|| {
        let seconds = heartbeat.as_secs();
        Failure::usage(format!("a heartbeat each {seconds} seconds")).with_remedy("a day at most")
    })
}
