//! Purgefs beside the file system beneath it and a FUSE pass-through: what purging costs.
//!
//! Every contender works on the same kind of image, an ext4 on a loop device of its own, in
//! interleaved rounds. Times end with the work; what a mount has left for later by then is finished
//! before the next contender begins, and how long that took is told apart.

pub(crate) mod deleting;
mod package;
mod targets;
mod work;

use std::cell::Cell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tacita_daemon::voice::shown_name;
pub(crate) use targets::promises;

use crate::arguments::PurgeOptions;
use crate::harness::record::Record;
use crate::harness::rounds;
use crate::harness::runner::{self, tacita};
use crate::harness::statistics::mib;

/// Longest single command.
const LIMIT: Duration = Duration::from_mins(10);

/// Size of the images.
const IMAGE_LEN_BYTES: u64 = 1 << 30;

/// Who works: a name, and how its folder is made from the lower one.
struct Contender {
    name: &'static str,
    way: Way,
}

enum Way {
    Native,
    Bindfs,
    Purge(&'static [&'static str]),
}

const CONTENDERS: [Contender; 7] = [
    Contender { name: "native", way: Way::Native },
    Contender { name: "bindfs", way: Way::Bindfs },
    Contender { name: "purge-off", way: Way::Purge(&["--marked-only"]) },
    Contender { name: "async-clear", way: Way::Purge(&["--async"]) },
    Contender { name: "async-e", way: Way::Purge(&["--async", "--method", "e"]) },
    Contender { name: "sync-clear", way: Way::Purge(&[]) },
    Contender { name: "sync-e", way: Way::Purge(&["--method", "e"]) },
];

/// A contender at work.
struct Place {
    lower: PathBuf,
    dir: PathBuf,
    mounted: bool,
    purges: bool,
    /// What had been done when it was last asked.
    seen: Cell<Purged>,
}

impl Purged {
    fn text(&self) -> String {
        format!(
            "{:.1} MiB deleted, {:.1} MiB of them never stored, {:.1} MiB overwritten: {:.3} a byte \
             deleted; {:.2} s to finish",
            mib(self.deleted),
            mib(self.never_stored),
            mib(self.overwritten),
            mib(self.overwritten) / mib(self.deleted.max(1)),
            self.finishing.as_secs_f64()
        )
    }
}

/// What a mount has done so far, in bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Purged {
    deleted: u64,
    never_stored: u64,
    overwritten: u64,
    /// Time that finishing took after the work.
    finishing: Duration,
}

/// Measures all contenders.
pub(crate) fn run(options: &PurgeOptions, scratch: &Path) -> Result<Vec<Record>> {
    if !rustix::process::geteuid().is_root() {
        bail!("loop mounts need root");
    }
    let chosen = |name: &str, only: &[String]| only.is_empty() || only.iter().any(|o| o == name);
    let works: Vec<_> = work::ALL.iter().filter(|w| chosen(w.name, &options.workloads)).collect();
    let contenders: Vec<_> = CONTENDERS.iter().filter(|c| chosen(c.name, &options.peers)).collect();
    if works.is_empty() || contenders.is_empty() {
        bail!("nothing is left to measure: no such workload or peer");
    }
    let folder = tempfile::Builder::new().prefix("bench-purge-").tempdir_in(scratch)?;
    let source = package::fetch(&options.package, folder.path());
    let mut places = Vec::new();
    for contender in &contenders {
        places.push(Place::new(contender, folder.path())?);
    }
    let mut records: Vec<Record> = contenders
        .iter()
        .flat_map(|contender| works.iter().map(move |work| record(contender.name, work)))
        .collect();
    let mut purged = vec![Purged::default(); records.len()];
    for round in 0..options.rounds {
        for (index, work) in works.iter().enumerate() {
            rounds::round(round, places.len(), |number| {
                let (place, at) = (&places[number], number * works.len() + index);
                let dir = place.dir.join(format!("{}-{round}", work.name));
                match work.measure(&dir, &place.lower, source.as_deref()) {
                    Ok(value) => records[at].samples.push(value),
                    Err(e) => records[at].note = format!("{e:#}"),
                }
                place.settle(&mut purged[at])
            })?;
        }
        eprintln!("round {} of {} done", round + 1, options.rounds);
    }
    for (record, purged) in records.iter().zip(&purged).filter(|(_, p)| p.deleted > 0) {
        eprintln!("{}, {}: {}", record.workload, record.peer, purged.text());
    }
    Ok(records)
}

