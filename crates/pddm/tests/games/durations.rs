//! Level A in time. Three worlds have the same public history: without a hidden volume, with one
//! that rests, and with one that is busy. On a device whose requests take time, and on which none
//! waits for another, every public request and every unit begins and ends at the same time in all
//! of them.
//!
//! Times are those of a simulated clock, which goes on when all threads of the world sleep: what is
//! compared is who waits for whom and for what, and not how fast this machine is. Each world has a
//! process of its own.

use std::cell::Cell;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use tacita_block::{BlockDevice, BlockNo, BlockRange, Geometry, MemoryDevice, Result};
use tacita_clock::{Clock, Event, Simulated};
use tacita_pddm::{Heartbeat, HiddenFlush, Level, Options, Parameters, Session, Unlock, Volume};
use tacita_testkit::env_number;
use tacita_testkit::history::Rng;
use tacita_testkit::simulation;

use crate::devices::{blocks, contents, entropy, make, memory, parameters, volume, wrap};

/// Set for the process that plays a world: seed, kind of world, and what is planted.
const WORLD: &str = "TACITA_PDDM_WORLD";

/// What begins a line of what the adversary sees.
const SEEN: &str = "seen: ";

const UNITS: u64 = 60;

/// Blocks that are used of each volume.
const SPAN: u64 = 60;

thread_local! {
    /// This thread uses a hidden volume: its requests are none of the adversary's.
    static IS_HIDDEN: Cell<bool> = const { Cell::new(false) };
}

/// A device that serves any number of requests at a time, each of which takes its time.
struct Timed {
    inner: Arc<MemoryDevice>,
    clock: Arc<Simulated>,
    /// Whether they take time by now.
    runs: AtomicBool,
    seen: Mutex<Vec<(Duration, Duration, String)>>,
}

impl Timed {
    fn spend(&self, what: &str, ns: u64, at: u64, len: usize) {
        if !self.runs.load(Ordering::SeqCst) {
            return;
        }
        let begin = self.clock.monotonic();
        self.clock.wait(Duration::from_nanos(ns));
        if !IS_HIDDEN.get() {
            self.see(begin, format!("{what} {len} at {at}"));
        }
    }

    fn see(&self, begin: Duration, what: String) {
        self.seen.lock().unwrap().push((begin, self.clock.monotonic(), what));
    }
}

impl BlockDevice for Timed {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, at: BlockNo, buf: &mut [u8]) -> Result<()> {
        self.spend("read", 211_001 + buf.len() as u64 / 7, at.0, buf.len());
        self.inner.read(at, buf)
    }

    fn write(&self, at: BlockNo, buf: &[u8]) -> Result<()> {
        self.spend("write", 307_003 + buf.len() as u64 / 5, at.0, buf.len());
        self.inner.write(at, buf)
    }

    fn flush(&self) -> Result<()> {
        self.spend("flush", 1_900_007, 0, 0);
        self.inner.flush()
    }

    fn discard(&self, range: BlockRange) -> Result<()> {
        self.spend("discard", 97_001, range.start.0, 0);
        self.inner.discard(range)
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Without,
    Idle,
    Busy,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Without, Self::Idle, Self::Busy];

    const fn hidden(self) -> u8 {
        !matches!(self, Self::Without) as u8
    }
}

/// What the hidden history is told of the public one.
#[derive(Clone, Default)]
struct News {
    /// A public request is about to begin, or it is the end.
    event: Event,
    has_ended: Arc<AtomicBool>,
}

impl News {
    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }
}

/// Tells of the end, however it comes.
struct End(News);

impl Drop for End {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::SeqCst);
        self.0.event.notify();
    }
}

/// Plays a world, and says what the adversary sees of it.
fn play(seed: u64, kind: Kind, plant: &(impl Fn() -> Planting + Sync)) {
    let clock = Arc::new(Simulated::at(UNIX_EPOCH));
    let device = Arc::new(Timed {
        inner: memory(blocks(UNITS)),
        clock: Arc::clone(&clock),
        runs: AtomicBool::new(false),
        seen: Mutex::default(),
    });
    let dynamic: Arc<dyn BlockDevice> = device.clone();
    let parameters = Parameters { heartbeat_ms: 1000, ..parameters(1) };
    make(&dynamic, &parameters, kind.hidden(), entropy(seed, seed * 2 + 1));
    let options = Options {
        hidden_flush: HiddenFlush::Durable,
        queue_bytes: 16 * 4096,
        entropy: entropy(seed + 1, seed * 2 + u64::from(kind.hidden())),
        clock: Arc::<Simulated>::clone(&clock),
        ..Options::default()
    };
    let session = Session::open(&dynamic, Unlock::Wrap(&wrap(kind.hidden())), options).unwrap();
    let session = Arc::new(session);
    let hidden = session.volume(Level::hidden(1)).filter(|_| matches!(kind, Kind::Busy));
    let end = End(News::default());
    let news = end.0.clone();
    device.runs.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let public = scope.spawn(|| {
            let (_planted, end) = (plant(), end);
            public_history(seed, &session, &device, &end.0.event);
            drop(session);
            drop(end);
        });
        let beside = scope.spawn(|| {
            let _planted = plant();
            if let Some(hidden) = hidden {
                hidden_history(seed, &hidden, &*clock, &news);
            }
        });
        simulation::run(&clock, || public.is_finished() && beside.is_finished());
    });
    let mut lines = device.seen.lock().unwrap().clone();
    lines.sort();
    for (begin, end, what) in lines {
        println!("{SEEN}{} to {}: {what}", begin.as_nanos(), end.as_nanos());
    }
}

