//! Who is measured.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use tacita_clock::{Clock, System};
use tacita_oram::geometry::Geometry;
use tacita_oram::link::Delay;
use tacita_oram::load::{Amount, Load};
use tacita_oram::log_view::Outcome;
use tacita_oram::record::Operation;
use tacita_oram::server::Place;
use tacita_oram::{AnchorAt, Options, Store, Way};
use tacita_privatefs::blocks::{self, Blocks, Memory, Room};
use tacita_privatefs::ids::{BLOCK_LEN, Id};
use tacita_privatefs::{PrivateFs, format};
use tacita_secret::Key;
use tacita_vfs::Posix;
use tacita_vfs::fuse::{Mount, MountOptions, mount};

use super::Told;
use super::work::{Began, Size};
use crate::harness::runner::{self, tacita};
use crate::harness::statistics::real;
use crate::oram::served::{Served, memory_kib};

/// Longest command.
const LIMIT: Duration = Duration::from_mins(3);

/// A file system that can be mounted again with nothing in memory.
pub(super) trait Contender {
    fn name(&self) -> &'static str;
    fn dir(&self) -> &Path;
    /// Everything is durable, and nothing is in memory.
    fn again(&mut self) -> Result<()>;
    /// Queries that its store has had so far, if it has one.
    fn queries(&self) -> Result<f64> {
        Ok(0.0)
    }
}

fn command(arguments: &[&str]) -> Result<()> {
    runner::run(Command::new(tacita()?).args(arguments), LIMIT).map(drop)
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path of text")
}

/// The program, with a server on this machine.
pub(super) struct Private {
    dir: PathBuf,
    arguments: Vec<String>,
    is_padded: bool,
    served: Served,
}

impl Private {
    pub(super) fn new(
        folder: &Path,
        blocks: u64,
        clients: u32,
        round_trip: Duration,
        option: &str,
    ) -> Result<Self> {
        let (dir, key) = (folder.join("mnt"), folder.join("key"));
        fs::create_dir_all(&dir)?;
        let (store, key) = (folder.join("store"), text(&key)?);
        command(&["oram", "init", text(&store)?, "--key", key, "--blocks", &blocks.to_string()])?;
        let served = Served::start(folder)?;
        let address = served.address().to_string();
        command(&["privatefs", "format", &address, "--key", key])?;
        let latency = (round_trip / 2).as_millis().to_string();
        let clients = clients.to_string();
        let mount =
            ["privatefs", "mount", &address, text(&dir)?, "--key", key, "--sync-every", "0"];
        let mut arguments: Vec<&str> = mount.to_vec();
        arguments.extend(["--clients", &clients, "--latency", &latency, "--timeout", "600"]);
        arguments.extend((!option.is_empty()).then_some(option));
        let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        let private = Self { dir, arguments, is_padded: !option.is_empty(), served };
        private.mount()?;
        Ok(private)
    }

    fn mount(&self) -> Result<()> {
        command(&self.arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The most memory that the mount has had since it began.
    pub(super) fn memory_kib(&self) -> Result<f64> {
        let pid = runner::process_with(&self.dir).context("nobody serves the mount")?;
        memory_kib(pid).context("no memory")
    }
}

impl Contender for Private {
    fn name(&self) -> &'static str {
        if self.is_padded { "privatefs-pad" } else { "privatefs" }
    }

    fn dir(&self) -> &Path {
        &self.dir
    }

    fn again(&mut self) -> Result<()> {
        command(&["umount", text(&self.dir)?])?;
        // The daemon may still be at its last changes.
        runner::wait_until(LIMIT, || runner::process_with(&self.dir).is_none())?;
        self.mount()
    }

    fn queries(&self) -> Result<f64> {
        Ok(self.served.counts()?.queries)
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        let _ = self.dir.to_str().map(|dir| command(&["umount", dir]));
    }
}

/// The same file system over blocks in memory that are as far away.
pub(super) struct Plain {
    dir: PathBuf,
    blocks: Arc<Far>,
    mounted: Option<(Mount, PrivateFs)>,
}

/// Blocks in memory, one round trip away, so many of them asked for at once.
struct Far {
    way: Arc<blocks::Way>,
    at_once: usize,
    round_trip: Duration,
}

impl fmt::Debug for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Far").finish_non_exhaustive()
    }
}

impl Blocks for Far {
    fn all(&self, operations: Vec<(Id, Operation)>) -> tacita_privatefs::Result<Vec<Outcome>> {
        let mut outcomes = Vec::with_capacity(operations.len());
        for some in operations.chunks(self.at_once) {
            System.wait(self.round_trip);
            outcomes.extend(self.way.all(some.to_vec())?);
        }
        Ok(outcomes)
    }

    fn at_once(&self) -> usize {
        self.at_once
    }

    fn room(&self) -> tacita_privatefs::Result<Room> {
        self.way.room()
    }
}

impl Plain {
    pub(super) fn new(
        folder: &Path,
        blocks: u64,
        clients: u32,
        round_trip: Duration,
    ) -> Result<Self> {
        let dir = folder.join("mnt");
        fs::create_dir_all(&dir)?;
        let way = Memory::new(blocks).way(1);
        let far = Far { way, at_once: clients as usize, round_trip };
        let mut plain = Self { dir, blocks: Arc::new(far), mounted: None };
        let clock: Arc<dyn Clock> = Arc::new(System);
        format(&*plain.blocks, &key(), &clock, (0, 0))?;
        plain.mount()?;
        Ok(plain)
    }

