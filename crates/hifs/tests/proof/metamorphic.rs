//! An operation and its inverse leave the same bytes.

use std::ffi::OsStr;

use tacita_hifs::geometry::{Layout, Parameters};
use tacita_testkit::by_name;
use tacita_testkit::history::{Rng, clear, step};
use tacita_testkit::search::holds;
use tacita_vfs::{
    Change, Exchange, FileSystem, FileType, NewNode, NodeId, Reserve, Stamps, Timestamp, XattrMode,
};

use crate::images::{LAYOUTS, assert_same, fresh, open, parameters};
use crate::permutation::LIMITS;

const NOW: Timestamp = Timestamp { secs: 12345, nanos: 678 };

fn new(kind: FileType) -> NewNode {
    NewNode { kind, perm: 0o644, uid: 5, gid: 6, rdev: 0, target: "to".into(), now: NOW }
}

fn resize(fs: &dyn FileSystem, node: NodeId, size: u64) {
    fs.change(node, &Change { size: Some(size), ..Change::default() }).unwrap();
}

type Step = fn(&dyn FileSystem, NodeId);

/// Each pair undoes itself on the file `held`, whose content is 50,000 bytes.
const PAIRS: [(&str, Step); 9] = [
    ("create, unlink", |fs, _| {
        let (node, _) = fs.create(fs.root(), OsStr::new("x"), &new(FileType::File)).unwrap();
        fs.write(node, 0, &[1; 9000], Stamps::NONE).unwrap();
        fs.sync().unwrap();
        by_name::remove(fs, fs.root(), OsStr::new("x"), NOW).unwrap();
        fs.forget(node);
    }),
    ("mkdir, rmdir", |fs, _| {
        let (node, _) = fs.create(fs.root(), OsStr::new("d"), &new(FileType::Directory)).unwrap();
        fs.sync().unwrap();
        by_name::remove(fs, fs.root(), OsStr::new("d"), NOW).unwrap();
        fs.forget(node);
    }),
    ("grow, truncate", |fs, held| {
        fs.write(held, 50_000, &[9; 70_000], Stamps::NONE).unwrap();
        fs.sync().unwrap();
        resize(fs, held, 50_000);
    }),
    ("link, unlink", |fs, held| {
        fs.link(held, fs.root(), OsStr::new("a-lesser-name"), NOW).unwrap();
        fs.sync().unwrap();
        by_name::remove(fs, fs.root(), OsStr::new("a-lesser-name"), NOW).unwrap();
    }),
    ("rename there and back", |fs, _| {
        let (root, held, other) = (fs.root(), OsStr::new("held"), OsStr::new("other"));
        by_name::rename(fs, (root, held), (root, other), Exchange::No, NOW).unwrap();
        fs.sync().unwrap();
        by_name::rename(fs, (root, other), (root, held), Exchange::No, NOW).unwrap();
    }),
    ("set and remove an attribute", |fs, held| {
        fs.set_xattr(held, OsStr::new("user.x"), &[3; 500], XattrMode::Create).unwrap();
        fs.sync().unwrap();
        fs.remove_xattr(held, OsStr::new("user.x")).unwrap();
    }),
    ("punch, fill", |fs, held| {
        fs.reserve(held, 10_000..30_000, Reserve::Punch).unwrap();
        fs.sync().unwrap();
        fs.write(held, 10_000, &[7; 20_000], Stamps::NONE).unwrap();
    }),
    ("overwrite twice", |fs, held| {
        fs.write(held, 5_000, &[0; 20_000], Stamps::NONE).unwrap();
        fs.sync().unwrap();
        fs.write(held, 5_000, &[7; 20_000], Stamps::NONE).unwrap();
    }),
    ("shrink into the inode, grow", |fs, held| {
        resize(fs, held, 10);
        fs.sync().unwrap();
        fs.write(held, 0, &[7; 50_000], Stamps::NONE).unwrap();
    }),
];

#[test]
fn inverse_operations_leave_the_same_bytes() {
    for layout in LAYOUTS {
        for (what, pair) in PAIRS {
            let device = fresh(&parameters(layout));
            let hifs = open(device.clone());
            let (held, _) =
                hifs.create(hifs.root(), OsStr::new("held"), &new(FileType::File)).unwrap();
            hifs.write(held, 0, &vec![7; 50_000], Stamps::NONE).unwrap();
            hifs.sync().unwrap();
            let before = device.snapshot();
            pair(&hifs, held);
            hifs.sync().unwrap();
            assert_same(&before, &device.snapshot(), &format!("{layout:?}, {what}"));
        }
    }
}

