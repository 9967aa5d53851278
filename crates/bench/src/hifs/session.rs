//! One profile's measurements: which images there are, who is still in, and in which order all take
//! turns.

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::peer::Peer;
use super::volume::Volume;
use super::workload::{Amounts, Files, Profile, Workload};
use crate::harness::record::Record;
use crate::harness::{rounds, runner};

/// A peer that takes longer for one round of a group is not asked for another.
const SLOW: Duration = Duration::from_secs(12);

/// Nor is one that takes longer to fill its image to the next load.
const SLOW_FILL: Duration = Duration::from_secs(40);

/// Least capacity: every file of a profile has some content at every load from 5% on.
const CAPACITY_MIN_BYTES: u64 = 64 << 20;

/// Rounds that a median needs; fewer are run only when the whole time is used up.
const ROUNDS_MIN: u32 = 3;

/// Keeps a run within its time by leaving out rounds, never workloads.
pub(super) struct Pace {
    pub(super) start: Instant,
    pub(super) budget: Duration,
    /// When a session that has rounds enough leaves the time to the next one.
    pub(super) share: Duration,
}

impl Pace {
    /// Whether `rounds` must be enough.
    fn ends_after(&self, rounds: u32) -> bool {
        let used = self.start.elapsed();
        match rounds {
            0 => false,
            1..ROUNDS_MIN => used > self.budget,
            _ => used > self.share,
        }
    }
}

/// Rounds on the same images.
pub(super) struct Span {
    /// Whose images these are; in each span the same peers.
    pub(super) peers: Vec<Box<dyn Peer>>,
    /// The seed of HIFS's images, where it is fixed.
    pub(super) seed: Option<u64>,
    pub(super) rounds: Range<u32>,
}

/// One profile's measurements.
pub(super) struct Session {
    pub(super) profile: Profile,
    pub(super) size_bytes: u64,
    /// Empties the caches of an image, and says whether it could.
    pub(super) forget: fn(&Path) -> bool,
    pub(super) pace: Pace,
}

/// A volume under measurement.
struct Contender<'p> {
    volume: Volume<'p>,
    /// Bytes that the empty file system could take.
    capacity_bytes: u64,
    files: Files,
    /// Filling it has taken long.
    is_slow: bool,
}

/// A group of workloads at one load, and what has come out.
struct Part {
    group: &'static [Workload],
    load: u32,
    peers: Vec<Standing>,
}

/// What has come out for a peer.
struct Standing {
    /// One a workload.
    records: Vec<Record>,
    /// It is not asked for another round.
    is_out: bool,
}

impl Session {
    /// All groups at all loads, which ascend, in the rounds of all spans.
    pub(super) fn run(&self, spans: &[Span], loads: &[u32], scratch: &Path) -> Result<Vec<Record>> {
        let names: Vec<&str> = spans.first().map_or_else(Vec::new, Span::names);
        let mut parts: Vec<Part> = Vec::new();
        for load in loads {
            parts.extend(self.profile.groups().iter().map(|group| self.part(group, *load, &names)));
        }
        for span in spans {
            if self.pace.ends_after(span.rounds.start) {
                break;
            }
            self.span(span, &mut parts, scratch)?;
        }
        let standings = parts.into_iter().flat_map(|part| part.peers);
        let records: Vec<Record> = standings.flat_map(|standing| standing.records).collect();
        for record in &records {
            let value = record.value().map_or("-".into(), |v| format!("{v:.1}"));
            eprintln!(
                "{} {}% {}: {} {value} {}",
                record.profile, record.load_percent, record.workload, record.peer, record.unit
            );
        }
        Ok(records)
    }

    /// A part of which nothing has come out yet.
    fn part(&self, group: &'static [Workload], load: u32, peers: &[&str]) -> Part {
        let record = |peer: &str, workload: Workload| Record {
            profile: self.profile.name().into(),
            workload: workload.name().into(),
            load_percent: load,
            peer: peer.into(),
            unit: workload.unit().into(),
            image_bytes: self.size_bytes,
            ..Record::default()
        };
        let standing = |peer: &&str| Standing {
            records: group.iter().map(|workload| record(peer, *workload)).collect(),
            is_out: false,
        };
        Part { group, load, peers: peers.iter().map(standing).collect() }
    }

    /// The rounds of a span, on images that are filled from one load to the next.
    fn span(&self, span: &Span, parts: &mut [Part], scratch: &Path) -> Result<()> {
        let folder = tempfile::Builder::new()
            .prefix("bench-")
            .tempdir_in(scratch)
            .context("no scratch folder")?;
        let mut contenders: Vec<Option<Contender<'_>>> = Vec::new();
        for (index, peer) in span.peers.iter().enumerate() {
            runner::check_stop()?;
            contenders.push(self.prepare(&**peer, index, parts, folder.path()));
        }
        let mut rest = parts;
        while let Some(load) = rest.first().map(|part| part.load) {
            for (index, contender) in contenders.iter_mut().enumerate() {
                runner::check_stop()?;
                self.fill(contender, index, rest);
            }
            let (now, later) = rest.split_at_mut(rest.partition_point(|part| part.load == load));
            for part in now {
                for round in span.rounds.clone() {
                    if round > span.rounds.start && self.pace.ends_after(round) {
                        break;
                    }
                    self.round(part, (round, span.seed), &mut contenders, folder.path())?;
                }
            }
            rest = later;
        }
        Ok(())
    }

