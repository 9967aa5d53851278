//! What the server sees of real mounts, recorded between them: scripts on this file or that one have one
//! shape, to the byte; where operations are padded, so have different ones of a class.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::slice;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tacita_clock::{Clock, System};
use tacita_oram::blob::{BlobStore, FolderStore, Put, Swap};
use tacita_oram::link::Address;
use tacita_oram::trace::{Comparison, Event, Recorder, Totals, compare};
use tacita_testkit::MountGuard;
use tokio::runtime::Builder;

use crate::bench::{Bench, content, run};

/// How long it may take until what was begun has passed, and the kernel has forgotten what was deleted.
const SETTLING: Duration = Duration::from_mins(3);

/// How long two scripts may stay different until they are held for it: longer than the kernel takes to
/// forget a file.
const DIFFERENT: Duration = Duration::from_secs(4);

/// Queries that the log holds: few, so that there soon are levels, in which blocks are looked up.
const PERIOD: u64 = 64;

/// Folders of old and new files in a store whose server has been closed then; in a folder.
fn base(test: &str, endpoint: &[String]) -> Option<Bench> {
    let mut bench = Bench::at(test, None, endpoint)?;
    bench.make(4096, PERIOD);
    let dir = bench.mount("SERVER", "--sync-every 0");
    for folder in ["here", "there"] {
        fs::create_dir(dir.join(folder)).unwrap();
    }
    for age in ["old", "new"] {
        for folder in ["here", "there"] {
            for len in [90_usize, 20_000, 30_000] {
                let file = dir.join(folder).join(format!("{age}-{len}"));
                fs::write(file, content(len, 1)).unwrap();
            }
        }
        bench.ends(&format!("sync {}", dir.display()), 0);
    }
    bench.umount(&dir);
    bench.ends(&format!("oram close {}", bench.path("server")), 0);
    Some(bench)
}

/// A mount of a store, and what the server sees of it.
struct Watched<'a> {
    bench: &'a Bench,
    guard: MountGuard,
    server: String,
    told: Arc<Mutex<Vec<Event>>>,
    _recorder: Recorder,
}

impl<'a> Watched<'a> {
    /// A mount of a copy of the store.
    fn copy(bench: &'a Bench, name: &str, options: &str) -> Self {
        let store = bench.path(&format!("{name}-store"));
        run("cp", &["-a", &bench.path("store"), &store]);
        Self::start(bench, name, &store, options)
    }

    /// A mount of a store that is a copy of the bench's.
    fn start(bench: &'a Bench, name: &str, store: &str, options: &str) -> Self {
        let path = |what: &str| bench.path(&format!("{name}-{what}"));
        let (key, server, seen) = (path("key"), path("server"), path("seen"));
        run("cp", &[&bench.path("key"), &key]);
        run("cp", &[&bench.path("key.anchor"), &path("key.anchor")]);
        bench.ends(&format!("oram serve {store} --listen unix:{server}"), 0);
        let told = Arc::new(Mutex::new(Vec::new()));
        let telling = Arc::clone(&told);
        let tell = move |event: &Event| telling.lock().unwrap().push(event.clone());
        let at = |path: &str| Address::Unix(path.into());
        let recorder = Recorder::start(&at(&server), &at(&seen), tell).unwrap();
        let guard = MountGuard::new().unwrap();
        let dir = guard.path().display();
        bench.ends(
            &format!("privatefs mount unix:{seen} {dir} --key {key} --sync-every 0{options}"),
            0,
        );
        Self { bench, guard, server, told, _recorder: recorder }
    }

    fn play(&self, script: fn(&Path)) {
        script(self.guard.path());
        self.bench.ends(&format!("sync {}", self.guard.path().display()), 0);
    }

    fn events(&self) -> Vec<Event> {
        self.told.lock().unwrap().clone()
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        let _ = self.bench.tacita(&format!("umount {}", self.guard.path().display()));
        let _ = self.bench.tacita(&format!("oram close {}", self.server));
    }
}

/// Whether two scripts have one shape, when all has passed that they have begun.
fn is_alike(
    bench: &Bench,
    options: &str,
    (one, two): (Script, Script),
    patience: Duration,
) -> Result<(), String> {
    let watched = [one, two].map(|(name, script)| {
        let watched = Watched::copy(bench, name, options);
        watched.play(script);
        watched
    });
    are_alike(&watched, patience)
}

