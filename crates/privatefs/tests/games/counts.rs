//! How much is asked: the only thing that the server sees.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tacita_clock::{Clock, Simulated, System};
use tacita_oram::log_view::Outcome;
use tacita_oram::record::Operation;
use tacita_privatefs::blocks::{Blocks, Room, Way};
use tacita_privatefs::ids::Id;
use tacita_privatefs::{Error, Kind, Options, PrivateFs};
use tacita_testkit::by_name;
use tacita_vfs::{Change, FileSystem, FileType, NewNode, NodeId, Stamps, Timestamp};

use crate::world::{World, key};

fn new(kind: FileType) -> NewNode {
    NewNode::new(kind, 0o700, Timestamp::default())
}

/// Folders with files: `here` and `there`, each with an old and a new file of each size.
fn fill(fs: &PrivateFs) {
    for folder in ["here", "there"] {
        let (dir, _) = fs.create(fs.root(), folder.as_ref(), &new(FileType::Directory)).unwrap();
        for age in ["old", "new"] {
            for len in [100, 5_000, 20_000, 30_000, 122_880] {
                let name = format!("{age}-{len}");
                let (file, _) = fs.create(dir, name.as_ref(), &new(FileType::File)).unwrap();
                fs.write(file, 0, &vec![1; len], Stamps::NONE).unwrap();
            }
            fs.sync().unwrap();
        }
    }
}

fn dir(fs: &PrivateFs, name: &str) -> NodeId {
    fs.lookup(fs.root(), name.as_ref()).unwrap().0
}

fn find(fs: &PrivateFs, folder: &str, name: &str) -> NodeId {
    fs.lookup(dir(fs, folder), name.as_ref()).unwrap().0
}

/// What a new mount asks for while it does something and leaves.
pub(crate) fn asked(options: &Options, script: &dyn Fn(&PrivateFs)) -> u64 {
    let world = World::new();
    let (fs, _) = world.mount(1);
    fill(&fs);
    fs.close().unwrap();
    let (fs, way) = world.mount_with(2, options);
    let before = way.asked();
    script(&fs);
    fs.sync().unwrap();
    way.asked() - before
}

type Script = Box<dyn Fn(&PrivateFs)>;

fn read(folder: &'static str, name: &'static str, len: usize) -> Script {
    Box::new(move |fs| {
        fs.read(find(fs, folder, name), 0, &mut vec![0; len]).unwrap();
    })
}

fn write(folder: &'static str, name: &'static str) -> Script {
    Box::new(move |fs| fs.write(find(fs, folder, name), 4096, &[2; 4096], Stamps::NONE).unwrap())
}

fn create(folder: &'static str, name: &'static str) -> Script {
    Box::new(move |fs| {
        fs.create(dir(fs, folder), name.as_ref(), &new(FileType::File)).unwrap();
    })
}

fn unlink(folder: &'static str, name: &'static str) -> Script {
    Box::new(move |fs| {
        let dir = dir(fs, folder);
        let node = by_name::remove(fs, dir, name.as_ref(), Timestamp::default()).unwrap();
        fs.forget(node);
    })
}

fn rename(from: &'static str, name: &'static str, to: &'static str) -> Script {
    Box::new(move |fs| {
        let (from, to) = (dir(fs, from), dir(fs, to));
        let now = Timestamp::default();
        let no = tacita_vfs::Exchange::No;
        by_name::rename(fs, (from, name.as_ref()), (to, "moved".as_ref()), no, now).unwrap();
    })
}

/// Operations of one kind on whatever: the same is asked, although nothing is padded.
pub(crate) fn of_one_kind() -> Vec<(&'static str, Vec<Script>)> {
    vec![
        (
            "a read",
            vec![
                read("here", "old-20000", 4096),
                read("there", "new-20000", 4096),
                read("here", "new-30000", 4096),
                // It ends sooner than what is read ahead.
                read("there", "old-5000", 4096),
            ],
        ),
        ("a write", vec![write("here", "old-20000"), write("there", "new-30000")]),
        ("a new file", vec![create("here", "a"), create("there", "another")]),
        (
            "a file is deleted",
            vec![
                unlink("here", "old-20000"),
                unlink("there", "new-20000"),
                // As many blocks, rounded up.
                unlink("here", "new-30000"),
            ],
        ),
        (
            "a name moves",
            vec![rename("here", "old-100", "there"), rename("there", "new-30000", "here")],
        ),
    ]
}

