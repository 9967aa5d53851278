//! A folder that lives on while it is packed: what goes is left out, and what is written to is told.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use tacita_hifs::Hifs;
use tacita_hifs::geometry::{Layout, Parameters};
use tacita_hifs::pack::{Carried, PackError, pack, unpack};
use tacita_testkit::history::{Tree, tree};
use tacita_vfs::ACCESS_LIST;

use crate::images::{fresh, open, parameters};

/// What happens to a file.
type Act = fn(&fs::File);

/// Packs a folder; when the first file has been read, this happens to it.
fn packed(folder: &Path, change: impl Fn()) -> (Hifs, Carried) {
    let (hifs, carried) = try_packed(folder, change);
    (hifs, carried.unwrap())
}

fn try_packed(folder: &Path, change: impl Fn()) -> (Hifs, Result<Carried, PackError>) {
    let hifs = open(fresh(&Parameters { len_bytes: 16 << 20, ..parameters(Layout::D) }));
    let mut first = true;
    let carried = pack(&hifs, folder, &mut |_| {
        if std::mem::take(&mut first) {
            change();
        }
    });
    (hifs, carried)
}

fn content<'a>(tree: &'a Tree, name: &str) -> &'a [u8] {
    &tree[format!("/{name}").as_bytes()].content
}

#[test]
fn what_goes_or_becomes_something_else_is_as_it_is_found() {
    let outside = tempfile::tempdir().unwrap();
    let folder = outside.path().join("folder");
    let at = |name: &str| folder.join(name);
    fs::create_dir(&folder).unwrap();
    for name in ["0", "file", "file to folder", "file to link"] {
        fs::write(at(name), vec![7; 30_000]).unwrap();
    }
    for name in ["folder", "folder to file"] {
        fs::create_dir_all(at(name).join("in it")).unwrap();
    }
    symlink("0", at("link")).unwrap();
    symlink("0", at("link to file")).unwrap();
    fs::write(outside.path().join("secret"), "of somebody else").unwrap();
    let (hifs, carried) = packed(&folder, || {
        for name in ["file", "file to folder", "file to link", "link", "link to file"] {
            fs::remove_file(at(name)).unwrap();
        }
        for name in ["folder", "folder to file"] {
            fs::remove_dir_all(at(name)).unwrap();
        }
        fs::create_dir(at("file to folder")).unwrap();
        fs::write(at("file to folder/new"), "new").unwrap();
        symlink("../secret", at("file to link")).unwrap();
        fs::write(at("folder to file"), "short").unwrap();
        fs::write(at("link to file"), "short").unwrap();
    });
    let tree = tree(&hifs);
    let names: Vec<_> = tree.keys().map(|path| path.escape_ascii().to_string()).collect();
    let wanted = [
        "",
        "/0",
        "/file to folder",
        "/file to folder/new",
        "/file to link",
        "/folder to file",
        "/link to file",
    ];
    assert_eq!(names, wanted);
    assert_eq!(content(&tree, "file to link"), b"../secret");
    assert_eq!(content(&tree, "folder to file"), b"short");
    assert_eq!(content(&tree, "link to file"), b"short");
    assert!(carried.changed.is_empty() && carried.nodes == 6, "{carried:?}");
}

/// A folder that was listed goes with all that was in it.
#[test]
fn a_folder_that_goes_while_it_is_packed_keeps_what_was_read() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("dir");
    fs::create_dir(&dir).unwrap();
    for name in ["0", "1", "2"] {
        fs::write(dir.join(name), vec![7; 30_000]).unwrap();
    }
    fs::write(folder.path().join("last"), "last").unwrap();
    let (hifs, carried) = packed(folder.path(), || fs::remove_dir_all(&dir).unwrap());
    let tree = tree(&hifs);
    let names: Vec<_> = tree.keys().map(|path| path.escape_ascii().to_string()).collect();
    assert_eq!(names, ["", "/dir", "/dir/0", "/last"]);
    assert_eq!(content(&tree, "dir/0"), vec![7; 30_000]);
    assert!(carried.changed.is_empty(), "{carried:?}");
}

#[test]
fn what_is_written_to_while_it_is_read_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // Read in several pieces; others are read later, and whole.
    let long = 5 << 20;
    let acts: [(&str, Act); 3] = [
        ("overwritten", |file| file.write_all_at(&[1], 4 << 20).unwrap()),
        ("shortened", |file| file.set_len(3 << 20).unwrap()),
        ("longer", |file| file.write_all_at(&[1], 6 << 20).unwrap()),
    ];
    for (name, act) in acts {
        for name in ["0", "1"] {
            fs::write(at(name), vec![7; long]).unwrap();
        }
        let (hifs, carried) = packed(folder.path(), || {
            for name in ["0", "1"] {
                act(&fs::OpenOptions::new().write(true).open(at(name)).unwrap());
            }
        });
        assert_eq!(carried.changed, [at("0")], "{name}");
        let tree = tree(&hifs);
        assert_eq!(content(&tree, "0").len(), long, "{name}");
        assert!(content(&tree, "1") == fs::read(at("1")).unwrap(), "{name}");
    }
}

/// The number of a file that has gone is given to a new one: that is no name of it.
#[test]
fn a_number_that_was_given_to_another_is_no_hard_link() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("0"), vec![7; 30_000]).unwrap();
    fs::hard_link(at("0"), at("a name of it")).unwrap();
    fs::write(at("other"), vec![8; 20_000]).unwrap();
    let (hifs, _) = packed(folder.path(), || {
        // The same number as seen by the look: this is as near as can be had everywhere.
        fs::write(at("a name of it"), vec![9; 10_000]).unwrap();
    });
    let tree = tree(&hifs);
    assert!(content(&tree, "a name of it") == vec![9; 10_000]);
    assert!(content(&tree, "other") == vec![8; 20_000]);
}

