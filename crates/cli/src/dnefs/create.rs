//! `tacita dnefs format`, `passwd` and `erase`.

use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use rustix::process::{getgid, getuid};
use serde_json::{Value, json};
use tacita_block::{FileOptions, size};
use tacita_clock::{Clock, System};
use tacita_daemon::control::path_to_json;
use tacita_dnefs::{
    CipherChoice, Compression, FormatOptions, Kind, LEBS_MIN, Layout, Parameters, Time, plan,
    read_superblock,
};
use tacita_flash::{Emulator, EmulatorOptions, EraseReport, Leb, Volume};
use tacita_secret::Password;

use super::chip::{Chip, is_device};
use crate::arguments::{CipherName, CompressionName, Dnefs as Command};
use crate::exit::{self, Failure, Outcome};
use crate::output::shown_name;
use crate::{output, passwords};

/// What is made when nothing else is said.
const PAGE_LEN_BYTES: u64 = 2048;
const PAGES_PER_BLOCK: u32 = 64;

pub(super) fn format(command: &Command) -> Outcome<()> {
    let Command::Format { volume: path, json, .. } = command else {
        unreachable!("called for format");
    };
    let made = if is_device(path) { format_device(command) } else { format_file(command) }?;
    let heard = output::done(*json, &made.facts(path), &made.text(path));
    // Nothing was in the blocks of a new file.
    if is_device(path) {
        told(path, Ok(made.erased))?;
    }
    heard
}

/// A new volume.
struct Made {
    layout: Layout,
    parameters: Parameters,
    erased: EraseReport,
}

impl Made {
    /// Bytes of the erase blocks that nodes are in.
    fn main_bytes(&self) -> u64 {
        u64::from(self.layout.main_lebs) * u64::from(self.parameters.leb_len_bytes)
    }

    fn facts(&self, path: &Path) -> Value {
        json!({
            "volume": path_to_json(path),
            "main_bytes": self.main_bytes(),
            "node_bytes": self.parameters.node_len_bytes,
            "keys": self.layout.keys(),
        })
    }

    fn text(&self, path: &Path) -> String {
        format!(
            "{}: {} for nodes of up to {}, {} keys\n",
            shown_name(path),
            size::show(self.main_bytes()),
            size::show(u64::from(self.parameters.node_len_bytes)),
            self.layout.keys()
        )
    }
}

/// On a device, whose shape is what it is.
fn format_device(command: &Command) -> Outcome<Made> {
    let Command::Format { volume: path, size, page_size, pages_per_block, force, .. } = command
    else {
        unreachable!("called for format");
    };
    if size.is_some() || page_size.is_some() || pages_per_block.is_some() {
        return Err(Failure::usage(format!("{}: a device has its own size", shown_name(path)))
            .with_remedy("leave out --size, --page-size and --pages-per-block"));
    }
    let options = options(command)?;
    let volume = Chip::open(path)?.volume();
    // Absurd parameters are refused before anything is touched.
    plan(volume.geometry(), &options).map_err(|e| exit::of_dnefs(path, &e))?;
    if !force && is_in_use(&*volume).map_err(|e| exit::of_flash(path, &e))? {
        return Err(Failure::usage(format!("{}: there is something in it", shown_name(path)))
            .with_remedy("give --force to overwrite it"));
    }
    fill(path, &volume, &options, password(command)?.as_ref())
}