fn record(peer: &str, work: &work::Work) -> Record {
    Record {
        profile: "purge".into(),
        workload: work.name.into(),
        peer: peer.into(),
        unit: work.unit.into(),
        image_bytes: IMAGE_LEN_BYTES,
        ..Record::default()
    }
}

impl Place {
    fn new(contender: &Contender, folder: &Path) -> Result<Self> {
        let name = contender.name;
        let image = folder.join(format!("{name}.img"));
        let lower = folder.join(format!("{name}.lower"));
        File::create(&image)?.set_len(IMAGE_LEN_BYTES)?;
        fs::create_dir(&lower)?;
        let mut format = Command::new("mkfs.ext4");
        runner::run(format.args(["-q", "-F", "-b", "4096", "-m", "0"]).arg(&image), LIMIT)?;
        let mut mount = Command::new("mount");
        runner::run(mount.args(["-o", "loop"]).arg(&image).arg(&lower), LIMIT)?;
        let mut place = Self {
            dir: lower.clone(),
            lower,
            mounted: false,
            purges: false,
            seen: Cell::default(),
        };
        let dir = folder.join(name);
        fs::create_dir(&dir)?;
        match contender.way {
            Way::Native => {}
            Way::Bindfs => {
                runner::run(Command::new("bindfs").arg(&place.lower).arg(&dir), LIMIT)?;
                (place.dir, place.mounted) = (dir, true);
            }
            Way::Purge(options) => {
                let mut purge = Command::new(tacita()?);
                purge.args(["purge", "mount"]).arg(&place.lower).arg(&dir).args(options);
                runner::run(&mut purge, LIMIT)?;
                (place.dir, place.mounted, place.purges) = (dir, true, true);
            }
        }
        Ok(place)
    }

    /// Finishes what has been left for later, and adds what the mount has done since the last
    /// time.
    fn settle(&self, sum: &mut Purged) -> Result<()> {
        if !self.purges {
            return Ok(rustix::fs::syncfs(File::open(&self.lower)?)?);
        }
        let begin = Instant::now();
        let now = self.facts()?;
        sum.finishing += begin.elapsed();
        let before = self.seen.replace(now);
        sum.deleted += now.deleted - before.deleted;
        sum.never_stored += now.never_stored - before.never_stored;
        sum.overwritten += now.overwritten - before.overwritten;
        Ok(rustix::fs::syncfs(File::open(&self.lower)?)?)
    }

    fn facts(&self) -> Result<Purged> {
        let mut status = Command::new(tacita()?);
        status.args(["purge", "status", "--json", "--finish"]);
        let facts: serde_json::Value =
            serde_json::from_str(&runner::run(status.arg(&self.dir), LIMIT)?)?;
        let number = |key: &str| facts[key].as_u64().unwrap_or(0);
        Ok(Purged {
            deleted: number("bytes_deleted"),
            never_stored: number("bytes_in_memory"),
            overwritten: number("bytes_overwritten"),
            finishing: Duration::ZERO,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let unmount = |dir: &Path| {
            let done = runner::run(Command::new("umount").arg(dir), LIMIT);
            if let Err(e) = done {
                eprintln!("{}: {e:#}", shown_name(dir));
            }
        };
        if self.mounted {
            unmount(&self.dir);
            // The daemon lets go of the lower file system a moment later.
            let _ = runner::wait_until(LIMIT, || runner::process_with(&self.lower).is_none());
            thread::sleep(Duration::from_millis(200));
        }
        unmount(&self.lower);
    }
}
