//! Mounts that end at a query: what was synced is there, and all else as it was at some time.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tacita_privatefs::PrivateFs;
use tacita_privatefs::blocks::Way;
use tacita_testkit::history::{Rng, Seen, Tree, step, tree};
use tacita_testkit::{MemoryFs, env_number};
use tacita_vfs::{Change, FileSystem, FileType, NewNode, NodeId, Reserve, Stamps, Timestamp};

use crate::world::{LIMITS, World};

/// What a history may have left, from the last sync on.
struct Allowed(Vec<Tree>);

impl Allowed {
    /// All names and attributes as they were at one time; content as it was at some time.
    fn check(&self, found: &Tree, what: &str) {
        let outline = |seen: &Seen| Seen { content: vec![0; seen.content.len()], ..seen.clone() };
        let outline = |tree: &Tree| -> Tree {
            tree.iter().map(|(path, seen)| (path.clone(), outline(seen))).collect()
        };
        let of_found = outline(found);
        let at_one_time = self.0.iter().position(|tree| outline(tree) == of_found);
        let Some(at_one_time) = at_one_time else { panic!("{what}: never was so") };
        let contents: Vec<&Vec<u8>> =
            self.0.iter().flat_map(|tree| tree.values()).map(|seen| &seen.content).collect();
        for (path, seen) in found {
            // Where a file was about to be cut off its last block may have zeros already.
            let cut_off = |at| {
                let later = self.0[at_one_time..].iter();
                let mut contents = later.map(|tree| tree.get(path).map(|seen| &seen.content));
                contents.any(|content| content.is_none_or(|content| content.len() <= at))
            };
            let known = |(at, byte): (usize, &u8)| {
                *byte == 0 && cut_off(at)
                    || contents.iter().any(|content| content.get(at) == Some(byte))
            };
            let path = String::from_utf8_lossy(path);
            let all = seen.content.iter().enumerate().all(known);
            assert!(all, "{what}: {path} has content that no file had");
        }
        let (synced, later) = self.0.split_first().unwrap();
        for (path, seen) in synced {
            if later.iter().all(|tree| tree.get(path) == Some(seen)) {
                let path_text = String::from_utf8_lossy(path);
                assert!(found.get(path) == Some(seen), "{what}: {path_text} was synced");
            }
        }
    }
}

/// Makes all durable; the store shows it then, or not yet.
fn sync(fs: &PrivateFs, is_to_show: bool) -> tacita_vfs::Result<()> {
    if is_to_show { fs.sync() } else { fs.sync_node(fs.root()) }
}

/// Plays a history until the way to the store is cut.
fn play(seed: u64, steps: u32, cut: Option<u64>) -> (World, Allowed, u64) {
    let world = World::new();
    let (fs, way) = world.mount(seed);
    let model = MemoryFs::default();
    let mut rng = Rng::new(seed);
    let mut allowed = Allowed(vec![tree(&model)]);
    if let Some(cut) = cut {
        way.cut_at(cut);
    }
    for number in 0..steps {
        if number % 6 == 5 {
            if sync(&fs, number % 18 == 5).is_err() {
                break;
            }
            allowed.0 = vec![tree(&model)];
            continue;
        }
        step(&model, &mut rng.clone(), &LIMITS);
        allowed.0.push(tree(&model));
        // A step panics when the store is gone.
        if catch_unwind(AssertUnwindSafe(|| step(&fs, &mut rng, &LIMITS))).is_err() {
            break;
        }
    }
    (world, allowed, way.asked())
}

/// Cuts histories at every so many queries; how often that was.
pub(crate) fn cut_everywhere(seeds: std::ops::Range<u64>, every: u64) -> u64 {
    let mut cuts = 0;
    for seed in seeds {
        let (_, _, asked) = play(seed, 48, None);
        for cut in (10 + seed % every..asked).step_by(usize::try_from(every).unwrap()) {
            let what = format!("seed {seed}, cut at {cut} of {asked}");
            let (world, allowed, _) = play(seed, 48, Some(cut));
            let (fs, _) = world.mount(seed);
            allowed.check(&tree(&fs), &what);
            // It can be worked on.
            let mut rng = Rng::new(cut);
            for _ in 0..3 {
                step(&fs, &mut rng, &LIMITS);
            }
            let left = tree(&fs);
            fs.close().unwrap();
            world.check(&what);
            let (fs, _) = world.mount(seed);
            assert!(tree(&fs) == left, "{what}: after the next mount");
            cuts += 1;
        }
    }
    cuts
}

#[test]
fn a_mount_that_ends_at_any_query_leaves_what_was_synced_and_nothing_half_done() {
    let every = env_number("TACITA_CUT_EVERY", 3);
    let cuts = cut_everywhere(0..env_number("TACITA_SEEDS", 4), every);
    assert!(cuts > 60, "{cuts}");
}

