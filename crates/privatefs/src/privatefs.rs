//! A mount: what it holds in memory, and how operations are done on it.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tacita_clock::{Clock, Event, Worker};
use tacita_oram::log_view::Outcome;
use tacita_oram::record::Operation;
use tacita_secret::Key;
use tacita_vfs::Kind as VfsKind;

use crate::blocks::Blocks;
use crate::cache::Cache;
use crate::commit::Commits;
use crate::error::{Error, Kind, Result};
use crate::faults::{Fault, planted};
use crate::ids::{Id, Ids, MountId};
use crate::nodes::Nodes;
use crate::reaper::Grave;
use crate::turn::{Left, Status, Turn};
use crate::usage::Usage;
use crate::view::{Step, Stop, View};

/// What is asked of each operation on names and attributes where operations are padded.
const PADDED_META: usize = 8;

/// How a file system is mounted.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "independent switches of a mount")]
pub struct Options {
    /// Blocks in memory besides those that wait for a commit.
    pub cache_blocks: usize,
    /// Blocks that wait for a commit, at most.
    pub changed_max: usize,
    /// Blocks that are read at once, a power of two.
    pub read_ahead: u64,
    /// Operations are rounded up to fixed numbers of queries.
    pub pad: bool,
    /// Other mounts may be there: they take turns. Otherwise this is the only one, and takes over from
    /// any that was left.
    pub shared: bool,
    /// Nothing is changed by programs.
    pub read_only: bool,
    /// What has no name any more is freed also when nobody asks for durability.
    pub frees_by_itself: bool,
    /// How often a mount that takes turns looks whose turn it is.
    pub poll: Duration,
    /// How long a turn lasts at least, while others wait and there is something to do in it.
    pub slice: Duration,
    /// After how long without a sign of life a mount is taken over from.
    pub take_over: Duration,
    /// How long an operation waits for its turn.
    pub patience: Duration,
    /// How long, if that is less, while it cannot be seen whose turn it is: the store does not answer.
    pub patience_away: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_blocks: 16 << 10,
            changed_max: 4 << 10,
            read_ahead: 8,
            pad: false,
            shared: false,
            read_only: false,
            frees_by_itself: true,
            poll: Duration::from_millis(50),
            slice: Duration::from_millis(500),
            take_over: Duration::from_secs(30),
            patience: Duration::from_mins(2),
            patience_away: Duration::from_mins(1),
        }
    }
}

impl Options {
    /// Until when it may be believed that a turn lasts of which that was made sure at `begin`.
    pub(crate) fn hold_until(&self, begin: Duration) -> Duration {
        if self.shared { begin + self.take_over / 2 } else { Duration::MAX }
    }
}

/// What changes while it is mounted; never locked while the store is asked.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) cache: Cache,
    pub(crate) nodes: Nodes,
    pub(crate) status: Status,
    /// The turn that this mount has, or had last.
    pub(crate) epoch: u64,
    /// Until when it may be believed that it still is its turn, by the clock that goes on while the machine sleeps.
    pub(crate) hold_until: Duration,
    /// When an operation was begun last.
    pub(crate) worked: Duration,
    /// Operations that wait for their turn.
    pub(crate) waiting: usize,
    /// It can do no more.
    pub(crate) failed: Option<Error>,
    /// Why it could not be seen whose turn it is, when it was looked last.
    pub(crate) unseen: Option<Error>,
    pub(crate) usage: Usage,
    /// Blocks of the commit that was begun, until it counts.
    pub(crate) committing: usize,
    /// Inodes without names that nobody has open.
    pub(crate) graves: Vec<Grave>,
    /// Fetches that have failed.
    unfetched: Unfetched,
    /// Others may have left some.
    pub(crate) look_for_graves: bool,
    /// Journals of mounts that are gone.
    pub(crate) journals: Vec<Left>,
}

/// Blocks that did not come, for those who waited until somebody else had fetched them.
#[derive(Debug, Default)]
struct Unfetched {
    /// Fetches that have failed.
    count: u64,
    /// By which of them a block was asked for last, and why it failed.
    last: HashMap<Id, (u64, Error)>,
}

/// Who waits hears of it at once, and needs none that is older.
const UNFETCHED_MAX: usize = 4096;

impl Unfetched {
    fn add(&mut self, ids: &[Id], error: &Error) {
        if self.last.len() > UNFETCHED_MAX {
            self.last.clear();
        }
        self.count += 1;
        self.last.extend(ids.iter().map(|id| (*id, (self.count, error.clone()))));
    }