/// Operations of one class: names and attributes, or as many blocks of content.
pub(crate) fn of_one_class() -> Vec<(&'static str, Vec<Script>)> {
    let is_there = |fs: &PrivateFs| assert!(fs.lookup(dir(fs, "here"), "old-100".as_ref()).is_ok());
    let is_not = |fs: &PrivateFs| assert!(fs.lookup(dir(fs, "here"), "no".as_ref()).is_err());
    let twice = |fs: &PrivateFs| {
        fs.read(find(fs, "here", "old-20000"), 0, &mut [0; 4096]).unwrap();
        fs.read(find(fs, "here", "old-20000"), 0, &mut [0; 4096]).unwrap();
    };
    let each = |fs: &PrivateFs| {
        fs.read(find(fs, "here", "old-20000"), 0, &mut [0; 4096]).unwrap();
        fs.read(find(fs, "there", "new-30000"), 0, &mut [0; 4096]).unwrap();
    };
    let change = |fs: &PrivateFs| {
        let change = Change { perm: Some(0o600), ..Change::default() };
        fs.change(dir(fs, "here"), &change).unwrap();
    };
    let attribute = |fs: &PrivateFs| {
        let mode = tacita_vfs::XattrMode::Any;
        fs.set_xattr(dir(fs, "there"), "user.a".as_ref(), b"value", mode).unwrap();
    };
    let run = |index: u64| -> Script {
        Box::new(move |fs| {
            let file = find(fs, "here", "new-122880");
            let now = Some(Timestamp { secs: 9, nanos: 0 });
            let stamps = Stamps { now, ..Stamps::NONE };
            fs.write(file, index * 4096, &vec![9; 24 * 4096], stamps).unwrap();
        })
    };
    let sized = |first: u64, second: u64| -> Script {
        Box::new(move |fs| {
            let file = find(fs, "here", "old-20000");
            for size in [first, second] {
                let change = Change { size: Some(size), perm: Some(0o600), ..Change::default() };
                fs.change(file, &change).unwrap();
                fs.sync_node(file).unwrap();
            }
        })
    };
    vec![
        // Blocks go, or none does.
        ("a file is cut off or grows", vec![sized(12_288, 4096), sized(24_576, 30_000)]),
        // Thirty blocks are there.
        ("blocks that are there are written, or others", vec![run(0), run(32), run(16)]),
        ("a name that is there or not", vec![Box::new(is_there), Box::new(is_not)]),
        ("the same again or another", vec![Box::new(twice), Box::new(each)]),
        (
            "names and attributes change",
            vec![
                Box::new(change),
                Box::new(attribute),
                Box::new(|fs| {
                    fs.create(fs.root(), "f".as_ref(), &new(FileType::File)).unwrap();
                    fs.attr(fs.root()).unwrap();
                }),
                Box::new(|fs| {
                    fs.create(fs.root(), "d".as_ref(), &new(FileType::Directory)).unwrap();
                    fs.attr(fs.root()).unwrap();
                }),
            ],
        ),
    ]
}

/// Whether all scripts of each kind ask for as much.
pub(crate) fn are_equal(
    options: &Options,
    kinds: Vec<(&'static str, Vec<Script>)>,
) -> Result<(), String> {
    for (what, scripts) in kinds {
        let asked: Vec<u64> = scripts.iter().map(|script| asked(options, script)).collect();
        if asked.iter().any(|count| *count != asked[0] || *count == 0) {
            return Err(format!("{what}: {asked:?}"));
        }
    }
    Ok(())
}

pub(crate) fn padded() -> Options {
    Options { pad: true, ..Options::default() }
}

#[test]
fn which_file_it_is_shows_nowhere() {
    assert_eq!(are_equal(&Options::default(), of_one_kind()), Ok(()));
    assert_eq!(are_equal(&padded(), of_one_kind()), Ok(()));
}

#[test]
fn padded_operations_of_one_class_are_equal() {
    assert_eq!(are_equal(&padded(), of_one_class()), Ok(()));
    // They are not where nothing is padded, which the threat model says.
    assert!(are_equal(&Options::default(), of_one_class()).is_err());
}

/// Also what is done beside operations: freeing what has no name any more, and looking for what others have left.
#[test]
fn all_that_is_asked_where_operations_are_padded_is_whole() {
    for (what, scripts) in of_one_kind().into_iter().chain(of_one_class()) {
        for script in scripts {
            let asked = asked(&padded(), &*script);
            assert!(asked > 0 && asked.is_multiple_of(8), "{what}: {asked}");
        }
    }
}

/// A way to a store that does not answer for a second, if it is away.
#[derive(Debug)]
struct Silent {
    way: Arc<Way>,
    is_away: AtomicBool,
    asked: AtomicUsize,
}

impl Blocks for Silent {
    fn all(&self, operations: Vec<(Id, Operation)>) -> Result<Vec<Outcome>, Error> {
        if self.is_away.load(Ordering::SeqCst) {
            self.asked.fetch_add(1, Ordering::SeqCst);
            System.wait(Duration::from_secs(1));
            return Err(Error::new(Kind::TimedOut, "no answer"));
        }
        self.way.all(operations)
    }

    fn at_once(&self) -> usize {
        self.way.at_once()
    }

    fn room(&self) -> Result<Room, Error> {
        self.way.room()
    }
}

/// What many programs need is asked for once, and when it does not come, all of them hear it: not one
/// after the other, each of whom waits anew.
#[test]
fn who_waits_for_what_does_not_come_hears_it_with_who_asked() {
    let world = World::new();
    let (is_away, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let silent = Arc::new(Silent { way: world.store.way(1), is_away, asked });
    let clock = Arc::<Simulated>::clone(&world.clock);
    let blocks = Arc::<Silent>::clone(&silent);
    let fs = PrivateFs::open(blocks, &key(), clock, &Options::default()).unwrap();
    silent.is_away.store(true, Ordering::SeqCst);
    let look = || fs.lookup(fs.root(), "name".as_ref()).map(drop).unwrap_err().kind();
    let heard: Vec<_> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..8).map(|_| scope.spawn(look)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(heard, [tacita_vfs::Kind::TimedOut; 8]);
    // More than one where a thread has begun late.
    let asked = silent.asked.load(Ordering::SeqCst);
    assert!((1..4).contains(&asked), "{asked}");
    silent.is_away.store(false, Ordering::SeqCst);
    assert_eq!(look(), tacita_vfs::Kind::NotFound);
}
