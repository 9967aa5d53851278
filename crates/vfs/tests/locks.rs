//! Names change in many directories at once, and each change is one step.
//!
//! A file system that stops in the middle of a call shows who waits for whom; nothing is timed. What
//! must go on is waited for, and what must not is shown by what the tree says in the end.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use tacita_clock::{Clock, System};
use tacita_testkit::MemoryFs;
use tacita_vfs::posix::{Caller, RenameMode};
use tacita_vfs::{
    Attr, Change, Cookie, Entry, Exchange, FileSystem, FileType, FsStats, Kind, Link, NewNode,
    NodeId, Posix, Reserve, Result, Seek, Stamps, Target, Timestamp, XattrMode,
};

const USER: Caller = Caller { uid: 0, gid: 0, pid: 1, umask: 0 };

/// Somebody who stops at a name until let go.
#[derive(Default)]
struct Gate {
    /// The name to stop at, and whether somebody stands there.
    state: Mutex<(Option<OsString>, bool)>,
    changed: Condvar,
}

impl Gate {
    fn close_for(&self, name: &str) {
        *self.state.lock().unwrap() = (Some(name.into()), false);
    }

    fn pass(&self, name: &OsStr) {
        let mut state = self.state.lock().unwrap();
        while state.0.as_deref() == Some(name) {
            state.1 = true;
            self.changed.notify_all();
            state = self.changed.wait(state).unwrap();
        }
    }

    fn wait_for_somebody(&self) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| !state.1).unwrap());
    }

    fn open(&self) {
        self.state.lock().unwrap().0 = None;
        self.changed.notify_all();
    }
}

/// A file system in memory whose calls can be stopped, and whose nodes without references have to be
/// found again before they are used.
struct Stopping {
    memory: MemoryFs,
    /// Before a name is made, taken away, or moved.
    change: Gate,
    /// After a name has been found.
    found: Gate,
    /// Nodes that were found and not evicted since.
    present: Mutex<BTreeSet<NodeId>>,
    /// How often a node was used that had been evicted.
    absent_used: AtomicU64,
}

impl Stopping {
    fn new() -> Self {
        let memory = MemoryFs::default();
        let present = Mutex::new(BTreeSet::from([memory.root()]));
        Self {
            memory,
            change: Gate::default(),
            found: Gate::default(),
            present,
            absent_used: AtomicU64::new(0),
        }
    }

