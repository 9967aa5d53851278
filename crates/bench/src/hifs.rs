//! HIFS's layouts beside other file systems, through real mounts: every peer filled alike, every
//! workload in interleaved rounds.

pub(crate) mod peer;
pub(crate) mod targets;
pub(crate) mod volume;
pub(crate) mod workload;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::arguments::HifsOptions;
use crate::harness::record::Record;
use crate::harness::{rounds, runner};
use peer::Peer;
use volume::Volume;
use workload::{Amounts, Files, Profile, Workload};

/// A peer that takes longer for one round of a group is not asked for another.
const SLOW: Duration = Duration::from_secs(12);

/// Least capacity: every file of a profile has some content at every load from 5% on.
const CAPACITY_MIN_BYTES: u64 = 64 << 20;

/// Rounds that a median needs; fewer are run only when the whole time is used up.
const ROUNDS_MIN: u32 = 3;

/// Loads, size, layouts and time of a full run; loads and layouts are the paper's.
const LOADS: [u32; 5] = [10, 30, 60, 80, 90];
const SIZE_BYTES: u64 = 1 << 30;
const LAYOUTS: [&str; 4] = ["a", "b", "c", "d"];
const BUDGET: Duration = Duration::from_mins(13);

/// Those of a quick one.
const QUICK_LOADS: [u32; 2] = [30, 80];
const QUICK_SIZE_BYTES: u64 = 512 << 20;
const QUICK_LAYOUTS: [&str; 2] = ["a", "d"];
const QUICK_BUDGET: Duration = Duration::from_mins(3);

/// Measures all that the options ask for.
pub(crate) fn run(options: &HifsOptions, scratch: &Path) -> Result<Vec<Record>> {
    let quick = options.quick;
    let default_layouts = if quick { &QUICK_LAYOUTS[..] } else { &LAYOUTS };
    let default_loads = if quick { &QUICK_LOADS[..] } else { &LOADS };
    let default_size = if quick { QUICK_SIZE_BYTES } else { SIZE_BYTES };
    let layouts = options.layouts.clone();
    let layouts = layouts.unwrap_or_else(|| default_layouts.iter().map(|&l| l.into()).collect());
    let mut loads = options.loads.clone().unwrap_or_else(|| default_loads.to_vec());
    // Images are filled from one load to the next.
    loads.sort_unstable();
    let peers = peer::select(&layouts, &options.peers, options.seed)?;
    if !runner::drop_caches() {
        eprintln!("only root can drop the caches of the machine: reads will be partly warm");
    }
    let profiles = options.profiles.iter().map(|name| Profile::named(name));
    let profiles: Vec<Profile> = profiles.collect::<Result<_>>()?;
    let groups: usize = profiles.iter().map(|p| p.groups().len()).sum();
    let mut pace = Pace {
        start: Instant::now(),
        budget: if quick { QUICK_BUDGET } else { BUDGET },
        parts: u32::try_from(groups * loads.len())?,
        done: 0,
    };
    let mut records = Vec::new();
    for profile in profiles {
        let session = Session {
            profile,
            size_bytes: options.size.unwrap_or(default_size),
            rounds: options.rounds,
            forget: |_| runner::drop_caches(),
        };
        records.extend(session.run(&peers, &loads, scratch, &mut pace)?);
    }
    Ok(records)
}

/// Measures a profile at one load. `forget` empties the caches of an image, and says whether it
/// could.
pub(crate) fn side_by_side(
    peers: &[Box<dyn Peer>],
    profile: Profile,
    load: u32,
    (size_bytes, rounds): (u64, u32),
    scratch: &Path,
    forget: fn(&Path) -> bool,
) -> Result<Vec<Record>> {
    let parts = u32::try_from(profile.groups().len())?;
    let mut pace = Pace { start: Instant::now(), budget: BUDGET, parts, done: 0 };
    Session { profile, size_bytes, rounds, forget }.run(peers, &[load], scratch, &mut pace)
}

/// Keeps a run within its time by leaving out rounds, never workloads.
struct Pace {
    start: Instant,
    budget: Duration,
    parts: u32,
    done: u32,
}

impl Pace {
    /// Whether `rounds` must be enough for the present part.
    fn ends_after(&self, rounds: u32) -> bool {
        let used = self.start.elapsed();
        let is_late = used > self.budget * (self.done + 1) / self.parts;
        match rounds {
            0 => false,
            1..ROUNDS_MIN => used > self.budget,
            _ => is_late,
        }
    }
}

/// One profile's measurements.
struct Session {
    profile: Profile,
    size_bytes: u64,
    rounds: u32,
    forget: fn(&Path) -> bool,
}

/// A volume under measurement, or why it is no more.
struct Contender<'p> {
    name: String,
    volume: Option<Volume<'p>>,
    /// Bytes that the empty file system could take.
    capacity_bytes: u64,
    files: Files,
    note: String,
}