/// The same in all worlds.
fn public_history(seed: u64, session: &Arc<Session>, device: &Timed, begins: &Event) {
    let (clock, public) = (&*device.clock, volume(session, 0));
    let heartbeat = Heartbeat::start(Arc::clone(session)).unwrap().unwrap();
    let mut rng = Rng::new(seed);
    for step in 0..40 {
        // Never at once: who waits for the head would race for it with who has just had it.
        clock.wait(Duration::from_nanos(match rng.below(12) {
            0 => 1 + rng.below(90_000_000_000),
            1..4 => 1 + rng.below(3_000_000_000),
            _ => 1 + rng.below(3_000_000),
        }));
        begins.notify();
        clock.wait(Duration::from_nanos(1 + rng.below(400_000)));
        let (id, len) = (rng.below(SPAN), 1 + rng.below(60));
        let range = BlockRange { start: BlockNo(id), count: len.min(8) };
        let (begin, what) = (clock.monotonic(), rng.below(8));
        match what {
            0 => public.read(BlockNo(id), &mut [0; 4096]).unwrap(),
            1 => public.discard(range).unwrap(),
            2 => public.flush().unwrap(),
            _ => {
                let bytes = contents(id..id + len, step);
                public.write(BlockNo(id), &bytes).unwrap();
            }
        }
        device.see(begin, format!("public request {step}, {what}"));
    }
    let begin = clock.monotonic();
    session.sweep(&mut |_, _| true).unwrap();
    device.see(begin, "sweep".to_owned());
    drop(heartbeat);
    let begin = clock.monotonic();
    session.close().unwrap();
    device.see(begin, "close".to_owned());
    session.close_hidden();
}

/// What is done beside it where a hidden volume is busy: now and then, and around every public
/// request.
fn hidden_history(seed: u64, hidden: &Volume, clock: &dyn Clock, news: &News) {
    IS_HIDDEN.set(true);
    let mut rng = Rng::new(seed ^ 0x81dd);
    for step in 0.. {
        let before = news.event.seen();
        if !news.has_ended() {
            clock.wait_event(&news.event, before, Duration::from_nanos(1 + rng.below(400_000_000)));
            clock.wait(Duration::from_nanos(1 + rng.below(800_000)));
        }
        if news.has_ended() {
            return;
        }
        let (id, len) = (rng.below(SPAN), 1 + rng.below(20));
        let done = match rng.below(8) {
            0 => hidden.discard(BlockRange { start: BlockNo(id), count: len }),
            1 => hidden.flush(),
            2..4 => hidden.read(BlockNo(id), &mut [0; 2 * 4096]),
            _ => {
                let bytes = contents(id..id + len, step);
                hidden.write(BlockNo(id), &bytes)
            }
        };
        // The end comes while it waits.
        assert!(done.is_ok() || news.has_ended());
    }
}

/// Runs as a process of its own, for [`worlds`] alone.
#[test]
fn a_world() {
    let Ok(world) = std::env::var(WORLD) else { return };
    let words: Vec<usize> = world.split(' ').map(|word| word.parse().unwrap()).collect();
    let [seed, kind, fault] = words[..] else { panic!("{world}") };
    play(seed as u64, Kind::ALL[kind], &|| planting(fault));
}

/// What the adversary sees of each world.
fn worlds(seed: u64, fault: usize) -> [Vec<String>; 3] {
    let start = |kind: usize| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["durations::a_world", "--exact", "--nocapture"]);
        command.env(WORLD, format!("{seed} {kind} {fault}"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
    };
    [0, 1, 2].map(start).map(|child| {
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "seed {seed}");
        let said = String::from_utf8(done.stdout).unwrap();
        said.lines().filter_map(|line| line.strip_prefix(SEEN)).map(str::to_owned).collect()
    })
}

/// What tells the worlds of a seed apart.
fn difference(seed: u64, fault: usize) -> Vec<String> {
    let [without, others @ ..] = worlds(seed, fault);
    assert!(without.len() > 300, "seed {seed}: {} things seen", without.len());
    let mut found = Vec::new();
    for (other, kind) in others.iter().zip(&Kind::ALL[1..]) {
        if let Some(at) =
            (0..without.len().max(other.len())).find(|n| without.get(*n) != other.get(*n))
        {
            let lines = [without.get(at), other.get(at)];
            found.push(format!("seed {seed}, {kind:?}: {at}: {lines:?}"));
        }
    }
    found
}

#[test]
fn public_requests_and_units_take_the_same_time_in_all_worlds() {
    for seed in 0..env_number("TACITA_GAMES", 4) {
        assert_eq!(difference(seed * 1000, 0), Vec::<String>::new());
    }
}

#[cfg(not(feature = "faults"))]
type Planting = Option<()>;

#[cfg(not(feature = "faults"))]
const fn planting(_: usize) -> Planting {
    None
}

#[cfg(feature = "faults")]
type Planting = Option<tacita_faults::Planted<tacita_pddm::faults::Fault>>;

/// Faults that durations tell of, by their number from 1.
#[cfg(feature = "faults")]
const FAULTS: [tacita_pddm::faults::Fault; 3] = {
    use tacita_pddm::faults::Fault;
    [Fault::ReadAtHead, Fault::HiddenBeats, Fault::HiddenPressure]
};

/// Plants a fault in this thread; 0 stands for none.
#[cfg(feature = "faults")]
fn planting(fault: usize) -> Planting {
    Some(tacita_pddm::faults::plant(FAULTS[fault.checked_sub(1)?]))
}

#[cfg(feature = "faults")]
#[test]
fn hidden_requests_that_take_public_time_are_noticed() {
    for (number, fault) in (1..).zip(FAULTS) {
        let found = (0..8).any(|seed| !difference(seed * 1000, number).is_empty());
        assert!(found, "{fault:?} was not noticed");
    }
}
