//! What is done in each file system.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use tacita_privatefs::ids::BLOCK_LEN;

use super::Told;
use super::contender::Contender;
use crate::harness::content::Stream;
use crate::harness::statistics::real;

/// Files that are written and read at once. Paper: ten.
const FILES: u64 = 10;
/// Round trips that all files' content takes, where it is far.
const ROUND_TRIPS: u64 = 32;
const BLOCK: u64 = BLOCK_LEN as u64;
/// Length of a small file.
const SMALL: usize = 1000;

/// How much is done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    /// Blocks of each of the files.
    blocks: u64,
    /// Small files, and blocks at random.
    few: u64,
}

impl Size {
    /// Some seconds for each number of clients, however far the store is.
    pub(super) fn of(clients: u32, round_trip: Duration) -> Self {
        if round_trip.is_zero() {
            return Self { blocks: 1024, few: 200 };
        }
        let at_once = u64::from(clients).max(FILES);
        Self { blocks: at_once * ROUND_TRIPS / FILES, few: at_once }
    }

    /// As much as fills caches.
    pub(super) const fn large() -> Self {
        Self { blocks: 6400, few: 200 }
    }

    /// Of all files.
    pub(super) const fn bytes(self) -> u64 {
        FILES * self.blocks * BLOCK
    }
}

/// Queries that a contender's store has had when files begin to be written, and to be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Began {
    pub(super) write: f64,
    pub(super) read: f64,
}

/// Has each of the files handled by a thread of its own; how long that takes.
fn at_once(work: impl Fn(u64) -> Result<()> + Sync) -> Result<Duration> {
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let work = &work;
        let all: Vec<_> = (0..FILES).map(|number| scope.spawn(move || work(number))).collect();
        all.into_iter().try_for_each(|one| one.join().expect("work does not panic"))
    })?;
    Ok(begin.elapsed())
}

fn name(dir: &Path, number: u64) -> std::path::PathBuf {
    dir.join(format!("file-{number}"))
}

fn content(len: u64, number: u64) -> Result<Vec<u8>> {
    let mut content = vec![0; usize::try_from(len)?];
    Stream::new(number).fill(&mut content);
    Ok(content)
}

/// Blocks of a file in no order.
fn places(size: Size, number: u64) -> impl Iterator<Item = u64> {
    (0..size.few / FILES).map(move |n| {
        (n * FILES + number).wrapping_mul(0x9e37_79b9_7f4a_7c15) % size.blocks * BLOCK
    })
}

/// Files written, read and used; small ones; what is known of them.
pub(super) fn of_files(contender: &mut dyn Contender, size: Size) -> Result<(Vec<Told>, Began)> {
    let dir = contender.dir().to_owned();
    let dir = dir.as_path();
    let per_second = |count: u64, took: Duration| real(count) / took.as_secs_f64();
    let speed = |bytes: u64, took: Duration| per_second(bytes, took) / 1000.0;
    let write_began = contender.queries()?;
    let written = at_once(|number| {
        fs::write(name(dir, number), content(size.blocks * BLOCK, number)?)?;
        Ok(File::open(name(dir, number))?.sync_all()?)
    })?;
    contender.again()?;
    let began = Began { write: write_began, read: contender.queries()? };
    let read = at_once(|number| {
        let found = fs::read(name(dir, number))?;
        anyhow::ensure!(found == content(size.blocks * BLOCK, number)?, "file {number} differs");
        Ok(())
    })?;
    contender.again()?;
    let random_read = at_once(|number| {
        let file = File::open(name(dir, number))?;
        // The kernel does not read ahead.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random)?;
        for place in places(size, number) {
            file.read_exact_at(&mut [0; BLOCK_LEN], place)?;
        }
        Ok(())
    })?;
    let random_write = at_once(|number| {
        let file = File::options().write(true).open(name(dir, number))?;
        for place in places(size, number) {
            file.write_all_at(&[3; BLOCK_LEN], place)?;
        }
        Ok(file.sync_all()?)
    })?;
    let small = at_once(|number| {
        let folder = dir.join(format!("small-{number}"));
        fs::create_dir(&folder)?;
        for file in 0..size.few / FILES {
            fs::write(folder.join(file.to_string()), [5; SMALL])?;
        }
        Ok(File::open(folder)?.sync_all()?)
    })?;
    contender.again()?;
    let looked_at = at_once(|number| {
        for file in 0..size.few / FILES {
            fs::metadata(dir.join(format!("small-{number}")).join(file.to_string()))?;
        }
        Ok(())
    })?;
    let few = size.few / FILES * FILES;
    let told = vec![
        ("write", "KB/s", speed(size.bytes(), written)),
        ("read", "KB/s", speed(size.bytes(), read)),
        ("random-read", "KB/s", speed(few * BLOCK, random_read)),
        ("random-write", "KB/s", speed(few * BLOCK, random_write)),
        ("small-files", "files/s", per_second(few, small)),
        ("metadata", "files/s", per_second(few, looked_at)),
    ];
    Ok((told, began))
}