impl<'p> Contender<'p> {
    fn prepare(&mut self, peer: &'p dyn Peer, folder: &Path, size_bytes: u64) -> Result<()> {
        let volume = Volume::prepare(peer, folder, size_bytes)?;
        self.capacity_bytes = volume.free_bytes()?;
        ensure!(
            self.capacity_bytes >= CAPACITY_MIN_BYTES,
            "{} bytes are too little",
            self.capacity_bytes
        );
        self.volume = Some(volume);
        Ok(())
    }

    /// Gives up on a peer, undoing its mount.
    fn retire(&mut self, error: &anyhow::Error) {
        eprintln!("{} is out: {error:#}", self.name);
        self.note = format!("{error:#}");
        self.volume = None;
    }
}

impl Session {
    fn run(
        &self,
        peers: &[Box<dyn Peer>],
        loads: &[u32],
        scratch: &Path,
        pace: &mut Pace,
    ) -> Result<Vec<Record>> {
        let folder = tempfile::Builder::new()
            .prefix("bench-")
            .tempdir_in(scratch)
            .context("no scratch folder")?;
        let mut contenders = Vec::new();
        for peer in peers {
            let mut contender = Contender {
                name: peer.name().into(),
                volume: None,
                capacity_bytes: 0,
                files: Files::new(self.profile),
                note: String::new(),
            };
            if let Err(error) = contender.prepare(&**peer, folder.path(), self.size_bytes) {
                contender.retire(&error);
            }
            contenders.push(contender);
        }
        let mut records = Vec::new();
        for &load in loads {
            for contender in &mut contenders {
                runner::check_stop()?;
                let Some(volume) = &contender.volume else {
                    continue;
                };
                let start = Instant::now();
                // The same share of what each can hold: that is what slows HIFS down.
                let target_bytes = contender.capacity_bytes / 100 * u64::from(load);
                let grown = contender.files.grow(volume, target_bytes);
                eprintln!(
                    "{} {load}%: {} filled in {:.1?}",
                    self.profile.name(),
                    contender.name,
                    start.elapsed()
                );
                if let Err(error) = grown {
                    contender.retire(&error);
                }
            }
            for group in self.profile.groups() {
                records.extend(self.group(group, load, &mut contenders, folder.path(), pace)?);
                pace.done += 1;
            }
        }
        Ok(records)
    }

    /// A group of workloads in rounds over all peers, A, B, A, B.
    fn group(
        &self,
        group: &[Workload],
        load: u32,
        contenders: &mut [Contender<'_>],
        scratch: &Path,
        pace: &Pace,
    ) -> Result<Vec<Record>> {
        let mut records: Vec<Vec<Record>> = contenders
            .iter()
            .map(|c| group.iter().map(|&w| self.record(w, load, c)).collect())
            .collect();
        let mut slow = vec![false; contenders.len()];
        for round in 0..self.rounds {
            if pace.ends_after(round) {
                break;
            }
            rounds::round(round, contenders.len(), |index| {
                if contenders[index].volume.is_none() || slow[index] {
                    return Ok(());
                }
                let start = Instant::now();
                let contender = &mut contenders[index];
                let seed = u64::from(round) + 1;
                let result = self.once(group, contender, seed, scratch, &mut records[index]);
                if let Err(error) = result {
                    eprintln!("{} {}: {error:#}", contender.name, group[0].name());
                    for record in &mut records[index] {
                        record.note = format!("{error:#}");
                    }
                    slow[index] = true;
                    revive(contender);
                }
                slow[index] |= start.elapsed() > SLOW;
                Ok(())
            })?;
        }
        let records: Vec<Record> = records.into_iter().flatten().collect();
        for record in &records {
            let value = record.value().map_or("-".into(), |v| format!("{v:.1}"));
            eprintln!(
                "{} {load}% {}: {} {value} {}",
                record.profile, record.workload, record.peer, record.unit
            );
        }
        Ok(records)
    }

    fn once(
        &self,
        group: &[Workload],
        contender: &mut Contender<'_>,
        seed: u64,
        scratch: &Path,
        records: &mut [Record],
    ) -> Result<()> {
        let amounts = Amounts::for_image(self.size_bytes);
        let volume = contender.volume.as_mut().context("not mounted")?;
        for (&workload, record) in group.iter().zip(records) {
            if workload.is_cold() {
                record.cold = volume.make_cold(self.forget)?;
            }
            let files = &contender.files;
            let value = files.measure(workload, volume, &amounts, seed, scratch)?;
            record.samples.push(value);
        }
        Ok(())
    }

    fn record(&self, workload: Workload, load: u32, contender: &Contender<'_>) -> Record {
        Record {
            profile: self.profile.name().into(),
            workload: workload.name().into(),
            load_percent: load,
            peer: contender.name.clone(),
            unit: workload.unit().into(),
            image_bytes: self.size_bytes,
            note: contender.note.clone(),
            ..Record::default()
        }
    }
}

/// Clears up after a failure, or gives up on a file system that does not even answer.
fn revive(contender: &mut Contender<'_>) {
    let Some(volume) = &contender.volume else {
        return;
    };
    Files::tidy(volume);
    if let Err(error) = volume.free_bytes() {
        contender.retire(&error);
    }
}
