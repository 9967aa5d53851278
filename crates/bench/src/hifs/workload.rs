//! What is done to the file systems.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tacita_daemon::voice::shown_name;

use crate::harness::content::{self, Stream};
use crate::harness::fio::{self, Job};
use crate::harness::runner;
use crate::harness::statistics::{mib, real};
use crate::hifs::volume::Volume;

/// Files of the database profile.
const DB_FILES: u64 = 8;
/// Size of a read or write in the database profile, as in the paper.
const DB_REQUEST_LEN_BYTES: u64 = 32 << 10;
/// Size of a read or write at a random place in the paged profile.
const PAGE_LEN_BYTES: u64 = 4 << 10;
/// Size of a write in a row, where files are overwritten from start to end.
const ROW_LEN_BYTES: u64 = 1 << 20;
/// Size of a file of the web profile, as in the paper.
const WEB_FILE_LEN_BYTES: u64 = 512 << 10;
/// Files in a folder of the web profile.
const WEB_FOLDER_FILES: u64 = 16;
/// Most names handed to fio: a value must stay below 4 KiB.
const NAMES_MAX: u64 = 300;
/// Folders of small files.
const SMALL_FOLDERS: u64 = 50;
/// Size of a small file.
const SMALL_FILE_LEN_BYTES: u64 = 4 << 10;
/// Longest time that a fill or a step without fio may take.
const STEP_LIMIT: Duration = Duration::from_secs(150);

/// A kind of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Few large files, accessed 32 KiB at a time.
    Db,
    /// Many files of 512 KiB, accessed as a whole.
    Web,
    /// The files of the database profile, accessed 4 KiB at a time where that is at random.
    Paged,
}

impl Profile {
    pub(crate) const ALL: [Self; 2] = [Self::Db, Self::Web];

    pub(crate) fn named(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|p| p.name() == name);
        found.with_context(|| format!("no profile is called {name}"))
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Db => "db",
            Self::Web => "web",
            Self::Paged => "paged",
        }
    }

    /// Bytes a read or write.
    pub(crate) fn request_len_bytes(self, workload: Workload) -> u64 {
        match (self, workload) {
            (Self::Paged, Workload::RandRead | Workload::RandOverwrite) => PAGE_LEN_BYTES,
            (Self::Db | Self::Paged, Workload::SeqOverwrite) => ROW_LEN_BYTES,
            (Self::Db | Self::Paged, _) => DB_REQUEST_LEN_BYTES,
            (Self::Web, _) => WEB_FILE_LEN_BYTES,
        }
    }

    /// What is measured, in groups that belong together: what one makes, the next removes.
    pub(crate) fn groups(self) -> &'static [&'static [Workload]] {
        use Workload::{
            CreateSmall, Delete, DeleteSmall, NewData, RandOverwrite, RandRead, ReadBeside,
            SeqOverwrite, SeqRead,
        };
        match self {
            Self::Db => &[
                &[SeqRead],
                &[RandRead],
                &[ReadBeside],
                &[SeqOverwrite],
                &[RandOverwrite],
                &[NewData, Delete],
            ],
            Self::Web | Self::Paged => &[
                &[SeqRead],
                &[RandRead],
                &[RandOverwrite],
                &[NewData, Delete],
                &[CreateSmall, DeleteSmall],
            ],
        }
    }
}

/// A thing to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Workload {
    /// Files from start to end, caches cold.
    SeqRead,
    /// Requests at random places, caches cold.
    RandRead,
    /// The same past the caches, while another program writes and syncs.
    ReadBeside,
    /// Files from start to end, which keep their size, synced.
    SeqOverwrite,
    /// Requests at random places of files that keep their size, synced.
    RandOverwrite,
    /// New large or web files, synced.
    NewData,
    /// Removal of those, synced.
    Delete,
    /// Many files of 4 KiB, synced at the end.
    CreateSmall,
    /// Removal of those, synced at the end.
    DeleteSmall,
}

impl Workload {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SeqRead => "seq-read",
            Self::RandRead => "rand-read",
            Self::ReadBeside => "read-beside",
            Self::SeqOverwrite => "seq-overwrite",
            Self::RandOverwrite => "rand-overwrite",
            Self::NewData => "new-data",
            Self::Delete => "delete",
            Self::CreateSmall => "create-small",
            Self::DeleteSmall => "delete-small",
        }
    }

    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::SeqRead | Self::SeqOverwrite | Self::NewData | Self::Delete => "MiB/s",
            Self::RandRead | Self::ReadBeside | Self::RandOverwrite => "IOPS",
            Self::CreateSmall | Self::DeleteSmall => "files/s",
        }
    }

    /// Whether caches must be empty before.
    pub(crate) fn is_cold(self) -> bool {
        matches!(self, Self::SeqRead | Self::RandRead)
    }
}