/// The store fails and is there again: nothing that was acknowledged is lost, nor what was not.
#[test]
fn a_store_that_is_away_for_a_while_loses_nothing() {
    for seed in 0..env_number("TACITA_SEEDS", 6) {
        let world = World::new();
        let (fs, way) = world.mount(seed);
        let model = MemoryFs::default();
        let mut rng = Rng::new(seed);
        for number in 0..60 {
            step(&model, &mut rng.clone(), &LIMITS);
            step(&fs, &mut rng, &LIMITS);
            if number % 4 == 3 {
                let asked = way.asked();
                way.cut_at(asked + rng.below(60));
                let first = sync(&fs, number % 16 == 3);
                way.mend();
                sync(&fs, number % 16 == 7).unwrap();
                assert!(tree(&fs) == tree(&model), "seed {seed}, step {number}, {first:?}");
            }
        }
        fs.close().unwrap();
        world.check(&format!("seed {seed}"));
    }
}

const BLOCK_LEN: usize = 4096;
const BLOCK: u64 = BLOCK_LEN as u64;

fn write_block(fs: &PrivateFs, node: NodeId, block: u64) {
    fs.write(node, block * BLOCK, &[7; BLOCK_LEN], Stamps::NONE).unwrap();
}

fn is_zero(fs: &PrivateFs, node: NodeId, block: u64) -> bool {
    let mut content = [1; BLOCK_LEN];
    fs.read(node, block * BLOCK, &mut content).unwrap();
    content == [0; BLOCK_LEN]
}

/// A file is made, and a mount ends at every query while it writes a block into a hole of it. Where the block is not
/// in the file then, `more` is done: it is not there afterwards, either.
fn a_hole_stays_one(
    block: u64,
    make: impl Fn(&PrivateFs, NodeId),
    more: impl Fn(&PrivateFs, NodeId),
) {
    let sparse = |fs: &PrivateFs| fs.lookup(fs.root(), "sparse".as_ref()).unwrap().0;
    let mut left = 0;
    for cut in 1..12 {
        let world = World::new();
        let (fs, _) = world.mount(cut);
        let new = NewNode::new(FileType::File, 0o600, Timestamp::default());
        let (node, _) = fs.create(fs.root(), "sparse".as_ref(), &new).unwrap();
        fs.change(node, &Change { size: Some(1 << 30), ..Change::default() }).unwrap();
        make(&fs, node);
        fs.close().unwrap();
        let before = world.store.count();
        let (fs, way) = world.mount(cut);
        write_block(&fs, sparse(&fs), block);
        way.cut_at(way.asked() + cut);
        let _ = fs.sync();
        let (fs, _) = world.mount(cut);
        let node = sparse(&fs);
        if !is_zero(&fs, node, block) {
            continue;
        }
        left += u32::from(world.store.count() > before);
        more(&fs, node);
        assert!(is_zero(&fs, node, block), "cut at {cut}");
        fs.close().unwrap();
        let (fs, _) = world.mount(cut);
        assert!(is_zero(&fs, sparse(&fs), block), "cut at {cut}, after the next mount");
        fs.close().unwrap();
        world.check(&format!("cut at {cut}"));
    }
    assert!(left > 0, "nothing was cut");
}

fn write_pieces(fs: &PrivateFs, node: NodeId, apart: u64) {
    (0..40).for_each(|n| write_block(fs, node, n * apart));
}

/// What the store has of that block is nobody's, also when the file has so many pieces that some of its holes are no
/// longer told apart from them.
pub(crate) fn holes_stay_holes() {
    for apart in [2, 3000] {
        let pieces = |fs: &PrivateFs, node| write_pieces(fs, node, apart);
        a_hole_stays_one(apart / 2, |_, _| (), pieces);
    }
    let solid = |fs: &PrivateFs, node| {
        (0..200).filter(|block| *block != 1).for_each(|block| write_block(fs, node, block));
    };
    let punched = |fs: &PrivateFs, node| {
        for n in 1..40 {
            let from = 4 * n * BLOCK;
            fs.reserve(node, from..from + 2 * BLOCK, Reserve::Punch).unwrap();
        }
    };
    a_hole_stays_one(1, solid, punched);
}

#[test]
fn what_a_mount_that_ended_has_written_into_a_hole_never_comes_up() {
    holes_stay_holes();
}

/// Nobody can have left anything in them.
#[test]
fn holes_of_a_new_content_need_not_be_cleared() {
    let world = World::new();
    let (fs, way) = world.mount(1);
    let new = NewNode::new(FileType::File, 0o600, Timestamp::default());
    let (node, _) = fs.create(fs.root(), "sparse".as_ref(), &new).unwrap();
    let asked_to_write = |fs: &PrivateFs, way: &Way, node| {
        let before = way.asked();
        write_pieces(fs, node, 300);
        fs.sync().unwrap();
        way.asked() - before
    };
    let cut_off = Change { size: Some(0), ..Change::default() };
    for _ in 0..2 {
        assert!(asked_to_write(&fs, &way, node) < 200);
        fs.change(node, &cut_off).unwrap();
        fs.sync().unwrap();
    }
    fs.close().unwrap();
    let (fs, way) = world.mount(2);
    let (node, _) = fs.lookup(fs.root(), "sparse".as_ref()).unwrap();
    assert!(asked_to_write(&fs, &way, node) > 300);
    fs.close().unwrap();
}
