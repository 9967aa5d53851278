//! Images with right checksums and wrong contents: whatever is opened serves every request.

use std::ffi::OsStr;

use tacita_hifs::geometry::BLOCK_LEN;
use tacita_hifs::{Hifs, OpenOptions};
use tacita_testkit::by_name;
use tacita_testkit::history::{Rng, walk};
use tacita_vfs::{
    Change, FileSystem, FileType, Kind, NewNode, Reserve, Seek, Stamps, Timestamp, XattrMode,
};

use crate::images::{memory_device, options};

/// Puts the checksum right of whatever the block seems to be.
pub(crate) fn mend(block: &mut [u8]) {
    if block.starts_with(b"TACITAHI") || block.starts_with(b"TACITAGR") {
        let sum = tacita_secret::digest(&block[..BLOCK_LEN - 32]);
        block[BLOCK_LEN - 32..].copy_from_slice(&sum);
    } else if block[4080..].iter().any(|&b| b != 0) {
        let sum = tacita_secret::digest(&block[..4080]);
        block[4080..].copy_from_slice(&sum[..16]);
    } else {
        block[32..48].fill(0);
        let sum = tacita_secret::digest(block);
        block[32..48].copy_from_slice(&sum[..16]);
    }
}

/// Opens in both ways, looks at everything and changes everything a little; nothing may panic.
/// Returns whether it opened.
pub(crate) fn exercise(image: &[u8]) -> bool {
    let read_only = OpenOptions { read_only: true, ..options(1) };
    if let Ok(hifs) = Hifs::open(memory_device(image), read_only) {
        look(&hifs);
    }
    if let Ok(hifs) = Hifs::salvage(memory_device(image), options(1)) {
        look_around(&hifs);
    }
    let device = memory_device(image);
    let Ok(hifs) = Hifs::open(device.clone(), options(1)) else {
        return false;
    };
    look(&hifs);
    if !hifs.is_read_only() {
        change(&hifs);
        let _ = hifs.sync();
        drop(hifs);
        // What this program has written it reads again.
        look(&Hifs::open(device, options(2)).unwrap());
    }
    true
}

fn look(hifs: &Hifs) {
    let _ = hifs.check(&mut |_, _| {});
    look_around(hifs);
}

fn look_around(hifs: &Hifs) {
    hifs.survey();
    hifs.map();
    hifs.stats().unwrap();
    for place in walk(hifs) {
        let attr = hifs.attr(place.node).unwrap();
        for name in hifs.xattrs(place.node).unwrap() {
            hifs.xattr(place.node, &name).unwrap();
        }
        match place.kind {
            FileType::File => {
                let mut buffer = vec![0; 9000];
                for at in [0, 4000, attr.size / 2, attr.size.saturating_sub(10), u64::MAX / 2] {
                    hifs.read(place.node, at, &mut buffer).unwrap();
                }
                for what in [Seek::Data, Seek::Hole] {
                    let found = hifs.seek(place.node, attr.size.saturating_sub(3), what);
                    assert!(found.is_err() || found.is_ok_and(|at| at <= attr.size));
                }
            }
            FileType::Symlink => drop(hifs.read_link(place.node).unwrap()),
            _ => {}
        }
    }
}

/// Refusals that a strange but readable image may give.
fn allow<T>(result: tacita_vfs::Result<T>) {
    if let Err(error) = result {
        let kinds = [Kind::NoSpace, Kind::FileTooBig, Kind::CrossDevice, Kind::TooManyLinks];
        assert!(kinds.contains(&error.kind()), "{error:?}");
    }
}

fn change(hifs: &Hifs) {
    let now = Timestamp { secs: 5, nanos: 6 };
    let mut rng = Rng::new(1);
    for place in walk(hifs) {
        match place.kind {
            FileType::File => {
                let size = hifs.attr(place.node).unwrap().size;
                let resize = |size| Change { size: Some(size), ..Change::default() };
                allow(hifs.write(place.node, size.min(1 << 20), &rng.bytes(700), Stamps::NONE));
                allow(hifs.change(place.node, &resize(size / 2)));
                allow(hifs.reserve(place.node, 0..size, Reserve::Punch));
                allow(hifs.change(place.node, &resize(100)));
                allow(hifs.set_xattr(place.node, OsStr::new("user.h"), b"x", XattrMode::Any));
            }
            FileType::Directory => {
                let new = NewNode::new(FileType::File, 0o600, now);
                if hifs.lookup(place.node, OsStr::new("new one")).is_err() {
                    allow(hifs.create(place.node, OsStr::new("new one"), &new));
                }
            }
            _ => {}
        }
    }
    let _ = hifs.sync();
    for place in walk(hifs).iter().rev() {
        let gone = by_name::remove(hifs, place.dir, &place.name, now).unwrap();
        hifs.forget(gone);
    }
}