/// Whether anything was written to a volume.
fn is_in_use(volume: &dyn Volume) -> tacita_flash::Result<bool> {
    for leb in (0..volume.geometry().lebs).map(Leb) {
        if volume.is_mapped(leb)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// In a file, which becomes an emulated chip.
fn format_file(command: &Command) -> Outcome<Made> {
    let Command::Format { volume: path, size, page_size, pages_per_block, force, .. } = command
    else {
        unreachable!("called for format");
    };
    if path.parent() == Some(Path::new("/dev")) && !path.exists() {
        return Err(exit::no_device(path));
    }
    let Some(size) = *size else {
        return Err(Failure::usage(format!("{}: a file needs a size", shown_name(path)))
            .with_remedy("give --size, as --size 256M"));
    };
    let options = options(command)?;
    refuse_what_is_there(path, *force)?;
    let page_len_bytes = page_size.unwrap_or(PAGE_LEN_BYTES);
    let pages_per_block = pages_per_block.unwrap_or(PAGES_PER_BLOCK);
    let chip = EmulatorOptions {
        page_len_bytes: u32::try_from(page_len_bytes).unwrap_or(u32::MAX),
        pages_per_block,
        ..EmulatorOptions::default()
    }
    .len_bytes(size);
    let password = password(command)?;
    // Absurd parameters are refused before anything is touched.
    let geometry = chip.geometry().map_err(|e| {
        let block = size::show(page_len_bytes.saturating_mul(pages_per_block.into()));
        exit::of_flash(path, &e).with_remedy(format!(
            "erase blocks have {block} here: change --size, --page-size or --pages-per-block"
        ))
    })?;
    plan(geometry, &options).map_err(|e| {
        let failure = exit::of_dnefs(path, &e);
        if geometry.lebs >= LEBS_MIN {
            return failure;
        }
        failure.with_remedy(
            "give more room by --size, or smaller erase blocks by --page-size or --pages-per-block",
        )
    })?;
    // Whoever has it mounted is not to lose it.
    let failed = |e| exit::of_device(path, &e);
    let new = FileOptions::new(4096).replace(*force).create_unpublished(path, size);
    let new = new.map_err(failed)?;
    let file = new.file().try_clone().map_err(|e| output::of_file(path, e))?;
    let chip = Emulator::create_in(file, &chip).map_err(|e| exit::of_flash(path, &e))?;
    let chip: Arc<dyn Volume> = Arc::new(chip);
    let made = fill(path, &chip, &options, password.as_ref())?;
    refuse_what_is_there(path, *force)?;
    output::publish(&new).map_err(failed)?;
    Ok(made)
}

/// Looks whether a new file may have this name: when it is begun, and again when it is made.
fn refuse_what_is_there(path: &Path, force: bool) -> Outcome<()> {
    if path.exists() && !path.is_file() {
        let text = format!("{}: neither a file nor a volume of UBI", shown_name(path));
        return Err(Failure::usage(text).with_remedy("name a new file"));
    }
    if path.exists() && !force {
        return Err(Failure::usage(format!("{}: it exists already", shown_name(path)))
            .with_remedy("give --force to overwrite it"));
    }
    Ok(())
}

/// Makes the volume.
fn fill(
    path: &Path,
    volume: &Arc<dyn Volume>,
    options: &FormatOptions,
    password: Option<&Password>,
) -> Outcome<Made> {
    let of = |e: tacita_dnefs::Error| exit::of_dnefs(path, &e);
    let erased = tacita_dnefs::format(volume, options, password).map_err(of)?;
    let parameters = read_superblock(&**volume).map_err(of)?.parameters;
    let layout = Layout::new(&parameters).expect("it was made so");
    Ok(Made { layout, parameters, erased })
}

fn options(command: &Command) -> Outcome<FormatOptions> {
    let Command::Format { node_size, key, cipher, compression, .. } = command else {
        unreachable!("called for format");
    };
    let cipher = match (cipher, key) {
        (CipherName::AesGcm, 32) => CipherChoice::Aes256Gcm,
        (CipherName::AesGcm, 16) => CipherChoice::Aes128Gcm,
        (CipherName::Aes128Ctr, 16) => CipherChoice::Aes128Ctr,
        (CipherName::Aes128Ctr, _) => {
            return Err(Failure::usage("aes128-ctr has keys of 16 bytes")
                .with_remedy("give --key 16 with it"));
        }
        _ => return Err(exit::key_length(*key)),
    };
    let since = System.wall().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(FormatOptions {
        node_len_bytes: u32::try_from(*node_size).unwrap_or(u32::MAX),
        cipher,
        compression: match compression {
            CompressionName::Lz4 => Compression::Lz4,
            CompressionName::Zstd => Compression::Zstd,
            CompressionName::None => Compression::None,
        },
        key_lebs: None,
        owner: (getuid().as_raw(), getgid().as_raw()),
        now: Time {
            secs: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            nanos: since.subsec_nanos(),
        },
    })
}

fn password(command: &Command) -> Outcome<Option<Password>> {
    let Command::Format { password, from, .. } = command else {
        unreachable!("called for format");
    };
    if !password && !from.is_given() {
        return Ok(None);
    }
    passwords::not_empty(from.read_new("new password")?).map(Some)
}

pub(super) fn passwd(
    path: &Path,
    from: &passwords::From,
    change: &passwords::Change,
) -> Outcome<()> {
    let volume = Chip::open(path)?.volume();
    let generation = || read_superblock(&*volume).map(|superblock| superblock.generation);
    let before = generation().map_err(|e| exit::of_dnefs(path, &e))?;
    let old = super::password(path, &*volume, from)?;
    let new = change.read()?;
    let report = tacita_dnefs::set_password(&*volume, old.as_ref(), new.as_ref());
    let has_failed = report.is_err();
    told(path, report).map_err(|failure| {
        if !has_failed || generation().is_ok_and(|now| now == before) {
            return failure;
        }
        let cause =
            format!("{}; the change has begun: it opens by the new password", failure.cause);
        let end = "finish it: mount it for writing, or change the password once more";
        let remedy =
            failure.remedy.as_ref().map_or(end.into(), |first| format!("{first}, and {end}"));
        Failure { cause, ..failure }.with_remedy(remedy)
    })
}

pub(super) fn erase(path: &Path, force: bool) -> Outcome<()> {
    let volume = Chip::open(path)?.volume();
    if !force {
        return Err(Failure::usage(format!(
            "{}: this destroys all that is in it",
            shown_name(path)
        ))
        .with_remedy("give --force to do it"));
    }
    let report = tacita_dnefs::erase(&*volume);
    drop(volume);
    let has_failed = report.is_err();
    told(path, report)
        .map_err(|failure| if has_failed { not_erased(path, &failure) } else { failure })
}

/// That erasing a volume has failed, with what it is now, and what is to be done.
fn not_erased(path: &Path, failure: &Failure) -> Failure {
    let found = Chip::open_read_only(path).map(|chip| read_superblock(&*chip.volume()));
    let now = match found {
        Ok(Ok(_)) => "it is not erased, and opens as before",
        Ok(Err(e)) if e.kind() == Kind::NotAVolume => {
            "its superblocks, without which no key can be opened, are gone from it, but may be back after a \
             crash of the machine"
        }
        _ => "whether it is erased cannot be seen",
    };
    let first = failure.remedy.as_deref().unwrap_or(exit::MEDIUM);
    Failure::new(failure.code, format!("{}; {now}", failure.cause))
        .with_remedy(format!("{first}, and erase it again, until that does not fail"))
}

/// Says so if what was to be erased may be left in a block that went bad.
pub(super) fn told(path: &Path, report: tacita_dnefs::Result<EraseReport>) -> Outcome<()> {
    let report = report.map_err(|e| exit::of_dnefs(path, &e))?;
    if report.bad_after > report.bad_before {
        return Err(Failure::new(
            exit::WRONG,
            format!(
                "{}: a block went bad while it was erased: its content may be left",
                shown_name(path)
            ),
        )
        .with_remedy("look for it with `tacita dnefs dump`; only the end of the chip is sure"));
    }
    Ok(())
}
