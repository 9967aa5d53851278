//! A block that cannot be read, of a file that has to move: no image is right, so none is written until the block
//! is not wanted any more, and nothing is lost.

use std::collections::BTreeMap;
use std::ffi::OsString;

use tacita_block::FaultDevice;
use tacita_hifs::geometry::{Layout, Parameters, Table};
use tacita_hifs::placement::Cell;
use tacita_hifs::{Hifs, Kind};
use tacita_testkit::history::{Rng, tree};
use tacita_testkit::{by_name, env_number};
use tacita_vfs::{
    Change, Entry, Exchange, FileSystem, FileType, NodeId, Reserve, Stamps, XattrMode,
};

use crate::crash::cut_everywhere;
use crate::fills;
use crate::images::{LAYOUTS, NOW, assert_same, fault_device, fresh, new, open, parameters};
use crate::unreadable::{LEN, blocks_of, break_block, crowded, with_bad_block};

/// The image is nearly full.
const FILES: u64 = 60;

/// An image, a file of it that the changes move, and where it lies.
struct Game {
    image: Vec<u8>,
    victim: u64,
    blocks: Vec<u64>,
}

/// A way to have everything committed, given where in the file the block is.
type Way = fn(&Game, &Hifs, u64);

/// What has others move, in one commit.
fn crowd(hifs: &Hifs) {
    fills::write(hifs, "new", &Rng::new(99).bytes(70_000));
    remove(hifs, "3");
}

/// What comes while that cannot be committed.
fn go_on(hifs: &Hifs) {
    fills::write(hifs, "more", &Rng::new(100).bytes(3000));
    let (node, _) = hifs.lookup(hifs.root(), "0".as_ref()).unwrap();
    hifs.write(node, 100, &vec![9; 20_000], Stamps::NONE).unwrap();
    let (node, _) = hifs.lookup(hifs.root(), "new".as_ref()).unwrap();
    hifs.change(node, &Change { size: Some(66_001), ..Change::default() }).unwrap();
}

fn remove(hifs: &Hifs, name: &str) {
    hifs.forget(by_name::remove(hifs, hifs.root(), name.as_ref(), NOW).unwrap());
}