#[test]
fn an_emptied_image_is_a_new_one() {
    for layout in LAYOUTS {
        let device = fresh(&parameters(layout));
        let new = device.snapshot();
        let hifs = open(device.clone());
        let mut rng = Rng::new(99);
        for n in 0..200 {
            step(&hifs, &mut rng, &LIMITS);
            if n % 20 == 0 {
                hifs.sync().unwrap();
            }
        }
        clear(&hifs, &mut rng);
        let root = hifs.root();
        for name in hifs.xattrs(root).unwrap() {
            hifs.remove_xattr(root, &name).unwrap();
        }
        let change = Change { perm: Some(0o755), uid: Some(0), gid: Some(0), ..Change::default() };
        hifs.change(root, &change).unwrap();
        hifs.sync().unwrap();
        assert_same(&new, &device.snapshot(), &format!("{layout:?}, emptied"));
    }
}

/// A file of several blocks a bucket is deleted, of any length, shortened or with zeros at its end
/// before, in the same commit or an earlier one. Nothing of it is left, be it in the last bucket, of
/// which only what holds something is overwritten. Panics otherwise.
pub(crate) fn ends_game() {
    let parameters = Parameters { bucket_len_bytes: Some(16 << 10), ..parameters(Layout::D) };
    let device = fresh(&parameters);
    let empty = device.snapshot();
    let hifs = open(device.clone());
    let name = OsStr::new("file");
    for len in [193, 4096, 4097, 8192, 12_288, 16_384, 20_000, 33_000, 49_152] {
        for end in [len, len - 1, len / 2 + 1, len / 4, 193, 0] {
            for (zeroed, synced) in [(false, false), (false, true), (true, false), (true, true)] {
                let (file, _) = hifs.create(hifs.root(), name, &new(FileType::File)).unwrap();
                hifs.write(file, 0, &vec![b'x'; len], Stamps::NONE).unwrap();
                hifs.sync().unwrap();
                if zeroed {
                    hifs.write(file, end as u64, &vec![0; len - end], Stamps::NONE).unwrap();
                } else {
                    resize(&hifs, file, end as u64);
                }
                if synced {
                    hifs.sync().unwrap();
                }
                by_name::remove(&hifs, hifs.root(), name, NOW).unwrap();
                hifs.forget(file);
                hifs.sync().unwrap();
                let what = format!("{len} bytes, {end}, zeroed {zeroed}, synced {synced}");
                assert_same(&empty, &device.snapshot(), &what);
            }
        }
    }
}

#[test]
fn nothing_is_left_at_the_ends_of_files() {
    ends_game();
}

/// Nothing of what was written and deleted is anywhere in the image, its free space or its journal.
#[test]
fn deleted_markers_are_nowhere() {
    let device = fresh(&parameters(Layout::D));
    let hifs = open(device.clone());
    let mut markers = Vec::new();
    for n in 0..40u32 {
        let marker = format!("<marker {n:08}>");
        let name = format!("name-{n:08}");
        let (node, _) = hifs.create(hifs.root(), OsStr::new(&name), &new(FileType::File)).unwrap();
        hifs.write(node, 0, marker.repeat(700).as_bytes(), Stamps::NONE).unwrap();
        hifs.sync().unwrap();
        markers.push((marker, name, node));
    }
    let before = device.snapshot();
    for (n, (marker, name, node)) in markers.iter().enumerate() {
        assert!(holds(&before, marker) && holds(&before, name), "the search finds what is there");
        if n % 2 == 0 {
            assert_eq!(by_name::remove(&hifs, hifs.root(), OsStr::new(name), NOW).unwrap(), *node);
            hifs.forget(*node);
        } else {
            resize(&hifs, *node, 0);
        }
    }
    hifs.sync().unwrap();
    let after = device.snapshot();
    for (n, (marker, name, _)) in markers.iter().enumerate() {
        assert!(!holds(&after, marker), "content of {name} is left");
        assert_eq!(holds(&after, name), n % 2 == 1, "the name {name}");
    }
}
