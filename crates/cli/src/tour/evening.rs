//! Two evenings with an oblivious store, as its server sees them, and how a build goes on meanwhile.
//!
//! Paper: `PrivateFS`, figure 9.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tacita_clock::{Clock, System};
use tacita_oram::geometry::{Generation, Geometry};
use tacita_oram::keys::Id;
use tacita_oram::link::Address;
use tacita_oram::log_view::Outcome as Answer;
use tacita_oram::record::Operation;
use tacita_oram::server::{Limits, Listening, Place, Running};
use tacita_oram::trace::{Comparison, Event, Recorder, Totals, compare, text};
use tacita_oram::{AnchorAt, Options, Store, Way};
use tacita_secret::Key;

use super::progress::{Curves, Sample};
use super::{Chapter, Evidence, progress};
use crate::exit::Outcome;
use crate::oram::{failure, trace};

/// Blocks of 512 bytes, a log of 64 queries, levels that double, short buckets: small, so that there is much
/// to be built in little time.
const BLOCK_LEN: u32 = 512;
const PERIOD: u32 = 64;
const CAPACITY: u64 = 2000;
const BUCKET_SLOTS: u32 = 256;
/// What is built in the middle of the evenings.
const BUILT: Generation = Generation { level: 3, number: 2 };
/// The patient whose record is read over and over.
const WATCHED: u64 = 7;
/// What all records begin with.
const MARKER: &str = "RECORD OF PATIENT";
/// How long what goes on when an evening is over may take: objects are removed that nobody needs any more.
pub(super) const SETTLING: Duration = Duration::from_mins(2);
pub(super) const POLL: Duration = Duration::from_millis(10);

/// The n-th query of an evening.
type Evening = fn(u64) -> (u64, Operation);

const EVENINGS: [(&str, &str, Evening); 2] = [
    ("evening-a", "A: one record is read", |_| (WATCHED, Operation::Read)),
    ("evening-b", "B: many are written", |n| (n, Operation::Write(record(n, 2).into()))),
];

pub(super) fn chapter(folder: &Path) -> Outcome<Chapter> {
    let geometry = Geometry::new(BLOCK_LEN, PERIOD, 2, CAPACITY)
        .and_then(|geometry| geometry.with_buckets(BUCKET_SLOTS))
        .map_err(|e| failure(&e))?;
    let build = geometry.build(BUILT);
    // The evening is twice as long as the build, which is in the middle of it.
    let queries = 2 * (build.until - build.from);
    let patients = build.from - queries / 4;
    let mut watched = Vec::new();
    for (name, _, evening) in EVENINGS {
        let store = folder.join(name);
        watched.push(Watched::spend(store, geometry, patients, (queries, evening))?);
    }
    let (compared, traces) = settled(&watched);
    let titles = EVENINGS.map(|(name, title, _)| (name, title));
    let evenings = drawn(folder, titles, &compared, &traces)?;
    let curves = &watched[0].curves;

    let mut evidence = vec![unread(folder, &watched[0])?];
    evidence.extend(shapes(&compared, &traces));
    evidence.push(control(&traces));
    evidence.push(keeps_ahead(curves));
    Ok(Chapter {
        done: format!(
            "Two stores get the records of {patients} patients each; then each is used for an \
             evening of {queries} queries. A recorder writes down all that their servers see. \
             Evening A: one patient's record is read over and over. Evening B: the records of many \
             are written anew."
        ),
        drawn: progress::drawing(curves),
        pictures: vec![("evenings.svg", evenings), ("progress.svg", progress::picture(curves))],
        evidence,
    })
}

/// A patient's record.
fn record(patient: u64, version: u64) -> Vec<u8> {
    let text = format!("{MARKER} {patient}, VERSION {version}: ");
    let text = text.repeat((BLOCK_LEN as usize).div_ceil(text.len()));
    text.as_bytes()[..BLOCK_LEN as usize].to_vec()
}

fn id(patient: u64) -> Id {
    let mut id = [0; 32];
    id[..8].copy_from_slice(&patient.to_le_bytes());
    id
}

/// An evening, and all that was made for it; in the order in which it ends.
struct Watched {
    _store: Store,
    _recorder: Recorder,
    _running: Running,
    _sockets: tempfile::TempDir,
    told: Arc<Mutex<Vec<Event>>>,
    /// What the queries have found.
    answers: Vec<Answer>,
    curves: Curves,
}

impl Watched {
    /// Makes a store in `folder` with so many records, and does so many queries.
    fn spend(
        folder: PathBuf,
        geometry: Geometry,
        patients: u64,
        (queries, evening): (u64, Evening),
    ) -> Outcome<Self> {
        let key = Key::take(&mut tacita_secret::random::<32>()?);
        let anchor = AnchorAt::File(folder.with_extension("anchor"));
        let place = Place::Folder(folder);
        Store::init(&place, &key, geometry).map_err(|e| failure(&e))?;
        let sockets = tempfile::tempdir()?;
        let at = |name: &str| Address::Unix(sockets.path().join(name));
        let running = Running::start(&place, &Listening::at(at("server")), Limits::default());
        let running = running.map_err(|e| failure(&e))?;
        let told = Arc::new(Mutex::new(Vec::new()));
        let telling = Arc::clone(&told);
        let tell = move |event: &Event| {
            telling.lock().unwrap_or_else(PoisonError::into_inner).push(event.clone());
        };
        let recorder = Recorder::start(&at("server"), &at("recorder"), tell);
        let recorder = recorder.map_err(|e| failure(&e))?;
        let store = Store::open(Way::Server(at("recorder")), &key, &anchor, &Options::default());
        let store = store.map_err(|e| failure(&e))?;
        let admitted = (0..patients).map(|n| (id(n), Operation::Write(record(n, 1).into())));
        store.all(admitted.collect()).and_then(|_| store.idle()).map_err(|e| failure(&e))?;
        let (mut answers, mut curves) = (Vec::new(), Curves::new(BUILT, queries));
        let begin = System.monotonic();
        for query in 0..queries {
            let (patient, operation) = evening(query);
            answers.push(store.query(id(patient), operation).map_err(|e| failure(&e))?);
            let status = store.status().map_err(|e| failure(&e))?;
            curves.take(query + 1, System.elapsed(begin), &status.builds);
        }
        store.idle().map_err(|e| failure(&e))?;
        Ok(Self {
            _store: store,
            _recorder: recorder,
            _running: running,
            _sockets: sockets,
            told,
            answers,
            curves,
        })
    }

