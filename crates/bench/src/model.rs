//! The same workloads on a model of a spinning disk, on a virtual clock: the paper's Figure 7.
//!
//! A system takes part by implementing [`Modelled`] over a [`tacita_block::DiskModel`] and joining
//! the list in [`systems`]. Results do not depend on the machine, so one round is enough.

use anyhow::Result;

use crate::arguments::ModelOptions;
use crate::harness::content::Stream;
use crate::harness::record::Record;
use crate::harness::statistics::{mib, real};
use crate::hifs::workload::{Amounts, Profile, Workload};

mod contiguous;
mod hifs;

/// Workloads that are modelled; small files are all metadata, which only real mounts have.
const WORKLOADS: [Workload; 5] = [
    Workload::SeqRead,
    Workload::RandRead,
    Workload::RandOverwrite,
    Workload::NewData,
    Workload::Delete,
];

/// A file by number; what a system makes of the number is its own business.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FileNo(pub(crate) u64);

/// What a placement rule has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Moves {
    /// Buckets that the workload wrote.
    pub(crate) written: u64,
    /// Buckets of other data that were copied to make room for them.
    pub(crate) copied: u64,
}

/// A file system on a disk model.
///
/// Files of the fill are numbered from 0; new ones follow. Lengths and offsets are multiples of
/// the profile's request.
pub(crate) trait Modelled {
    /// Name in tables and CSV.
    fn name(&self) -> &str;
    /// Bytes of content it can hold.
    fn capacity_bytes(&self) -> u64;
    /// Makes a file longer, and first makes it if it is not there.
    fn append(&mut self, file: FileNo, len_bytes: u64) -> Result<()>;
    /// Reads a part of a file.
    fn read(&mut self, file: FileNo, offset: u64, len_bytes: u64) -> Result<()>;
    /// Writes a part of a file that is there.
    fn overwrite(&mut self, file: FileNo, offset: u64, len_bytes: u64) -> Result<()>;
    /// Removes a file.
    fn delete(&mut self, file: FileNo) -> Result<()>;
    /// Makes all changes durable.
    fn commit(&mut self) -> Result<()>;
    /// Virtual time so far.
    fn elapsed_ns(&self) -> u64;
    /// Buckets written and copied so far; `None` if the system never moves other data.
    fn moves(&self) -> Option<Moves> {
        None
    }
}

/// Systems to run, made anew for each profile, on devices of `size_bytes`.
fn systems(size_bytes: u64) -> Result<Vec<Box<dyn Modelled>>> {
    let ideal: Box<dyn Modelled> = Box::new(contiguous::Contiguous::new(size_bytes)?);
    let layouts = hifs::layouts(size_bytes)?.into_iter();
    Ok(std::iter::once(ideal).chain(layouts.map(|layout| Box::new(layout) as _)).collect())
}

/// Runs every system through every profile and load.
pub(crate) fn run(options: &ModelOptions) -> Result<Vec<Record>> {
    let mut loads = options.loads.clone();
    // Devices are filled from one load to the next.
    loads.sort_unstable();
    let mut records = Vec::new();
    for profile in Profile::ALL {
        for mut system in systems(options.size)? {
            let name = system.name().to_owned();
            let mut run = Run::new(&mut *system, profile, options.size);
            for &load in &loads {
                run.fill_to(load)?;
                let record = |workload: &str, unit: &str, samples| Record {
                    profile: profile.name().into(),
                    workload: workload.into(),
                    load_percent: load,
                    peer: name.clone(),
                    unit: unit.into(),
                    samples,
                    image_bytes: options.size,
                    cold: true,
                    ..Record::default()
                };
                for workload in WORKLOADS {
                    let before = run.system.moves();
                    let samples = run.measure(workload)?.into_iter().collect();
                    records.push(record(workload.name(), workload.unit(), samples));
                    let Some(copies) = copies_a_bucket(before, run.system.moves()) else {
                        continue;
                    };
                    let name = format!("{}-copies", workload.name());
                    records.push(record(&name, "copies a bucket written", vec![copies]));
                }
            }
        }
    }
    Ok(records)
}

/// Copies for each bucket written between two points in time; `None` without moves or writes.
fn copies_a_bucket(before: Option<Moves>, after: Option<Moves>) -> Option<f64> {
    let (before, after) = (before?, after?);
    let written = after.written - before.written;
    (written > 0).then(|| real(after.copied - before.copied) / real(written))
}

/// One system with one profile's files.
struct Run<'s> {
    system: &'s mut dyn Modelled,
    request_bytes: u64,
    amounts: Amounts,
    /// Requests in each file.
    files: Vec<u64>,
    /// Whether files grow, or new ones are added.
    few: bool,
    random: Stream,
}

/// Large files of the database profile.
const LARGE_FILES: usize = 8;

impl<'s> Run<'s> {
    fn new(system: &'s mut dyn Modelled, profile: Profile, size_bytes: u64) -> Self {
        let few = profile == Profile::Db;
        Self {
            system,
            request_bytes: profile.request_len_bytes(Workload::RandRead),
            amounts: Amounts::for_image(size_bytes),
            files: if few { vec![0; LARGE_FILES] } else { Vec::new() },
            few,
            random: Stream::new(1),
        }
    }