fn are_alike(watched: &[Watched<'_>; 2], patience: Duration) -> Result<(), String> {
    let begin = System.monotonic();
    loop {
        let events = watched.each_ref().map(Watched::events);
        let Comparison { shape, .. } = compare(&events[0], &events[1]);
        let totals = events.map(|events| Totals::of(&events));
        let queries = totals.each_ref().map(|totals| totals.queries);
        assert!(queries.iter().all(|count| *count >= 10), "{queries:?}");
        assert!(totals.iter().all(|totals| totals.labels > 0 && totals.labels_again == 0));
        match shape {
            None => return Ok(()),
            Some(shape) => {
                if System.elapsed(begin) > patience {
                    return Err(format!("{queries:?}: {shape}"));
                }
                // The kernel may not have forgotten a file yet that was deleted.
                for watched in watched {
                    watched.play(|_| ());
                }
                System.wait(Duration::from_millis(20));
            }
        }
    }
}

/// Some time.
const TIME: rustix::fs::Timespec = rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 };

const AT: rustix::fs::AtFlags = rustix::fs::AtFlags::empty();

type Script = (&'static str, fn(&Path));

/// Old and new files, here and there.
const ONE: Script = ("one", |dir| {
    assert_eq!(fs::read(dir.join("here/old-20000")).unwrap().len(), 20_000);
    fs::write(dir.join("here/made"), b"made").unwrap();
    fs::rename(dir.join("here/old-90"), dir.join("there/moved")).unwrap();
    fs::remove_file(dir.join("here/new-30000")).unwrap();
});

/// As many operations of the same kinds, on others.
const TWO: Script = ("two", |dir| {
    assert_eq!(fs::read(dir.join("there/new-20000")).unwrap().len(), 20_000);
    fs::write(dir.join("there/other"), b"text").unwrap();
    fs::rename(dir.join("there/new-90"), dir.join("here/moved")).unwrap();
    fs::remove_file(dir.join("there/old-30000")).unwrap();
});

/// In stores elsewhere, which are empty: copies of one store, since how far its clients came with what they do
/// by the way is seen as well.
pub(crate) fn which_file_has_no_shape_at<S: BlobStore>(
    test: &str,
    [one, two]: [(String, impl Future<Output = S>); 2],
    endpoint: &[String],
) {
    let Some(bench) = base(test, endpoint) else { return };
    let original = FolderStore::open(bench.path("store")).unwrap();
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    let watched = [(one, ONE), (two, TWO)].map(|((store, opened), (name, script))| {
        runtime.block_on(async { copy(&original, &opened.await).await });
        let watched = Watched::start(&bench, name, &store, "");
        watched.play(script);
        watched
    });
    assert_eq!(are_alike(&watched, SETTLING), Ok(()));
}

async fn copy(from: &dyn BlobStore, to: &dyn BlobStore) {
    for object in from.list("").await.unwrap() {
        let len = from.len(object).await.unwrap().unwrap();
        let bytes = from.get(object, slice::from_ref(&(0..len))).await.unwrap().unwrap().remove(0);
        assert_eq!(to.put_if_absent(object, bytes).await.unwrap(), Put::Created);
    }
    let root = from.root().await.unwrap().unwrap();
    assert_eq!(to.swap_root(None, root).await.unwrap(), Swap::Swapped);
}

#[test]
fn which_file_is_used_has_no_shape() {
    let Some(bench) = base("which_file_is_used_has_no_shape", &[]) else { return };
    assert_eq!(is_alike(&bench, "", (ONE, TWO), SETTLING), Ok(()));
    let less: Script = ("less", |dir| {
        assert_eq!(fs::read(dir.join("there/new-20000")).unwrap().len(), 20_000);
    });
    let other = is_alike(&bench, "", (("again", ONE.1), less), DIFFERENT);
    assert!(other.is_err(), "the number of operations is seen");
}

#[test]
fn padded_operations_of_one_class_have_one_shape() {
    let Some(bench) = base("padded_operations_of_one_class_have_one_shape", &[]) else { return };
    let one: Script = ("one", |dir| {
        fs::create_dir(dir.join("new")).unwrap();
        fs::set_permissions(dir.join("here"), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(fs::read(dir.join("here/old-20000")).unwrap().len(), 20_000);
    });
    let two: Script = ("two", |dir| {
        std::os::unix::fs::symlink("target", dir.join("link")).unwrap();
        let times = rustix::fs::Timestamps { last_access: TIME, last_modification: TIME };
        rustix::fs::utimensat(rustix::fs::CWD, dir.join("here"), &times, AT).unwrap();
        assert_eq!(fs::read(dir.join("here/new-20000")).unwrap().len(), 20_000);
    });
    assert_eq!(is_alike(&bench, " --pad", (one, two), SETTLING), Ok(()));
}
