//! Few open files: trees of any size are listed and deleted all the same.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tacita_purge::mutant::{Mutant, plant};
use tacita_testkit::skip_without_fuse;

use crate::image::{Fs, Image, run, turn};
use crate::overlay::{Mounted, options};

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
    let listed = run("ls", &["-lR", text]).unwrap();
    assert_eq!(listed.matches("secretname-Limits-").count(), FOLDERS * (FILES + 2));
    let found = run("find", &[text, "-type", "f", "-size", "-100k"]).unwrap();
    assert_eq!(found.lines().count(), FOLDERS * FILES);
    run("rm", &["-rf", text]).unwrap();
    assert!(!tree.exists());
}

/// Not a game by itself: a process of few descriptors that serves a mount.
#[test]
fn child() {
    let Some(place) = std::env::var_os(PLACE) else { return };
    if std::env::var_os(FAULT).is_some() {
        plant(&[Mutant::DescriptorsStay]);
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
    let own = std::env::current_exe().unwrap();
    // Without that capability root cannot raise the limit either.
    let mut child = Command::new("setpriv");
    child.args(["--bounding-set=-sys_resource", "prlimit", "--nofile=1024:1024"]).arg(own);
    child.args(["limits::child", "--exact", "--test-threads=1", "--nocapture"]);
    child.env(PLACE, image.dir().parent().unwrap());
    if fault {
        child.env(FAULT, "1");
    }
    let ended = child.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned()
        + &String::from_utf8_lossy(&ended.stderr);
    let _ = rustix::mount::unmount(image.mount_dir(), rustix::mount::UnmountFlags::DETACH);
    image.unmount();
    let left = ["LOST-Limits-", "KEPT-Limits-", "secretname-Limits-"].map(|text| image.count(text));
    Some((ended.status.success(), said, left.iter().sum()))
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