    /// Why one of these did not come, since `begun` had failed.
    fn since(&self, begun: u64, ids: &[Id]) -> Option<Error> {
        let failed = |id| self.last.get(id).filter(|(number, _)| *number > begun);
        ids.iter().find_map(failed).map(|(_, error)| error.clone())
    }
}

/// What all threads of a mount share.
pub(crate) struct Core {
    pub(crate) blocks: Arc<dyn Blocks>,
    pub(crate) ids: Ids,
    /// Another one when it has come back after it was taken over from.
    mount: Mutex<MountId>,
    pub(crate) options: Options,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) state: Mutex<State>,
    /// Happens when the turn changes, and when blocks have come.
    pub(crate) turned: Condvar,
    pub(crate) turn: Turn,
    /// What is on its way from memory to the store.
    pub(crate) commits: Mutex<Commits>,
    pub(crate) reaping: Mutex<()>,
    pub(crate) is_closed: AtomicBool,
    /// Operations of programs that were done.
    pub(crate) operations: AtomicUsize,
}

/// A mounted file system; [`tacita_vfs::FileSystem`] is how files in it are used.
#[derive(Clone)]
pub struct PrivateFs {
    pub(crate) core: Arc<Core>,
}

impl fmt::Debug for PrivateFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateFs").finish_non_exhaustive()
    }
}

/// What an operation does to the room in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// It changes nothing.
    Nothing,
    /// It may take room.
    Room,
    /// It gives room back in the end.
    Less,
}

/// How many queries an operation is rounded up to where that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pad {
    /// It is no operation of its own: as those on names and attributes, where it asks for anything.
    No,
    /// As all operations on names and attributes.
    Meta,
    /// As all on so many blocks of content.
    Content(u64),
}

impl Pad {
    fn queries(self, read_ahead: u64) -> usize {
        match self {
            Self::No | Self::Meta => PADDED_META,
            Self::Content(blocks) => {
                let windows = blocks.div_ceil(read_ahead) + 1;
                let blocks = (windows * read_ahead).next_power_of_two();
                PADDED_META + usize::try_from(blocks).unwrap_or(usize::MAX / 2)
            }
        }
    }
}

impl PrivateFs {
    /// Mounts the file system in a store.
    ///
    /// # Errors
    /// [`Kind::NotFormatted`]; [`Kind::Version`]; [`Kind::Busy`]; [`Kind::Damaged`]; as the store has them.
    pub fn open(
        blocks: Arc<dyn Blocks>,
        key: &Key,
        clock: Arc<dyn Clock>,
        options: &Options,
    ) -> Result<Self> {
        let room = blocks.room()?;
        let changed_max = usize::try_from(room.capacity / 32).unwrap_or(usize::MAX);
        let options = Options {
            changed_max: options.changed_max.min(changed_max).max(8),
            read_ahead: options.read_ahead.max(1).next_power_of_two(),
            ..options.clone()
        };
        let mount = random()?;
        let ids = Ids::new(key);
        let (turn, journals) = Turn::join(&*blocks, &ids, &mount, &*clock, &options)?;
        let state = State {
            cache: Cache::new(options.cache_blocks),
            nodes: Nodes::new(&ids.root()),
            status: Status::Other,
            epoch: 0,
            hold_until: Duration::ZERO,
            worked: Duration::ZERO,
            waiting: 0,
            failed: None,
            unseen: None,
            usage: Usage::new(room),
            committing: 0,
            graves: Vec::new(),
            unfetched: Unfetched::default(),
            look_for_graves: false,
            journals,
        };
        let core = Core {
            blocks,
            ids,
            mount: Mutex::new(mount),
            options,
            clock,
            state: Mutex::new(state),
            turned: Condvar::new(),
            turn,
            commits: Mutex::default(),
            reaping: Mutex::new(()),
            is_closed: AtomicBool::new(false),
            operations: AtomicUsize::new(0),
        };
        let fs = Self { core: Arc::new(core) };
        if !fs.core.options.shared {
            fs.core.begin_turn()?;
        }
        Ok(fs)
    }

    /// One look at whose turn it is, and what follows from that. Somebody has to call it again and again
    /// where mounts take turns: [`Background`] does.
    ///
    /// # Errors
    /// As the store has them; [`Kind::Fenced`].
    pub fn tick(&self) -> Result<()> {
        self.core.tick()
    }

    /// Makes everything durable, frees what has no name any more, and leaves.
    ///
    /// # Errors
    /// As the store has them: what was not durable is lost then.
    pub fn close(&self) -> Result<()> {
        if self.core.is_closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        self.core.settle()?;
        self.core.leave()
    }

