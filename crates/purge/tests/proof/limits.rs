//! Few open files: trees of any size are listed and deleted all the same.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use tacita_purge::faults::{Fault, plant};
use tacita_purge::{Removal, RemovalOptions};
use tacita_testkit::skip_without_fuse;

use crate::image::{Fs, Image, turn};
use crate::overlay::{Mounted, options};
use tacita_testkit::system;

/// Tells the child where to work, and whether a fault is planted.
const PLACE: &str = "TACITA_PURGE_LIMITS_PLACE";
const FAULT: &str = "TACITA_PURGE_LIMITS_FAULT";

/// Folders, and files in each: more of them than may be open.
const FOLDERS: usize = 200;
const FILES: usize = 25;

fn folder(tree: &Path, number: usize) -> PathBuf {
    tree.join(format!("secretname-Limits-{number}-"))
}

fn make(tree: &Path, mark: &str) {
    for number in 0..FOLDERS {
        let folder = folder(tree, number);
        fs::create_dir_all(&folder).unwrap();
        for file in 0..FILES {
            let name = format!("secretname-Limits-{number}-{file}-");
            let content = format!("{mark} {number} {file} ").repeat(20);
            fs::write(folder.join(name), content).unwrap();
        }
    }
}

/// Lists a tree in two ways, and deletes it.
fn list_and_delete(tree: &Path) {
    let text = tree.to_str().unwrap();
    let listed = system("ls", &["-lR", text]).unwrap();
    assert_eq!(listed.matches("secretname-Limits-").count(), FOLDERS * (FILES + 2));
    let found = system("find", &[text, "-type", "f", "-size", "-100k"]).unwrap();
    assert_eq!(found.lines().count(), FOLDERS * FILES);
    system("rm", &["-rf", text]).unwrap();
    assert!(!tree.exists());
}

/// Not a game by itself: a process of few descriptors that serves a mount.
#[test]
fn child() {
    let Some(place) = std::env::var_os(PLACE) else { return };
    if std::env::var_os(FAULT).is_some() {
        plant(&[Fault::DescriptorsStay]);
    }
    let place = Path::new(&place);
    let mounted = Mounted::at(&place.join("lower"), place.join("upper"), options("clear", true));
    let tree = mounted.dir.join("tree");
    list_and_delete(&tree);
    mounted.overlay().finish().unwrap();
    // Numbers of inodes are used again, and mean the new files.
    make(&tree, "KEPT-Limits-");
    for number in 0..FOLDERS {
        for file in 0..FILES {
            let name = format!("secretname-Limits-{number}-{file}-");
            let content = fs::read_to_string(folder(&tree, number).join(name)).unwrap();
            assert_eq!(content, format!("KEPT-Limits- {number} {file} ").repeat(20));
        }
    }
    list_and_delete(&tree);
    mounted.overlay().finish().unwrap();
    let status = mounted.overlay().status();
    assert_eq!((&status["kept"], &status["not_in_place"]), (&0.into(), &0.into()), "{status:#}");
    mounted.end();
}

/// Whether the child has done all of it with 1,024 descriptors, and how much is left in the image.
fn deleted(fault: bool) -> Option<(bool, String, usize)> {
    let image = Image::new("trees_larger_than_the_limit_of_open_files", Fs::Ext4)?;
    make(&image.dir().join("tree"), "LOST-Limits-");
    image.remount();
    let (done, said) = serve_with_few_descriptors("limits::child", &image, fault);
    image.unmount();
    let left = ["LOST-Limits-", "KEPT-Limits-", "secretname-Limits-"].map(|text| image.count(text));
    Some((done, said, left.iter().sum()))
}

/// Whether a process of 1,024 descriptors has done what it is for, and what it said.
fn serve_with_few_descriptors(child: &str, image: &Image, fault: bool) -> (bool, String) {
    let own = std::env::current_exe().unwrap();
    // Without that capability root cannot raise the limit either.
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-sys_resource", "prlimit", "--nofile=1024:1024"]).arg(own);
    command.args([child, "--exact", "--test-threads=1", "--nocapture"]);
    command.env(PLACE, image.dir().parent().unwrap());
    if fault {
        command.env(FAULT, "1");
    }
    let ended = command.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned()
        + &String::from_utf8_lossy(&ended.stderr);
    let _ = rustix::mount::unmount(image.mount_dir(), rustix::mount::UnmountFlags::DETACH);
    (ended.status.success(), said)
}

#[test]
fn trees_larger_than_the_limit_of_open_files() {
    let _turn = turn();
    if skip_without_fuse("trees_larger_than_the_limit_of_open_files") {
        return;
    }
    let Some((done, said, left)) = deleted(false) else { return };
    assert!(done, "{said}");
    assert_eq!(left, 0, "content or names are left in the image");
    let (done, said, _) = deleted(true).unwrap();
    assert!(!done && said.contains("Too many open files in system"), "not caught: {said}");
}

/// Folders beside each other, with a file in each: three descriptors for each are more than may be open.
const BESIDE: usize = 500;

