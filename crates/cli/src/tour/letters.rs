//! Two evenings in a folder whose server sees every request, through real mounts.
//!
//! Paper: `PrivateFS`; `docs/threats.md`, what the number of queries tells.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use tacita_clock::{Clock, System};
use tacita_oram::geometry::Geometry;
use tacita_oram::link::Address;
use tacita_oram::server::{Limits, Listening, Place, Running};
use tacita_oram::trace::{Comparison, Event, Recorder, compare};
use tacita_oram::{Store, key_file};

use super::evening::{POLL, SETTLING, control, drawn, in_clear, shapes};
use super::{Chapter, Evidence};
use crate::exit::{self, Failure, Outcome};
use crate::oram::failure;

/// The store; its log is short, so that there soon are levels, in which things are looked up.
const BLOCK_LEN: u32 = 4096;
const PERIOD: u32 = 32;
const CAPACITY: u64 = 4096;
/// What all letters begin with, and how long they are.
const MARKER: &str = "LETTER FROM A SOURCE";
const LETTER_LEN: usize = 20_000;
const LETTERS: usize = 4;
const FOLDERS: [&str; 2] = ["sources", "recipes"];

type Evening = fn(&Path) -> std::io::Result<()>;

const EVENINGS: [(&str, &str, Evening); 2] = [
    ("evening-a", "A: letters from a source", |dir| {
        for _ in 0..2 {
            read(&dir.join("sources/0"))?;
        }
        fs::write(dir.join("sources/answer"), letter(7))?;
        fs::remove_file(dir.join("sources/1"))
    }),
    ("evening-b", "B: recipes", |dir| {
        for _ in 0..2 {
            read(&dir.join("recipes/2"))?;
        }
        fs::write(dir.join("recipes/dinner"), letter(8))?;
        fs::remove_file(dir.join("recipes/3"))
    }),
];

pub(super) fn chapter(folder: &Path) -> Outcome<Chapter> {
    let mut chapter = Chapter {
        done: format!(
            "A folder on a server gets {LETTERS} letters from a source and as many recipes. Then two \
             copies of it are mounted for an evening each, and a recorder writes down what their \
             servers see. Evening A: a letter is read, one answered, one deleted. Evening B: the \
             same with recipes."
        ),
        ..Chapter::default()
    };
    if let Some(why) = filled(folder)? {
        let what = "two evenings in a mounted folder have one shape to its server";
        chapter.evidence.push(Evidence::skipped(what, why));
        return Ok(chapter);
    }
    let clear = in_clear(&folder.join("store"), MARKER)?;
    chapter.evidence.push(Evidence::new(
        "nothing of a letter stands in what the server keeps",
        format!("\"{MARKER}\" found {clear} times in the server's folder"),
        clear == 0,
    ));
    let mut watched = Vec::new();
    for (name, _, evening) in EVENINGS {
        watched.push(Watched::spend(folder, name, evening)?);
    }
    let (compared, traces) = settled(&watched)?;
    let titles = EVENINGS.map(|(name, title, _)| (name, title));
    chapter.pictures = vec![("evenings.svg", drawn(folder, titles, &compared, &traces)?)];
    chapter.evidence.extend(shapes(&compared, &traces));
    chapter.evidence.push(control(&traces));
    Ok(chapter)
}

fn letter(number: usize) -> Vec<u8> {
    let text = format!("{MARKER}, NUMBER {number}: ");
    text.repeat(LETTER_LEN.div_ceil(text.len())).into_bytes()[..LETTER_LEN].to_vec()
}

fn read(path: &Path) -> std::io::Result<()> {
    let found = fs::read(path)?;
    if found.len() == LETTER_LEN { Ok(()) } else { Err(std::io::Error::other("another letter")) }
}

/// This program, with these arguments; what it says if it fails.
fn tacita(arguments: &[&str]) -> Outcome<Option<String>> {
    let program = std::env::current_exe()?;
    let done = Command::new(program).args(arguments).stdin(Stdio::null()).output()?;
    let said = || String::from_utf8_lossy(&done.stderr).trim().to_owned();
    Ok((!done.status.success()).then(said))
}

fn must(arguments: &[&str]) -> Outcome<()> {
    match tacita(arguments)? {
        None => Ok(()),
        Some(why) => Err(Failure::new(exit::DEVICE, why)),
    }
}

fn text(path: &Path) -> Outcome<&str> {
    path.to_str().ok_or_else(|| Failure::usage("the folder's name is no text"))
}

/// A mount of the store that is served at an address; ends with this.
struct Mounted(PathBuf);

