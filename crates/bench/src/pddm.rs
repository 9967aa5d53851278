//! PD-DM's volumes over NBD beside what does less: a plain file, an encrypted volume of ours that
//! writes in place, and nbdkit's LUKS filter.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail, ensure};
use tacita_block::{BlockDevice, BlockNo, FileDevice};
use tacita_pddm::{Entropy, Level, Options, Parameters, Session as Pddm, Unlock, Volume, init};
use tacita_secret::Key;

use crate::arguments::PddmOptions;
use crate::harness::fio;
use crate::harness::promise::{Bound, Promise};
use crate::harness::record::{Record, ratio_to, value_of};
use crate::harness::runner;
use crate::harness::statistics::{mib, real};
use crate::nbd::{Contender, FLUSHED, Session, USUAL, Workload, cost_name};

mod disk;
mod plain;

pub(crate) use disk::run as on_a_disk;
use plain::PlainVolume;

const BLOCK_LEN: u64 = 4096;
/// Blocks of a large request.
const LARGE: u64 = 256;
/// Sweeps of uniform traffic that make a volume old.
const SWEEPS: u64 = 3;
/// Longest opening of the large device in seconds.
const OPEN_S_MAX: f64 = 5.0;
/// Seconds of hidden writes before those that count: the queue in memory fills meanwhile.
const QUEUE_S: u32 = 1;
/// What ratios refer to.
const BASE: &str = "aead";
/// What people use today.
const LUKS: &str = "nbdkit-luks";
/// How often one is tried to be made.
const LUKS_TRIES: u32 = 10;
/// The device by itself.
const DEVICE: &str = "device";
/// At least so much of what the device takes in sequence, counting all that is written for a public block.
const DEVICE_SHARE: f64 = 0.8;

/// Random writes are at least so much of sequential ones.
const ALIKE: f64 = 0.8;

/// At least so much of [`LUKS`], of the public volume when it is aged: workload, ratio.
const WANTED_OF_LUKS: [(&str, f64); 5] = [
    ("seq-write", 1.3),
    ("rand-write-qd32", 1.5),
    ("rand-write-qd1", 1.6),
    ("seq-read", 1.4),
    ("rand-read-qd32", 1.8),
];

/// At least so much of [`BASE`]: volume, workload, state, ratio.
const WANTED: [(&str, &str, &str, f64); 14] = [
    ("public", "seq-read", "", 0.9),
    ("public", "rand-read-qd1", "", 0.7),
    ("public", "rand-read-qd32", "", 0.7),
    ("hidden", "seq-read", "", 0.9),
    ("hidden", "rand-read-qd1", "", 0.7),
    ("hidden", "rand-read-qd32", "", 0.7),
    ("public", "seq-write", "aged", 0.33),
    ("public", "rand-write-qd32", "aged", 0.33),
    ("public", "rand-write-qd1", "aged", 0.33),
    ("public", "seq-write", "half", 0.5),
    ("public", "rand-write-qd32", "half", 0.5),
    ("public", "rand-write-qd1", "half", 0.5),
    ("hidden", "seq-write", "aged", 0.15),
    ("hidden", "rand-write-qd32", "aged", 0.15),
];

/// Everything that is measured, in every state.
pub(crate) fn run(options: &PddmOptions, scratch: &Path) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for state in &options.states {
        let found = match state.as_str() {
            "fresh" => in_state(options, "fresh", scratch),
            "half" => in_state(options, "half", scratch),
            "aged" => in_state(options, "aged", scratch),
            "open" => reopening(options, scratch),
            other => bail!("{other}: fresh, half, aged and open are possible"),
        };
        records.extend(found?);
    }
    Ok(records)
}

/// How long opening takes after a session that has not been closed, on a large device with more in
/// its log than is replayed; without the time that a password takes.
fn reopening(options: &PddmOptions, scratch: &Path) -> Result<Vec<Record>> {
    let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(scratch)?;
    let image = folder.path().join("large.img");
    let keys = [Key::random()?, Key::random()?];
    let [public_key, hidden_key] = keys.each_ref().map(Unlock::Wrap);
    let open = || -> Result<Pddm> {
        let device: Arc<dyn BlockDevice> =
            Arc::new(FileDevice::open(&image, tacita_block::Access::ReadWrite, 4096)?);
        Ok(Pddm::open(&device, hidden_key, Options::default())?)
    };
    let device: Arc<dyn BlockDevice> =
        Arc::new(FileDevice::create(&image, options.open_size, 4096)?);
    init(&device, &Parameters::default(), public_key, &[hidden_key], Entropy::default())?;
    drop(device);
    let session = open()?;
    let public = session.volume(Level::PUBLIC).context("the volume is not open")?;
    let data = vec![0xa5; 256 * 4096];
    // More than what is replayed: a thirty-second of the log, and as much again at most.
    let bytes = options.open_size / 16;
    for at in (0..bytes / BLOCK_LEN).step_by(256) {
        public.write(BlockNo(at), &data)?;
    }
    session.flush()?;
    drop((public, session));
    let (mut samples, mut cold) = (Vec::new(), true);
    for _ in 0..options.rounds {
        cold &= runner::drop_caches();
        let begin = std::time::Instant::now();
        let session = open()?;
        samples.push(begin.elapsed().as_secs_f64());
        drop(session);
    }
    Ok(vec![Record {
        profile: "large".into(),
        workload: "open".into(),
        peer: "public".into(),
        unit: "s".into(),
        samples,
        image_bytes: options.open_size,
        cold,
        ..Record::default()
    }])
}