/// How much work is done, for an image of a given size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amounts {
    pub(crate) seq_read_bytes: u64,
    pub(crate) rand_read_bytes: u64,
    pub(crate) seq_overwrite_bytes: u64,
    pub(crate) overwrite_bytes: u64,
    pub(crate) new_bytes: u64,
    pub(crate) small_files: u64,
}

impl Amounts {
    /// New data is 3% of the image, so that it fits at a load of 90%.
    pub(crate) fn for_image(size_bytes: u64) -> Self {
        Self {
            seq_read_bytes: size_bytes / 2,
            rand_read_bytes: size_bytes / 16,
            seq_overwrite_bytes: size_bytes / 4,
            overwrite_bytes: size_bytes / 16,
            new_bytes: size_bytes / 32,
            small_files: (size_bytes >> 20).saturating_mul(5).clamp(500, 5000),
        }
    }
}

/// The files of a profile on one volume.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Files {
    profile: Profile,
    filled_bytes: u64,
}

impl Files {
    pub(crate) fn new(profile: Profile) -> Self {
        Self { profile, filled_bytes: 0 }
    }

    /// Adds to the files until they hold `target_bytes`, synced.
    pub(crate) fn grow(&mut self, volume: &Volume<'_>, target_bytes: u64) -> Result<()> {
        let start = Instant::now();
        let (profile, filled) = (self.profile, self.filled_bytes);
        runner::guarded(volume.daemon(), STEP_LIMIT, || {
            let parts = match profile {
                Profile::Db | Profile::Paged => db_parts(filled, target_bytes),
                Profile::Web => web_parts(filled, target_bytes),
            };
            for (name, len_bytes, seed) in parts {
                runner::check_stop()?;
                if start.elapsed() > STEP_LIMIT {
                    bail!("filling took longer than {STEP_LIMIT:?}");
                }
                let path = volume.dir().join(name);
                fs::create_dir_all(path.parent().context("a file has a folder")?)?;
                content::append(&path, len_bytes, seed)?;
            }
            volume.settle(volume.dir())
        })?;
        self.filled_bytes = target_bytes;
        Ok(())
    }

    /// Names for fio of what a round reads or overwrites, and how much of it.
    fn part(&self, workload: Workload, amount_bytes: u64, seed: u64) -> (String, u64) {
        match self.profile {
            Profile::Db | Profile::Paged => {
                let names = join((0..DB_FILES).map(db_name));
                (names, amount_bytes.min(self.filled_bytes))
            }
            Profile::Web => {
                let all = self.filled_bytes / WEB_FILE_LEN_BYTES;
                let count = (amount_bytes / WEB_FILE_LEN_BYTES).clamp(1, NAMES_MAX.min(all));
                let start = Stream::new(seed).below(all);
                // Neighbours for a walk through the folders, far apart for random places.
                let step = match workload {
                    Workload::SeqRead => 1,
                    _ => (all / count).max(1),
                };
                let names = join((0..count).map(|i| web_name((start + i * step) % all)));
                // Not more, or files would be read twice, and from the cache.
                (names, count * WEB_FILE_LEN_BYTES)
            }
        }
    }

    /// Does the work once and gives its value in [`Workload::unit`].
    pub(crate) fn measure(
        &self,
        workload: Workload,
        volume: &Volume<'_>,
        amounts: &Amounts,
        seed: u64,
        scratch: &Path,
    ) -> Result<f64> {
        let job = |job: Job, amount: u64| {
            let (names, amount_bytes) = match workload {
                Workload::NewData => (self.new_names(amount), amount),
                _ => self.part(workload, amount, seed),
            };
            let variables = [
                ("DIR", volume.dir().display().to_string()),
                ("FILES", names),
                ("BS", self.profile.request_len_bytes(workload).to_string()),
                ("AMOUNT", amount_bytes.to_string()),
                ("FILESIZE", self.new_file_len(amount).to_string()),
                ("SEED", seed.to_string()),
            ];
            fio::run(job, scratch, &variables)
        };
        let mib_per_s = |o: fio::Outcome| mib(o.bytes) * 1000.0 / real(o.runtime_ms);
        let iops = |o: fio::Outcome| real(o.requests) * 1000.0 / real(o.runtime_ms);
        let new = volume.dir().join("new");
        let small = volume.dir().join("small");
        let count = amounts.small_files;
        Ok(match workload {
            Workload::SeqRead => mib_per_s(job(fio::SEQ_READ, amounts.seq_read_bytes)?),
            Workload::RandRead => iops(job(fio::RAND_READ, amounts.rand_read_bytes)?),
            Workload::ReadBeside => {
                let done = job(fio::READ_BESIDE, amounts.rand_read_bytes)?;
                real(done.reads) * 1000.0 / real(done.runtime_ms)
            }
            Workload::SeqOverwrite => {
                mib_per_s(job(fio::SEQ_OVERWRITE, amounts.seq_overwrite_bytes)?)
            }
            Workload::RandOverwrite => iops(job(fio::RAND_OVERWRITE, amounts.overwrite_bytes)?),
            Workload::NewData => {
                fs::create_dir(&new)?;
                mib_per_s(job(fio::NEW_DATA, amounts.new_bytes)?)
            }
            Workload::Delete => {
                // Less than was wanted, if writing it ran into its time limit.
                let len = len_of_files(&new)?;
                mib(len) / timed(volume, || remove(&new))?
            }
            Workload::CreateSmall => real(count) / timed(volume, || create_small(&small, count))?,
            Workload::DeleteSmall => real(count) / timed(volume, || remove(&small))?,
        })
    }