    /// An empty volume of a peer that is wanted in any of `parts`.
    fn prepare<'p>(
        &self,
        peer: &'p dyn Peer,
        index: usize,
        parts: &mut [Part],
        folder: &Path,
    ) -> Option<Contender<'p>> {
        if !is_wanted(parts, index) {
            return None;
        }
        let prepare = || {
            let volume = Volume::prepare(peer, folder, self.size_bytes)?;
            let capacity_bytes = volume.free_bytes()?;
            ensure!(capacity_bytes >= CAPACITY_MIN_BYTES, "{capacity_bytes} bytes are too little");
            let files = Files::new(self.profile);
            Ok(Contender { volume, capacity_bytes, files, is_slow: false })
        };
        prepare().map_err(|error| retire(parts, index, &error)).ok()
    }

    /// Fills a volume to the load of the first of `parts`. Who cannot is out of all of them.
    fn fill(&self, contender: &mut Option<Contender<'_>>, index: usize, parts: &mut [Part]) {
        if !is_wanted(parts, index) {
            *contender = None;
        }
        let Some(Contender { volume, capacity_bytes, files, is_slow }) = contender else {
            return;
        };
        let load = parts[0].load;
        let start = Instant::now();
        // The same share of what each can hold: that is what slows HIFS down.
        let grown = files.grow(volume, *capacity_bytes / 100 * u64::from(load));
        let (profile, name) = (self.profile.name(), volume.name());
        eprintln!("{profile} {load}%: {name} filled in {:.1?}", start.elapsed());
        *is_slow |= start.elapsed() > SLOW_FILL;
        if let Err(error) = grown {
            retire(parts, index, &error);
            *contender = None;
        }
    }

    /// One round of a group over all peers, A, B, A, B.
    fn round(
        &self,
        part: &mut Part,
        (round, seed): (u32, Option<u64>),
        contenders: &mut [Option<Contender<'_>>],
        scratch: &Path,
    ) -> Result<()> {
        rounds::round(round, contenders.len(), |index| {
            let standing = &mut part.peers[index];
            let Some(contender) = contenders[index].as_mut().filter(|_| !standing.is_out) else {
                return Ok(());
            };
            let start = Instant::now();
            let done = self.once(part.group, contender, (round, seed), scratch, standing);
            if let Err(error) = &done {
                standing.fail(error);
            }
            standing.is_out |= contender.is_slow || start.elapsed() > SLOW;
            if done.is_err() && !revive(contender) {
                contenders[index] = None;
            }
            Ok(())
        })
    }

    fn once(
        &self,
        group: &[Workload],
        contender: &mut Contender<'_>,
        (round, seed): (u32, Option<u64>),
        scratch: &Path,
        standing: &mut Standing,
    ) -> Result<()> {
        let amounts = Amounts::for_image(self.size_bytes);
        let Contender { volume, files, .. } = contender;
        for (&workload, record) in group.iter().zip(&mut standing.records) {
            if workload.is_cold() {
                record.cold = volume.make_cold(self.forget)?;
            }
            let content_seed = u64::from(round) + 1;
            let value = files.measure(workload, volume, &amounts, content_seed, scratch)?;
            record.samples.push(value);
            record.seeds.extend(seed);
        }
        Ok(())
    }
}

impl Span {
    fn names(&self) -> Vec<&str> {
        self.peers.iter().map(|peer| peer.name()).collect()
    }
}

impl Standing {
    /// The peer cannot do it.
    fn fail(&mut self, error: &anyhow::Error) {
        for record in &mut self.records {
            eprintln!("{} {}: {error:#}", record.peer, record.workload);
            record.note = format!("{error:#}");
        }
        self.is_out = true;
    }
}

fn is_wanted(parts: &[Part], index: usize) -> bool {
    parts.iter().any(|part| !part.peers[index].is_out)
}

/// Gives up on a peer in all of `parts`.
fn retire(parts: &mut [Part], index: usize, error: &anyhow::Error) {
    for part in parts {
        part.peers[index].fail(error);
    }
}

/// Clears up after a failure; false if the file system does not even answer, or is no longer mounted.
fn revive(contender: &Contender<'_>) -> bool {
    let there = contender.volume.answers();
    if there {
        Files::tidy(&contender.volume);
    }
    there
}
