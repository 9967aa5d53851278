//! Images with every checksum right that no program of this format writes: each is refused, or
//! reported by a check.

use std::ffi::OsStr;

use tacita_hifs::geometry::{Layout, Parameters, Times};
use tacita_hifs::{Hifs, Kind};
use tacita_testkit::search;
use tacita_vfs::{FileSystem, FileType, NewNode, XattrMode};

use crate::damage::Sample;
use crate::images::{fresh, memory_device, new, open, options, parameters};

/// An image with a file, its attribute, a link and a pipe; and the block of its inodes.
fn image(times: Times) -> (Vec<u8>, usize) {
    let parameters =
        Parameters { len_bytes: 1 << 20, groups: Some(2), times, ..parameters(Layout::D) };
    let device = fresh(&parameters);
    let hifs = open(device.clone());
    let root = hifs.root();
    let (file, _) = hifs.create(root, OsStr::new("file"), &new(FileType::File)).unwrap();
    hifs.set_xattr(file, OsStr::new("user.some"), b"value", XattrMode::Any).unwrap();
    let link = NewNode { target: "somewhere".into(), ..new(FileType::Symlink) };
    hifs.create(root, OsStr::new("link"), &link).unwrap();
    hifs.create(root, OsStr::new("pipe"), &new(FileType::Fifo)).unwrap();
    hifs.sync().unwrap();
    drop(hifs);
    let image = device.snapshot();
    let at = find(&image, b"user.some") / 4096 * 4096;
    (image, at)
}

fn find(image: &[u8], bytes: &[u8]) -> usize {
    search::places(image, bytes)[0]
}

/// Puts the right checksum on a page.
fn seal_page(page: &mut [u8]) {
    page[32..48].fill(0);
    let sum = tacita_secret::digest(page);
    page[32..48].copy_from_slice(&sum[..16]);
}

fn seal_superblock(block: &mut [u8]) {
    let sum = tacita_secret::digest(&block[..4064]);
    block[4064..].copy_from_slice(&sum);
}

fn refused(image: &[u8], what: &str) {
    match Hifs::open(memory_device(image), options(2)) {
        Err(error) => assert_eq!(error.kind(), Kind::Damaged, "{what}: {error}"),
        Ok(_) => panic!("{what}: opens"),
    }
}

/// Where the inode of a kind begins in the page of inodes.
fn inode(image: &[u8], page: usize, kind: u8) -> usize {
    let mut at = page + 48;
    loop {
        if image[at + 16] == kind {
            return at;
        }
        let times = 12 * image[at + 17].count_ones() as usize;
        let word = |at: usize| usize::from(u16::from_le_bytes([image[at], image[at + 1]]));
        at += 56 + times + word(at + 48) + word(at + 50);
    }
}

#[test]
fn impossible_inodes_are_refused() {
    let (image, page) = image(Times::None);
    let changed = |what: &str, change: &dyn Fn(&mut [u8])| {
        let mut image = image.clone();
        change(&mut image);
        seal_page(&mut image[page..page + 4096]);
        refused(&image, what);
    };
    let name = find(&image, b"user.some");
    changed("a name of no space", &|image| image[name] = b'x');
    changed("a name with a zero", &|image| image[name + 6] = 0);
    let (file, link, pipe) =
        (inode(&image, page, 1), inode(&image, page, 3), inode(&image, page, 4));
    changed("a device number on a file", &|image| image[file + 32] = 1);
    changed("a device number on a pipe", &|image| image[pipe + 32] = 1);
    changed("a zero in a target", &|image| image[link + 56 + 3] = 0);
    changed("size on a pipe", &|image| image[pipe + 36] = 1);
}

#[test]
fn missing_times_are_refused() {
    let (image, page) = image(Times::Full);
    let mut image = image;
    let file = inode(&image, page, 1);
    assert_eq!(image[file + 17] & 6, 6);
    // The modification time becomes an access time: as long, but not what is kept.
    image[file + 17] = 5;
    seal_page(&mut image[page..page + 4096]);
    refused(&image, "no modification time");
}

#[test]
fn shapes_that_format_would_not_choose_are_refused() {
    let (image, _) = image(Times::None);
    for (at, what) in [(21, "K"), (28, "Bn"), (32, "Pn"), (40, "J")] {
        for other in [1i8, -1] {
            let mut image = image.clone();
            let last = image.len() - 4096;
            image[at] = image[at].wrapping_add_signed(other);
            seal_superblock(&mut image[..4096]);
            let copy = image[..4096].to_vec();
            image[last..].copy_from_slice(&copy);
            refused(&image, what);
        }
    }
}

#[test]
fn what_follows_the_image_is_reported() {
    let Sample { mut image, .. } = crate::damage::sample(Layout::D);
    image.extend([0; 8192]);
    let report = |image: &[u8]| open(memory_device(image)).check(&mut |_, _| {}).unwrap();
    assert!(report(&image).is_canonical());
    *image.last_mut().unwrap() = 1;
    assert!(!report(&image).is_canonical());
}

#[test]
fn impossible_names_and_targets_are_not_taken() {
    let hifs = open(fresh(&parameters(Layout::D)));
    let root = hifs.root();
    for target in ["", "a\0b"] {
        let link = NewNode { target: target.into(), ..new(FileType::Symlink) };
        assert!(hifs.create(root, OsStr::new("link"), &link).is_err(), "{target:?}");
    }
    for name in ["", "user.", "plain", "system.x", "user.a\0"] {
        assert!(hifs.set_xattr(root, OsStr::new(name), b"x", XattrMode::Any).is_err(), "{name:?}");
    }
}
