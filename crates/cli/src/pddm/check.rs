//! `tacita pddm check`.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use tacita_block::{Access, BlockDevice};
use tacita_pddm::{Damage, Level, Options, Session, Unlock};
use tacita_secret::Password;

use super::{failure, name_of, only_if_wanted, open_device_or};
use crate::arguments::Pddm as Command;
use crate::exit::{self, Failure, Outcome};
use crate::output::{self, shown_name};

pub(super) fn run(command: &Command) -> Outcome<()> {
    let Command::Check { device: path, password, repair, public_only, json } = command else {
        unreachable!("called for check");
    };
    let access = if *repair { Access::ReadWrite } else { Access::ReadOnly };
    let device = open_device_or(path, access, "check it without `--repair`")?;
    let password = password.read("Password")?;
    if *repair {
        repair_what_is_public(path, &device, &password, *public_only)?;
    }
    let options = Options { read_only: true, ..Options::default() };
    let session = Session::open(&device, Unlock::Password(&password), options);
    let session = session.map_err(|e| failure(path, &e))?;
    let bar = output::progress("checking", device.geometry().len_bytes());
    let found = session.check(&mut |bytes| bar.set_position(bytes));
    let Damage { superblocks, units: damaged } = found.map_err(|e| failure(path, &e))?;
    bar.finish_and_clear();
    let (lost, written) = (lost(&session), session.written_units());
    let unit_blocks = u64::from(session.geometry().unit_blocks());
    let place = |unit: &u32| (u64::from(*unit) + 1) * unit_blocks * 4096;
    let units = damaged.iter().map(|unit| json!({ "unit": unit, "offset": place(unit) }));
    let whole = damaged.is_empty() && lost.is_empty() && superblocks.is_empty();
    let value = json!({
        "whole": whole,
        "units": session.geometry().units(),
        "written": written,
        "damaged": units.collect::<Vec<_>>(),
        "lost": lost.iter().map(|(name, count)| json!({ "name": name, "blocks": count }))
            .collect::<Vec<_>>(),
        "superblocks": superblocks,
    });
    let mut text = String::new();
    for at in &superblocks {
        let _ = writeln!(text, "{}: the superblock at byte {at} is damaged", shown_name(path));
    }
    for unit in &damaged {
        let _ =
            writeln!(text, "{}: unit {unit} at byte {} is damaged", shown_name(path), place(unit));
    }
    for (name, count) in &lost {
        let _ = writeln!(text, "{}: {name}: {count} blocks are lost", shown_name(path));
    }
    if whole {
        text = format!("{}: intact: {} units written so far\n", shown_name(path), written);
    }
    output::facts(*json, &value, &text)?;
    if whole {
        return Ok(());
    }
    let lost = lost.iter().map(|(_, count)| *count as usize).sum();
    Err(verdict(path, damaged.len(), superblocks.len(), lost))
}

/// That not all is intact, and how much of what is not.
fn verdict(path: &Path, units: usize, superblocks: usize, lost: usize) -> Failure {
    let counts =
        [(units, "damaged units"), (superblocks, "damaged superblocks"), (lost, "lost blocks")];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, what)| format!("{count} {what}")).collect();
    let text = format!("{}: {}", shown_name(path), counts.join(", "));
    Failure::new(exit::WRONG, text).with_remedy(if units == 0 && lost == 0 {
        "another copy is whole, and no content is lost; `--repair` or a sweep writes them again"
    } else {
        "blocks that are lost, or in damaged units, cannot be read until they are written again; \
         all others can"
    })
}

/// Volumes that have lost blocks, of those that the password opens.
fn lost(session: &Session) -> Vec<(String, u32)> {
    let volumes = session.volumes();
    let lost = volumes.iter().map(|volume| (name_of(volume.level()), volume.lost_blocks()));
    lost.filter(|(_, count)| *count > 0).collect()
}

/// Writes damaged superblocks, which needs no word where only the public volume is open: it destroys
/// nothing. Damaged pages of maps were made again in memory when the session was opened: writes the
/// public ones. Nothing is written where there are none.
fn repair_what_is_public(
    path: &Path,
    device: &Arc<dyn BlockDevice>,
    password: &Password,
    public_only: bool,
) -> Outcome<()> {
    let session = Session::open(device, Unlock::Password(password), Options::default());
    let session = session.map_err(|e| failure(path, &e))?;
    session.restore_superblocks().map_err(|e| failure(path, &e))?;
    let public = session.volume(Level::PUBLIC).expect("it is always open");
    if public.waiting_blocks() == 0 {
        return Ok(());
    }
    only_if_wanted(&session, public_only)?;
    session.close().map_err(|e| failure(path, &e))
}