    fn fill_to(&mut self, load: u32) -> Result<()> {
        let target = self.system.capacity_bytes() / 100 * u64::from(load) / self.request_bytes;
        if self.few {
            let each = target / self.files.len() as u64;
            for (number, len) in (0..).zip(&mut self.files) {
                let grown = each.saturating_sub(*len);
                self.system.append(FileNo(number), grown * self.request_bytes)?;
                *len += grown;
            }
        } else {
            for number in self.files.len() as u64..target {
                self.system.append(FileNo(number), self.request_bytes)?;
                self.files.push(1);
            }
        }
        self.system.commit()
    }

    /// The value of a workload in its unit; `None` if it costs no time on the disk.
    ///
    /// New data is removed by the next [`Workload::Delete`].
    fn measure(&mut self, workload: Workload) -> Result<Option<f64>> {
        let start_ns = self.system.elapsed_ns();
        let requests = match workload {
            Workload::SeqRead => self.read_on()?,
            Workload::RandRead => self.at_random(self.amounts.rand_read_bytes, false)?,
            Workload::RandOverwrite => self.at_random(self.amounts.overwrite_bytes, true)?,
            Workload::NewData => self.new_data()?,
            Workload::Delete => self.delete_new()?,
            Workload::SeqOverwrite
            | Workload::CreateSmall
            | Workload::DeleteSmall
            | Workload::ReadBeside => 0,
        };
        let elapsed_ns = self.system.elapsed_ns() - start_ns;
        if elapsed_ns == 0 {
            return Ok(None);
        }
        let seconds = real(elapsed_ns) / 1e9;
        Ok(Some(match workload.unit() {
            "MiB/s" => mib(requests * self.request_bytes) / seconds,
            _ => real(requests) / seconds,
        }))
    }

    fn read_on(&mut self) -> Result<u64> {
        let wanted = self.amounts.seq_read_bytes / self.request_bytes;
        let mut done = 0;
        for (number, &len) in (0..).zip(&self.files) {
            for request in 0..len.min(wanted - done) {
                let offset = request * self.request_bytes;
                self.system.read(FileNo(number), offset, self.request_bytes)?;
                done += 1;
            }
        }
        Ok(done)
    }

    fn at_random(&mut self, amount_bytes: u64, write: bool) -> Result<u64> {
        let requests = amount_bytes / self.request_bytes;
        for _ in 0..requests {
            let number = self.random.below(self.files.len() as u64);
            let len = self.files[usize::try_from(number)?];
            let offset = self.random.below(len) * self.request_bytes;
            let file = FileNo(number);
            if write {
                self.system.overwrite(file, offset, self.request_bytes)?;
            } else {
                self.system.read(file, offset, self.request_bytes)?;
            }
        }
        if write {
            self.system.commit()?;
        }
        Ok(requests)
    }

    /// Numbers of new files, and requests in each.
    fn new_files(&self) -> (std::ops::Range<u64>, u64) {
        let first = self.files.len() as u64;
        let requests = self.amounts.new_bytes / self.request_bytes;
        if self.few { (first..first + 1, requests) } else { (first..first + requests, 1) }
    }

    fn new_data(&mut self) -> Result<u64> {
        let (numbers, requests) = self.new_files();
        let count = numbers.end - numbers.start;
        for number in numbers {
            self.system.append(FileNo(number), requests * self.request_bytes)?;
        }
        self.system.commit()?;
        Ok(count * requests)
    }

    fn delete_new(&mut self) -> Result<u64> {
        let (numbers, requests) = self.new_files();
        let count = numbers.end - numbers.start;
        for number in numbers {
            self.system.delete(FileNo(number))?;
        }
        self.system.commit()?;
        Ok(count * requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_those_between_two_points() {
        let moves = |written, copied| Some(Moves { written, copied });
        assert_eq!(copies_a_bucket(moves(10, 5), moves(14, 11)), Some(1.5));
        assert_eq!(copies_a_bucket(moves(10, 5), moves(10, 5)), None);
        assert_eq!(copies_a_bucket(None, None), None);
    }

    #[test]
    fn two_runs_are_equal_and_sequential_reads_cost_transfer_alone() {
        let options = ModelOptions { loads: vec![80, 30], size: 64 << 20 };
        let records = run(&options).unwrap();
        assert_eq!(records, run(&options).unwrap());
        let timed = records.iter().filter(|r| !r.workload.ends_with("-copies"));
        assert_eq!(timed.count(), 2 * 2 * systems(options.size).unwrap().len() * WORKLOADS.len());
        let read = records.iter().find(|r| r.workload == "seq-read").unwrap();
        // 120 MB/s in MiB/s, less the way to the first file.
        assert!((100.0..115.0).contains(&read.value().unwrap()), "{read:?}");
        let random = records.iter().find(|r| r.workload == "rand-read").unwrap();
        assert!((80.0..130.0).contains(&random.value().unwrap()), "{random:?}");
    }
}