fn in_state(options: &PddmOptions, state: &'static str, scratch: &Path) -> Result<Vec<Record>> {
    let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(scratch)?;
    let folder = folder.path();
    let device: Arc<dyn BlockDevice> =
        Arc::new(FileDevice::create(folder.join("pddm.img"), options.size, 4096)?);
    let keys = [Key::random()?, Key::random()?];
    let [public_key, hidden_key] = keys.each_ref().map(Unlock::Wrap);
    init(&device, &Parameters::default(), public_key, &[hidden_key], Entropy::default())?;
    let session = Arc::new(Pddm::open(&device, hidden_key, Options::default())?);
    let volume = |level| session.volume(level).context("the volume is not open");
    let (public, hidden) = (volume(Level::PUBLIC)?, volume(Level::hidden(1))?);
    let share = match state {
        "fresh" => 0,
        "half" => 50,
        _ => 100,
    };
    let spans = [&public, &hidden].map(|volume| volume.geometry().blocks * share.max(50) / 100);
    let amplification = age(&session, &public, &hidden, share)?;
    let mut records = vec![Record {
        profile: state.into(),
        workload: "amplification".into(),
        peer: "public".into(),
        unit: "device blocks a block".into(),
        samples: amplification.into_iter().collect(),
        image_bytes: options.size,
        ..Record::default()
    }];
    for (volume, blocks) in [(public.clone(), spans[0]), (hidden.clone(), spans[1])] {
        let bytes = blocks / 256 * 256 * BLOCK_LEN;
        records.extend(compare(options, state, folder, &session, &volume, bytes)?);
    }
    drop((public, hidden));
    Arc::into_inner(session).context("somebody still counts")?.close()?;
    Ok(records)
}

/// One of our volumes beside all others of its size.
fn compare(
    options: &PddmOptions,
    state: &'static str,
    folder: &Path,
    pddm: &Arc<Pddm>,
    volume: &Volume,
    bytes: u64,
) -> Result<Vec<Record>> {
    let name = if volume.level() == Level::PUBLIC { "public" } else { "hidden" };
    let folder = tempfile::Builder::new().prefix(name).tempdir_in(folder)?;
    let folder = folder.path();
    let file = FileDevice::create(folder.join("file.img"), bytes, 4096)?;
    let plain = FileDevice::create(folder.join("aead.img"), PlainVolume::room(bytes), 4096)?;
    let plain = Arc::new(PlainVolume::new(Arc::new(plain), bytes / BLOCK_LEN)?);
    let mut contenders = vec![
        Contender::device("file", folder, Arc::new(file))?,
        Contender::device(BASE, folder, plain)?,
    ];
    // Once: what is measured beside a hidden volume is not measured beside the public one.
    if name == "public" {
        match luks(folder, bytes) {
            Ok(contender) => contenders.push(contender),
            Err(error) => eprintln!("SKIPPED: {LUKS}: {error:#}"),
        }
    }
    if state != "fresh" || name == "public" {
        for contender in &contenders {
            crate::nbd::fill(contender, bytes, folder)?;
        }
    }
    let ours = Contender::device(name, folder, Arc::new(volume.clone()))?;
    contenders.push(if name == "public" { ours.counting(written(Arc::clone(pddm))) } else { ours });
    let session = Session {
        profile: state,
        size_bytes: bytes,
        rounds: options.rounds,
        seconds: options.seconds,
    };
    let all = USUAL.iter().copied().chain([FLUSHED]);
    if name == "public" {
        let mut records = session.run(&contenders, &all.collect::<Vec<_>>(), folder)?;
        records.push(device(options, state, folder, bytes)?);
        return Ok(records);
    }
    let (writes, reads): (Vec<Workload>, Vec<Workload>) = all.partition(Workload::is_write);
    let writes: Vec<Workload> = writes.into_iter().map(|write| write.after(QUEUE_S)).collect();
    let mut records = session.run(&contenders, &reads, folder)?;
    // Hidden blocks need public ones to carry them, as many as there can be.
    let carrier = Carrier::start(pddm.volume(Level::PUBLIC).context("the volume is not open")?);
    records.extend(session.run(&contenders, &writes, folder)?);
    carrier.stop()?;
    Ok(records)
}