fn ways() -> [(&'static str, Way); 7] {
    [
        ("deleted", |game, hifs, _| remove(hifs, &game.name())),
        ("overwritten", |game, hifs, at| {
            hifs.write(game.find(hifs), at, &[6; 4096], Stamps::NONE).unwrap();
        }),
        ("emptied", |game, hifs, _| {
            let change = Change { size: Some(0), ..Change::default() };
            hifs.change(game.find(hifs), &change).unwrap();
        }),
        ("punched", |game, hifs, at| {
            hifs.reserve(game.find(hifs), at..at + 4096, Reserve::Punch).unwrap();
        }),
        ("renamed and overwritten", |game, hifs, at| {
            let (root, name, node) = (hifs.root(), game.name(), game.find(hifs));
            let to = (root, "other name".as_ref());
            by_name::rename(hifs, (root, name.as_ref()), to, Exchange::No, NOW).unwrap();
            hifs.write(node, at, &[6; 4096], Stamps::NONE).unwrap();
        }),
        ("replaced", |game, hifs, _| {
            remove(hifs, &game.name());
            fills::write(hifs, &game.name(), &Rng::new(101).bytes(30_000));
        }),
        ("the cause undone", |_, hifs, _| {
            remove(hifs, "new");
            remove(hifs, "more");
            fills::write(hifs, "3", &Rng::new(3).bytes(usize::try_from(LEN).unwrap()));
        }),
    ]
}

impl Game {
    fn new(layout: Layout) -> Self {
        let (image, hifs, _) = crowded(layout, FILES);
        let lie = |hifs: &Hifs| -> Vec<Vec<u64>> {
            (0..FILES).map(|n| blocks_of(hifs, &n.to_string())).collect()
        };
        let before = lie(&hifs);
        crowd(&hifs);
        hifs.sync().unwrap();
        let moved = (4..).zip(before.iter().zip(lie(&hifs)).skip(4));
        let (victim, (blocks, _)) =
            moved.into_iter().find(|(_, (a, b))| *a != b).expect("one moves");
        Self { image, victim, blocks: blocks.clone() }
    }

    fn name(&self) -> String {
        self.victim.to_string()
    }

    fn find(&self, hifs: &Hifs) -> NodeId {
        hifs.lookup(hifs.root(), self.name().as_ref()).unwrap().0
    }

    /// All other files.
    fn others(&self, hifs: &Hifs) -> BTreeMap<OsString, Vec<u8>> {
        let mut files = Vec::new();
        let mut each = |entry: Entry<'_>| {
            files.push((entry.name.to_owned(), entry.node));
            true
        };
        hifs.list(hifs.root(), 0, &mut each).unwrap();
        let content = |node: NodeId| {
            let mut content = vec![0; usize::try_from(hifs.attr(node).unwrap().size).unwrap()];
            hifs.read(node, 0, &mut content).unwrap();
            content
        };
        let others = files.into_iter().filter(|(name, _)| *name != *self.name());
        others.map(|(name, node)| (name, content(node))).collect()
    }

    /// Where the file cannot be read: in one block, and all else is as it was.
    fn lost_at(&self, hifs: &Hifs, what: &str) -> u64 {
        let content = Rng::new(self.victim).bytes(usize::try_from(LEN).unwrap());
        let mut lost = Vec::new();
        for (at, wanted) in (0..).step_by(4096).zip(content.chunks(4096)) {
            let mut found = vec![0; wanted.len()];
            match hifs.read(self.find(hifs), at, &mut found) {
                Ok(_) => assert!(found == wanted, "{what}: other content at {at}"),
                Err(_) => lost.push(at),
            }
        }
        assert_eq!(lost.len(), 1, "{what}: {lost:?}");
        lost[0]
    }

    /// The image of some changes where all can be read.
    fn plainly(&self, change: impl Fn(&Hifs)) -> Vec<u8> {
        let device = fault_device(self.image.clone());
        let hifs = open(device.clone());
        change(&hifs);
        hifs.sync().unwrap();
        device.content()
    }

    /// A commit that cannot be made, and is told: nothing of it is on the medium.
    fn refuses(&self, device: &FaultDevice, hifs: &Hifs, block: u64, what: &str) {
        let error = hifs.commit().expect_err(what);
        assert_eq!(error.kind(), Kind::Unreadable, "{what}: {error}");
        let text = error.to_string();
        for part in [format!("\"/{}\"", self.victim), format!("block {block} ")] {
            assert!(text.contains(&part), "{what}: {text}");
        }
        assert_same(&self.image, &device.content(), what);
    }

    /// Whether the block has to move, and cannot.
    fn play(&self, block: u64, (name, way): (&str, Way)) -> bool {
        let what = &format!("block {block}, {name}");
        let device = with_bad_block(&self.image, block);
        let hifs = open(device.clone());
        crowd(&hifs);
        let wanted = self.others(&hifs);
        if hifs.commit().is_ok() {
            assert_same(&self.plainly(crowd), &device.content(), what);
            return false;
        }
        self.refuses(&device, &hifs, block, what);
        let at = self.lost_at(&hifs, what);
        assert!(self.others(&hifs) == wanted, "{what}");
        go_on(&hifs);
        let wanted = self.others(&hifs);
        self.refuses(&device, &hifs, block, what);
        assert_eq!(self.lost_at(&hifs, what), at);
        assert!(self.others(&hifs) == wanted, "{what}");
        way(self, &hifs, at);
        hifs.commit().unwrap_or_else(|e| panic!("{what}: {e}"));
        let plainly = self.plainly(|hifs| {
            crowd(hifs);
            go_on(hifs);
            way(self, hifs, at);
        });
        assert_same(&plainly, &device.content(), what);
        device.clear_faults();
        let again = open(device);
        assert!(tree(&again) == tree(&hifs), "{what}");
        assert!(again.check(&mut |_, _| {}).unwrap().is_canonical(), "{what}");
        true
    }
}

#[test]
fn what_has_to_move_and_cannot_be_read_keeps_everything_until_it_is_not_wanted() {
    for layout in LAYOUTS {
        let game = Game::new(layout);
        for (n, way) in ways().into_iter().enumerate() {
            let blocks = game.blocks.iter().skip(n % 2).step_by(2);
            let refused = blocks.filter(|block| game.play(**block, way)).count();
            assert!(refused > 0, "{layout:?}, {}: nothing has moved", way.0);
        }
    }
}