    fn use_node(&self, node: NodeId) {
        if !self.present.lock().unwrap().contains(&node) {
            self.absent_used.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl FileSystem for Stopping {
    fn root(&self) -> NodeId {
        self.memory.root()
    }

    fn attr(&self, node: NodeId) -> Result<Attr> {
        self.use_node(node);
        self.memory.attr(node)
    }

    fn lookup(&self, dir: NodeId, name: &OsStr) -> Result<(NodeId, Attr)> {
        let found = self.memory.lookup(dir, name)?;
        self.present.lock().unwrap().insert(found.0);
        self.found.pass(name);
        Ok(found)
    }

    fn parent(&self, dir: NodeId) -> Result<NodeId> {
        self.memory.parent(dir)
    }

    fn create(&self, dir: NodeId, name: &OsStr, new: &NewNode) -> Result<(NodeId, Attr)> {
        self.change.pass(name);
        let made = self.memory.create(dir, name, new)?;
        self.present.lock().unwrap().insert(made.0);
        Ok(made)
    }

    fn link(&self, node: NodeId, dir: NodeId, name: &OsStr, now: Timestamp) -> Result<Attr> {
        self.change.pass(name);
        self.memory.link(node, dir, name, now)
    }

    fn remove(&self, link: Link<'_>, now: Timestamp) -> Result<u32> {
        self.change.pass(link.name);
        self.memory.remove(link, now)
    }

    fn rename(&self, from: Link<'_>, to: Target<'_>, how: Exchange, now: Timestamp) -> Result<u32> {
        self.change.pass(from.name);
        self.memory.rename(from, to, how, now)
    }

    fn forget(&self, node: NodeId) {
        self.memory.forget(node);
    }

    fn evict(&self, node: NodeId) {
        self.present.lock().unwrap().remove(&node);
    }

    fn list(
        &self,
        dir: NodeId,
        from: Cookie,
        each: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        self.memory.list(dir, from, each)
    }

    fn change(&self, node: NodeId, change: &Change) -> Result<Attr> {
        self.memory.change(node, change)
    }

    fn read_link(&self, node: NodeId) -> Result<OsString> {
        self.memory.read_link(node)
    }

    fn read(&self, node: NodeId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.memory.read(node, offset, buf)
    }

    fn write(&self, node: NodeId, offset: u64, data: &[u8], stamps: Stamps) -> Result<()> {
        self.memory.write(node, offset, data, stamps)
    }

    fn reserve(&self, node: NodeId, range: Range<u64>, how: Reserve) -> Result<()> {
        self.memory.reserve(node, range, how)
    }

    fn seek(&self, node: NodeId, offset: u64, what: Seek) -> Result<u64> {
        self.memory.seek(node, offset, what)
    }

    fn xattr(&self, node: NodeId, name: &OsStr) -> Result<Vec<u8>> {
        self.memory.xattr(node, name)
    }

    fn xattrs(&self, node: NodeId) -> Result<Vec<OsString>> {
        self.memory.xattrs(node)
    }

    fn set_xattr(&self, node: NodeId, name: &OsStr, value: &[u8], mode: XattrMode) -> Result<()> {
        self.memory.set_xattr(node, name, value, mode)
    }

    fn remove_xattr(&self, node: NodeId, name: &OsStr) -> Result<()> {
        self.memory.remove_xattr(node, name)
    }

    fn stats(&self) -> Result<FsStats> {
        self.memory.stats()
    }

    fn sync_node(&self, node: NodeId) -> Result<()> {
        self.memory.sync_node(node)
    }

    fn sync(&self) -> Result<()> {
        self.memory.sync()
    }
}

type Fs = Arc<Posix<Stopping>>;

fn new_fs() -> Fs {
    Arc::new(Posix::new(Stopping::new(), Arc::new(System)))
}

fn dir(fs: &Fs, parent: NodeId, name: &str) -> NodeId {
    fs.mkdir(USER, parent, name.as_ref(), 0o755).unwrap().0
}

fn file(fs: &Fs, parent: NodeId, name: &str) -> Result<NodeId> {
    fs.mknod(USER, parent, name.as_ref(), (FileType::File, 0o644), 0).map(|(node, _)| node)
}

fn stopped_at<T: Send + 'static>(
    fs: &Fs,
    gate: impl Fn(&Stopping) -> &Gate,
    name: &str,
    work: impl FnOnce(&Fs) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let gate = gate(fs.file_system());
    gate.close_for(name);
    let worker = {
        let fs = Arc::clone(fs);
        thread::spawn(move || work(&fs))
    };
    gate.wait_for_somebody();
    worker
}

#[test]
fn who_is_stopped_in_one_directory_keeps_nobody_from_another() {
    let fs = new_fs();
    let root = fs.root();
    // More than there are cores, and numbers that are near each other.
    let dirs: Vec<NodeId> = (0..6).map(|i| dir(&fs, root, &format!("d{i}"))).collect();
    let first = dirs[0];
    let worker =
        stopped_at(&fs, |s| &s.change, "stops", move |fs| file(fs, first, "stops").map(drop));
    for dir in &dirs[1..] {
        file(&fs, *dir, "a").unwrap();
        fs.rename(USER, (*dir, "a".as_ref()), (*dir, "b".as_ref()), RenameMode::Replace).unwrap();
        fs.lookup(*dir, "b".as_ref()).unwrap();
        fs.unlink(USER, *dir, "b".as_ref()).unwrap();
    }
    // Across directories, too.
    file(&fs, dirs[1], "moves").unwrap();
    let (from, to) = ((dirs[1], "moves".as_ref()), (dirs[2], "moved".as_ref()));
    fs.rename(USER, from, to, RenameMode::Replace).unwrap();
    fs.file_system().change.open();
    worker.join().unwrap().unwrap();
    fs.lookup(first, "stops".as_ref()).unwrap();
}

/// Starts something that must wait, gives it every chance not to, and ends the wait. It has waited
/// if the tree says so; that it is at it already cannot be seen from here, and need not be.
fn meanwhile<T: Send + 'static>(
    fs: &Fs,
    work: impl FnOnce(&Fs) -> T + Send + 'static,
) -> (thread::JoinHandle<T>, Arc<AtomicBool>) {
    let done = Arc::new(AtomicBool::new(false));
    let (fs, flag) = (Arc::clone(fs), Arc::clone(&done));
    let worker = thread::spawn(move || {
        let result = work(&fs);
        flag.store(true, Ordering::SeqCst);
        result
    });
    for _ in 0..200 {
        thread::yield_now();
        if done.load(Ordering::SeqCst) {
            break;
        }
        System.wait(Duration::from_millis(1));
    }
    (worker, done)
}

#[test]
fn nothing_is_put_into_a_directory_that_is_being_removed() {
    let fs = new_fs();
    let root = fs.root();
    let gone = dir(&fs, root, "gone");
    let worker =
        stopped_at(&fs, |s| &s.change, "gone", move |fs| fs.rmdir(USER, root, "gone".as_ref()));
    let (creator, done) = meanwhile(&fs, move |fs| file(fs, gone, "late"));
    assert!(!done.load(Ordering::SeqCst), "a file was made in a directory that is going");
    fs.file_system().change.open();
    worker.join().unwrap().unwrap();
    assert_eq!(creator.join().unwrap().unwrap_err().kind(), Kind::NotFound);
}

#[test]
fn nothing_is_put_into_a_directory_that_is_being_replaced() {
    let fs = new_fs();
    let root = fs.root();
    let (_, victim) = (dir(&fs, root, "new"), dir(&fs, root, "old"));
    let worker = stopped_at(
        &fs,
        |s| &s.change,
        "new",
        move |fs| {
            fs.rename(USER, (root, "new".as_ref()), (root, "old".as_ref()), RenameMode::Replace)
        },
    );
    let (creator, done) = meanwhile(&fs, move |fs| file(fs, victim, "late"));
    assert!(!done.load(Ordering::SeqCst), "a file was made in a directory that is going");
    fs.file_system().change.open();
    worker.join().unwrap().unwrap();
    assert_eq!(creator.join().unwrap().unwrap_err().kind(), Kind::NotFound);
}

#[test]
fn a_file_that_is_losing_its_last_name_gets_no_other() {
    let fs = new_fs();
    let root = fs.root();
    let (a, b) = (dir(&fs, root, "a"), dir(&fs, root, "b"));
    let node = file(&fs, a, "last").unwrap();
    let worker =
        stopped_at(&fs, |s| &s.change, "last", move |fs| fs.unlink(USER, a, "last".as_ref()));
    let (linker, done) = meanwhile(&fs, move |fs| fs.link(node, b, "late".as_ref()));
    assert!(!done.load(Ordering::SeqCst), "a link was made to a file that is going");
    fs.file_system().change.open();
    assert!(!worker.join().unwrap().unwrap().1);
    assert_eq!(linker.join().unwrap().unwrap_err().kind(), Kind::NotFound);
}

#[test]
fn two_directories_do_not_move_into_each_other() {
    let fs = new_fs();
    let root = fs.root();
    // The two moves have no directory in common.
    let (x, y) = (dir(&fs, root, "x"), dir(&fs, root, "y"));
    let (a, b) = (dir(&fs, x, "a"), dir(&fs, y, "b"));
    let worker = stopped_at(
        &fs,
        |s| &s.change,
        "a",
        move |fs| fs.rename(USER, (x, "a".as_ref()), (b, "a".as_ref()), RenameMode::Replace),
    );
    let (other, done) = meanwhile(&fs, move |fs| {
        fs.rename(USER, (y, "b".as_ref()), (a, "b".as_ref()), RenameMode::Replace)
    });
    assert!(!done.load(Ordering::SeqCst), "two directories move at once");
    fs.file_system().change.open();
    worker.join().unwrap().unwrap();
    assert_eq!(other.join().unwrap().unwrap_err().kind(), Kind::Invalid);
    assert_eq!(fs.lookup(b, "a".as_ref()).unwrap().0, a);
}

#[test]
fn a_node_that_is_evicted_while_it_is_found_is_found_again() {
    let fs = new_fs();
    let root = fs.root();
    let node = file(&fs, root, "f").unwrap();
    let worker =
        stopped_at(&fs, |s| &s.found, "f", move |fs| fs.lookup(root, "f".as_ref()).unwrap().0);
    // The only reference is given back between finding and referring.
    fs.forget(node, 1);
    assert!(!fs.file_system().present.lock().unwrap().contains(&node), "nobody refers to it");
    fs.file_system().found.open();
    assert_eq!(worker.join().unwrap(), node);
    fs.attr(node).unwrap();
    assert_eq!(fs.file_system().absent_used.load(Ordering::SeqCst), 0);
}

#[test]
fn a_listing_refers_to_what_it_lists() {
    let fs = new_fs();
    let root = fs.root();
    let node = file(&fs, root, "f").unwrap();
    let handle = fs.opendir(root).unwrap();
    let worker = stopped_at(
        &fs,
        |s| &s.found,
        "f",
        move |fs| fs.list_with_attr(handle, 0, 10).unwrap().len(),
    );
    fs.forget(node, 1);
    fs.file_system().found.open();
    assert_eq!(worker.join().unwrap(), 3);
    fs.attr(node).unwrap();
    assert_eq!(fs.file_system().absent_used.load(Ordering::SeqCst), 0);
}

#[test]
fn many_who_change_names_at_once_leave_a_whole_tree() {
    const THREADS: u64 = 8;
    const TURNS: u64 = 400;
    let fs = new_fs();
    let root = fs.root();
    let dirs: Vec<NodeId> = (0..4).map(|i| dir(&fs, root, &format!("d{i}"))).collect();
    let start = Arc::new(Barrier::new(usize::try_from(THREADS).unwrap()));
    let workers: Vec<_> = (0..THREADS)
        .map(|seed| {
            let (fs, dirs, start) = (Arc::clone(&fs), dirs.clone(), Arc::clone(&start));
            thread::spawn(move || {
                let mut rng = tacita_testkit::history::Rng::new(seed + 1);
                start.wait();
                for _ in 0..TURNS {
                    change_something(&fs, &dirs, &mut rng);
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    // Each directory holds as many directories as its links say, each file as many names.
    let names = ["a", "b", "c"];
    let mut links = std::collections::BTreeMap::<NodeId, u32>::new();
    for dir in &dirs {
        for name in names {
            if let Ok((node, _)) = fs.lookup(*dir, name.as_ref()) {
                *links.entry(node).or_default() += 1;
            }
        }
    }
    for (node, count) in &links {
        let attr = fs.attr(*node).unwrap();
        if attr.kind == FileType::File {
            assert_eq!(attr.nlink, *count);
        }
    }
    fs.forget_all();
    let reached = u64::try_from(links.len() + dirs.len() + 1).unwrap();
    assert_eq!(fs.file_system().memory.node_count() as u64, reached, "nodes without names live on");
}

fn change_something(fs: &Fs, dirs: &[NodeId], rng: &mut tacita_testkit::history::Rng) {
    let names = ["a", "b", "c"];
    let mut any = || {
        let dir = dirs[usize::try_from(rng.below(dirs.len() as u64)).unwrap()];
        let name = OsStr::new(names[usize::try_from(rng.below(3)).unwrap()]);
        (dir, name)
    };
    let (from, to) = (any(), any());
    let made = match rng.below(6) {
        0 => fs.mknod(USER, from.0, from.1, (FileType::File, 0o600), 0).map(|made| made.0),
        1 => fs.mkdir(USER, from.0, from.1, 0o700).map(|made| made.0),
        2 => fs.unlink(USER, from.0, from.1).map(|_| fs.root()),
        3 => fs.rmdir(USER, from.0, from.1).map(|_| fs.root()),
        4 => {
            let mode = match rng.below(3) {
                0 => RenameMode::Exchange,
                1 => RenameMode::NoReplace,
                _ => RenameMode::Replace,
            };
            fs.rename(USER, from, to, mode).map(|_| fs.root())
        }
        _ => fs.lookup(from.0, from.1).and_then(|(node, _)| {
            let linked = fs.link(node, to.0, to.1);
            fs.forget(node, if linked.is_ok() { 2 } else { 1 });
            linked.map(|_| fs.root())
        }),
    };
    match made {
        Ok(node) if node != fs.root() => fs.forget(node, 1),
        Ok(_) => {}
        Err(e) => assert!(
            matches!(
                e.kind(),
                Kind::Exists
                    | Kind::NotFound
                    | Kind::IsDirectory
                    | Kind::NotDirectory
                    | Kind::NotEmpty
                    | Kind::NotPermitted
                    | Kind::Invalid
            ),
            "{e:?}"
        ),
    }
}