/// Folders in each other: what calls itself for each needs more stack than that.
const WITHIN: usize = 200;
const STACK_LEN_BYTES: usize = 512 << 10;

fn make_wide_and_deep(tree: &Path) {
    let mut deep = tree.join("deep");
    for number in 0..BESIDE {
        let folder = folder(tree, number);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("secretname-Limits-"), "LOST-Limits- ".repeat(20)).unwrap();
    }
    for _ in 0..WITHIN {
        deep.push("secretname-Limits-");
    }
    fs::create_dir_all(&deep).unwrap();
}

/// Not a game by itself: a process of few descriptors and little stack that purges by path.
#[test]
fn removing_child() {
    let Some(place) = std::env::var_os(PLACE) else { return };
    let tree = Path::new(&place).join("lower/tree");
    let thread = std::thread::Builder::new().stack_size(STACK_LEN_BYTES);
    let removal = thread.spawn(move || {
        let options = RemovalOptions { recursive: true, ..RemovalOptions::default() };
        let mut removal = Removal::new(options);
        removal.purge(&tree);
        removal.finish()
    });
    let verdicts = removal.unwrap().join().unwrap();
    // The tree, the first of those in each other, and all that is in them.
    assert_eq!(verdicts.len(), 2 * BESIDE + WITHIN + 2);
    let wrong: Vec<_> = verdicts.iter().filter(|verdict| !verdict.holds()).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn a_tree_larger_than_the_limit_of_open_files_is_purged_by_path() {
    let _turn = turn();
    let test = "a_tree_larger_than_the_limit_of_open_files_is_purged_by_path";
    let Some(image) = Image::new(test, Fs::Ext4) else { return };
    make_wide_and_deep(&image.dir().join("tree"));
    image.remount();
    let (done, said) = serve_with_few_descriptors("limits::removing_child", &image, false);
    assert!(done, "{said}");
    image.unmount();
    let left = ["LOST-Limits-", "secretname-Limits-"].map(|text| image.count(text));
    assert_eq!(left, [0, 0], "content or names are left in the image");
}

/// Files that are looked at until descriptors that are not kept have been closed.
const OTHERS: usize = 1500;

/// Not a game by itself: programs go on using what has been deleted, and is purged.
#[test]
fn remembering_child() {
    let Some(place) = std::env::var_os(PLACE) else { return };
    if std::env::var_os(FAULT).is_some() {
        plant(&[Fault::NumbersUsedAgain]);
    }
    let place = Path::new(&place);
    let mounted = Mounted::at(&place.join("lower"), place.join("upper"), options("clear", true));
    let dir = &mounted.dir;
    // The kernel remembers both, and the overlay has neither open.
    let remembered = |name: &str| {
        let flags = i32::try_from(rustix::fs::OFlags::PATH.bits()).unwrap();
        OpenOptions::new().read(true).custom_flags(flags).open(dir.join(name)).unwrap()
    };
    let (file, folder) = (remembered("file"), remembered("folder"));
    let numbers = [&file, &folder].map(|held: &File| held.metadata().unwrap().ino());
    fs::remove_file(dir.join("file")).unwrap();
    fs::remove_dir(dir.join("folder")).unwrap();
    // Some have lost their names and wait, some are freed.
    for _ in 0..2 {
        for number in 0..OTHERS {
            fs::metadata(dir.join(format!("others/{number}"))).unwrap();
        }
        mounted.overlay().finish().unwrap();
    }
    for number in 0..100 {
        let (file, folder) = (dir.join(format!("f{number}")), dir.join(format!("d{number}")));
        fs::write(&file, "new").unwrap();
        fs::create_dir(&folder).unwrap();
        for path in [file, folder] {
            let number = fs::metadata(path).unwrap().ino();
            assert!(!numbers.contains(&number), "{number} is used again, and was remembered");
        }
    }
    for held in [&file, &folder] {
        assert_eq!(held.metadata().unwrap().nlink(), 0);
    }
    drop((file, folder));
    mounted.end();
}

#[test]
fn a_number_that_is_remembered_is_not_used_again() {
    let _turn = turn();
    let test = "a_number_that_is_remembered_is_not_used_again";
    if skip_without_fuse(test) {
        return;
    }
    let remembering = |fault| {
        let image = Image::new(test, Fs::Ext4)?;
        fs::create_dir(image.dir().join("folder")).unwrap();
        fs::write(image.dir().join("file"), "LOST-Limits-").unwrap();
        fs::create_dir(image.dir().join("others")).unwrap();
        for number in 0..OTHERS {
            File::create(image.dir().join(format!("others/{number}"))).unwrap();
        }
        image.remount();
        Some(serve_with_few_descriptors("limits::remembering_child", &image, fault))
    };
    let Some((done, said)) = remembering(false) else { return };
    assert!(done, "{said}");
    let (done, said) = remembering(true).unwrap();
    assert!(!done && said.contains("is used again"), "not caught: {said}");
}
