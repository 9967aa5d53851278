//! Two travellers with the same holiday pictures. One of them has something else on the device.
//!
//! Paper: PD-DM, section 2, the game of definition 1.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tacita_block::{BlockDevice, BlockNo, FileDevice};
use tacita_hifs::geometry::{Ids, Layout, Parameters as HifsParameters, Times};
use tacita_hifs::{Hifs, OpenOptions, RootOwner};
use tacita_pddm::examine::{UnitView, View, examine};
use tacita_pddm::{Entropy, Level, Options, Parameters, Session, Source, Unlock, Volume, init};
use tacita_secret::{Password, digest};

use super::blocks::{self, Class, Device};
use super::{Chapter, Evidence};
use crate::exit::{self, Failure, Outcome};

const DEVICE_LEN: u64 = 24 << 20;
const DAYS: u64 = 4;
const CHANGED: Class = ("changed since the evening before", "#e69f00");
/// Blocks of pictures a day.
const PICTURE_BLOCKS: u64 = 900;
/// What nobody is to find.
const SECRET: &str = "the names of the sources; ";

/// One traveller's device.
struct World {
    name: &'static str,
    has_hidden: bool,
    device: Arc<dyn BlockDevice>,
    /// A copy taken each evening, and how many units had been written by then.
    copies: Vec<(Vec<u8>, u64)>,
}

fn public_password() -> Password {
    Password::new(b"holiday".to_vec())
}

fn hidden_password() -> Password {
    Password::new(b"what was never said".to_vec())
}

pub(super) fn chapter(folder: &Path) -> Outcome<Chapter> {
    let mut worlds = Vec::new();
    for (name, has_hidden) in [("plain.dev", false), ("secret.dev", true)] {
        worlds.push(travel(&folder.join(name), name, has_hidden)?);
    }
    let mut views = Vec::new();
    for world in &worlds {
        let all: Outcome<Vec<View>> = world.copies.iter().map(|(copy, _)| view(copy)).collect();
        views.push(all?);
    }
    let mut evidence = vec![writes(&worlds), equal_views(&views)];
    evidence.push(found(&worlds));
    evidence.extend(guesses(&views));
    evidence.push(back_home(&worlds)?);
    Ok(Chapter {
        done: format!(
            "Made two devices of {} MiB, one with a hidden volume. Wrote the same {} pictures a day \
             to both public volumes, for {DAYS} days. On the second, also kept a HIFS file system \
             on the hidden volume, with a file. Took a copy of both devices every evening, and \
             examined all of them with the public password.",
            DEVICE_LEN >> 20,
            PICTURE_BLOCKS / 30
        ),
        pictures: vec![("copies.svg", copies_drawn(&worlds))],
        evidence,
        ..Chapter::default()
    })
}

/// What has changed on both devices between two evenings, block by block.
fn copies_drawn(worlds: &[World]) -> String {
    let device = |world: &World| {
        let [.., (before, _), (after, _)] = &world.copies[..] else {
            unreachable!("there are {DAYS} copies")
        };
        let class = |at: usize, block: &[u8]| match &before[at * 4096..][..block.len()] {
            before if before == block => blocks::IN_USE,
            _ => CHANGED,
        };
        let hidden = if world.has_hidden { "a hidden volume" } else { "no hidden volume" };
        Device::new(format!("{}: {hidden}", world.name), after, 4096, class)
    };
    let devices: Vec<Device> = worlds.iter().map(device).collect();
    blocks::picture("Two devices, and what a day has changed on them", &devices)
}

/// Random bytes that are the same in both worlds, so that all that is public can be compared.
fn entropy(day: u64, world: u8) -> Entropy {
    let source = |domain: u8, world: u8| -> Source {
        let mut count = 0u64;
        Box::new(move || {
            count += 1;
            let mut input = vec![domain, world];
            input.extend(day.to_le_bytes());
            input.extend(count.to_le_bytes());
            Ok(digest(&input))
        })
    };
    Entropy { public: source(0, 0), hidden: source(1, world) }
}