/// A count of all bytes that were written to the device.
fn written(pddm: Arc<Pddm>) -> impl Fn() -> u64 {
    let unit_len = u64::from(pddm.geometry().unit_blocks()) * BLOCK_LEN;
    move || pddm.written_units() * unit_len
}

/// What the device below takes, written in sequence past the cache.
fn device(options: &PddmOptions, state: &'static str, folder: &Path, bytes: u64) -> Result<Record> {
    let file = folder.join("file.img");
    let variables = [
        ("FILE", file.display().to_string()),
        ("SIZE", bytes.to_string()),
        ("SECONDS", options.seconds.to_string()),
    ];
    let mut samples = Vec::new();
    for _ in 0..options.rounds {
        runner::check_stop()?;
        let done = fio::run(fio::DIRECT_WRITE, folder, &variables)?;
        samples.push(mib(done.bytes) * 1000.0 / real(done.runtime_ms));
    }
    Ok(Record {
        profile: state.into(),
        workload: "seq-write".into(),
        peer: DEVICE.into(),
        unit: "MiB/s".into(),
        samples,
        image_bytes: bytes,
        ..Record::default()
    })
}

/// nbdkit's LUKS filter over an image that qemu-img makes.
fn luks(folder: &Path, bytes: u64) -> Result<Contender> {
    let image = folder.join("luks.img");
    let password = folder.join("luks.password");
    std::fs::write(&password, "benchmark")?;
    let secret = format!("secret,id=s,file={}", password.display());
    // The least that is possible is tried: the key is not what is measured.
    let options = "key-secret=s,iter-time=100";
    let make = || {
        Command::new("qemu-img")
            .args(["create", "-q", "-f", "luks", "--object", &secret, "-o", options])
            .arg(&image)
            .arg(bytes.to_string())
            .status()
            .context("cannot start qemu-img")
    };
    // It measures its processor, and gives up where it sees no time pass.
    let mut further_tries = 1..LUKS_TRIES;
    while !make()?.success() {
        ensure!(further_tries.next().is_some(), "qemu-img cannot make a LUKS image");
    }
    let password = format!("passphrase=+{}", password.display());
    let arguments = ["--filter=luks", "file"].map(std::ffi::OsStr::new);
    let arguments =
        [&arguments[..], &[image.as_os_str(), std::ffi::OsStr::new(&password)]].concat();
    Contender::nbdkit(LUKS, folder, &arguments)
}

/// Whether `blocks` more may wait on a hidden volume: else their writer waits for public traffic,
/// and for ever if that is its own.
fn has_room(hidden: &Volume, blocks: u64) -> bool {
    blocks <= hidden.room_blocks() as u64
}

/// Writes a share of both volumes, then overwrites it evenly. Returns how many device blocks the
/// last sweep wrote for each public one.
fn age(session: &Pddm, public: &Volume, hidden: &Volume, share: u64) -> Result<Option<f64>> {
    if share == 0 {
        return Ok(None);
    }
    let spans = [public, hidden].map(|volume| volume.geometry().blocks * share / 100);
    ensure!(
        spans[1] > LARGE && hidden.queue_blocks() as u64 >= LARGE,
        "the device is too small: a hidden volume must take requests of {LARGE} blocks"
    );
    let data = vec![0xa5; 256 * 4096];
    for at in (0..spans[1] - LARGE).step_by(256) {
        hidden.write(BlockNo(at), &data)?;
        // As many public blocks as carry them, and more where that is not enough.
        let mut carried = 0;
        while carried < 4 * LARGE || !has_room(hidden, LARGE) {
            runner::check_stop()?;
            public.write(BlockNo((at * 4 + carried) % (spans[0] - LARGE)), &data)?;
            carried += LARGE;
        }
    }
    let mut state = 1u64;
    let mut before = 0;
    for sweep in 0..=SWEEPS {
        if sweep == SWEEPS {
            session.flush()?;
            before = session.written_units();
        }
        for _ in 0..spans[0] {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            public.write(BlockNo(state % spans[0]), &data[..4096])?;
        }
    }
    session.flush()?;
    let units = session.written_units() - before;
    let blocks = units * u64::from(session.geometry().unit_blocks());
    Ok(Some(real(blocks) / real(spans[0])))
}

/// Public traffic for hidden blocks to go with.
struct Carrier {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Result<()>>,
}