    /// Whether this mount has the turn.
    pub fn has_turn(&self) -> bool {
        self.core.lock().status == Status::Held
    }

    /// Whether it can do no more, and why.
    pub fn failure(&self) -> Option<Error> {
        self.core.lock().failed.clone()
    }

    /// Blocks that wait for a commit, or are in one that is not durable yet.
    pub fn waiting(&self) -> usize {
        let state = self.core.lock();
        state.cache.changed() + state.committing
    }

    /// Requests of programs so far.
    pub fn operations(&self) -> usize {
        self.core.operations.load(Ordering::Relaxed)
    }
}

/// What an operation has fetched; it is let go when that ends, however it does.
struct Held<'a> {
    core: &'a Core,
    ids: Vec<Id>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if !self.ids.is_empty() {
            self.core.lock().cache.let_go(&self.ids);
        }
    }
}

/// Random bytes.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    tacita_secret::random().map_err(|e| Error::new(Kind::Store, format!("no random bytes: {e}")))
}

impl Core {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By which name the others know this mount.
    pub(crate) fn mount(&self) -> MountId {
        *self.mount.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The others know this mount by this name from now on.
    pub(crate) fn rename(&self, mount: MountId) {
        *self.mount.lock().unwrap_or_else(PoisonError::into_inner) = mount;
    }

    /// Does an operation: it begins anew as often as blocks are missing, which are fetched meanwhile.
    pub(crate) fn operate<T>(
        &self,
        need: Need,
        pad: Pad,
        mut step: impl FnMut(&mut View<'_>) -> Step<T>,
    ) -> tacita_vfs::Result<T> {
        if need != Need::Nothing && self.options.read_only {
            return Err(VfsKind::ReadOnly.into());
        }
        if pad != Pad::No {
            self.operations.fetch_add(1, Ordering::Relaxed);
        }
        if need != Need::Nothing && self.lock().cache.changed() >= self.options.changed_max {
            // The journal is as long as the longest commit, and takes its room as long as this is mounted.
            let flushed = self.flush();
            // What gives room back is done in any case.
            if need == Need::Room {
                flushed?;
            }
        }
        let mut asked = 0;
        let mut room_asked = false;
        let mut held = Held { core: self, ids: Vec::new() };
        let result = loop {
            let mut guard = self.enter()?;
            let state = &mut *guard;
            state.worked = self.clock.monotonic();
            let mut view = View::new(&self.ids, state.epoch, &mut state.cache);
            let missing = match step(&mut view) {
                Ok(value) => {
                    let added = view.added();
                    if added > 0 && !state.usage.has_room(added, need, &self.options) {
                        if room_asked {
                            break Err(VfsKind::NoSpace.into());
                        }
                        room_asked = true;
                        drop(guard);
                        self.make_room(need)?;
                        continue;
                    }
                    view.finish();
                    state.usage.added += added;
                    break Ok(value);
                }
                Err(Stop::Fail(error)) => break Err(error),
                Err(Stop::Missing(missing)) => missing,
            };
            asked += self.fetch(guard, missing, &mut held)?;
        };
        drop(held);
        self.pad(pad, asked)?;
        result
    }

    /// Fetches what is missing, or waits for who does; returns how many blocks were asked for.
    fn fetch(
        &self,
        mut guard: MutexGuard<'_, State>,
        missing: Vec<Id>,
        held: &mut Held<'_>,
    ) -> Result<usize> {
        // What somebody else is fetching is not asked for again.
        let (others, missing): (Vec<Id>, Vec<Id>) =
            missing.into_iter().partition(|id| guard.cache.is_fetched(id));
        if missing.is_empty() {
            return self.fetched_by_others(guard, &others).map(|()| 0);
        }
        guard.cache.begin_fetch(&missing);
        guard.cache.hold(&missing);
        held.ids.extend(&missing);
        drop(guard);
        let found = self.read(&missing);
        let mut state = self.lock();
        self.turned.notify_all();
        match found {
            Ok(found) => state.cache.end_fetch(&missing, Some(found)),
            Err(error) => {
                state.cache.end_fetch(&missing, None);
                state.unfetched.add(&missing, &error);
                return Err(error);
            }
        }
        Ok(missing.len())
    }

    /// Waits a little for blocks that others are fetching.
    ///
    /// # Errors
    /// Why one of them did not come: who waited for it does not begin to wait anew, one behind the other.
    fn fetched_by_others(&self, guard: MutexGuard<'_, State>, ids: &[Id]) -> Result<()> {
        let begun = guard.unfetched.count;
        let waited = self.turned.wait_timeout(guard, WAIT_MAX);
        let guard = waited.unwrap_or_else(PoisonError::into_inner).0;
        guard.unfetched.since(begun, ids).map_or(Ok(()), Err)
    }

    /// Asks for nothing as often as it takes until nobody can tell how much there was to ask for.
    pub(crate) fn pad(&self, pad: Pad, asked: usize) -> Result<()> {
        if !self.options.pad || asked == 0 && (pad == Pad::No || planted(Fault::HitUnpadded)) {
            return Ok(());
        }
        let whole = pad.queries(self.options.read_ahead);
        let dummies = asked.div_ceil(whole).max(1) * whole - asked;
        self.dummies(dummies)
    }

    /// Queries for nothing.
    pub(crate) fn dummies(&self, count: usize) -> Result<()> {
        let dummies = (0..count).map(|_| Ok((random()?, Operation::Read)));
        self.blocks.all(dummies.collect::<Result<_>>()?).map(drop)
    }

    /// Reads blocks at once.
    pub(crate) fn read(&self, ids: &[Id]) -> Result<Vec<Option<bytes::Bytes>>> {
        let reads = ids.iter().map(|id| (*id, Operation::Read)).collect();
        let outcomes = self.blocks.all(reads)?;
        Ok(outcomes
            .into_iter()
            .map(|outcome| match outcome {
                Outcome::Was(block) | Outcome::Compared { was: block, .. } => block,
                Outcome::Full | Outcome::Void => None,
            })
            .collect())
    }

    /// How many blocks there are in the store now.
    pub(crate) fn ask_for_room(&self) -> Result<()> {
        // What comes into its place meanwhile may not be among them.
        let placed = self.lock().usage.placed;
        let room = self.blocks.room()?;
        self.lock().usage.told(room, placed);
        Ok(())
    }

    /// Frees what can be freed before an operation is told that there is no room.
    fn make_room(&self, need: Need) -> Result<()> {
        // Whoever frees needs less, and waits for nobody else who does.
        if need == Need::Room {
            self.settle()?;
        } else {
            self.finish()?;
        }
        self.ask_for_room()
    }

    /// Waits until it is this mount's turn.
    pub(crate) fn enter(&self) -> Result<MutexGuard<'_, State>> {
        let begin = self.clock.monotonic();
        let mut state = self.lock();
        loop {
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if state.status == Status::Held {
                if self.clock.boottime() <= state.hold_until {
                    return Ok(state);
                }
                drop(state);
                self.renew()?;
                state = self.lock();
                continue;
            }
            let waited = self.clock.elapsed(begin);
            if let Some(error) = &state.unseen
                && waited > self.options.patience_away
            {
                return Err(error.clone());
            }
            if waited > self.options.patience {
                let kept = || Error::new(Kind::TimedOut, "no turn came: another mount keeps it");
                return Err(state.unseen.clone().unwrap_or_else(kept));
            }
            state.waiting += 1;
            let waited = self.turned.wait_timeout(state, WAIT_MAX);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= 1;
        }
    }
}

/// How long an operation waits before it looks at the time again.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// Threads that look whose turn it is, and free what has no name any more, until this is dropped.
#[derive(Debug)]
pub struct Background(#[expect(dead_code, reason = "held until dropped")] Vec<Worker>);

/// How often it is looked whether anything is to be freed.
const REAP_EVERY: Duration = Duration::from_secs(1);

impl Background {
    /// Starts them.
    ///
    /// # Errors
    /// As the system has them.
    pub fn start(fs: &PrivateFs) -> std::io::Result<Self> {
        let start = |name: &str, every: Duration, work: fn(&Core) -> Result<()>| {
            let core = Arc::clone(&fs.core);
            let mut told = false;
            let work = move || match work(&core) {
                Ok(()) => told = false,
                // Once, until it is better.
                Err(e) if !told => {
                    log::error!("{e}");
                    told = true;
                }
                Err(_) => {}
            };
            Worker::start(name, Arc::clone(&fs.core.clock), Event::default(), Some(every), work)
        };
        let mut workers = Vec::new();
        if fs.core.options.shared {
            workers.push(start("pfs-turn", fs.core.options.poll, Core::tick)?);
        }
        if fs.core.options.frees_by_itself {
            workers.push(start("pfs-reap", REAP_EVERY, Core::reap_if_any)?);
        }
        Ok(Self(workers))
    }
}