fn travel(path: &Path, name: &'static str, has_hidden: bool) -> Outcome<World> {
    let failed = |e: tacita_block::Error| exit::of_device(path, &e);
    let file = FileDevice::create(path, DEVICE_LEN, 4096).map_err(failed)?;
    let device: Arc<dyn BlockDevice> = Arc::new(file);
    let (public, hidden) = (public_password(), hidden_password());
    let parameters = Parameters { heartbeat_ms: 0, ..Parameters::default() };
    let unlocks = [Unlock::Password(&hidden)];
    let unlocks = if has_hidden { &unlocks[..] } else { &[] };
    let world = u8::from(has_hidden);
    init(&device, &parameters, Unlock::Password(&public), unlocks, entropy(0, world))
        .map_err(of)?;
    let own = if has_hidden { &hidden } else { &public };
    let options = Options { entropy: entropy(1, world), ..Options::default() };
    let session = Session::open(&device, Unlock::Password(own), options).map_err(of)?;
    let mut copies = Vec::new();
    for day in 0..DAYS {
        if let Some(volume) = session.volume(Level::hidden(1)) {
            keep_a_secret(volume, day)?;
        }
        take_pictures(&session, day)?;
        session.flush().map_err(of)?;
        let mut copy = vec![0; usize::try_from(DEVICE_LEN).expect("it fits into memory")];
        device.read(BlockNo(0), &mut copy).map_err(failed)?;
        copies.push((copy, session.written_units()));
    }
    session.close().map_err(of)?;
    Ok(World { name, has_hidden, device, copies })
}

/// The public history: some pictures are new, some replace others.
fn take_pictures(session: &Session, day: u64) -> Outcome<()> {
    let volume = session.volume(Level::PUBLIC).expect("it is always open");
    let blocks = volume.geometry().blocks;
    for n in 0..PICTURE_BLOCKS {
        let at = (day * 700 + n) * 7 % blocks;
        let mut picture = digest(&[day.to_le_bytes(), n.to_le_bytes()].concat()).repeat(128);
        picture.truncate(4096);
        volume.write(BlockNo(at), &picture).map_err(|e| of(e.into()))?;
    }
    Ok(())
}

