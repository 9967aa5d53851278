//! The overlay against a file system in memory: the same random operations, the same tree.

use std::fs;
use std::process::Command;

use tacita_purge::{Overlay, OverlayOptions};
use tacita_testkit::history::{Limits, Rng, Seen, Tree, step, tree};
use tacita_testkit::{MemoryFs, skip_without_fuse};
use tacita_vfs::{FileSystem, FileType};

use crate::image::{Fs, Image, all, turn};
use crate::overlay::{Mounted, options};

const STEPS: u64 = 200;

/// Both trees are the same; what differs is named without its content.
fn compare(model: &Tree, overlay: &Tree, place: &str) {
    let paths: Vec<_> = model.keys().chain(overlay.keys()).collect();
    for path in paths {
        let (one, other) = (model.get(path), overlay.get(path));
        // Permissions of a link mean nothing, and ext4 does not store them.
        let perm = |seen: &Seen| if seen.kind == FileType::Symlink { 0 } else { seen.perm };
        let brief =
            |seen: Option<&Seen>| seen.map(|s| (s.kind, perm(s), s.owner, s.rdev, s.content.len()));
        let name = String::from_utf8_lossy(path);
        assert_eq!(brief(one), brief(other), "{name}: {place}");
        let same = |one: &Seen, other: &Seen| {
            let plain = matches!(one.kind, FileType::File | FileType::Directory);
            (&one.content, &one.same_as) == (&other.content, &other.same_as)
                && (!plain || one.xattrs == other.xattrs)
        };
        let same = one.zip(other).is_some_and(|(one, other)| same(one, other));
        assert!(same, "{name}: content, attributes or links differ: {place}");
    }
}

fn game(fs: Fs, asynchronous: bool, seed: u64) -> bool {
    let Some(image) = Image::new("the_tree_is_as_without_purging", fs) else { return false };
    let lower = image.dir().join("lower");
    fs::create_dir(&lower).unwrap();
    // As the model's root, whatever the mask of this process.
    let open: fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&lower, open).unwrap();
    let opaque_links = fs == Fs::Ext4 && asynchronous;
    let options = OverlayOptions { opaque_links, ..options("e", asynchronous) };
    let overlay = Overlay::open(&lower, options).unwrap();
    let model = MemoryFs::default();
    let limits = Limits { names: 12, size_max: 60_000, write_max: 20_000 };
    let (mut one, mut other) = (Rng::new(seed), Rng::new(seed));
    for number in 0..STEPS {
        step(&model, &mut one, &limits);
        step(&overlay, &mut other, &limits);
        if number % 20 == 19 {
            compare(&tree(&model), &tree(&overlay), &format!("seed {seed}, step {number}"));
        }
        if number % 50 == 49 {
            overlay.sync().unwrap();
        }
    }
    overlay.sync().unwrap();
    let status = overlay.status();
    assert!(status["files"].as_u64().unwrap() > 0, "{status:#}");
    assert_eq!((&status["kept"], &status["not_in_place"]), (&0.into(), &0.into()), "{status:#}");
    true
}

#[test]
fn the_tree_is_as_without_purging() {
    let _turn = turn();
    let games = if all() { 30 } else { 3 };
    for seed in 0..games {
        for (fs, asynchronous) in [(Fs::Ext4, false), (Fs::Ext4, true), (Fs::Ext4Plain, true)] {
            if !game(fs, asynchronous, seed) {
                return;
            }
        }
    }
}

fn suite(test: &str, tool: &str, asynchronous: bool, passthrough: bool, after: &[&str]) {
    let _turn = turn();
    if skip_without_fuse(test) {
        return;
    }
    let home = std::env::var_os("HOME").unwrap_or_default();
    if !std::path::Path::new(&home).join(".cargo/bin").join(tool).exists() {
        eprintln!("SKIPPED: {test}: {tool} is not installed");
        return;
    }
    let Some(image) = Image::new(test, Fs::Ext4) else { return };
    let above = image.dir();
    let open: fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(above.parent().unwrap(), open).unwrap();
    rustix::process::umask(rustix::fs::Mode::empty());
    let options = tacita_purge::OverlayOptions { passthrough, ..options("clear", asynchronous) };
    let mounted = Mounted::new(&image, options);
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../testkit/conformance")
        .join(format!("{tool}.sh"));
    let output = Command::new(script).arg(&mounted.dir).args(after).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    mounted.end();
}

#[test]
fn fsx_by_the_kernel() {
    suite("fsx_by_the_kernel", "fsx", false, true, &["1500", "1"]);
}

#[test]
fn fsx_through_the_daemon() {
    suite("fsx_through_the_daemon", "fsx", true, false, &["1500", "2"]);
}

#[test]
fn pjdfstest_at_once() {
    suite("pjdfstest_at_once", "pjdfstest", false, true, &[]);
}

#[test]
fn pjdfstest_in_the_background() {
    if !all() {
        return;
    }
    suite("pjdfstest_in_the_background", "pjdfstest", true, true, &[]);
}