    fn events(&self) -> Vec<Event> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Both traces, when nothing goes on any more that the evenings have begun, and how they compare.
fn settled(watched: &[Watched]) -> (Comparison, Vec<Vec<Event>>) {
    let begin = System.monotonic();
    loop {
        let traces: Vec<Vec<Event>> = watched.iter().map(Watched::events).collect();
        let compared = compare(&traces[0], &traces[1]);
        if compared.is_equal() || System.elapsed(begin) > SETTLING {
            return (compared, traces);
        }
        System.wait(POLL);
    }
}

/// Keeps both traces, and draws them side by side as SVG.
pub(super) fn drawn(
    folder: &Path,
    evenings: [(&str, &str); 2],
    compared: &Comparison,
    traces: &[Vec<Event>],
) -> Outcome<String> {
    let mut both = Vec::new();
    for ((name, title), events) in evenings.into_iter().zip(traces) {
        let lines: String = events.iter().map(text::line).collect();
        fs::write(folder.join(name).with_extension("trace"), text::HEAD.to_owned() + &lines)?;
        both.push(trace::Trace { name: title.to_owned(), events, totals: Totals::of(events) });
    }
    Ok(trace::draw(&both, Some(compared)))
}

/// The client has found what was written, and nobody finds it in what the server has.
fn unread(folder: &Path, watched: &Watched) -> Outcome<Evidence> {
    let right = Answer::Was(Some(record(WATCHED, 1).into()));
    let found = watched.answers.iter().filter(|answer| **answer == right).count();
    let (name, ..) = EVENINGS[0];
    let clear = in_clear(&folder.join(name), MARKER)?;
    Ok(Evidence::new(
        "the client reads the record, and nothing of it stands in what the server keeps",
        format!(
            "read {found} times of {}; \"{MARKER}\" found {clear} times in the server's folder",
            watched.answers.len()
        ),
        found == watched.answers.len() && clear == 0,
    ))
}

/// How often `marker` stands in the files of a folder.
pub(super) fn in_clear(folder: &Path, marker: &str) -> Outcome<usize> {
    let mut found = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        found += if entry.file_type()?.is_dir() {
            in_clear(&entry.path(), marker)?
        } else {
            super::ward::count(&fs::read(entry.path())?, marker)
        };
    }
    Ok(found)
}

pub(super) fn shapes(compared: &Comparison, traces: &[Vec<Event>]) -> [Evidence; 2] {
    let totals: Vec<Totals> = traces.iter().map(|events| Totals::of(events)).collect();
    let seen = |of: fn(&Totals) -> u64| format!("{} and {}", of(&totals[0]), of(&totals[1]));
    let said = |difference: &Option<String>| match difference {
        None => "no difference".to_owned(),
        Some(what) => format!("first difference: {what}"),
    };
    let again = |totals: &Totals| totals.labels_again;
    [
        Evidence::new(
            "both evenings have one shape: the same frames, to the byte, for the same generations",
            format!(
                "{} frames, {} bytes; {}",
                seen(|totals| totals.frames),
                seen(|totals| totals.client_bytes + totals.server_bytes),
                said(&compared.shape)
            ),
            compared.is_equal(),
        ),
        Evidence::new(
            "no label is asked for twice, where one thing is read over and over neither",
            format!(
                "{} labels, {} of them again",
                seen(|totals| totals.labels),
                seen(|totals| totals.labels_again)
            ),
            totals.iter().all(|totals| totals.labels > 0 && again(totals) == 0),
        ),
    ]
}

/// One request less is another shape: otherwise equal shapes would prove nothing.
pub(super) fn control(traces: &[Vec<Event>]) -> Evidence {
    let mut less = traces[1].clone();
    if let Some(fetch) = less.iter().rposition(|event| event.frame.kind == "fetch") {
        less.remove(fetch);
    }
    let noticed = compare(&traces[0], &less).shape;
    Evidence::new(
        "one request that is left out would be noticed",
        noticed.clone().unwrap_or_else(|| "nothing is noticed".to_owned()),
        noticed.is_some(),
    )
}

/// The meter's promise, as of the samples: a query is let in when the build is as far as it has to be.
fn keeps_ahead(curves: &Curves) -> Evidence {
    let Generation { level, .. } = curves.generation;
    let ahead = curves.samples.windows(2).filter(|two| two[1].reported >= two[0].enforced).count();
    let samples = curves.samples.len();
    Evidence::new(
        "a query is let in when the builds are as far as they have to be, and waits for none to end",
        format!(
            "level {level} was built while {} of {} queries came, ahead of its minimum at {} of {}",
            curves.samples.last().map_or(0, |sample: &Sample| sample.queries),
            curves.queries,
            ahead + 1,
            samples
        ),
        samples > 10 && ahead + 1 == samples,
    )
}