    /// Removes what a failed group left behind.
    pub(crate) fn tidy(volume: &Volume<'_>) {
        runner::guarded(volume.daemon(), STEP_LIMIT, || {
            for name in ["new", "small"] {
                fs::remove_dir_all(volume.dir().join(name)).ok();
            }
        });
    }

    fn new_file_len(&self, amount_bytes: u64) -> u64 {
        match self.profile {
            Profile::Db | Profile::Paged => amount_bytes,
            Profile::Web => WEB_FILE_LEN_BYTES,
        }
    }

    fn new_names(&self, amount_bytes: u64) -> String {
        let count = amount_bytes / self.new_file_len(amount_bytes);
        join((0..count).map(|i| PathBuf::from(format!("new/n{i:04}"))))
    }
}

/// Seconds that some work and its sync take.
fn timed(volume: &Volume<'_>, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    runner::guarded(volume.daemon(), STEP_LIMIT, || {
        let start = Instant::now();
        work()?;
        volume.settle(volume.dir())?;
        Ok(start.elapsed().as_secs_f64())
    })
}

fn remove(folder: &Path) -> Result<()> {
    fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", shown_name(folder)))
}

fn len_of_files(folder: &Path) -> Result<u64> {
    let lens = fs::read_dir(folder)?.map(|entry| Ok(entry?.metadata()?.len()));
    lens.sum()
}

fn create_small(folder: &Path, count: u64) -> Result<()> {
    let mut buf = vec![0; usize::try_from(SMALL_FILE_LEN_BYTES)?];
    let mut stream = Stream::new(count);
    for sub in 0..SMALL_FOLDERS {
        let sub_folder = folder.join(format!("d{sub:02}"));
        fs::create_dir_all(&sub_folder)?;
        for file in (sub..count).step_by(usize::try_from(SMALL_FOLDERS)?) {
            stream.fill(&mut buf);
            let path = sub_folder.join(format!("f{file:05}"));
            fs::write(&path, &buf).with_context(|| format!("cannot make {}", shown_name(&path)))?;
        }
    }
    Ok(())
}

fn db_name(index: u64) -> PathBuf {
    PathBuf::from(format!("db/f{index}"))
}

fn web_name(index: u64) -> PathBuf {
    let (folder, file) = (index / WEB_FOLDER_FILES, index % WEB_FOLDER_FILES);
    PathBuf::from(format!("w{folder:04}/f{file:02}"))
}

/// Names, lengths and seeds of what to append.
type Parts = Vec<(PathBuf, u64, u64)>;

fn db_parts(filled_bytes: u64, target_bytes: u64) -> Parts {
    let share = |total: u64| total / DB_FILES / DB_REQUEST_LEN_BYTES * DB_REQUEST_LEN_BYTES;
    let (from, to) = (share(filled_bytes), share(target_bytes));
    let part = |file| (db_name(file), to - from, from + file + 1);
    (0..DB_FILES).map(part).collect()
}

fn web_parts(filled_bytes: u64, target_bytes: u64) -> Parts {
    let files = filled_bytes / WEB_FILE_LEN_BYTES..target_bytes / WEB_FILE_LEN_BYTES;
    let part = |file| (web_name(file), WEB_FILE_LEN_BYTES, file + 1);
    files.map(part).collect()
}

fn join(names: impl Iterator<Item = PathBuf>) -> String {
    let names: Vec<String> = names.map(|n| n.display().to_string()).collect();
    names.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growing_in_steps_is_growing_at_once() {
        for parts in [db_parts, web_parts] {
            let total = |parts: Parts| parts.iter().map(|p| p.1).sum::<u64>();
            let (middle, end) = (100 << 20, 333 << 20);
            let steps = total(parts(0, middle)) + total(parts(middle, end));
            assert_eq!(steps, total(parts(0, end)));
        }
    }

    #[test]
    fn names_fit_into_a_line_of_fio() {
        let files = Files { profile: Profile::Web, filled_bytes: 9 << 30 };
        for workload in [Workload::SeqRead, Workload::RandRead] {
            let (names, amount_bytes) = files.part(workload, 10 << 30, 7);
            assert!(names.len() < 4000);
            assert_eq!(amount_bytes, NAMES_MAX * WEB_FILE_LEN_BYTES);
        }
    }
}
