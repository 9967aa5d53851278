//! An open device.

use std::sync::Arc;

use tacita_block::BlockDevice;
use tacita_clock::{Clock, System};
use tacita_secret::Key;

use crate::engine::Engine;
use crate::entropy::Entropy;
use crate::error::{Kind, Result};
use crate::geometry::{BLOCK_LEN, Geometry, Level, Seq};
use crate::init::follow_growth;
use crate::keys::{CellNumbers, HiddenKeys};
use crate::level::OpenLevel;
use crate::log::Log;
use crate::open_log::OpenLog;
use crate::recovery::{End, newest_cell};
use crate::replay::replay;
use crate::sequencer::{Round, Sequencer, Start};
use crate::superblock::Superblock;
use crate::sweep::sweep;
use crate::unlock::{Opened, Unlock, Wanted, restore_superblocks, unlock};
use crate::volume::{HiddenFlush, Volume};

/// How a device is opened.
#[derive(Debug)]
pub struct Options {
    /// Nothing is written.
    pub read_only: bool,
    /// Hidden volumes stay closed whatever the password. What they hold is destroyed as the head
    /// goes over it.
    pub public_only: bool,
    /// A password that opens the public volume is tried on the cells of all units, and not only of
    /// the newest.
    pub search: bool,
    /// What a flush of a hidden volume is.
    pub hidden_flush: HiddenFlush,
    /// How much may wait on a hidden volume before its writers do; never more than a sweep carries.
    pub queue_bytes: u64,
    /// Where random bytes come from.
    pub entropy: Entropy,
    /// Tells the time, for the heartbeat and for the pace of the log.
    pub clock: Arc<dyn Clock>,
    /// What becomes of what cannot be read, and whoever writes has to know.
    pub unread: Unread,
    /// Hears, once, why nothing is written any more, for whoever serves others and may be asked later.
    pub failed: Option<fn(&str)>,
}

/// What becomes of what cannot be read, and may be there the next time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unread {
    /// The device is not opened for writing: [`Kind::Unread`].
    #[default]
    Refused,
    /// It is lost.
    GivenUp,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            read_only: false,
            public_only: false,
            search: false,
            hidden_flush: HiddenFlush::Ordered,
            queue_bytes: 64 << 20,
            entropy: Entropy::default(),
            clock: Arc::new(System),
            unread: Unread::Refused,
            failed: None,
        }
    }
}

/// An open device.
#[derive(Debug)]
pub struct Session {
    engine: Arc<Engine>,
    hidden_flush: HiddenFlush,
    superblock: Superblock,
    /// Classes that are not open, with as much memory as those that are: what a process has must not
    /// tell.
    _closed: Vec<OpenLevel>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.log().device.forget_cached();
    }
}

impl Session {
    /// Opens a device: the volume of the password and all below it.
    ///
    /// # Errors
    /// [`Kind::NoVolume`], [`Kind::Version`], [`Kind::TooShort`], [`Kind::Memory`], [`Kind::NoThread`],
    /// [`Kind::Unread`], [`Kind::Device`].
    pub fn open(device: &Arc<dyn BlockDevice>, with: Unlock<'_>, options: Options) -> Result<Self> {
        Self::open_it(device, with, options).inspect_err(|_| device.forget_cached())
    }

    fn open_it(device: &Arc<dyn BlockDevice>, with: Unlock<'_>, options: Options) -> Result<Self> {
        let wanted = Wanted { public_only: options.public_only, search: options.search };
        let Opened { log, end, superblock, keys } = unlock(device, with, wanted)?;
        let read_only = options.read_only;
        let session = Self::start(log, &end, superblock, keys, options)?;
        if !read_only {
            follow_growth(&**device, &session.superblock)?;
        }
        Ok(session)
    }

    pub(crate) fn start(
        log: Log,
        end: &End,
        superblock: Superblock,
        keys: Vec<Option<HiddenKeys>>,
        options: Options,
    ) -> Result<Self> {
        let geometry = log.geometry;
        let mut found = Vec::new();
        for (level, keys) in geometry.levels().zip(keys).skip(1) {
            let cell = match &keys {
                Some(keys) => newest_cell(&log, end, level, &keys.master)?,
                None => None,
            };
            found.push((level, keys.zip(cell)));
        }
        // Memory is taken for all classes, and in the same order, whichever of them are open.
        let public = OpenLevel::new(&geometry, Level::PUBLIC, log.public.clone(), None, 0);
        let mut levels = vec![Some(public)];
        let mut replays = vec![Some((end.last.head.replay_from, end.next))];
        let mut closed = Vec::new();
        for (level, found) in found {
            let Some((keys, (seq, cell))) = found else {
                let nobodys = Key::take(&mut [0; 32]);
                closed.push(OpenLevel::new(&geometry, level, nobodys, None, 0));
                levels.push(None);
                replays.push(None);
                continue;
            };
            let (master, CellNumbers { replay_from, epoch }) = (keys.master.clone(), cell.numbers);
            levels.push(Some(OpenLevel::new(&geometry, level, master, Some(keys), epoch)));
            replays.push(Some((replay_from, Seq(seq.0 + 1))));
        }
        let mut heads = Vec::new();
        for (open, units) in levels.iter().zip(replays) {
            heads.push(match (open, units) {
                (Some(open), Some((from, until))) => {
                    Some(replay(&log, open, from, until, end.next)?)
                }
                _ => None,
            });
        }
        if !options.read_only && options.unread == Unread::Refused {
            log.check_missed()?;
        }
        // A sweep has to carry whatever waits.
        let hidden = levels.iter().skip(1).flatten();
        let room = hidden.map(|open| geometry.round_room(open.level)).min();
        let queue = usize::try_from(options.queue_bytes / BLOCK_LEN as u64).unwrap_or(usize::MAX);
        let queue_max = queue.min(room.unwrap_or(usize::MAX)).max(1);
        let shared =
            Arc::new(OpenLog::new(log, end.next, levels, queue_max, options.clock, options.failed));
        let start = Start {
            next: end.next,
            durable: end.durable,
            sweep_until: end.last.head.sweep_until,
            previous: end.previous,
        };
        let head = if options.read_only {
            None
        } else {
            Some(Sequencer::new(Arc::clone(&shared), &start, heads, options.entropy)?)
        };
        let engine = Arc::new(Engine::new(shared, head)?);
        Ok(Self { engine, hidden_flush: options.hidden_flush, superblock, _closed: closed })
    }