fn keep_a_secret(volume: Volume, day: u64) -> Outcome<()> {
    let device: Arc<dyn BlockDevice> = Arc::new(volume);
    let failed = |e: tacita_hifs::Error| Failure::new(exit::DEVICE, e.to_string());
    if day == 0 {
        let parameters = HifsParameters {
            len_bytes: device.geometry().len_bytes(),
            layout: Layout::D,
            ids: Ids::Path,
            times: Times::None,
            bucket_len_bytes: None,
            groups: None,
            seed: [7; 32],
        };
        tacita_hifs::format(Arc::clone(&device), &parameters, RootOwner::default(), &mut |_, _| {})
            .map_err(failed)?;
    }
    let hifs = Hifs::open(device, OpenOptions::default()).map_err(failed)?;
    let scratch = tempfile::tempdir()?;
    fs::write(scratch.path().join(format!("day-{day}.txt")), SECRET.repeat(800))?;
    tacita_hifs::pack::pack(&hifs, scratch.path(), &mut |_| {})
        .map_err(|e| Failure::new(exit::DEVICE, e.to_string()))?;
    hifs.commit().map_err(failed)
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn of(error: tacita_pddm::Error) -> Failure {
    Failure::new(exit::DEVICE, error.to_string())
}

fn view(copy: &[u8]) -> Outcome<View> {
    let device = tacita_block::MemoryDevice::from_bytes(copy, 4096);
    let device: Arc<dyn BlockDevice> = Arc::new(device.map_err(|e| of(e.into()))?);
    examine(&device, Unlock::Password(&public_password())).map_err(of)
}

fn writes(worlds: &[World]) -> Evidence {
    let counts = |world: &World| -> Vec<String> {
        world.copies.iter().map(|(_, units)| units.to_string()).collect()
    };
    let seen: Vec<String> =
        worlds.iter().map(|w| format!("{}: {}", w.name, counts(w).join(", "))).collect();
    let holds = counts(&worlds[0]) == counts(&worlds[1]);
    Evidence::new("the same number of units is written each day", seen.join("; "), holds)
}

/// What is public of a unit.
fn public_part(unit: &UnitView) -> UnitView {
    let mut unit = unit.clone();
    (unit.previous, unit.hash) = Default::default();
    unit.hidden_part.clear();
    unit.hidden_slots.clear();
    unit
}

fn equal_views(views: &[Vec<View>]) -> Evidence {
    let mut compared = 0;
    let mut differ = 0;
    for (a, b) in views[0].iter().zip(&views[1]) {
        for (a, b) in a.units.iter().zip(&b.units) {
            compared += 1;
            differ += usize::from(a.as_ref().map(public_part) != b.as_ref().map(public_part));
        }
    }
    Evidence::new(
        "what the public password opens is the same on every copy",
        format!("{compared} units compared, {differ} differ"),
        differ == 0,
    )
}

fn found(worlds: &[World]) -> Evidence {
    let secret = SECRET.as_bytes();
    let hits = |copy: &[u8]| copy.windows(secret.len()).filter(|w| *w == secret).count();
    let raw: usize = worlds.iter().flat_map(|w| &w.copies).map(|(copy, _)| hits(copy)).sum();
    Evidence::new(
        "no copy contains the hidden file in the clear",
        format!("found {raw} times"),
        raw == 0,
    )
}

/// By unit of the last copy: how uneven the bytes of its hidden slots are.
fn unevenness(view: &View, blank: bool) -> Vec<f64> {
    let units = view.units.iter().flatten();
    let uneven = |unit: &UnitView| {
        let mut bins = [0.0; 256];
        let bytes = unit.hidden_slots.iter();
        bytes.for_each(|byte| bins[usize::from(if blank { 0 } else { *byte })] += 1.0);
        #[allow(clippy::cast_precision_loss, reason = "a few thousand")]
        let expected = unit.hidden_slots.len() as f64 / 256.0;
        bins.iter().map(|n| (n - expected) * (n - expected) / expected).sum()
    };
    units.map(uneven).collect()
}

/// Share of right guesses of somebody who learns a threshold from every other unit.
fn guess(a: &[f64], b: &[f64]) -> f64 {
    let every = |values: &[f64], from: usize| -> Vec<f64> {
        values.iter().skip(from).step_by(2).copied().collect()
    };
    #[allow(clippy::cast_precision_loss, reason = "a few hundred")]
    let right = |a: &[f64], b: &[f64], at: f64, below: bool| {
        let side = |value: &f64| (*value <= at) == below;
        let count = a.iter().filter(|v| side(v)).count() + b.iter().filter(|v| !side(v)).count();
        count as f64 / (a.len() + b.len()) as f64
    };
    let (known_a, known_b) = (every(a, 0), every(b, 0));
    let rules = known_a.iter().chain(&known_b).flat_map(|at| [(*at, true), (*at, false)]);
    let score = |rule: &(f64, bool)| right(&known_a, &known_b, rule.0, rule.1);
    let best = rules.max_by(|x, y| score(x).total_cmp(&score(y)));
    best.map_or(0.5, |(at, below)| right(&every(a, 1), &every(b, 1), at, below))
}

fn guesses(views: &[Vec<View>]) -> Vec<Evidence> {
    let [plain, secret] = [0, 1].map(|w: usize| views[w].last().expect("a copy a day"));
    let real = guess(&unevenness(plain, false), &unevenness(secret, false));
    let leaky = guess(&unevenness(plain, true), &unevenness(secret, false));
    let percent = |share: f64| format!("{:.0}% of its guesses are right", share * 100.0);
    vec![
        Evidence::new(
            "a guesser that counts bytes in hidden slots stays at chance",
            format!("{}; a coin gets 50%", percent(real)),
            (0.35..0.65).contains(&real),
        ),
        Evidence::new(
            "the same guesser notices a leak: were empty slots zeros...",
            percent(leaky),
            leaky > 0.9,
        ),
    ]
}

fn back_home(worlds: &[World]) -> Outcome<Evidence> {
    let world = worlds.iter().find(|world| world.has_hidden).expect("one of them has");
    let read_only = || Options { read_only: true, ..Options::default() };
    let session = Session::open(&world.device, Unlock::Password(&hidden_password()), read_only());
    let session = session.map_err(of)?;
    let volume = session.volume(Level::hidden(1)).expect("its password was given");
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let hifs = Hifs::open(Arc::new(volume), options)
        .map_err(|e| Failure::new(exit::DEVICE, e.to_string()))?;
    let scratch = tempfile::tempdir()?;
    let target = scratch.path().join("out");
    tacita_hifs::pack::unpack(&hifs, &target, &mut |_| {})
        .map_err(|e| Failure::new(exit::DEVICE, e.to_string()))?;
    let mut whole = 0;
    for day in 0..DAYS {
        let text = fs::read(target.join(format!("day-{day}.txt"))).unwrap_or_default();
        whole += usize::from(text == SECRET.repeat(800).as_bytes());
    }
    let public = Session::open(&world.device, Unlock::Password(&public_password()), read_only());
    let volumes = public.map_err(of)?.volumes().len();
    Ok(Evidence::new(
        "the hidden password brings all of it back; the public one opens the public volume alone",
        format!("{whole} of {DAYS} files whole; {volumes} volume"),
        whole == usize::try_from(DAYS).unwrap_or(0) && volumes == 1,
    ))
}