/// A power cut while that is written at last leaves the image of before, or all of it.
#[test]
fn what_was_kept_is_committed_as_a_whole() {
    for layout in LAYOUTS {
        let game = Game::new(layout);
        let (mut cuts, mut blocks) = (0, game.blocks.iter());
        for (_, way) in ways().into_iter().take(3) {
            for block in blocks.by_ref() {
                let device = with_bad_block(&game.image, *block);
                let hifs = open(device.clone());
                crowd(&hifs);
                if hifs.commit().is_ok() {
                    continue;
                }
                let at = game.lost_at(&hifs, "cut");
                go_on(&hifs);
                way(&game, &hifs, at);
                device.restart_recording();
                hifs.commit().unwrap();
                let number = u32::try_from(*block).unwrap();
                cuts += cut_everywhere(&device, &game.image, &device.content(), (0, number), 2);
                break;
            }
        }
        assert!(cuts > 10, "{layout:?}: {cuts}");
    }
}

/// What is overwritten, or lies behind the end of the file, need not be read.
#[test]
fn only_what_is_needed_of_what_moves_is_read() {
    let game = Game::new(Layout::D);
    let mut content = vec![0; 4096];
    let mut commits = 0;
    for block in &game.blocks {
        let device = with_bad_block(&game.image, *block);
        let hifs = open(device.clone());
        let is_bad = |at: &u64| hifs.read(game.find(&hifs), *at, &mut content).is_err();
        let at = (0..LEN).step_by(4096).find(is_bad);
        let change = |hifs: &Hifs| {
            if let Some(at) = at {
                let len = usize::try_from(LEN - at).unwrap().min(4096);
                hifs.write(game.find(hifs), at, &vec![6; len], Stamps::NONE).unwrap();
            }
            crowd(hifs);
        };
        change(&hifs);
        hifs.commit().unwrap_or_else(|e| panic!("block {block}: {e}"));
        assert_same(&game.plainly(change), &device.content(), &format!("block {block}"));
        commits += u32::from(at.is_none());
    }
    // Of the last bucket.
    assert_eq!(commits, 2);
}

/// However much waits, the file can be deleted, and everything is committed.
#[test]
fn what_is_in_the_way_can_be_deleted_where_nothing_else_has_room() {
    let game = Game::new(Layout::D);
    let fill = |hifs: &Hifs| {
        let other = |n: &u64| *n != game.victim && *n != 3;
        (0..FILES).filter(other).find_map(|n| {
            let (node, _) = hifs.lookup(hifs.root(), n.to_string().as_ref()).unwrap();
            hifs.write(node, 0, &Rng::new(n + 1000).bytes(20_000), Stamps::NONE).err()
        })
    };
    for block in &game.blocks {
        let device = with_bad_block(&game.image, *block);
        let hifs = open(device.clone());
        crowd(&hifs);
        if hifs.commit().is_ok() {
            continue;
        }
        let error = fill(&hifs).expect("no room");
        assert_eq!(error.kind(), tacita_vfs::Kind::Io);
        game.refuses(&device, &hifs, *block, "full");
        let create = |n: &u32| {
            hifs.create(hifs.root(), format!("empty {n}").as_ref(), &new(FileType::File)).is_err()
        };
        let names = (0..10_000).find(create).expect("no room for names");
        let attribute = |n: &u32| {
            let (node, _) = hifs.lookup(hifs.root(), format!("empty {n}").as_ref()).unwrap();
            hifs.set_xattr(node, "user.a".as_ref(), &[1; 2500], XattrMode::Any).is_err()
        };
        (0..names).find(attribute).expect("no room for attributes");
        by_name::remove(&hifs, hifs.root(), "5".as_ref(), NOW).unwrap_err();
        let wanted = game.others(&hifs);
        remove(&hifs, &game.name());
        hifs.commit().unwrap();
        // Others lie there now.
        device.clear_faults();
        assert!(game.others(&hifs) == wanted);
        assert!(fill(&hifs).is_none());
        hifs.commit().unwrap();
        drop(hifs);
        assert!(open(device).check(&mut |_, _| {}).unwrap().is_canonical());
        return;
    }
    panic!("nothing has moved");
}