impl Carrier {
    fn start(public: Volume) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let own = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let blocks = public.geometry().blocks - 256;
            let data = vec![0x5a; 256 * 4096];
            let mut at = 0;
            while !own.load(Ordering::Relaxed) {
                public.write(BlockNo(at), &data)?;
                at = (at + 256) % blocks;
            }
            Ok(())
        });
        Self { stop, thread }
    }

    fn stop(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(done) => done,
            Err(_) => bail!("the public traffic has panicked"),
        }
    }
}

/// One for each ratio that is wanted, as far as it was measured.
pub(crate) fn promises(records: &[Record]) -> Vec<Promise> {
    let mut promises = Vec::new();
    for (peer, workload, state, wanted) in WANTED {
        let ours = records.iter().filter(|r| r.peer == peer && r.workload == workload);
        for record in ours.filter(|r| state.is_empty() || r.profile == state) {
            let what = format!("{} {peer} {workload}", record.profile);
            let values = (record.value(), value_of(BASE, record, records));
            promises.push(Promise::ratio(what, Bound::Least(wanted), BASE, &record.unit, values));
        }
    }
    promises.extend(of_aged(records));
    let opened = records.iter().find(|r| r.workload == "open").and_then(Record::value);
    promises.extend(opened.map(|seconds| {
        Promise::value("opening after a crash", Bound::Most(OPEN_S_MAX), "s", seconds)
    }));
    promises
}

/// What is wanted of the public volume when it is aged, beside others than [`BASE`].
fn of_aged(records: &[Record]) -> Vec<Promise> {
    let aged = |peer: &str, workload: &str| {
        let mut found = records.iter().filter(|r| r.peer == peer && r.profile == "aged");
        found.find(|r| r.workload == workload)
    };
    let value = |peer: &str, workload: &str| aged(peer, workload)?.value();
    let mut promises = Vec::new();
    for (workload, wanted) in WANTED_OF_LUKS {
        let Some(record) = aged("public", workload) else { continue };
        let (what, values) =
            (format!("aged public {workload}"), (record.value(), value(LUKS, workload)));
        promises.push(Promise::ratio(what, Bound::Least(wanted), LUKS, &record.unit, values));
    }
    let Some(sequential) = value("public", "seq-write") else { return promises };
    let cost = value("public", &cost_name("seq-write"));
    let values = (cost.map(|blocks| sequential * blocks), value(DEVICE, "seq-write"));
    let what = "aged public seq-write, all that is written";
    let bound = Bound::Least(DEVICE_SHARE);
    promises.push(Promise::ratio(what, bound, "the device", "MiB/s", values));
    let random = value("public", "rand-write-qd32").map(|iops| iops * mib(BLOCK_LEN));
    let what = "aged public rand-write-qd32";
    let bound = Bound::Least(ALIKE);
    let values = (random, Some(sequential));
    promises.push(Promise::ratio(what, bound, "sequential ones", "MiB/s", values));
    promises
}

/// A line for each figure of the paper's Tables 2 to 4 that these records have as well: shares of
/// what only encrypts.
pub(crate) fn beside_the_paper(records: &[Record]) -> String {
    let mut text = String::new();
    for (medium, workload, public, hidden) in disk::PAPER {
        for (peer, paper) in [("public", public), ("hidden", hidden)] {
            // On an SSD: what was measured on a volume in its worst state.
            let profile = if medium == "ssd" { "aged" } else { medium };
            let mut found = records.iter().filter(|r| r.profile == profile && r.peer == peer);
            let Some(record) = found.find(|r| r.workload == workload) else { continue };
            let Some(ours) = ratio_to(BASE, record, records) else { continue };
            writeln!(text, "  paper: {medium} {peer} {workload}: {paper:.3}x; ours {ours:.3}x")
                .expect("a string takes all");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::promise::lines;

    #[test]
    fn what_was_measured_is_judged() {
        let of = |peer, workload: &str, value: f64| Record {
            profile: "aged".into(),
            ..Record::sample(peer, workload, 0, &[value])
        };
        let records = [
            of("public", "seq-write", 600.0),
            of("public", &cost_name("seq-write"), 2.0),
            of(BASE, "seq-write", 2000.0),
            of(LUKS, "seq-write", 400.0),
            of(DEVICE, "seq-write", 1600.0),
            // 240 MiB/s.
            of("public", "rand-write-qd32", 61_440.0),
        ];
        let text = lines(&promises(&records));
        for line in [
            "MISSED: aged public seq-write, >= 0.33x of aead: 0.30x",
            "MISSED: aged public rand-write-qd32, >= 0.33x of aead: no value",
            "holds: aged public seq-write, >= 1.3x of nbdkit-luks: 1.50x",
            "MISSED: aged public seq-write, all that is written, >= 0.8x of the device: 0.75x",
            "MISSED: aged public rand-write-qd32, >= 0.8x of sequential ones: 0.40x",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert_eq!(promises(&[]), []);
    }
}
