//! A store in memory with a file system, and mounts of it on simulated time.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tacita_clock::{Clock, Event, Simulated};
use tacita_privatefs::blocks::{Memory, Way};
use tacita_privatefs::{Error, Options, PrivateFs, check, format};
use tacita_secret::Key;
use tacita_testkit::history::Limits;

/// Shape of histories: names that fill more than an inode, files of some blocks.
pub(crate) const LIMITS: Limits = Limits { names: 14, size_max: 40_000, write_max: 12_000 };

/// Blocks of stores of these games.
pub(crate) const CAPACITY: u64 = 1 << 14;

/// After how long a mount is taken over from.
pub(crate) const TAKE_OVER: Duration = Duration::from_secs(30);

pub(crate) struct World {
    pub(crate) store: Arc<Memory>,
    pub(crate) clock: Arc<Simulated>,
}

pub(crate) fn key() -> Key {
    Key::take(&mut [7; 32])
}

/// A clock that is ahead.
#[derive(Debug)]
struct Ahead {
    clock: Arc<Simulated>,
    by: Duration,
}

impl Clock for Ahead {
    fn wall(&self) -> SystemTime {
        self.clock.wall() + self.by
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic() + self.by
    }

    fn boottime(&self) -> Duration {
        self.clock.boottime() + self.by
    }

    fn wait_event(&self, event: &Event, seen: u64, time: Duration) -> bool {
        self.clock.wait_event(event, seen, time)
    }
}

impl World {
    /// A new file system.
    pub(crate) fn new() -> Self {
        Self::of(CAPACITY)
    }

    /// A new file system in a store of so many blocks.
    pub(crate) fn of(capacity: u64) -> Self {
        let world = Self {
            store: Memory::new(capacity),
            clock: Arc::new(Simulated::at(SystemTime::UNIX_EPOCH)),
        };
        let clock: Arc<dyn Clock> = Arc::<Simulated>::clone(&world.clock);
        format(&*world.store.way(0), &key(), &clock, (0, 0)).unwrap();
        world
    }

    /// The only mount.
    pub(crate) fn mount(&self, seed: u64) -> (PrivateFs, Arc<Way>) {
        self.mount_with(seed, &Options::default())
    }

    pub(crate) fn mount_with(&self, seed: u64, options: &Options) -> (PrivateFs, Arc<Way>) {
        self.mount_at(seed, options, Arc::<Simulated>::clone(&self.clock))
    }

    fn mount_at(
        &self,
        seed: u64,
        options: &Options,
        clock: Arc<dyn Clock>,
    ) -> (PrivateFs, Arc<Way>) {
        let way = self.store.way(seed);
        let blocks = Arc::<Way>::clone(&way);
        (PrivateFs::open(blocks, &key(), clock, options).unwrap(), way)
    }

    /// One of several mounts.
    pub(crate) fn share(&self, seed: u64) -> (PrivateFs, Arc<Way>) {
        self.share_at(seed, Arc::<Simulated>::clone(&self.clock))
    }

    /// One of several mounts, on a machine whose clock is ahead of the others' by so much.
    pub(crate) fn share_ahead(&self, seed: u64, by: Duration) -> (PrivateFs, Arc<Way>) {
        self.share_at(seed, Arc::new(Ahead { clock: Arc::clone(&self.clock), by }))
    }

    /// One of several mounts, on a machine with a clock of its own.
    pub(crate) fn share_apart(&self, seed: u64, clock: &Arc<Simulated>) -> (PrivateFs, Arc<Way>) {
        self.share_at(seed, Arc::<Simulated>::clone(clock))
    }

    /// As [`Self::share`], where there may be no place.
    pub(crate) fn try_share(&self, seed: u64) -> Result<PrivateFs, Error> {
        let clock = Arc::<Simulated>::clone(&self.clock);
        PrivateFs::open(self.store.way(seed), &key(), clock, &Self::shared())
    }

    fn share_at(&self, seed: u64, clock: Arc<dyn Clock>) -> (PrivateFs, Arc<Way>) {
        self.mount_at(seed, &Self::shared(), clock)
    }

    pub(crate) fn shared() -> Options {
        Options {
            shared: true,
            poll: Duration::ZERO,
            slice: Duration::ZERO,
            take_over: TAKE_OVER,
            ..Options::default()
        }
    }

    /// Nothing is wrong with what is in the store.
    pub(crate) fn check(&self, what: &str) {
        let (fs, _) = self.mount(1);
        let found = check(&fs, true, &mut |_| ()).unwrap();
        assert!(found.wrong.is_empty(), "{what}: {:?}", found.wrong);
        assert_eq!(found.nameless, 0, "{what}: something has not been freed");
        fs.close().unwrap();
    }
}