    fn mount(&mut self) -> Result<()> {
        let options = tacita_privatefs::Options::default();
        let blocks = Arc::<Far>::clone(&self.blocks);
        let fs = PrivateFs::open(blocks, &key(), Arc::new(System), &options)?;
        let posix = Arc::new(Posix::new(fs.clone(), Arc::new(System)));
        let options =
            MountOptions { threads: 16, sync_interval: Duration::ZERO, ..MountOptions::default() };
        self.mounted = Some((mount(posix, &self.dir, &options)?, fs));
        Ok(())
    }

    fn unmount(&mut self) -> Result<()> {
        if let Some((mounted, fs)) = self.mounted.take() {
            drop(mounted);
            fs.close()?;
        }
        Ok(())
    }
}

fn key() -> Key {
    Key::take(&mut [1; 32])
}

impl Contender for Plain {
    fn name(&self) -> &'static str {
        "plain"
    }

    fn dir(&self) -> &Path {
        &self.dir
    }

    fn again(&mut self) -> Result<()> {
        self.unmount()?;
        self.mount()
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        let _ = self.unmount();
    }
}

/// gocryptfs on this disk.
pub(super) struct Gocryptfs {
    folder: PathBuf,
    dir: PathBuf,
}

impl Gocryptfs {
    /// `None` where it is not installed.
    pub(super) fn made(folder: &Path) -> Result<Option<Box<dyn Contender>>> {
        let (cipher, dir) = (folder.join("cipher"), folder.join("mnt"));
        fs::create_dir_all(&cipher)?;
        fs::create_dir_all(&dir)?;
        let made = Self { folder: folder.to_owned(), dir };
        fs::write(made.password(), "password")?;
        let mut init = Command::new("gocryptfs");
        init.args(["-q", "-init", "-scryptn", "10", "-passfile"]).arg(made.password()).arg(cipher);
        if let Err(error) = runner::run(&mut init, LIMIT) {
            eprintln!("without gocryptfs: {error:#}");
            return Ok(None);
        }
        made.mount()?;
        Ok(Some(Box::new(made)))
    }

    fn password(&self) -> PathBuf {
        self.folder.join("password")
    }

    fn mount(&self) -> Result<()> {
        let mut mount = Command::new("gocryptfs");
        mount.args(["-q", "-passfile"]).arg(self.password());
        runner::run(mount.arg(self.folder.join("cipher")).arg(&self.dir), LIMIT).map(drop)
    }

    fn unmount(&self) -> Result<()> {
        runner::run(Command::new("fusermount3").arg("-u").arg(&self.dir), LIMIT).map(drop)
    }
}

impl Contender for Gocryptfs {
    fn name(&self) -> &'static str {
        "gocryptfs"
    }

    fn dir(&self) -> &Path {
        &self.dir
    }

    fn again(&mut self) -> Result<()> {
        self.unmount()?;
        runner::drop_caches();
        self.mount()
    }
}

impl Drop for Gocryptfs {
    fn drop(&mut self) {
        let _ = self.unmount();
    }
}

/// The store by itself, in this process.
pub(super) struct Raw {
    folder: PathBuf,
    round_trip: Duration,
    served: Served,
}

impl Raw {
    pub(super) fn new(folder: &Path, blocks: u64, round_trip: Duration) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let block_len = u32::try_from(BLOCK_LEN)?;
        let geometry = Geometry::new(block_len, 256, 4, blocks).context("shapes")?;
        Store::init(&Place::Folder(folder.join("store")), &key(), geometry)?;
        let served = Served::start(folder)?;
        Ok(Self { folder: folder.to_owned(), round_trip, served })
    }

    fn open(&self, round_trip: Duration) -> Result<Store> {
        let delay = (!round_trip.is_zero()).then(|| Delay::of(round_trip / 2));
        let options = Options { delay, ..Options::default() };
        let (way, anchor) = (Way::Server(self.served.address()), self.folder.join("anchor"));
        Ok(Store::open(way, &key(), &AnchorAt::File(anchor), &options)?)
    }

    /// Has as many queries as the other store has had: how many generations a query has to ask, and with that
    /// how often it waits for the server, is a matter of how many there were.
    fn come_to(&self, queries: f64) -> Result<()> {
        let store = self.open(Duration::ZERO)?;
        while self.served.counts()?.queries < queries {
            store.read(Id::default())?;
        }
        Ok(())
    }

    /// As many blocks as the files have, written and read by a store that is opened for each, from where the
    /// files were.
    pub(super) fn measure(&self, clients: u32, size: Size, began: Began) -> Result<Vec<Told>> {
        let amount = Amount { queries: size.bytes() / BLOCK_LEN as u64, time: Duration::MAX };
        let id = |number: u64| {
            let mut id = Id::default();
            id[..8].copy_from_slice(&number.to_le_bytes());
            id
        };
        let content = Bytes::from(vec![7; BLOCK_LEN]);
        let speed = |load: &Load| load.per_second() * real(BLOCK_LEN as u64) / 1000.0;
        self.come_to(began.write)?;
        let store = self.open(self.round_trip)?;
        let write = |number| store.write(id(number), content.clone());
        let written = Load::measure(vec![write; clients as usize], amount)?;
        drop(store);
        self.come_to(began.read)?;
        let store = self.open(self.round_trip)?;
        let read = |number| store.read(id(number)).map(drop);
        let read = Load::measure(vec![read; clients as usize], amount)?;
        Ok(vec![("write", "KB/s", speed(&written)), ("read", "KB/s", speed(&read))])
    }
}