/// Whoever may change the folder, but not read what the link leads to, would find it in the image.
#[test]
fn a_folder_that_becomes_a_link_is_not_followed() {
    let outside = tempfile::tempdir().unwrap();
    let at = |name: &str| outside.path().join(name);
    for (dir, content) in
        [("folder/above/dir", "of the folder"), ("secret/dir", "of somebody else")]
    {
        fs::create_dir_all(at(dir).join("below")).unwrap();
        for name in ["0", "1", "below/2"] {
            fs::write(at(dir).join(name), content.repeat(2000)).unwrap();
        }
    }
    let (hifs, _) = packed(&at("folder"), || {
        fs::rename(at("folder/above"), at("folder/moved")).unwrap();
        symlink(at("secret"), at("folder/above")).unwrap();
    });
    let tree = tree(&hifs);
    for name in ["0", "1", "below/2"] {
        let found = content(&tree, &format!("above/dir/{name}"));
        assert!(found == "of the folder".repeat(2000).as_bytes(), "{name}");
    }
}

/// Somebody may have put it in the place of the folder that was made.
#[test]
fn what_is_unpacked_goes_nowhere_by_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let [packed_folder, elsewhere, link] =
        ["files", "elsewhere", "link"].map(|name| dir.path().join(name));
    for folder in [&packed_folder, &elsewhere] {
        fs::create_dir(folder).unwrap();
    }
    fs::write(packed_folder.join("file"), "content").unwrap();
    symlink(&elsewhere, &link).unwrap();
    let (hifs, _) = packed(&packed_folder, || ());
    let error = unpack(&hifs, &link, &mut |_| {}).unwrap_err();
    assert_eq!(error.path, link);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    unpack(&hifs, &elsewhere, &mut |_| {}).unwrap();
    assert_eq!(fs::read(elsewhere.join("file")).unwrap(), b"content");
}

/// More levels than folders that are held open.
#[test]
fn folders_far_below_come_along() {
    let outside = tempfile::tempdir().unwrap();
    let [folder, out] = ["folder", "out"].map(|name| outside.path().join(name));
    let mut dir = folder.clone();
    for level in 0..80 {
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("z"), format!("{level}")).unwrap();
        dir.push("d");
    }
    fs::hard_link(folder.join("d/d/z"), dir.with_file_name("first")).unwrap();
    let (hifs, carried) = packed(&folder, || ());
    assert_eq!(carried.nodes, 79 + 80);
    let carried = unpack(&hifs, &out, &mut |_| {}).unwrap();
    assert_eq!(carried.nodes, 79 + 80);
    let mut dir = out.clone();
    for level in 0..80 {
        assert_eq!(fs::read_to_string(dir.join("z")).unwrap(), format!("{level}"));
        dir.push("d");
    }
    let ino = |path: &Path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
    assert_eq!(ino(&out.join("d/d/z")), ino(&dir.with_file_name("first")));
}

/// The way back leads elsewhere.
#[test]
fn a_folder_that_is_moved_away_from_far_above_is_told() {
    let outside = tempfile::tempdir().unwrap();
    let folder = outside.path().join("folder");
    let [high, low] = [10, 100].map(|levels| folder.join("d/".repeat(levels)));
    fs::create_dir_all(&low).unwrap();
    fs::write(low.join("file"), vec![7; 30_000]).unwrap();
    let (_, carried) = try_packed(&folder, || {
        fs::rename(high.join("d"), outside.path().join("elsewhere")).unwrap();
    });
    let error = carried.unwrap_err();
    assert!(error.source.to_string().contains("moved elsewhere"), "{error}");
}

/// Where a file has an access control list the bits of its group are the most that anybody may do whom that names.
#[test]
fn a_list_that_is_left_out_gives_nobody_more() {
    let outside = tempfile::tempdir().unwrap();
    let [folder, out] = ["folder", "out"].map(|name| outside.path().join(name));
    fs::create_dir(&folder).unwrap();
    let entry = |tag: u16, bits: u16, id: u32| {
        [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    // Its owner and a user may write, its group may read.
    let entries = [
        (1, 6, u32::MAX),
        (2, 6, 61500),
        (4, 4, u32::MAX),
        (0x10, 6, u32::MAX),
        (0x20, 0, u32::MAX),
    ];
    let entries = entries.map(|(tag, bits, id)| entry(tag, bits, id)).concat();
    let list = [2_u32.to_le_bytes().to_vec(), entries].concat();
    for name in ["in a folder", "listed"] {
        let path = folder.join(name);
        match name {
            "listed" => fs::write(&path, "x"),
            _ => fs::create_dir(&path),
        }
        .unwrap();
        match rustix::fs::setxattr(&path, ACCESS_LIST, &list, XattrFlags::empty()) {
            Err(Errno::OPNOTSUPP) => {
                eprintln!("SKIPPED: a_list_that_is_left_out_gives_nobody_more: no lists in /tmp");
                return;
            }
            set => set.unwrap(),
        }
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o660);
    }
    let (hifs, carried) = packed(&folder, || ());
    assert_eq!(carried.attributes_left_out, 2);
    unpack(&hifs, &out, &mut |_| {}).unwrap();
    for name in ["in a folder", "listed"] {
        assert_eq!(fs::metadata(out.join(name)).unwrap().mode() & 0o777, 0o640, "{name}");
    }
}