    /// What whoever writes has to know could not be read, if anything: with [`Unread::GivenUp`] it is lost.
    pub fn missed(&self) -> Option<String> {
        self.log().missed()
    }

    /// The geometry of the device.
    pub fn geometry(&self) -> &Geometry {
        self.engine.shared.geometry()
    }

    /// The open volumes, the public one first.
    pub fn volumes(&self) -> Vec<Volume> {
        let open = self.engine.shared.levels.iter().flatten();
        open.map(|open| Volume::new(Arc::clone(&self.engine), open.level, self.hidden_flush))
            .collect()
    }

    /// The open volume of a level.
    pub fn volume(&self, level: Level) -> Option<Volume> {
        self.volumes().into_iter().find(|volume| volume.level() == level)
    }

    /// Writes a unit although no public data asks for it: what the heartbeat does.
    ///
    /// # Errors
    /// [`Kind::Device`], [`Kind::ReadOnly`].
    pub fn beat(&self) -> Result<()> {
        self.engine.beat()
    }

    /// Makes all public data durable.
    ///
    /// # Errors
    /// [`Kind::Device`], [`Kind::ReadOnly`].
    pub fn flush(&self) -> Result<()> {
        self.engine.flush_public()
    }

    /// Makes all public data durable and writes one more unit that says so: the same is done whatever
    /// is open. A session that has written nothing writes nothing. The system's cache of the device is given
    /// up: what is in it was read for one volume or another.
    ///
    /// # Errors
    /// [`Kind::Device`].
    pub fn close(&self) -> Result<()> {
        let done = match self.engine.close() {
            Err(error) if error.kind() == Kind::ReadOnly => Ok(()),
            done => done,
        };
        self.log().device.forget_cached();
        done
    }

    /// Number of the unit to be written next: it grows with every unit. After a failed write, that of
    /// the unit that was not written.
    pub fn written_units(&self) -> u64 {
        self.engine.shared.written()
    }

    /// Units written in the last minute: what waits on hidden volumes leaves with units.
    pub fn units_last_minute(&self) -> u64 {
        self.engine.shared.units_last_minute()
    }

    /// Requests on hidden volumes end with an error from now on, those that wait too: the session is
    /// about to end.
    pub fn close_hidden(&self) {
        self.engine.shared.close_hidden();
    }

    pub(crate) fn log(&self) -> &Log {
        &self.engine.shared.log
    }

    pub(crate) const fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The clock that the heartbeat follows.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.engine.shared.clock
    }

    /// Grows with every change of the public volume: what the heartbeat follows.
    pub(crate) fn public_changes(&self) -> u64 {
        self.engine.shared.public_changes()
    }

    /// Writes the whole log anew, one round from where it is, or what is left of a round that was
    /// interrupted: superblocks that are damaged are written again, then all live blocks are read,
    /// verified and written. `each` is told how many units of how many are done, and says whether to
    /// go on; `false` is returned if it does not.
    ///
    /// # Errors
    /// [`Kind::Device`], [`Kind::ReadOnly`].
    pub fn sweep(&self, each: &mut dyn FnMut(u64, u64) -> bool) -> Result<bool> {
        self.restore_superblocks()?;
        sweep(&self.engine, Round::Rest, each)
    }

    /// As [`Session::sweep`], but always a whole round: with a hidden volume open all that waits gets to
    /// the device. It takes a sweep that is under way along.
    ///
    /// # Errors
    /// As [`Session::sweep`].
    pub fn sweep_whole(&self, each: &mut dyn FnMut(u64, u64) -> bool) -> Result<bool> {
        self.restore_superblocks()?;
        sweep(&self.engine, Round::Whole, each)
    }

    /// Writes the superblock where a copy of it is damaged, or is another one, and nothing where none
    /// is.
    ///
    /// # Errors
    /// [`Kind::Device`], [`Kind::ReadOnly`].
    pub fn restore_superblocks(&self) -> Result<()> {
        self.engine.head().map(drop)?;
        restore_superblocks(&*self.engine.shared.log.device, &self.superblock)
    }
}
