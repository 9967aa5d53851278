//! Programs go on while a commit is brought into the image: at each of its writes and flushes all
//! files are read, and now and then one is written.

use std::sync::{Arc, Mutex};

use tacita_block::{BlockDevice, BlockNo, BlockRange, Geometry, MemoryDevice};
use tacita_hifs::Hifs;
use tacita_hifs::faults::Fault;
use tacita_hifs::geometry::{Layout, Parameters};
use tacita_testkit::by_name;
use tacita_testkit::env_number;
use tacita_testkit::history::{Rng, Tree, read_all, step, tree, walk};
use tacita_vfs::{Exchange, FileSystem, FileType, NewNode, Stamps};

use crate::images::{LAYOUTS, NOW, assert_same, fresh, new, open, parameters, plainly};
use crate::permutation::LIMITS;
use crate::planted::catches;

type Hook = Box<dyn Fn(&str) + Send>;

/// A device that tells of every write and flush before it happens.
struct Watched {
    inner: Arc<MemoryDevice>,
    hook: Mutex<Option<Hook>>,
}

impl Watched {
    fn tell(&self, what: &str) {
        // What the hook does may come back here.
        let hook = self.hook.lock().unwrap().take();
        if let Some(hook) = hook {
            hook(what);
            *self.hook.lock().unwrap() = Some(hook);
        }
    }
}

impl BlockDevice for Watched {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, at: BlockNo, buf: &mut [u8]) -> tacita_block::Result<()> {
        self.inner.read(at, buf)
    }

    fn write(&self, at: BlockNo, buf: &[u8]) -> tacita_block::Result<()> {
        self.tell(&format!("before a write at {}", at.0));
        self.inner.write(at, buf)?;
        self.tell(&format!("behind a write at {}", at.0));
        Ok(())
    }

    fn flush(&self) -> tacita_block::Result<()> {
        self.tell("a flush");
        self.inner.flush()
    }

    fn discard(&self, range: BlockRange) -> tacita_block::Result<()> {
        self.inner.discard(range)
    }

    fn write_zeroes(&self, range: BlockRange) -> tacita_block::Result<()> {
        self.inner.write_zeroes(range)
    }
}

fn contents(hifs: &Hifs) -> Vec<(Vec<u8>, Vec<u8>)> {
    let places = walk(hifs);
    let files = places.into_iter().filter(|place| place.kind == FileType::File);
    files.map(|place| (place.path, read_all(hifs, place.node))).collect()
}

/// A history whose every commit is watched. With `writing`, what is watched also changes.
fn game(parameters: &Parameters, seed: u64, writing: bool) {
    let inner = fresh(parameters);
    let device = Arc::new(Watched { inner: inner.clone(), hook: Mutex::new(None) });
    let hifs = Arc::new(open(device.clone()));
    let mut rng = Rng::new(seed);
    // A folder whose name changes with each commit, so that much moves.
    let (folder, _) = hifs.create(hifs.root(), "ballast 0".as_ref(), &folder()).unwrap();
    for n in 0..6 {
        let (file, _) = hifs.create(folder, format!("{n}").as_ref(), &new(FileType::File)).unwrap();
        hifs.write(file, 0, &rng.bytes(90_000), Stamps::NONE).unwrap();
    }
    let mut looked = 0;
    for commit in 0..12 {
        let (old, now) = (format!("ballast {commit}"), format!("ballast {}", commit + 1));
        let root = hifs.root();
        let _ =
            by_name::rename(&*hifs, (root, old.as_ref()), (root, now.as_ref()), Exchange::No, NOW);
        for _ in 0..=rng.below(25) {
            step(&*hifs, &mut rng, &LIMITS);
        }
        let expected = Arc::new(Mutex::new(contents(&hifs)));
        let (looks, weak) = (Arc::new(Mutex::new(0)), Arc::downgrade(&hifs));
        let (want, count) = (expected.clone(), looks.clone());
        let writer = Mutex::new(Rng::new(seed + commit));
        *device.hook.lock().unwrap() = Some(Box::new(move |what| {
            let hifs = weak.upgrade().unwrap();
            let mut want = want.lock().unwrap();
            let now = contents(&hifs);
            let differing = now.iter().zip(&*want).find(|(a, b)| a != b);
            assert!(
                now.len() == want.len() && differing.is_none(),
                "commit {commit}, {what}: {:?} is not what was written",
                differing.map(|((path, _), _)| String::from_utf8_lossy(path).into_owned())
            );
            *count.lock().unwrap() += 1;
            let mut rng = writer.lock().unwrap();
            if writing && rng.below(4) == 0 {
                let files: Vec<_> =
                    walk(&*hifs).into_iter().filter(|p| p.kind == FileType::File).collect();
                if let Some(place) = rng.pick(&files) {
                    // A little, so that it needs no commit of its own.
                    let (at, bytes) = (rng.below(9000), rng.bytes(100));
                    let _ = hifs.write(place.node, at, &bytes, Stamps::NONE);
                }
                *want = contents(&hifs);
            }
        }));
        hifs.sync().unwrap();
        *device.hook.lock().unwrap() = None;
        looked += *looks.lock().unwrap();
    }
    assert!(looked > 50, "{looked} looks");
    hifs.sync().unwrap();
    let durability: Tree = tree(&*hifs);
    let other = fresh(parameters);
    let again = open(other.clone());
    plainly(&again, &durability, seed);
    again.sync().unwrap();
    assert_same(&inner.snapshot(), &other.snapshot(), &format!("{parameters:?}, seed {seed}"));
}

fn folder() -> NewNode {
    NewNode { perm: 0o755, ..new(FileType::Directory) }
}

fn crowded(layout: Layout) -> Parameters {
    Parameters { len_bytes: 2 << 20, groups: Some(2), ..parameters(layout) }
}

#[test]
fn files_read_as_written_during_commits() {
    for layout in LAYOUTS {
        for seed in 0..env_number("TACITA_GAMES", 3) {
            for writing in [false, true] {
                game(&crowded(layout), seed, writing);
            }
        }
    }
}

#[test]
fn reading_the_old_place_is_caught() {
    let play = || (0..3).for_each(|seed| game(&crowded(Layout::B), seed, false));
    assert!(!catches(None, play), "the game passes without a fault");
    assert!(catches(Some(Fault::ReadsOldPlace), play));
}