impl Mounted {
    /// Mounts; why not, where the machine cannot.
    fn new(dir: PathBuf, server: &Address, key: &Path) -> Outcome<Result<Self, String>> {
        fs::create_dir_all(&dir)?;
        let (server, key) = (server.to_string(), text(key)?);
        let arguments =
            ["privatefs", "mount", &server, text(&dir)?, "--key", key, "--sync-every", "0"];
        Ok(match tacita(&arguments)? {
            None => Ok(Self(dir)),
            Some(why) => Err(why),
        })
    }

    fn sync(&self) -> Outcome<()> {
        must(&["sync", text(&self.0)?])
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(dir) = self.0.to_str() {
            let _ = tacita(&["umount", dir]);
        }
    }
}

/// A server of the store in `place`, at a socket in `sockets`.
fn served(place: &Place, sockets: &Path) -> Outcome<Running> {
    let at = Address::Unix(sockets.join("server"));
    Running::start(place, &Listening::at(at), Limits::default()).map_err(|e| failure(&e))
}

/// Makes the store, and a file system with letters in it; why not, where the machine cannot.
fn filled(folder: &Path) -> Outcome<Option<String>> {
    let geometry = Geometry::new(BLOCK_LEN, PERIOD, 4, CAPACITY).map_err(|e| failure(&e))?;
    let (place, key) = (Place::Folder(folder.join("store")), folder.join("key"));
    let (own, _) = key_file::create(&key, None).map_err(|e| failure(&e))?;
    Store::init(&place, &own, geometry).map_err(|e| failure(&e))?;
    let sockets = tempfile::tempdir()?;
    let running = served(&place, sockets.path())?;
    let server = &running.addresses()[0];
    must(&["privatefs", "format", &server.to_string(), "--key", text(&key)?])?;
    let mounted = match Mounted::new(folder.join("mounted"), server, &key)? {
        Ok(mounted) => mounted,
        Err(why) => return Ok(Some(why)),
    };
    for kind in FOLDERS {
        fs::create_dir(mounted.0.join(kind))?;
        for number in 0..LETTERS {
            fs::write(mounted.0.join(kind).join(number.to_string()), letter(number))?;
        }
    }
    Ok(None)
}

/// An evening, and all that was made for it; in the order in which it ends.
struct Watched {
    mounted: Mounted,
    _recorder: Recorder,
    _running: Running,
    _sockets: tempfile::TempDir,
    told: Arc<Mutex<Vec<Event>>>,
}

impl Watched {
    /// Spends an evening with a copy of the store.
    fn spend(folder: &Path, name: &str, evening: Evening) -> Outcome<Self> {
        let own = |what: &str| folder.join(format!("{name}-{what}"));
        copy(&folder.join("store"), &own("store"))?;
        for file in ["key", "key.anchor"] {
            fs::copy(folder.join(file), own(file))?;
        }
        let sockets = tempfile::tempdir()?;
        let running = served(&Place::Folder(own("store")), sockets.path())?;
        let told = Arc::new(Mutex::new(Vec::new()));
        let telling = Arc::clone(&told);
        let tell = move |event: &Event| {
            telling.lock().unwrap_or_else(PoisonError::into_inner).push(event.clone());
        };
        let seen = Address::Unix(sockets.path().join("recorder"));
        let recorder = Recorder::start(&running.addresses()[0], &seen, tell);
        let recorder = recorder.map_err(|e| failure(&e))?;
        let mounted = Mounted::new(own("mounted"), &seen, &own("key"))?
            .map_err(|why| Failure::new(exit::DEVICE, why))?;
        evening(&mounted.0)?;
        mounted.sync()?;
        Ok(Self { mounted, _recorder: recorder, _running: running, _sockets: sockets, told })
    }
}

/// Both traces, when all has passed that the evenings have begun, and how they compare.
fn settled(watched: &[Watched]) -> Outcome<(Comparison, Vec<Vec<Event>>)> {
    let events = |one: &Watched| one.told.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let begin = System.monotonic();
    loop {
        let traces: Vec<Vec<Event>> = watched.iter().map(events).collect();
        let compared = compare(&traces[0], &traces[1]);
        if compared.shape.is_none() || System.elapsed(begin) > SETTLING {
            return Ok((compared, traces));
        }
        System.wait(POLL);
        // The kernel may not have forgotten yet what was deleted: only then it is freed.
        for one in watched {
            one.mounted.sync()?;
        }
    }
}

/// Copies a folder.
fn copy(from: &Path, to: &Path) -> Outcome<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}