/// A change of one of some files that reads nothing, and after which blocks are zero only behind its end, or
/// whole buckets are: what cannot be read need not be known to be zero.
fn change_blindly(hifs: &Hifs, files: u64, rng: &mut Rng) {
    let bucket = hifs.superblock().geometry.bucket_len_bytes();
    let (root, name) = (hifs.root(), rng.below(files).to_string());
    let Ok((node, attr)) = hifs.lookup(root, name.as_ref()) else {
        let len = usize::try_from(1 + rng.below(16)).unwrap() * 4096;
        return fills::write(hifs, &name, &rng.bytes(len));
    };
    let at = rng.below(6) * bucket;
    match rng.below(6) {
        0 => remove(hifs, &name),
        1 => {
            let size = Some(at.min(attr.size));
            hifs.change(node, &Change { size, ..Change::default() }).unwrap();
        }
        2 => {
            let to = rng.below(files).to_string();
            if hifs.lookup(root, to.as_ref()).is_err() {
                let (from, to) = ((root, name.as_ref()), (root, to.as_ref()));
                by_name::rename(hifs, from, to, Exchange::No, NOW).unwrap();
            }
        }
        3 => hifs.reserve(node, at..at + 2 * bucket, Reserve::Punch).unwrap(),
        _ => {
            let len = (attr.size.saturating_sub(at)).min((1 + rng.below(4)) * bucket);
            hifs.write(node, at, &rng.bytes(usize::try_from(len).unwrap()), Stamps::NONE).unwrap();
        }
    }
}

/// The same changes, where all can be read and where much cannot: whenever the second is committed, the
/// images are the same. How often something was in the way, and how often others took it away.
fn blind_history(layout: Layout, (bucket, files): (u32, u64), seed: u64) -> (u32, u32) {
    let parameters = Parameters {
        len_bytes: 1 << 20,
        groups: Some(2),
        bucket_len_bytes: Some(bucket),
        ..parameters(layout)
    };
    let image = fresh(&parameters).snapshot();
    let (whole, bad) = (fault_device(image.clone()), fault_device(image));
    let (healthy, hifs) = (open(whole.clone()), open(bad.clone()));
    let geometry = hifs.superblock().geometry;
    let break_some = |rng: &mut Rng| {
        for cell in (0..geometry.shape(Table::Buckets).cells()).map(Cell) {
            let start = geometry.cell_start(Table::Buckets, cell).0;
            if rng.below(25) == 0 {
                break_block(&bad, start + rng.below(geometry.bucket_blocks.into()));
            }
        }
    };
    let mut rng = Rng::new(seed);
    let (mut refused, mut freed, mut waits) = (0, 0, 0);
    for n in 0..60 {
        if n % 8 == 0 || waits == 2 {
            bad.clear_faults();
            hifs.commit().unwrap();
            assert_same(&whole.content(), &bad.content(), &format!("{layout:?}, seed {seed}"));
            break_some(&mut rng);
            waits = 0;
        }
        let step = rng.next();
        for _ in 0..3 {
            change_blindly(&healthy, files, &mut Rng::new(step));
            change_blindly(&hifs, files, &mut Rng::new(step));
        }
        healthy.commit().unwrap();
        let what = format!("{layout:?}, buckets of {bucket}, seed {seed}, commit {n}");
        let mut done = hifs.commit();
        refused += u32::from(done.is_err());
        while let Err(e) = &done
            && (waits > 0 || rng.below(3) > 0)
        {
            let text = e.to_string();
            let name = text.split('"').nth(1).unwrap_or_else(|| panic!("{what}: {text}"));
            for hifs in [&healthy, &hifs] {
                remove(hifs, &name[1..]);
                change_blindly(hifs, files, &mut Rng::new(step));
            }
            healthy.commit().unwrap();
            done = hifs.commit();
            freed += u32::from(done.is_ok());
        }
        match done {
            Ok(()) => {
                assert_same(&whole.content(), &bad.content(), &what);
                waits = 0;
            }
            Err(e) => {
                assert_eq!(e.kind(), Kind::Unreadable, "{what}: {e}");
                waits += 1;
            }
        }
    }
    bad.clear_faults();
    hifs.commit().unwrap();
    assert_same(&whole.content(), &bad.content(), &format!("{layout:?}, {bucket}, seed {seed}"));
    assert!(tree(&hifs) == tree(&healthy));
    (refused, freed)
}

#[test]
fn what_is_committed_at_last_is_the_image_of_what_there_is() {
    let seeds = env_number("TACITA_GAMES", 11);
    for layout in LAYOUTS {
        for (bucket, files) in [(4096, 14), (8192, 11)] {
            let counts = (0..seeds).map(|seed| blind_history(layout, (bucket, files), seed));
            let (refused, freed) = counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            println!("{layout:?}, buckets of {bucket}: {refused} refused, {freed} freed");
            assert!(refused > 0 && freed > 0);
        }
    }
}
