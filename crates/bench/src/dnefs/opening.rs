//! Mounting a volume with 1 GiB of content: clean, and after its daemon was killed; and the memory
//! that it takes then.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{peer, record};
use crate::harness::record::Record;
use crate::harness::runner;
use crate::harness::statistics::real;
use crate::hifs::peer::Peer;
use crate::hifs::volume::Volume;
use crate::hifs::workload::{Files, Profile};

/// What is in the volume, and what is written before each crash: nearly as much as a checkpoint is
/// written after.
const CONTENT_BYTES: u64 = 1 << 30;
const NEWER_BYTES: u64 = 60 << 20;
/// Room for that, and for what is obsolete.
const SIZE_BYTES: u64 = 2 << 30;
/// Sizes of the volume whose memory is counted, full to four fifths by that content, and of an
/// empty one that it is counted beyond.
const FULL_BYTES: u64 = 1300 << 20;
const EMPTY_BYTES: u64 = 8 << 20;
/// Longest status.
const LIMIT: Duration = Duration::from_secs(20);

/// Measures the default mode.
pub(super) fn run(rounds: u32, scratch: &Path) -> Result<Vec<Record>> {
    let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(scratch)?;
    let dnefs = peer::one("dnefs")?;
    let memory = memory(&*dnefs, folder.path())?;
    let mut volume = filled(&*dnefs, folder.path(), SIZE_BYTES)?;
    let (mut clean, mut crashed) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        runner::check_stop()?;
        volume.unmount()?;
        runner::drop_pages(volume.image());
        clean.push(volume.mount()?.as_secs_f64() * 1000.0);
        crashed.push(after_crash(&mut volume, round)?);
    }
    Ok(vec![
        record("open", "clean", "dnefs", "ms", clean),
        record("open", "crashed", "dnefs", "ms", crashed),
        record("open", "memory", "dnefs", "bytes a node", vec![memory[0]]),
        record("open", "memory-filled", "dnefs", "bytes a node", vec![memory[1]]),
    ])
}

fn filled<'p>(dnefs: &'p dyn Peer, folder: &Path, size_bytes: u64) -> Result<Volume<'p>> {
    let volume = Volume::prepare(dnefs, folder, size_bytes)?;
    Files::new(Profile::Db).grow(&volume, CONTENT_BYTES)?;
    Ok(volume)
}

/// Bytes for each node of a full volume, beyond those of an empty one: after mounting, and after it
/// was filled.
fn memory(dnefs: &dyn Peer, folder: &Path) -> Result<[f64; 2]> {
    let base = resident_bytes(&Volume::prepare(dnefs, folder, EMPTY_BYTES)?)?;
    let mut volume = filled(dnefs, folder, FULL_BYTES)?;
    let nodes = nodes(&volume)?;
    let filled = (resident_bytes(&volume)? - base) / nodes;
    volume.unmount()?;
    volume.mount()?;
    Ok([(resident_bytes(&volume)? - base) / nodes, filled])
}

/// Time to mount after files were written and synced, and the daemon was killed, in milliseconds.
fn after_crash(volume: &mut Volume<'_>, round: u32) -> Result<f64> {
    let path = volume.dir().join("newer");
    fs::remove_file(&path).ok();
    crate::harness::content::append(&path, NEWER_BYTES, u64::from(round) + 100)?;
    volume.settle(volume.dir())?;
    volume.crash()?;
    runner::drop_pages(volume.image());
    Ok(volume.mount()?.as_secs_f64() * 1000.0)
}

/// Resident memory of the daemon.
fn resident_bytes(volume: &Volume<'_>) -> Result<f64> {
    let daemon = volume.daemon().context("there is no daemon")?;
    let field = runner::status_field(daemon, "VmRSS").context("it tells no memory")?;
    let kib: u64 = field.trim_end_matches(" kB").trim().parse()?;
    Ok(real(kib) * 1024.0)
}

/// Nodes of a mounted volume.
fn nodes(volume: &Volume<'_>) -> Result<f64> {
    let mut command = Command::new(runner::tacita()?);
    let said = runner::run(command.arg("status").arg(volume.dir()).arg("--json"), LIMIT)?;
    let status: serde_json::Value = serde_json::from_str(&said)?;
    Ok(real(status["facts"]["nodes"].as_u64().context("no number of nodes")?))
}
